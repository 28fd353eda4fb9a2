"""Updates of variables in bodies: once behind a loop, on the branch that is taken, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import GraphError

X = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


def run(build: Callable[..., Any], begin: float = 1.0) -> tuple[Any, float]:
    """Build on x: [4, 3] and a variable, run it with all updates, and return both's values."""
    with gf.Graph() as g:
        x = gf.placeholder((4, 3), name="x")
        v = gf.Variable(np.float32(begin), name="v")
        result = build(x, v)
    with gf.Session(g) as session:
        found = session.run([result, *g.updates], {x: X})[0]
        return found, float(session[v])


@pytest.mark.parametrize(("begin", "after"), [(1.0, 1 + X.sum()), (-1.0, -1.0)])
def test_a_branch_updates_where_it_is_taken(begin: float, after: float):
    def build(x, v):
        def changing():
            gf.update(v, v + gf.sum(x))
            return v * 2

        return gf.cond(v > 0, changing, lambda: v * 3)

    value, found = run(build, begin)
    assert value == (2 if begin > 0 else -3)  # reads see what it was
    assert found == pytest.approx(after)


def test_branches_update_several_variables():
    with gf.Graph() as g:
        i = gf.placeholder((), "int64", name="i")
        variables = [gf.Variable(0.0, name=name) for name in "ab"]
        a, b = variables
        kept = []

        def choice(*pairs):
            def function():
                kept.extend([gf.update(v, v + number) for v, number in pairs])
                return i

            return function

        gf.switch(i, [choice((a, 1.0)), choice((b, 2.0), (a, 3.0)), choice()])
    with gf.Session(g) as session:
        found = []
        for number in (0, 1, 2):
            session.run(kept, {i: number})
            found.append([float(session[v]) for v in variables])
        assert found == [[1, 0], [4, 2], [4, 2]]
        session.run(kept[1], {i: 1})  # an update is fetched as any other
        assert [float(session[v]) for v in variables] == [4, 4]


def test_checkpoints_update_once_although_they_compute_twice():
    def build(x, v):
        def inside(x):
            gf.update(v, v + 1)
            return gf.sum(gf.sin(x) * v)

        return gf.grad(gf.checkpoint(inside)(x) ** 2, x)

    assert run(build)[1] == 2


LOOPS = {
    "scan": lambda f, x: gf.scan(lambda c, _: (f(c), None), 0.0, x)[0],
    "reverse": lambda f, x: gf.scan(lambda c, _: (f(c), None), 0.0, x, reverse=True)[0],
    "unrolled": lambda f, x: gf.scan(lambda c, _: (f(c), None), 0.0, x, unroll=3)[0],
    "in blocks": lambda f, x: gf.scan(lambda c, _: (f(c), None), 0.0, x, checkpoint_every=3)[0],
    "fori": lambda f, x: gf.fori_loop(0, 4, lambda i, c: f(c), 0.0),
    "while": lambda f, x: gf.fori_loop(0, gf.asarray(4), lambda i, c: f(c), 0.0),
    "map": lambda f, x: gf.sum(gf.map(lambda row: f(gf.asarray(0.0)), x)),
    "branch in a loop": lambda f, x: gf.fori_loop(
        0, 4, lambda i, c: gf.cond(c > -1, lambda: f(c), lambda: c), 0.0
    ),
    "checkpoint in a loop": lambda f, x: gf.scan(
        lambda c, _: (gf.checkpoint(f)(c), None), 0.0, length=4
    )[0],
    "nested": lambda f, x: gf.scan(
        lambda c, _: (gf.scan(lambda c, _: (f(c), None), c, length=2)[0], None), 0.0, length=2
    )[0],
}


@pytest.mark.parametrize("loop", LOOPS)
def test_in_loops_each_trip_reads_what_the_one_before_gave(loop: str):
    def build(x, v):
        def iteration(c):
            gf.update(v, v * 2)
            return c + v

        return LOOPS[loop](iteration, x)

    assert run(build, 3.0) == (3 + 6 + 12 + 24, 48.0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("loop", LOOPS)
def test_gradients_flow_through_what_trips_hand_on(loop: str, apart: bool):
    def build(x, v):
        def iteration(c):
            if apart:  # in a body that does not read it besides

                def squared():
                    gf.update(v, v * v)
                    return c

                return gf.checkpoint(squared)() + v
            gf.update(v, v * v)
            return c + v

        return gf.grad(LOOPS[loop](iteration, x), v)

    v = 1.1
    value, after = run(build, v)
    assert value == pytest.approx(1 + 2 * v + 4 * v**3 + 8 * v**7, rel=1e-5)
    assert after == pytest.approx(v**16, rel=1e-5)


def test_conditions_read_what_the_trips_gave():
    def build(x, v):
        def iteration(c):
            gf.update(v, v + 1)
            return c + gf.sum(x)

        return gf.while_loop(lambda c: v < 4, iteration, 0.0)

    value, after = run(build)
    assert value == pytest.approx(3 * X.sum())
    assert after == 4


def test_variables_of_a_body_may_get_the_same_value():
    with gf.Graph() as g:
        x = gf.placeholder((), name="x")
        a, b = (gf.Variable(1.0, name=name) for name in "ab")

        def inside(x):
            twice = x * 2
            gf.update(a, twice), gf.update(b, twice)
            return twice

        y = gf.checkpoint(inside)(x)
    with gf.Session(g) as session:
        session.run([y, *g.updates], {x: np.float32(3)})
        assert (session[a], session[b]) == (6, 6)


def test_no_trips_change_nothing():
    def build(x, v):
        def iteration(c, _):
            gf.update(v, v + 1)
            return c, None

        return gf.scan(iteration, 0.0, x[:0])[0]

    assert run(build) == (0.0, 1.0)


NETS = {
    "plain": lambda f, x: f(f(f(x))),
    "checkpoints": lambda f, x: gf.checkpoint(f)(gf.checkpoint(f)(f(x))),
    "checkpoint": lambda f, x: gf.checkpoint(lambda x: f(f(f(x))))(x),
    "scan": lambda f, x: gf.scan(lambda c, _: (f(c), None), x, length=3)[0],
    "blocks": lambda f, x: gf.scan(lambda c, _: (f(c), None), x, length=3, checkpoint_every=2)[0],
    "while": lambda f, x: gf.fori_loop(0, gf.asarray(3), lambda i, c: f(c), x),
    "branch": lambda f, x: gf.cond(gf.sum(x) > -1e9, lambda: f(f(f(x))), lambda: x),
    "nested": lambda f, x: gf.checkpoint(
        lambda x: gf.scan(lambda c, _: (gf.checkpoint(f)(c), None), x, length=3)[0]
    )(x),
}


def trained(kind: str, array: np.ndarray, momentum: float | None) -> dict[str, Any]:
    with gf.Graph() as g, gf.training():
        x = gf.placeholder(("batch", 3), name="x")
        linear, norm = (
            gf.nn.Linear(3, 3, name="linear"),
            gf.nn.BatchNorm(3, momentum=momentum, name="norm"),
        )
        y = NETS[kind](lambda h: gf.tanh(norm(linear(h))), x)
        loss = gf.mean((y - 0.3) ** 2)
        step = gf.optim.SGD(0.1).minimize(loss)
    with gf.Session(g, seed=1) as session:
        for _ in range(3):
            session.run(step, {x: array})
        return session.state_dict()


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("kind", [kind for kind in NETS if kind != "plain"])
def test_statistics_of_layers_in_bodies(
    kind: str, momentum: float | None, rng: np.random.Generator
):
    array = rng.normal(size=(7, 3)).astype(np.float32)
    plain, found = trained("plain", array, momentum), trained(kind, array, momentum)
    assert found.keys() == plain.keys()
    assert np.abs(plain["norm.running_mean"]).min() > 0.001
    for name, wanted in plain.items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6, err_msg=name)


def test_functions_update_in_branches():
    count = None

    @gf.function
    def counted(x):
        nonlocal count
        count = gf.Variable(0.0, name="count")

        def negative():
            gf.update(count, count + 1)
            return gf.sum(x)

        return gf.cond(gf.sum(x) < 0, negative, lambda: gf.sum(x))

    for x in (1.0, -1.0, -2.0):
        assert counted(np.full(2, x, np.float32)) == 2 * x
    assert float(counted.session["count"]) == 2


# Mistakes.


def doubling(v):
    gf.update(v, v * 2)
    return v


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda x, v: gf.vmap(lambda row: doubling(v))(x),
            'each example of a vmap would give "v" another value',
        ),
        (
            lambda x, v: gf.vmap(lambda row: gf.checkpoint(lambda: doubling(v))())(x),
            'each example of a vmap would give "v" another value',
        ),
        (
            lambda x, v: gf.custom_gradient(lambda x: (x * 1, lambda ct: ct * doubling(v)))(x),
            '"v" would be updated in a custom_gradient',
        ),
        (
            lambda x, v: gf.while_loop(lambda c: doubling(v) < c, lambda c: c, 0.0),
            'the condition updates "v"',
        ),
        (
            lambda x, v: gf.checkpoint(lambda: (doubling(v), gf.update(v, v + 1))[0])(),
            '"v" is updated twice in the body of a checkpoint',
        ),
    ],
)
def test_what_has_no_clear_meaning_is_refused(call: Callable[..., Any], match: str):
    with gf.Graph():
        x = gf.placeholder((4, 3), name="x")
        v = gf.Variable(1.0, name="v")
        with pytest.raises(GraphError, match=match) as caught:
            call(x, v)
    assert caught.value.fix


def test_layers_with_statistics_under_vmap():
    with gf.Graph(), gf.training():
        x = gf.placeholder((4, 5, 3), name="x")
        norm = gf.nn.BatchNorm(3)
        with pytest.raises(GraphError, match="each example of a vmap") as caught:
            gf.vmap(norm)(x)
        assert "model(x, training=False)" in caught.value.fix


# Whole training loops.


@pytest.mark.parametrize("clip", [None, 0.1])
def test_optimisers_step_in_loops(clip: float | None, rng: np.random.Generator):
    """Many steps in one run are the same as runs of one step."""
    xs = rng.normal(size=(9, 7, 3)).astype(np.float32)

    def trained(in_loop: bool) -> tuple[np.ndarray, dict[str, Any]]:
        with gf.Graph() as g, gf.training():
            dims = ("steps", "batch", 3) if in_loop else ("batch", 3)
            batches = gf.placeholder(dims, name="x")
            model = gf.nn.Sequential(gf.nn.Linear(3, 4), gf.nn.BatchNorm(4), gf.nn.Linear(4, 1))
            rate = gf.optim.schedules.step_decay(0.05, 4)
            optimizer = gf.optim.Adam(rate, clip_norm=clip)

            def step(_, x):
                loss = gf.mean((model(x) - gf.sum(x, axis=1, keepdims=True)) ** 2)
                optimizer.minimize(loss)
                return (), loss

            losses = (gf.scan(step, (), batches) if in_loop else step((), batches))[1]
            train = g.updates[-1] if not in_loop else list(g.updates)
        with gf.Session(g, seed=2) as session:
            runs = [xs[:5], xs[5:]] if in_loop else list(xs)
            values = [session.run([losses, train], {batches: x})[0] for x in runs]
            return np.concatenate([np.atleast_1d(v) for v in values]), session.state_dict()

    one, plain = trained(in_loop=False)
    other, looped = trained(in_loop=True)
    np.testing.assert_allclose(other, one, rtol=1e-4)
    assert plain.keys() == looped.keys()
    for name, wanted in plain.items():
        if not name.startswith("session/"):
            np.testing.assert_allclose(looped[name], wanted, rtol=1e-3, atol=1e-5, err_msg=name)
    assert looped["adam.step"] == 9


def test_functions_train_in_loops(rng: np.random.Generator):
    optimizer = gf.optim.SGD(0.1)

    @gf.function
    def epoch(xs):
        w = gf.Variable(np.zeros(3, np.float32), name="w")

        def step(_, x):
            loss = gf.mean((x @ w - gf.sum(x, axis=1)) ** 2)
            optimizer.minimize(loss)
            return (), loss

        return gf.scan(step, (), xs)[1]

    losses = [epoch(rng.normal(size=(20, 8, 3)).astype(np.float32)) for _ in range(2)]
    assert losses[0][0] > 1
    assert losses[1].max() < 0.01
    np.testing.assert_allclose(epoch.session["w"], 1, atol=0.02)


def test_optimisers_in_bodies_say_what_the_loss_lacks():
    with gf.Graph():
        w = gf.Variable(1.0, name="w")
        fixed = gf.Variable(1.0, name="fixed", trainable=False)
        optimizer = gf.optim.SGD(0.1)
        for loss, match in [
            (lambda: fixed * 2, '"fixed" alone, not trainable'),
            (lambda: gf.stop_gradient(w) * 2, 'on "w" only through stop_gradient'),
            (lambda: gf.asarray(2.0), "depends on no trainable variable"),
        ]:
            with pytest.raises(gf.GradientError, match=match):
                gf.checkpoint(lambda loss=loss: optimizer.minimize(loss()))()
        with pytest.raises(GraphError, match="each example of a vmap"):
            gf.vmap(lambda x: (optimizer.minimize(w * x), x)[1])(gf.asarray([1.0, 2.0]))
