"""Sizes that models compute, and that they take for equal, beside ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import graphfw as gf
from tests.onnx.models import model


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, [*inputs], [*outputs], **attributes)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


# Scales that are computed from sizes


WEIGHTS = {
    "spatial": np.array([2, 3]),
    "ones": np.float32([1, 1]),
    "factor": np.float32([1.5, 1.2]),
    "none": np.float32([]),
}


def measured(x, name):
    """Return the nodes that make floats of the sizes of an image."""
    return [
        node("Shape", [x], [f"{name}.all"]),
        node("Gather", [f"{name}.all", "spatial"], [f"{name}.ints"]),
        node("Cast", [f"{name}.ints"], [name], to=TensorProto.FLOAT),
    ]


def resizing(nodes, new, old, opset, mode="nearest", coordinates="asymmetric"):
    """Return a model that scales the image `x` by new / old."""
    nodes = [*nodes, node("Div", [new, old], ["ratio"])]
    nodes.append(node("Concat", ["ones", "ratio"], ["scales"], axis=0))
    if opset == 9:
        nodes.append(node("Upsample", ["x", "scales"], ["y"], mode=mode))
    elif opset == 10:
        nodes.append(node("Resize", ["x", "scales"], ["y"], mode=mode))
    else:
        how = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
        nodes.append(node("Resize", ["x", "none", "scales"], ["y"], **how))
    inputs = {"x": ("n", 2, "h", "w"), "like": ("n", 2, "H", "W")}
    return model(nodes, inputs, ["y"], WEIGHTS, opset=opset)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [9, 10, 21])
def test_scales_to_the_sizes_of_another_image(opset, mode, rng, compare):
    nodes = [*measured("like", "new"), *measured("x", "old")]
    feeds = {"x": normal(rng, 1, 2, 4, 8), "like": normal(rng, 1, 2, 12, 16)}
    graph = compare(resizing(nodes, "new", "old", opset, mode), feeds)
    assert str(graph.outputs[0].shape) == "(n, 2, H, W)"
    with gf.Session(graph) as session:  # where a float is a bit less: float32(47 / 49) * 49
        feeds = {"x": normal(rng, 1, 2, 49, 3), "like": normal(rng, 1, 2, 47, 5)}
        assert session.run(graph.outputs, feeds)[0].shape == (1, 2, 47, 5)


@pytest.mark.parametrize("coordinates", ["align_corners", "half_pixel"])
def test_scales_to_products_of_sizes(coordinates, rng, compare):
    nodes = [
        *measured("x", "old"),
        node("Mul", ["old", "factor"], ["product"]),
        node("Floor", ["product"], ["new"]),
    ]
    feeds = {"x": normal(rng, 2, 2, 6, 10), "like": normal(rng, 2, 2, 1, 1)}
    graph = compare(resizing(nodes, "new", "old", 21, "linear", coordinates), feeds)
    assert str(graph.outputs[0].shape) == "(n, 2, h + h//2, w + w//5)"


def test_scales_by_numbers_that_sizes_come_to(rng, compare):
    nodes = [*measured("x", "old"), node("Mul", ["old", "factor"], ["new"])]
    feeds = {"x": normal(rng, 2, 2, 6, 10), "like": normal(rng, 2, 2, 1, 1)}
    graph = compare(resizing(nodes, "new", "old", 9), feeds)
    assert str(graph.outputs[0].shape) == "(n, 2, h + h//2, w + w//5)"


def test_scales_that_come_to_no_whole_sizes():
    nodes = [*measured("like", "new"), *measured("like", "old")]
    nodes.append(node("Add", ["old", "ones"], ["more"]))
    proto = resizing(nodes, "new", "more", 9)
    proto.graph.node[-1].name = "up"
    with pytest.raises(gf.onnx.ValueNeeded, match="is a whole number") as caught:
        gf.onnx.load(proto)
    text = str(caught.value)
    assert "Upsample: dim 2 of 'x', h, would become (H*h)/(H + 1)" in text
    assert "up" in text
    assert "shapes=" in text
    graph = gf.onnx.load(proto, shapes={"x": (1, 2, 3, 3), "like": (1, 2, 5, 5)})
    assert graph.outputs[0].shape == (1, 2, 2, 2)


def test_scales_that_depend_on_values():
    nodes = [
        node("ReduceMax", ["x"], ["peak"], axes=[0, 1, 2, 3], keepdims=0),
        *measured("x", "old"),
        node("Mul", ["old", "peak"], ["new"]),
    ]
    proto = resizing(nodes, "new", "old", 9)
    with pytest.raises(gf.onnx.ValueNeeded, match="the scales must be known") as caught:
        gf.onnx.load(proto)
    assert caught.value.inputs == ("x",)


# Sizes that must be equal


def body(nodes, inputs, outputs):
    """Return the body of a loop: a graph whose inputs and outputs have no shapes."""
    types = {"i": TensorProto.INT64, "go": TensorProto.BOOL, "on": TensorProto.BOOL}

    def infos(names):
        kinds = [(n, types.get(n, TensorProto.FLOAT)) for n in names]
        return [helper.make_tensor_value_info(n, k, [] if n in types else None) for n, k in kinds]

    return helper.make_graph(nodes, "body", infos(inputs), infos(outputs))


F32 = np.float32
GOES_ON = node("Identity", ["go"], ["on"])
ITERATION = body([node("Add", ["x", "c"], ["d"]), GOES_ON], ["i", "go", "c"], ["on", "d"])
ROW = body([node("Add", ["e", "c"], ["d"]), node("Neg", ["d"], ["o"])], ["c", "e"], ["d", "o"])
PAIR = body([node("Add", ["e", "f"], ["o"])], ["e", "f"], ["o"])
CAST = node("Cast", "f", "i", to=TensorProto.INT64)
GATHERED = node("GatherElements", "xi", "y")
GATES = {"w": (1, 9, 4), "r": (1, 9, 3), "b": (1, 18)}

# A node, or several; the inputs' dims; shapes, or arrays, that are fed; weights by their shapes.
EQUAL = {
    "a number": (node("Add", "xz", "y"), {"x": ("n", 3), "z": (2, 3)}, [(2, 3), (2, 3)], {}),
    "another name": (node("Mul", "xz", "y"), {"x": ("n", 3), "z": ("m", 3)}, [(2, 3), (2, 3)], {}),
    "where": (
        [node("Less", "xz", "c"), node("Where", "cxz", "y")],
        {"x": ("n", 3), "z": ("m", 3)},
        [(2, 3), (2, 3)],
        {},
    ),
    "concat": (
        node("Concat", "xzu", "y", axis=1),
        {"x": ("n", "a"), "z": ("m", "b"), "u": (2, 3)},
        [(2, 1), (2, 4), (2, 3)],
        {},
    ),
    "expand": (
        [node("Shape", "z", "s"), node("Expand", "xs", "y")],
        {"x": ("n", 3), "z": (2, "m")},
        [(2, 3), (2, 3)],
        {},
    ),
    "reshape": (node("Reshape", "xs", "y"), {"x": ("n", "m")}, [(2, 6)], {"s": np.array([3, 4])}),
    "product": (node("MatMul", "xz", "y"), {"x": (2, "n"), "z": ("m", 3)}, [(2, 4), (4, 3)], {}),
    "product of weights": (
        [node("Flatten", "x", "f"), node("Gemm", "fwc", "y", transB=1)],
        {"x": ("n", 2, "h", "w"), "c": ("m", "k")},
        [(2, 2, 3, 3), (2, 4)],
        {"w": (4, 18)},
    ),
    "products": (
        node("MatMul", "xz", "y"),
        {"x": ("a", 2, 4), "z": ("b", "k", 3)},
        [(5, 2, 4), (5, 4, 3)],
        {},
    ),
    "einsum": (
        node("Einsum", "xz", "y", equation="ij, jk -> ik"),
        {"x": ("n", "a"), "z": ("b", 3)},
        [(2, 4), (4, 3)],
        {},
    ),
    "convolution": (
        node("Conv", "xwb", "y", group=2),
        {"x": ("n", "c", "h", "w"), "b": ("m",)},
        [(1, 4, 5, 5), (6,)],
        {"w": (6, 2, 2, 2)},
    ),
    "transposed convolution": (
        node("ConvTranspose", "xwb", "y"),
        {"x": ("n", "c", "h", "w"), "b": ("m",)},
        [(1, 4, 5, 5), (3,)],
        {"w": (4, 3, 2, 2)},
    ),
    "batch norm": (
        node("BatchNormalization", "xsbmv", "y"),
        {"x": ("n", "c", "h"), "s": ("k",)},
        [(2, 3, 5), (3,)],
        {"b": (3,), "m": (3,), "v": np.float32([1, 2, 3])},
    ),
    "group norm": (
        node("GroupNormalization", "xsb", "y", num_groups=2),
        {"x": ("n", "c", "h")},
        [(2, 4, 5)],
        {"s": (4,), "b": (4,)},
    ),
    "layer norm": (
        node("LayerNormalization", "xsb", "y"),
        {"x": ("n", "c"), "b": ("k",)},
        [(2, 3), (3,)],
        {"s": (3,)},
    ),
    "attention": (
        node("Attention", "qkvm", "y"),
        {"q": ("b", 2, "t", 4), "k": ("c", 2, "s", 4), "v": ("d", 2, "u", 4), "m": ("r", "p")},
        [(1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (3, 5)],
        {},
    ),
    "recurrent": (
        node("GRU", ["x", "w", "r", "b", "", "h"], "y", hidden_size=3),
        {"x": ("t", "n", "a"), "h": (1, "m", "k")},
        [(5, 2, 4), (1, 2, 3)],
        GATES,
    ),
    "scatter": (
        node("ScatterND", "xiu", "y"),
        {"x": ("a", 3), "u": ("m", "k")},
        [(5, 3), (2, 3)],
        {"i": np.array([[0], [3]])},
    ),
    "scatter elements": (
        node("ScatterElements", "xiu", "y"),
        {"x": ("a", 3), "u": ("m", "k")},
        [(5, 3), (2, 3)],
        {"i": np.array([[0, 1, 2], [3, 2, 1]])},
    ),
    "gather elements": (
        [node("Shape", "z", "s"), node("ConstantOfShape", "s", "f"), CAST, GATHERED],
        {"x": ("a", 3), "z": ("p", "q")},
        [(5, 3), (2, 3)],
        {},
    ),
    "carry of a loop": (
        node("Loop", ["trips", "", "c0"], "y", body=ITERATION),
        {"x": ("n", 3), "c0": ("m", 3)},
        [(2, 3), (2, 3)],
        {"trips": np.array(3)},
    ),
    "carry of a scan": (
        node("Scan", ["c0", "x"], ["l", "y"], body=ROW, num_scan_inputs=1),
        {"x": ("t", "a"), "c0": ("m",)},
        [(4, 3), (3,)],
        {},
    ),
    "trips of a scan": (
        node("Scan", ["x", "z"], "y", body=PAIR, num_scan_inputs=2),
        {"x": ("t", 3), "z": ("s", 3)},
        [(4, 3), (4, 3)],
        {},
    ),
    "sequence": (
        [
            node("SequenceConstruct", "xz", "q"),
            node("ConcatFromSequence", "q", "y", axis=0, new_axis=1),
        ],
        {"x": ("n", 3), "z": ("m", "k")},
        [(2, 3), (2, 3)],
        {},
    ),
    "grid": (
        node("GridSample", "xg", "y"),
        {"x": ("n", 2, "h", "w"), "g": ("m", "p", "q", 2)},
        [(2, 2, 4, 4), (2, 3, 3, 2)],
        {},
    ),
}


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("name", EQUAL)
def test_sizes_that_must_be_equal(name, rng, compare, monkeypatch):
    # To verify passes sizes are made up, which for 2*h*w = 18 are not found.
    monkeypatch.delenv("GRAPHFW_VERIFY", raising=False)
    nodes, dims, shapes, weights = EQUAL[name]
    fixed = {k: v if isinstance(v, np.ndarray) else normal(rng, *v) for k, v in weights.items()}
    nodes = nodes if isinstance(nodes, list) else [nodes]
    proto = model(nodes, dims, ["y"], fixed, opset=23 if name == "attention" else 21)
    feeds = {key: normal(rng, *shape) for key, shape in zip(dims, shapes, strict=True)}
    compare(proto, feeds)


def test_sizes_that_are_not_equal_in_a_run(rng):
    nodes = [node("Exp", "x", "e"), helper.make_node("MatMul", ["e", "z"], ["y"], "scores")]
    graph = gf.onnx.load(model(nodes, {"x": (2, "n"), "z": ("m", 3)}, ["y"]))
    with gf.Session(graph) as session:
        with pytest.raises(
            gf.ShapeError, match="the dim `m` is 5 in this run, not n = 4"
        ) as caught:
            session.run(graph.outputs, {"x": normal(rng, 2, 4), "z": normal(rng, 5, 3)})
        assert caught.value.why == (
            '`n` is dim 1 of "x", which is fed [2, 4]; `m` is dim 0 of "z", which is fed [5, 3]; '
            "the layer scores relies on it"
        )
        assert caught.value.fix == "feed arrays that agree"
        assert session.run(graph.outputs, {"x": np.zeros((2, 4), F32), "z": np.ones((4, 3), F32)})


@pytest.mark.parametrize("dims", [("b", "c"), (None, None)])
def test_a_size_that_weights_do_not_have(rng, dims):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "scores")]
    graph = gf.onnx.load(model(nodes, {"x": dims}, ["y"], {"w": normal(rng, 4, 2)}))
    with gf.Session(graph) as session, pytest.raises(gf.ShapeError) as caught:
        session.run(graph.outputs, {"x": normal(rng, 3, 5)})
    error = caught.value
    name = dims[1] or "x.shape[1]"
    assert error.summary == f"scores: the dim `{name}` is 5 in this run, not 4"
    assert f'fed  "x"  float32[{dims[0]}, {dims[1]}]' in str(error)
    assert f'`{name}` is dim 1 of "x", which is fed [3, 5]' in error.why
    assert error.fix == 'feed "x" an array with 4 at dim 1'


def test_sizes_that_are_never_equal():
    nodes = [
        node("Concat", "xo", "l", axis=0),
        helper.make_node("Add", ["x", "l"], ["y"], "sum"),
    ]
    with pytest.raises(gf.ShapeError, match="a symbolic dim broadcasts with 1 and itself only"):
        gf.onnx.load(model(nodes, {"x": ("n",)}, ["y"], {"o": F32([1, 2])}))


def test_loops_whose_number_of_trips_is_fed(rng):
    loop = node("Loop", ["trips", "", "c0"], "y", body=ITERATION)
    proto = model([loop], {"x": ("n", 3), "c0": ("m", 3), "trips": ()}, ["y"])
    proto.graph.input[2].type.tensor_type.elem_type = TensorProto.INT64
    graph = gf.onnx.load(proto)
    x, start = normal(rng, 2, 3), normal(rng, 2, 3)
    with gf.Session(graph) as session:
        made = session.run(graph.outputs, {"x": x, "c0": start, "trips": np.array(5)})[0]
    np.testing.assert_allclose(made, start + 5 * x, 1e-5, 1e-5)


def test_one_run_where_a_dim_of_one_broadcasts(rng):
    nodes = [node("MatMul", "xz", "p"), node("Add", "pu", "y")]
    dims = {"x": ("a", 2, 4), "z": ("b", 4, 3), "u": ("c", 2, 3)}
    shapes = [(5, 2, 4), (1, 4, 3), (1, 2, 3)]
    feeds = {name: normal(rng, *shape) for name, shape in zip(dims, shapes, strict=True)}
    made = gf.onnx.run(model(nodes, dims, ["y"]), feeds)["y"]
    np.testing.assert_allclose(made, feeds["x"] @ feeds["z"] + feeds["u"], 1e-4, 1e-5)
