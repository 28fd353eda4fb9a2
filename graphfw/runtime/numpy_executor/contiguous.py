"""C-contiguous copies of arrays, made by native code on all threads."""

from __future__ import annotations

import functools
from collections import OrderedDict
from importlib import import_module
from typing import NamedTuple

import numpy as np

from graphfw.ir.literal import Array
from graphfw.runtime.limits import compiles
from graphfw.runtime.numpy_executor.buffer_pool import OutputPool
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.numpy_executor.runner import Run, Tables, Wave
from graphfw.utils import forks

_SMALL = 1 << 16
"""Bytes that NumPy copies in the time that a native call takes to begin."""

_LARGE = 1 << 20
"""Bytes that NumPy takes longer to copy, where they are transposed, than a kernel to be loaded."""

_KEPT = 8
"""Layouts whose tables are kept, 3 KB each: to make them takes as long as to copy 100 KB."""

_ITEMS = (1, 2, 4, 8)
"""Bytes of elements that kernels copy."""


class ArrayLayout(NamedTuple):
    """The shape and the strides of an array, in elements; axes that can be joined are joined."""

    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def as_contiguous(array: Array, threads: int) -> Array:
    """Return an array with the same elements that is C-contiguous and aligned.

    Args:
        array: Any array.
        threads: How many threads may copy.
    """
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    if array.nbytes < _SMALL or not _fits(array):
        return np.require(array, requirements=["C", "A"])
    result = _pool(array.dtype).maker(array.shape, array.nbytes)()
    _copy(array, result, threads)
    return result


def contiguous_copy(array: Array) -> Array:
    """Return a C-contiguous copy, in memory of its own.

    NumPy copies a large transposed matrix element by element from other cache lines, which have
    left the cache when their next element is due; kernels copy it square by square.
    """
    if array.flags.c_contiguous or array.nbytes < _LARGE or not (_fits(array) and compiles()):
        return np.array(array, order="C")
    copy = np.empty(array.shape, array.dtype)
    _copy(array, copy, default_threads())
    return copy


def _fits(array: Array) -> bool:
    """Return whether kernels copy an array."""
    itemsize = array.dtype.itemsize
    if itemsize not in _ITEMS or not array.flags.aligned or not array.dtype.isnative:
        return False
    return not any([stride % itemsize for stride in array.strides])


def _copy(array: Array, result: Array, threads: int) -> None:
    layout = _layout_of(array)
    copying = _copying(layout, threads)
    try:
        copying.run(array, result)
    finally:
        _give_back(layout, threads, copying)


def _layout_of(array: Array) -> ArrayLayout:
    item = array.dtype.itemsize
    found: list[tuple[int, int]] = []
    for dim, nbytes in zip(array.shape, array.strides, strict=True):
        stride = nbytes // item
        if dim == 1:
            continue
        if found and found[-1][1] == stride * dim:
            found[-1] = (found[-1][0] * dim, stride)
        else:
            found.append((dim, stride))
    shape, strides = zip(*found, strict=True)
    return ArrayLayout(item, shape, strides)


class _Copying:
    """The tables of one copy at a time, of arrays of one layout."""

    def __init__(self, layout: ArrayLayout, threads: int) -> None:
        # Not at the top: runs with contiguous feeds need no compiler.
        kernels = import_module("graphfw.runtime.numpy_executor.copy_kernels")
        self._run = Run(Tables([Wave([kernels.call_of(layout)])], 2, 0), threads)
        self._call = self._run.stretch(0, 1, hold=False)

    def run(self, source: Array, target: Array) -> None:
        """Copy."""
        self._run.bases[0], self._run.bases[1] = source.ctypes.data, target.ctypes.data
        self._call(())


_free: OrderedDict[tuple[ArrayLayout, int], list[_Copying]] = OrderedDict()
"""Tables that no run uses."""

_lock = forks.renewed_lock()


def _copying(layout: ArrayLayout, threads: int) -> _Copying:
    with _lock:
        free = _free.get((layout, threads))
        if free:
            return free.pop()
    return _Copying(layout, threads)


def _give_back(layout: ArrayLayout, threads: int, copying: _Copying) -> None:
    with _lock:
        _free.setdefault((layout, threads), []).append(copying)
        _free.move_to_end((layout, threads))
        while len(_free) > _KEPT:
            _free.popitem(last=False)


@functools.cache
def _pool(dtype: np.dtype[np.generic]) -> OutputPool:
    return OutputPool(dtype)
