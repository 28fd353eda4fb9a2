"""Nodes that NumPy computes, piece by piece: between two pieces a run can end.

Python hears signals between two calls of NumPy, not inside of one. So the results of a large node
are computed for some indices of an axis at a time, along which they are independent: a sort of many
rows for some of the rows. A node without such an axis, a sort of one row, is a single call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from graphfw.ir import time_limits
from graphfw.ir.dim_text import evaluate
from graphfw.ir.literal import Array
from graphfw.ir.op import PURE, Op, Rng
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.ops.batching import free_axis

_PIECE = 1 << 17
"""Elements of a piece's largest input or output: some ms of a sort."""

Compute = Callable[[Sequence[Array], Rng], Sequence[Array]]


class Cut(NamedTuple):
    """How a node's results are cut into pieces.

    Attributes:
        axis: Along which axis.
        length: How many indices it has.
        step: How many of these a piece has.
        outputs: The results' types.
    """

    axis: int
    length: int
    step: int
    outputs: Sequence[TensorType]


def cut_of(node: Node, op: Op, sizes: Mapping[str, int]) -> Cut | None:
    """Return how a node is cut at some sizes; None where one call computes it."""
    if PURE not in op.traits:
        return None
    inputs, outputs = (
        [_at(tensor, sizes) for tensor in tensors] for tensors in (node.inputs, node.outputs)
    )
    largest = max([int(t.size) for t in (*inputs, *outputs)])
    if largest < 2 * _PIECE:
        return None
    axis = free_axis(op, inputs, outputs)
    if axis is None:
        return None
    length = int(outputs[0].shape[axis])
    step = max(1, _PIECE * length // largest)
    return Cut(axis, length, step, outputs) if step < length else None


def _at(tensor: Tensor, sizes: Mapping[str, int]) -> TensorType:
    return TensorType(tensor.dtype, tuple([evaluate(dim, sizes) for dim in tensor.shape]))


def in_pieces(node: Node | None, cut: Cut, compute: Compute) -> Compute:
    """Return a function that computes a node piece by piece, by one that computes any of them."""

    def all_pieces(arrays: Sequence[Array], rng: Rng) -> Sequence[Array]:
        results = [np.empty(t.shape, t.dtype.dtype) for t in cut.outputs]
        for begin in range(0, cut.length, cut.step):
            time_limits.check(node)
            span = slice(begin, begin + cut.step)
            parts = compute([_part(array, cut, span) for array in arrays], rng)
            for result, part in zip(results, parts, strict=True):
                _part(result, cut, span)[...] = part
        return results

    return all_pieces


def _part(array: Array, cut: Cut, span: slice) -> Array:
    """Return the part of an array for a piece: all of it where it is broadcast along the axis."""
    axis, ndim = cut.axis, array.ndim
    if -axis > ndim or array.shape[axis] == 1 < cut.length:
        return array
    return array[(slice(None),) * (axis % ndim) + (span,)]
