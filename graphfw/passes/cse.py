"""Common subexpressions: what is computed twice is computed once."""

from __future__ import annotations

from collections import Counter
from typing import Any

from graphfw.ir.build import emit_all, rewire
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.op import COMMUTATIVE, PURE, RANDOM, SOURCE, Op
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.loc import Loc
from graphfw.passes.base import Pass
from graphfw.utils.records import record

_INLINE_BYTES = 64


@record
class CSE(Pass):
    """Merge nodes that apply equal ops to the same inputs; constants are compared by content.

    The first of the equal nodes stays, and its location (`loc.merged`) names those of the others.
    Placeholders, variables and random draws are never merged.
    """

    name = "cse"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        twin_of, locations = _equal_nodes(graph)
        if not twin_of:
            return graph
        hits["merged"] += len(twin_of)
        outputs: dict[Node, tuple[Tensor, ...]] = {}

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            twin = twin_of.get(node)
            if twin is not None:
                return outputs[twin]
            if node in locations:
                outputs[node] = _kept(node, inputs, tuple(locations[node]))
            return outputs.get(node)

        return rebuild(graph, rewrite)


def _equal_nodes(graph: Graph) -> tuple[dict[Node, Node], dict[Node, dict[Loc, None]]]:
    """Return the node that stays for each to drop, and for these the locations they stand for."""
    first: dict[object, Node] = {}
    twin_of: dict[Node, Node] = {}
    locations: dict[Node, dict[Loc, None]] = {}
    for node in live_nodes(graph):
        op = node.op
        traits = op.traits
        if PURE not in traits or RANDOM in traits:
            continue
        inputs = [(twin_of.get(t.node, t.node), t.index) for t in node.inputs]
        if COMMUTATIVE in traits:
            inputs.sort(key=_order)
        twin = first.setdefault((_content(op), *inputs), node)
        if twin is node:
            continue
        twin_of[node] = twin
        merged = locations.setdefault(twin, {})
        # A constant can't fail or be slow, so nobody asks where the others stood.
        if SOURCE not in traits and node.loc.unmerged() != twin.loc.unmerged():
            merged.update(dict.fromkeys((node.loc.unmerged(), *node.loc.merged)))
    return twin_of, locations


def _order(entry: tuple[Node, int]) -> tuple[int, int]:
    return entry[0].serial, entry[1]


def _content(op: Op) -> Any:
    """Return a key that is equal for equal ops, avoiding a digest for the many small constants."""
    if not isinstance(op, ConstantOp):
        return op
    array = op.value.array
    if array.nbytes > _INLINE_BYTES:
        return op
    return (array.dtype, array.shape, array.tobytes())


def _kept(node: Node, inputs: tuple[Tensor, ...], locations: tuple[Loc, ...]) -> tuple[Tensor, ...]:
    """Put a node into the graph that is being built, with its own and further locations."""
    graph = current_graph()
    if locations:
        with graph.located(node.loc._replace(merged=(*node.loc.merged, *locations))):
            return emit_all(node.op, *inputs, name=node.name)
    if all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
        return graph.share(node)
    return graph.append(rewire(node, inputs, graph))
