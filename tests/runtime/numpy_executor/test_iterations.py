"""Loops whose iterations are one kernel: what they compute, and which those are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dim import Dim, symbol
from graphfw.runtime.kernels import lower

Array = np.ndarray[Any, np.dtype[Any]]

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint16", "bool"]


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def one_kernel(plan: gf.Plan) -> bool:
    """Whether the iterations of some loop are one kernel, and of no loop made in another way."""
    return "its iterations are one kernel" in plan.explain() and "|" not in plan.explain()


def runs(
    graph: gf.Graph, fetches: Sequence[gf.Tensor], feeds: dict[gf.Tensor, Array]
) -> list[Array]:
    """Run the loops of a graph as kernels."""
    with gf.Session(graph) as session:
        plan = session.compile(fetches, feeds=list(feeds))
        assert one_kernel(plan), plan.explain()
        return plan(*feeds.values())


def otherwise(
    monkeypatch: pytest.MonkeyPatch,
    graph: gf.Graph,
    fetches: Sequence[gf.Tensor],
    feeds: dict[gf.Tensor, Array],
) -> list[Array]:
    """Run them iteration by iteration."""
    with monkeypatch.context() as patch:
        patch.setattr(lower, "iteration_steps", lambda *_: [])
        with gf.Session(graph) as session:
            plan = session.compile(fetches, feeds=list(feeds))
            assert "its iterations are one native call" in plan.explain()
            return plan(*feeds.values())


def same(got: Sequence[Array], wanted: Sequence[Array]) -> None:
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        a, b = (x.astype(np.float32) if x.dtype.kind == "V" else x for x in (a, b))
        np.testing.assert_array_equal(a, b)


class RandomBody:
    """Random elementwise bodies: carries and sequences of random dtypes, which broadcast."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        n = symbol("n") if seed % 2 else int(self.rng.choice([1, 2, 3, 17, 64, 67, 200]))
        self.sizes = {"n": int(self.rng.choice([0, 1, 5, 33, 130])), "t": 1 + seed % 7}
        self.length = symbol("t") if seed % 3 else self.sizes["t"]
        whole = [(n,), (3, n), (n, 2), ()][seed % 4]
        shapes = [whole, whole, whole[-1:], ()]
        carries, sequences, captures = (self.rng.integers(1, 4) for _ in range(3))
        self.graph = gf.Graph()
        with self.graph:
            self.carry = [self.given(self.choice(shapes)) for _ in range(carries - 1)]
            self.carry.append(self.given(whole))
            self.xs = [self.given((self.length, *self.choice(shapes))) for _ in range(sequences)]
            self.captures = [self.given(self.choice(shapes)) for _ in range(captures)]
            stacked = [self.choice(shapes) for _ in range(self.rng.integers(0, 3))]
            self.last, self.stacks = gf.scan(
                lambda c, x: self.iteration(c, x, stacked),
                self.carry,
                self.xs,
                reverse=bool(seed & 4),
            )

    def choice(self, of: Sequence[Any]) -> Any:
        return of[self.rng.integers(len(of))]

    def given(self, shape: tuple[Any, ...]) -> gf.Tensor:
        dtype = self.choice(DTYPES)
        return gf.placeholder(shape, dtype)

    @property
    def feeds(self) -> dict[gf.Tensor, Array]:
        result = {}
        for t in [*self.carry, *self.xs, *self.captures]:
            shape = [self.sizes[str(d)] if isinstance(d, Dim) else d for d in t.shape]
            values = self.rng.normal(size=shape) * 3
            whole = values if t.dtype.is_inexact else np.abs(values).astype(np.int64)
            result[t] = np.asarray(whole).astype(t.dtype.dtype)
        return result

    def iteration(self, carry: Any, xs: Any, stacked: Sequence[Any]) -> Any:
        pool = [*carry, *xs, *self.captures]
        new = [self.made(pool, c.shape, c.dtype) for c in carry]
        return new, [self.made([*pool, *new], shape, gf.float32) for shape in stacked]

    def made(self, pool: Sequence[gf.Tensor], shape: Any, dtype: gf.DType) -> gf.Tensor:
        fitting = [t for t in pool if fits(t.shape, shape)] or [gf.asarray(2.0)]
        for _ in range(self.rng.integers(1, 6)):
            a, b = self.choice(fitting), self.choice(fitting)
            fitting.append(self.combined(a, b))
        return gf.broadcast_to(self.cast(fitting[-1], dtype), shape)

    def combined(self, a: gf.Tensor, b: gf.Tensor) -> gf.Tensor:
        b = self.cast(b, a.dtype)
        if a.dtype.is_bool:
            return gf.logical_xor(a, b)
        functions: list[Callable[..., gf.Tensor]] = [
            gf.add,
            gf.subtract,
            gf.multiply,
            gf.maximum,
            lambda x, y: gf.where(x < y, x + 1, y),
            lambda x, y: gf.minimum(gf.abs(x), y),
        ]
        if a.dtype.is_inexact:
            functions += [gf.divide, lambda x, y: gf.sqrt(gf.abs(x)) - y]
        return self.choice(functions)(a, b)

    def cast(self, x: gf.Tensor, dtype: gf.DType) -> gf.Tensor:
        if x.dtype.is_inexact and dtype.is_integer:  # out of range anything may come out
            x = x > 1
        return gf.astype(x, dtype)


def fits(shape: Sequence[Any], into: Sequence[Any]) -> bool:
    pairs = zip(reversed(shape), reversed(into), strict=False)
    return len(shape) <= len(into) and all(a in (1, b) for a, b in pairs)


@pytest.mark.exhaustive(every=6)
@pytest.mark.parametrize("seed", range(48))
def test_random_bodies(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = RandomBody(seed)
    fetches, feeds = [*made.last, *made.stacks], made.feeds
    got = runs(made.graph, fetches, feeds)
    same(got, otherwise(monkeypatch, made.graph, fetches, feeds))
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    with gf.Session(made.graph) as session:
        same(got, session.compile(fetches, feeds=list(feeds))(*feeds.values()))


def both(
    monkeypatch: pytest.MonkeyPatch,
    graph: gf.Graph,
    fetches: Sequence[gf.Tensor],
    feeds: dict[gf.Tensor, Array],
    rtol: float,
) -> None:
    """See that loops as kernels compute what NumPy does node by node, up to rounding."""
    got = runs(graph, fetches, feeds)
    with monkeypatch.context() as patch, gf.Session(graph) as session:
        patch.setenv("GRAPHFW_JIT", "0")
        wanted = session.compile(fetches, feeds=list(feeds))(*feeds.values())
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


def lorenz(state: gf.Tensor, axis: int, sigma: Any, rho: Any, beta: Any) -> gf.Tensor:
    x, y, z = gf.unstack(state, axis=axis)
    slopes = [sigma * (y - x), x * (rho - z) - y, x * y - beta * z]
    return state + 0.01 * gf.stack(slopes, axis=axis)


@pytest.mark.exhaustive
@pytest.mark.parametrize("batch", [(), (1,), (3,), (64,), (70,), ("n",)], ids=str)
@pytest.mark.parametrize("axis", [0, -1])
def test_systems_of_equations_with_gradients(
    batch: tuple[Any, ...], axis: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    with gf.Graph() as graph:
        start = gf.placeholder((3, *batch) if axis == 0 else (*batch, 3), gf.float64)
        given = [gf.placeholder((), gf.float64) for _ in range(3)]
        last, states = gf.scan(
            lambda c, _: (lorenz(c, axis, *given), c), start, length=20, reverse=axis == 0
        )
        loss = gf.sum(states * states) + gf.sum(last)
        slopes = gf.grad(loss, [start, *given])
    sizes = tuple([5 if d == "n" else d for d in batch])
    value = rng.normal(size=(3, *sizes) if axis == 0 else (*sizes, 3))
    feeds = {start: value, **{t: np.array(v) for t, v in zip(given, (10, 28, 2.7), strict=True)}}
    both(monkeypatch, graph, [last, states, *slopes], feeds, rtol=1e-10)


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (5, 1)], ids=str)
@pytest.mark.parametrize("batch", [0, 1, 70])
def test_gradients_of_what_lanes_share(
    shape: tuple[int, ...], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sums over some or all lanes; `shape` is that of the factor without the batch.
    rng = np.random.default_rng(12)
    with gf.Graph() as graph:
        x = gf.placeholder(("n", 5, 3), gf.float64)
        rows = gf.placeholder(("t", "n", 5, 3), gf.float64)
        w = gf.placeholder(shape, gf.float64)
        u = gf.placeholder(("n", 1, 1), gf.float64)
        last, _ = gf.scan(lambda c, v: (gf.tanh(c * w + v * u), None), x, rows)
        slopes = gf.grad(gf.sum(last * last), [x, rows, w, u])
    sizes = {x: (batch, 5, 3), rows: (4, batch, 5, 3), w: shape, u: (batch, 1, 1)}
    feeds = {t: rng.normal(size=size) for t, size in sizes.items()}
    both(monkeypatch, graph, [last, *slopes], feeds, rtol=1e-10)


def test_second_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    with gf.Graph() as graph:
        x, w = (gf.placeholder((7,), gf.float64) for _ in range(2))
        rows = gf.placeholder(("t", 7), gf.float64)
        last, _ = gf.scan(lambda c, v: (gf.sin(c * w + v), None), x, rows)
        first = gf.grad(gf.sum(last * last), [x, w, rows])
        second = gf.grad(gf.sum(sum(gf.sum(g * g) for g in first)), [x, w, rows])
    rng = np.random.default_rng(6)
    for iterations in (0, 1, 4):
        feeds = {
            x: rng.normal(size=7),
            w: rng.normal(size=7),
            rows: rng.normal(size=(iterations, 7)),
        }
        both(monkeypatch, graph, [*first, *second], feeds, rtol=1e-10)


def test_gradients_by_differences() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((2, 3), gf.float64)
        w = gf.placeholder((3,), gf.float64)
        c = gf.placeholder((), gf.float64)
        last, rows = gf.scan(lambda h, v: (gf.tanh(h * w + v * c), h * h), w, x)
        loss = gf.sum(last) + gf.sum(rows)
        slopes = gf.grad(loss, [x, w, c])
    rng = np.random.default_rng(7)
    values = [rng.normal(size=shape) for shape in ((2, 3), (3,), ())]
    with gf.Session(graph) as session:
        plan = session.compile([loss, *slopes], feeds=[x, w, c])
        assert one_kernel(plan)
        _, *got = plan(*values)
        for number, slope in enumerate(got):
            for index in np.ndindex(slope.shape):
                sides = []
                for step in (1e-6, -1e-6):
                    moved = [np.array(v) for v in values]
                    moved[number][index] += step
                    sides.append(float(plan(*moved)[0]))
                assert slope[index] == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-6)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    with gf.Graph() as graph:
        x, rows = gf.placeholder((5, 1000)), gf.placeholder((30, 5, 1000))
        w = gf.placeholder(())
        last, stack = gf.scan(lambda c, v: (gf.tanh(c * w + v), c * c), x, rows)
        slope = gf.grad(gf.sum(stack) + gf.sum(last), w)
    rng = np.random.default_rng(8)
    values = [rng.normal(size=t.shape).astype(np.float32) for t in (x, rows, w)]
    results = []
    for threads in (1, 2, 7):
        with gf.Session(graph, threads=threads) as session:
            plan = session.compile([last, stack, slope], feeds=[x, rows, w])
            assert one_kernel(plan)
            results.append(plan(*values))
    same(results[1], results[0])
    same(results[2], results[0])


def test_operands_are_read_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((6, 8), gf.float64)
        rows, start = x[::2, ::-1].T, x.T[0, 1::2]
        last, stacked = gf.scan(lambda c, v: (c + v, c * v), start, rows, reverse=True)
    feeds = {x: np.asfortranarray(np.random.default_rng(9).normal(size=(12, 8)))[::2]}
    same(runs(graph, [last, stacked], feeds), otherwise(monkeypatch, graph, [last, stacked], feeds))


def test_carries_that_no_lane_tells_apart_are_there_without_lanes() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder(("n",))
        (count, total), counts = gf.scan(
            lambda c, _: ((c[0] + 1, c[1] * 2.0), c[0]), (gf.asarray(0), x), length=5
        )
    for n in (0, 1, 40):
        got = runs(graph, [count, total, counts], {x: np.ones(n, np.float32)})
        same(got, [np.array(5), np.full(n, 32, np.float32), np.arange(5)])


def test_numbers_of_iterations_and_fibonacci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # "values" has no sizes for dims of no tensor
    with gf.Graph() as graph:
        n = gf.placeholder(("n",), gf.int64)
        pair = gf.fori_loop(0, n.shape[0], lambda i, c: (c[1], c[0] + c[1]), (0, 1))
        numbers = gf.scan(lambda c, x: (c + x, c), 0, gf.arange(6), reverse=True)[1]
    got = runs(graph, [pair[0], numbers], {n: np.zeros(10, np.int64)})
    assert int(got[0]) == 55
    assert got[1].tolist() == [15, 14, 12, 9, 5, 0]


def test_iterations_that_hand_nothing_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with gf.Graph() as graph:
        x, w = gf.placeholder(("t", 5)), gf.placeholder((5,))
        y = gf.map(lambda v: v * w - gf.abs(v), x)
        lengths = gf.map(lambda v: v * v, x[:, 0])
    for iterations in (0, 1, 70):
        feeds = {x: np.random.default_rng(11).normal(size=(iterations, 5)).astype(np.float32)}
        feeds[w] = np.arange(5, dtype=np.float32)
        same(runs(graph, [y, lengths], feeds), otherwise(monkeypatch, graph, [y, lengths], feeds))
    with gf.Session(graph) as session:
        assert "kernel rows" in session.compile(y, feeds=[x, w]).source()


def test_elements_that_integers_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with gf.Graph() as graph:
        rows, order = gf.placeholder(("t", 4)), gf.placeholder((6,), gf.int32)
        each, table = gf.placeholder((4,), gf.int64), gf.placeholder((9,))
        last = gf.fori_loop(
            0,
            6,
            lambda i, c: c * table[i] + rows[order[i]] - gf.take(table, each) + table[-1],
            gf.zeros((4,)),
        )
    rng = np.random.default_rng(13)
    feeds = {
        rows: rng.normal(size=(5, 4)).astype(np.float32),
        order: np.array([4, 0, -1, 2, -5, 1], np.int32),
        each: np.array([8, 0, -9, 3]),
        table: rng.normal(size=9).astype(np.float32),
    }
    same(runs(graph, [last], feeds), otherwise(monkeypatch, graph, [last], feeds))
    with gf.Session(graph) as session:
        plan = session.compile([last], feeds=list(feeds))
        for wrong in ({order: np.array([0, 0, 5, 0, 0, 0], np.int32)}, {each: np.full(4, -10)}):
            with pytest.raises(gf.ExecutionError, match="out of range"):
                plan(*{**feeds, **wrong}.values())


@pytest.mark.parametrize("count", [0, 1, 5, 50])
def test_lanes_along_short_axes(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with gf.Graph() as graph:
        x, w = gf.placeholder(("n", 2, 3)), gf.placeholder((3,))
        u, rows = gf.placeholder(("n", 1, 1)), gf.placeholder((4, 2, 3))
        picked, table = gf.placeholder(("n", 2, 3), gf.int32), gf.placeholder((7,))

        def iteration(c: gf.Tensor, v: gf.Tensor) -> Any:
            limits = gf.reshape(gf.arange(6, dtype=gf.float32), (2, 3))
            return gf.maximum(c * w + v, limits) - u * table[picked], c + v

        last, stack = gf.scan(iteration, x, rows, reverse=True)
    rng = np.random.default_rng(14)
    sizes = {x: (count, 2, 3), w: (3,), u: (count, 1, 1), rows: (4, 2, 3), table: (7,)}
    feeds = {t: rng.normal(size=size).astype(np.float32) for t, size in sizes.items()}
    feeds[picked] = rng.integers(0, 7, (count, 2, 3)).astype(np.int32)
    same(runs(graph, [last, stack], feeds), otherwise(monkeypatch, graph, [last, stack], feeds))


def test_loops_inside_of_loops() -> None:
    with gf.Graph() as graph:
        x, w = gf.placeholder((3, 4), gf.float64), gf.placeholder((4, 4), gf.float64)

        def inner(c: gf.Tensor) -> gf.Tensor:
            return gf.scan(lambda a, _: (gf.tanh(a), None), c, length=3)[0]

        y = gf.scan(lambda c, _: (inner(c @ w), None), x, length=5)[0]
    rng = np.random.default_rng(15)
    value, weight = rng.normal(size=(3, 4)), rng.normal(size=(4, 4))
    with gf.Session(graph) as session:
        plan = session.compile(y, feeds=[x, w])
        assert "| " in plan.explain()
        assert "its iterations are one kernel" in plan.explain()
        got = plan(value, weight)
    for _ in range(5):
        value = np.tanh(np.tanh(np.tanh(value @ weight)))
    np.testing.assert_allclose(got, value, rtol=1e-10)


def test_bodies_that_mix_lanes_are_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    def bodies() -> dict[str, Callable[[gf.Tensor], gf.Tensor]]:
        return {
            "neighbours": lambda c: gf.concat([c[1:], c[:1]]) * 0.5,
            "turned round": lambda c: gf.flip(c) * 0.5,
            "one for all": lambda c: c + c[3],
            "mean": lambda c: c - gf.mean(c),
            "sorted": gf.sort,
        }

    value = np.random.default_rng(10).normal(size=40)
    for name, body in bodies().items():
        with gf.Graph() as graph:
            x = gf.placeholder((40,), gf.float64)
            y = gf.scan(lambda c, _, body=body: (body(c), None), x, length=7)[0]
        with gf.Session(graph) as session:
            plan = session.compile(y, feeds=[x])
            assert "one kernel" not in plan.explain(), name
            got = plan(value)
        with monkeypatch.context() as patch, gf.Session(graph) as session:
            patch.setenv("GRAPHFW_JIT", "0")
            np.testing.assert_allclose(got, session.run(y, {x: value}), rtol=1e-12)


@pytest.mark.parametrize("taken", [np.s_[:-1], np.s_[1:], np.s_[:1]], ids=str)
@pytest.mark.parametrize("size", ["n", 3])
def test_instances_along_a_section_of_the_carry_are_no_kernel(
    taken: slice, size: str | int
) -> None:
    """The widest output has as many lanes as are taken: the other elements have none."""

    def body(carry: gf.Tensor, x: gf.Tensor) -> tuple[gf.Tensor, gf.Tensor]:
        return carry * 2 + x, gf.concat([carry[taken], -carry[taken]], axis=1)

    with gf.Graph() as graph:
        start, xs = gf.placeholder((size, 1), "float64"), gf.placeholder(("t",), "float64")
        fetches = gf.scan(body, start, xs)
    first = np.array([[1.0], [2.0], [3.0]])
    with gf.Session(graph) as session:
        last, rows = session.run(list(fetches), {start: first, xs: np.array([10.0, 20.0])})
    np.testing.assert_array_equal(last, (first * 2 + 10) * 2 + 20)
    for got, carry in zip(rows, [first, first * 2 + 10], strict=True):
        np.testing.assert_array_equal(got, np.concatenate([carry[taken], -carry[taken]], axis=1))


def test_stacks_without_elements() -> None:
    with gf.Graph() as graph:
        start, one = gf.placeholder((2,), "float64"), gf.placeholder((1,), "float64")
        xs = gf.placeholder(("t",), "float64")
        last, rows = gf.scan(lambda carry, x: (carry * x, one[:-1]), start, xs)
        loss = gf.sum(gf.sin(rows)) + gf.sum(last)
        fetches = [last, rows, *gf.grad(loss, [start, one])]
    with gf.Session(graph) as session:
        fed = {start: np.ones(2), one: np.ones(1), xs: np.array([2.0, 3.0])}
        found = session.run(fetches, fed)
    for x, wanted in zip(found, [[6.0, 6.0], np.ones((2, 0)), [6.0, 6.0], [0.0]], strict=True):
        np.testing.assert_array_equal(x, wanted)


def test_sums_over_lanes_that_an_iteration_reads_are_no_kernel() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((40,), gf.float64)
        state = (x, gf.zeros((), dtype=gf.float64))
        (_, total), seen = gf.scan(lambda c, _: ((c[0], c[1] + gf.sum(x)), c[1]), state, length=3)
    with gf.Session(graph) as session:
        got = session.run([total, seen], {x: np.ones(40)})
    assert float(got[0]) == 120
    assert got[1].tolist() == [0, 40, 80]


def test_what_a_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((50,))
        y = gf.scan(lambda c, _: (gf.sin(c), None), x, length=9)[0]
    value = np.linspace(0, 1, 50, dtype=np.float32)
    with gf.Session(graph, verify="first-run") as session:
        plan = session.compile(y, feeds=[x])
        plan(value)
        assert "scan (its iterations are one kernel)" in plan.explain()
        assert "next c0 = sin(c0)" in plan.source()
        assert "its iterations are one kernel" in str(plan.profile(value))
        assert plan.memory().peak < 2000


def test_memory_of_carries_is_written_over() -> None:
    with gf.Graph() as graph:
        x = gf.placeholder((1 << 16,))
        y = gf.scan(lambda c, _: (gf.sin(c), None), gf.cumulative_sum(x), length=3)[0]
        z = gf.cumulative_sum(y)
    with gf.Session(graph) as session:
        plan = session.compile(z, feeds=[x])
        report = plan.memory()
        assert report.peak <= 3 * (1 << 18) + 4096
