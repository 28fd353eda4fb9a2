"""Loops of unknown length, whose iterations one native call makes in blocks."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from tests.runtime.numpy_executor.test_iterations import same


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
def test_loops_of_unknown_length_in_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with gf.Graph() as graph:
        x, n = gf.placeholder((5,)), gf.placeholder((), gf.int64)
        found = whiles()[name](x, n)
        results = [*found] if isinstance(found, tuple) else [found]
    row = np.linspace(0, 2, 5, dtype=np.float32)
    with gf.Session(graph) as session:
        plan = session.compile(results, feeds=[x, n])
        assert "| " in plan.explain()
        assert "its iterations are one kernel" in plan.explain()
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
        assert "its iterations are one kernel" in plan.explain()
        lines = re.findall(rf"at {Path(__file__).name}:(\d+)", plan.explain())
        assert set(lines) == {str(loop_line)}


def test_loops_that_many_lanes_decide_on_are_not_made_in_blocks() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((5,))
        y = gf.while_loop(lambda c: gf.max(c) < 100, lambda c: c * 2, x)
    with gf.Session(graph) as session:
        plan = session.compile(y, feeds=[x])
        assert "one kernel" not in plan.explain()
        np.testing.assert_array_equal(plan(np.ones(5, np.float32)), np.full(5, 128))
