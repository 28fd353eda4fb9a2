"""Loops of unknown length as one kernel, which ends where their condition is false."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from tests.runtime.numpy_executor.test_iterations import one_kernel, same


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def whiles() -> dict[str, Callable[[gf.Tensor, gf.Tensor], Any]]:
    """Loops of unknown length of scalars and rows, from a row and a count."""
    return {
        "count": lambda x, n: gf.while_loop(lambda c: c < n, lambda c: c + 1, 0),
        "row": lambda x, n: gf.fori_loop(0, n, lambda i, c: c * 1.01 + gf.astype(i, gf.float32), x),
        "pair": lambda x, n: gf.while_loop(
            lambda c: (c[0] < 1e3) & (c[1] < n), lambda c: (c[0] * 1.5, c[1] + 1), (1.0, 0)
        ),
        "flag": lambda x, n: gf.while_loop(
            lambda c: c[1], lambda c: (c[0] + 2, c[0] < n), (gf.asarray(0), gf.asarray(True))
        ),
        "halves": lambda x, n: gf.while_loop(
            lambda c: c[1] < n, lambda c: (gf.sqrt(c[0]), c[1] + 1), (gf.astype(x, "bfloat16"), 0)
        ),
    }


@pytest.mark.parametrize("name", whiles())
def test_loops_of_unknown_length(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with gf.Graph() as graph:
        x, n = gf.placeholder((5,)), gf.placeholder((), gf.int64)
        found = whiles()[name](x, n)
        results = [*found] if isinstance(found, tuple) else [found]
    row = np.linspace(0, 2, 5, dtype=np.float32)
    with gf.Session(graph) as session:
        plan = session.compile(results, feeds=[x, n])
        assert one_kernel(plan)
        for count in (0, 1, 15, 16, 17, 100):
            got = plan(row, count)
            with monkeypatch.context() as patch, gf.Session(graph) as reference:
                patch.setenv("GRAPHFW_JIT", "0")
                same(got, reference.run(results, {x: row, n: count}))


def test_each_step_shows_a_line_of_the_loop() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(())
        y = gf.while_loop(lambda c: c * c > 2, lambda c: c - 0.1 * (c * c - 2) / c, x)
    loop_line = y.node.loc.line
    with gf.Session(graph) as session:
        plan = session.compile(y, feeds=[x])
        assert one_kernel(plan)
        lines = re.findall(rf"at {Path(__file__).name}:(\d+)", plan.explain())
        assert set(lines) == {str(loop_line)}


def test_loops_that_many_instances_decide_on_are_no_kernel() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((500,))
        y = gf.while_loop(lambda c: gf.max(c) < 100, lambda c: c * 2, x)
    with gf.Session(graph) as session:
        plan = session.compile(y, feeds=[x])
        assert "one kernel" not in plan.explain()
        np.testing.assert_array_equal(plan(np.ones(500, np.float32)), np.full(500, 128))


def collatz(start: Any, steps: Any) -> Any:
    """The trajectory of a number until it is 1, as far as there is room."""

    def body(c: Any) -> Any:
        number, count, seen = c
        following = gf.where(number % 2 == 0, number // 2, 3 * number + 1)
        return following, count + 1, seen.at[count].set(number)

    count = gf.asarray(0)
    return gf.while_loop(lambda c: (c[0] != 1) & (c[1] < 9000), body, (start, count, steps))


def test_elements_are_set_until_a_condition_is_false() -> None:
    with gf.Graph() as graph:
        start, steps = gf.placeholder((), gf.int64), gf.placeholder(("n",), gf.int64)
        number, count, seen = collatz(start, steps)
    with gf.Session(graph) as session:
        plan = session.compile([number, count, seen], feeds=[start, steps])
        assert one_kernel(plan)
        for value in (1, 2, 27, 97):
            wanted = np.full(9000, -1)
            expected, n = value, 0
            while expected != 1:
                wanted[n] = expected
                expected, n = (expected // 2 if expected % 2 == 0 else 3 * expected + 1), n + 1
            got = plan(value, np.full(9000, -1))
            same(got, [np.array(1), np.array(n), wanted])
        with pytest.raises(gf.ExecutionError, match="index 9 is out of range"):
            plan(97, np.full(9, -1))


@pytest.mark.parametrize("count", [0, 1, 2, 9000])
def test_carries_of_all_kinds(count: int) -> None:
    with gf.Graph() as graph:
        n, table = gf.placeholder((), gf.int64), gf.placeholder((7,), gf.int64)
        rows = gf.placeholder((3, "w"))
        result = gf.while_loop(
            lambda c: c[0] < n,
            lambda c: (c[0] + 1, (c[1] * 5 + c[2][c[1]]) % 7, c[2], c[3] * 0.5 + 1),
            (0, 3, table, rows),
        )
    values, given = np.array([3, 1, 4, 1, 5, 9, 2]), np.ones((3, 50), np.float32)
    with gf.Session(graph) as session:
        plan = session.compile([*result], feeds=[n, table, rows])
        assert one_kernel(plan)
        slot, row = 3, np.float32(1)
        for _ in range(count):
            slot, row = (slot * 5 + values[slot]) % 7, row * np.float32(0.5) + 1
        wanted = [np.array(count), np.array(slot), values, np.full((3, 50), row, np.float32)]
        same(plan(count, values, given), wanted)


def test_what_is_read_after_the_end_is_not_checked() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((5,))
        last, total = gf.while_loop(
            lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] + x[c[0]]), (gf.asarray(0), 0.0)
        )
    with gf.Session(graph) as session:
        same(session.run([last, total], {x: np.ones(5, np.float32)}), [np.array(5), np.float32(5)])


def test_small_products_until_they_converge() -> None:
    with gf.Graph() as graph:
        a, x = gf.placeholder((4, 4)), gf.placeholder((4,))

        def body(c: Any) -> Any:
            y = a @ c[0]
            y = y / gf.sqrt(gf.sum(y * y))
            return y, gf.max(gf.abs(y - c[0]))

        vector, _ = gf.while_loop(lambda c: c[1] > 1e-6, body, (x, 1.0))
    rng = np.random.default_rng(0)
    matrix = rng.random((4, 4), np.float32)
    matrix += matrix.T
    with gf.Session(graph) as session:
        plan = session.compile(vector, feeds=[a, x])
        assert one_kernel(plan)
        found = plan(matrix, np.ones(4, np.float32))
    np.testing.assert_allclose(matrix @ found, np.linalg.eigvalsh(matrix)[-1] * found, rtol=1e-4)


def test_an_endless_loop_ends_with_its_time() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((64,), gf.int64)
        y = gf.while_loop(lambda c: c[0] >= 0, lambda c: c.at[1].set(c[2]).at[c[1]].add(1), x)
        z = gf.while_loop(lambda c: c >= 0, lambda c: c * 0, gf.asarray(1))
    with gf.Session(graph, verify="off") as session:
        for endless in (y, z):
            with pytest.raises(TimeoutError):
                session.run(endless, {x: np.zeros(64, np.int64)}, timeout=0.05)
