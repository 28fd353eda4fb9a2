"""Unpooling as ONNX's MaxUnpool: written, run by ONNX Runtime, loaded again."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import graphfw as gf
from tests.onnx.runtime import started


def kinds(path):
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize(
    ("shape", "how"),
    [
        ((2, 3, 9), {"kernel_size": 2}),
        ((2, 3, 7, 8), {"kernel_size": 2}),
        ((2, 3, 8, 7), {"kernel_size": 3, "stride": 2, "padding": 1}),
        ((1, 2, 4, 5, 6), {"kernel_size": (1, 2, 3)}),
    ],
)
@pytest.mark.parametrize("opset", [17, 21])
def test_static_sizes(shape, how, opset, rng, tmp_path):
    with gf.Graph() as graph:
        x = gf.placeholder(shape, name="x")
        y, indices = gf.max_pool(x, return_indices=True, **how)
        back = gf.max_unpool(y, indices, output_size=shape, **how)
    path = tmp_path / "m.onnx"
    gf.onnx.save(graph, back, path, opset=opset)
    assert "MaxUnpool" in kinds(path)
    assert not [kind for kind in kinds(path) if kind.startswith("Scatter")]
    array = rng.normal(size=shape).astype(np.float32)
    loaded = gf.onnx.load(path)
    with gf.Session(graph) as session, gf.Session(loaded) as again:
        wanted = session.run(back, {x: array})
        (value,) = again.run(list(loaded.outputs), {"x": array})
    np.testing.assert_array_equal(value, wanted)
    np.testing.assert_array_equal(started(path).run(None, {"x": array})[0], wanted)


def test_symbolic_sizes_and_gradients(rng, tmp_path):
    with gf.Graph() as graph:
        x = gf.placeholder(("n", 2, "h", "w"), name="x")
        y, indices = gf.max_pool(x, 2, return_indices=True)
        back = gf.max_unpool(gf.sin(y), indices, 2)
        fetches = [back, gf.grad(gf.sum(back**2), x)]
    gf.onnx.save(graph, fetches, tmp_path / "m.onnx")
    assert kinds(tmp_path / "m.onnx").count("MaxUnpool") == 1
    for sizes in ((4, 6), (2, 8)):
        compare(graph, fetches, rng.normal(size=(2, 2, *sizes)), tmp_path / "m.onnx")


def test_of_two_at_one_place_the_last_counts(tmp_path):
    with gf.Graph() as graph:
        x, indices = gf.placeholder((1, 2, 3), name="x"), gf.placeholder((1, 2, 3), gf.int64, "i")
        back = gf.max_unpool(x, indices, 2)
    gf.onnx.save(graph, back, tmp_path / "m.onnx")
    assert kinds(tmp_path / "m.onnx").count("MaxUnpool") == 1
    feeds = {"x": np.float32([[[1, 2, 3], [4, 5, 6]]]), "i": np.int64([[[2, 0, 2], [1, 5, 5]]])}
    (made,) = started(tmp_path / "m.onnx").run(None, feeds)
    assert made.tolist() == [[[2, 0, 3, 0, 0, 0], [0, 4, 0, 0, 0, 6]]]


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None)])
def test_lanes(in_axes, rng, tmp_path):
    y, indices = gf.max_pool(rng.normal(size=(6, 2, 4, 5)), 2, return_indices=True)
    indices = indices.numpy().reshape(3, 2, 2, 2, 2)
    with gf.Graph() as graph:
        x = gf.placeholder((3, 2, 2, 2, 2), name="x")
        given = indices if in_axes[1] == 0 else indices[0]
        unpool = gf.vmap(lambda y, i: gf.max_unpool(y, i, 2, output_size=(4, 5)), in_axes=in_axes)
        back = unpool(x, given)
    gf.onnx.save(graph, [back], tmp_path / "m.onnx")
    compare(graph, [back], y.numpy().reshape(3, 2, 2, 2, 2), tmp_path / "m.onnx")


def test_what_its_operator_does_not_say(rng, tmp_path):
    """Sizes for which the kernel would be no number, and other dtypes."""
    with gf.Graph() as graph:
        x = gf.placeholder(("n", 2, "h", "w"), name="x")
        y, indices = gf.max_pool(x, 2, return_indices=True)
        wide = gf.astype(y, gf.float64)
        fetches = [gf.max_unpool(t, indices, 2, output_size=x.shape) for t in (y, wide)]
    gf.onnx.save(graph, fetches, tmp_path / "m.onnx")
    assert "MaxUnpool" not in kinds(tmp_path / "m.onnx")
    for sizes in ((4, 6), (5, 3)):
        compare(graph, fetches, rng.normal(size=(2, 2, *sizes)), tmp_path / "m.onnx")


def compare(graph, fetches, array, path):
    feeds = {"x": array.astype(np.float32)}
    with gf.Session(graph) as session:
        wanted = session.run(fetches, feeds)
    for value, reference in zip(started(path).run(None, feeds), wanted, strict=True):
        np.testing.assert_allclose(value, reference, 1e-5, 1e-6)
