"""Compiled loops: what runs in one native call, and what doesn't."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor import regions


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many trips each native call has made."""
    made: list[int] = []
    real = regions.make_trips

    def counted(*args: Any, **kwargs: Any) -> int:
        made.append(real(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(regions, "make_trips", counted)
    return made


def test_trips_are_made_in_one_call(calls: list[int]) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("t", 4), name="x")
        w = gf.Variable(np.eye(4, dtype=np.float32), name="w")
        last, _ = gf.scan(lambda c, v: (gf.tanh(c @ w + v), None), gf.zeros((4,)), x)
        slope = gf.grad(gf.sum(last), w)
        noise = gf.scan(lambda c, _: (c + gf.random.normal(()), None), 0.0, length=7)[0]
        trips = gf.while_loop(lambda c: c < gf.sum(x), lambda c: c + 1, 0.0)
    with gf.Session(graph) as session:
        session.run([slope, noise, trips], {x: np.ones((5, 4), np.float32)})
    assert sorted(calls) == [5, 5, 7, 20]


def test_python_makes_the_trips_of_what_is_not_native(calls: list[int]) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((3, 3), gf.float64)
        y = gf.scan(lambda c, _: (gf.linalg.inv(c) + 1, None), x, length=4)[0]
    value = np.random.default_rng(0).normal(size=(3, 3))
    with gf.Session(graph) as session:
        got = session.run(y, {x: value})
    for _ in range(4):
        value = np.linalg.inv(value) + 1
    np.testing.assert_allclose(got, value)
    assert not calls


def test_new_weights_are_prepared_for_each_run() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((64, 64))
        w = gf.placeholder((64, 64))
        y = gf.scan(lambda c, _: (c @ w, None), x, length=3)[0]
    rng = np.random.default_rng(1)
    with gf.Session(graph) as session:
        plan = session.compile(y, feeds=[x, w])
        for _ in range(4):
            a, b = (rng.normal(size=(64, 64)).astype(np.float32) / 8 for _ in range(2))
            np.testing.assert_allclose(plan(a, b), a @ b @ b @ b, atol=1e-4)


def test_strided_operands() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((6, 8), gf.float64)
        rows, start = x[::2, ::-1].T, x.T[0, 1::2]
        last, stacked = gf.scan(lambda c, v: (c + v, c * v), start, rows)
    value = np.random.default_rng(2).normal(size=(6, 8))
    with gf.Session(graph) as session:
        got = session.run([last, stacked], {x: np.asfortranarray(value)})
    carry, products = value.T[0, 1::2], []
    for row in value[::2, ::-1].T:
        products.append(carry * row)
        carry = carry + row
    np.testing.assert_allclose(got[0], carry)
    np.testing.assert_allclose(got[1], products)


def test_many_threads_run_one_loop() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("t", 16), gf.float64)
        w = gf.placeholder((16, 16), gf.float64)
        last, rows = gf.scan(lambda c, v: (gf.sin(c @ w + v), c), gf.zeros(16, dtype=gf.float64), x)
        slope = gf.grad(gf.sum(last) + gf.sum(rows), w)
    rng = np.random.default_rng(3)
    feeds = [(rng.normal(size=(n, 16)), rng.normal(size=(16, 16))) for n in (3, 50, 7, 50, 1)]
    wrong: list[int] = []
    with gf.Session(graph) as session:
        plan = session.compile([rows, slope], feeds=[x, w])
        expected = [plan(*feed) for feed in feeds]

        def work(number: int) -> None:
            for turn in range(20):
                chosen = (number + turn) % len(feeds)
                got = plan(*feeds[chosen])
                same = zip(got, expected[chosen], strict=True)
                if not all(np.array_equal(a, b) for a, b in same):
                    wrong.append(chosen)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((40, 64, 96))
        w = gf.placeholder((96, 96))
        last = gf.scan(lambda c, v: (gf.tanh(c @ w + v), None), gf.zeros((64, 96)), x)[0]
        slope = gf.grad(gf.sum(last * last), w)
    rng = np.random.default_rng(4)
    feed = {
        x: rng.normal(size=(40, 64, 96)).astype(np.float32),
        w: (rng.normal(size=(96, 96)) / 10).astype(np.float32),
    }
    with gf.Session(graph, threads=1) as one, gf.Session(graph, threads=threads) as other:
        np.testing.assert_array_equal(one.run(slope, feed), other.run(slope, feed))


def test_outputs_belong_to_the_caller() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("t",), gf.float64)
        last, rows = gf.scan(lambda c, v: (c + v, c), gf.zeros((), dtype=gf.float64), x)
    with gf.Session(graph) as session:
        first = session.run([last, rows], {x: np.ones(4)})
        kept = [a.copy() for a in first]
        session.run([last, rows], {x: np.full(4, 7.0)})
        for a, b in zip(first, kept, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("reverse", [False, True])
def test_stacks_of_carries(reverse: bool) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("t", 3), gf.float64)

        def step(carry: Any, row: Any) -> Any:
            a, b = carry
            return (b + row, a), (a, b + row, b, a * b)

        start = (gf.zeros((3,), dtype=gf.float64), gf.ones((3,), dtype=gf.float64))
        last, stacks = gf.scan(step, start, x, reverse=reverse)
    value = np.random.default_rng(6).normal(size=(5, 3))
    a, b = np.zeros(3), np.ones(3)
    rows: list[Any] = [None] * 5
    for i in reversed(range(5)) if reverse else range(5):
        rows[i] = (a, b + value[i], b, a * b)
        a, b = b + value[i], a
    with gf.Session(graph) as session:
        for length in (5, 0, 5):
            end, found = session.run([last, stacks], {x: value[:length]})
        np.testing.assert_allclose(end, [a, b])
        wanted = [np.array(stack) for stack in zip(*rows, strict=True)]
        for one, (got, right) in enumerate(zip(found, wanted, strict=True)):
            np.testing.assert_allclose(got, right)
            got[...] = one  # nobody else's
        empty_end, empty = session.run([last, stacks], {x: value[:0]})
        np.testing.assert_array_equal(empty_end, [np.zeros(3), np.ones(3)])
        assert [stack.shape for stack in empty] == [(0, 3)] * 4
