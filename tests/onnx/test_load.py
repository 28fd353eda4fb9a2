"""`gf.onnx.load`: what graphs models become, and what is said of those that can't."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphfw as gf
from tests.onnx.models import classifier, model


def run(graph, feeds):
    with gf.Session(graph) as session:
        return session.run(graph.outputs, feeds)


def node(kind, inputs, outputs, name="", **attributes):
    return helper.make_node(kind, inputs, outputs, name, **attributes)


def test_names_symbols_and_any_batch_size(rng):
    graph = gf.onnx.load(classifier(rng))
    assert str(graph.find("x").shape) == "(batch, 1, 6, 6)"
    assert str(graph.find("scores").shape) == "(batch, 5)"
    with gf.Session(graph) as session:
        plan = session.compile(graph.find("scores"), feeds=[graph.find("x")])
        for batch in (1, 3):
            x = rng.standard_normal((batch, 1, 6, 6)).astype(np.float32)
            assert plan(x).shape == (batch, 5)


def test_a_file_its_bytes_and_external_data(rng, tmp_path):
    proto = classifier(rng)
    onnx.save(proto, tmp_path / "whole.onnx")
    onnx.save(
        onnx.ModelProto.FromString(proto.SerializeToString()),
        tmp_path / "split.onnx",
        save_as_external_data=True,
        size_threshold=0,
        location="split.data",
    )
    x = rng.standard_normal((2, 1, 6, 6)).astype(np.float32)
    wanted = run(gf.onnx.load(proto), {"x": x})[0]
    for source in (tmp_path / "whole.onnx", proto.SerializeToString(), tmp_path / "split.onnx"):
        np.testing.assert_array_equal(run(gf.onnx.load(source), {"x": x})[0], wanted)


def test_trainable_weights_learn(rng):
    graph = gf.onnx.load(classifier(rng), trainable=lambda name: name == "w2")
    assert [v.name for v in graph.variables] == ["w2"]
    with graph:
        y = gf.placeholder(("batch",), gf.int64, name="y")
        loss = gf.nn.cross_entropy(graph.find("scores"), y)
        train = gf.optim.SGD(0.05).minimize(loss)
    x = rng.standard_normal((8, 1, 6, 6)).astype(np.float32)
    labels = rng.integers(0, 5, 8)
    with gf.Session(graph) as session:
        losses = [session.run([loss, train], {"x": x, "y": labels})[0] for _ in range(30)]
    assert losses[-1] < 0.3 * losses[0]
    assert len(gf.onnx.load(classifier(rng), trainable=True).variables) == 3


def test_an_error_names_the_node(rng):
    proto = classifier(rng)
    with pytest.raises(gf.ShapeError) as caught:
        gf.onnx.load(proto, shapes={"x": ("batch", 2, 6, 6)})
    assert "the model's node Conv 'conv'" in caught.value.why
    assert "x has 2 channels" in str(caught.value)
    graph = gf.onnx.load(proto)
    assert {n.loc.layer for n in graph.nodes if n.op.name == "matmul"} == {"fc"}


def test_all_unknown_operators_are_named():
    nodes = [
        node("Strange", ["x"], ["a"], "one"),
        node("Relu", ["a"], ["b"]),
        node("Odd", ["b"], ["y"], "two", domain="org.example"),
    ]
    proto = model(nodes, {"x": (2,)}, ["y"])
    proto.opset_import.append(helper.make_opsetid("org.example", 3))
    with pytest.raises(gf.onnx.OnnxError) as caught:
        gf.onnx.load(proto)
    assert "Strange of opset 21 (nodes 'one')" in str(caught.value)
    assert "org.example.Odd of opset 3 (nodes 'two')" in str(caught.value)


def test_shapes_that_depend_on_values():
    proto = model([node("Reshape", ["x", "to"], ["y"], "it")], {"x": ("n", 6)}, ["y"])
    proto.graph.input.append(helper.make_tensor_value_info("to", TensorProto.INT64, (2,)))
    graph = gf.onnx.load(proto, values={"to": np.array([-1, 3])})
    assert str(graph.outputs[0].shape) == "(2*n, 3)"
    made = gf.onnx.run(proto, {"x": np.zeros((2, 6), np.float32), "to": np.array([3, 4])})
    assert made["y"].shape == (3, 4)


def test_functions_with_attributes():
    body = [node("Mul", ["x", "scale"], ["y"])]
    constant = helper.make_node("Constant", [], ["scale"])
    constant.attribute.append(onnx.AttributeProto(name="value_float", ref_attr_name="by", type=1))
    function = helper.make_function(
        "own", "Scale", ["x"], ["y"], [constant, *body], [helper.make_opsetid("", 21)], ["by"]
    )
    proto = model(
        [node("Scale", ["x"], ["y"], domain="own", by=2.5)],
        {"x": (2,)},
        ["y"],
        functions=[function],
    )
    (y,) = run(gf.onnx.load(proto), {"x": np.array([1, 2], np.float32)})
    np.testing.assert_array_equal(y, [2.5, 5])


def test_a_loop_of_any_length_with_stacks():
    body = helper.make_graph(
        [
            node("Add", ["total", "x"], ["next"]),
            node("Identity", ["next"], ["each"]),
            node("Identity", ["on"], ["still"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, (2,)),
        ],
        [helper.make_empty_tensor_value_info(n) for n in ("still", "next", "each")],
    )
    proto = model(
        [
            node("Size", ["trips"], ["count"]),
            node("Loop", ["count", "", "start"], ["last", "all"], body=body),
        ],
        {"x": (2,), "trips": ("t",)},
        ["last", "all"],
        {"start": np.zeros(2, np.float32)},
    )
    graph = gf.onnx.load(proto)
    assert str(graph.outputs[1].shape) == "(t, 2)"
    for iterations in (1, 4):
        feeds = {"x": np.array([1, 2], np.float32), "trips": np.zeros(iterations, np.float32)}
        last, stacked = run(graph, feeds)
        np.testing.assert_array_equal(last, [iterations, 2 * iterations])
        assert stacked.shape == (iterations, 2)


@pytest.mark.parametrize("limit", [0, 3, 100])
def test_a_loop_that_its_body_ends(limit):
    body = helper.make_graph(
        [node("Add", ["v", "v"], ["next"]), node("Less", ["next", "bound"], ["still"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, ()),
        ],
        [helper.make_empty_tensor_value_info(n) for n in ("still", "next")],
    )
    proto = model(
        [node("Loop", ["limit", "", "x"], ["y"], body=body)],
        {"x": (), "bound": ()},
        ["y"],
        {"limit": np.array(limit)},
    )
    (y,) = run(gf.onnx.load(proto), {"x": np.float32(1), "bound": np.float32(20)})
    assert y == {0: 1, 3: 8, 100: 32}[limit]


def test_a_branch_on_a_fed_value():
    then, otherwise = (
        helper.make_graph(
            [node(kind, ["x"], [out])], kind, [], [helper.make_empty_tensor_value_info(out)]
        )
        for kind, out in (("Neg", "a"), ("Abs", "b"))
    )
    proto = model(
        [
            node("Greater", ["x", "zero"], ["c"]),
            node("If", ["c"], ["y"], then_branch=then, else_branch=otherwise),
        ],
        {"x": ()},
        ["y"],
        {"zero": np.float32(0)},
    )
    graph = gf.onnx.load(proto)
    assert [run(graph, {"x": np.float32(v)})[0] for v in (2, -3)] == [-2, 3]


def test_wrong_names_are_told(rng):
    proto = classifier(rng)
    with pytest.raises(gf.ArgumentError, match="'X', which is no input") as caught:
        gf.onnx.load(proto, shapes={"X": (1, 1, 6, 6)})
    assert "x" in caught.value.fix
    with pytest.raises(gf.FeedError, match="the model wants 'x'"):
        gf.onnx.run(proto, {})


def test_sparse_weights_and_strings():
    values = numpy_helper.from_array(np.array([2, 3], np.float32), "w")
    indices = numpy_helper.from_array(np.array([1, 5]), "places")
    proto = model([node("Add", ["x", "w"], ["y"])], {"x": (2, 3)}, ["y"])
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    (y,) = run(gf.onnx.load(proto), {"x": np.zeros((2, 3), np.float32)})
    np.testing.assert_array_equal(y, [[0, 2, 0], [0, 0, 3]])
    strings = model(
        [node("StringConcat", ["a", "b"], ["y"])],
        {"a": (1,), "b": (1,)},
        ["y"],
        dtype=TensorProto.STRING,
    )
    made = gf.onnx.run(strings, {"a": np.array(["left"]), "b": np.array(["right"])})
    assert made["y"].tolist() == ["leftright"]
    with pytest.raises(gf.onnx.OnnxError, match="has strings"):
        gf.onnx.load(strings)


def test_a_body_has_weights_of_its_own():
    weight = numpy_helper.from_array(np.float32([1, 2]), "w")
    body = helper.make_graph(
        [node("Add", ["s", "e"], ["sum"]), node("Mul", ["sum", "w"], ["out"])],
        "body",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, (2,)) for n in ("s", "e")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, (2,)) for n in ("sum", "out")],
        [weight],
    )
    scan = node("Scan", ["first", "x"], ["last", "all"], body=body, num_scan_inputs=1)
    proto = model([scan], {"x": ("t", 2)}, ["all"], {"first": np.zeros(2, np.float32)})
    (y,) = run(gf.onnx.load(proto), {"x": np.float32([[1, 1], [2, 3]])})
    np.testing.assert_array_equal(y, [[1, 2], [3, 8]])
