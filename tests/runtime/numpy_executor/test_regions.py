"""Compiled loops: what runs in one native call, and what doesn't."""

from __future__ import annotations

import _thread
import gc
import multiprocessing
import os
import threading
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor import runner
from graphfw.runtime.numpy_executor.loops import Iterations


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of iterations of each native call."""
    made: list[int] = []
    real = Iterations.__call__

    def counted(self: Iterations, arrays: Any) -> int | None:
        iterations = real(self, arrays)
        made.append(-1 if iterations is None else iterations)
        return iterations

    monkeypatch.setattr(Iterations, "__call__", counted)
    return made


@pytest.mark.usefixtures("bodies_have_steps")
def test_iterations_are_made_in_one_call(calls: list[int]) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("t", 4), name="x")
        w = gf.Variable(np.eye(4, dtype=np.float32), name="w")
        last, _ = gf.scan(lambda c, v: (gf.tanh(c @ w + v), None), gf.zeros((4,)), x)
        slope = gf.grad(gf.sum(last), w)
        noise = gf.scan(lambda c, _: (c + gf.random.normal(()), None), 0.0, length=7)[0]
        iterations = gf.while_loop(lambda c: c < gf.sum(x), lambda c: c + 1, 0.0)
    with gf.Session(graph) as session:
        session.run([slope, noise, iterations], {x: np.ones((5, 4), np.float32)})
    assert sorted(calls) == [5, 5, 7, 20]


def test_python_makes_the_iterations_of_what_is_not_native(calls: list[int]) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((3, 3), gf.float64)
        y = gf.scan(lambda c, _: (gf.linalg.pinv(c) + 1, None), x, length=4)[0]
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


def halving() -> tuple[gf.Graph, Any, Any]:
    """Return a loop whose trip count its input decides, and one with a product an iteration."""
    with gf.Graph() as graph:
        x = gf.placeholder(("n",), gf.float64, name="x")
        w = gf.placeholder(("n", "n"), gf.float64, name="w")
        small, count = gf.while_loop(
            lambda s: gf.max(gf.abs(s[0])) >= 1, lambda s: (s[0] / 2, s[1] + 1), (x, gf.asarray(0))
        )
        last, rows = gf.scan(lambda c, _: (gf.sin(c @ w), c), small + x, length=3)
    return graph, (x, w), (small, count, last, rows)


def halved(x: Any, w: Any) -> list[Any]:
    small, count = x, 0
    while np.max(np.abs(small)) >= 1:
        small, count = small / 2, count + 1
    carry, rows = small + x, []
    for _ in range(3):
        rows.append(carry)
        carry = np.sin(carry @ w)
    return [small, count, carry, np.stack(rows)]


def feeds_of(size: int, top: float, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size)
    x[0] = top
    return x, rng.normal(size=(size, size)) / size


def check_halved(got: list[Any], x: Any, w: Any) -> None:
    for found, wanted in zip(got, halved(x, w), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_threads_run_one_plan_with_other_numbers_of_iterations_and_sizes() -> None:
    graph, feeds, fetches = halving()
    given = [feeds_of(n, top, n) for n, top in ((3, 0.5), (3, 900.0), (40, 7.0), (1, 1e9), (5, 3))]
    errors: list[BaseException] = []
    with gf.Session(graph) as session:
        plan = session.compile(fetches, feeds=feeds)

        def work(number: int) -> None:
            try:
                for turn in range(30):
                    x, w = given[(number + turn) % len(given)]
                    check_halved(plan(x, w), x, w)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors


def test_what_one_run_has_made_stays_when_others_follow() -> None:
    graph, feeds, fetches = halving()
    with gf.Session(graph) as session:
        plan = session.compile(fetches, feeds=feeds)
        given = [feeds_of(6, top, n) for n, top in enumerate((0.1, 1.5, 3.0, 7.0, 0.1, 20.0))]
        results = [
            plan(*pair) for pair in given
        ]  # no iterations, then odd and even numbers of them
        for got, pair in zip(results, given, strict=True):
            check_halved(got, *pair)
        for number, got in enumerate(results):
            for array in (got[0], got[2], got[3]):
                array[...] = number
        check_halved(plan(*given[3]), *given[3])
        for number, got in enumerate(results):
            assert all((array == number).all() for array in (got[0], got[2], got[3]))


def test_feeds_that_share_memory_or_do_not_lie_in_a_row() -> None:
    graph, feeds, fetches = halving()
    memory = np.random.default_rng(5).uniform(-3, 3, (8, 8))
    crooked = np.zeros(8 * 8 + 1, np.int8)[1:].view(np.float64)
    crooked[:] = memory[3]
    pairs = [
        (memory[2], memory),
        (memory[:, 2], memory.T),
        (memory[::2, 1], memory[1::2, ::2]),
        (crooked, memory),
    ]
    kept = memory.copy()
    with gf.Session(graph) as session:
        plan = session.compile(fetches, feeds=feeds)
        for x, w in pairs:
            check_halved(plan(x, w), x, w)
            check_halved(plan(x.copy(), w.copy()), x, w)
    np.testing.assert_array_equal(memory, kept)


def test_where_python_looks_arrays_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner._native(), "reads_arrays", False)
    graph, feeds, fetches = halving()
    x, w = feeds_of(8, 40.0, 0)
    with gf.Session(graph) as session:
        plan = session.compile(fetches, feeds=feeds)
        for a, b in ((x, w), (x[::-1], w.T), (x, w)):
            check_halved(plan(a, b), a, b)


def test_a_loop_goes_on_after_an_iteration_that_failed() -> None:
    with gf.Graph() as graph:
        indices = gf.placeholder((5,), gf.int64)
        table = gf.placeholder((4, 4), gf.float64)
        last = gf.scan(
            lambda c, i: (c @ table + gf.take(table, i, axis=0), None), table[0], indices
        )
    value = np.random.default_rng(7).normal(size=(4, 4))
    with gf.Session(graph) as session:
        plan = session.compile(last[0], feeds=[indices, table])
        for good in ([0, 1, 2, 3, 0], [3, 3, 3, 3, 1]):
            carry = value[0]
            for index in good:
                carry = carry @ value + value[index]
            np.testing.assert_allclose(plan(good, value), carry)
            with pytest.raises(gf.ExecutionError, match="iteration 2 of the scan"):
                plan([0, 1, 9, 3, 0], value)


@pytest.mark.parametrize("kind", ["while", "scan", "nested"])
def test_a_body_that_takes_no_elements_fails_only_in_an_iteration(kind: str) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((3, "n"), gf.float32)
        count = gf.placeholder((), gf.int64)
        rows = gf.placeholder(("t",), gf.float32)

        def shifted(c: gf.Tensor) -> gf.Tensor:
            return c - gf.max(c, axis=1, keepdims=True)

        def scanned(carry: gf.Tensor) -> gf.Tensor:
            return gf.scan(lambda c, row: (shifted(c), None), carry, rows)[0]

        if kind == "scan":
            last = scanned(x)
        else:
            iteration = scanned if kind == "nested" else shifted
            last, _ = gf.while_loop(
                lambda state: state[1] < count,
                lambda state: (iteration(state[0]), state[1] + 1),
                (x, 0),
            )
    empty = np.zeros((3, 0), np.float32)
    with gf.Session(graph) as session:
        plan = session.compile(last, feeds=[x, count, rows])
        some, none = np.zeros(2, np.float32), np.zeros(0, np.float32)
        assert plan(empty, 0, none).shape == (3, 0)
        with pytest.raises(gf.ExecutionError, match="max: axis 1 has size 0"):
            plan(empty, 2, some)
        assert plan(empty, 0, none).shape == (3, 0)
        assert plan(np.ones((3, 2), np.float32), 2, some).shape == (3, 2)


def test_an_interrupted_loop_begins_anew() -> None:
    with gf.Graph() as graph:
        end = gf.placeholder((), gf.int64)
        x = gf.placeholder((), gf.float64)
        loop = gf.while_loop(lambda s: s[0] < end, lambda s: (s[0] + 1, s[1] + x), (end * 0, x))
    with gf.Session(graph) as session:
        plan = session.compile(loop, feeds=[end, x])
        assert plan(3, 2.0) == (3, 8.0)
        timer = threading.Timer(0.2, _thread.interrupt_main)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            plan(1 << 60, 2.0)
        timer.join()
        for iterations in (0, 1, 100, 5):
            assert plan(iterations, 2.0) == (iterations, 2.0 * (iterations + 1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_loops_go_on_in_a_forked_process() -> None:
    graph, feeds, fetches = halving()
    given = [feeds_of(200, 50.0, 1), feeds_of(3, 9.0, 2)]
    with gf.Session(graph) as session:
        plan = session.compile(fetches, feeds=feeds)
        for pair in given:
            check_halved(plan(*pair), *pair)

        def child() -> None:
            for pair in (*given, feeds_of(7, 3.0, 3)):
                check_halved(plan(*pair), *pair)

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(60)
        assert process.exitcode == 0
        check_halved(plan(*given[0]), *given[0])


def tables() -> list[Iterations]:
    gc.collect()
    return [found for found in gc.get_objects() if isinstance(found, Iterations)]


def test_tables_are_freed_with_the_session() -> None:
    graph, feeds, fetches = halving()
    before = set(map(id, tables()))
    session = gf.Session(graph)
    plan = session.compile(fetches, feeds=feeds)
    for seed in range(5):
        plan(*feeds_of(4, 5.0, seed))
    made = [weakref.ref(table) for table in tables() if id(table) not in before]
    assert len(made) == 2  # one a loop, for all runs that follow one another
    session.close()
    del session, plan
    gc.collect()
    assert not any(table() for table in made)


@pytest.mark.parametrize("true", [True, False])
def test_branches_outside_of_loops(true: bool) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("n", "n"), gf.float64)
        pick = gf.placeholder((), gf.bool)
        y = gf.cond(pick, lambda v: (v @ v, v), lambda v: (gf.sin(v), v @ v @ v), x)
    with gf.Session(graph) as session:
        plan = session.compile(y, feeds=[x, pick])
        for n in (150, 3, 150, 1):
            a = np.random.default_rng(n).normal(size=(n, n))
            got = plan(a.T, true)
            wanted = (a.T @ a.T, a.T) if true else (np.sin(a.T), a.T @ a.T @ a.T)
            for found, right in zip(got, wanted, strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-9)
                assert not np.may_share_memory(found, a)


def test_results_of_loops_in_other_shapes() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("n", 4), gf.float64)
        last = gf.while_loop(lambda v: gf.max(v) > 1, lambda v: v / 2, x)
        fetches = [gf.reshape(last, (-1,)), last, gf.expand_dims(last, axis=1), last.T]
        small = gf.reshape(gf.while_loop(lambda v: gf.max(v) > 2, lambda v: v / 3, x), (2, -1))
    with gf.Session(graph) as session:
        plan = session.compile([*fetches, small], feeds=[x])
        for size in (6, 2, 6):
            value = np.random.default_rng(size).uniform(1, 2, (size, 4))
            flat, whole, expanded, transposed, other = plan(value)
            half = value / 2
            np.testing.assert_array_equal(flat, half.reshape(-1))
            np.testing.assert_array_equal(whole, half)
            np.testing.assert_array_equal(expanded, half[:, None])
            np.testing.assert_array_equal(transposed, half.T)
            np.testing.assert_array_equal(other, value.reshape(2, -1))
            assert not np.may_share_memory(flat, whole)


def test_memory_of_iterations_whose_number_nobody_knows() -> None:
    with gf.Graph() as g:
        n = gf.placeholder((), gf.int64, name="n")
        x = gf.placeholder((3, 500), name="x")
        w = gf.Variable(np.eye(500, dtype=np.float32), name="w")

        def body(carry: Any) -> Any:
            i, y = carry
            return i + 1, gf.tanh(y @ w)

        _, y = gf.while_loop(lambda carry: carry[0] < n, body, (gf.asarray(0), x))
        fetches = gf.grad(gf.sum(y * y), [w, x])
    array = np.ones((3, 500), np.float32)
    with gf.Session(g) as session:
        plan = session.compile(fetches, feeds=[n, x])
        (loop,) = plan.memory((), (3, 500)).per_iteration
        taken = []
        for iterations in (5, 5, 45):  # the first run takes what it keeps
            tracemalloc.start()
            plan(np.int64(iterations), array)
            taken.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    # The weights' gradient, which the pass back carries, is not recorded.
    assert 40 * loop.nbytes <= taken[2] - taken[1] < 40 * 2 * loop.nbytes
