"""Arrays directly before a page that may not be touched: `python -m tests.fuzz --guard`.

An access outside of an array mostly hits other memory of the process, and nothing shows. Here each
array that NumPy makes lies at the end of its own pages (`guard.c`): an access behind it ends the
process with SIGSEGV, and what it holds at first is poison, so that memory which is read before it
is written gives wrong results. That is all memory of the CPU executor: outputs, arenas, scratch,
tables; also operands.

Arrays that begin at a cache line would end before the page. Here they end at it, and begin where
that leaves them. Arenas and outputs are not used again, since they hold what is right from the last
run. What lies beside each other in one arena is not told apart.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

_SOURCE = Path(__file__).with_name("guard.c")
_SET_HANDLER = 304
"""The number of `PyDataMem_SetHandler` in NumPy's C API, which keeps it for good."""

_Function = ctypes.c_void_p


class _Handler(ctypes.Structure):
    """NumPy's `PyDataMem_Handler`."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", _Function),
        ("calloc", _Function),
        ("realloc", _Function),
        ("free", _Function),
    )


_installed: list[Any] = []
"""The library, and what NumPy holds addresses of, once it is installed."""


def compiler() -> str | None:
    """Return the C compiler's path, or None if there is none."""
    return shutil.which(os.environ.get("CC", "cc"))


def is_installed() -> bool:
    """Return whether this process guards its arrays."""
    return bool(_installed)


def poison_for(seed: int) -> None:
    """Set the byte that new memory holds in a case; without guards this does nothing.

    It is 0xFF for half of the cases: NaN in all floats, -1 in signed integers.
    """
    if _installed:
        _installed[0].guard_poison(0xFF if seed % 2 else seed // 2 % 256)


def install() -> None:
    """Guard all arrays that this thread makes from now on, for the rest of the process."""
    library = _compiled()
    handler = _Handler(b"guard", 1, None)
    for name in ("malloc", "calloc", "realloc", "free"):
        function = getattr(library, f"guard_{name}")
        setattr(handler, name, ctypes.cast(function, ctypes.c_void_p))
    name = ctypes.c_char_p(b"mem_handler")
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, _Function)
    capsule = new(ctypes.addressof(handler), name, None)
    _set_handler()(capsule)
    _installed[:] = [library, handler, name]
    _leave_no_slack()


def _compiled() -> Any:
    path = compiler()
    if path is None:
        raise RuntimeError("--guard needs a C compiler; CC names it")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "guard.so")
        options = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([path, *options, str(_SOURCE), "-o", str(library)], check=True)
        loaded = ctypes.CDLL(str(library))
    loaded.guard_poison.argtypes = (ctypes.c_ubyte,)
    return loaded


def _set_handler() -> Any:
    """Return NumPy's function that takes a capsule of an allocator."""
    from numpy._core import _multiarray_umath

    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    functions = pointer(_multiarray_umath._ARRAY_API, None)
    address = ctypes.c_void_p.from_address(functions + ctypes.sizeof(_Function) * _SET_HANDLER)
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(address.value)


def _leave_no_slack() -> None:
    from graphfw.runtime.numpy_executor import buffer_pool

    def at_the_end(memory: Any, boundary: int) -> int:
        return boundary  # memory has so many bytes more than the array

    buffer_pool._skip = at_the_end
    buffer_pool.OutputPool._unused = lambda self, nbytes: None
    buffer_pool.Arenas.give = lambda self, arena: None


def handler_of(array: np.ndarray[Any, Any]) -> str | None:
    """Return the name of the allocator that owns an array's memory."""
    from numpy._core.multiarray import get_handler_name

    name: str | None = get_handler_name(array)
    return name
