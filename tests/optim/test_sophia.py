"""`Sophia` against its paper's algorithms, written with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw import optim
from graphfw.errors import ArgumentError
from graphfw.optim import sophia

SHAPES = ((3, 2), (4,), ())


@pytest.fixture
def draws(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """The normal numbers that steps with an estimate use, the same in all of them."""
    made = [rng.normal(size=shape) for shape in SHAPES]
    rest = iter(made)
    monkeypatch.setattr(
        sophia.random, "normal", lambda shape, dtype: gf.asarray(next(rest), dtype=dtype)
    )
    return made


def problem(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    size = sum(int(np.prod(shape)) for shape in SHAPES)
    half = rng.normal(size=(size, size))
    return half @ half.T / size, rng.normal(size=size)


def loss_of(parameters: list[gf.Variable], matrix: np.ndarray) -> gf.Tensor:
    """x · A x / 2 + sum(x⁴) / 4, of all parameters as one vector x."""
    x = gf.concat([gf.reshape(p, (-1,)) for p in parameters])
    return gf.sum(x * (gf.asarray(matrix, dtype=x.dtype) @ x)) / 2 + gf.sum(x**4) / 4


def variables(start: np.ndarray, dtype: str = "float64") -> list[gf.Variable]:
    made, at = [], 0
    for i, shape in enumerate(SHAPES):
        end = at + int(np.prod(shape))
        made.append(gf.Variable(start[at:end].reshape(shape), name=f"p{i}", dtype=dtype))
        at = end
    return made


def flat(arrays: Any) -> np.ndarray:
    return np.concatenate([np.ravel(a) for a in arrays])


def by_paper(matrix, x, u, steps, lr, b1, b2, gamma, eps, every, decay):
    """Algorithm 3, with the estimator of algorithm 1; steps count from 1."""
    m, h, history = np.zeros_like(x), np.zeros_like(x), []
    for t in range(1, steps + 1):
        gradient = matrix @ x + x**3
        m = b1 * m + (1 - b1) * gradient
        if t % every == 1 % every:
            h = b2 * h + (1 - b2) * (u * ((matrix + np.diag(3 * x**2)) @ u))
        x = x - lr * decay * x
        x = x - lr * np.clip(m / np.maximum(gamma * h, eps), -1, 1)
        history.append(x)
    return history


@pytest.mark.smoke
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_the_paper(rng: np.random.Generator, draws: list[np.ndarray], every: int, decay: float):
    matrix, start = problem(rng)
    with gf.Graph() as g:
        parameters = variables(start)
        optimiser = optim.Sophia(
            0.05, (0.8, 0.9), 1.3, 1e-6, update_interval=every, weight_decay=decay
        )
        train = optimiser.minimize(loss_of(parameters, matrix))
    expected = by_paper(
        matrix, start, flat(draws), 8, 0.05, 0.8, 0.9, 1.3, 1e-6, every, decay
    )  # some elements are clipped, and some are not
    with gf.Session(g) as session:
        for wanted in expected:
            session.run(train)
            found = flat([session[p] for p in parameters])
            np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_the_mean_of_estimates_is_the_diagonal(rng: np.random.Generator):
    matrix, start = problem(rng)
    with gf.Graph() as g:
        parameters = variables(start)
        optimiser = optim.Sophia(0.0, (0.9, 0.0), update_interval=1)
        train = optimiser.minimize(loss_of(parameters, matrix))
        slots = [v for v in optimiser.variables if ".h." in v.name]
    found = []
    with gf.Session(g, seed=0) as session:
        for _ in range(600):
            session.run(train)
            found.append(flat([session[slot] for slot in slots]))
    error = np.std(found, axis=0) / np.sqrt(len(found))
    diagonal = np.diag(matrix) + 3 * start**2
    assert (abs(np.mean(found, axis=0) - diagonal) < 4.5 * error).all()


def test_groups_have_rules_and_options_of_their_own(rng: np.random.Generator):
    matrix, start = problem(rng)
    with gf.Graph() as g:
        a, b, c = variables(start)
        train = optim.Sophia(0.01, update_interval=5, weight_decay=0.0).minimize(
            loss_of([a, b, c], matrix),
            [
                {"parameters": [a]},
                {"parameters": [b], "lr": 0.02, "update_interval": 2},
                {"parameters": [c], "optimizer": optim.SGD(0.0)},
            ],
        )
    before = np.split(start, [6, 10])
    with gf.Session(g) as session:
        session.run(train)
        moves = [
            abs(np.ravel(session[v]) - x).max() for v, x in zip((a, b, c), before, strict=True)
        ]
        np.testing.assert_allclose(moves, [0.01, 0.02, 0.0], rtol=1e-6)
        seen = [session[f"sophia.h.{v.name}"].copy() for v in (a, b)]
        session.run(train)
        session.run(train)
        assert (session["sophia.h.p0"] == seen[0]).all()
        assert (session["sophia.h.p1"] != seen[1]).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "around",
    [
        lambda o: o,
        lambda o: optim.MultiSteps(o, 2),
        *(optim.EMA, optim.LossScale, optim.Lookahead, optim.SAM),
    ],
)
def test_it_trains(rng: np.random.Generator, dtype: str, around: Any):
    matrix, start = problem(rng)
    with gf.Graph() as g:
        parameters = variables(start, dtype)
        loss = loss_of([gf.astype(p, gf.float32) for p in parameters], matrix)
        train = around(optim.Sophia(0.05, weight_decay=0.0)).minimize(loss)
    with gf.Session(g, seed=0) as session:
        losses = [float(session.run([loss, train])[0]) for _ in range(40)]
    assert losses[-1] < losses[0] / 3


def test_layers_outside_of_graphs():
    model, optimiser = gf.nn.Linear(3, 1), optim.Sophia(0.05, weight_decay=0.0)

    @gf.function
    def step(x, y):
        loss = gf.nn.mse(model(x), y)
        optimiser.minimize(loss)
        return loss

    x = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
    y = x.sum(axis=1, keepdims=True)
    losses = [float(step(x, y)) for _ in range(60)]
    assert losses[-1] < losses[0] / 10


def test_a_loss_without_second_derivatives_has_steps_of_signs():
    with gf.Graph() as g:
        w = gf.Variable([1.0, 2.0], name="w")
        train = optim.Sophia(0.5, weight_decay=0.0).minimize(3 * w[0] - w[1])
    with gf.Session(g) as session:
        session.run(train)
        np.testing.assert_allclose(session[w], [0.5, 2.5])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: optim.Sophia(betas=(1, 0.9)), r"betas\[0\]=1 must be at least 0 and below 1"),
        (lambda: optim.Sophia(gamma=0), "gamma=0 must be above 0"),
        (lambda: optim.Sophia(eps=0), "eps=0 must be above 0"),
        (lambda: optim.Sophia(update_interval=0), "update_interval=0 must be an int of at least 1"),
        (lambda: optim.Sophia(update_interval=1.5), "update_interval=1.5 must be an int"),
    ],
)
def test_bad_options(make: Any, text: str):
    with pytest.raises(ArgumentError, match=text):
        make()


def test_uses_without_a_loss():
    with gf.Graph():
        w = gf.Variable([1.0, 2.0], name="w")
        loss = gf.sum(w * w)
        for attempt in (
            lambda: optim.Sophia().apply_gradients([(w * 2, w)]),
            lambda: optim.chain(optim.Sophia()).minimize(loss),
            lambda: optim.SGD().minimize(loss, [{"parameters": w, "optimizer": optim.Sophia()}]),
        ):
            with pytest.raises(ArgumentError, match="second derivatives of the loss itself"):
                attempt()
