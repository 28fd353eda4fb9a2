"""The table of operators: rules that read and write, and those of one direction."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graphfw as gf
from graphfw.onnx import table
from graphfw.onnx.table import Attribute, Rule, read_only, two_way, write_only
from tests.support.samples import OWN


def loaded(text: str, opset: int = 21) -> gf.Graph:
    """Return the graph of a model that is written as ONNX's parser has it."""
    head = f'<ir_version: 8, opset_import: ["" : {opset}]> graph '
    return gf.onnx.load(onnx.parser.parse_model(head + text))


def saved(graph: gf.Graph, y: gf.Tensor, path, opset: int = 21) -> list[str]:
    """Return the operators of the model that a tensor is saved as."""
    gf.onnx.save(graph, {"y": y}, path, opset=opset)
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.fixture
def empty(monkeypatch):
    """A table that knows gf.identity alone, by which outputs get their names."""
    identity = {key: write for key, write in table._WRITERS.items() if key[0] == "identity"}
    monkeypatch.setattr(table, "_READERS", {})
    monkeypatch.setattr(table, "_WRITERS", identity)


@pytest.mark.usefixtures("empty")
def test_one_rule_reads_and_writes(tmp_path):
    model = "(float[n] x) => (float[n] y) { y = Exp(x) }"
    with pytest.raises(gf.onnx.OnnxError, match="doesn't know these operators: Exp"):
        loaded(model)
    two_way(Rule("Exp", gf.exp))
    graph = loaded(model)
    assert saved(graph, graph.outputs[0], tmp_path / "y.onnx") == ["Exp"]


@pytest.mark.usefixtures("empty")
def test_attributes_are_converted_both_ways(tmp_path):
    two_way(Rule("Transpose", gf.permute_dims, {"axes": Attribute("perm")}))
    graph = loaded(
        "(float[2, 3, 4] x) => (float[a, b, c] y) { y = Transpose<perm = [1, 2, 0]>(x) }"
    )
    assert graph.outputs[0].shape == (3, 4, 2)
    assert saved(graph, graph.outputs[0], tmp_path / "y.onnx") == ["Transpose"]
    (node,) = onnx.load(tmp_path / "y.onnx").graph.node
    assert list(node.attribute[0].ints) == [1, 2, 0]


@pytest.mark.usefixtures("empty")
def test_rules_of_one_direction(tmp_path):
    read_only(Rule("Mish", gf.mish))
    write_only(Rule("Neg", gf.negative))
    assert loaded("(float[n] x) => (float[n] y) { y = Mish(x) }").outputs
    with pytest.raises(gf.onnx.OnnxError, match="doesn't know these operators: Neg"):
        loaded("(float[n] x) => (float[n] y) { y = Neg(x) }")
    with gf.Graph() as graph:
        x = gf.placeholder(("n",), name="x")
        assert saved(graph, -x, tmp_path / "y.onnx") == ["Neg"]
        with pytest.raises(gf.onnx.OnnxError, match="ONNX has nothing for these operations: "):
            saved(graph, gf.mish(x), tmp_path / "z.onnx")


def test_written_ops_exist():
    assert table.written() <= set(OWN)


def test_an_attribute_that_a_node_lacks_has_the_default_of_the_opset():
    graph = loaded("(float[n] x) => (float[n] y) { y = LeakyRelu(x) }")
    with gf.Session(graph) as session:
        (y,) = session.run(graph.outputs, {"x": np.float32([-2, 3])})
    np.testing.assert_array_equal(y, np.float32([-2, 3]) * np.float32([0.01, 1]))


def test_operands_of_another_kind_are_an_error():
    with pytest.raises(gf.onnx.OnnxError, match="And: it is for bool and not int32"):
        loaded("(int32[n] x) => (int32[n] y) { y = And(x, x) }")


def test_an_operator_that_the_opset_lacks_is_an_error(tmp_path):
    with gf.Graph() as graph:
        x = gf.placeholder(("n",), gf.int32, "x")
        y = x & x
    assert saved(graph, y, tmp_path / "y.onnx", opset=18) == ["BitwiseAnd"]
    with pytest.raises(gf.onnx.OnnxError, match="BitwiseAnd needs opset 18"):
        saved(graph, y, tmp_path / "z.onnx", opset=17)
