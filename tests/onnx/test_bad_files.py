"""Files that are broken or hostile: an error of graphfw's, soon, and no file is read outside."""

from __future__ import annotations

import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphfw as gf
from graphfw.onnx import functions, importer
from tests.onnx.models import classifier, model


def refused(source, match):
    with pytest.raises(gf.errors.GraphfwError, match=match):
        gf.onnx.load(source)


def node(kind, inputs, outputs, name="", **attributes):
    return helper.make_node(kind, inputs, outputs, name, **attributes)


def test_no_model(tmp_path):
    refused(tmp_path / "nothing.onnx", "No such file")
    refused(tmp_path, "is no file")
    refused(b"", "no graph")
    refused(b"\x00\xff" * 50, "no ONNX model")
    refused(b"Some text, not a model at all.", "no ONNX model")


def test_cut_off_anywhere(rng):
    data = classifier(rng).SerializeToString()
    for end in range(0, len(data), 7):
        with pytest.raises(gf.errors.GraphfwError):
            gf.onnx.load(data[:end])


@pytest.mark.parametrize(
    ("version", "fix"),
    [(0, "export the model again"), (-1, "export"), (999, "pip install -U onnx")],
)
def test_opsets_that_are_none(version, fix):
    made = model([node("Relu", ["x"], ["y"])], {"x": (1,)}, ["y"])
    made.opset_import[0].version = version
    with pytest.raises(gf.onnx.OnnxError, match=f"opset {version} of ai.onnx") as caught:
        gf.onnx.load(made)
    assert fix in caught.value.fix
    assert ("pip" in caught.value.fix) == (version == 999)


def test_circles_and_what_is_missing():
    circle = [node("Relu", ["b"], ["a"]), node("Relu", ["a"], ["b"])]
    refused(model(circle, {"x": (1,)}, ["b"]), "nothing makes the value 'b'")
    refused(model([node("Relu", ["x"], ["y"])], {"x": (1,)}, ["z"]), "nothing makes the value 'z'")
    twice = [node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])]
    refused(model(twice, {"x": (1,)}, ["y"]), "which was made before")
    refused(model([node("Cast", ["x"], ["y"])], {"x": (1,)}, ["y"]), "attribute 'to' is missing")
    no_opset = model([node("Relu", ["x"], ["y"], domain="")], {"x": (1,)}, ["y"])
    del no_opset.opset_import[:]
    no_opset.opset_import.append(helper.make_opsetid("other", 1))
    refused(no_opset, "graphfw doesn't know|which opset")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"dims": [3, 1 << 40]}, "should have"),
        ({"dims": [-1]}, "negative size"),
        ({"dims": [7]}, "should have 28 bytes"),
        ({"data_type": 99}, "type 99"),
        ({"data_type": 0}, "type 0"),
    ],
)
def test_tensors_that_lie(change, match):
    tensor = numpy_helper.from_array(np.arange(6, dtype=np.float32), "w")
    for name, value in change.items():
        if name == "dims":
            del tensor.dims[:]
            tensor.dims.extend(value)
        else:
            setattr(tensor, name, value)
    proto = model([node("Add", ["x", "w"], ["y"])], {"x": (6,)}, ["y"])
    proto.graph.initializer.append(tensor)
    refused(proto, match)


@pytest.mark.parametrize(
    "location", ["../secret", "/etc/passwd", "", "folder", "link", "missing", "a/../../secret"]
)
def test_external_data_stays_in_the_folder(tmp_path, location):
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(24))
    (folder / "link").symlink_to(tmp_path / "secret")
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[6])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "length": "24"}.items():
        tensor.external_data.append(onnx.StringStringEntryProto(key=key, value=value))
    proto = model([node("Add", ["x", "w"], ["y"])], {"x": (6,)}, ["y"])
    proto.graph.initializer.append(tensor)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    refused(path, "is no file in the model's folder")
    refused(proto.SerializeToString(), "load the model by its path|lies in the file")


@pytest.mark.parametrize(
    ("key", "value"),
    [("offset", "9"), ("length", "25"), ("offset", "x"), ("offset", "-4"), ("length", "1e3")],
)
def test_external_data_of_the_wrong_size(tmp_path, key, value):
    (tmp_path / "data").write_bytes(bytes(24))
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[6])
    tensor.data_location = TensorProto.EXTERNAL
    for name, text in {"location": "data", key: value}.items():
        tensor.external_data.append(onnx.StringStringEntryProto(key=name, value=text))
    proto = model([node("Add", ["x", "w"], ["y"])], {"x": (6,)}, ["y"])
    proto.graph.initializer.append(tensor)
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    refused(tmp_path / "model.onnx", "'w'")


def test_functions_that_never_end(monkeypatch):
    """One that calls itself, and a chain in which each calls the next twice."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    own = helper.make_function(
        "own", "F", ["x"], ["y"], [node("F", ["x"], ["y"], domain="own")], opsets
    )
    refused(
        model([node("F", ["x"], ["y"], domain="own")], {"x": (1,)}, ["y"], functions=[own]), "deep"
    )
    # Nodes are counted before any is built.
    monkeypatch.setattr(importer.Import, "_run", lambda *args: pytest.fail("built"))
    refused(bomb(), "more than 200,000 nodes with its functions")
    refused(bomb(in_a_branch=True), "more than 200,000 nodes with its functions")


def bomb(levels=40, *, in_a_branch=False):
    """Return a model whose functions each call the next twice."""
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]

    def calls(i):
        if i == levels:
            return [node("Relu", ["x"], ["y"])]
        twice = [(["x"], ["a"]), (["a"], ["y"])]
        return [node(f"F{i + 1}", *ends, domain="own") for ends in twice]

    chain = [
        helper.make_function("own", f"F{i}", ["x"], ["y"], calls(i), opsets)
        for i in range(levels + 1)
    ]
    nodes = [node("F0", ["x"], ["y"], domain="own")]
    if in_a_branch:
        made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1,))]
        branch = helper.make_graph(nodes, "branch", [], made)
        condition = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
        nodes = [
            node("Constant", [], ["c"], value=condition),
            node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        ]
    return model(nodes, {"x": (1,)}, ["y"], functions=chain)


@pytest.mark.parametrize("in_a_branch", [False, True])
def test_calls_are_counted_without_expanding_them(monkeypatch, in_a_branch):
    """As many nodes as are built."""
    proto = bomb(levels=6, in_a_branch=in_a_branch)
    counts = []
    monkeypatch.setattr(functions, "check_count", counts.append)
    gf.onnx.load(proto)
    assert counts[0] == counts[-1] > 2**6


def test_sizes_that_no_memory_holds(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")  # a limit is kept by compiled plans
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # "values" would make the array
    weights = {"to": np.array([1 << 40])}
    proto = model(
        [node("ConstantOfShape", ["to"], ["c"]), node("Add", ["x", "c"], ["y"])],
        {"x": (1,)},
        ["y"],
        weights,
    )
    graph = gf.onnx.load(proto)  # it is only described
    with gf.Session(graph, memory_limit="1GiB") as session, pytest.raises(gf.MemoryLimitError):
        session.run(graph.outputs, {"x": np.zeros(1, np.float32)})


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_and_random_bytes(rng, seed):
    data = classifier(rng).SerializeToString()
    chance = random.Random(seed)
    for _ in range(60):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 6)):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        try:
            gf.onnx.load(bytes(damaged))
        except gf.errors.GraphfwError:
            pass


@pytest.mark.parametrize(
    ("kind", "size"), [("ConstantOfShape", 1 << 45), ("Tile", 1 << 62), ("Tile", 1 << 45)]
)
def test_sizes_beyond_the_machine(kind, size):
    inputs = ["to"] if kind == "ConstantOfShape" else ["x", "to"]
    nodes = [node(kind, inputs, ["c"]), node("Add", ["x", "c"], ["d"]), node("Neg", ["d"], ["y"])]
    proto = model(nodes, {"x": (1,)}, ["c", "y"], {"to": np.array([size])})
    with pytest.raises(gf.errors.GraphfwError):
        gf.onnx.run(proto, {"x": np.zeros(1, np.float32)})


@pytest.mark.parametrize(
    ("kind", "inputs", "match", "attributes"),
    [
        ("LRN", [(3,)], "input of 1 dim has no channels", {"size": 3}),
        ("DFT", [()], "no axis 1 among 0", {}),
        ("SplitToSequence", [()], "no axis 0 among 0", {}),
        ("Multinomial", [(3,)], "1 dim, not .batch, classes.", {}),
        ("Compress", [(3, 4), (3, 4)], "condition has 2 dims, not 1", {}),
        ("Reshape", [(3,), ()], "new shape has 0 dims, not 1", {}),
        ("DeformConv", [(1, 3, 4)] * 3, "x has 3 dims, and its weights 3", {}),
    ],
)
def test_inputs_of_too_few_or_too_many_dims(kind, inputs, match, attributes):
    names = {f"x{i}": shape for i, shape in enumerate(inputs)}
    proto = model([node(kind, [*names], ["y"], **attributes)], names, ["y"], opset=19)
    if kind in ("Compress", "Reshape"):
        type_ = TensorProto.BOOL if kind == "Compress" else TensorProto.INT64
        proto.graph.input[1].type.tensor_type.elem_type = type_
    with pytest.raises(gf.errors.GraphfwError, match=match) as caught:
        gf.onnx.load(proto)
    assert caught.value.__cause__ is None or isinstance(
        caught.value.__cause__, gf.errors.GraphfwError
    )


@pytest.mark.parametrize("number", [2.5, np.inf, np.nan, 2 + 1j, np.complex64(2)])
@pytest.mark.parametrize("kind", ["TopK", "Tile", "Expand", "Unsqueeze"])
def test_sizes_that_are_no_integers(kind, number):
    outputs = ["y", "places"] if kind == "TopK" else ["y"]
    nodes = [node(kind, ["x", "size"], outputs)]
    proto = model(nodes, {"x": (3,)}, ["y"], {"size": np.array([number])})
    refused(proto, "which is no integer")
