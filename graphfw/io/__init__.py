"""Files: checkpoints in the safetensors format.

What reads and writes them takes as long to import as a third of graphfw, and most processes never
do: it is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfw.io.checkpoint import read_and_verify, read_checkpoint, write_checkpoint
    from graphfw.io.entries import Mismatch, check_entries

__all__ = [
    "Mismatch",
    "check_entries",
    "read_and_verify",
    "read_checkpoint",
    "write_checkpoint",
]

_ENTRIES = {"Mismatch", "check_entries"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "entries" if name in _ENTRIES else "checkpoint"
    return getattr(import_module(f"graphfw.io.{module}"), name)
