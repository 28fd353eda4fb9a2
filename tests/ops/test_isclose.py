"""Numbers that are nearly equal, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf

SPECIAL = np.array([0.0, -0.0, 1.0, 1.000001, 1.1, np.inf, -np.inf, np.nan, 1e-9, 3e38])


@pytest.mark.parametrize("equal_nan", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_it_is_numpys(dtype, equal_nan):
    a, b = (x.astype(dtype) for x in np.meshgrid(SPECIAL, SPECIAL))
    for options in ({}, {"rtol": 0.2}, {"atol": 1.0, "rtol": 0.0}):
        ours = gf.isclose(a, b, equal_nan=equal_nan, **options)
        with np.errstate(over="ignore"):
            theirs = np.isclose(a, b, equal_nan=equal_nan, **options)
        np.testing.assert_array_equal(ours.numpy(), theirs)
        together = gf.allclose(a, b, equal_nan=equal_nan, **options)
        assert together.shape == ()
        assert bool(together) == theirs.all()


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool"])
def test_integers_do_not_wrap(dtype, rng):
    a, b = rng.integers(0, 2, (2, 50)).astype(dtype) * np.array(200 if dtype != "bool" else 1)
    a, b = a.astype(dtype), b.astype(dtype)
    ours = gf.isclose(a, b, atol=100)
    np.testing.assert_array_equal(
        ours.numpy(), np.isclose(a.astype(float), b.astype(float), atol=100)
    )


def test_narrow_floats_broadcasting_and_scalars():
    half = gf.asarray([60000.0, 1.0]).astype("float16")
    assert gf.isclose(half, -half, atol=2e5).numpy().tolist() == [True, True]
    assert gf.isclose(gf.ones((2, 1)), 1.0).shape == (2, 1)
    assert bool(gf.allclose(gf.ones((2, 1)), gf.ones(3)))
    with pytest.raises(gf.ShapeError):
        gf.allclose(gf.ones(2), gf.ones(3))
