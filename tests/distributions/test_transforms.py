"""Distributions of functions of draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import graphfw as gf
from tests.distributions.cases import D, computed

TRANSFORMS = {
    "affine": D.AffineTransform(1.0, -2.0),
    "exp": D.ExpTransform(),
    "sigmoid": D.SigmoidTransform(),
    "tanh": D.TanhTransform(),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_has_its_inverse_and_its_slope(name: str) -> None:
    each = TRANSFORMS[name]
    x = gf.asarray(np.linspace(-3, 3, 13))
    y = each.forward(x)
    np.testing.assert_allclose(each.inverse(y).numpy(), x.numpy(), rtol=1e-9, atol=1e-12)
    slope = gf.grad(gf.sum(y), x).numpy()
    np.testing.assert_allclose(each.log_abs_det(x).numpy(), np.log(np.abs(slope)), atol=1e-9)


def test_slopes_far_out_do_not_cancel() -> None:
    x = gf.asarray([-60.0, 60.0])
    np.testing.assert_allclose(D.TanhTransform().log_abs_det(x).numpy(), np.log(4) - 120, rtol=1e-6)
    np.testing.assert_allclose(D.SigmoidTransform().log_abs_det(x).numpy(), -60, rtol=1e-6)


def test_exp_of_a_normal_is_log_normal() -> None:
    x = np.array([-1.0, 0.0, 0.3, 2.0]).reshape(-1, 1)

    def build(loc: Any, x: Any) -> list[Any]:
        d = D.TransformedDistribution(D.Normal(loc, 0.5), D.ExpTransform())
        return [d.log_prob(x), d.cdf(x), d.icdf(x * 0.25 + 0.25)]

    loc = np.array([0.5, -0.5])
    exact = stats.lognorm(0.5, scale=np.exp(loc))
    log, cdf, icdf = computed(build, loc, x)
    np.testing.assert_allclose(log, exact.logpdf(x), rtol=1e-9)
    np.testing.assert_allclose(cdf, exact.cdf(x), rtol=1e-9)
    np.testing.assert_allclose(icdf, exact.ppf(x * 0.25 + 0.25), rtol=1e-9)


def test_a_falling_transform() -> None:
    scale = np.array([2.0, -3.0])
    d = D.TransformedDistribution(
        D.Gumbel(0.0, 1.0), [D.AffineTransform(1.0, scale), D.AffineTransform(0.0, -1.0)]
    )
    assert d.batch_shape == (2,)
    x = np.linspace(-5, 5, 11).reshape(-1, 1)
    exact = np.stack(
        [stats.gumbel_l(-1.0, 2.0).cdf(x[:, 0]), stats.gumbel_r(-1.0, 3.0).cdf(x[:, 0])], axis=-1
    )
    np.testing.assert_allclose(d.cdf(x).numpy(), exact, rtol=1e-6, atol=1e-9)
    p = np.linspace(0.05, 0.95, 7).reshape(-1, 1)
    np.testing.assert_allclose(d.cdf(d.icdf(p)).numpy(), np.broadcast_to(p, (7, 2)), rtol=1e-6)
    drawn = computed(lambda x: d.sample((4000,)), np.zeros(1), seed=2)
    assert np.corrcoef(drawn.T)[0, 1] < 0.06  # each element of the batch has draws of its own
    means = [-1 - 2 * np.euler_gamma, -1 + 3 * np.euler_gamma]
    np.testing.assert_allclose(drawn.mean(axis=0), means, atol=0.2)


def test_squashed_vectors() -> None:
    """A policy of reinforcement learning: the tanh of independent normal numbers."""
    loc, scale = np.array([[0.2, -0.4, 0.1]]), np.array([[0.5, 1.0, 0.3]])

    def build(loc: Any, scale: Any) -> list[Any]:
        base = D.Independent(D.Normal(loc, scale), 1)
        d = D.TransformedDistribution(base, D.TanhTransform())
        assert d.event_shape == loc.shape[1:]
        y = d.rsample((6,))
        return [y, d.log_prob(y), *gf.grad(gf.sum(y), [loc, scale]), d.log_prob(y * 0 + 1)]

    y, log, by_loc, by_scale, outside = computed(build, loc, scale)
    assert log.shape == (6, 1)
    x = np.arctanh(y)
    exact = (stats.norm(loc, scale).logpdf(x) - np.log1p(-(y**2))).sum(axis=-1)
    np.testing.assert_allclose(log, exact, rtol=1e-8)
    slope = 1 - y**2
    np.testing.assert_allclose(by_loc, slope.sum(axis=0), rtol=1e-9)
    np.testing.assert_allclose(by_scale, (slope * (x - loc) / scale).sum(axis=0), rtol=1e-8)
    assert np.isneginf(outside).all()


def test_results_of_no_value_have_finite_gradients() -> None:
    loc = gf.asarray(0.5)
    d = D.TransformedDistribution(D.Normal(loc, 1.0), [D.SigmoidTransform(), D.ExpTransform()])
    log = d.log_prob([-1.0, 0.5, 1.5, 9.0])
    assert np.isneginf(log.numpy()).tolist() == [True, True, False, True]
    assert np.isfinite(gf.grad(gf.sum(gf.where(log > -gf.inf, log, 0.0)), loc).numpy())


def test_what_cannot_be_transformed() -> None:
    with pytest.raises(gf.ArgumentError, match="draws of the base are of int64"):
        D.TransformedDistribution(D.Poisson(1.0), D.ExpTransform())
    with pytest.raises(gf.CallError, match="transforms=") as caught:
        D.TransformedDistribution(D.Normal(0.0, 1.0), gf.exp)
    assert "Transform" in caught.value.fix
    with pytest.raises(gf.ShapeError, match=r"parameters of shape \[2\] don't broadcast"):
        D.TransformedDistribution(D.Normal(np.zeros(3), 1.0), D.AffineTransform([1.0, 2.0], 1.0))
    with pytest.raises(gf.ArgumentError, match="scale=0 must be other than 0"):
        D.AffineTransform(0.0, 0)
    d = D.TransformedDistribution(D.Normal(0.0, 1.0), D.TanhTransform())
    with pytest.raises(gf.ArgumentError, match="mean: there is none in closed form"):
        _ = d.mean
    base = D.TransformedDistribution(D.MixtureSameFamily(
        D.Categorical(probs=[0.5, 0.5]), D.Normal([0.0, 1.0], 1.0)), D.ExpTransform())  # fmt: skip
    with pytest.raises(gf.GradientError, match="no gradient flows"):
        base.rsample()
