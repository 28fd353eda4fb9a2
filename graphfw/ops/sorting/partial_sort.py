"""`PartialSort`: what passes make of a sort of which few elements are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graphfw.errors import DTypeError
from graphfw.ir.dtype import DType
from graphfw.ir.op import NONDIFF, Case, Op, bad, ok, op
from graphfw.ir.shape import normalize_axis, require
from graphfw.ir.types import Shape
from graphfw.ops.batching import along_axes
from graphfw.ops.dtypes import compute_dtype, require_indices, require_ordered
from graphfw.ops.sorting import selection


@op("partial_sort")
class PartialSort(Op):
    """The elements that a sort has at some indices along an axis, there; elsewhere any.

    x: [*A]  indices: [*A with K at the axis], broadcast  ->  [*A]

    All indices are meant of all lines; negative ones count from the end. Zeros of two signs have no
    order.
    """

    axis: int
    vjp = NONDIFF
    batch = along_axes
    mixed_precision = "follows"

    def shape(self, x: Shape, indices: Shape) -> Shape:
        axis = normalize_axis(self.axis, len(x))
        message = "indices must have the dims of x, or 1, but for the axis"
        fits = len(indices) == len(x)
        fits = fits and all([d in (1, x[i]) for i, d in enumerate(indices) if i != axis])
        require(fits, message, fix="use gf.reshape")
        return x

    def dtype(self, x: DType, indices: DType) -> DType:
        require_indices(indices)
        return require_ordered(x)

    def eval(self, xp: Any, x: Any, indices: Any) -> Any:
        if xp is not np:
            dtype = compute_dtype(xp, x.dtype)
            return xp.sort(x.astype(dtype, copy=False), axis=self.axis).astype(x.dtype, copy=False)
        size = x.shape[self.axis]
        wanted = indices.reshape(-1)
        wanted = np.where(wanted < 0, wanted + size, wanted)
        found = selection.partly_sorted(np.moveaxis(x, self.axis, -1), wanted)
        return np.moveaxis(found, -1, self.axis)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield bad("float32[3]", "int64[1, 1]", axis=0, match="must have the dims of x")
        yield bad("bool[3]", "int64[1]", axis=0, match="wants real tensors", error=DTypeError)
        yield bad("float32[3]", "float32[1]", axis=0, match="must be integers", error=DTypeError)
        yield bad("float32[3]", "int64[1]", axis=1, match="axis 1 is out of range for 1 dim")
        yield ok("float32[0]", "int64[0]", axis=0)
