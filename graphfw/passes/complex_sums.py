"""Sums of complex numbers become two sums of floats, which are compiled."""

from __future__ import annotations

from collections import Counter

from graphfw.ir.build import emit
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph
from graphfw.ir.rebuild import rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.reduce.cumulative import CumulativeSum
from graphfw.ops.reduce.reductions import Sum
from graphfw.passes.base import Pass
from graphfw.utils.records import record


@record
class SplitComplexSums(Pass):
    """Add up the real and the imaginary parts of complex numbers, each by itself."""

    name = "split-complex-sums"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        if not any([_adds_complex(node) for node in graph.nodes]):
            return graph

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if not _adds_complex(node):
                return None
            hits["split"] += 1
            (x,) = inputs
            result: Tensor = F.complex(*[emit(node.op, t) for t in (F.real(x), F.imag(x))])
            return result

        return rebuild(graph, rewrite)


def _adds_complex(node: Node) -> bool:
    return isinstance(node.op, Sum | CumulativeSum) and node.types[0].dtype.is_complex
