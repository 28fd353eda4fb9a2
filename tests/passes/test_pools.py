"""What is done to elements before windows take the largest, moved behind that."""

from collections import Counter

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.rebuild import derive
from graphfw.passes.pools import PoolFirst
from graphfw.passes.values import Draw, evaluated


def moved(g, y, is_worth=lambda conv, pool: True):
    """Return the rewritten graph, and the names of what it computes."""
    graph = PoolFirst(is_worth).run(derive(g, [y]), Counter())
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
    new, old = (evaluated(one, Draw(feeds, {}))[0] for one in (graph, derive(g, [pooled])))
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
    assert PoolFirst(lambda conv, pool: True).run(graph, Counter()) is graph


def test_what_is_read_elsewhere_stays(rng):
    with gf.Graph() as g:
        _, y = image_and_conv(rng)
        y = gf.relu(y)
        pooled = gf.max_pool(y, 2) + gf.mean(y)
    graph = derive(g, [pooled])
    assert PoolFirst(lambda conv, pool: True).run(graph, Counter()) is graph
