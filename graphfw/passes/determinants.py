"""Determinants become products of the pivots of LU decompositions."""

from __future__ import annotations

from collections.abc import Callable

from graphfw.ir.build import emit_all
from graphfw.ir.dtype import int32
from graphfw.ir.functions import F
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.solve import Det, SLogDet
from graphfw.ops.linalg.triangular_lu import LU
from graphfw.passes.base import NodePass
from graphfw.utils.records import record


@record
class DeterminantToLU(NodePass):
    """Compute determinants by LU decompositions, which an executor has native code for.

    Attributes:
        small: How many rows a matrix of a node may have; 0: it is left as it is. A single matrix
            may have more.
    """

    small: Callable[[Node], int]
    name = "determinant-to-lu"

    def fits(self, node: Node) -> bool:
        if not isinstance(node.op, Det | SLogDet):
            return False
        x, small = node.inputs[0], self.small(node)
        size = x.shape[-1]
        return small > 0 and isinstance(size, int) and size > 0 and (x.ndim == 2 or size <= small)

    def replaced(self, node: Node, inputs: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        sign, logarithm = _slogdet(*inputs)
        if isinstance(node.op, SLogDet):
            return sign, logarithm
        result: Tensor = sign * F.exp(logarithm)  # as NumPy does: pivots may overflow
        return result


def _slogdet(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sign of a determinant, and the logarithm of its size.  x: [*B, M, M]"""
    order, _, upper = emit_all(LU(), x)
    pivots = F.diagonal(upper)
    size = F.abs(pivots)
    negative = F.sum(pivots < 0, axis=-1, dtype=int32)
    flips = negative + _inversions(order)
    sign = F.where(flips % 2 == 0, 1.0, -1.0).astype(x.dtype)
    singular = F.any(pivots == 0, axis=-1)
    return F.where(singular, 0.0, sign), F.sum(F.log(size), axis=-1)


def _inversions(order: Tensor) -> Tensor:
    """Count the pairs of numbers that are out of order.  [*B, M] -> [*B]"""
    positions = F.arange(order.shape[-1])
    is_before = F.expand_dims(positions, axis=1) < positions
    is_larger = F.expand_dims(order, axis=-1) > F.expand_dims(order, axis=-2)
    return F.sum(is_before & is_larger, axis=(-2, -1), dtype=int32)
