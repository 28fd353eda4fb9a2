"""Graphs from graphs: nodes are immutable, so passes copy what changes and share what doesn't."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from graphfw.errors import PassError
from graphfw.ir.build import rewire
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import ancestors

Rewrite: TypeAlias = Callable[[Node, tuple[Tensor, ...]], "Tensor | tuple[Tensor, ...] | None"]
"""Given a node and its new inputs: None to keep it, or the tensors that replace its outputs."""


def derive(graph: Graph, outputs: Sequence[Tensor]) -> Graph:
    """Return the part of a graph that the outputs need, as a graph for passes to work on."""
    derived = _empty(graph)
    for node in ancestors(outputs):
        derived.share(node)
    derived.outputs = tuple(outputs)
    return derived


def rebuild(graph: Graph, rewrite: Rewrite | None = None) -> Graph:
    """Copy a derived graph through a function, keeping locations and names; dead nodes vanish.

    A node that is kept and whose inputs are the same tensors as before is shared, not copied, so an
    idle pass costs little. New nodes take the place (`loc`) of the node they replace.

    Raises:
        PassError: A replacement has another type than what it replaces.
    """
    derived = _empty(graph)
    new: dict[Node, tuple[Tensor, ...]] = {}
    with derived:
        for node in live_nodes(graph):
            inputs = tuple([new[t.node][t.index] for t in node.inputs])
            replaced = None
            if rewrite is not None:
                derived.provenance = node.loc
                replaced = rewrite(node, inputs)
            if replaced is not None:
                new[node] = _checked(node, replaced)
            elif all(a is b for a, b in zip(inputs, node.inputs, strict=True)):
                new[node] = derived.share(node)
            else:
                new[node] = derived.append(rewire(node, inputs, derived))
    derived.provenance = None
    derived.outputs = tuple([new[t.node][t.index] for t in graph.outputs])
    return derived


def live_nodes(graph: Graph) -> list[Node]:
    """Return the nodes that the graph's outputs need, in the graph's order."""
    needed = {t.node for t in graph.outputs}
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update([t.node for t in node.inputs])
    return [node for node in graph.nodes if node in needed]


def _empty(graph: Graph) -> Graph:
    derived = Graph(graph.name, opset=graph.opset)
    derived.is_derived = True
    derived.variables = graph.variables
    return derived


def _checked(node: Node, replaced: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    outputs = replaced if isinstance(replaced, tuple) else (replaced,)
    types = tuple([t.type for t in outputs])
    if types != node.types:
        raise PassError(f"a rewrite of {node.op.name} gives {types}, not {node.types}", at=node.loc)
    return outputs
