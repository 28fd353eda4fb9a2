"""Under what names machine code is known and kept: hashes of all that it is made from."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from graphfw.runtime.numpy_executor.machine import machine
from graphfw.utils.hashing import blake2b

if TYPE_CHECKING:
    from graphfw.runtime.kernels.steps import Code


def name_of(code: Code) -> str:
    """Return the symbol of a code's function, which is its name on disk; equal codes have one."""
    text = f"{code.key}\0{machine().key}\0{_generator()}"
    return "gf_" + blake2b(text.encode(), digest_size=20).hexdigest()


@functools.cache
def _generator() -> str:
    """Return the generator of LLVM text, in one word: machine code of another one is not used."""
    here = Path(__file__).parent
    return sources(here, here.parent / "kernels")


def sources(*folders: Path) -> str:
    """Return the state of the source files in folders, as one word."""
    lines: list[str] = []
    todo = [str(folder) for folder in folders]
    while todo:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".ll")):
                    # Times instead of contents: reading the sources would cost more than loading
                    # the code.
                    state = entry.stat()
                    lines.append(f"{entry.path} {state.st_size} {state.st_mtime_ns}")
                elif entry.name != "__pycache__" and entry.is_dir():
                    todo.append(entry.path)
    return blake2b("\n".join(sorted(lines)).encode(), digest_size=20).hexdigest()
