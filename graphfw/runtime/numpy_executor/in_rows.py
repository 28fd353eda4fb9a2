"""Arrays that do not lie in a row, copied into one that does: by all threads, in native code."""

from __future__ import annotations

import functools
from collections import OrderedDict
from importlib import import_module
from typing import NamedTuple

import numpy as np

from graphfw.ir.literal import Array
from graphfw.runtime.numpy_executor.buffer_pool import OutputPool
from graphfw.runtime.numpy_executor.runner import Run, Tables, Wave
from graphfw.utils import forks

_SMALL = 1 << 16
"""Bytes that NumPy has copied before a native call begins."""

_KEPT = 8
"""Layouts whose tables are kept, 3 KB each: to make them takes as long as to copy 100 KB."""

_ITEMS = (1, 2, 4, 8)
"""Bytes of elements that kernels copy."""


class Lie(NamedTuple):
    """How elements lie, in elements; axes that lie in a row are one."""

    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def in_rows(array: Array, threads: int) -> Array:
    """Return an array whose elements lie in a row, in C order, and are aligned.

    Args:
        array: Any array.
        threads: How many threads may copy.
    """
    flags = array.flags
    if flags.c_contiguous and flags.aligned:
        return array
    itemsize = array.dtype.itemsize
    fits = itemsize in _ITEMS and flags.aligned and array.dtype.isnative
    if array.nbytes < _SMALL or not fits or any([s % itemsize for s in array.strides]):
        return np.require(array, requirements=["C", "A"])
    lie = _lie_of(array)
    result = _pool(array.dtype).maker(array.shape, array.nbytes)()
    copying = _copying(lie, threads)
    try:
        copying.run(array, result)
    finally:
        _give_back(lie, threads, copying)
    return result


def _lie_of(array: Array) -> Lie:
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
    return Lie(item, shape, strides)


class _Copying:
    """The tables of one copy at a time, of arrays that lie in one way."""

    def __init__(self, lie: Lie, threads: int) -> None:
        # Not at the top: who is fed arrays in a row does without what makes kernels.
        kernels = import_module("graphfw.runtime.numpy_executor.copy_kernels")
        self._run = Run(Tables([Wave([kernels.call_of(lie)])], 2, 0), threads)
        self._call = self._run.stretch(0, 1, hold=False)

    def run(self, source: Array, target: Array) -> None:
        """Copy."""
        self._run.bases[0], self._run.bases[1] = source.ctypes.data, target.ctypes.data
        self._call(())


_free: OrderedDict[tuple[Lie, int], list[_Copying]] = OrderedDict()
"""Tables that nobody uses."""

_lock = forks.renewed_lock()


def _copying(lie: Lie, threads: int) -> _Copying:
    with _lock:
        free = _free.get((lie, threads))
        if free:
            return free.pop()
    return _Copying(lie, threads)


def _give_back(lie: Lie, threads: int, copying: _Copying) -> None:
    with _lock:
        _free.setdefault((lie, threads), []).append(copying)
        _free.move_to_end((lie, threads))
        while len(_free) > _KEPT:
            _free.popitem(last=False)


@functools.cache
def _pool(dtype: np.dtype[np.generic]) -> OutputPool:
    return OutputPool(dtype)
