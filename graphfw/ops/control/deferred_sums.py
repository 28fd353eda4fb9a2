"""Sums over the iterations of a loop that are made after it, of what all iterations have stacked.

A weight that every iteration multiplies with gets a product of matrices from each, and their sum.
One product over all iterations together does as much arithmetic, and does not read and write the
sum in every iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike, substitute, symbols_of
from graphfw.ir.functions import F
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.batching import MappedAxis

_TYPICAL = 64
"""The size that a symbolic dim counts as, where sizes decide: a batch, most often."""

_WORTH = 8
"""The least size of a sum, in multiples of an operand's, at which that operand is stacked.

Operands that are larger make a product of so much arithmetic that reading and writing the sum does
not count, while the stacks go through the memory. What is stacked anyway is only read from there.
"""


class Deferred(NamedTuple):
    """A sum over iterations.

    Attributes:
        operands: Values of an iteration, in the graph of the body.
        total: Returns the sum, given the operands' stacks: [length, *S] for each of shape S.
    """

    operands: tuple[Tensor, ...]
    total: Callable[[Sequence[Tensor]], Tensor]


def terms(value: Tensor) -> list[Tensor]:
    """Return the terms whose sum a value is."""
    node = value.node
    if node.op.name != "add" or any(t.type != value.type for t in node.inputs):
        return [value]
    return [term for t in node.inputs for term in terms(t)]


def deferred(value: Tensor, length: DimLike, stacked: Set[Tensor]) -> Deferred | None:
    """Return the sum of a value over all iterations, made after the loop; None if not faster.

    It is for products of matrices that are small next to their result, and for views of those.
    What is a view of another value is not stacked itself, unless it is among `stacked`.
    """
    node = value.node
    if _is_view(node):
        inner = deferred(node.inputs[0], length, stacked)
        return inner and Deferred(inner.operands, lambda stacks: emit(node.op, inner.total(stacks)))
    if node.op.name != "matmul" or any(t.ndim != 2 for t in node.inputs):
        return None
    (left, left_views), (right, right_views) = [_viewed(t, stacked) for t in node.inputs]
    if sum([_bytes(t) * (1 if t in stacked else _WORTH) for t in {left, right}]) > _bytes(value):
        return None
    mapped = MappedAxis(length, "error")

    def total(stacks: Sequence[Tensor]) -> Tensor:
        a, b = _applied(left_views, stacks[0], mapped), _applied(right_views, stacks[1], mapped)
        # The rows of all iterations below each other: [length * K, M] and [length * K, N].
        return F.matmul(F.flatten(a.mT, 0, 1).mT, F.flatten(b, 0, 1))

    return Deferred((left, right), total)


def _bytes(value: Tensor) -> int:
    """Return a size in bytes, where symbolic dims count as of a typical size."""
    size = size_of(value.shape)
    known = substitute(size, dict.fromkeys(symbols_of(size), _TYPICAL))
    return int(known) * value.dtype.itemsize


def _is_view(node: Node) -> bool:
    return node.op.name in ("permute_dims", "reshape")


def _viewed(value: Tensor, stacked: Set[Tensor]) -> tuple[Tensor, list[Node]]:
    """Return the tensor that a value is a view of, and the views, the outermost first."""
    views: list[Node] = []
    while value not in stacked and _is_view(value.node):
        views.append(value.node)
        value = value.node.inputs[0]
    return value, views


def _applied(views: Sequence[Node], stack: Tensor, mapped: MappedAxis) -> Tensor:
    """Return the views of all iterations."""
    for node in reversed(views):
        assert node.op.batch is not None
        stack = node.op.batch(mapped, [True], stack)
    return stack
