"""Sums of complex numbers become two sums of floats, which are compiled."""

from __future__ import annotations

from graphfw.ir.build import emit
from graphfw.ir.functions import F
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.reduce.cumulative import CumulativeSum
from graphfw.ops.reduce.reductions import Sum
from graphfw.passes.base import NodePass
from graphfw.utils.records import record


@record
class SplitComplexSums(NodePass):
    """Add up the real and the imaginary parts of complex numbers, each by itself."""

    name = "split-complex-sums"
    hit = "split"

    def fits(self, node: Node) -> bool:
        return isinstance(node.op, Sum | CumulativeSum) and node.types[0].dtype.is_complex

    def replaced(self, node: Node, inputs: tuple[Tensor, ...]) -> Tensor:
        (x,) = inputs
        result: Tensor = F.complex(*[emit(node.op, t) for t in (F.real(x), F.imag(x))])
        return result
