"""The incomplete gamma and beta functions against mpmath and SciPy's special values."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import graphfw as gf
from tests.ops.values import gradients

INF, NAN = np.inf, np.nan
RNG = np.random.default_rng(5)
EPS = 2.0**-52


def _spread(low: float, high: float, size: int = 12, rng: np.random.Generator = RNG) -> Any:
    return 10.0 ** rng.uniform(low, high, size)


_SHAPES = {
    "small": (a := _spread(-8, 0), _spread(-8, 0.5)),
    "middle": (a := RNG.uniform(0.1, 10, 12), a * RNG.uniform(0.1, 2.5, 12)),
    "large": (a := _spread(1, 3), a * (1 + RNG.uniform(-1, 3, 12) / np.sqrt(a))),
    "near": (a := _spread(2.5, 5), a * (1 + RNG.normal(size=12) / np.sqrt(a))),
}


def at_once(function: Any, *xs: Any) -> Any:
    """The reference, op by op."""
    return function(*xs).numpy()


def compiled(function: Any, *xs: Any) -> Any:
    """Return the compiled code's results for arrays of one size."""
    with gf.Graph() as g:
        given = [gf.placeholder(("n",), x.dtype.name) for x in xs]
        y = function(*given)
    with gf.Session(g) as session:
        return session.run(y, dict(zip(given, xs, strict=True)))


both_ways = pytest.mark.parametrize("run", [at_once, compiled])


@pytest.mark.exhaustive(every=2)
@both_ways
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", _SHAPES)
def test_incomplete_gamma(name: str, dtype: Any, run: Any) -> None:
    a, x = [v.astype(dtype) for v in _SHAPES[name]]
    lower, upper = run(gf.special.gammainc, a, x), run(gf.special.gammaincc, a, x)
    assert lower.dtype == dtype
    with mpmath.workdps(40):
        for shape, at, *found in zip(a, x, lower, upper, strict=True):
            m, n = mpmath.mpf(float(shape)), mpmath.mpf(float(at))
            tail = mpmath.gammainc(m, n, regularized=True)
            for got, exact in zip(found, (1 - tail, tail), strict=True):
                if exact < 1e-20:
                    continue
                limit = 100 * EPS if dtype is np.float64 else 2.0**-23
                assert abs(mpmath.mpf(float(got)) - exact) <= limit * exact, (shape, at)


@pytest.mark.exhaustive
@both_ways
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("high", [2, 30, 100])
def test_incomplete_beta(high: float, dtype: Any, run: Any, rng: np.random.Generator) -> None:
    a, b = rng.uniform(0, high, (2, 12)).astype(dtype)
    x = rng.uniform(0, 1, 12).astype(dtype)
    found = run(gf.special.betainc, a, b, x)
    assert found.dtype == dtype
    limit = 200 * EPS if dtype is np.float64 else 2.0**-23
    with mpmath.workdps(40):
        for p, q, at, got in zip(a, b, x, found, strict=True):
            exact = mpmath.betainc(*[mpmath.mpf(float(v)) for v in (p, q)], 0, float(at), True)
            unit = max(exact, 1 - exact) if exact > 1e-3 else exact
            if exact > 1e-30:
                assert abs(mpmath.mpf(float(got)) - exact) <= limit * unit, (p, q, at)


@both_ways
def test_incomplete_beta_of_small_parameters(run: Any, rng: np.random.Generator) -> None:
    """The result is exact also where it is tiny; 1 less it has no digits then."""
    a = np.concatenate([_spread(-3, 2, 40, rng), _spread(-12, 0, 20, rng)])
    b = np.concatenate([_spread(-290, -0.2, 40, rng), _spread(-12, 0, 20, rng)])
    x = rng.uniform(0.05, 1, 60)
    with mpmath.workdps(40):
        for p, q, at, got in zip(a, b, x, run(gf.special.betainc, a, b, x), strict=True):
            m, n, z = [mpmath.mpf(float(v)) for v in (p, q, at)]
            power = z**m / m * mpmath.hyp2f1(m, 1 - n, m + 1, z)
            exact = power * mpmath.rgamma(m) * mpmath.rgamma(n) * mpmath.gamma(m + n)
            assert abs(mpmath.mpf(float(got)) - exact) <= 200 * EPS * exact + 5e-324, (p, q, at)


@pytest.mark.slow
def test_compiled_code_is_the_reference_everywhere(rng: np.random.Generator) -> None:
    """Elements of a vector end their loops at different times, and each as if it were alone."""
    sizes = np.concatenate(
        [[0.0, -1.0, INF, NAN], _spread(-300, 300, 200, rng), _spread(-2, 5, 900, rng)]
    )
    a, b, x = rng.choice(sizes, (3, 2501))
    x[::5] = a[::5] * rng.uniform(0.5, 1.5, 501)
    unit = np.where(rng.random(2501) < 0.9, rng.random(2501), x)
    for function, xs in (
        (gf.special.gammainc, (a, x)),
        (gf.special.gammaincc, (a, x)),
        (gf.special.betainc, (a, b, unit)),
    ):
        found, wanted = compiled(function, *xs), at_once(function, *xs)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-300)
        alone = [compiled(function, *[v[i : i + 1] for v in xs])[0] for i in range(0, 60, 7)]
        np.testing.assert_array_equal(alone, found[:60:7])


@both_ways
def test_logarithm_of_beta(run: Any, rng: np.random.Generator) -> None:
    a, b = _spread(-5, 6, 60, rng), _spread(-5, 6, 60, rng)
    with mpmath.workdps(40):
        for p, q, got in zip(a, b, run(gf.special.betaln, a, b), strict=True):
            exact = mpmath.log(mpmath.beta(p, q))
            assert abs(mpmath.mpf(float(got)) - exact) <= 8 * EPS * max(1, abs(exact)), (p, q)


def test_special_values_of_incomplete_gamma() -> None:
    """They are SciPy's."""
    a = np.array([0, 0, 1, 1, -1, 1, INF, INF, 0, NAN])
    x = np.array([0, 1, 0, INF, 1, -1, 1, INF, INF, 1.0])
    expected = np.array([NAN, 1, 0, 1, NAN, NAN, 0, NAN, 1, NAN])
    np.testing.assert_array_equal(gf.special.gammainc(a, x).numpy(), expected)
    np.testing.assert_array_equal(gf.special.gammaincc(a, x).numpy(), 1 - expected)


def test_special_values_of_beta() -> None:
    """They are SciPy's, but that the logarithm of a pole is infinite."""
    a = np.array([1, 1, 0, 0, 2, INF, 2, INF, -1, 2, 2, NAN])
    b = np.array([1, 1, 1, 0, 0, 2, INF, INF, 1, 2, 2, 1])
    x = np.array([0, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, -1, 2, 0.5])
    expected = [0, 1, 1, NAN, 0, 0, 1, NAN, NAN, NAN, NAN, NAN]
    np.testing.assert_array_equal(gf.special.betainc(a, b, x).numpy(), expected)
    logarithms = gf.special.betaln([0.0, 1.0, INF], [2.0, 1.0, 2.0]).numpy()
    np.testing.assert_allclose(logarithms, [INF, 0, -INF], atol=8 * EPS)


def _ones(*values: float) -> list[Any]:
    return [np.array([value]) for value in values]


@pytest.mark.parametrize(("a", "x"), [(0.01, 0.2), (0.7, 3.0), (5.0, 2.0), (90.0, 100.0)])
def test_gradients_of_incomplete_gamma(a: float, x: float) -> None:
    slope = compiled(lambda a, x: gf.grad(gf.sum(gf.special.gammainc(a, x)), a), *_ones(a, x))
    with mpmath.workdps(40):
        exact = [
            mpmath.diff(lambda t: mpmath.gammainc(t, 0, x, True), mpmath.mpf(a)),
            mpmath.exp((a - 1) * mpmath.log(x) - x - mpmath.loggamma(a)),
        ]
    assert abs(slope[0] - exact[0]) <= 1e-12 * abs(exact[0])
    for found, wanted in zip(gradients(gf.special.gammainc, a, x), exact, strict=True):
        assert abs(found - wanted) <= 1e-12 * abs(wanted)
    for found, wanted in zip(gradients(gf.special.gammaincc, a, x), exact, strict=True):
        assert abs(found + wanted) <= 1e-12 * abs(wanted)


@pytest.mark.parametrize(("a", "b", "x"), [(0.3, 2.0, 0.1), (4.0, 0.6, 0.9), (20.0, 30.0, 0.4)])
def test_gradients_of_incomplete_beta(a: float, b: float, x: float) -> None:
    def value(p: Any, q: Any, z: Any) -> Any:
        return mpmath.betainc(p, q, 0, z, regularized=True)

    with mpmath.workdps(40):
        exact = [
            mpmath.diff(value, (mpmath.mpf(a), mpmath.mpf(b), mpmath.mpf(x)), tuple(n))
            for n in np.eye(3, dtype=int).tolist()
        ]
    for number, wanted in enumerate(exact[:2]):

        def slope(*xs: Any, number: int = number) -> Any:
            return gf.grad(gf.sum(gf.special.betainc(*xs)), xs[number])

        found = compiled(slope, *_ones(a, b, x))[0]
        assert abs(found - wanted) <= 1e-12 * abs(wanted)
    for found, wanted in zip(gradients(gf.special.betainc, a, b, x), exact, strict=True):
        assert abs(found - wanted) <= 1e-12 * abs(wanted)


def test_they_run_with_symbolic_sizes_and_under_vmap() -> None:
    with gf.Graph() as g:
        a = gf.placeholder(("n",), name="a")
        x = gf.placeholder(("m",), name="x")
        table = gf.vmap(lambda one: gf.special.gammainc(one, x))(a)
    with gf.Session(g) as session:
        shapes, points = np.float32([0.5, 1, 2]), np.float32([0, 1, 5000])
        found = session.run(table, {a: shapes, x: points})
    np.testing.assert_array_equal(found, gf.special.gammainc(shapes[:, None], points).numpy())
    many = gf.special.gammainc(np.full(5000, 2.0), 1.0).numpy()  # more than one piece
    np.testing.assert_allclose(many, 1 - 2 / np.e, rtol=1e-15)
