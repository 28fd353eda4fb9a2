"""Operators where ONNX's suite has no case, beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphfw as gf
from tests.onnx.models import model


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs, outputs, **attributes)


@pytest.mark.parametrize("sizes", [(9,), (7, 8), (4, 5, 6)])
def test_places_that_count_down_the_columns(sizes, rng, compare):
    rank = len(sizes)
    pool = node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2] * rank, storage_order=1)
    proto = model([pool], {"x": (2, 3, *sizes)}, ["y"])
    proto.graph.output.append(helper.make_tensor_value_info("i", TensorProto.INT64, None))
    compare(proto, {"x": rng.standard_normal((2, 3, *sizes)).astype(np.float32)})


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_regions_of_different_sizes(mode, coordinates, rng, compare):
    regions = [[0, 0, 3, 4], [1, 1, 9, 8], [0.5, 0.2, 3.2, 4.1], [3, 3, 10.9, 8.5]]
    weights = {"regions": np.float32(regions), "images": np.array([0, 1, 1, 0])}
    how: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    align = node("RoiAlign", ["x", *weights], ["y"], output_height=2, output_width=3, **how)
    proto = model([align], {"x": (2, 3, 9, 11)}, ["y"], weights)
    compare(proto, {"x": rng.standard_normal((2, 3, 9, 11)).astype(np.float32)})
    weights["regions"][1, 2] = 1e9
    with pytest.raises(gf.onnx.OnnxError, match="a region is too large"):
        gf.onnx.load(model([align], {"x": (2, 3, 9, 11)}, ["y"], weights))


def test_counting_as_exporters_write_it(rng, compare):
    one = numpy_helper.from_array(np.array([1]))
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("ConstantOfShape", ["s"], ["ones"], value=one),
        node("NonZero", ["ones"], ["places"]),
        node("Cast", ["places"], ["y"], to=TensorProto.FLOAT),
    ]
    proto = model(nodes, {"x": ("n", "t")}, ["y"])
    graph = compare(proto, {"x": rng.standard_normal((2, 5)).astype(np.float32)})
    assert str(graph.outputs[0].shape) == "(2, n*t)"


def test_a_shape_some_of_whose_dims_are_known(rng, compare):
    weights = {"at": np.array(1), "values": np.float32([0, 1])}
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "at"], ["depth"]),
        node("ArgMax", ["x"], ["best"], axis=1, keepdims=0),
        node("OneHot", ["best", "depth", "values"], ["y"]),
    ]
    graph = compare(
        model(nodes, {"x": ("n", 7)}, ["y"], weights),
        {"x": rng.standard_normal((3, 7)).astype(np.float32)},
    )
    assert str(graph.outputs[0].shape) == "(n, 7)"


def test_the_last_row_of_any_number(rng, compare):
    slice_ = node("Slice", ["x"], ["last"], starts=[-1], ends=[2**31 - 1], axes=[0])
    proto = model(
        [slice_, node("Squeeze", ["last"], ["y"], axes=[0])], {"x": ("t", 3)}, ["y"], opset=9
    )
    graph = compare(proto, {"x": rng.standard_normal((4, 3)).astype(np.float32)})
    with gf.Session(graph) as session, pytest.raises(gf.GraphfwError, match="min\\(t, 1\\)"):
        session.run(graph.outputs, {"x": np.zeros((0, 3), np.float32)})


LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("known", [True, False], ids=["initialisers", "inputs"])
@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (0, MOST, 1),
        (LEAST, MOST, 1),
        (LEAST, MOST, 2),
        (MOST, LEAST, -1),
        (-1, LEAST, -1),
        (MOST, LEAST, -2),
        (2, LEAST, -3),
        (MOST, MOST, 1),
        (LEAST, LEAST, 1),
        (LEAST, LEAST, -1),
        (0, MOST, MOST),
        (MOST, LEAST, LEAST),
        (1, 2**31 - 1, 1),
        (-9, 2, -1),
        (-3, -9, -1),
    ],
)
def test_slices_to_the_ends_of_int64(rng, compare, start, end, step, known):
    """Exporters write the largest and the least number for "to the end"."""
    names = ["from", "to", "axes", "by"]
    values = [np.array([n], np.int64) for n in (start, end, 0, step)]
    bounds = dict(zip(names, values, strict=True))
    slice_ = node("Slice", ["x", *names], ["y"])
    for count in (5, 1):
        x = {"x": rng.standard_normal((count, 3)).astype(np.float32)}
        if known:
            compare(model([slice_], {"x": ("t", 3)}, ["y"], bounds), x)
            compare(model([slice_], {"x": (count, 3)}, ["y"], bounds), x)
        elif step > 0:  # else the bounds have to be known
            given = {name: bounds[name] for name in ("from", "to")}
            proto = model(
                [slice_],
                {"x": ("t", 3), "from": (1,), "to": (1,)},
                ["y"],
                {name: bounds[name] for name in ("axes", "by")},
            )
            for value in proto.graph.input[1:]:
                value.type.tensor_type.elem_type = TensorProto.INT64
            compare(proto, {**x, **given})


def test_short_transforms_of_real_signals(rng, compare):
    weights = {"step": np.array(4), "window": np.hanning(8).astype(np.float32)}
    stft = node("STFT", ["x", *weights], ["y"])
    proto = model([stft], {"x": (2, 32)}, ["y"], weights)
    compare(proto, {"x": rng.standard_normal((2, 32)).astype(np.float32)})


def test_pads_that_cut_off_more_than_there_is(rng, compare):
    def padded(*pads):
        return model([node("Pad", ["x"], ["y"], pads=pads)], {"x": (2, 3)}, ["y"], opset=10)

    x = {"x": rng.standard_normal((2, 3)).astype(np.float32)}
    compare(padded(0, -2, 0, -1), x)  # nothing is left
    compare(padded(1, -2, 0, 1), x)
    for pads in ((0, -5, 0, 0), (0, 0, 0, -4), (0, -2, 0, -2)):
        with pytest.raises(gf.onnx.OnnxError, match=r"its pads .* cut off \d elements of 3"):
            gf.onnx.load(padded(*pads))


def test_pads_that_cut_off_more_than_is_fed(rng, compare):
    proto = model(
        [node("Pad", ["x"], ["y"], pads=[0, -2, 0, -1])], {"x": (2, "n")}, ["y"], opset=10
    )
    for size in (3, 4):
        compare(proto, {"x": rng.standard_normal((2, size)).astype(np.float32)})
    graph = gf.onnx.load(proto)
    with gf.Session(graph) as session, pytest.raises(gf.ShapeError) as caught:
        session.run(graph.outputs, {"x": np.ones((2, 2), np.float32)})
    assert "Pad: the dim `n` is 2 in this run, not max(n, 3) = 3" in str(caught.value)
    assert caught.value.fix == 'feed "x" an array with 3 at dim 1'
    with pytest.raises(gf.GraphfwError):
        gf.onnx.run(proto, {"x": np.ones((2, 2), np.float32)})


def test_a_body_without_outputs_and_bools_for_numbers():
    body = helper.make_graph([], "empty", [], [])
    loop = node("Loop", ["trips", "", "x"], ["y"], body=body)
    proto = model([loop], {"x": (2,)}, ["y"], {"trips": np.array(3)})
    with pytest.raises(gf.onnx.OnnxError, match="its body has 0 outputs for 1 input"):
        gf.onnx.load(proto)
    how = {"scale": np.float32(1), "zero": np.array(True)}
    proto = model([node("QuantizeLinear", ["x", *how], ["y"])], {"x": (2,)}, ["y"], how)
    with pytest.raises(gf.onnx.OnnxError, match="it can't make bool"):
        gf.onnx.load(proto)
