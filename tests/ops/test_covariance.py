"""Covariances and correlations, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from tests.support.gradcheck import check_gradients


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("rowvar", [True, False])
def test_they_are_numpys(rowvar, dtype, rng):
    x, y = (drawn(rng, (3, 5), dtype) for _ in range(2))
    for correction in (0, 1, 2.5):
        ours = gf.cov(x, y, rowvar=rowvar, correction=correction)
        # NumPy wants an int.
        wanted = np.cov(x, y, rowvar=rowvar, ddof=0) * samples(x, rowvar)
        wanted /= samples(x, rowvar) - correction
        np.testing.assert_allclose(ours.numpy(), wanted, rtol=1e-13, strict=True)
    for others in ((), (y,)):
        ours = gf.corrcoef(x, *others, rowvar=rowvar)
        wanted = np.corrcoef(x, *others, rowvar=rowvar)
        np.testing.assert_allclose(ours.numpy(), wanted, rtol=1e-13, strict=True)
    one, other = drawn(rng, 4, dtype), drawn(rng, 4, dtype)
    np.testing.assert_allclose(gf.cov(one).numpy(), np.cov(one), strict=True)
    np.testing.assert_allclose(gf.corrcoef(one).numpy(), np.corrcoef(one), strict=True)
    np.testing.assert_allclose(gf.cov(one, other).numpy(), np.cov(one, other), strict=True)


def drawn(rng, shape, dtype):
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if dtype == "complex128" else x


def samples(x, rowvar):
    return x.shape[1 if rowvar else 0]


@pytest.mark.parametrize("correction", [0, 1])
def test_weights_are_numpys(correction, rng):
    x = rng.normal(size=(3, 5))
    counts, shares = rng.integers(1, 4, 5), rng.uniform(size=5)
    for weights in ({"fweights": counts}, {"aweights": shares}):
        ours = gf.cov(x, correction=correction, **weights)
        np.testing.assert_allclose(ours.numpy(), np.cov(x, ddof=correction, **weights), rtol=1e-13)
    ours = gf.cov(x, correction=correction, fweights=counts, aweights=shares)
    wanted = np.cov(x, ddof=correction, fweights=counts, aweights=shares)
    np.testing.assert_allclose(ours.numpy(), wanted, rtol=1e-13)


def test_symbolic_sizes_and_dtypes(rng):
    x = rng.normal(size=(3, 6)).astype(np.float32)
    with gf.Graph() as g:
        p = gf.placeholder(("v", "n"), name="p")
        made = [gf.cov(p), gf.corrcoef(p), gf.cov(p[0])]
        assert made[0].shape == (p.shape[0], p.shape[0])
    with gf.Session(g) as session:
        found = session.run(made, {p: x})
    for value, wanted in zip(found, [np.cov(x), np.corrcoef(x), np.cov(x[0])], strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)
    assert gf.cov([[1, 2], [3, 5]]).dtype is gf.float32
    spread = gf.asarray([-200.0, 200.0, 300.0]).astype("float16")
    assert gf.corrcoef(spread, spread).dtype is gf.float16
    np.testing.assert_allclose(gf.corrcoef(spread, spread).numpy(), np.ones((2, 2)))


def test_gradients(rng):
    x, shares = gf.asarray(rng.normal(size=(2, 4))), gf.asarray(rng.uniform(1, 2, 4))
    check_gradients(gf.cov(x, aweights=shares), [x, shares], rng)
    check_gradients(gf.corrcoef(x)[0, 1], [x], rng, tolerance=1e-5)


def test_correlations_of_what_does_not_vary_are_nan():
    assert np.isnan(gf.corrcoef([[1.0, 1.0], [1.0, 2.0]]).numpy()).tolist() == [
        [True, True],
        [True, False],
    ]


def test_errors():
    with pytest.raises(gf.ShapeError, match="cov: wants 1 or 2 dims, not 3") as caught:
        gf.cov(gf.ones((2, 2, 2)))
    assert "gf.vmap(gf.cov)" in caught.value.fix
    with pytest.raises(gf.ShapeError, match="cov: fweights"):
        gf.cov(gf.ones((2, 3)), fweights=[1, 2])
    with pytest.raises(gf.ArgumentError, match="cov: correction=nan is no finite number"):
        gf.cov(gf.ones((2, 3)), correction=np.nan)
    with pytest.raises(gf.ShapeError):
        gf.cov(gf.ones((2, 3)), gf.ones((2, 4)))
