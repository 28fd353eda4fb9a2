"""Promises of shapes in bodies are checked: native code would read elsewhere where they fail."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from tests.support.grouped import grouped

Make = Callable[[], gf.Tensor]

LEAVES: dict[str, Callable[[gf.Tensor], gf.Tensor]] = {
    "promise": lambda y: gf.exp(gf.assert_shape(y, (3,))) + gf.ones((3,)),
    "product": lambda y: gf.assert_shape(y, (3,)) @ gf.ones((3, 2)),
    "reshape": lambda y: gf.reshape(y, (-1, 3)) * 1.5,
}


def regions(x: gf.Tensor) -> dict[str, Callable[[Make], gf.Tensor]]:
    """Loops and branches of a sum; with x of zeros or of no elements not all have an iteration."""
    zero, one = gf.asarray(0.0), gf.asarray(1.0)
    times = gf.astype(gf.sum(x), gf.int64)
    wide = gf.ones((3, 3)) * 0.1
    return {
        "plain": gf.sum,  # type: ignore[dict-item]  # of what is made
        "scan": lambda f: gf.scan(lambda c, v: (c * 0.5 + gf.sum(f()), None), zero, x)[0],
        "product": lambda f: gf.sum(
            gf.scan(lambda c, v: (c @ wide + gf.sum(f()), None), gf.ones((3,)), x)[0]
        ),
        "while": lambda f: gf.while_loop(
            lambda c: c[0] < times, lambda c: (c[0] + 1, c[1] * 0.5 + gf.sum(f())), (0, zero)
        )[1],
        "for": lambda f: gf.fori_loop(0, times, lambda i, c: c * 0.5 + gf.sum(f()), zero),
        "branch": lambda f: gf.cond(gf.sum(x) > 0, lambda: gf.sum(f()), lambda: -one),
        "chosen": lambda f: gf.cond(gf.asarray(True), lambda: gf.sum(f()), lambda: -one),
        "checkpoint": lambda f: gf.checkpoint(lambda a: gf.sum(f()) * a)(one),
    }


NAMES = list(regions(gf.zeros((1,))))


def result(session: gf.Session, fetch: gf.Tensor, feeds: Any) -> Any:
    try:
        return float(session.run(fetch, feeds))
    except (gf.ShapeError, gf.ExecutionError):
        return None


@pytest.mark.exhaustive(every=4)
@grouped("nest", itertools.product(NAMES, NAMES, LEAVES), lambda nest: nest[0])
def test_a_body_relies_on_what_its_runs_check(nest: tuple[str, str, str]) -> None:
    outer, inner, leaf = nest
    with gf.Graph() as graph:
        x, y = gf.placeholder(("t",), name="x"), gf.placeholder(("m",), name="y")
        made = regions(x)

        def inside() -> gf.Tensor:
            return LEAVES[leaf](y) if inner == "plain" else made[inner](lambda: LEAVES[leaf](y))

        fetch = gf.sum(inside()) if outer == "plain" else made[outer](inside)
    with gf.Session(graph) as session, gf.Session(graph, debug=True) as reference:
        for count, (iterations, value) in itertools.product((3, 1, 4), ((2, 1), (0, 1), (2, 0))):
            feeds = {
                x: np.full(iterations, value, np.float32),
                y: np.arange(count, dtype=np.float32),
            }
            got, wanted = (result(each, fetch, feeds) for each in (session, reference))
            if wanted is None:
                assert got is None, feeds
            else:
                assert got == pytest.approx(wanted, rel=1e-4), feeds


def test_a_reshape_is_checked_before_anything_is_computed() -> None:
    seen: list[Any] = []
    with gf.Graph() as graph:
        x = gf.placeholder(("n",), name="x")
        first = gf.host_call(lambda a: seen.append(a) or a, (("n",), "float32"), x)
        y = gf.reshape(first * 2, (-1, 3))
    with gf.Session(graph) as session:
        assert session.run(y, {x: np.zeros(6, np.float32)}).shape == (2, 3)
        seen.clear()
        with pytest.raises(gf.ShapeError) as caught:
            session.run(y, {x: np.zeros(7, np.float32)})
        assert not seen
    error = caught.value
    assert error.summary == "reshape: 7 elements don't divide into shape [-1, 3]"
    assert error.why == '`n` is dim 0 of "x", which is fed [7]'
    assert error.fix == "feed sizes that make the number of elements a multiple of 3"
    assert error.at.line == y.node.loc.line


def test_a_promise_in_a_scan_shows_its_line() -> None:
    with gf.Graph() as graph:
        x, y = gf.placeholder(("t", "n"), name="x"), gf.placeholder(("m",), name="y")
        last, _ = gf.scan(
            lambda c, v: (c + v + gf.assert_shape(y, v.shape), None), gf.zeros(x.shape[1:]), x
        )
    with gf.Session(graph) as session:
        ones = np.ones((2, 3), np.float32)
        assert session.run(last, {x: ones, y: np.ones(3, np.float32)}).tolist() == [4.0] * 3
        with pytest.raises(gf.ShapeError, match="`m` is 1 in this run, not n = 3") as caught:
            session.run(last, {x: ones, y: np.ones(1, np.float32)})
        assert caught.value.at.file == __file__
        none = session.run(last, {x: ones[:0], y: np.ones(1, np.float32)})
        assert none.tolist() == [0.0] * 3
