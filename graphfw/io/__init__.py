"""Files: checkpoints in the safetensors format.

What reads and writes them takes as long to import as a third of graphfw, and most processes never
do: it is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfw.io.checkpoint import read_and_verify, read_checkpoint, write_checkpoint
    from graphfw.io.entries import Mismatch, Restored, check_entries
    from graphfw.io.notes import from_text, to_text

__all__ = [
    "Mismatch",
    "Restored",
    "check_entries",
    "from_text",
    "read_and_verify",
    "read_checkpoint",
    "to_text",
    "write_checkpoint",
]

_MODULES = {
    "Mismatch": "entries",
    "Restored": "entries",
    "check_entries": "entries",
    "from_text": "notes",
    "to_text": "notes",
}
"""The modules of names that are not in `checkpoint`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "checkpoint")
    return getattr(import_module(f"graphfw.io.{module}"), name)
