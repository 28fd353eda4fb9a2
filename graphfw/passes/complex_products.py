"""Matrix products of complex numbers become products of their real and imaginary parts.

Products of real matrices are compiled in tiles, those of complex ones are not.
"""

from __future__ import annotations

from graphfw.ir.functions import F
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.products import MatMul
from graphfw.passes.base import NodePass
from graphfw.utils.records import record


@record
class ComplexProductToReal(NodePass):
    """Multiply complex matrices by products of real ones.

    (A + iB) (C + iD) = AC - BD + i (AD + BC). Single matrices are joined, so that one product of
    twice the rows and twice the length computes all four:

        [A  -B] [C]   [AC - BD]
        [B   A] [D] = [BC + AD]

    Stacks of matrices, which are mostly small, are not: to join them would take as long.
    """

    name = "complex-product-to-real"
    hit = "split"

    def fits(self, node: Node) -> bool:
        return isinstance(node.op, MatMul) and node.types[0].dtype.is_complex

    def replaced(self, node: Node, inputs: tuple[Tensor, ...]) -> Tensor:
        x, y = inputs
        return _joined(x, y) if x.ndim == y.ndim == 2 else _separate(x, y)


def _joined(x: Tensor, y: Tensor) -> Tensor:
    a, b = F.real(x), F.imag(x)
    rows = F.concat([F.concat([a, -b], axis=1), F.concat([b, a], axis=1)], axis=0)
    product = F.matmul(rows, F.concat([F.real(y), F.imag(y)], axis=0))
    count = x.shape[0]
    result: Tensor = F.complex(product[:count], product[count:])
    return result


def _separate(x: Tensor, y: Tensor) -> Tensor:
    a, b, c, d = F.real(x), F.imag(x), F.real(y), F.imag(y)
    ac, bd, ad, bc = (F.matmul(*pair) for pair in ((a, c), (b, d), (a, d), (b, c)))
    result: Tensor = F.complex(ac - bd, ad + bc)
    return result
