"""Arguments beside a model: shapes, values, outputs, feeds; and mistakes in them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import graphfw as gf
from graphfw.ir.dtype import as_dtype
from tests.onnx.models import classifier, model


def shifted(default=None):
    """Return a model of y = x + w, whose input w has a default or none."""
    weights = {} if default is None else {"w": np.float32(default)}
    add = helper.make_node("Add", ["x", "w"], ["y"], "add")
    return model([add], {"x": ("n", 2), "w": (2,)}, ["y"], weights)


def test_a_value_in_place_of_a_default():
    x, w = np.zeros((1, 2), np.float32), np.float32([5, 6])
    proto = shifted([1, 2])
    assert gf.onnx.run(proto, {"x": x})["y"].tolist() == [[1, 2]]
    assert gf.onnx.run(proto, {"x": x, "w": w})["y"].tolist() == [[5, 6]]
    graph = gf.onnx.load(proto, values={"w": [5, 6]})
    with gf.Session(graph) as session:
        assert session.run("y", {"x": x}).tolist() == [[5, 6]]


def test_a_run_tells_the_shape_that_a_model_does_not():
    twice = helper.make_node("Add", ["x", "x"], ["y"])
    proto = model([twice], {"x": None}, ["y"])
    with pytest.raises(gf.onnx.OnnxError, match="doesn't say what shape the input 'x' has"):
        gf.onnx.load(proto)
    for shape in ((), (3,), (2, 3)):
        found = gf.onnx.run(proto, {"x": np.ones(shape, np.float32)})["y"]
        np.testing.assert_array_equal(found, np.full(shape, 2, np.float32), strict=True)


def test_a_run_that_takes_too_long(monkeypatch):
    """A model that anybody may have written, of a few bytes, need not keep the processor busy."""
    monkeypatch.delenv("GRAPHFW_VERIFY", raising=False)  # which would evaluate it to the end
    again = helper.make_tensor_value_info("again", TensorProto.BOOL, ())
    iteration = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["again"]),
            helper.make_node("Sin", ["v"], ["next"]),
        ],
        "trip",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, (4,)),
        ],
        [again, helper.make_tensor_value_info("next", TensorProto.FLOAT, (4,))],
    )
    weights = {"trips": np.array(2 * 10**7), "yes": np.array(True)}
    loop = helper.make_node("Loop", ["trips", "yes", "x"], ["y"], body=iteration)
    proto = model([loop], {"x": (4,)}, ["y"], weights)
    x = np.ones(4, np.float32)
    with pytest.raises(gf.errors.RunTimeoutError, match=r"timeout of 0\.05 s"):
        gf.onnx.run(proto, {"x": x}, timeout=0.05)
    with pytest.raises(gf.errors.ArgumentError, match="no positive number of seconds"):
        gf.onnx.run(proto, {"x": x}, timeout=0)


def test_values_get_the_inputs_dtype():
    reshape = helper.make_node("Reshape", ["x", "to"], ["y"])
    proto = model([reshape], {"x": (6,)}, ["y"])
    proto.graph.input.append(helper.make_tensor_value_info("to", TensorProto.INT64, (2,)))
    for value in ([2, 3], (2, -1), np.array([2, 3], np.int32)):
        assert gf.onnx.load(proto, values={"to": value}).outputs[0].shape == (2, 3)


@pytest.mark.parametrize(
    ("options", "error", "text", "fix"),
    [
        ({"outputs": ["scors"]}, gf.ArgumentError, "outputs has 'scors'", '"scores"'),
        ({"outputs": "scores"}, gf.ArgumentError, "outputs is a str", "outputs=['scores']"),
        ({"shapes": (1, 6)}, gf.ArgumentError, "shapes is a tuple, not a dict", "x"),
        ({"trainable": "all"}, gf.ArgumentError, "trainable is a str", "True"),
        ({"shapes": {"x": (1, 6)}}, gf.ShapeError, "has 2 dims for 'x', and", "[batch, 1,"),
        ({"values": {"x": np.zeros(3, np.float32)}}, gf.ShapeError, "has 1 dim for 'x'", "1"),
        ({"values": {"x": np.zeros((1, 1, 6, 6))}}, gf.ArgumentError, "is given float64", "astype"),
    ],
)  # fmt: skip
def test_mistakes_are_told(rng, options, error, text, fix):
    with pytest.raises(error) as caught:
        gf.onnx.load(classifier(rng), **options)
    assert text in str(caught.value)
    assert fix in caught.value.fix


def test_what_is_no_model_and_no_input():
    for call in (gf.onnx.load, lambda source: gf.onnx.run(source, {})):
        with pytest.raises(gf.ArgumentError, match="not a dict"):
            call({})
    x = np.zeros((1, 2), np.float32)
    with pytest.raises(gf.FeedError, match="'z' is no input") as caught:
        gf.onnx.run(shifted(), {"x": x, "w": x[0], "z": x})
    assert caught.value.fix == "its inputs are x, w"
    with pytest.raises(gf.FeedError, match="feeds is a ndarray, not a dict"):
        gf.onnx.run(shifted(), x)


def test_what_is_no_graph_and_no_path(tmp_path):
    with gf.Graph() as graph:
        x = gf.placeholder((2,), name="x")
    with pytest.raises(gf.ArgumentError, match="a Tensor is no Graph"):
        gf.onnx.save(x, x, tmp_path / "m.onnx")
    with pytest.raises(gf.ArgumentError, match="session is a Graph, not a Session"):
        gf.onnx.save(graph, x, tmp_path / "m.onnx", session=graph)
    with pytest.raises(gf.ArgumentError, match="the path is an int"):
        gf.onnx.save(graph, x, 3)


def test_inputs_of_one_letter_have_one_dtype():
    proto = shifted()
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(gf.onnx.OnnxError, match="'B' is int64, and 'A' is float32") as caught:
        gf.onnx.load(proto)
    assert "Add 'add'" in caught.value.why


def test_dtypes_that_are_too_new_say_which_opset_they_need(tmp_path):
    with gf.Graph() as graph:
        small = gf.astype(gf.placeholder((2,), name="x"), as_dtype(ml_dtypes.float4_e2m1fn))
        y = gf.astype(small, gf.float32)
    with pytest.raises(gf.onnx.OnnxError, match="needs opset 23") as caught:
        gf.onnx.save(graph, y, tmp_path / "m.onnx")
    assert "opset=" in caught.value.fix
    gf.onnx.save(graph, y, tmp_path / "m.onnx", opset=23)
