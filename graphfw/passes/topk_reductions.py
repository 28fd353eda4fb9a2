"""The largest few of each row by reductions: for each one of values and one of indices."""

from __future__ import annotations

import numpy as np

from graphfw.ir.build import constant
from graphfw.ir.dim import always_ge
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F
from graphfw.ir.literal import Array
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.sorting.sort_search import ArgTopK
from graphfw.passes.base import NodePass
from graphfw.utils.records import record

_FEW = 4
"""More of them would take more passes over a row than choosing takes."""


@record
class TopKToReductions(NodePass):
    """Find the indices of few extremes by reductions, which are compiled, and fused."""

    name = "topk-to-reductions"
    hit = "reduced"

    def fits(self, node: Node) -> bool:
        op = node.op
        if not isinstance(op, ArgTopK) or not isinstance(op.k, int) or not 0 < op.k <= _FEW:
            return False
        x = node.inputs[0]
        # NaN is the largest: the smallest numbers are not what a minimum finds.
        has_extremes = op.largest or x.dtype.is_integer
        return has_extremes and not x.dtype.is_storage and always_ge(x.shape[op.axis], op.k)

    def replaced(self, node: Node, inputs: tuple[Tensor, ...]) -> Tensor:
        assert isinstance(node.op, ArgTopK)
        return _indices(inputs[0], node.op)


def _indices(x: Tensor, op: ArgTopK) -> Tensor:
    """Return the indices of the first k along an axis: each comes after the one before.

    In the order of the op an element comes after another that is larger, or equal and before it.
    """
    axis, size = op.axis, x.shape[op.axis]
    numbers = F.reshape(F.arange(size), [size if i == axis else 1 for i in range(x.ndim)])
    reduce, first = (F.max, F.argmax) if op.largest else (F.min, F.argmin)
    worst = constant(_worst(x.dtype, largest=op.largest))
    best = reduce(x, axis=axis, keepdims=True)
    found = [first(x, axis=axis, keepdims=True)]
    while len(found) < op.k:
        is_worse = x < best if op.largest else x > best
        if x.dtype.is_floating:
            is_worse = is_worse | (F.isnan(best) & ~F.isnan(x))
        left = is_worse | (_is_same(x, best) & (numbers > found[-1]))
        best = reduce(F.where(left, x, worst), axis=axis, keepdims=True)
        indices = F.where(_is_same(x, best) & left, numbers, size)
        found.append(F.min(indices, axis=axis, keepdims=True))
    joined: Tensor = F.concat(found, axis=axis)
    return joined


def _is_same(a: Tensor, b: Tensor) -> Tensor:
    same: Tensor = a == b
    return same | (F.isnan(a) & F.isnan(b)) if a.dtype.is_floating else same


def _worst(dtype: DType, *, largest: bool) -> Array:
    """Return an element that none comes after."""
    if dtype.is_floating:
        return np.array(-np.inf).astype(dtype.dtype)
    limits = np.iinfo(dtype.dtype)
    return np.array(limits.min if largest else limits.max, dtype.dtype)
