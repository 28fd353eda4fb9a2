"""The rules that every graph obeys, checked."""

from __future__ import annotations

from graphfw.errors import DTypeError, VerifyError
from graphfw.hints.calls import explained
from graphfw.ir import concrete
from graphfw.ir.graph import Graph
from graphfw.ir.op import REGISTRY, nested
from graphfw.ir.shape import Requirement
from graphfw.ir.tensor import Node


@explained
def verify(graph: Graph) -> None:
    """Check a graph, and the bodies in it.

    Inputs come before users, types are as the ops infer them, outputs exist.

    Raises:
        VerifyError: A rule is broken; the node is named.
    """
    verify_new(graph, set())


def verify_new(graph: Graph, right: set[Node]) -> None:
    """Check a graph that may share nodes with others: nodes are immutable.

    Args:
        graph: The graph.
        right: Nodes of graphs that have been checked, of which only the locations are checked
            again; those of this graph are added.

    Raises:
        VerifyError: A rule is broken; the node is named.
    """
    seen: set[Node] = set()
    for node in graph.nodes:
        if node in seen:
            raise _broken(node, "stands in the graph twice")
        for tensor in node.inputs:
            if tensor.node not in seen:
                raise _broken(node, f"uses the result of {tensor.node.op.name} before it is made")
            if not 0 <= tensor.index < len(tensor.node.types):
                raise _broken(node, f"uses output {tensor.index} of {tensor.node.op.name}")
        if node not in right:
            if REGISTRY.get(node.op.name) is not type(node.op):
                raise _broken(node, "has an op that is not registered")
            _check_types(node)
            for body in nested(node.op.values):
                verify_new(body.graph, right)
        seen.add(node)
    for tensor in graph.outputs:
        if tensor.node not in seen:
            raise _broken(tensor.node, "is an output of the graph but not in it")
    right |= seen


def _check_types(node: Node) -> None:
    try:
        inferred = node.op.infer(*[t.type for t in node.inputs])
    except (Requirement, DTypeError) as failed:
        raise _broken(node, f"does not fit its inputs: {failed}") from None
    if inferred != node.types:
        raise _broken(node, f"says {node.types}, but its type rule gives {inferred}")


def _broken(node: Node, what: str) -> VerifyError:
    operands = [
        concrete.describe(f"x{i}", t)
        for i, t in enumerate(node.inputs[:3])
        if t.index < len(t.node.types)  # else it has no type to show
    ]
    return VerifyError(f"{node.op.name}: {what}", operands=operands, at=node.loc)
