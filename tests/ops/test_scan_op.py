"""`scan`, `map` and `fori_loop`: values, gradients of several orders, draws."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from tests.support.loops import assert_equal, run

F64 = gf.float64


def recurrent(x: Any, w: Any, h: Any, **options: Any) -> tuple[Any, Any]:
    def step(carry: Any, element: Any) -> tuple[Any, Any]:
        new = gf.tanh(carry @ w + element)
        return new, (new, gf.sum(new * element))

    return gf.scan(step, h, x, **options)


OPTIONS: list[dict[str, Any]] = [
    {},
    {"reverse": True},
    {"unroll": 3},
    {"unroll": 3, "reverse": True},
    {"checkpoint_every": 3},
    {"checkpoint_every": 2, "reverse": True},
]


@pytest.fixture(scope="module")
def unrolled() -> Any:
    """Return a function that runs a loop written out, with its gradients: one graph a length."""

    @functools.cache
    def made(length: int, reverse: bool) -> tuple[gf.Session, list[Any], list[Any]]:
        with gf.Graph() as graph:
            x = gf.placeholder((length, 2, 3), F64)
            w, h = gf.placeholder((3, 3), F64), gf.placeholder((2, 3), F64)
            carry, kept, total = h, {}, 0.0
            order = range(length)
            for i in reversed(order) if reverse else order:
                carry = gf.tanh(carry @ w + x[i])
                kept[i] = carry
                total = total + gf.sum(carry * carry) + gf.sum(carry * x[i])
            rows = gf.stack([kept[i] for i in order]) if length else gf.zeros((0, 2, 3), dtype=F64)
            plain = gf.sum(carry) + total
            first = gf.grad(plain, [x, w, h], missing="zeros")
            second = gf.grad(gf.sum(first[1] ** 2) + gf.sum(first[0]), [w, h], missing="zeros")
        return gf.Session(graph), [carry, rows, plain, *first, *second], [x, w, h]

    def computed(arrays: list[Any], reverse: bool) -> Any:
        session, outputs, feeds = made(len(arrays[0]), reverse)
        return session.run(outputs, dict(zip(feeds, arrays, strict=True)))

    return computed


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_scan_equals_an_unrolled_loop(
    options: dict[str, Any], rng: np.random.Generator, unrolled: Any
) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("t", 2, 3), F64)
        w, h = gf.placeholder((3, 3), F64), gf.placeholder((2, 3), F64)
        last, (rows, sums) = recurrent(x, w, h, **options)
        loss = gf.sum(last) + gf.sum(rows * rows) + gf.sum(sums)
        first = gf.grad(loss, [x, w, h])
        second = gf.grad(gf.sum(first[1] ** 2) + gf.sum(first[0]), [w, h])
    with gf.Session(graph) as session:
        for length in (0, 1, 2, 3, 7):
            arrays = [rng.normal(size=shape) for shape in ((length, 2, 3), (3, 3), (2, 3))]
            feeds = dict(zip([x, w, h], arrays, strict=True))
            got = session.run([last, rows, loss, *first, *second], feeds)
            assert_equal(got, unrolled(arrays, options.get("reverse", False)), 1e-9)


def test_one_plan_for_all_lengths(rng: np.random.Generator) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("t",), F64)
        total, sums = gf.scan(lambda c, v: (c + v, c + v), gf.zeros((), dtype=F64), x)
    with gf.Session(graph) as session:
        plan = session.compile([total, sums], feeds=[x])
        for length in (5, 0, 1, 1000):
            value = rng.normal(size=length)
            last, all_ = plan(value)
            np.testing.assert_allclose(all_, np.cumsum(value), atol=1e-9)
            np.testing.assert_allclose(last, value.sum(), atol=1e-9)


def test_integers_counters_and_constants_are_carried(rng: np.random.Generator) -> None:
    with gf.Graph():
        x = gf.placeholder(("t", 4), F64)

        def step(carry: Any, row: Any) -> tuple[Any, Any]:
            count, scale, kept = carry
            return (count + 1, scale, kept + row[count % 4] * scale), count

        (count, scale, kept), counts = gf.scan(step, (0, gf.sum(x), gf.zeros((), dtype=F64)), x)
        slope = gf.grad(kept, x)
    value = rng.normal(size=(6, 4))
    got = run([count, counts, kept, slope], {x: value})
    assert got[0] == 6
    np.testing.assert_array_equal(got[1], np.arange(6))
    picked = sum(value[i, i % 4] for i in range(6))
    np.testing.assert_allclose(got[2], picked * value.sum())
    wanted = np.full((6, 4), picked)
    for i in range(6):
        wanted[i, i % 4] += value.sum()
    np.testing.assert_allclose(got[3], wanted)


def test_without_sequences() -> None:
    last, powers = gf.scan(lambda c, _: (c * 2, c), gf.asarray(1), length=5)
    assert int(last) == 32
    assert powers.numpy().tolist() == [1, 2, 4, 8, 16]


def test_loops_inside_of_loops(rng: np.random.Generator) -> None:
    with gf.Graph():
        x = gf.placeholder(("t", "n"), F64)
        w = gf.placeholder((), F64)

        def row(carry: Any, values: Any) -> tuple[Any, Any]:
            inner = gf.scan(lambda c, v: (gf.sin(c * w + v), c), carry, values)
            return inner[0], gf.sum(inner[1])

        last, sums = gf.scan(row, w, x)
        slope = gf.grad(last + gf.sum(sums), [x, w])
    feeds = {x: rng.normal(size=(3, 4)), w: 0.7}

    def by_hand(v: np.ndarray[Any, Any], scale: float) -> float:
        carry, total = scale, 0.0
        for values in v:
            for value in values:
                total += carry
                carry = np.sin(carry * scale + value)
        return carry + total

    got = run([slope[1], slope[0]], feeds)
    step = 1e-6
    numeric = (by_hand(feeds[x], 0.7 + step) - by_hand(feeds[x], 0.7 - step)) / (2 * step)
    np.testing.assert_allclose(got[0], numeric, rtol=1e-6)
    bumped = feeds[x].copy()
    bumped[1, 2] += step
    numeric = (by_hand(bumped, 0.7) - by_hand(feeds[x], 0.7)) / step
    np.testing.assert_allclose(got[1][1, 2], numeric, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"unroll": 2}, {"checkpoint_every": 2}], ids=str)
def test_every_trip_draws_its_own_numbers(options: dict[str, Any]) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((), F64)
        _, rows = gf.scan(lambda c, _: (c, gf.random.normal((5,)) + x), x, length=6, **options)
        noise = gf.scan(lambda c, _: (c * gf.random.uniform((), dtype=F64), None), x, length=6)[0]
        slope = gf.grad(noise, x)
    with gf.Session(graph, seed=4) as session:
        values, end, factor = session.run([rows, noise, slope], {x: 2.0})
        assert len({*values.ravel().tolist()}) == 30
        # The gradient draws nothing new.
        np.testing.assert_allclose(factor * 2.0, end)
        assert not np.array_equal(session.run(rows, {x: 2.0}), values)


def test_the_same_numbers_with_and_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((3,))
        y = gf.scan(lambda c, _: (c, gf.random.uniform((3,)) + c), x, length=4)[1]
    values = []
    for jit in ("1", "0"):
        monkeypatch.setenv("GRAPHFW_JIT", jit)
        with gf.Session(graph, seed=9) as session:
            values.append(session.run(y, {x: np.zeros(3, np.float32)}))
    np.testing.assert_array_equal(*values)


def test_map_and_fori(rng: np.random.Generator) -> None:
    value = rng.normal(size=(5, 3))
    with gf.Graph():
        x = gf.placeholder(("n", 3), F64)
        k = gf.placeholder((), gf.int32)
        mapped = gf.map(lambda row: {"sum": gf.sum(row), "row": row * 2}, x)
        static = gf.fori_loop(2, 5, lambda i, v: v + x[i], gf.zeros((3,), dtype=F64))
        dynamic = gf.fori_loop(k, 5, lambda i, v: v * x[i], gf.ones((3,), dtype=F64))
        slope = gf.grad(gf.sum(dynamic), x)
    for begin in (2, 5, 9):
        got = run([mapped, static, dynamic, slope], {x: value, k: begin})
        np.testing.assert_allclose(got[0]["sum"], value.sum(axis=1))
        np.testing.assert_allclose(got[0]["row"], value * 2)
        np.testing.assert_allclose(got[1], value[2:5].sum(axis=0))
        np.testing.assert_allclose(got[2], value[begin:5].prod(axis=0))
        wanted = np.zeros_like(value)
        for i in range(begin, 5):
            wanted[i] = value[begin:5].prod(axis=0) / value[i]
        np.testing.assert_allclose(got[3], wanted)


def test_results_are_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    with gf.Graph() as graph:
        x = gf.placeholder((3000,), F64)
        loop = gf.scan(lambda c, _: ((c[0], c[0], x), None), (x, x + 1, x), length=2)[0]
        chosen = gf.cond(gf.sum(x) > 0, lambda: (x, x), lambda: (x + 1, x[::-1]))
        kept = gf.checkpoint(lambda v: (v, v))(x)
        # Elementwise results are written over operands that nothing needs any more.
        sums = [a + 1.0 for a in (*loop, *chosen, *kept)]
    value = np.ones(3000)
    with gf.Session(graph) as session:
        got = session.run(sums, {x: value})
    np.testing.assert_array_equal(got, np.full((7, 3000), 2.0))
    np.testing.assert_array_equal(value, 1)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_trips_that_stack_a_complex_number(dtype: str) -> None:
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        number = gf.constant(np.array(1 - 2j, dtype))
        last, (halves, numbers) = gf.scan(
            lambda c, row: (c * 0.5 + row, (c, number)), gf.asarray(0.0), x
        )
    with gf.Session(g) as session:
        found = session.run([last, halves, numbers], {x: np.arange(4, dtype=np.float32)})
    np.testing.assert_array_equal(found[0], 4.25)
    np.testing.assert_array_equal(found[1], [0.0, 0.0, 1.0, 2.5])
    np.testing.assert_array_equal(found[2], np.full(4, 1 - 2j, dtype), strict=True)
