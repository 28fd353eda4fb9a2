"""Memory that is used again: outputs that the caller has dropped, and the arenas of past runs."""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from graphfw.ir.literal import Array
from graphfw.runtime.numpy_executor.trim_heap import trim_heap
from graphfw.runtime.planning.arena import ALIGNMENT, side_by_side

_LARGE = 32 << 20
"""Bytes that take the system longer to give than it takes to give it back what is not needed."""

LARGE_PAGE = 2 << 20
"""Bytes of the large pages of most systems."""

_MANY_PAGES = 16 << 20
"""Bytes that are worth an end that is not used."""

_KEPT = 4
"""The number of past arrays of one output that are tried."""

_WORTH = 1 << 15
"""Bytes below which a new array costs no more than looking for an old one."""


class _Memory(NamedTuple):
    """Bytes that an output may be in, and where its first element is."""

    array: Array
    skip: int


def _popped(past: deque[_Memory]) -> tuple[_Memory, int]:
    """Return the newest memory, and how many refer to its bytes."""
    memory = past.pop()
    return memory, sys.getrefcount(memory.array)


_UNSHARED = min(_popped(deque([_Memory(np.empty(0), 0)]))[1], 3)
"""The count that `_popped` returns where nobody else holds it; interpreters differ, 3 are the
most. A debugger that looks into frames has one more, here, and would have arrays be used again
later that somebody holds."""


class OutputPool:
    """Makes the arrays of one output, in memory that nobody holds any more.

    Every array that it hands out belongs to the caller. It remembers the memory of the last few,
    and uses it again when no array refers to it, no view either: it is in the page tables and
    perhaps in the cache, which makes large elementwise work up to twice as fast.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        self._past: deque[_Memory] = deque(maxlen=_KEPT)

    def maker(self, shape: tuple[int, ...], nbytes: int) -> Callable[[], Array]:
        """Return a function that makes arrays of a shape, with any contents.

        Raises:
            MemoryError: The other dims of an empty array are too large for NumPy.
        """
        rest = math.prod([size for size in shape if size])
        if not nbytes and rest * self.dtype.itemsize > sys.maxsize:
            raise MemoryError(f"NumPy has no arrays of shape {[*shape]}, not even empty ones")
        if nbytes < _WORTH:
            return partial(np.empty, shape, self.dtype)
        return partial(self.take, shape, nbytes)

    def take(self, shape: tuple[int, ...], nbytes: int) -> Array:
        """Return an array with any contents, in memory that was used before if there is any."""
        memory = self._unused(nbytes + ALIGNMENT)
        if memory is None:
            array = np.empty(_possible(nbytes + ALIGNMENT), np.uint8)
            memory = _Memory(array, _skip(array, ALIGNMENT))
            del array
        self._past.append(memory)
        return np.ndarray(shape, self.dtype, *memory)

    def _unused(self, nbytes: int) -> _Memory | None:
        past = self._past
        for _ in range(len(past)):
            try:
                memory, references = _popped(past)
            except IndexError:  # another thread was quicker
                break
            # Views refer to the array that owns their memory, views of views too.
            if references == _UNSHARED and memory.array.nbytes == nbytes:
                return memory
            past.appendleft(memory)
        return None


def copied_together(arrays: Iterable[Array], sizes: Sequence[int]) -> list[Array]:
    """Return copies of arrays of some sizes in bytes, side by side in one piece of memory.

    The system gives large pieces as large pages: some hundred times fewer than it would give for
    each array by itself, and it takes as long for each. It gives them when they are first written
    to, as zeros: zeros that are there already are left to the first run, and its many threads.
    """
    begins, nbytes = side_by_side(sizes)
    memory = aligned(nbytes, np.zeros)
    copies: list[Array] = []
    made = iter(arrays)
    for begin in begins:
        array = next(made)
        copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
        if not _is_one_zero(array):
            copy[...] = array
        del array  # before the next one is made
        copies.append(copy)
    return copies


def _is_one_zero(array: Array) -> bool:
    """Return whether all elements are one in memory, whose bits are 0: not those of -0."""
    return not any(array.strides) and not any(array[(slice(1),) * array.ndim].tobytes())


def aligned(nbytes: int, make: Callable[..., Array] = np.empty, boundary: int = ALIGNMENT) -> Array:
    """Return bytes that begin at a cache line; large pieces at a large page.

    Args:
        nbytes: How many.
        make: Makes arrays with what they are to hold at first, of a size and a dtype.
        boundary: Small pieces begin at a multiple of it.
    """
    if nbytes < _MANY_PAGES:
        return _aligned(make(nbytes + boundary, np.uint8), nbytes, boundary)
    _possible(nbytes)
    # The end, too: the system gives what is beside large pages as hundreds of small ones.
    room = -(-nbytes // LARGE_PAGE) * LARGE_PAGE
    return _aligned(make(room + LARGE_PAGE, np.uint8), nbytes, LARGE_PAGE)


def _possible(nbytes: int) -> int:
    """Return a number of bytes that an array may have; of others NumPy says it is a wrong value."""
    if nbytes > sys.maxsize - 2 * LARGE_PAGE:
        raise MemoryError(f"Unable to allocate {nbytes:,} bytes")
    return nbytes


def _aligned(memory: Array, nbytes: int, boundary: int) -> Array:
    skip = _skip(memory, boundary)
    return memory[skip : skip + nbytes]


def _skip(memory: Array, boundary: int) -> int:
    """Return the number of bytes of a piece of memory that come before a boundary."""
    return -memory.ctypes.data % boundary


class ArenaMemory(NamedTuple):
    """Bytes, and where they begin."""

    array: Array
    address: int


class Arenas:
    """The arenas of a session: as many as runs have gone on at once, shared by all its plans."""

    def __init__(self) -> None:
        self._free: list[ArenaMemory] = []

    def take(self, nbytes: int) -> ArenaMemory:
        """Return an arena of so many bytes or more."""
        try:
            arena = self._free.pop()
        except IndexError:
            arena = NO_MEMORY
        if arena.array.nbytes < nbytes:
            arena = NO_MEMORY  # let the smaller one go before
            if nbytes >= _LARGE:
                trim_heap()
            array = aligned(nbytes)
            arena = ArenaMemory(array, array.ctypes.data)
        return arena

    def give(self, arena: ArenaMemory) -> None:
        """Take an arena back."""
        self._free.append(arena)


NO_MEMORY = ArenaMemory(np.empty(0, np.uint8), 0)
"""The arena of what needs none."""
