"""Functions of elements before windows take the largest, moved behind that."""

from collections import Counter

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.rebuild import derive
from graphfw.passes.sink_pooling import (
    FuseConvReluPool,
    GlobalPoolToReduction,
    SinkConvBelowPool,
    SinkElementwiseBelowPool,
)
from graphfw.passes.values import SampleInputs, evaluated


def moved(g, y, is_worth=lambda conv, pool: True):
    """Return the rewritten graph, and the names of what it computes."""
    graph = SinkElementwiseBelowPool(is_worth).run(derive(g, [y]), Counter())
    inputs = ("placeholder", "constant")
    return graph, [node.op.name for node in graph.nodes if node.op.name not in inputs]


def image_and_conv(rng):
    x = gf.placeholder((2, 3, 9, 10), name="x")
    return x, gf.conv(x, gf.asarray(rng.standard_normal((4, 3, 3, 3), dtype=np.float32)))


STEPS = {
    "bias": lambda y: y + gf.asarray(np.float32([[[3]], [[-1]], [[0.1]], [[2]]])),
    "before": lambda y: gf.asarray(np.float32(0.3)) + gf.relu(y),
    "cut": lambda y: gf.minimum(gf.maximum(y - 0.5, 0.25), 1),
}


@pytest.mark.parametrize("step", STEPS)
def test_rising_steps_move(rng, step):
    with gf.Graph() as g:
        x, y = image_and_conv(rng)
        pooled = gf.max_pool(STEPS[step](y), 3, stride=2, padding=1)
    graph, names = moved(g, pooled)
    assert names[:2] == ["conv", "window_max"]
    assert sorted(names) == sorted(moved(g, pooled, lambda conv, pool: False)[1])
    feeds = {x.node: rng.standard_normal(x.shape, dtype=np.float32)}
    new, old = (evaluated(one, SampleInputs(feeds, {}))[0] for one in (graph, derive(g, [pooled])))
    np.testing.assert_array_equal(new, old)


OTHERS = {
    "falling": lambda y: 1 - y,
    "bent": lambda y: y * -1.5,
    "differing": lambda y: y + gf.asarray(np.arange(8, dtype=np.float32)),
    "infinite": lambda y: y + np.float32(np.inf),
    "given": lambda y: y + gf.placeholder((4, 1, 1), name="b"),
    "nothing": lambda y: y,
}


@pytest.mark.parametrize("step", OTHERS)
def test_others_stay(rng, step):
    with gf.Graph() as g:
        _, y = image_and_conv(rng)
        pooled = gf.max_pool(OTHERS[step](y), 3, stride=2)
    graph = derive(g, [pooled])
    assert SinkElementwiseBelowPool(lambda conv, pool: True).run(graph, Counter()) is graph


def test_what_is_read_elsewhere_stays(rng):
    with gf.Graph() as g:
        _, y = image_and_conv(rng)
        y = gf.relu(y)
        pooled = gf.max_pool(y, 2) + gf.mean(y)
    graph = derive(g, [pooled])
    assert SinkElementwiseBelowPool(lambda conv, pool: True).run(graph, Counter()) is graph


def summed_first(g, y, is_worth=lambda conv, pool: True):
    graph = SinkConvBelowPool(is_worth).run(derive(g, [y]), Counter())
    return graph, [node.op.name for node in graph.nodes]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("padding", [0, 1])
def test_sums_move_before_kernels_of_one_element(rng, groups, padding):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 4, 9, 8), name="x")
        w = gf.asarray(rng.standard_normal((6, 4 // groups, 1, 1), dtype=np.float32))
        pooled = gf.avg_pool(gf.conv(x, w, groups=groups), 3, stride=2, padding=padding)
    graph, names = summed_first(g, pooled)
    assert names.index("window_sum") < names.index("conv")
    feeds = {x.node: rng.standard_normal((2, 4, 9, 8), dtype=np.float32)}
    new, old = (evaluated(one, SampleInputs(feeds, {}))[0] for one in (graph, derive(g, [pooled])))
    np.testing.assert_allclose(new, old, rtol=1e-5, atol=1e-5)
    graph = derive(g, [pooled])
    assert SinkConvBelowPool(lambda conv, pool: False).run(graph, Counter()) is graph


CONVOLUTIONS = {
    "larger": lambda x, w: gf.conv(x, gf.concat([w, w], axis=2)),
    "wider apart": lambda x, w: gf.conv(x, w, stride=2),
    "with zeros around": lambda x, w: gf.conv(x, w, padding=1),
    "bent": lambda x, w: gf.relu(gf.conv(x, w)),
    "read twice": lambda x, w: (y := gf.conv(x, w)) + 0 * gf.sum(y),
}


@pytest.mark.parametrize("how", CONVOLUTIONS)
def test_other_sums_stay(rng, how):
    with gf.Graph() as g:
        x = gf.placeholder((2, 4, 9, 8), name="x")
        w = gf.asarray(rng.standard_normal((6, 4, 1, 1), dtype=np.float32))
        pooled = gf.avg_pool(CONVOLUTIONS[how](x, w), 2)
    graph = derive(g, [pooled])
    assert SinkConvBelowPool(lambda conv, pool: True).run(graph, Counter()) is graph


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("pool", [gf.avg_pool, gf.max_pool])
def test_a_window_that_sees_all_is_a_reduction(rng, pool, dtype):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3, 5, 4), dtype, name="x")
        y = pool(x, (5, 4))
    graph = GlobalPoolToReduction().run(derive(g, [y]), Counter())
    assert not any(node.op.name.startswith("window") for node in graph.nodes)
    assert graph.outputs[0].type == y.type
    feeds = {x.node: rng.standard_normal((2, 3, 5, 4)).astype(dtype)}
    new, old = (evaluated(one, SampleInputs(feeds, {}))[0] for one in (graph, derive(g, [y])))
    np.testing.assert_allclose(new, old, rtol=1e-3 if dtype == "float16" else 1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: gf.avg_pool(x, (5, 3)),
        lambda x: gf.max_pool(x, (5, 4), padding=(1, 0)),
        lambda x: gf.max_pool(gf.astype(x, gf.int32), (5, 4)),
        lambda x: gf.max_pool(x, (3, 4), dilation=(2, 1)),
    ],
)
def test_other_windows_stay(pool):
    with gf.Graph() as g:
        y = pool(gf.placeholder((2, 3, 5, 4), name="x"))
    graph = derive(g, [y])
    assert GlobalPoolToReduction().run(graph, Counter()) is graph


@pytest.mark.parametrize("side", ["left", "right", "none"])
def test_sums_of_relus_join_the_convolution(rng, side):
    with gf.Graph() as g:
        x, y = image_and_conv(rng)
        b = gf.asarray(rng.standard_normal((1, 4, 1, 1), dtype=np.float32))
        y = {"left": lambda: b + y, "right": lambda: y + b, "none": lambda: y}[side]()
        pooled = gf.avg_pool(gf.relu(y), 2)
    old = derive(g, [pooled])
    graph = FuseConvReluPool(lambda conv, pool: True).run(old, Counter())
    names = [node.op.name for node in graph.nodes]
    assert "window_relu_sum" in names
    assert not {"add", "relu", "window_sum"} & set(names)
    feeds = {x.node: rng.standard_normal((2, 3, 9, 10)).astype(np.float32)}
    new, wanted = (evaluated(one, SampleInputs(feeds, {}))[0] for one in (graph, old))
    np.testing.assert_allclose(new, wanted, rtol=1e-6, atol=1e-6)
    assert FuseConvReluPool(lambda conv, pool: False).run(old, Counter()) is old
