"""Constant folding: what depends on constants alone is computed once, at compilation."""

from __future__ import annotations

from collections import Counter
from typing import cast

import numpy as np

from graphfw.ir.build import constant
from graphfw.ir.constants import constant_array
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array, Literal
from graphfw.ir.op import ALIAS, EFFECT, PURE, RANDOM, SOURCE
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.control.region_op import OutOfIterations, at_most
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.shape.movement import PermuteDims
from graphfw.passes.base import Pass
from graphfw.utils.records import record

_ITERATIONS = 10_000
"""The most iterations of a loop that are made here. A run makes more of them faster, or does not
end."""


@record
class FoldConstants(Pass):
    """Replace nodes whose inputs are all constants by their values.

    An op whose evaluation raises is kept: the run will raise, on its line.

    Attributes:
        max_bytes: Results larger than this are not kept in the graph.
        small_bytes: Results larger than this are kept only if they are no larger than the inputs:
            `zeros((10_000, 10_000))` had better stay a recipe.
        view_bytes: Transposed matrices larger than this are not kept, where products alone read
            them: these read them as they lie.
    """

    max_bytes: int = 1 << 24
    small_bytes: int = 1 << 12
    view_bytes: int = 1 << 16

    name = "fold-constants"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        if not any(self._folds(node, node.inputs) for node in graph.nodes):
            return graph
        views = self._views(graph)

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            if node in views or not self._folds(node, inputs):
                return None
            values = _values(node, inputs)
            if values is None:
                return None
            hits["folded"] += 1
            return tuple([constant(Literal(value)) for value in values])

        return rebuild(graph, rewrite)

    def _views(self, graph: Graph) -> set[Node]:
        """Return the transposed matrices that are read by products only."""
        nodes = live_nodes(graph)
        found = {
            node
            for node in nodes
            if isinstance(node.op, PermuteDims) and self._is_large(node.outputs[0])
        }
        found -= {t.node for t in graph.outputs}
        readers = [node for node in nodes if not isinstance(node.op, MatMul)]
        return found.difference([t.node for node in readers for t in node.inputs])

    def _is_large(self, tensor: Tensor) -> bool:
        return tensor.type.is_static and cast(int, tensor.type.nbytes) > self.view_bytes

    def _folds(self, node: Node, inputs: tuple[Tensor, ...]) -> bool:
        for tensor in inputs:
            if not isinstance(tensor.node.op, ConstantOp):
                return False
        traits = node.op.traits
        if PURE not in traits or RANDOM in traits or SOURCE in traits or EFFECT in traits:
            return False
        if not all(t.is_static for t in node.types) or node.op.symbols:
            return False
        # Both are sums of ints: the types are static, and constants always are.
        made = cast(int, sum(t.nbytes for t in node.types))
        taken = cast(int, sum(t.type.nbytes for t in inputs))
        if made > taken and ALIAS in traits:
            return False  # a view that repeats elements costs nothing, a larger constant does
        return made <= self.max_bytes and made <= max(taken, self.small_bytes)


def _values(node: Node, inputs: tuple[Tensor, ...]) -> list[Array] | None:
    arrays = [constant_array(t) for t in inputs]
    try:
        with np.errstate(all="ignore"), at_most(_ITERATIONS):
            result = node.op.eval(np, *arrays)
    except (Exception, OutOfIterations):
        return None  # not lost: the node stays, and raises, or goes on, when the graph runs
    return [np.asarray(r, order="C") for r in (result if node.op.multiple else (result,))]
