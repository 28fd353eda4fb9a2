"""Round trips of graphs through their text, for tests."""

from graphfw.ir.graph import Graph
from graphfw.ir.parser import parse


def round_trip(graph: Graph, **options) -> Graph:
    text = str(graph)
    again = parse(text, constants=graph.constants(), **options)
    assert str(again) == text
    return again


def assert_same(graph: Graph, again: Graph) -> None:
    """Compare what the text may not show."""
    assert (again.name, again.opset) == (graph.name, graph.opset)
    assert again.is_derived == graph.is_derived
    assert [n.op for n in again.nodes] == [n.op for n in graph.nodes]
    assert [n.types for n in again.nodes] == [n.types for n in graph.nodes]
    assert [n.name for n in again.nodes] == [n.name for n in graph.nodes]
    assert all(n.graph is again for n in again.nodes)
    where = {node: i for i, node in enumerate(graph.nodes)}
    where_again = {node: i for i, node in enumerate(again.nodes)}
    for node, other in zip(graph.nodes, again.nodes, strict=True):
        assert [(where[t.node], t.index) for t in node.inputs] == [
            (where_again[t.node], t.index) for t in other.inputs
        ]
