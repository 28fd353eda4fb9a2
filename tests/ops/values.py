"""Helpers of the tests of elementwise ops: numbers to try, exact comparison, gradients."""

import numpy as np

import graphfw as gf

FLOATS = ["float16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, np.inf, -np.inf, np.nan]


def draw(rng, dtype, shape):
    """Values that a dtype holds; floats mixed with special values."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if kind in "iu":
        low = 0 if kind == "u" else -5
        return np.asarray(rng.integers(low, 6, shape), dtype=dtype)
    x = rng.normal(size=shape) * 3
    if kind == "c":
        return np.asarray(x + 1j * rng.normal(size=shape), dtype=dtype)
    special = rng.choice(SPECIAL, size=shape)
    return np.where(rng.random(shape) < 0.5, special, x).astype(dtype)


def same(actual, expected, **tolerance):
    """Equal in value, dtype, shape and the sign of zero."""
    actual = actual.numpy()
    expected = np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(actual, expected, **({"rtol": 0, "atol": 0} | tolerance))
    if expected.dtype.kind == "f":
        zero = expected == 0
        assert (np.signbit(actual) == np.signbit(expected))[zero].all()


def gradients(f, *values, ct=1.0, dtype="float64"):
    """The cotangents of f's arguments for a cotangent of its result."""
    xs = [gf.asarray(np.asarray(v, dtype=dtype)) for v in values]
    return [g.numpy().tolist() for g in gf.grad(f(*xs), xs, grad_y=ct)]
