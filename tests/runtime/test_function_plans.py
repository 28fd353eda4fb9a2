"""Plans of functions: `function.plan(x)(x)` returns what `function(x)` does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import graphfw as gf

X = np.array([1.0, 2.0], np.float32)


class Pair(NamedTuple):
    first: object
    second: object


def nested(x):
    return {"sum": gf.sum(x), "more": [x + 1, (x * 2,)], "pair": Pair(x, gf.exp(x))}


RESULTS = {
    "one": lambda x: x + 1,
    "tuple": lambda x: (x + 1, x * 2),
    "tuple of one": lambda x: (x + 1,),
    "list": lambda x: [x, x + 1, x],
    "dict": lambda x: {"b": x + 1, "a": x * 2},
    "nested": nested,
    "None": lambda x: (None, x + 1, None),
    "the argument": lambda x: x,
    "empty": lambda x: {},
}


def assert_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif expected is not None:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", RESULTS)
def test_the_structure_of_the_result(name):
    function = gf.function(RESULTS[name])
    plan = function.plan(X)
    assert_same(plan(X), function(X))
    assert_same(plan(X + 1, host=True), function(X + 1))
    assert_same(plan(X, timeout=60.0), function(X))
    assert function.plan(np.ones(5, np.float32)) is plan
    assert_same(plan(np.ones(5, np.float32)), function(np.ones(5, np.float32)))


def test_updates_are_made_and_have_no_value():
    total, seen = gf.Variable(0.0), []

    def noted(x):
        seen.append(x)
        return x

    @gf.function
    def step(x, scale=1.0):
        gf.host_call(noted, gf.TensorType(gf.float32, (2,)), x)
        added = gf.update(total, total + scale * gf.sum(x))
        return {"update": added, "mean": gf.mean(x)}

    plan = step.plan(X, scale=2.0)
    seen.clear()  # of calls that check the passes
    assert total.numpy() == 0.0
    found = plan(X)
    assert found["update"] is None
    assert list(found) == ["update", "mean"]
    assert found["mean"] == 1.5
    assert total.numpy() == 6.0
    assert seen
    assert repr(plan).endswith("x -> 1 value, 1 update>")
    only = gf.function(lambda x: gf.update(total, gf.sum(x)))
    assert only.plan(X)(X) is None
    assert total.numpy() == 3.0
    with pytest.raises(gf.FeedError, match="takes 1 value and got 2"):
        plan(X, 2.0)


def test_a_plan_of_a_layer_s_training():
    layer, optimizer = gf.nn.Linear(2, 1), gf.optim.SGD(0.1)

    @gf.function
    def train(x):
        loss = gf.mean(layer(x) ** 2)
        return loss, optimizer.minimize(loss)

    plan = train.plan(X[None])
    losses = [plan(X[None]) for _ in range(3)]
    assert [update for _, update in losses] == [None] * 3
    assert losses[0][0] > losses[1][0] > losses[2][0]
    assert train.result_types(X[None]) == (gf.TensorType(gf.float32, ()), None)
