"""Models whose shapes depend on values, loaded once and run at several sizes."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.sources import Placeholder
from graphfw.ops.data_dependent.measuring_ops import NonMaxSuppression
from tests.onnx.models import model

node = helper.make_node


def taking(proto: onnx.ModelProto, **integers: tuple[int | str, ...]) -> onnx.ModelProto:
    """Add inputs of int64."""
    for name, shape in integers.items():
        proto.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
    return proto


def check(proto: onnx.ModelProto, *runs: dict[str, Any]) -> gf.Graph:
    """Load a model once, and compare each run of one plan with ONNX's reference, saved, too."""
    reference = ReferenceEvaluator(proto)
    graph = gf.onnx.load(proto)
    with TemporaryDirectory() as folder:
        gf.onnx.save(graph, list(graph.outputs), f"{folder}/model.onnx")
        saved = ReferenceEvaluator(f"{folder}/model.onnx")
    with gf.Session(graph) as session:
        for feeds in runs:
            ours = session.run(list(graph.outputs), feeds)
            for each in (reference, saved):
                for mine, wanted in zip(ours, each.run(None, feeds), strict=True):
                    assert mine.dtype == wanted.dtype
                    np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)
            alone = gf.onnx.run(proto, feeds)
            for mine, other in zip(ours, alone.values(), strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
        assert len(session._plans) == 1
    return graph


def floats(rng: np.random.Generator, *shape: int) -> Any:
    return rng.normal(size=shape).astype(np.float32)


def test_a_detector(rng):
    """Scores, boxes that are kept, the best of these, and their corners."""
    weights = {
        "most": np.array([20]),
        "overlap": np.array([0.5], np.float32),
        "least": np.array([0.6], np.float32),
        **{str(i): np.array([i]) for i in range(6)},
    }
    nodes = [
        node("Sigmoid", ["logits"], ["scores"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["kept"]),
        node("GatherND", ["scores", "kept"], ["picked"]),
        node("Shape", ["picked"], ["count"]),
        node("Concat", ["count", "5"], ["both"], axis=0),
        node("ReduceMin", ["both"], ["k"], keepdims=1),
        node("TopK", ["picked", "k"], ["best", "order"]),
        node("Gather", ["kept", "order"], ["chosen"], axis=0),
        node("Slice", ["chosen", "0", "1", "1"], ["images"]),
        node("Slice", ["chosen", "2", "3", "1"], ["numbers"]),
        node("Concat", ["images", "numbers"], ["places"], axis=1),
        node("GatherND", ["boxes", "places"], ["corners"]),
    ]
    inputs = {"boxes": ("b", "n", 4), "logits": ("b", 3, "n")}
    proto = model(nodes, inputs, ["corners", "best"], weights, opset=18)
    proto.graph.output.append(helper.make_tensor_value_info("kept", TensorProto.INT64, None))
    runs = []
    for images, boxes in ((1, 50), (2, 30), (1, 1), (2, 80)):
        corners = rng.uniform(0, 10, (images, boxes, 4)).astype(np.float32)
        logits = floats(rng, images, 3, boxes) - 9 * (boxes == 1)
        runs.append({"boxes": corners, "logits": logits})
    graph = check(proto, *runs)
    assert str(graph.outputs[2].shape) == "(_boxes, 3)"


@pytest.mark.parametrize("centred", [0, 1])
def test_non_max_suppression_of_no_boxes_and_without_limits(rng, centred):
    proto = model(
        [
            node("NonMaxSuppression", ["boxes", "scores"], ["none"]),
            node("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"], center_point_box=1),
        ],
        {"boxes": (1, "n", 4), "scores": (1, 2, "n")},
        [],
        {"most": np.array(3)},
        opset=11,
    )
    for name in ("none", "kept"):
        proto.graph.output.append(helper.make_tensor_value_info(name, TensorProto.INT64, None))
    graph = gf.onnx.load(proto)
    with gf.Session(graph) as session:
        feeds = {"boxes": np.zeros((1, 0, 4), np.float32), "scores": np.zeros((1, 2, 0))}
        feeds["scores"] = feeds["scores"].astype(np.float32)
        assert [x.shape for x in session.run(list(graph.outputs), feeds)] == [(0, 3), (0, 3)]
        feeds = {"boxes": np.ones((1, 4, 4), np.float32), "scores": floats(rng, 1, 2, 4)}
        none, kept = session.run(list(graph.outputs), feeds)
        assert none.shape == (0, 3)
        # All are the same box: of each class the best stays.
        np.testing.assert_array_equal(kept[:, 2], feeds["scores"][0].argmax(axis=1))


def test_non_max_suppression_checks_its_shapes():
    with gf.Graph():
        boxes = emit(Placeholder((1, 5, 4), gf.float32))
        scores = emit(Placeholder((1, 2, 6), gf.float32))
        numbers = (gf.asarray(3), gf.asarray(0.5), gf.asarray(0.0))
        with pytest.raises(gf.ShapeError, match=r"are \[1, 5, 4\] and \[1, 2, 6\]"):
            emit(NonMaxSuppression((1,), False), boxes, scores, *numbers)


def test_what_is_not_zero(rng):
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Transpose", ["places"], ["tuples"]),
        node("GatherND", ["x", "tuples"], ["y"]),
    ]
    runs = [{"x": np.where(floats(rng, n, 3) > 0.3, 1.5, 0).astype(np.float32)} for n in (4, 9, 0)]
    check(model(nodes, {"x": ("n", 3)}, ["y"]), *runs)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_compress(rng, axis):
    attributes = {} if axis is None else {"axis": axis}
    nodes = [
        node("Greater", ["c", "zero"], ["mask"]),
        node("Compress", ["x", "mask"], ["y"], **attributes),
    ]
    proto = model(nodes, {"x": ("n", 4), "c": ("m",)}, ["y"], {"zero": np.float32(0)})
    check(proto, *[{"x": floats(rng, n, 4), "c": floats(rng, min(n, 4))} for n in (3, 6)])


@pytest.mark.parametrize("is_sorted", [0, 1])
def test_unique(rng, is_sorted):
    outputs = ["values", "first", "inverse", "counts"]
    proto = model(
        [node("Unique", ["x"], outputs, sorted=is_sorted)], {"x": ("n",)}, ["values"], opset=18
    )
    for name in outputs[1:]:
        proto.graph.output.append(helper.make_tensor_value_info(name, TensorProto.INT64, None))
    runs = [{"x": rng.integers(-3, 3, n).astype(np.float32)} for n in (5, 1, 9)]
    check(proto, *runs)


def test_reshape_to_what_is_fed(rng):
    proto = taking(model([node("Reshape", ["x", "to"], ["y"])], {"x": ("n", 6)}, ["y"]), to=(2,))
    x = floats(rng, 4, 6)
    graph = check(proto, *[{"x": x, "to": np.array(to)} for to in ([3, 8], [-1, 2], [0, -1])])
    assert str(graph.outputs[0].shape) == "(_size, _size2)"
    with gf.Session(graph) as session, pytest.raises(gf.GraphfwError):
        session.run(list(graph.outputs), {"x": x, "to": np.array([5, 5])})
    known = gf.onnx.load(proto, values={"to": np.array([-1, 3])})
    assert str(known.outputs[0].shape) == "(2*n, 3)"


def test_what_is_known_of_a_shape_stays_known(rng, monkeypatch):
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # sizes drawn at random don't fit together
    nodes = [
        node("Shape", ["x"], ["sizes"]),
        node("Slice", ["sizes", "zero", "one"], ["batch"]),
        node("Concat", ["batch", "rest"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["y"]),
    ]
    weights = {"zero": np.array([0]), "one": np.array([1])}
    proto = taking(model(nodes, {"x": ("n", 6)}, ["y"], weights), rest=(2,))
    graph = check(proto, *[{"x": floats(rng, n, 6), "rest": np.array([3, 2])} for n in (2, 5)])
    assert str(graph.outputs[0].shape[0]) == "n"


def test_ranges(rng):
    nodes = [
        node("ReduceMax", ["lengths"], ["longest"], keepdims=0),
        node("Range", ["zero", "longest", "one"], ["places"]),
        node("Unsqueeze", ["lengths", "last"], ["column"]),
        node("Less", ["places", "column"], ["mask"]),
        node("Cast", ["mask"], ["y"], to=TensorProto.FLOAT),
        node("Range", ["start", "end", "step"], ["halves"]),
        node("Range", ["longest", "zero", "down"], ["backwards"]),
        node("Cast", ["backwards"], ["z"], to=TensorProto.FLOAT),
    ]
    weights = {
        "zero": np.array(0),
        "one": np.array(1),
        "down": np.array(-2),
        "last": np.array([1]),
        "step": np.float32(0.5),
    }
    inputs: dict[str, Any] = {"start": (), "end": ()}
    proto = taking(model(nodes, inputs, ["y", "halves", "z"], weights), lengths=("b",))
    runs = [
        {"lengths": np.array(lengths), "start": np.float32(-1.25), "end": np.float32(end)}
        for lengths, end in (([3, 1, 4], 2), ([2], -3), ([0, 0], 0.3))
    ]
    check(proto, *runs)


def test_slices_of_what_is_fed(rng):
    nodes = [
        node("Slice", ["x", "from", "to", "axes"], ["y"]),
        node("Slice", ["x", "from", "to", "axes", "steps"], ["z"]),
    ]
    weights = {"axes": np.array([1, 0]), "steps": np.array([2, 1])}
    proto = taking(model(nodes, {"x": ("n", 6)}, ["y", "z"], weights), **{"from": (2,), "to": (2,)})
    runs = [
        {"x": floats(rng, 5, 6), "from": np.array(start), "to": np.array(end)}
        for start, end in (([1, 0], [4, 3]), ([-3, -2], [-1, 99]), ([4, 3], [2, 1]))
    ]
    check(proto, *runs)


def test_sizes_of_what_is_made(rng):
    nodes = [
        node("ConstantOfShape", ["shape"], ["zeros"]),
        node("Expand", ["x", "shape"], ["wide"]),
        node("Tile", ["wide", "times"], ["tiled"]),
        node("Add", ["zeros", "wide"], ["y"]),
    ]
    proto = taking(model(nodes, {"x": (3, 1)}, ["y", "tiled"]), shape=(2,), times=(2,))
    runs = [
        {"x": floats(rng, 3, 1), "shape": np.array([3, n]), "times": np.array([k, 2])}
        for n, k in ((4, 1), (1, 3), (0, 2))
    ]
    graph = check(proto, *runs)
    with (
        gf.Session(graph) as session,
        pytest.raises(gf.ExecutionError, match=r"Tile: the repeats: \[-1, 2\] are to be sizes"),
    ):
        session.run(list(graph.outputs), {**runs[0], "times": np.array([-1, 2])})


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
def test_what_is_saved_runs_elsewhere(rng, tmp_path, dtype):
    """Sizes that are found out, and made of such ones, also in the body of a loop."""
    with gf.Graph() as g:
        x = gf.placeholder(("n", 2), dtype, name="x")
        given = gf.astype(x, gf.float32)
        kept = given[given[:, 0] > 0]
        values, _, inverse, counts = gf.unique_all(x)
        rows = gf.fori_loop(0, 3, lambda i, y: y + gf.sum(kept) / (kept.shape[0] + 1), kept)
        wide = gf.reshape(gf.concat([rows, given]), (kept.shape[0] + x.shape[0], 2))
        fetches = [gf.astype(values, gf.float32), inverse, counts, wide]
        fetches = [gf.identity(y, name=f"y{i}") for i, y in enumerate(fetches)]
    path = tmp_path / "model.onnx"
    gf.onnx.save(g, fetches, path)
    again = gf.onnx.load(path)
    runs = [np.round(2 * rng.standard_normal((n, 2))).astype(x.dtype.dtype) for n in (5, 1, 8)]
    with gf.Session(g) as session, gf.Session(again) as other:
        for array in runs:
            wanted = session.run(fetches, {x: array})
            for mine, theirs in zip(
                other.run(list(again.outputs), {"x": array}), wanted, strict=True
            ):
                np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    if dtype != "bfloat16":  # which the runtime's Python does not have
        runtime = pytest.importorskip("onnxruntime").InferenceSession(path)
        with gf.Session(g) as session:
            for array in runs:
                pairs = zip(
                    runtime.run(None, {"x": array}), session.run(fetches, {x: array}), strict=True
                )
                for theirs, wanted in pairs:
                    np.testing.assert_allclose(theirs, wanted, rtol=1e-6)


def test_what_onnx_has_no_form_for_is_said(tmp_path):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), gf.uint64, name="x")
        y = gf.identity(gf.unique_values(x), name="y")
    with pytest.raises(gf.onnx.OnnxError, match="unique") as caught:
        gf.onnx.save(g, y, tmp_path / "model.onnx")
    assert "test_measuring.py" in str(caught.value)


def test_bodies_know_their_values():
    then = helper.make_graph(
        [node("NonZero", ["x"], ["found"])],
        "then",
        [],
        [helper.make_tensor_value_info("found", TensorProto.INT64, None)],
    )
    proto = model(
        [node("If", ["yes"], ["y"], then_branch=then, else_branch=then)], {"x": ("n",)}, []
    )
    proto.graph.input.append(helper.make_tensor_value_info("yes", TensorProto.BOOL, ()))
    proto.graph.output.append(helper.make_tensor_value_info("y", TensorProto.INT64, None))
    with pytest.raises(gf.onnx.ValueNeeded, match="NonZero: x must be known"):
        gf.onnx.load(proto)
    made = gf.onnx.run(proto, {"x": np.array([0, 2], np.float32), "yes": np.array(True)})
    np.testing.assert_array_equal(made["y"], [[1]])
