"""The distributions of gamma and beta draws, counts and choices; their gradients and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, DTypeError, ShapeError
from graphfw.ir.concrete import evaluate
from graphfw.ir.op import Rng

MANY = 4000
Array = np.ndarray[Any, np.dtype[Any]]


def drawn(make: Callable[[], gf.Tensor], seed: int = 3) -> Array:
    with gf.Graph():
        tensor = make()
    found: Array = evaluate([tensor], rng=Rng(seed, 0))[0]
    return found


def distance(x: Array, distribution: Callable[[Array], Array]) -> float:
    """Kolmogorov's distance, times the root of the number of draws: below 1.95 in 999 of 1000."""
    x = np.sort(x.astype(np.float64).reshape(-1))
    steps = np.arange(x.size + 1) / x.size
    below = distribution(x)
    return float(np.sqrt(x.size) * max(np.max(steps[1:] - below), np.max(below - steps[:-1])))


def _gamma_below(a: float) -> Callable[[Array], Array]:
    return lambda x: gf.special.gammainc(np.array(a), x).numpy()


def _t_below(n: float) -> Callable[[Array], Array]:
    def below(x: Array) -> Array:
        tail = 0.5 * gf.special.betainc(np.array(n / 2), np.array(0.5), n / (n + x * x)).numpy()
        return np.where(x < 0, tail, 1 - tail)

    return below


CONTINUOUS: dict[str, tuple[Callable[[], gf.Tensor], Callable[[Array], Array]]] = {
    "gamma-0.1": (lambda: gf.random.gamma(MANY, 0.1, dtype=gf.float64), _gamma_below(0.1)),
    "gamma-1": (lambda: gf.random.gamma((MANY,), 1.0), _gamma_below(1.0)),
    "gamma-40": (lambda: gf.random.gamma((MANY,), 40.0, 1.0), _gamma_below(40.0)),
    "gamma-scaled": (lambda: gf.random.gamma((MANY,), 2.0, 0.5) * 2, _gamma_below(2.0)),
    "beta": (
        lambda: gf.random.beta((MANY,), 0.5, 2.0),
        lambda x: gf.special.betainc(np.array(0.5), np.array(2.0), x).numpy(),
    ),
    "student_t": (lambda: gf.random.student_t((MANY,), 3.0), _t_below(3.0)),
    "laplace": (
        lambda: gf.random.laplace((MANY,), 1.0, 2.0),
        lambda x: np.where(x < 1, 0.5 * np.exp((x - 1) / 2), 1 - 0.5 * np.exp((1 - x) / 2)),
    ),
    "cauchy": (
        lambda: gf.random.cauchy((MANY,), -1.0, 3.0),
        lambda x: 0.5 + np.arctan((x + 1) / 3) / np.pi,
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_draws_are_distributed_as_said(name: str) -> None:
    make, below = CONTINUOUS[name]
    with np.errstate(over="ignore"):
        assert distance(drawn(make), below) < 1.95


@pytest.mark.parametrize("rate", [0.3, 9.5, 10.0, 1e4])
def test_poisson_counts(rate: float) -> None:
    counts = drawn(lambda: gf.random.poisson(rate, (MANY,)))
    assert counts.dtype == np.int64
    assert counts.min() >= 0
    # P(X <= k) = Q(k + 1, rate)
    seen = np.unique(np.quantile(counts, np.linspace(0.05, 0.95, 10)).astype(int))
    expected = gf.special.gammaincc(seen + 1.0, rate).numpy()
    found = (counts[:, None] <= seen).mean(0)
    assert np.abs(found - expected).max() < 1.95 / np.sqrt(MANY)
    assert abs(counts.mean() - rate) < 5 * np.sqrt(rate / MANY)
    assert abs(counts.var() / rate - 1) < 5 * np.sqrt((2 + 1 / rate) / MANY)


def test_rates_of_a_tensor_are_drawn_by_both_ways_at_once() -> None:
    rate = np.array([0.0, 4.0, 40.0, -1.0, np.nan])
    counts = drawn(lambda: gf.random.poisson(rate, (2000, 5)))
    assert (counts[:, 0] == 0).all()
    assert (counts[:, 3:] == -1).all()
    assert np.abs(counts[:, 1:3].mean(0) - rate[1:3]).max() < 0.7
    assert drawn(lambda: gf.random.poisson(rate[:2], dtype=gf.int32)).dtype == np.int32


def test_dirichlet() -> None:
    a = np.array([[0.2, 1.0, 3.0], [1e-4, 1e-4, 1e-4]])
    x = drawn(lambda: gf.random.dirichlet(a, (3000, 2)))
    assert x.shape == (3000, 2, 3)
    assert np.isfinite(x).all()
    np.testing.assert_allclose(x.sum(-1), 1, rtol=1e-12)
    total = a.sum(-1, keepdims=True)
    np.testing.assert_allclose(x.mean(0), a / total, atol=0.05)
    assert (x[:, 1].max(-1) > 0.99).mean() > 0.99  # all weight on one class


def test_multinomial_of_a_symbolic_number_of_classes() -> None:
    with gf.Graph() as g:
        p = gf.placeholder((2, "classes"), gf.float64, name="p")
        counts = gf.random.multinomial(40, p, (5, 2))
    assert counts.shape == (5, 2, p.shape[1])
    weights = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 5.0]])
    with gf.Session(g) as session:
        x = session.run(counts, {p: weights})
    assert (x.sum(axis=-1) == 40).all()
    assert (x[:, weights == 0] == 0).all()


def test_multinomial() -> None:
    p = np.array([[1.0, 0.0, 3.0], [2.0, 2.0, 0.0]])
    x = drawn(lambda: gf.random.multinomial(40, p, (1000, 2)))
    assert x.shape == (1000, 2, 3)
    assert (x.sum(-1) == 40).all()
    assert (x >= 0).all()
    assert (x[:, 0, 1] == 0).all()
    assert (x[:, 1, 2] == 0).all()
    share = p / p.sum(-1, keepdims=True)
    np.testing.assert_allclose(x.mean(0), 40 * share, atol=0.4)
    np.testing.assert_allclose(x.var(0), 40 * share * (1 - share), rtol=0.25, atol=1e-12)


def test_choices() -> None:
    p = np.array([0.1, 0.0, 0.6, 0.3])
    x = drawn(lambda: gf.random.choice(4, (MANY,), p=p))
    np.testing.assert_allclose(np.bincount(x, minlength=4) / MANY, p, atol=0.03)
    x = drawn(lambda: gf.random.choice(4, (MANY,)))
    np.testing.assert_allclose(np.bincount(x, minlength=4) / MANY, 0.25, atol=0.03)
    x = drawn(lambda: gf.random.choice(50, (5, 10), replace=False))
    np.testing.assert_array_equal(np.sort(x.reshape(-1)), np.arange(50))
    rows = np.arange(12.0).reshape(2, 3, 2)
    chosen = drawn(lambda: gf.random.choice(rows, 2, replace=False, axis=1))
    assert chosen.shape == (2, 2, 2)
    assert set(chosen[0, :, 0]) < {0, 2, 4}


def test_choices_without_replacement_are_made_one_after_the_other() -> None:
    p = np.array([5.0, 3.0, 2.0, 0.0])
    pairs = np.stack(
        [drawn(lambda: gf.random.choice(4, 2, False, p), seed=seed) for seed in range(200)]
    )
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert (pairs < 3).all()
    assert abs((pairs[:, 0] == 0).mean() - 0.5) < 0.12
    second = 0.3 * 5 / 7 + 0.2 * 5 / 8
    assert abs((pairs[:, 1] == 0).mean() - second) < 0.12


@pytest.mark.parametrize("a", [0.05, 0.8, 3.0, 60.0])
def test_gradient_of_a_gamma_draw_is_that_of_its_quantile(a: float) -> None:
    shape = gf.asarray(np.full(3, a))
    draw = gf.random.gamma((3,), shape, scale=2.0)
    (slope,) = gf.grad(gf.sum(draw), [shape])
    x, found = [t.numpy() for t in (draw, slope)]
    for at, got in zip(x / 2, found, strict=True):
        if at < 1e-200:
            continue
        with mpmath.workdps(30):
            z = mpmath.mpf(at)
            lower = mpmath.diff(lambda t, z=z: mpmath.gammainc(t, 0, z, True), mpmath.mpf(a))
            density = mpmath.exp((a - 1) * mpmath.log(z) - z - mpmath.loggamma(a))
        assert abs(got - float(-2 * lower / density)) <= 1e-6 * abs(got)


def test_gradients_of_means() -> None:
    """The mean of a draw moves as the parameter says."""

    def mean(a: gf.Tensor, b: gf.Tensor) -> gf.Tensor:
        return gf.mean(gf.random.beta((MANY,), a, b))

    a, b = gf.asarray(np.array(2.0)), gf.asarray(np.array(3.0))
    slopes = [g.item() for g in gf.grad(mean(a, b), [a, b])]
    np.testing.assert_allclose(slopes, [3 / 25, -2 / 25], rtol=0.1)


def test_they_are_drawn_in_sessions_with_symbolic_sizes_and_in_vmap() -> None:
    with gf.Graph() as g:
        a = gf.placeholder(("n",), name="a")
        whole = gf.random.gamma(a.shape, a, name="whole")
        mapped = gf.vmap(lambda one: gf.random.gamma((3,), one), randomness="different")(20 * a)
    with gf.Session(g, seed=1) as session:
        x, y = session.run([whole, mapped], {a: np.float32([0.5, 5, 500])})
    assert x.shape == (3,)
    assert y.shape == (3, 3)
    assert len(set(y[2])) > 1
    with gf.Graph():
        same = gf.random.gamma((3,), np.float32([0.5, 5, 500]), name="whole")
    np.testing.assert_allclose(x, evaluate([same], rng=Rng(1, 0))[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: gf.random.gamma((3,), -1.0), ArgumentError, "concentration=-1.0 must not be"),
        (lambda: gf.random.gamma(3, 4), ArgumentError, r"is 4 a dim, or the parameter"),
        (lambda: gf.random.gamma((3,), [1.0]), ArgumentError, "not a number or a tensor"),
        (lambda: gf.random.beta((3,), 1.0, -2.0), ArgumentError, "b=-2.0"),
        (lambda: gf.random.beta((3,), np.ones(2), 1.0), ShapeError, "does not broadcast"),
        (lambda: gf.random.gamma((3,), 1.0, dtype=gf.int32), DTypeError, "not a floating"),
        (lambda: gf.random.poisson(-1.0), ArgumentError, "rate=-1.0 must not be negative"),
        (lambda: gf.random.poisson(1.0, dtype=gf.float32), DTypeError, "not an integer"),
        (lambda: gf.random.dirichlet(1.0), ShapeError, "not one for each class"),
        (lambda: gf.random.dirichlet(np.ones((2, 3)), (3,)), ShapeError, "don't broadcast"),
        (lambda: gf.random.multinomial(-1, np.ones(3)), ArgumentError, "must not be negative"),
        (lambda: gf.random.multinomial(1.5, np.ones(3)), ArgumentError, "is no int"),
        (lambda: gf.random.multinomial(2, np.ones(0)), ShapeError, "there are no classes"),
        (lambda: gf.random.multinomial(2, [0.0, 0.0]), ArgumentError, "probabilities are all 0"),
        (lambda: gf.random.multinomial(2, [[1, 1], [0, 0]]), ArgumentError, "are all 0"),
        (lambda: gf.random.multinomial(2, [-1.0, 2.0]), ArgumentError, "negative, infinite or NaN"),
        (lambda: gf.random.choice(2, 3, p=[np.nan, 1.0]), ArgumentError, "negative, infinite or"),
        (
            lambda: gf.random.choice(3, 2, replace=False, p=[0.0, 1.0, 0.0]),
            ArgumentError,
            "are 0 but for 1, and 2 different ones are wanted",
        ),
        (lambda: gf.random.poisson(1e19), ArgumentError, "rate=1e\\+19 is above 2\\^53"),
        (lambda: gf.random.choice(3, 4, replace=False), ArgumentError, "4 of 3 can't all be"),
        (lambda: gf.random.choice(0, 1), ShapeError, "nothing to choose from"),
        (lambda: gf.random.choice(3, 1, p=np.ones(4)), ShapeError, r"p has the shape \[4\]"),
        (lambda: gf.random.student_t((2,), -1.0), ArgumentError, "freedom=-1.0"),
        (lambda: gf.random.laplace((2,), 0.0, -1.0), ArgumentError, "scale=-1.0"),
        (lambda: gf.random.cauchy((2,), scale=-1.0), ArgumentError, "scale=-1.0"),
    ],
)
def test_errors(make: Callable[[], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()


def test_edges_of_gamma() -> None:
    x = drawn(lambda: gf.random.gamma((4,), np.array([0.0, -1.0, np.nan, np.inf])))
    np.testing.assert_array_equal(x, [0, np.nan, np.nan, np.inf])
