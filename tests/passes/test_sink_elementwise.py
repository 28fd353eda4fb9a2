"""Elementwise operations on feeds are computed where views of their results are read."""

from collections import Counter

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.rebuild import derive
from graphfw.passes.sink_elementwise import SinkElementwiseBelowViews
from graphfw.passes.values import SampleInputs, evaluated
from tests.runtime.numpy_executor.special_runs import same


def sunk(g, *outputs):
    """Return the rewritten graph and how many views were moved."""
    hits: Counter[str] = Counter()
    return SinkElementwiseBelowViews().run(derive(g, outputs), hits), hits["sunk"]


def below_views(graph):
    """Return the names of the ops of which views are read."""
    views = ("slice", "permute_dims", "split")
    return {n.inputs[0].node.op.name for n in graph.nodes if n.op.name in views}


def check_values(g, graph, outputs, rng):
    feeds = {}
    for t in g.placeholders:
        shape = [4 if not isinstance(d, int) else d for d in t.shape]
        feeds[t.node] = rng.integers(-9, 9, shape).astype(t.dtype.name)
    values = SampleInputs(feeds, {"h": 4, "w": 4})
    for new, old in zip(
        evaluated(graph, values), evaluated(derive(g, outputs), values), strict=True
    ):
        same(new, old)


def test_channels_are_converted_one_by_one(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("h", "w", 3), dtype="uint8", name="x")
        wide = gf.astype(x, "int32") * 2
        grey = (wide[..., 0] + wide[..., 1] + wide[..., 2]) >> 2
    graph, count = sunk(g, grey)
    assert count == 3
    assert below_views(graph) == {"placeholder"}
    check_values(g, graph, [grey], rng)


def test_operands_that_are_broadcast_stay_small(rng):
    with gf.Graph() as g:
        x = gf.placeholder((5, 4, 3), dtype="uint8", name="x")
        mean = gf.constant(np.float32([1, 2, 3]))
        rows = gf.placeholder((5, 1, 1), name="rows")
        y = gf.permute_dims((gf.astype(x, "float32") - mean) * rows / 255, (2, 0, 1))
    graph, count = sunk(g, y)
    assert count == 1
    assert below_views(graph) <= {"placeholder", "constant", "reshape"}
    check_values(g, graph, [y], rng)


def test_sections_of_a_split(rng):
    with gf.Graph() as g:
        x = gf.placeholder((6, 5), name="x")
        column = gf.placeholder((6, 1), name="column")
        a, b = gf.split(gf.negative(x) * column, (2,), axis=1)
        top, rest = gf.split(gf.abs(x) + column, (1,))
        outputs = [a.sum(axis=1) + b.sum(axis=1), top * 2 - rest]
    graph, count = sunk(g, *outputs)
    assert count == 2
    assert below_views(graph) == {"placeholder"}
    check_values(g, graph, outputs, rng)


def stays(name):
    """Return a graph of which nothing is moved, and its outputs."""
    with gf.Graph() as g:
        x = gf.placeholder((8, 3), name="x")
        y = gf.exp(x)
        outputs = {
            "it is an output": lambda: [y, y[:, 0] * 2],
            "something else reads it": lambda: [y[:, 0] * 2, y * 3],
            "views overlap": lambda: [y[1:] - y[:-1], y[2:] * y[:-2]],
            "a product reads the view": lambda: [gf.permute_dims(y, (1, 0)) @ y[:, :2]],
            "it is no function of a feed": lambda: [gf.exp(gf.Variable(np.ones((8, 3))))[:, 0] * 2],
            "it is no function of feeds alone": lambda: [(y @ gf.ones((3, 3)))[:, 0] * 2],
            "a check has to be made": lambda: [
                gf.exp(gf.placeholder(("n",), name="v"))[4:6] + 1,
            ],
        }[name]()
    return g, outputs


@pytest.mark.parametrize(
    "name",
    [
        "it is an output",
        "something else reads it",
        "views overlap",
        "a product reads the view",
        "it is no function of a feed",
        "it is no function of feeds alone",
        "a check has to be made",
    ],
)
def test_nothing_is_moved_where(name):
    g, outputs = stays(name)
    graph, count = sunk(g, *outputs)
    assert count == 0
    assert graph.nodes == derive(g, outputs).nodes


@pytest.mark.parametrize("seed", range(20))
def test_random_chains(seed):
    rng = np.random.default_rng(seed)
    shape = [int(n) for n in rng.choice([1, 2, 3, 4], int(rng.integers(1, 4)))]
    with gf.Graph() as g:
        known = [gf.placeholder(shape, dtype="int32", name="x")]
        for number in range(int(rng.integers(1, 6))):
            kept = [1 if rng.integers(2) else n for n in shape][int(rng.integers(len(shape))) :]
            other = gf.placeholder(kept, dtype="int32", name=f"y{number}")
            before = known[int(rng.integers(len(known)))]
            known.append(before * gf.maximum(other, -3) - other)
        outputs = []
        for y in known[1:]:
            axis = int(rng.integers(y.ndim))
            way = rng.integers(3)
            if way == 0:
                outputs.append(gf.permute_dims(y, tuple(rng.permutation(y.ndim).tolist())) + 1)
            elif way == 1:
                cut = int(rng.integers(y.shape[axis] + 1))
                outputs += [t.sum() for t in gf.split(y, (cut,), axis=axis)]
            else:
                at = tuple(
                    [slice(int(rng.integers(n)), None, int(rng.integers(1, 3))) for n in shape]
                )
                outputs.append(gf.abs(y[at]))
    graph, _ = sunk(g, *outputs)
    check_values(g, graph, outputs, rng)


def test_runs_in_loops_and_at_any_size():
    x = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    with gf.Graph() as g:
        images = gf.placeholder(("n", "w", 3), dtype="uint8")

        def step(total, image):
            wide = gf.astype(image, "float32") / 255
            return total + wide[:, 0] * wide[:, 1] - wide[:, 2], gf.permute_dims(wide, (1, 0))

        total, transposed = gf.scan(step, gf.zeros(images.shape[1:2]), images)
    with gf.Session(g) as session:
        for fed in (x, x[:2], x[:0], x[:, ::-1]):
            got, moved = session.run([total, transposed], {images: fed})
            wide = fed.astype(np.float32) / np.float32(255)
            np.testing.assert_allclose(
                got, (wide[..., 0] * wide[..., 1] - wide[..., 2]).sum(0), rtol=1e-5, atol=1e-5
            )
            np.testing.assert_allclose(moved, wide.transpose(0, 2, 1), rtol=1e-6)
