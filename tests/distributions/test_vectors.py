"""Classes, vectors, mixtures and independent batches, against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import graphfw as gf
from tests.distributions.cases import D, computed

WEIGHTS = np.random.default_rng(5).uniform(0.5, 3.0, (2, 4))
PROBS = WEIGHTS / WEIGHTS.sum(axis=-1, keepdims=True)
KINDS = ["probs", "logits"]


def of(kind: str, w: Any) -> dict[str, Any]:
    return {"probs": w} if kind == "probs" else {"logits": gf.log(w) + 2.0}


def share(x: np.ndarray, classes: int) -> np.ndarray:
    return np.stack([(x == c).mean(axis=0) for c in range(classes)], axis=-1)


@pytest.mark.parametrize("kind", KINDS)
def test_categorical(kind: str) -> None:
    x = np.array([0, 3, -1, 4, 2]).reshape(-1, 1)

    def build(w: Any, x: Any) -> list[Any]:
        d = D.Categorical(**of(kind, w))
        return [d.log_prob(x), d.entropy(), d.mode, d.probs, d.logits, d.sample((4000,))]

    log, entropy, mode, probs, logits, drawn = computed(build, WEIGHTS, x)
    exact = np.log(PROBS)[:, [0, 3, 0, 0, 2]].T
    exact[2:4] = -np.inf  # no class is -1 or 4
    np.testing.assert_allclose(log, exact, rtol=1e-12)
    np.testing.assert_allclose(entropy, stats.entropy(PROBS, axis=-1), rtol=1e-12)
    np.testing.assert_array_equal(mode, PROBS.argmax(axis=-1))
    np.testing.assert_allclose(probs, PROBS, rtol=1e-12)
    np.testing.assert_allclose(logits, np.log(PROBS), rtol=1e-12)
    np.testing.assert_allclose(share(drawn, 4), PROBS, atol=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_classes_that_are_masked_have_finite_gradients(kind: str) -> None:
    """Logits of -inf, or so low that a probability rounds to 0, as in masks of actions."""
    logits = np.array([0.0, 1.0, -np.inf, -300.0], np.float32)

    def build(given: Any) -> list[Any]:
        d = D.Categorical(**{kind: given})
        vector, other = D.OneHotCategorical(**{kind: given}), D.Categorical(logits=gf.zeros(4))
        counts = D.Multinomial(2, **{kind: given})
        results = [d.log_prob(1), d.entropy(), vector.log_prob([1, 0, 0, 0])]
        results += [D.kl_divergence(d, other), D.kl_divergence(d, d), counts.log_prob([1, 1, 0, 0])]
        return [*results, *[gf.grad(r, given) for r in results]]

    given = logits if kind == "logits" else np.exp(logits)
    results = [r.numpy() for r in build(gf.asarray(given))]
    assert np.isfinite(np.concatenate([np.ravel(r) for r in results])).all()
    p = np.exp(logits[:2]) / np.exp(logits[:2]).sum()
    np.testing.assert_allclose(results[1], stats.entropy(p), rtol=1e-5)


def test_classes_are_integers_and_have_no_mean() -> None:
    d = D.Categorical(probs=[0.5, 0.5])
    with pytest.raises(gf.DTypeError, match="classes are integers, not float32"):
        d.log_prob(0.5)
    with pytest.raises(gf.ArgumentError, match="classes are no numbers"):
        _ = d.mean


@pytest.mark.parametrize("kind", KINDS)
def test_one_hot(kind: str) -> None:
    x = np.array([[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0], [0, 2, -1, 0]])

    def build(w: Any, x: Any) -> list[Any]:
        d = D.OneHotCategorical(**of(kind, w))
        log = d.log_prob(gf.expand_dims(x, axis=1))
        return [log, d.mean, d.variance, d.entropy(), d.sample((4000,)), d.mode]

    log, mean, variance, entropy, drawn, mode = computed(build, WEIGHTS, x)
    exact = np.full((5, 2), -np.inf)
    exact[:2] = np.log(PROBS)[:, [1, 3]].T
    np.testing.assert_allclose(log, exact, rtol=1e-12)
    np.testing.assert_allclose(mean, PROBS, rtol=1e-12)
    np.testing.assert_allclose(variance, PROBS * (1 - PROBS), rtol=1e-12)
    np.testing.assert_allclose(entropy, stats.entropy(PROBS, axis=-1), rtol=1e-12)
    assert drawn.shape == (4000, 2, 4)
    np.testing.assert_allclose(drawn.mean(axis=0), PROBS, atol=0.03)
    np.testing.assert_array_equal(mode.argmax(axis=-1), PROBS.argmax(axis=-1))


@pytest.mark.parametrize("kind", KINDS)
def test_multinomial(kind: str) -> None:
    x = np.array([[1, 2, 3, 1], [7, 0, 0, 0], [1, 1, 1, 1], [8, -1, 0, 0]])

    def build(w: Any, x: Any) -> list[Any]:
        d = D.Multinomial(7, **of(kind, w))
        log = d.log_prob(gf.expand_dims(x, axis=1))
        return [log, d.mean, d.variance, d.entropy(), d.sample((4000,))]

    log, mean, variance, entropy, drawn = computed(build, WEIGHTS, x)
    for i, p in enumerate(PROBS):
        exact = stats.multinomial(7, p)
        np.testing.assert_allclose(log[:, i], exact.logpmf(x), rtol=1e-9)
        np.testing.assert_allclose(entropy[i], exact.entropy(), rtol=1e-9)
        np.testing.assert_allclose(variance[i], np.diag(exact.cov()), rtol=1e-9)
    np.testing.assert_allclose(mean, 7 * PROBS, rtol=1e-12)
    assert (drawn.sum(axis=-1) == 7).all()
    np.testing.assert_allclose(drawn.mean(axis=0), 7 * PROBS, atol=0.1)


def test_counts_of_symbolic_draws() -> None:
    x = np.zeros((6, 2))

    def build(x: Any) -> list[Any]:
        n = x.shape[0]
        binomial, multinomial = D.Binomial(n, probs=0.25), D.Multinomial(n, probs=[0.25, 0.75])
        results = [binomial.log_prob(2), binomial.mean, multinomial.log_prob([2, 4])]
        return [*results, binomial.entropy(), multinomial.entropy(), binomial.sample()]

    log, mean, vectors, entropy, of_vectors, drawn = computed(build, x)
    assert log == pytest.approx(stats.binom(6, 0.25).logpmf(2), rel=1e-5)
    assert vectors == pytest.approx(log, rel=1e-5)
    assert mean == 1.5
    assert entropy == pytest.approx(stats.binom(6, 0.25).entropy(), rel=1e-5)
    assert of_vectors == pytest.approx(entropy, rel=1e-5)
    assert 0 <= drawn <= 6


def test_dirichlet() -> None:
    x = np.random.default_rng(3).dirichlet([1.0, 1.0, 1.0, 1.0], (5, 1))

    def build(a: Any, x: Any) -> list[Any]:
        d = D.Dirichlet(a)
        log = d.log_prob(x)
        return [log, d.mean, d.variance, d.entropy(), d.sample((4000,)), d.log_prob(-x)]

    log, mean, variance, entropy, drawn, outside = computed(build, WEIGHTS, x)
    for i, a in enumerate(WEIGHTS):
        exact = stats.dirichlet(a)
        each = [exact.logpdf(row) for row in x[:, 0]]
        np.testing.assert_allclose(log[:, i], each, rtol=1e-9)
        np.testing.assert_allclose(mean[i], exact.mean(), rtol=1e-9)
        np.testing.assert_allclose(variance[i], exact.var(), rtol=1e-9)
        np.testing.assert_allclose(entropy[i], exact.entropy(), rtol=1e-9)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.02)
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.1)
    assert np.isneginf(outside).all()
    modes = D.Dirichlet([[2.0, 3.0], [0.5, 2.0]]).mode.numpy()
    np.testing.assert_allclose(modes, [[1 / 3, 2 / 3], [np.nan, np.nan]], rtol=1e-6)


def triangle() -> np.ndarray:
    rng = np.random.default_rng(4)
    return np.tril(rng.normal(size=(2, 3, 3)), -1) + np.eye(3) * rng.uniform(0.5, 2, (2, 1, 3))


@pytest.mark.parametrize("kind", ["scale_tril", "covariance"])
def test_multivariate_normal(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # no random sample is positive definite
    lower = triangle()
    covariance = lower @ lower.swapaxes(-1, -2)
    loc, x = np.array([1.0, -2.0, 0.5]), np.random.default_rng(6).normal(size=(5, 1, 3))

    def build(loc: Any, matrix: Any, x: Any) -> list[Any]:
        d = D.MultivariateNormal(loc, **{kind: matrix})
        moments = [d.mean, d.variance, d.covariance, d.mode]
        return [d.log_prob(x), d.entropy(), d.rsample((4000,)), *moments]

    matrix = lower + np.triu(np.ones(3), 1) if kind == "scale_tril" else covariance
    results = computed(build, loc, matrix, x)
    log, entropy, drawn, mean, variance, ours, mode = results
    for i, each in enumerate(covariance):
        exact = stats.multivariate_normal(loc, each)
        np.testing.assert_allclose(log[:, i], exact.logpdf(x[:, 0]), rtol=1e-9)
        np.testing.assert_allclose(entropy[i], exact.entropy(), rtol=1e-9)
        np.testing.assert_allclose(variance[i], np.diag(each), rtol=1e-9)
        np.testing.assert_allclose(np.cov(drawn[:, i].T), each, atol=0.3)
    np.testing.assert_allclose(ours, covariance, rtol=1e-9)
    np.testing.assert_array_equal(mean, np.broadcast_to(loc, (2, 3)))
    np.testing.assert_array_equal(mode, mean)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.15)


def test_gradients_of_multivariate_normal_draws() -> None:
    """With fixed random numbers, draws are a linear function of the parameters."""
    lower = triangle()[0]

    def build(loc: Any, lower: Any) -> list[Any]:
        x = D.MultivariateNormal(loc, scale_tril=lower).rsample((4,))
        return [x, *gf.grad(gf.sum(gf.sin(x)), [loc, lower])]

    x, by_loc, by_lower = computed(build, np.zeros(3), lower)
    np.testing.assert_allclose(by_loc, np.cos(x).sum(axis=0), rtol=1e-9)
    z = np.linalg.solve(lower, x.T).T
    exact = np.tril(np.cos(x).T @ z)
    np.testing.assert_allclose(by_lower, exact, rtol=1e-9, atol=1e-12)


def test_narrow_covariances() -> None:
    d = D.MultivariateNormal(
        gf.zeros(2, dtype=gf.float16), covariance=gf.eye(2, dtype=gf.float16) * 4
    )
    assert d.log_prob(gf.zeros(2, dtype=gf.float16)).dtype is gf.float16
    assert d.sample().dtype is gf.float16
    np.testing.assert_array_equal(d.covariance.numpy(), np.eye(2) * 4)


def test_independent() -> None:
    loc = np.random.default_rng(8).normal(size=(2, 3))
    d = D.Independent(D.Normal(loc, 2.0), 1)
    assert (d.batch_shape, d.event_shape) == ((2,), (3,))
    x = np.random.default_rng(9).normal(size=(5, 1, 3))
    exact = stats.norm(loc, 2.0).logpdf(x).sum(axis=-1)
    np.testing.assert_allclose(d.log_prob(x).numpy(), exact, rtol=1e-12)
    np.testing.assert_allclose(d.entropy().numpy(), 3 * stats.norm(0, 2).entropy() * np.ones(2))
    assert d.rsample((4,)).shape == (4, 2, 3)
    np.testing.assert_array_equal(d.mean.numpy(), loc)
    np.testing.assert_array_equal(d.std.numpy(), np.full((2, 3), 2.0))
    all_of_it = D.Independent(D.Bernoulli(probs=np.full((2, 3), 0.5)), 2)
    assert (all_of_it.batch_shape, all_of_it.event_shape) == ((), (2, 3))
    assert not all_of_it.has_rsample
    ones = np.ones((2, 3), bool)
    assert float(all_of_it.log_prob(ones)) == pytest.approx(6 * np.log(0.5))
    classes = D.Independent(D.Categorical(probs=PROBS), 1)
    assert float(classes.log_prob([0, 1])) == pytest.approx(np.log(PROBS[0, 0] * PROBS[1, 1]))
    same = D.Independent(D.Normal(loc, 2.0), 0)
    assert same.log_prob(x).shape == (5, 2, 3)
    with pytest.raises(gf.ShapeError, match=r"\[2\] does not end in the event shape \[3\]"):
        d.log_prob(np.zeros(2))
    with pytest.raises(
        gf.ArgumentError, match=r"ndims=3 is no number of dims of the batch \[2, 3\]"
    ):
        D.Independent(D.Normal(loc, 2.0), 3)


def test_mixture() -> None:
    loc = np.array([-2.0, 0.0, 1.0, 4.0])
    x = np.linspace(-4, 6, 7).reshape(-1, 1)

    def build(w: Any, loc: Any, x: Any) -> list[Any]:
        d = D.MixtureSameFamily(D.Categorical(probs=w), D.Normal(loc, 0.5))
        return [d.log_prob(x), d.cdf(x), d.mean, d.variance, d.sample((4000,))]

    log, cdf, mean, variance, drawn = computed(build, WEIGHTS, loc, x)
    each = stats.norm(loc, 0.5)
    density = (each.pdf(x[..., None]) * PROBS).sum(axis=-1)
    np.testing.assert_allclose(log, np.log(density), rtol=1e-9)
    np.testing.assert_allclose(cdf, (each.cdf(x[..., None]) * PROBS).sum(axis=-1), rtol=1e-9)
    exact = (PROBS * loc).sum(axis=-1)
    np.testing.assert_allclose(mean, exact, rtol=1e-9)
    second = (PROBS * (loc**2 + 0.25)).sum(axis=-1)
    np.testing.assert_allclose(variance, second - exact**2, rtol=1e-9)
    assert drawn.shape == (4000, 2)
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.15)
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.1)


def test_mixture_of_vectors() -> None:
    loc = np.array([[-3.0, 0.0], [3.0, 1.0]])
    each = D.Independent(D.Normal(loc, np.full((2, 2), 0.5)), 1)
    d = D.MixtureSameFamily(D.Categorical(probs=[0.25, 0.75]), each)
    assert (d.batch_shape, d.event_shape) == ((), (2,))
    drawn = d.sample((4000,)).numpy()
    np.testing.assert_allclose(drawn.mean(axis=0), [1.5, 0.75], atol=0.2)
    is_left = drawn[:, 0] < 0
    assert is_left.mean() == pytest.approx(0.25, abs=0.03)
    assert drawn[is_left, 1].mean() == pytest.approx(0.0, abs=0.1)
    x = np.array([2.0, 1.0])
    density = [stats.norm(c, 0.5).pdf(x).prod() for c in loc]
    assert float(d.log_prob(x)) == pytest.approx(np.log(np.dot([0.25, 0.75], density)))
    np.testing.assert_allclose(d.mean.numpy(), [1.5, 0.75])
    np.testing.assert_allclose(d.variance.numpy(), [0.25 + 9 - 2.25, 0.25 + 0.75 - 0.5625])
    outside = D.MixtureSameFamily(
        D.Categorical(probs=[0.5, 0.5]), D.Uniform([0.0, 1.0], loc[1] + 2)
    )
    assert np.isneginf(outside.log_prob([-1.0, 9.0]).numpy()).all()
    with pytest.raises(gf.GradientError, match=r"MixtureSameFamily\.rsample"):
        d.rsample()
