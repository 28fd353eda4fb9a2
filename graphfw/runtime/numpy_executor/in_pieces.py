"""Nodes that NumPy computes, piece by piece: by several threads, and between two a run can end.

NumPy computes a call on one thread, and Python hears signals between two calls, not inside of one.
So the results of a large node are computed for some indices of an axis at a time, along which they
are independent: a sort of many rows for some of the rows. Which pieces there are does not depend on
the number of threads. A node without such an axis, a sort of one row, is a single call.
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
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
"""Elements of a piece's largest input or output, or as much work: some ms of a sort, and 20 times
as long as it takes to start a thread."""

_AT_ONCE = 8
"""Operations that take about as long as an element of a sort: decompositions of matrices have many
for each element."""

Compute = Callable[[Sequence[Array], Rng], Sequence[Array]]


class ResultCut(NamedTuple):
    """The division of a node's results into pieces.

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


def cut_of(node: Node, op: Op, sizes: Mapping[str, int]) -> ResultCut | None:
    """Return how a node is cut at some sizes; None where one call computes it."""
    if PURE not in op.traits:
        return None
    inputs, outputs = (
        [_at(tensor, sizes) for tensor in tensors] for tensors in (node.inputs, node.outputs)
    )
    flops = op.cost(tuple(outputs), *inputs).flops
    work = max([int(t.size) for t in (*inputs, *outputs)] + [int(flops) // _AT_ONCE])
    if work < 2 * _PIECE:
        return None
    axis = free_axis(op, inputs, outputs)
    if axis is None:
        return None
    length = int(outputs[0].shape[axis])
    step = max(1, _PIECE * length // work)
    return ResultCut(axis, length, step, outputs) if step < length else None


def _at(tensor: Tensor, sizes: Mapping[str, int]) -> TensorType:
    return TensorType(tensor.dtype, tuple([evaluate(dim, sizes) for dim in tensor.shape]))


def in_pieces(node: Node | None, cut: ResultCut, compute: Compute, threads: int) -> Compute:
    """Return a function that computes a node piece by piece, on several threads.

    Args:
        node: The node, for errors of time limits.
        cut: Its pieces.
        compute: Computes any of them.
        threads: The most threads that compute pieces, the caller's included.
    """

    def all_pieces(arrays: Sequence[Array], rng: Rng) -> Sequence[Array]:
        results = [np.empty(t.shape, t.dtype.dtype) for t in cut.outputs]
        begins = deque(range(0, cut.length, cut.step))

        def piece() -> bool:
            """Compute the next piece; return whether there was one."""
            try:
                begin = begins.popleft()
            except IndexError:
                return False
            span = slice(begin, begin + cut.step)
            piece_results = compute([_piece(array, cut, span) for array in arrays], rng)
            for result, piece_result in zip(results, piece_results, strict=True):
                _piece(result, cut, span)[...] = piece_result
            return True

        helpers: list[_Helper] = []
        try:
            while len(helpers) < min(threads, len(begins)) - 1:
                helpers.append(_Helper(piece))
            while piece():
                time_limits.check(node)
        finally:
            begins.clear()
            for helper in helpers:
                helper.join()
        for helper in helpers:
            if helper.error is not None:
                raise helper.error
        return results

    return all_pieces


class _Helper(threading.Thread):
    """A thread that computes pieces, as long as there are any.

    Attributes:
        error: That of a piece, if one fails.
    """

    def __init__(self, piece: Callable[[], bool]) -> None:
        super().__init__(name="graphfw pieces", daemon=True)
        self.error: BaseException | None = None
        self._piece, self._context = piece, contextvars.copy_context()
        self.start()

    def run(self) -> None:
        try:
            while self._context.run(self._piece):
                pass
        except BaseException as error:  # raised by the thread that waits
            self.error = error


def _piece(array: Array, cut: ResultCut, span: slice) -> Array:
    """Return the slice of an array for a piece: all of it where it is broadcast along the axis."""
    axis, ndim = cut.axis, array.ndim
    if -axis > ndim or array.shape[axis] == 1 < cut.length:
        return array
    return array[(slice(None),) * (axis % ndim) + (span,)]
