"""The memory that compiling leaves in the process, given back before a run takes much itself."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

_IN_USE = np.uint64(0b11 << 62)
"""In /proc/self/pagemap: a page is in memory, or swapped out."""

_OF_FILE = np.uint64(1 << 61)
"""In /proc/self/pagemap: it is a page of a file, as the file has it, or one that is shared."""


def trim_heap() -> None:
    """Give the system what was freed, and the compiler's code; on Linux, which has calls for it.

    Nothing is lost: the pages of a library that nobody has written to are those of its file, and
    the next compilation finds them in the system's cache.
    """
    if sys.platform != "linux":
        return
    libc = _libc()
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    if "llvmlite" in sys.modules:
        with contextlib.suppress(OSError):  # /proc may be closed
            for span in _read_only(_library()):
                if _is_clean(span):
                    libc.madvise(span.begin, span.end - span.begin, mmap.MADV_DONTNEED)


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def _library() -> str:
    from llvmlite.binding import ffi

    path: str = ffi.lib._name
    return path


class _Span(NamedTuple):
    begin: int
    end: int


def _read_only(path: str) -> Iterator[_Span]:
    """Yield where a file is mapped and can't be written to."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            addresses, access, *_, name = line.rstrip("\n").split(maxsplit=5)
            if name == path and "w" not in access:
                yield _Span(*[int(address, 16) for address in addresses.split("-")])


def _is_clean(span: _Span) -> bool:
    """Return whether no page was changed, as the linker changes those with addresses."""
    first, last = span.begin // mmap.PAGESIZE, span.end // mmap.PAGESIZE
    with open("/proc/self/pagemap", "rb") as pages:
        pages.seek(8 * first)
        flags = np.frombuffer(pages.read(8 * (last - first)), np.uint64)
    is_used, is_of_file = flags & _IN_USE != 0, flags & _OF_FILE != 0
    return flags.size == last - first and bool(np.all(is_of_file[is_used]))
