"""The divergence of pairs, against PyTorch where it is installed, and by integration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

import graphfw as gf
from tests.distributions.cases import CONTINUOUS, COUNTS, D, computed
from tests.distributions.test_vectors import PROBS, triangle

PAIRS = ["Normal", "LogNormal", "HalfNormal", "Laplace", "Cauchy", "Gumbel", "Exponential",
         "Gamma", "Chi2", "Beta"]  # fmt: skip


def both(name: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return parameters of two distributions that differ."""
    parameters = {**CONTINUOUS, **COUNTS}[name].parameters()
    return parameters, [0.6 * p[..., ::-1] + 0.3 for p in parameters]


@pytest.mark.exhaustive(every=6)
@pytest.mark.parametrize("name", PAIRS)
def test_by_integration(name: str) -> None:
    case = CONTINUOUS[name]
    first, second = both(name)
    got = computed(
        lambda *args: D.kl_divergence(
            case.ours(*args[: len(first)]), case.ours(*args[len(first) :])
        ),
        *first,
        *second,
    )
    assert got.shape == (3, 4)
    assert (got > 0).all()
    at = [[np.broadcast_to(p, (3, 4))[1, 2] for p in group] for group in (first, second)]
    p, q = (case.scipys(*group) for group in at)

    def integrand(u: float) -> float:
        x = p.ppf(u)
        return float(p.logpdf(x) - q.logpdf(x))

    exact = integrate.quad(integrand, 0, 1, limit=300, epsabs=1e-10)[0]
    assert got[1, 2] == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("name", COUNTS)
def test_by_summation(name: str) -> None:
    case = COUNTS[name]
    first, second = both(name)
    got = D.kl_divergence(case.ours(*first), case.ours(*second)).numpy()
    k = np.arange(400).reshape(-1, 1, 1)
    p, q = case.scipys(*first), case.scipys(*second)
    with np.errstate(invalid="ignore"):
        terms = p.pmf(k) * (p.logpmf(k) - q.logpmf(k))
    np.testing.assert_allclose(got, np.nansum(terms, axis=0), rtol=1e-8)


@pytest.mark.parametrize("name", [*PAIRS, *COUNTS, "Uniform", "Pareto"])
def test_a_distribution_does_not_differ_from_itself(name: str) -> None:
    case = {**CONTINUOUS, **COUNTS}[name]
    d = case.ours(*case.parameters())
    np.testing.assert_allclose(D.kl_divergence(d, d).numpy(), np.zeros((3, 4)), atol=1e-12)


@pytest.mark.parametrize("kind", [D.Categorical, D.OneHotCategorical])
def test_classes(kind: Any) -> None:
    for p in (kind(probs=PROBS), kind(logits=np.log(PROBS))):
        got = D.kl_divergence(p, kind(logits=np.zeros(4))).numpy()
        np.testing.assert_allclose(got, stats.entropy(PROBS, np.full((1, 4), 0.25), axis=-1))
    sure, other = kind(probs=[0.0, 1.0]), kind(probs=[0.5, 0.5])
    assert float(D.kl_divergence(sure, other)) == pytest.approx(np.log(2))
    assert float(D.kl_divergence(other, sure)) == np.inf


def test_uniform_and_pareto_beyond_the_other() -> None:
    assert float(D.kl_divergence(D.Uniform(1.0, 2.0), D.Uniform(0.0, 4.0))) == pytest.approx(
        np.log(4)
    )
    assert float(D.kl_divergence(D.Uniform(0.0, 4.0), D.Uniform(1.0, 2.0))) == np.inf
    near, far = D.Pareto(concentration=2.0, scale=1.0), D.Pareto(concentration=2.0, scale=2.0)
    assert float(D.kl_divergence(far, near)) == pytest.approx(2 * np.log(2))
    assert float(D.kl_divergence(near, far)) == np.inf


def test_vectors() -> None:
    lower = triangle()
    p = D.MultivariateNormal(np.zeros(3), scale_tril=lower)
    q = D.MultivariateNormal(np.ones(3), covariance=np.eye(3) * 2)
    got = D.kl_divergence(p, q).numpy()
    for i, each in enumerate(lower @ lower.swapaxes(-1, -2)):
        log_ratio = 3 * np.log(2) - np.linalg.slogdet(each)[1]
        assert got[i] == pytest.approx(0.5 * (np.trace(each) / 2 + 1.5 - 3 + log_ratio))
    # Of a diagonal covariance, a sum of numbers.
    d = np.array([0.5, 2.0])
    p, q = D.Normal([1.0, 2.0], d), D.Normal(0.0, d[::-1].copy())
    whole = D.kl_divergence(D.Independent(p, 1), D.Independent(q, 1))
    vectors = [D.MultivariateNormal(e.loc + np.zeros(2), scale_tril=np.diag(s))
               for e, s in ((p, d), (q, d[::-1]))]  # fmt: skip
    assert float(whole) == pytest.approx(float(D.kl_divergence(*vectors)))
    assert float(whole) == pytest.approx(D.kl_divergence(p, q).numpy().sum())


def torchs(t: Any) -> dict[str, Callable[..., Any]]:
    """Return PyTorch's distributions of the parameters of the cases."""
    return {
        "Normal": t.Normal, "LogNormal": t.LogNormal, "HalfNormal": t.HalfNormal,
        "Laplace": t.Laplace, "Cauchy": t.Cauchy, "Gumbel": t.Gumbel, "Exponential": t.Exponential,
        "Gamma": lambda a, scale: t.Gamma(a, 1 / scale), "Chi2": t.Chi2, "Beta": t.Beta,
        "Pareto": lambda k, scale: t.Pareto(scale, k), "Bernoulli": t.Bernoulli,
        "Geometric": t.Geometric, "Poisson": t.Poisson,
        "Binomial": lambda p: t.Binomial(12, p),
        "Uniform": t.Uniform,
    }  # fmt: skip


def test_against_pytorch() -> None:
    torch = pytest.importorskip("torch")
    t = torch.distributions
    for name, theirs in torchs(t).items():
        case = {**CONTINUOUS, **COUNTS}[name]
        first, second = both(name)
        with np.errstate(all="ignore"):
            p, q = (
                theirs(*[torch.from_numpy(np.ascontiguousarray(v)) for v in group])
                for group in (first, second)
            )
            exact = t.kl_divergence(p, q).numpy()
        got = D.kl_divergence(case.ours(*first), case.ours(*second)).numpy()
        np.testing.assert_allclose(got, exact, rtol=1e-7, err_msg=name)
    a, b = np.random.default_rng(0).uniform(0.5, 3, (2, 5, 3))
    exact = t.kl_divergence(t.Dirichlet(torch.from_numpy(a)), t.Dirichlet(torch.from_numpy(b)))
    got = D.kl_divergence(D.Dirichlet(a), D.Dirichlet(b)).numpy()
    np.testing.assert_allclose(got, exact.numpy(), rtol=1e-9)


def test_gradients() -> None:
    loc, scale = gf.asarray(1.0), gf.asarray(2.0)
    divergence = D.kl_divergence(D.Normal(loc, scale), D.Normal(0.0, 1.0))
    slopes = gf.grad(divergence, [loc, scale])
    assert [float(s) for s in slopes] == pytest.approx([1.0, 1.5])


def test_registered_functions_go_to_the_nearest_classes() -> None:
    class Mine(D.Normal):
        """A subclass."""

    mine = Mine(0.0, 1.0)
    assert float(D.kl_divergence(mine, D.Normal(1.0, 1.0))) == 0.5

    @D.register_kl(Mine, D.Normal)
    def divergence(p: Any, q: Any) -> Any:
        return gf.zeros(()) + 7.0

    assert float(D.kl_divergence(mine, D.Normal(1.0, 1.0))) == 7
    assert float(D.kl_divergence(D.Normal(0.0, 1.0), mine)) == 0


def test_errors() -> None:
    normal = D.Normal(np.zeros(3), 1.0)
    with pytest.raises(gf.ArgumentError, match="no closed form for Normal and Laplace") as caught:
        D.kl_divergence(normal, D.Laplace(0.0, 1.0))
    assert "register_kl" in caught.value.fix
    with pytest.raises(gf.ShapeError, match=r"batch shapes of Normal and Normal, \[3\] and \[2\]"):
        D.kl_divergence(normal, D.Normal(np.zeros(2), 1.0))
    with pytest.raises(gf.ShapeError, match="the event shapes of Dirichlet and Dirichlet differ"):
        D.kl_divergence(D.Dirichlet(np.ones(2)), D.Dirichlet(np.ones(3)))
    with pytest.raises(gf.ShapeError, match="2 classes and 3 classes"):
        D.kl_divergence(D.Categorical(probs=np.ones(2)), D.Categorical(probs=np.ones(3)))
    with pytest.raises(gf.ArgumentError, match="the counts of both differ: 3 and 4"):
        D.kl_divergence(D.Binomial(3, probs=0.5), D.Binomial(4, probs=0.5))
    with pytest.raises(gf.ArgumentError, match=r"not a distribution|does not fit"):
        D.kl_divergence(normal, gf.zeros(3))
    with pytest.raises(gf.ArgumentError, match=r"not a class of distributions"):
        D.register_kl(normal, D.Normal)
