"""Chains of optimisers: beside the named ones, PyTorch's, and optax's formulas."""

import numpy as np
import pytest

import graphfw as gf
from graphfw import optim
from graphfw.optim import schedules
from graphfw.optim import transforms as t
from tests.support.training_steps import ours, problem_of, same, theirs

torch = pytest.importorskip("torch")
BETAS = (0.8, 0.95)


@pytest.fixture
def problem(rng):
    return problem_of(rng)


def exactly(got, expected):
    for a, b in zip(got, expected, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(
    ("chained", "named"),
    [
        (lambda: optim.chain(optim.Adam(0.1)), lambda: optim.Adam(0.1)),
        (lambda: optim.chain(optim.Muon(0.1)), lambda: optim.Muon(0.1, weight_decay=0.1)),
        (lambda: optim.chain(optim.Adafactor(0.1)), lambda: optim.Adafactor(0.1)),
        (lambda: optim.chain(optim.LAMB(0.1)), lambda: optim.LAMB(0.1)),
        (lambda: optim.chain(t.trace(0.9), t.scale(0.05)), lambda: optim.SGD(0.05, 0.9)),
        (
            lambda: optim.chain(optim.chain(t.trace(0.9, nesterov=True)), lr=0.05),
            lambda: optim.SGD(0.05, 0.9, nesterov=True),
        ),
    ],
)
def test_a_chain_makes_the_steps_of_what_it_is_made_of(problem, chained, named):
    got, expected = ours(chained, *problem, "float64"), ours(named, *problem, "float64")
    same(got, expected, "float64")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_chain_of_one_makes_the_same_bits(problem, dtype):
    exactly(
        ours(lambda: optim.chain(optim.Adam(0.1, BETAS)), *problem, dtype),
        ours(lambda: optim.Adam(0.1, BETAS), *problem, dtype),
    )


AGAINST_TORCH = {
    "adam": (
        lambda: optim.chain(t.scale_by_adam(BETAS, 1e-6), lr=0.1),
        lambda p: torch.optim.Adam(p, 0.1, BETAS, 1e-6),
    ),
    "adamw": (
        lambda: optim.chain(t.scale_by_adam(), t.add_decayed_weights(0.3), lr=0.1),
        lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.3),
    ),
    "adamw as a member": (
        lambda: optim.chain(optim.AdamW(0.1, weight_decay=0.3)),
        lambda p: torch.optim.AdamW(p, 0.1, weight_decay=0.3),
    ),
    "sgd": (
        lambda: optim.chain(t.add_decayed_weights(0.1), t.trace(0.9), t.scale(0.05)),
        lambda p: torch.optim.SGD(p, 0.05, 0.9, weight_decay=0.1),
    ),
    "decay before": (
        lambda: optim.chain(t.trace(0.9), lr=0.05, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, 0.05, 0.9, weight_decay=0.1),
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", AGAINST_TORCH)
def test_against_torch(problem, name, dtype):
    make, make_theirs = AGAINST_TORCH[name]
    same(ours(make, *problem, dtype), theirs(make_theirs, *problem, dtype), dtype)


def by_formula(change, starts, data):
    """Return the parameters after each step of a change of all gradients."""
    params = [s.astype("float64") for s in starts]
    state, history = {}, []
    for count, arrays in enumerate(data, 1):
        grads = [
            2 * i * (p - d) + 1.5 * np.cos(3 * p)
            for i, (p, d) in enumerate(zip(params, arrays, strict=True), 1)
        ]
        steps = change(grads, params, count, state)
        params = [np.asarray(p - s) for p, s in zip(params, steps, strict=True)]
        history.append(params)
    return history


def means(name, values, decay, state):
    before = state.get(name, [0.0] * len(values))
    state[name] = [decay * m + (1 - decay) * v for m, v in zip(before, values, strict=True)]
    return state[name]


def clipped(grads, limit):
    norm = np.sqrt(sum(np.sum(g * g) for g in grads))
    return [g * min(1, limit / norm) for g in grads]


def test_a_norm_is_clipped_anywhere(problem):
    def change(grads, params, count, state):
        m = means("m", grads, 0.9, state)
        v = means("v", [g * g for g in grads], 0.999, state)
        found = [
            a / (1 - 0.9**count) / (np.sqrt(b / (1 - 0.999**count)) + 1e-8)
            for a, b in zip(m, v, strict=True)
        ]
        return [0.1 * g for g in clipped(found, 0.7)]

    got = ours(
        lambda: optim.chain(t.scale_by_adam(), t.clip_by_global_norm(0.7), lr=0.1),
        *problem,
        "float64",
    )
    same(got, by_formula(change, *problem), "float64")


@pytest.mark.parametrize("debias", [True, False])
def test_ema_values_and_schedules(problem, debias):
    def change(grads, params, count, state):
        cut = [np.clip(g, -1.5, 1.5) for g in grads]
        bias = 1 - 0.7**count if debias else 1
        rate = 0.3 * 0.5 ** (count - 1)
        return [rate * m / bias for m in means("m", cut, 0.7, state)]

    got = ours(
        lambda: optim.chain(
            t.clip_by_value(1.5),
            t.ema(0.7, debias),
            t.scale_by_schedule(schedules.exponential(0.3, 0.5)),
        ),
        *problem,
        "float64",
    )
    same(got, by_formula(change, *problem), "float64")


def test_centralize(rng):
    starts, data = problem_of(rng, ((4, 3), (2, 3, 5), (5,)))

    def change(grads, params, count, state):
        a, b, c = grads
        centred = a - a.mean(0, keepdims=True), b - b.mean((1, 2), keepdims=True), c
        return [0.1 * g for g in centred]

    got = ours(lambda: optim.chain(t.centralize(), lr=0.1), starts, data, "float64")
    same(got, by_formula(change, starts, data), "float64")


def test_noise(rng):
    with gf.Graph() as g:
        w = gf.Variable(np.zeros(40_000), name="w", dtype="float64")
        train = optim.chain(t.add_noise(4.0, 2.0)).minimize(gf.sum(w))
    moves = []
    for seed in (1, 1, 2):
        with gf.Session(g, seed=seed) as session:
            before = session[w]
            for _ in range(2):
                session.run(train)
                moves.append(before - session[w])
                before = session[w]
    first, second, again, _, other, _ = moves
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1
    assert abs(first.mean() - 1) < 0.05
    assert abs(second.mean() - 1) < 0.05
    assert first.std() == pytest.approx(2, rel=0.02)
    assert second.std() == pytest.approx(1, rel=0.02)


def test_names_of_slots_and_the_rate():
    with gf.Graph() as g:
        w = gf.Variable([1.0], name="w")
        optimiser = optim.chain(
            optim.Adam(1.0), optim.Adam(1.0), optim.chain(t.ema(0.5)), lr=schedules.linear(1.0, 4)
        )
        train, rate = optimiser.minimize(gf.sum(w * w)), optimiser.learning_rate()
        assert [v.name for v in optimiser.variables] == [
            "chain.step", "chain.adam.m.w", "chain.adam.v.w", "chain.adam_1.m.w",
            "chain.adam_1.v.w", "chain.chain.ema.mean.w",
        ]  # fmt: skip
    with gf.Session(g) as session:
        rates = [float(session.run([rate, train])[0]) for _ in range(3)]
    assert rates == [1.0, 0.75, 0.5]


def test_groups_wrappers_and_halves():
    with gf.Graph() as g:
        a, b = gf.Variable([4.0], name="a"), gf.Variable([4.0], name="b", dtype="bfloat16")
        loss = gf.sum(a * a) + gf.astype(gf.sum(b * b), "float32")
        group = {"parameters": b, "optimizer": optim.chain(t.clip_by_global_norm(1.0), lr=0.5)}
        optimiser = optim.Lookahead(optim.chain(t.trace(0.5), lr=0.25), k=2)
        train = optimiser.minimize(loss, [{"parameters": a}, group])
        slot = next(v for v in optimiser.variables if v.name == "chain.trace.momentum.a")
    with gf.Session(g) as session:
        session.run(train)
        assert (float(session[a][0]), float(session[b][0])) == (2.0, 3.5)
        assert session[slot].tolist() == [8.0]


class OfItsOwn(optim.Optimizer):
    def rule(self, p, g, slots, shared):
        return p * 0, {}


@pytest.mark.parametrize(
    ("make", "text", "fix"),
    [
        (lambda: optim.chain(), "it has no members", "chain(gf.optim.Adam"),
        (lambda: optim.chain(0.1), "a member is a float, no opt", "members are optimisers"),
        (lambda: optim.chain(optim.Adam), "is the class Adam, no opt", "make one: Adam(1.0)"),
        (lambda: optim.chain(optim.SAM(optim.SGD(0.1))), "a SAM, no optimiser", "members are"),
        (lambda: optim.chain(OfItsOwn(0.1)), "OfItsOwn has a rule()", "define direction(), which"),
        (lambda: t.scale(-0.1), "factor=-0.1 is negative, and", "write scale(0.1)"),
        (lambda: t.scale(float("nan")), "lr=nan must be at least 0", "use lr=0.001"),
        (lambda: t.ema(1.0), "decay=1.0 must be at least 0 and below 1", "use decay=0.9"),
        (lambda: t.add_noise(-1.0, 0.5), "eta=-1.0 must be at least 0", "use eta=0.01"),
        (lambda: t.trace(1.5), "momentum=1.5 must be", "use momentum"),
        (lambda: optim.chain(t.trace(0.5), lr=-1.0), "lr=-1.0 must be at least 0", "use lr=1.0"),
    ],
)
def test_members_that_make_no_sense(make, text, fix):
    with pytest.raises(gf.ArgumentError) as caught:
        make()
    assert text in caught.value.summary
    assert caught.value.fix.startswith(fix)


def test_an_optimiser_without_a_rule():
    class Nothing(optim.Optimizer):
        pass

    with gf.Graph():
        w = gf.Variable([1.0], name="w")
        with pytest.raises(gf.ArgumentError, match="Nothing: it has no rule"):
            Nothing(0.1).minimize(gf.sum(w * w))


def test_what_a_direction_of_ones_own_returns_is_checked():
    class Own(optim.Optimizer):
        def direction(self, p, g, slots, shared):
            return g

    with gf.Graph():
        w = gf.Variable([1.0], name="w")
        for optimiser in (Own(0.1), optim.chain(Own(0.1))):
            with pytest.raises(
                gf.ArgumentError, match=r"direction\(\) returns a Tensor, not a pair"
            ):
                optimiser.minimize(gf.sum(w * w))
