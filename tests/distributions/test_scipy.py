"""Distributions of numbers against SciPy: densities, distribution functions, moments."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

import graphfw as gf
from tests.distributions.cases import CONTINUOUS, COUNTS, NUMBERS, Case, computed

MOMENTS = ["entropy", "mean", "variance", "std"]


def values(case: Case, count: int = 5) -> np.ndarray:
    """Return values of the shape [count, 3, 4], all over the distributions."""
    p = np.random.default_rng(1).uniform(0.01, 0.99, (count, 3, 4))
    return np.asarray(case.exact().ppf(p), np.float64)


def exact_log_prob(name: str, case: Case, x: np.ndarray) -> Any:
    exact = case.exact()
    return exact.logpdf(x) if name in CONTINUOUS else exact.logpmf(x)


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("name", NUMBERS)
def test_log_prob(name: str) -> None:
    case = NUMBERS[name]
    x = values(case)
    got = computed(lambda x, *p: case.ours(*p).log_prob(x), x, *case.parameters())
    np.testing.assert_allclose(got, exact_log_prob(name, case, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NUMBERS)
def test_values_that_are_never_drawn(name: str) -> None:
    """They have the probability 0, and gradients without NaN."""
    case = NUMBERS[name]
    x = np.array([-7.25, -1.0, -0.5, 0.0, 0.25, 2.5, 13.0, 40.0]).reshape(-1, 1, 1)
    parameters = [gf.asarray(p) for p in case.parameters()]
    got = case.ours(*parameters).log_prob(x)
    exact = exact_log_prob(name, case, x)
    np.testing.assert_allclose(got.numpy(), exact, rtol=1e-9, atol=1e-9)
    assert name in ("Normal", "Laplace", "Cauchy", "Gumbel", "Logistic", "StudentT") or (
        np.isneginf(exact).any()
    )
    finite = gf.sum(gf.where(gf.isfinite(got), got, 0.0))
    for gradient in gf.grad(finite, parameters):
        assert np.isfinite(gradient.numpy()).all()


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("name", NUMBERS)
def test_cdf(name: str) -> None:
    case = NUMBERS[name]
    if "cdf" in case.lacks:
        with pytest.raises(gf.ArgumentError, match="cdf: there is none in closed form"):
            case.ours(*case.parameters()).cdf(0.5)
        return
    x = np.concatenate([values(case), np.broadcast_to([[[-30.0]], [[0.7]], [[60.0]]], (3, 3, 4))])
    got = computed(lambda x, *p: case.ours(*p).cdf(x), x, *case.parameters())
    np.testing.assert_allclose(got, case.exact().cdf(x), rtol=1e-9, atol=1e-12)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_icdf(name: str) -> None:
    case = CONTINUOUS[name]
    if "icdf" in case.lacks:
        with pytest.raises(gf.ArgumentError, match="icdf: there is none in closed form"):
            case.ours(*case.parameters()).icdf(0.5)
        return
    p = np.random.default_rng(2).uniform(0.001, 0.999, (5, 3, 4))
    got = computed(lambda p, *args: case.ours(*args).icdf(p), p, *case.parameters())
    np.testing.assert_allclose(got, case.exact().ppf(p), rtol=1e-9, atol=1e-9)


@pytest.mark.exhaustive(every=6)
@pytest.mark.parametrize("name", NUMBERS)
def test_moments(name: str) -> None:
    case = NUMBERS[name]

    def build(*p: Any) -> list[Any]:
        d = case.ours(*p)
        entropy = [] if "entropy" in case.lacks else [d.entropy()]
        return [d.mean, d.variance, d.std, *entropy]

    got = computed(build, *case.parameters())
    exact = case.exact()
    means = [np.broadcast_to(each, (3, 4)) for each in (exact.mean(), exact.var(), exact.std())]
    for ours, scipys in zip(got, [*means, exact.entropy()], strict=False):
        assert ours.shape == (3, 4)
        np.testing.assert_allclose(ours, scipys, rtol=1e-8)
    if "entropy" in case.lacks:
        with pytest.raises(gf.ArgumentError, match="entropy: there is none in closed form"):
            case.ours(*case.parameters()).entropy()


@pytest.mark.parametrize("name", NUMBERS)
def test_mode(name: str) -> None:
    """No value is likelier."""
    case = NUMBERS[name]
    d = case.ours(*case.parameters())
    if "mode" in case.lacks:
        with pytest.raises(gf.ArgumentError, match="mode: there is none in closed form") as caught:
            _ = d.mode
        assert "d.log_prob(x)" in caught.value.fix
        return
    assert d.mode.shape == (3, 4)
    assert d.mode.dtype is d.dtype
    most = d.log_prob(d.mode).numpy()
    others = d.log_prob(values(case, 50)).numpy()
    is_inside = np.isfinite(d.mode.numpy())
    assert (np.where(is_inside, most, np.inf) >= others - 1e-9).all()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float32, 1e-4), (np.float16, 2e-3), (ml_dtypes.bfloat16, 1e-2)]
)
@pytest.mark.parametrize("name", NUMBERS)
def test_narrow_dtypes(name: str, dtype: Any, tolerance: float) -> None:
    case = NUMBERS[name]
    narrow = [gf.asarray(p) for p in case.parameters(dtype)]
    d = case.ours(*narrow)
    same = case.ours(*[gf.astype(p, gf.float64) for p in narrow])
    assert d.mean.dtype is narrow[0].dtype
    x = values(case).astype(dtype)
    got = d.log_prob(x)
    assert got.dtype is narrow[0].dtype
    if name.endswith("logits"):  # which are rounded
        tolerance *= 4
    exact = same.log_prob(x.astype(np.float64)).numpy()
    np.testing.assert_allclose(got.numpy().astype(np.float64), exact, tolerance, tolerance)
    for what in ("mean", "std"):
        exact = getattr(same, what).numpy()
        ours = getattr(d, what).numpy().astype(np.float64)
        np.testing.assert_allclose(ours, exact, tolerance, tolerance)
    assert d.sample((2,)).dtype is (d.dtype if name in COUNTS else narrow[0].dtype)


@pytest.mark.parametrize("name", NUMBERS)
def test_gradients_of_log_prob(name: str) -> None:
    case = NUMBERS[name]
    x, parameters = values(case, 1)[0], case.parameters()

    def total(*args: np.ndarray) -> float:
        return float(gf.sum(case.ours(*args).log_prob(x)))

    given = [gf.asarray(p) for p in parameters]
    gradients = gf.grad(gf.sum(case.ours(*given).log_prob(x)), given)
    for i, gradient in enumerate(gradients):
        for at in [(0,) * parameters[i].ndim, (-1,) * parameters[i].ndim]:
            step = np.zeros_like(parameters[i])
            step[at] = 1e-6
            up = total(*parameters[:i], parameters[i] + step, *parameters[i + 1 :])
            down = total(*parameters[:i], parameters[i] - step, *parameters[i + 1 :])
            slope = (up - down) / 2e-6
            assert gradient.numpy()[at] == pytest.approx(slope, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_gradients_by_the_value(name: str) -> None:
    case = CONTINUOUS[name]
    d, at = case.ours(*case.parameters()), values(case, 2)
    x = gf.asarray(at)
    gradient = gf.grad(gf.sum(d.log_prob(x)), x).numpy()
    steps = [d.log_prob(at + step).numpy() for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(gradient, (steps[0] - steps[1]) / 2e-6, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_nan_gives_nan(name: str) -> None:
    d = CONTINUOUS[name].ours(*CONTINUOUS[name].parameters())
    assert np.isnan(d.log_prob(np.nan).numpy()).all()


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_slope_of_the_cdf_is_the_density(name: str) -> None:
    case = CONTINUOUS[name]
    if "cdf" in case.lacks:
        return
    x = gf.asarray(values(case, 2))
    d = case.ours(*case.parameters())
    slope = gf.grad(gf.sum(d.cdf(x)), x)
    np.testing.assert_allclose(slope.numpy(), np.exp(d.log_prob(x).numpy()), rtol=1e-7)


@pytest.mark.parametrize("name", NUMBERS)
def test_vmap(name: str) -> None:
    case = NUMBERS[name]
    x, parameters = values(case, 1)[0], case.parameters()
    whole = [np.broadcast_to(p, (3, 4)) for p in parameters]

    def one(x: Any, *p: Any) -> Any:
        d = case.ours(*p)
        return d.log_prob(x), d.mean, d.sample((2,))

    log, mean, drawn = gf.vmap(one)(gf.asarray(x), *map(gf.asarray, whole))
    d = case.ours(*parameters)
    np.testing.assert_allclose(log.numpy(), d.log_prob(x).numpy(), rtol=1e-12)
    np.testing.assert_allclose(mean.numpy(), d.mean.numpy(), rtol=1e-12)
    assert drawn.shape == (3, 2, 4)


@pytest.mark.parametrize("name", NUMBERS)
def test_empty_batches(name: str) -> None:
    case = NUMBERS[name]
    d = case.ours(*[np.ones((0, 3)) * 0.5 for _ in case.ranges][:1] * len(case.ranges))
    assert d.log_prob(0.5).numpy().shape == (0, 3)
    assert d.sample((2,)).numpy().shape == (2, 0, 3)


@pytest.mark.parametrize(
    ("d", "exact", "x"),
    [
        (gf.distributions.Poisson(1e6), stats.poisson(1e6), 1_001_000.0),
        (gf.distributions.Gamma(1e5), stats.gamma(1e5), 1e5 + 100),
        (gf.distributions.Beta(2.0**14, 2.0**15), stats.beta(2.0**14, 2.0**15), 0.333984375),
        (gf.distributions.Binomial(10**6, probs=0.25), stats.binom(10**6, 0.25), 250_100.0),
        (gf.distributions.StudentT(2.0**20), stats.t(2.0**20), 1.5),
    ],
    ids=["Poisson", "Gamma", "Beta", "Binomial", "StudentT"],
)
def test_large_parameters_in_float32(d: Any, exact: Any, x: float) -> None:
    """Their formulas subtract numbers a million times as large as the result."""
    log = exact.logpmf(x) if hasattr(exact.dist, "pmf") else exact.logpdf(x)
    assert d.log_prob(x).dtype is gf.float32
    assert float(d.log_prob(x)) == pytest.approx(log, rel=1e-6)
    if not isinstance(d, gf.distributions.Poisson | gf.distributions.Binomial):
        assert float(d.entropy()) == pytest.approx(exact.entropy(), rel=1e-5)


def test_chances_of_0_and_1() -> None:
    d = gf.distributions.Bernoulli(probs=[0.0, 1.0])
    np.testing.assert_array_equal(d.log_prob([[0, 1], [1, 0]]).numpy(), [[0, 0], [-np.inf] * 2])
    np.testing.assert_array_equal(d.entropy().numpy(), [0, 0])
    d = gf.distributions.Bernoulli(logits=[-np.inf, np.inf])
    np.testing.assert_array_equal(d.log_prob([[0, 1], [1, 0]]).numpy(), [[0, 0], [-np.inf] * 2])
    d = gf.distributions.Binomial(3, probs=[0.0, 1.0])
    np.testing.assert_allclose(d.log_prob([0, 3]).numpy(), [0, 0], atol=1e-6)
    np.testing.assert_allclose(d.entropy().numpy(), [0, 0], atol=1e-6)
    assert float(gf.distributions.Geometric(probs=1.0).log_prob(0)) == 0
    assert float(gf.distributions.Poisson(0.0).log_prob(0)) == 0
