"""Branches, loops and checkpoints: values, and gradients of several orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from tests.support.loops import assert_equal, run

F64 = gf.float64


# cond, switch.


def test_only_one_branch_is_computed() -> None:
    with gf.Graph():
        x = gf.placeholder((), F64)
        i = gf.placeholder((3,), gf.int64)
        # An index out of range is an error where it is computed.
        y = gf.cond(x > 0, lambda: gf.take(gf.asarray([1.0, 2.0], dtype=F64), i)[0], lambda: x)
    assert run(y, {x: -2.0, i: [7, 7, 7]}) == -2
    assert run(y, {x: 2.0, i: [1, 0, 0]}) == 2
    with pytest.raises(gf.errors.ExecutionError, match="out of"):
        run(y, {x: 2.0, i: [7, 7, 7]})


def test_nested_structures_and_captures() -> None:
    with gf.Graph():
        x = gf.placeholder(("n",), F64)
        k = gf.placeholder((), gf.int32)
        y = gf.switch(
            k,
            [
                lambda v: {"a": v, "b": (gf.sum(x), ())},
                lambda v: {"a": v * x, "b": (gf.max(v), ())},
            ],
            x + 1,
        )
    value = np.array([1.0, 5.0])
    for number in (-4, 0):
        out = run(y, {x: value, k: number})
        np.testing.assert_array_equal(out["a"], value + 1)
        assert out["b"][0] == 6
    for number in (1, 9):
        out = run(y, {x: value, k: number})
        np.testing.assert_array_equal(out["a"], (value + 1) * value)
        assert out["b"][0] == 6


@pytest.mark.parametrize("value", [-1.5, 0.7])
def test_gradients_of_branches(value: float) -> None:
    with gf.Graph():
        x = gf.placeholder((), F64)
        w = gf.placeholder((3,), F64)
        y = gf.cond(x > 0, lambda: gf.sum(gf.sin(x * w)), lambda: gf.exp(x))
        first = gf.grad(y, [x, w])
        second = gf.grad(gf.sum(first[1] * first[1]) + first[0], [x, w])
        plain = gf.sum(gf.sin(x * w)) if value > 0 else gf.exp(x) + 0 * gf.sum(w)
        wanted = gf.grad(plain, [x, w])
        again = gf.grad(gf.sum(wanted[1] * wanted[1]) + wanted[0], [x, w], missing="zeros")
    got = run([*first, *second, *wanted, *again], {x: value, w: [0.3, -2.0, 1.0]})
    assert_equal(got[:4], got[4:])


def test_branches_draw_what_they_drew() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((), gf.bool)
        y = gf.cond(x, lambda: gf.random.uniform((4,)), lambda: gf.random.uniform((4,)))
    with gf.Session(graph, seed=1) as one, gf.Session(graph, seed=1) as other:
        a, b = one.run(y, {x: True}), other.run(y, {x: True})
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, one.run(y, {x: True}))


# while_loop.


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("limit", [0.1, 5.0, 60.0])
def test_gradients_of_any_order_through_while_loops(limit: float, rng: np.random.Generator) -> None:
    with gf.Graph():
        x, w = gf.placeholder((3,), F64), gf.placeholder((3, 3), F64)

        def body(state: Any) -> Any:
            v, count = state
            return v + gf.sin(v) @ w + 1.0, count + 1

        last, iterations = gf.while_loop(lambda s: gf.sum(s[0] * s[0]) < limit, body, (x, 0))
        orders = [gf.grad(gf.sum(gf.sin(last)), [x, w], missing="zeros")]
        for _ in range(2):
            orders.append(
                gf.grad(gf.sum(orders[-1][0] ** 2) + gf.sum(orders[-1][1]), [x, w], missing="zeros")
            )
    feeds = {x: rng.normal(size=3) * 0.5 + 0.4, w: rng.normal(size=(3, 3)) * 0.3}
    got = run([last, iterations, *[g for order in orders for g in order]], feeds)
    with x.graph:
        v = x
        for _ in range(int(got[1])):
            v = v + gf.sin(v) @ w + 1.0
        wanted = [gf.grad(gf.sum(gf.sin(v)), [x, w], missing="zeros")]
        for _ in range(2):
            wanted.append(
                gf.grad(gf.sum(wanted[-1][0] ** 2) + gf.sum(wanted[-1][1]), [x, w], missing="zeros")
            )
    expected = run([v, *[g for order in wanted for g in order]], feeds)
    assert_equal([got[0], *got[2:]], expected, 1e-7)
    assert (got[1] == 0) == (limit == 0.1)


def test_a_while_loop_can_be_interrupted() -> None:
    import signal
    import threading
    import time

    if not hasattr(signal, "pthread_kill"):
        pytest.skip("needs POSIX signals")
    with gf.Graph() as graph:
        x = gf.placeholder((), F64)
        y = gf.while_loop(lambda v: v > -1, lambda v: v * 0.5 + 1, x)
    main = threading.get_ident()

    def interrupt() -> None:
        time.sleep(0.5)
        signal.pthread_kill(main, signal.SIGINT)

    with gf.Session(graph) as session:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            session.run(y, {x: 1.0})
        thread.join()
        assert session.run(x, {x: 1.0}) == 1


def test_bodies_see_failures_with_their_messages() -> None:
    with gf.Graph():
        x = gf.placeholder((3,), F64)
        i = gf.placeholder(("n",), gf.int64)
        y = gf.scan(lambda c, k: (c, gf.take(x, k)), 0, i)[1]
    assert run(y, {x: np.arange(3.0), i: [2, 0]}).tolist() == [2, 0]
    with pytest.raises(gf.errors.ExecutionError, match=r"index 7 is out of"):
        run(y, {x: np.arange(3.0), i: [2, 7]})


# checkpoint.


def test_checkpoint_changes_no_value(rng: np.random.Generator) -> None:
    value = rng.normal(size=(4, 3))
    with gf.Graph():
        x, w = gf.placeholder(("n", 3), F64), gf.placeholder((3, 3), F64)

        def layer(v: Any) -> Any:
            return gf.tanh(gf.sin(v @ w) @ w)

        plain = gf.sum(layer(layer(x)))
        kept = gf.sum(gf.checkpoint(layer)(gf.checkpoint(layer)(x)))
        fetches = []
        for loss in (plain, kept):
            first = gf.grad(loss, [x, w])
            fetches += [loss, *first, gf.grad(gf.sum(first[0] ** 2), w)]
    got = run(fetches, {x: value, w: rng.normal(size=(3, 3))})
    assert_equal(got[:4], got[4:])


def test_a_checkpoint_draws_the_same_again() -> None:
    with gf.Graph():
        x = gf.placeholder((50,), F64)
        noisy = gf.checkpoint(lambda v: v * v * gf.random.uniform((50,), dtype=F64))(x)
        slope = gf.grad(gf.sum(noisy), x)
    value = np.linspace(1, 2, 50)
    y, s = run([noisy, slope], {x: value})
    np.testing.assert_allclose(s, 2 * y / value)


# associative_scan.


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 6, 13])
def test_associative_scan(length: int, reverse: bool, rng: np.random.Generator) -> None:
    a, b = rng.normal(size=(2, length)), rng.normal(size=(2, length))

    def combine(left: Any, right: Any) -> Any:
        return left[0] * right[0], left[1] * right[0] + right[1]

    wanted = np.zeros((2, length))
    carry = np.zeros(2)
    for i in reversed(range(length)) if reverse else range(length):
        carry = carry * a[:, i] + b[:, i]
        wanted[:, i] = carry
    for shape in ((2, length), (2, "n")):
        with gf.Graph():
            x, y = gf.placeholder(shape, F64), gf.placeholder(shape, F64)
            _, sums = gf.associative_scan(combine, (x, y), reverse=reverse, axis=1)
            slope = gf.grad(gf.sum(sums), x, missing="zeros")
        got, sloped = run([sums, slope], {x: a, y: b})
        np.testing.assert_allclose(got, wanted, atol=1e-12)
        assert sloped.shape == a.shape
