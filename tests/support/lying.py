"""Arrays of tests as views that steps read and write."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphfw.runtime.kernels.steps import Storage, View

Array = np.ndarray[Any, Any]


def whole_of(array: Array) -> Array:
    """Return the array whose memory this one is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def lying(storage: Storage, array: Array) -> View:
    """Return how an array lies in the memory of its whole, which a storage stands for."""
    offset = (array.ctypes.data - whole_of(array).ctypes.data) // array.itemsize
    strides = tuple([s // array.itemsize for s in array.strides])
    return View(storage, offset if array.size else 0, array.shape, strides)
