"""Views of a graph: the summary and the networkx graph."""

import subprocess
import sys

import networkx as nx
import numpy as np
import pytest

import graphfw as gf
from graphfw.ir import dtype as dtypes
from graphfw.ir.dim import symbol
from graphfw.ir.dim_text import parse_dim
from graphfw.ir.graph import Graph


@pytest.fixture
def graph() -> Graph:
    with gf.Graph("mlp") as g:
        x = gf.placeholder(("batch", 4), name="x")
        gf.placeholder((), dtypes.bool_)
        w = gf.Variable(np.zeros((4, 500), np.float32), name="fc.w")
        gf.Variable(np.zeros(3), name="mean", trainable=False)
        y = gf.matmul(x, w)
        gf.sum(y * y)
    return g


def rows(text: str, title: str) -> dict[str, list[str]]:
    """The lines of the table with this first column, by their first cell."""
    (table,) = [paragraph for paragraph in text.split("\n\n") if paragraph.startswith(title)]
    cells = [line.split("  ") for line in table.splitlines()]
    stripped = [[cell.strip() for cell in line if cell.strip()] for line in cells]
    return {line[0]: line[1:] for line in stripped}


def test_summary(graph):
    text = graph.summary()
    assert text.startswith('graph "mlp": 7 nodes\n\n')
    placeholders = rows(text, "placeholder")
    assert placeholders["x"] == ["float32[batch, 4]"]
    assert placeholders["(no name)"] == ["bool[]"]
    variables = rows(text, "variable")
    assert variables["variable"] == ["type", "trainable", "parameters", "bytes"]
    assert variables["fc.w"] == ["float32[4, 500]", "yes", "2,000", "8,000"]
    assert variables["mean"] == ["float32[3]", "no", "3", "12"]
    assert variables["total trainable"] == ["2,000", "8,000"]
    assert variables["total not trainable"] == ["3", "12"]


def test_summary_of_costs(graph):
    ops = rows(graph.summary(), "op ")
    batch = symbol("batch")
    assert ops["op"] == ["count", "flops", "bytes read", "bytes written"]
    assert list(ops)[1:3] == ["placeholder", "variable"]  # two each, the others come once
    assert ops["total"][0] == "7"
    count, flops, read, written = ops["multiply"]
    assert count == "1"
    assert parse_dim(flops) == 500 * batch
    assert parse_dim(read) == 2 * 4 * 500 * batch
    assert parse_dim(written) == 4 * 500 * batch
    for column in (1, 2, 3):
        numbers = [
            parse_dim(line[column].replace(",", ""))
            for name, line in ops.items()
            if name not in ("op", "total")
        ]
        assert parse_dim(ops["total"][column].replace(",", "")) == sum(numbers)


def test_columns_are_aligned(graph):
    for table in graph.summary().split("\n\n")[1:]:
        header, *lines = table.splitlines()
        if "bytes" in header:  # numbers end where their title ends
            assert {len(line) for line in lines} == {len(header)}


def test_summary_of_an_empty_graph():
    assert gf.Graph().summary() == "graph: 0 nodes"
    assert gf.Graph('a "b"').summary() == 'graph "a "b"": 0 nodes'


def test_summary_without_variables():
    with gf.Graph() as g:
        gf.placeholder((2,), name="x")
    assert g.summary().startswith("graph: 1 node\n")
    assert "variable" not in g.summary()


def test_networkx(graph):
    view = graph.to_networkx()
    assert isinstance(view, nx.MultiDiGraph)
    assert view.name == "mlp"
    assert list(view.nodes) == graph.nodes
    for node, facts in view.nodes(data=True):
        assert facts == {"op": node.op, "name": node.name, "loc": node.loc, "types": node.types}
    edges = {(a, b, d["output"], d["input"]) for a, b, d in view.edges(data=True)}
    assert edges == {
        (t.node, node, t.index, i) for node in graph.nodes for i, t in enumerate(node.inputs)
    }
    assert nx.is_directed_acyclic_graph(view)


def test_networkx_keeps_both_uses_of_one_result():
    with gf.Graph() as g:
        x = gf.placeholder((2,), name="x")
        y = x * x
    view = g.to_networkx()
    edges = view.get_edge_data(x.node, y.node)
    assert sorted(d["input"] for d in edges.values()) == [0, 1]


def test_networkx_is_imported_when_it_is_used():
    code = "import sys, graphfw; sys.exit('networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
