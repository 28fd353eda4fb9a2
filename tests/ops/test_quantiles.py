"""Quantiles and medians, of all elements and of those that are no NaN, beside NumPy's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import graphfw as gf
from tests.support.gradcheck import check_gradients

METHODS = ["linear", "lower", "higher", "midpoint", "nearest"]
AXES = [None, 0, -1, (0, 2), ()]


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axis", AXES)
def test_quantiles_are_numpys(axis, method, rng):
    x = rng.normal(size=(3, 4, 5))
    for q in (0.0, 1.0, 0.3, rng.uniform(size=3), rng.uniform(size=(2, 1))):
        for keepdims in (False, True):
            options = {"axis": axis, "keepdims": keepdims, "method": method}
            expected = np.quantile(x, q, **options)
            result = gf.quantile(x, q, **options).numpy()
            np.testing.assert_allclose(result, expected, rtol=1e-14, strict=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axis", AXES)
def test_quantiles_without_nan_are_numpys(axis, method, rng):
    x = np.where(rng.uniform(size=(3, 4, 5)) < 0.2, np.nan, rng.normal(size=(3, 4, 5)))
    x[0] = np.nan
    q = rng.uniform(size=4)
    with warnings.catch_warnings():  # of slices that are NaN all through
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = np.nanquantile(x, q, axis=axis, method=method)
        middle = np.nanmedian(x, axis=axis, keepdims=True)
    result = gf.nanquantile(x, q, axis=axis, method=method)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-14, strict=True)
    found = gf.nanmedian(x, axis=axis, keepdims=True)
    np.testing.assert_allclose(found.numpy(), middle, rtol=1e-14, strict=True)


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_median_is_numpys(axis, keepdims, rng):
    x = rng.normal(size=(4, 1, 5))
    result = gf.median(x, axis=axis, keepdims=keepdims)
    expected = np.median(x, axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-15, strict=True)


def test_nan_infinities_and_large_numbers():
    x = gf.asarray([[1.0, np.nan, 2.0], [3.0, np.inf, 1.0]])
    np.testing.assert_array_equal(gf.median(x, axis=1).numpy(), [np.nan, 3.0])
    np.testing.assert_array_equal(gf.nanmedian(x, axis=1).numpy(), [1.5, 3.0])
    assert float(gf.median(gf.asarray([60000.0, 60000.0]).astype("float16"))) == 60000.0
    assert float(gf.quantile(gf.asarray([-np.inf, 1.0]), 0.5)) == -np.inf
    assert float(gf.quantile(gf.asarray([1.0, np.inf]), 0)) == 1


def test_dtypes():
    for dtype in ("float16", "bfloat16", "float64"):
        assert gf.quantile(gf.ones(3, dtype=dtype), 0.5).dtype.name == dtype
    assert gf.quantile([1, 2], [0, 1]).dtype is gf.float32
    assert gf.median([True, False]).item() == 0.5
    for name in ("median", "nanmedian"):
        with pytest.raises(gf.DTypeError, match=f"{name}: wants floating-point tensors"):
            getattr(gf, name)(gf.asarray([1j]))


def test_sizes_and_fractions_that_a_run_tells(rng):
    x = rng.normal(size=(4, 3)).astype(np.float32)
    with gf.Graph() as g:
        p = gf.placeholder(("n", 3), name="p")
        q = gf.placeholder(("k",), name="q")
        made = [gf.quantile(p, q, axis=0), gf.nanquantile(p, q), gf.median(p, axis=(0, 1))]
    with gf.Session(g) as session:
        found = session.run(made, {p: x, q: [0.25, 0.7, 1.5]})
    expected = np.quantile(x, [0.25, 0.7], axis=0)
    np.testing.assert_allclose(found[0], [*expected, [np.nan] * 3], rtol=1e-6)
    np.testing.assert_allclose(found[1], [*np.quantile(x, [0.25, 0.7]), np.nan], rtol=1e-6)
    np.testing.assert_allclose(found[2], np.median(x), rtol=1e-6)


@pytest.mark.parametrize("name", ["median", "nanmedian", "quantile", "nanquantile"])
@pytest.mark.parametrize("shape", [(0, 0), (0, 2)])
def test_a_run_refuses_an_axis_without_elements(name, shape):
    fraction = (0.5,) if name.endswith("quantile") else ()
    with gf.Graph() as g:
        x = gf.placeholder(("n", "m"), name="x")
        y = getattr(gf, name)(x, *fraction, axis=0)
    with (
        gf.Session(g) as session,
        pytest.raises(gf.ExecutionError, match=f"^{name}: the axis has size 0") as caught,
    ):
        session.run(y, {x: np.zeros(shape, np.float32)})
    assert caught.value.fix.startswith("give it one element or more")
    assert 'given  "x"' in str(caught.value)


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
def test_gradients(name, rng):
    x, q = gf.asarray(rng.permuted(np.arange(8.0)).reshape(2, 4)), gf.asarray([0.3, 0.85])
    q = gf.astype(q, "float64")
    leaf = gf.asarray(q.numpy())
    check_gradients(getattr(gf, name)(x, leaf, axis=1), [x, leaf], rng)
    check_gradients(getattr(gf, name)(x, 0.4, axis=None, method="midpoint"), [x], rng)


def test_gradient_of_the_median():
    x = gf.asarray([5.0, 1.0, 4.0, 2.0])
    np.testing.assert_array_equal(gf.grad(gf.median(x), x).numpy(), [0, 0, 0.5, 0.5])


def test_examples_of_a_batch(rng):
    x = rng.normal(size=(3, 5))
    each = gf.vmap(lambda row: gf.quantile(row, [0.2, 0.9]))(gf.asarray(x))
    np.testing.assert_allclose(each.numpy(), np.quantile(x, [0.2, 0.9], axis=1).T)


def test_errors():
    with pytest.raises(gf.ArgumentError, match=r"quantile: q=95\.0 is not between 0 and 1"):
        gf.quantile(gf.ones(3), 95)
    with pytest.raises(gf.ArgumentError, match="quantile: method='cubic'") as caught:
        gf.quantile(gf.ones(3), 0.5, method="cubic")
    assert '"nearest"' in caught.value.fix
    with pytest.raises(gf.ShapeError, match="nanmedian: axis 0 has size 0"):
        gf.nanmedian(gf.zeros((0,)))
    with pytest.raises(gf.AxisError, match="median: axis 1 is out of range for 1 dim"):
        gf.median(gf.ones((3,)), axis=1)
