"""Strings that runs choose, and maps: what classifiers give, and how it is shown."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphfw as gf
from tests.onnx.runtime import started
from tests.onnx.test_learned import compared, learned

REAL, WHOLE, TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
LINEAR = {"coefficients": [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0], "intercepts": [0.0, 0.0]}


@pytest.fixture
def x(rng):
    return rng.standard_normal((7, 4)).astype(np.float32)


def classifier(*more, outputs):
    """Return a linear classifier from x to y0, labels a and b, and y1, with more nodes behind."""
    how = {**LINEAR, "classlabels_strings": ["a", "b"], "post_transform": "SOFTMAX"}
    model = learned("LinearClassifier", (TEXT, REAL), **how)
    model.graph.node.extend(more)
    model.opset_import[0].version = 20
    model.ir_version = 9
    del model.graph.output[:]
    model.graph.output.extend(outputs)
    return model


def out(name, kind):
    return helper.make_tensor_value_info(name, kind, None)


def test_labels_are_places_in_a_table(x):
    model = classifier(outputs=[out("y0", TEXT), out("y1", REAL)])
    graph = gf.onnx.load(model)
    labels, scores = graph.outputs
    with gf.Session(graph) as session:
        indices, numbers = session.run([labels, scores], {"x": x})
    assert json.loads(graph.metadata["y0.labels"]) == ["a", "b"]
    assert indices.dtype == np.int64
    np.testing.assert_array_equal(indices, numbers.argmax(axis=1))
    assert gf.onnx.run(model, {"x": x})["y0"].tolist() == ["ab"[index] for index in indices]


MOVED = [
    helper.make_node("Reshape", ["y0", "to"], ["z"]),
    helper.make_node("Concat", ["y0", "names"], ["z"], axis=0),
    helper.make_node("Gather", ["y0", "at"], ["z"]),
    helper.make_node("Slice", ["y0", "two", "five"], ["z"]),
    helper.make_node("Unsqueeze", ["y0", "two"], ["z"]),
    helper.make_node("Equal", ["y0", "b"], ["z"]),
    helper.make_node("Expand", ["y0", "wide"], ["z"]),
    helper.make_node("Shape", ["y0"], ["z"]),
    helper.make_node(
        "LabelEncoder",
        ["y0"],
        ["z"],
        domain="ai.onnx.ml",
        keys_strings=["b"],
        values_int64s=[8],
    ),
]


@pytest.mark.parametrize("node", MOVED, ids=lambda node: node.op_type)
def test_operators_that_move_strings(tmp_path, node, x):
    to = {"Equal": TensorProto.BOOL, "Shape": WHOLE, "LabelEncoder": WHOLE}
    if node.op_type == "Unsqueeze":
        node.input[1] = "one"
    model = classifier(node, outputs=[out("z", to.get(node.op_type, TEXT))])
    weights = {"to": [-1, 1], "at": [3, 0], "one": [1], "two": [2], "five": [5], "wide": [2, 7]}
    weights |= {"names": ["c", "a"], "b": ["b"]}
    for name, value in weights.items():
        dtype = object if isinstance(value[0], str) else np.int64
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value, dtype), name))
    compared(tmp_path, model, x)


def test_labels_by_their_places(tmp_path, x):
    """As skl2onnx writes classifiers that have no operator of their own."""
    nodes = [
        helper.make_node("ArgMax", ["x"], ["at"], axis=1, keepdims=0),
        helper.make_node("ArrayFeatureExtractor", ["names", "at"], ["l"], domain="ai.onnx.ml"),
        helper.make_node("Reshape", ["l", "row"], ["z"]),
    ]
    model = classifier(*nodes, outputs=[out("z", TEXT)])
    names = np.asarray(["a", "b", "c", "d"], object)
    for name, value in (("names", names), ("row", np.asarray([-1]))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    del model.graph.node[0]
    compared(tmp_path, model, x)


def test_strings_that_are_known_are_moved():
    nodes = [
        helper.make_node("Constant", [], ["s"], value_strings=["x", "y", "z"]),
        helper.make_node("Pad", ["s", "pads"], ["p"]),
        helper.make_node("Reshape", ["p", "to"], ["z"]),
    ]
    weights = [
        onnx.numpy_helper.from_array(np.asarray(value), name)
        for name, value in (("pads", [1, 2]), ("to", [2, 3]))
    ]
    graph = helper.make_graph(nodes, "known", [], [out("z", TEXT)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    assert gf.onnx.run(model, {})["z"].tolist() == [["", "x", "y"], ["z", "", ""]]


def test_strings_that_must_be_known(x):
    node = helper.make_node("RegexFullMatch", ["y0"], ["z"], pattern="a")
    model = classifier(node, outputs=[out("z", TensorProto.BOOL)])
    with pytest.raises(gf.onnx.ValueNeeded, match="labels that depend on what is fed"):
        gf.onnx.load(model)
    assert gf.onnx.run(model, {"x": x})["z"].dtype == bool


@pytest.mark.parametrize("labels", [["a", "b"], [4, 6]])
def test_zip_map(tmp_path, x, labels):
    kind = "strings" if isinstance(labels[0], str) else "int64s"
    node = helper.make_node(
        "ZipMap", ["y1"], ["z"], domain="ai.onnx.ml", **{f"classlabels_{kind}": labels}
    )
    value = onnx.TypeProto()
    of = value.sequence_type.elem_type.map_type
    of.key_type = TEXT if kind == "strings" else WHOLE
    of.value_type.CopyFrom(helper.make_tensor_type_proto(REAL, ()))
    model = classifier(node, outputs=[helper.make_value_info("z", value)])
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    (made,) = gf.onnx.run(path, {"x": x}).values()
    (wanted,) = started(path).run(None, {"x": x})
    assert [sorted(row) for row in made] == [sorted(row) for row in wanted]
    for row, expected in zip(made, wanted, strict=True):
        assert row == pytest.approx(expected, rel=1e-5)
    graph = gf.onnx.load(path)
    assert json.loads(graph.metadata["z.labels"]) == labels
    assert str(graph.outputs[0].type) == "float32[n, 2]"


def mapping(kind, key, value, to, **how):
    """Return a model of one node that takes a map."""
    of = onnx.TypeProto()
    of.map_type.key_type = key
    of.map_type.value_type.CopyFrom(helper.make_tensor_type_proto(value, ()))
    node = helper.make_node(kind, ["x"], ["y"], domain="ai.onnx.ml", **how)
    graph = helper.make_graph([node], "one", [helper.make_value_info("x", of)], [out("y", to)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (
            mapping("DictVectorizer", TEXT, REAL, REAL, string_vocabulary=["a", "c", "b"]),
            {"a": 4.0, "c": 8.5},
        ),
        (mapping("DictVectorizer", WHOLE, REAL, REAL, int64_vocabulary=[3, 1, 2]), {1: 4.0}),
        (mapping("CastMap", WHOLE, REAL, REAL), {3: 1.5, 1: -2.7}),
        (mapping("CastMap", WHOLE, REAL, WHOLE, cast_to="TO_INT64"), {3: 1.5, 1: -2.7}),
        (mapping("CastMap", WHOLE, REAL, TEXT, cast_to="TO_STRING"), {3: 1.5, 1: -2.7}),
        (mapping("CastMap", WHOLE, REAL, REAL, map_form="SPARSE", max_map=5), {3: 1.5, 1: -2.7}),
    ],
)
def test_maps(tmp_path, model, x):
    compared(tmp_path, model, x)


def test_maps_that_do_not_fit():
    model = mapping("DictVectorizer", TEXT, REAL, REAL, string_vocabulary=["a"])
    with pytest.raises(gf.onnx.OnnxError, match="give its value when you load"):
        gf.onnx.load(model)
    with pytest.raises(gf.onnx.OnnxError, match=r"key \['b'\] is not in its vocabulary"):
        gf.onnx.load(model, values={"x": {"b": 1.0}})
    with pytest.raises(gf.onnx.OnnxError, match="keys are not all strings"):
        gf.onnx.load(model, values={"x": {np.int64(1): 1.0}})
    whole = mapping("DictVectorizer", TEXT, WHOLE, WHOLE, string_vocabulary=["a"])
    assert gf.onnx.run(whole, {"x": {"a": 3}})["y"].tolist() == [[3]]
    with pytest.raises(gf.onnx.OnnxError, match="not all of dtype int64"):
        gf.onnx.load(whole, values={"x": {"a": 1.5}})
    with pytest.raises(gf.onnx.OnnxError, match="is a sequence, not a map"):
        gf.onnx.load(model, values={"x": [1.0]})


@pytest.mark.parametrize("kind", ["int64s", "floats"])
@pytest.mark.parametrize("to", ["int64s", "floats", "strings"])
def test_encoders_of_numbers_that_are_fed(tmp_path, rng, kind, to):
    keys = [5, 2, 9] if kind == "int64s" else [5.0, 2.0, float("nan")]
    values = {"int64s": [7, 8, 9], "floats": [0.5, 1.5, 2.5], "strings": ["a", "b", "c"]}[to]
    number = WHOLE if kind == "int64s" else REAL
    made = {"int64s": WHOLE, "floats": REAL, "strings": TEXT}[to]
    how = {f"keys_{kind}": keys, f"values_{to}": values}
    x = rng.choice(np.asarray([*keys, 3]), (6, 4)).astype(
        np.int64 if kind == "int64s" else np.float32
    )
    model = learned("LabelEncoder", (made,), number, **how)
    model.opset_import[1].version = 4  # in which ONNX Runtime finds NaN
    compared(tmp_path, model, x)
    gf.onnx.load(model)


def test_a_category_that_is_fed(tmp_path, rng):
    how = {"cats_strings": ["a", "b"], "cats_int64s": [3, 5]}
    model = learned("CategoryMapper", (TEXT,), WHOLE, **how)
    compared(tmp_path, model, rng.integers(2, 6, (5, 4)))
