"""`Plan.max_dim`: the largest size that a graph takes and that fits."""

import itertools

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, GraphfwError
from graphfw.runtime import max_dim
from graphfw.runtime.max_dim import Accepts


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    """Compile, whatever the environment says: memory is planned then.

    There are few sizes that these graphs take, and checks by values guess at sizes.
    """
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")


def plan_of(function, *shapes):
    with gf.Graph() as g:
        feeds = [gf.placeholder(shape, name=f"x{i}") for i, shape in enumerate(shapes)]
        y = function(*feeds)
    return gf.Session(g, threads=1).compile(y, feeds=feeds)


def runs(plan, *shapes):
    try:
        plan(*[np.ones(shape, np.float32) for shape in shapes])
    except GraphfwError:
        return False
    return True


@pytest.mark.parametrize("rows", [4, 7, 100])
def test_it_is_a_size_that_divides_where_a_reshape_needs_it(rows):
    plan = plan_of(lambda x: gf.sum(gf.reshape(gf.exp(x), (-1, rows)) + 1, axis=1), ("batch", 3))
    limit = 10_000
    found = plan.max_dim("batch", limit)
    assert found % rows == 0
    assert plan.memory((found, 3)).peak <= limit < plan.memory((found + rows, 3)).peak
    assert runs(plan, (found, 3))
    assert not runs(plan, (found + 1, 3))


@pytest.mark.slow
def test_it_holds_what_assert_shape_promises():
    def function(x, y):
        even = gf.reshape(x, (-1, 2))
        return gf.sum(gf.exp(gf.assert_shape(even, ("half", 2))) * gf.sum(y), axis=1)

    plan = plan_of(function, ("batch",), ("k",))
    assert set(plan.program.symbols) == {"batch", "half", "k"}
    assert plan.max_dim("batch", "64KiB", half=30, k=2) == 60
    with pytest.raises(ArgumentError, match="no run takes a batch from 1 to"):
        plan.max_dim("batch", 20_000, half=3000, k=2)


def test_what_a_body_refuses_counts():
    def function(x):
        def step(carry, _):
            return carry + gf.sum(gf.reshape(x, (-1, 6))[0]), carry

        return gf.scan(step, gf.sum(x), gf.asarray(np.ones(3, np.float32)))[1]

    plan = plan_of(function, ("batch", 2))
    accepted = [n for n in range(1, 13) if Accepts(plan.program)({"batch": n})]
    assert accepted == [n for n in range(1, 13) if n % 3 == 0]


def test_where_no_size_that_fits_is_taken_the_error_says_why(monkeypatch):
    plan = plan_of(lambda x: gf.reshape(gf.exp(x), (-1, 4096)) * 2, ("batch", 3))
    with pytest.raises(ArgumentError, match="no run takes a batch from 1 to") as caught:
        plan.max_dim("batch", 10_000)
    assert "don't divide into shape [-1, 4096]" in caught.value.why
    assert plan.max_dim("batch", "1MiB") % 4096 == 0
    monkeypatch.setattr(max_dim, "MOST_TRIED", 10)
    peak = plan.memory((3 * 4096, 3)).peak
    above, below = peak + 100, peak - 100
    assert plan.max_dim("batch", above) == 3 * 4096
    with pytest.raises(ArgumentError, match="no run takes a batch from 12,") as caught:
        plan.max_dim("batch", below)


@pytest.mark.slow
def test_sizes_by_which_nothing_can_be_divided_are_passed_over():
    def function(x, y):
        return gf.reshape(gf.exp(x), (-1, y.shape[0] - 3)) * 2, gf.exp(y) + 1

    plan = plan_of(function, ("batch",), ("n",))
    found = plan.max_dim("n", 100_000, batch=24)
    assert found == 27
    assert runs(plan, (24,), (found,))


def test_sizes_are_accepted_where_a_run_accepts_them():
    plans = [
        plan_of(lambda x: gf.reshape(gf.sin(x), (-1, 3, 2)), ("n", "m")),
        plan_of(lambda x: gf.reshape(gf.reshape(gf.sin(x), (-1, 2)) * 2, (3, -1)), ("n", "m")),
        plan_of(lambda x: gf.max(gf.sin(x), axis=0), ("n", "m")),
        plan_of(lambda x: gf.assert_shape(gf.sin(x), (4, "m")) * 2, ("n", "m")),
    ]
    for plan in plans:
        accepts = Accepts(plan.program)
        for n, m in itertools.product(range(7), repeat=2):
            assert accepts({"n": n, "m": m}) is runs(plan, (n, m))
