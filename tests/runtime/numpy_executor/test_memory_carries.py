"""Loops that set single elements of what they carry, as one kernel: carries that stay in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dim import symbol
from graphfw.runtime.kernels import lower

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def is_one_kernel(plan: gf.Plan) -> bool:
    text = plan.explain()
    return "its iterations are one kernel" in text and "|" not in text


def compared(
    monkeypatch: pytest.MonkeyPatch,
    graph: gf.Graph,
    fetches: Sequence[gf.Tensor],
    feeds: dict[gf.Tensor, Array],
) -> list[Array]:
    """Return the values of fetches, which must be the same iteration by iteration."""
    with gf.Session(graph) as session:
        plan = session.compile(fetches, feeds=list(feeds))
        assert is_one_kernel(plan), plan.explain()
        found = [plan(*feeds.values()), plan(*feeds.values())]
    with monkeypatch.context() as patch:
        patch.setattr(lower, "iteration_steps", lambda *_: [])
        with gf.Session(graph) as session:
            wanted = session.run(fetches, feeds)
    for got in found:
        for a, b in zip(got, wanted, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            a, b = (x.astype(np.float32) if x.dtype.kind == "V" else x for x in (a, b))
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    return found[0]


class Loop(NamedTuple):
    """A body of a loop, and what it carries first: shapes, with their dtypes."""

    body: Callable[..., Any]
    carries: tuple[tuple[tuple[int, ...], str], ...]


LOOPS = {
    "fill": Loop(lambda i, x: x.at[i + 2].set(x[i + 1] * 0.5 - x[i]), (((40,), "float32"),)),
    "count": Loop(lambda i, x: x.at[(i * 7) % 5].add(1), (((5,), "int32"),)),
    "from the end": Loop(lambda i, x: x.at[-1 - i].set(x[i] + 1), (((30,), "float64"),)),
    "one element": Loop(lambda i, x: x.at[i].set(x[3] + 1), (((30,), "int64"),)),
    "the same one": Loop(lambda i, x: x.at[3].add(x[3]), (((5,), "uint16"),)),
    "flags": Loop(lambda i, x: x.at[i].set(gf.logical_not(x[i // 2])), (((40,), "bool"),)),
    "half": Loop(lambda i, x: x.at[i % 3].add(x[(i + 1) % 3]), (((3,), "bfloat16"),)),
    "two indices": Loop(
        lambda i, x: x.at[i % 4, i // 4].set(x[(i + 3) % 4, i // 4] + 0.5), (((4, 5), "float32"),)
    ),
    "rows": Loop(lambda i, x: x.at[i + 1].set(x[i] * 0.9 + 1), (((21, 37), "float32"),)),
    "columns": Loop(lambda i, x: x.at[:, i + 1].set(x[:, i] * 0.9 + 1), (((37, 21), "float32"),)),
    "inner": Loop(lambda i, x: x.at[:, i % 4].add(x[:, (i + 1) % 4]), (((3, 4, 35), "float32"),)),
    "short rows": Loop(
        lambda i, x: x.at[i].set(gf.stack([x[i, 1], x[i, 0] + x[i - 1, 2], x[i, 2]])),
        (((20, 3), "float32"),),
    ),
    "a position along short rows": Loop(
        lambda i, x: x.at[i].set(gf.stack([x[i - 1, i % 3], x[i, 0] + 1, x[i - 1, 1]])),
        (((20, 3), "int32"),),
    ),
    "twice": Loop(
        lambda i, x: x.at[i % 4].set(x[0] + 1).at[(i * 3) % 4].add(x[1] * 2), (((4,), "int32"),)
    ),
    "swaps": Loop(
        lambda i, x: x.at[gf.stack([i % 7, i % 5])].set(x[gf.stack([i % 5, i % 7])]),
        (((7,), "int32"),),
    ),
    "the same one twice": Loop(
        lambda i, x: x.at[gf.stack([i % 2, i % 3])].add(gf.stack([x[0], x[2] + 1])),
        (((4,), "int16"),),
    ),
    "several rows": Loop(
        lambda i, x: x.at[:, gf.stack([i % 4, 3])].add(x[:, gf.stack([0, i % 2])]),
        (((33, 4), "float32"),),
    ),
    "read between": Loop(
        lambda i, x: (lambda y: y.at[i % 2].set(y[i % 5] + y[1]))(x.at[i % 3].set(x[4] + 1)),
        (((5,), "int32"),),
    ),
    "a carried position": Loop(
        lambda i, x, slot: (x.at[slot].add(1), (slot * 5 + x[i]) % 7),
        (((20,), "int64"), ((), "int64")),
    ),
    "two arrays": Loop(
        lambda i, x, y: (x.at[i].set(y[i % 3] + 1), y.at[i % 3].add(x[i])),
        (((20,), "int32"), ((3,), "int32")),
    ),
    "beside registers": Loop(
        lambda i, x, v: (x.at[i].set(v[0, 0] + 1), v * 0.5 + x[i]),
        (((20,), "float32"), ((1, 1), "float32")),
    ),
}


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("length", [0, 1, 20])
def test_loops(name: str, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body, carries = LOOPS[name]
    rng = np.random.default_rng(3)
    with gf.Graph() as g:
        first = [
            gf.placeholder(s, getattr(gf, dtype), name=f"x{i}")
            for i, (s, dtype) in enumerate(carries)
        ]
        count = symbol("t") if length == 20 else length
        steps = gf.placeholder((count,), name="steps")
        last, seen = gf.scan(
            lambda carry, x: (
                _tuple(body(carry[0], *carry[1:]), carry[0] + 1),
                x * 2,
            ),
            (gf.asarray(0), *first),
            steps,
        )
    feeds = {x: rng.integers(0, 5, x.shape).astype(x.dtype.dtype) for x in first}
    if name == "a carried position":
        feeds[first[1]] = np.array(2, np.int64)
    compared(
        monkeypatch, g, [*last[1:], seen], {**feeds, steps: rng.normal(size=length).astype("f")}
    )


def _tuple(made: Any, number: Any) -> tuple[Any, ...]:
    return (number, *made) if isinstance(made, tuple) else (number, made)


@pytest.mark.slow
def test_random_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rows, columns, count = (int(n) for n in rng.integers(1, 9, 3))
        kind = getattr(gf, rng.choice(["float32", "float64", "int32", "float16"]))
        whole = bool(rng.integers(2))

        def index(i, x, rng=rng, rows=rows):  # of a row, also from the end
            number = i * int(rng.integers(1, 5)) + int(rng.integers(0, 9))
            return number % rows - rows * int(rng.integers(2))

        def body(i, x, rng=rng, whole=whole, columns=columns, index=index):
            value = x
            for _ in range(int(rng.integers(1, 4))):
                put = index(i, value)
                if whole:
                    new = value[index(i, value)] * 2 - x[index(i, x)]
                    where = value.at[put]
                else:
                    column = i % columns
                    new = value[index(i, value), column] + x[index(i, x), (i + 1) % columns]
                    where = value.at[put, column]
                value = where.add(new) if rng.integers(2) else where.set(new)
            return value

        with gf.Graph() as g:
            x = gf.placeholder((rows, "c") if whole else (rows, columns), kind, name="x")
            y = gf.fori_loop(0, count, body, x)
        first = rng.integers(-2, 3, (rows, columns)).astype(kind.dtype)
        compared(monkeypatch, g, [y], {x: first})


def test_a_table_of_nested_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest common subsequence of two sequences, by its textbook."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(0, 4, 23), rng.integers(0, 4, 31)

    with gf.Graph() as g:
        first, second = (gf.placeholder(x.shape, gf.int64, name=n) for n, x in (("a", a), ("b", b)))

        def cell(i, j, table):
            longer = gf.maximum(table[i - 1, j], table[i, j - 1])
            same = first[i - 1] == second[j - 1]
            return table.at[i, j].set(gf.where(same, table[i - 1, j - 1] + 1, longer))

        def row(i, table):
            return gf.fori_loop(1, len(b) + 1, lambda j, t: cell(i, j, t), table)

        table = gf.fori_loop(1, len(a) + 1, row, gf.zeros((len(a) + 1, len(b) + 1), dtype=gf.int32))
    wanted = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            longer = max(wanted[i - 1, j], wanted[i, j - 1])
            wanted[i, j] = wanted[i - 1, j - 1] + 1 if a[i - 1] == b[j - 1] else longer
    with gf.Session(g) as session:
        assert (
            "its iterations are one kernel" in session.compile([table], [first, second]).explain()
        )
        np.testing.assert_array_equal(session.run(table, {first: a, second: b}), wanted)


def test_gradients() -> None:
    def filled(x, y):
        return gf.fori_loop(
            0, 6, lambda i, c: c.at[i + 1].set(gf.sin(c[i]) * x[i] + c[(i * 5) % 7]), y
        )

    with gf.Graph() as g:
        x, y = (gf.placeholder((n,), gf.float64, name=name) for n, name in ((6, "x"), (7, "y")))
        loss = gf.sum(filled(x, y) ** 2)
        slopes = gf.grad(loss, [x, y])
    rng = np.random.default_rng(0)
    feeds = {x: rng.normal(size=6), y: rng.normal(size=7)}
    with gf.Session(g) as session:
        found = session.run(slopes, feeds)
        for tensor, slope in zip((x, y), found, strict=True):
            for i in range(len(slope)):
                step = np.zeros(len(slope))
                step[i] = 1e-6
                more, less = (
                    session.run(loss, {**feeds, tensor: feeds[tensor] + sign * step})
                    for sign in (1, -1)
                )
                np.testing.assert_allclose((more - less) / 2e-6, slope[i], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("index", [5, -6, 2**40])
def test_indices_out_of_range_are_errors(index: int) -> None:
    with gf.Graph() as g:
        slot = gf.placeholder((), gf.int64, name="slot")
        x = gf.placeholder((5,), name="x")
        y = gf.fori_loop(0, 3, lambda i, c: c.at[slot * (i // 2)].set(c[0] + 1), x)
    with gf.Session(g) as session:
        feeds = {x: np.zeros(5, np.float32)}
        with pytest.raises(gf.ExecutionError, match=f"index {index} is out of range"):
            session.run(y, {**feeds, slot: np.array(index)})
        np.testing.assert_array_equal(session.run(y, {**feeds, slot: np.array(4)}), [2, 0, 0, 0, 3])


def test_what_is_fed_stays_as_it_is_and_variables_change_in_the_end() -> None:
    with gf.Graph() as g:
        x = gf.placeholder((4,), name="x")
        v = gf.Variable(np.arange(4, dtype=np.float32), name="v")
        y = gf.fori_loop(0, 4, lambda i, c: c.at[i].add(c[i - 1]), x)
        step = gf.update(v, gf.fori_loop(0, 4, lambda i, c: c.at[i].set(c[3 - i] + x[i]), v))
    fed = np.ones(4, np.float32)
    with gf.Session(g) as session:
        np.testing.assert_array_equal(session.run([y, step], {x: fed})[0], [2, 3, 4, 5])
        np.testing.assert_array_equal(fed, 1)
        np.testing.assert_array_equal(session[v], [4, 3, 4, 5])


def test_examples_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    def filled(x):
        return gf.fori_loop(1, 9, lambda i, c: c.at[i].set(c[i - 1] * 0.5 + c[i]), x)

    rng = np.random.default_rng(0)
    with gf.Graph() as g:
        x = gf.placeholder(("b", 9), name="x")
        one = gf.placeholder((9,), name="one")
        y, z = gf.vmap(filled)(x), filled(one)
    batch = rng.normal(size=(33, 9)).astype("f")
    with gf.Session(g) as session:
        several = session.run(y, {x: batch})
        for row, wanted in zip(batch, several, strict=True):
            np.testing.assert_allclose(session.run(z, {one: row}), wanted, rtol=1e-6)


def test_instances_that_share_an_array_are_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    with gf.Graph() as g:
        x = gf.placeholder((5,), name="x")
        v = gf.placeholder((300,), name="v")
        last = gf.fori_loop(
            0, 5, lambda i, c: (c[0].at[i].set(c[0][i - 1] + 1), c[1] + c[0][i]), (x, v)
        )
    with gf.Session(g) as session:
        plan = session.compile(last, [x, v])
        assert "its iterations are one kernel" not in plan.explain()
        values, total = plan(np.arange(5, dtype="f"), np.zeros(300, "f"))
    wanted = np.arange(5, dtype="f")
    added = 0.0
    for i in range(5):
        added += wanted[i]
        wanted[i] = wanted[i - 1] + 1
    np.testing.assert_array_equal(values, wanted)
    np.testing.assert_array_equal(total, added)
