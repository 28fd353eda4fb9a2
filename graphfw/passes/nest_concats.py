"""Concatenations that begin or end as another does: they contain that one.

A network in which each layer reads the results of all layers before concatenates the same tensors
again and again. Executors may store a concatenation in the result of another whose input it is.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from graphfw.ir.build import emit
from graphfw.ir.graph import Graph
from graphfw.ir.rebuild import rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.shape.concat import Concat
from graphfw.passes.base import Pass


class NestConcats(Pass):
    """Let concat([a, b, c]) be concat([concat([a, b]), c]) where there is a concat([a, b])."""

    name = "nest-concats"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        concats = [node for node in graph.nodes if isinstance(node.op, Concat)]
        if len(concats) < 2:
            return graph
        nested_of = _nested(concats)
        if not nested_of:
            return graph
        inner = {nested.node for nested in nested_of.values()}
        new: dict[Node, Tensor] = {}

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            nested = nested_of.get(node)
            if nested is not None:
                hits["nested"] += 1
                count, whole = len(nested.node.inputs), new[nested.node]
                inputs = (whole, *inputs[count:]) if nested.is_first else (*inputs[:-count], whole)
            elif node not in inner:
                return None
            new[node] = emit(node.op, *inputs)
            return new[node]

        return rebuild(graph, rewrite)


class _Nested(NamedTuple):
    """A join whose inputs are the first or the last ones of another."""

    node: Node
    is_first: bool


class _Known:
    """Joins by their inputs, as paths through a tree.

    Args:
        step: 1 for the inputs in order, -1 from the last one.
    """

    def __init__(self, step: int) -> None:
        self._step = step
        self._next: dict[tuple[int, object], int] = {}
        self._ends: dict[int, Node] = {}

    def longest(self, node: Node) -> Node | None:
        """Return the known join with the most inputs that another begins with; note this one."""
        assert isinstance(node.op, Concat)
        found, position = None, 0
        for tensor in ((node.op.axis, len(node.types[0].shape)), *node.inputs[:: self._step]):
            found = self._ends.get(position, found)
            position = self._next.setdefault((position, tensor), len(self._next) + 1)
        self._ends.setdefault(position, node)
        return found


def _nested(concats: list[Node]) -> dict[Node, _Nested]:
    forward, backward = _Known(1), _Known(-1)
    found: dict[Node, _Nested] = {}
    for node in concats:
        known = [(forward.longest(node), True), (backward.longest(node), False)]
        fitting = [_Nested(nested, is_first) for nested, is_first in known if nested is not None]
        if fitting:
            found[node] = max(fitting, key=lambda nested: len(nested.node.inputs))
    return found
