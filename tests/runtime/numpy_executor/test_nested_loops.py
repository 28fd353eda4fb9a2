"""Loops inside of loops: native as a whole where all of them are."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor.loops import Iterations


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The numbers of iterations that Python has asked for, call by call."""
    made: list[int | None] = []
    real = Iterations.__call__

    def counted(self: Iterations, arrays: Any) -> int | None:
        made.append(real(self, arrays))
        return made[-1]

    monkeypatch.setattr(Iterations, "__call__", counted)
    return made


def root(x: Any, a: Any) -> Any:
    """Return the root of y³ + y = a, in as many iterations as it takes; x is where to begin."""

    def far(y: Any) -> Any:
        return gf.max(gf.abs(y * y * y + y - a)) >= 1e-9

    return gf.while_loop(far, lambda y: y - (y * y * y + y - a) / (3 * y * y + 1), x)


def steps_to_roots(x: Any) -> Any:
    """Take implicit steps: each solves equations."""

    def step(carry: Any, number: Any) -> Any:
        solved = root(carry, carry + gf.astype(number, gf.float64))
        return solved, (solved, carry, gf.sum(solved))

    return gf.scan(step, x, gf.arange(6))


def powers(x: Any) -> Any:
    """Multiply matrices that change from iteration to iteration."""

    def outer(carry: Any, _: Any) -> Any:
        def inner(c: Any, __: Any) -> Any:
            return gf.tanh(c @ carry), (c, gf.sum(c, axis=0))

        last, (before, sums) = gf.scan(inner, carry, length=3)
        return last / 2 + gf.mean(before, axis=0), (sums, last, before)

    m = gf.stack([x, 2 * x, -x])
    return gf.scan(outer, m @ m.T, length=4)


def counted_down(x: Any) -> Any:
    """Have a number of iterations inside that goes down to none."""

    def outer(state: Any) -> Any:
        count, y = state
        _, y = gf.while_loop(
            lambda s: s[0] < count, lambda s: (s[0] + 1, gf.sin(s[1])), (gf.asarray(0), y)
        )
        return count - 1, y

    return gf.while_loop(lambda s: s[0] >= 0, outer, (gf.asarray(4), x))


def three_deep(x: Any) -> Any:
    def outer(carry: Any, _: Any) -> Any:
        def middle(c: Any, __: Any) -> Any:
            halved = gf.while_loop(lambda v: gf.max(gf.abs(v)) > 0.7, lambda v: v / 2, c)
            return gf.flip(halved) + 1, halved

        last, stacked = gf.scan(middle, carry, length=3)
        return -last, gf.flip(stacked, axis=0)

    return gf.scan(outer, x, length=2, reverse=True)


def two_in_a_row(x: Any) -> Any:
    def outer(carry: Any, _: Any) -> Any:
        first = root(carry, carry + 1)
        second = root(first, gf.flip(first) - 2)
        return second, (first, second, first)

    return gf.scan(outer, x, length=3)


NESTED = [steps_to_roots, powers, counted_down, three_deep, two_in_a_row]


def check(fn: Callable[[Any], Any], arrays: list[Any]) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("n",), gf.float64)
        fetches = [leaf for leaf in leaves(fn(x))]
    with gf.Session(graph) as session, gf.Session(graph, debug=True) as plain:
        plan = session.compile(fetches, feeds=[x])
        results = [plan(array) for array in arrays]
        for array, found in zip(arrays, results, strict=True):
            for got, right in zip(found, plain.run(fetches, {x: array}), strict=True):
                np.testing.assert_allclose(got, right, rtol=1e-9, atol=1e-12)


def leaves(structure: Any) -> list[Any]:
    if isinstance(structure, tuple):
        return [leaf for item in structure for leaf in leaves(item)]
    return [structure]


@pytest.mark.parametrize("fn", NESTED)
def test_all_iterations_are_made_in_one_call(fn: Any, calls: list[int | None]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=n) for n in (5, 1, 32, 5)]
    check(fn, arrays)
    assert len(calls) == len(arrays)


@pytest.mark.parametrize("fn", NESTED)
def test_no_elements(fn: Any) -> None:
    if fn in (powers, counted_down):
        check(fn, [np.empty(0)])


def test_gradients_of_loops_inside() -> None:
    rng = np.random.default_rng(1)
    check(lambda x: gf.grad(gf.sum(powers(x)[0]), x), [rng.normal(size=n) for n in (4, 7)])


def test_weights_from_around_draws_and_checks() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("t", 40))
        w = gf.placeholder((40, 40))
        index = gf.placeholder((), gf.int64)

        def inner(c: Any, v: Any) -> Any:
            return gf.tanh(c @ w + v), None

        def outer(c: Any, _: Any) -> Any:
            return gf.scan(inner, c, x)[0] + gf.take(c, index), None

        last = gf.scan(outer, x[0], length=3)[0]
        noise = gf.scan(
            lambda c, _: (
                gf.scan(lambda d, __: (d + gf.random.normal(()), None), c, length=2)[0],
                c,
            ),
            0.0,
            length=3,
        )[1]
    rng = np.random.default_rng(2)
    with gf.Session(graph, seed=5) as session, gf.Session(graph, seed=5, debug=True) as plain:
        for size in (3, 0, 2):
            feeds = {
                x: rng.normal(size=(size + 1, 40)).astype(np.float32),
                w: rng.normal(size=(40, 40)).astype(np.float32) / 6,
                index: 7,
            }
            for got, right in zip(
                session.run([last, noise], feeds), plain.run([last, noise], feeds), strict=True
            ):
                np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
            with pytest.raises(gf.ExecutionError, match="40"):
                session.run(last, {**feeds, index: 40})


def test_a_failure_inside_says_where_and_leaves_all_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # "values" meets the failure itself
    with gf.Graph() as graph:
        x = gf.placeholder((4,), gf.float64)
        indices = gf.placeholder((3,), gf.int64)

        def outer(c: Any, i: Any) -> Any:
            def inner(d: Any) -> Any:
                return gf.flip(d) / 2 + gf.take(x, i) * 0

            return gf.while_loop(lambda d: gf.max(d) > 1e-3, inner, c), None

        last = gf.scan(outer, x, indices)[0]
    value = np.float64([5, 1, 9, 3])
    with gf.Session(graph) as session:
        plan = session.compile(last, feeds=[x, indices])
        right = plan(value, [0, 1, 2])
        with pytest.raises(gf.ExecutionError) as caught:
            plan(value, [4, 1, 4])
        assert "iteration 0" in str(caught.value)
        np.testing.assert_array_equal(plan(value, [0, 1, 2]), right)


def test_a_loop_inside_can_be_interrupted(calls: list[int | None]) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((), gf.float64)
        end = gf.placeholder((), gf.int64)

        def outer(c: Any, _: Any) -> Any:
            def inner(s: Any) -> Any:
                return s[0] + 1, s[1] + 1

            return gf.while_loop(lambda s: s[0] < end, inner, (end * 0, c))[1], None

        last = gf.scan(outer, x, length=50)[0]
    with gf.Session(graph) as session:
        plan = session.compile(last, feeds=[x, end])
        assert plan(1.0, 2000) == 100_001  # with pauses
        for _ in range(2):
            timer = threading.Timer(0.2, _thread.interrupt_main)
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                plan(1.0, 1 << 50)
            timer.join()
            for iterations in (0, 1, 999, 3):
                assert plan(1.0, iterations) == 50 * iterations + 1
    assert calls.count(50) == 9


def test_many_threads_make_loops_inside_of_loops() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("n",), gf.float64)
        fetches = leaves(steps_to_roots(x)) + leaves(three_deep(x))
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=n) for n in (3, 50, 3, 1)]
    wrong: list[int] = []
    with gf.Session(graph) as session:
        plan = session.compile(fetches, feeds=[x])
        expected = [plan(array) for array in arrays]

        def work(number: int) -> None:
            for turn in range(20):
                chosen = (number + turn) % len(arrays)
                pairs = zip(plan(arrays[chosen]), expected[chosen], strict=True)
                if not all(np.array_equal(a, b) for a, b in pairs):
                    wrong.append(chosen)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong
