"""Matrix products of integers become sums of products.

Products of floats have code of their own, which sums them in tiles. Integers have none: a sum of
products is compiled as any other reduction is. Sums of integers wrap around, so their order changes
no bit.
"""

from __future__ import annotations

from graphfw.ir.functions import F
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.shape.movement import PermuteDims
from graphfw.passes.base import NodePass
from graphfw.utils.records import record

_FEW_COLUMNS = 24
"""The number of columns up to which vectors stay empty where sums of neighbouring columns are made
side by side."""


@record
class IntegerProductToReduction(NodePass):
    """Multiply matrices of integers as a sum over a third axis."""

    name = "integer-product-to-reduction"
    hit = "summed"

    def fits(self, node: Node) -> bool:
        return isinstance(node.op, MatMul) and node.types[0].dtype.is_integer

    def replaced(self, node: Node, inputs: tuple[Tensor, ...]) -> Tensor:
        return _summed(*inputs)


def _summed(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of two matrices: sums of neighbouring columns, or dot products.

    Dot products read both operands along the axis that is summed over.
    """
    columns = b.shape[-1]
    is_narrow = isinstance(columns, int) and columns < _FEW_COLUMNS
    if is_narrow or _is_transposed(b):
        products = F.expand_dims(a, axis=-2) * F.expand_dims(b.mT, axis=-3)
        return F.sum(products, axis=-1, dtype=a.dtype)
    products = F.expand_dims(a, axis=-1) * F.expand_dims(b, axis=-3)
    return F.sum(products, axis=-2, dtype=a.dtype)


def _is_transposed(matrix: Tensor) -> bool:
    op = matrix.node.op
    return isinstance(op, PermuteDims) and op.axes[-1] != matrix.ndim - 1
