"""Copies of arrays that users give."""

from __future__ import annotations

import numpy as np

from graphfw.ir.literal import Array

_TILE = 128
_SHORTEST = 512
"""Of a transposed matrix, the smallest size that is copied tile by tile."""


def contiguous_copy(array: Array) -> Array:
    """Return a C-contiguous copy.

    NumPy copies a large transposed matrix element by element from other cache lines, which have
    left the cache when their next element is due. Tiles fit into it; each is brought together
    first, for the lines of a matrix whose width is a power of two share a few places of the cache.
    """
    is_transposed = array.ndim == 2 and array.T.flags.c_contiguous
    if not is_transposed or min(array.shape) < _SHORTEST:
        return np.array(array, order="C")
    copy = np.empty(array.shape, array.dtype)
    scratch = np.empty((_TILE, _TILE), array.dtype)
    for row in range(0, array.shape[0], _TILE):
        for column in range(0, array.shape[1], _TILE):
            source = array[row : row + _TILE, column : column + _TILE].T
            tile = scratch[: source.shape[0], : source.shape[1]]
            tile[...] = source
            copy[row : row + _TILE, column : column + _TILE] = tile.T
    return copy
