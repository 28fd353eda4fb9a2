"""Files: checkpoints in the safetensors format, and PyTorch's weights with their names.

What reads and writes them takes as long to import as a third of graphfw, and most processes never
do: it is loaded when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphfw.io.checkpoint import (
        read_and_verify,
        read_checkpoint,
        read_metadata,
        write_checkpoint,
    )
    from graphfw.io.entries import Mismatch, Restored, check_entries
    from graphfw.io.model_names import NameTable, names_of
    from graphfw.io.notes import from_text, to_text
    from graphfw.io.pytorch import read_pytorch, write_pytorch

__all__ = [
    "Mismatch",
    "NameTable",
    "Restored",
    "check_entries",
    "from_text",
    "names_of",
    "read_and_verify",
    "read_checkpoint",
    "read_metadata",
    "read_pytorch",
    "to_text",
    "write_checkpoint",
    "write_pytorch",
]

_MODULES = {
    "Mismatch": "entries",
    "Restored": "entries",
    "check_entries": "entries",
    "NameTable": "model_names",
    "names_of": "model_names",
    "from_text": "notes",
    "to_text": "notes",
    "read_pytorch": "pytorch",
    "write_pytorch": "pytorch",
}
"""The modules of names that are not in `checkpoint`."""

_FOREIGN = {
    "write model.load_pytorch(session, path)": ("load_pytorch", "load_torch"),
    "write model.save_pytorch(session, path)": ("save_pytorch", "save_torch"),
    "write gf.io.read_pytorch(path)": ("load_file", "safe_open", "load"),
    "write gf.io.write_pytorch(path, arrays)": ("save_file", "save"),
}
"""Hints for names that the module does not have: texts, and the names."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        hint = next((f": {text}" for text, names in _FOREIGN.items() if name in names), "")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    module = _MODULES.get(name, "checkpoint")
    return getattr(import_module(f"graphfw.io.{module}"), name)
