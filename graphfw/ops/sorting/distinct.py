"""The distinct elements of NumPy's arrays, from one sort."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from graphfw.ir.literal import Array
from graphfw.ops.dtypes import compute_dtype
from graphfw.ops.sorting import keys, values


def distinct(x: Array, wanted: Collection[int]) -> tuple[Array | None, ...]:
    """Return the distinct elements in order, and where each is first, which each is, how many.

    Every NaN is distinct; 0.0 and -0.0 are not.

    Args:
        x: The elements.
        wanted: The numbers of the results to compute, the others are None.
    """
    flat = np.ravel(x)
    if flat.dtype.kind in "bc":  # these have no sorts of their own
        found = np.unique(
            flat, return_index=True, return_inverse=True, return_counts=True, equal_nan=False
        )
        return found[0], *[a.astype(np.int64, copy=False) for a in found[1:]]
    wide = flat.astype(compute_dtype(np, flat.dtype), copy=False)
    if not any([number in wanted for number in (1, 2, 3)]):
        ordered = values.sort(wide, 0)
        return ordered[_is_first(ordered)].astype(x.dtype, copy=False), None, None, None
    order = keys.argsort(wide, 0)
    is_first = _is_first(wide.take(order))
    indices = order[is_first]
    begins = np.flatnonzero(is_first)
    inverse = None
    if 2 in wanted:
        inverse = np.empty(flat.shape, np.int64)
        inverse[order] = np.cumsum(is_first) - 1
    counts = np.diff(begins, append=flat.size).astype(np.int64, copy=False)
    return flat.take(indices), indices, inverse, counts


def _is_first(ordered: Array) -> Array:
    """Mark the sorted elements that differ from the one before."""
    result = np.ones(ordered.shape, bool)
    np.not_equal(ordered[1:], ordered[:-1], out=result[1:])
    return result
