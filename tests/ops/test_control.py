"""Branches and loops: values, gradients of several orders, mistakes.

Long: the functions are tested with one another: loops in branches, checkpoints of scans.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, DTypeError, GraphError, GraphfwError, ShapeError

F64 = gf.float64


def run(fetches: Any, feeds: dict[Any, Any]) -> Any:
    graph = next(iter(feeds)).graph
    with gf.Session(graph) as session:
        return session.run(fetches, feeds)


def assert_equal(a: Any, b: Any, tolerance: float = 1e-10) -> None:
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


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


# scan.


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


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("length", [0, 1, 2, 3, 7])
def test_scan_equals_an_unrolled_loop(
    options: dict[str, Any], length: int, rng: np.random.Generator
) -> None:
    with gf.Graph():
        x = gf.placeholder(("t", 2, 3), F64)
        w, h = gf.placeholder((3, 3), F64), gf.placeholder((2, 3), F64)
        last, (rows, sums) = recurrent(x, w, h, **options)
        loss = gf.sum(last) + gf.sum(rows * rows) + gf.sum(sums)
        first = gf.grad(loss, [x, w, h])
        second = gf.grad(gf.sum(first[1] ** 2) + gf.sum(first[0]), [w, h])
        carry, kept, total = h, {}, 0.0
        order = range(length)
        for i in reversed(order) if options.get("reverse") else order:
            carry = gf.tanh(carry @ w + x[i])
            kept[i] = carry
            total = total + gf.sum(carry * carry) + gf.sum(carry * x[i])
        plain = gf.sum(carry) + total
        wanted = gf.grad(plain, [x, w, h], missing="zeros")
        again = gf.grad(gf.sum(wanted[1] ** 2) + gf.sum(wanted[0]), [w, h], missing="zeros")
        rows_ = gf.stack([kept[i] for i in order]) if length else gf.zeros((0, 2, 3), dtype=F64)
    feeds = {
        x: rng.normal(size=(length, 2, 3)),
        w: rng.normal(size=(3, 3)),
        h: rng.normal(size=(2, 3)),
    }
    got = run([last, rows, loss, *first, *second], feeds)
    expected = run([carry, rows_, plain, *wanted, *again], feeds)
    assert_equal(got, expected, 1e-9)


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


# while_loop.


@pytest.mark.parametrize("limit", [0.1, 5.0, 60.0])
def test_gradients_of_any_order_through_while_loops(limit: float, rng: np.random.Generator) -> None:
    with gf.Graph():
        x, w = gf.placeholder((3,), F64), gf.placeholder((3, 3), F64)

        def body(state: Any) -> Any:
            v, count = state
            return v + gf.sin(v) @ w + 1.0, count + 1

        last, trips = gf.while_loop(lambda s: gf.sum(s[0] * s[0]) < limit, body, (x, 0))
        orders = [gf.grad(gf.sum(gf.sin(last)), [x, w], missing="zeros")]
        for _ in range(2):
            orders.append(
                gf.grad(gf.sum(orders[-1][0] ** 2) + gf.sum(orders[-1][1]), [x, w], missing="zeros")
            )
    feeds = {x: rng.normal(size=3) * 0.5 + 0.4, w: rng.normal(size=(3, 3)) * 0.3}
    got = run([last, trips, *[g for order in orders for g in order]], feeds)
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


# Text.


def test_text_with_bodies_is_read_back() -> None:
    with gf.Graph("g") as graph:
        x = gf.placeholder(("t", 3), name="x")
        w = gf.Variable(np.arange(40.0), name="w")

        def step(carry: Any, row: Any) -> tuple[Any, Any]:
            new = gf.cond(gf.sum(row) > 0, lambda: carry + row, lambda: carry * 2)
            return new, gf.random.uniform((2,)) + gf.sum(w)

        last, rows = gf.scan(step, gf.zeros((3,)), x)
        looped = gf.while_loop(lambda v: gf.sum(v) < 9, lambda v: v + 1, last)
        graph.outputs = (gf.grad(gf.sum(looped) + gf.sum(rows), x), rows)
    text = str(graph)
    again = gf.parse(text, constants=graph.constants())
    assert str(again) == text
    value = np.ones((2, 3), np.float32)
    with gf.Session(graph, seed=2) as one, gf.Session(again, seed=2) as other:
        a = one.run(list(graph.outputs), {"x": value})
        b = other.run(list(again.outputs), {"x": value})
    assert_equal(a, b)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("yields %2", ""), "no lines `takes` and `yields`"),
        (("takes %0, %1", "takes %0, %2"), "takes placeholders"),
        (("body.b0", "body.b7"), "b7 is not above"),
        (("body b0 {", "body b0"), "begins no body"),
        (("yields %2", "yields %9"), "%9 is not defined"),
        (("yields %2", "output %2"), "no line `output`"),
    ],
)
def test_text_with_mistakes(change: tuple[str, str], message: str) -> None:
    text = """graph "g" opset 1 {
  %0 = placeholder(name="x") : float32[]
  body b0 {
    %0 = placeholder() : int64[]
    %1 = placeholder() : float32[]
    %2 = sin(%1) : float32[]
    takes %0, %1
    yields %2
  }
  %1 = scan(%0, body=body.b0, length=3, carries=1, sequences=0, backwards=False) : float32[]
  output %1
}"""
    assert gf.parse(text).outputs
    with pytest.raises(gf.errors.ParseError, match=message):
        gf.parse(text.replace(*change))


# Mistakes.


def mistakes() -> list[tuple[str, Any, type[GraphfwError], str]]:
    return [
        ("branches", lambda x: gf.cond(True, lambda: x, lambda: x[0]), ShapeError, r"true_fn is"),
        (
            "dtypes",
            lambda x: gf.cond(True, lambda: x, lambda: gf.astype(x, F64)),
            DTypeError,
            "float64",
        ),
        (
            "structure",
            lambda x: gf.cond(True, lambda: x, lambda: (x,)),
            ArgumentError,
            "structures",
        ),
        ("pred", lambda x: gf.cond(x > 0, lambda: x, lambda: x), ShapeError, "not a scalar"),
        ("number", lambda x: gf.cond(x[0], lambda: x, lambda: x), DTypeError, "not bool"),
        ("value", lambda x: gf.cond(True, x, x), ArgumentError, "not a function"),
        ("none", lambda x: gf.switch(0, []), ArgumentError, "no branch"),
        ("carry", lambda x: gf.scan(lambda c, v: (c + v, v), 0, x), DTypeError, "first carry"),
        (
            "grows",
            lambda x: gf.scan(lambda c, v: (gf.stack([c, c]), v), x[0], x),
            ShapeError,
            "carry",
        ),
        ("pair", lambda x: gf.scan(lambda c, v: c, 0, x), ArgumentError, "not a pair"),
        ("length", lambda x: gf.scan(lambda c, v: (c, v), 0), ArgumentError, "how many trips"),
        ("scalar", lambda x: gf.scan(lambda c, v: (c, v), 0, x[0]), ShapeError, "no elements"),
        ("two", lambda x: gf.scan(lambda c, v: (c, 0), 0, (x, x[1:])), ShapeError, "2 elements"),
        ("negative", lambda x: gf.scan(lambda c, v: (c, 0), 0, length=-1), ArgumentError, "-1"),
        ("unroll", lambda x: gf.scan(lambda c, v: (c, 0), 0, x, unroll=0), ArgumentError, "unroll"),
        ("while", lambda x: gf.while_loop(lambda v: v, lambda v: v, x), ShapeError, "cond_fun"),
        (
            "body",
            lambda x: gf.while_loop(lambda v: True, lambda v: v[1:], x),
            ShapeError,
            "body_fun",
        ),
        ("fori", lambda x: gf.fori_loop(0, x, lambda i, v: v, x), ShapeError, "upper"),
        ("associate", lambda x: gf.associative_scan(lambda a, b: a[:, None], x), ShapeError, "fn"),
    ]


@pytest.mark.parametrize(("what", "make", "error", "message"), mistakes(), ids=lambda v: str(v)[:9])
def test_mistakes(what: str, make: Any, error: type[GraphfwError], message: str) -> None:
    with gf.Graph():
        x = gf.placeholder((3,))
        with pytest.raises(error, match=message) as caught:
            make(x)
    assert "test_control.py" in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 6


def test_what_is_inside_stays_inside() -> None:
    kept: list[Any] = []
    with gf.Graph() as graph:
        x = gf.placeholder((3,))
        gf.map(lambda v: kept.append(v) or v, x)
        with pytest.raises(GraphError, match="inside the body of a map"):
            kept[0] + 1
        with pytest.raises(GraphError, match="inside the body of a map"):
            gf.scan(lambda c, e: (c + kept[0], None), 0.0, x)
    with gf.Session(graph) as session, pytest.raises(GraphfwError):
        session.run(kept[0], {x: np.zeros(3, np.float32)})
