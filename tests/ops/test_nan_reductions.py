"""Reductions that leave out NaN, beside NumPy's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import graphfw as gf
from tests.support.gradcheck import check_gradients

NAMES = ["nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin"]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():  # NumPy warns of slices that are NaN all through
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def holed(rng, shape, dtype="float64"):
    x = rng.normal(size=shape).astype(dtype)
    x[rng.uniform(size=shape) < 0.3] = np.nan
    x[..., 0] = np.nan
    return x


@pytest.mark.exhaustive
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), ()])
@pytest.mark.parametrize("name", NAMES)
def test_reductions_are_numpys(name, axis, keepdims, rng):
    x = holed(rng, (3, 2, 5))
    result = getattr(gf, name)(x, axis=axis, keepdims=keepdims)
    expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-13, atol=1e-15, strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_infinities_are_no_nan(name):
    x = np.array([[np.inf, 1.0, np.nan], [-np.inf, np.inf, np.nan], [np.inf, np.inf, np.inf]])
    result = getattr(gf, name)(x, axis=1)
    np.testing.assert_array_equal(result.numpy(), getattr(np, name)(x, axis=1), strict=True)


@pytest.mark.parametrize("name", ["nanvar", "nanstd"])
@pytest.mark.parametrize("correction", [1, 0.5, 3])
def test_corrections_are_numpys(name, correction, rng):
    x = holed(rng, (4, 5))
    result = getattr(gf, name)(x, axis=0, correction=correction)
    expected = getattr(np, name)(x, axis=0, ddof=correction)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-13)
    with pytest.raises(gf.ArgumentError, match=f"{name}: correction='a' is no finite number"):
        getattr(gf, name)(x, correction="a")


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("name", ["nanargmax", "nanargmin"])
def test_places_are_numpys(name, axis, keepdims, rng):
    x = np.where(rng.uniform(size=(3, 4)) < 0.3, np.nan, rng.normal(size=(3, 4)))
    x[np.arange(3), [1, 2, 3]] = 0  # so that every row and column has a number
    x[0, 0] = 1
    result = getattr(gf, name)(x, axis=axis, keepdims=keepdims)
    expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    np.testing.assert_array_equal(result.numpy(), expected, strict=True)


def test_places_beside_infinities_and_of_nan_alone():
    x = gf.asarray([[np.nan, -np.inf], [np.nan, np.nan], [np.inf, np.nan]])
    assert gf.nanargmax(x, axis=1).numpy().tolist() == [1, -1, 0]
    assert gf.nanargmin(x, axis=1).numpy().tolist() == [1, -1, 0]
    assert gf.nanargmax(x).item() == 4


@pytest.mark.parametrize("name", [*NAMES, "nanargmax", "nanargmin"])
def test_of_integers_they_are_the_plain_ones(name, rng):
    x = rng.integers(-3, 4, (3, 4)).astype(np.int32)
    ours = getattr(gf, name)(gf.asarray(x), axis=0)
    plain = getattr(gf, name.removeprefix("nan"))(gf.asarray(x), axis=0)
    assert ours.dtype is plain.dtype
    np.testing.assert_allclose(ours.numpy(), plain.numpy(), rtol=1e-6)


def test_low_precision_accumulates_in_float32():
    x = gf.full((3000,), 1.0, dtype="float16")
    assert float(gf.nanmean(x)) == 1
    assert float(gf.nansum(x)) == 3000
    assert gf.nanstd(gf.asarray([-1000.0, 1000.0]).astype("bfloat16")).item() == 1000


def test_complex_numbers(rng):
    x = rng.normal(size=4) + 1j * rng.normal(size=4)
    x[1] = np.nan
    for name in ("nansum", "nanprod", "nanmean"):
        np.testing.assert_allclose(getattr(gf, name)(x).numpy(), getattr(np, name)(x))
    with pytest.raises(gf.DTypeError, match="nanmax: wants real tensors, not complex128"):
        gf.nanmax(x)
    with pytest.raises(gf.DTypeError, match="nanargmin: wants real tensors, not bool"):
        gf.nanargmin([True])


@pytest.mark.parametrize("name", NAMES)
def test_gradients_pass_by_nan(name, rng):
    x = holed(rng, (3, 4))
    x[:, 1:3] = rng.normal(size=(3, 2))
    present = ~np.isnan(x)
    leaf = gf.asarray(x[present])
    holes = gf.index_set(gf.full(x.shape, np.nan, dtype="float64"), np.nonzero(present), leaf)
    check_gradients(getattr(gf, name)(holes, axis=1), [leaf], rng)


def test_symbolic_sizes(rng):
    x = holed(rng, (4, 3), "float32")
    with gf.Graph() as g:
        p = gf.placeholder(("n", 3), name="p")
        made = [getattr(gf, name)(p, axis=0) for name in NAMES]
        made.append(gf.nanargmax(p))
    with gf.Session(g) as session:
        found = session.run(made, {p: x})
    for name, value in zip([*NAMES, "nanargmax"], found, strict=True):
        axis = {} if name == "nanargmax" else {"axis": 0}
        np.testing.assert_allclose(value, getattr(np, name)(x, **axis), rtol=2e-6)


def test_axis_errors():
    for name in ("nanmean", "nanmax", "nanargmax", "nansum"):
        with pytest.raises(gf.AxisError, match="axis 1 is out of range for 1 dim") as caught:
            getattr(gf, name)(gf.ones((3,)), axis=1)
        assert str(caught.value).startswith(name) or name == "nansum"
    with pytest.raises(gf.ShapeError, match="nanmax: axis 0 has size 0"):
        gf.nanmax(gf.zeros((0,)))
