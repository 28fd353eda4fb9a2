"""Forward mode through loops, branches and checkpoints: values, and that loops run once."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import constant
from graphfw.ir.op import REGISTRY
from graphfw.ir.walk import ancestors
from graphfw.ops.control.region_op import Region
from tests.support.forwardcheck import check_tangents


def scanned(x, w, xs, reverse=False):
    """A carry that moves and an integer; captures; sequences; a stack that does not move."""

    def body(carry, elements):
        state, n = carry
        after = gf.tanh(state @ w) + elements[0] * gf.sum(state)
        return (after, n + 1), (after * elements[1], n)

    (state, _), (ys, _) = gf.scan(body, (x, 0), (xs, xs * 2), reverse=reverse)
    return [state, ys]


def backwards(x, w, xs):
    return scanned(x, w, xs, reverse=True)


def accumulated(x, w, xs):
    """The first carry does not move at first."""
    return [gf.scan(lambda c, e: (c + e @ w @ x, None), gf.zeros((), dtype=gf.float64), xs)[0]]


def through_while(x, w):
    """The number of trips depends on what moves."""

    def body(v):
        state, total, n = v
        return state * w * 1.3 + gf.sin(state), total + gf.sum(state * n), n + 1

    start = (x, gf.zeros((), dtype=gf.float64), gf.ones((), dtype=gf.float64))
    state, total, _ = gf.while_loop(lambda v: gf.max(v[0]) + v[2] < 7, body, start)
    return [state, total]


def branched(x, w):
    def one(i):
        return gf.switch(i, [gf.exp, gf.ones_like, lambda v: gf.sin(v) * w], x)

    return [*map(one, range(3)), gf.cond(gf.sum(x) > 0, lambda: x * w, lambda: w)]


def checkpointed(x, w):
    return gf.checkpoint(lambda v: (gf.exp(v * w), gf.prod(v)))(x)


def nested(x, w, xs):
    """A loop with a branch in a scan in a checkpoint."""

    def body(carry, element):
        def inner(v):
            return gf.cond(gf.sum(v) > 1, lambda: gf.sin(v) + element, lambda: v + w[0])

        return gf.fori_loop(0, gf.asarray(2), lambda i, v: inner(v), carry), gf.sum(carry)

    return gf.checkpoint(lambda c: gf.scan(body, c, xs))(x)


CASES = {
    "scan": (scanned, [(3,), (3, 3), (4, 3)]),
    "empty scan": (scanned, [(3,), (3, 3), (0, 3)]),
    "scan backwards": (backwards, [(3,), (3, 3), (4, 3)]),
    "accumulated": (accumulated, [(3,), (3, 3), (4, 3)]),
    "while": (through_while, [(3,), ()]),
    "branch": (branched, [(3,), (3,)]),
    "checkpoint": (checkpointed, [(3,), (3,)]),
    "nested": (nested, [(3,), (3, 3), (4, 3)]),
}

every = pytest.mark.parametrize(("fn", "shapes"), CASES.values(), ids=CASES)


def test_every_op_with_bodies_has_a_rule():
    with_bodies = {cls for cls in REGISTRY.values() if issubclass(cls, Region)}
    assert len(with_bodies) >= 4
    assert all(cls.jvp is not None for cls in with_bodies)


@every
def test_tangents(fn, shapes, rng):
    xs = [constant(rng.uniform(0.5, 1.5, size=s)) for s in shapes]
    check_tangents(fn, xs, rng)
    for index in range(len(xs)):
        check_tangents(lambda x, i=index: fn(*xs[:i], x, *xs[i + 1 :]), [xs[index]], rng)


@every
def test_gradients_and_tangents_of_each_other(fn, shapes, rng):
    xs = [constant(rng.uniform(0.5, 1.5, size=s)) for s in shapes]
    weights = [rng.normal(size=y.shape) for y in fn(*xs)]
    vs = tuple(constant(rng.normal(size=s)) for s in shapes)

    def total(*args):
        return sum(gf.sum(y * w) for y, w in zip(fn(*args), weights, strict=True))

    def gradient(*args):
        return gf.vjp(total, *args)[1](1.0)

    check_tangents(gradient, xs, rng)
    check_tangents(lambda *args: [gf.jvp(total, args, vs)[1]], xs, rng)


@every
def test_third_order(fn, shapes, rng):
    x, *rest = [constant(rng.uniform(0.5, 1.5, size=s)) for s in shapes]

    def total(x):
        return sum(gf.sum(y) for y in fn(x, *rest))

    def product(x):
        return gf.hvp(total, (x,), (gf.ones_like(x),))[1]

    check_tangents(product, [x], rng)


def test_loops_run_once(rng):
    x, w = (constant(rng.uniform(0.5, 1.5, size=(3,))) for _ in range(2))

    def fn(x):
        y, ys = gf.scan(lambda c, e: (c * e, gf.sin(c)), x, gf.stack([w, w]))
        (y,) = gf.while_loop(lambda v: gf.sum(v[0]) < 9, lambda v: (v[0] * 2,), (y,))
        return gf.cond(gf.sum(y) > 0, lambda: gf.exp(-y), lambda: y), ys

    ys, moved = gf.jvp(fn, (x,), (w,))
    found = [node.op.name for node in ancestors([*ys, *moved])]
    assert [found.count(name) for name in ("scan", "loop", "branch")] == [1, 1, 1]
    for y, expected in zip(ys, fn(x), strict=True):
        np.testing.assert_array_equal(y.numpy(), expected.numpy())


def doubly(x, w, xs):
    """A scan in a scan, with draws."""

    def body(carry, element):
        noise = gf.random.normal((3,), dtype=carry.dtype)
        after, sums = gf.scan(lambda c, e: (gf.tanh(c) * e, c @ w @ noise), carry, xs * element)
        return after * noise, sums

    return gf.scan(body, x, xs)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("name", [*CASES, "doubly"])
def test_linear_functions_are_the_tangents(name, rng):
    fn, shapes = CASES.get(name, (doubly, [(3,), (3, 3), (4, 3)]))
    with gf.Graph() as g, gf.default_dtype(gf.float64):
        xs = [gf.placeholder(s, name=f"x{i}") for i, s in enumerate(shapes)]
        vs = [gf.placeholder(s, name=f"v{i}") for i, s in enumerate(shapes)]
        ys, push = gf.linearize(lambda *args: tuple(fn(*args)), *xs)
        found = [*push(*vs), *push(vs[0], *[None] * len(vs[1:]))]
        # A second call draws other numbers.
        ys_again, wanted = (
            (ys, None)
            if name == "doubly"
            else gf.jvp(lambda *args: tuple(fn(*args)), tuple(xs), tuple(vs))
        )
    feeds = {x: rng.uniform(0.5, 1.5, size=x.shape) for x in xs}
    feeds.update({v: rng.normal(size=v.shape) for v in vs})
    count = len(ys)
    with gf.Session(g, seed=3) as session:
        values = session.run([ys, found], feeds)[1]
        if wanted is not None:
            expected = session.run([ys_again, wanted], feeds)[1]
            for a, b in zip(values[:count], expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    # Linear, for the same draws: by the first argument alone, and by twice as much.
    with gf.Session(g, seed=3) as session:
        doubled = session.run([ys, found], {**feeds, **{v: 2 * feeds[v] for v in vs}})[1]
    for a, b in zip(values, doubled, strict=True):
        np.testing.assert_allclose(2 * a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("fn", "times"), [(scanned, 1), (doubly, 2)])
def test_scans_keep_what_linear_functions_read(fn, times):
    with gf.Graph() as g:
        xs = [gf.placeholder(s, name=f"x{i}") for i, s in enumerate([(3,), (3, 3), (4, 3)])]
        ys, push = gf.linearize(lambda *args: tuple(fn(*args)), *xs)
        found = [push(*xs), push(*[x * 2 for x in xs])]
    with gf.Session(g) as session:
        plan = session.compile([ys, found], xs)

    def ops(nodes):
        for node in nodes:
            if isinstance(node.op, Region):
                for body in node.op.bodies:
                    yield from ops(body.nodes)
            yield node.op.name

    graph = plan.program.graph
    assert [*ops(graph.nodes)].count("tanh") == times  # however many tangents
    assert sum(node.op.name == "scan" for node in graph.nodes) == 2 + times


def test_loops_that_nothing_moves_are_left_alone():
    x = gf.asarray([1.0, 2.0])

    def fn(x, n):
        counted = gf.scan(lambda c, _: (c + gf.astype(gf.floor(x), gf.int64), None), n, length=3)[0]
        return x * counted

    _, moved = gf.jvp(fn, (x, gf.asarray([0, 0])), (x, None))
    (scan,) = [node for node in ancestors([moved]) if node.op.name == "scan"]
    assert len(scan.types) == 1


def test_what_is_drawn_in_a_loop_is_drawn_once():
    def fn(x):

        def drop(c):
            return c * gf.random.normal((3,), dtype=c.dtype)

        return gf.scan(lambda c, _: (drop(c), c), x, length=4)

    with gf.Graph() as graph:
        x = gf.placeholder((3,), name="x")
        ys, moved = gf.jvp(fn, (x,), (x,))  # linear: it moves as it is
        rows = gf.jacobian(lambda x: fn(x)[0], mode="forward")(x)
    with gf.Session(graph) as session:
        (y, stack), (ty, tstack), matrix = session.run([ys, moved, rows], {x: [1.0, 2.0, 3.0]})
    np.testing.assert_allclose(ty, y, rtol=1e-5)
    np.testing.assert_allclose(tstack, stack, rtol=1e-5)
    # Of a second call there are other draws; but in each column of one they are the same.
    assert np.count_nonzero(matrix) == 3


def test_what_happens_in_a_loop_happens_once(capsys):
    def fn(x):
        def body(c, _):
            gf.print("at {}", c)
            return c * 2, None

        return gf.scan(body, x, length=2)[0]

    with gf.Graph() as graph:
        x = gf.placeholder((), name="x")
        _, moved = gf.jvp(fn, (x,), (1.0,))
    with gf.Session(graph) as session:
        assert session.run(moved, {x: 3.0}) == 4
    assert capsys.readouterr().out.splitlines() == ["at 3.0", "at 6.0"]


def test_in_a_session_with_a_symbolic_length(rng):
    with gf.Graph() as graph:
        xs = gf.placeholder(("n", 3), name="xs")
        _, (last, stacked) = gf.jvp(
            lambda xs: gf.scan(lambda c, e: (c + gf.sum(e**2), c), 0.0, xs), (xs,), (xs,)
        )
    with gf.Session(graph) as session:
        for length in (0, 1, 5):
            a = rng.normal(size=(length, 3)).astype("float32")
            squares = 2 * (a**2).sum(1)
            got = session.run([last, stacked], {xs: a})
            np.testing.assert_allclose(got[0], squares.sum(), rtol=1e-5)
            np.testing.assert_allclose(got[1], np.cumsum(squares) - squares, rtol=1e-4, atol=1e-5)


def test_against_jax(rng):
    jax = pytest.importorskip("jax")
    w, x, v = (rng.normal(size=s).astype("float32") for s in ((3, 3), (3,), (3,)))
    xs = rng.normal(size=(5, 3)).astype("float32")

    def fn(lib, scan):
        return lambda x: scan(lambda c, e: (lib.tanh(c @ w) + e, c), x, xs)

    ours = gf.jvp(fn(gf, gf.scan), (x,), (v,))
    theirs = jax.jvp(fn(jax.numpy, jax.lax.scan), (x,), (v,))
    for a, b in zip(ours, theirs, strict=True):
        for one, two in zip(a, b, strict=True):
            np.testing.assert_allclose(one.numpy(), two, rtol=1e-4, atol=1e-5)
