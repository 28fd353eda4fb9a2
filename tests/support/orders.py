"""Arrays to sort, and the orders that stable sorts which compare find."""

import numpy as np

from graphfw.ir.dtype import as_dtype

DTYPES = (
    "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64".split()
)
KINDS = ("wide", "few", "extremes", "close")


def drawn(rng, shape, dtype, kind):
    """Return elements with ties; of floats zeros of both signs, infinities and NaN of both."""
    numpy = as_dtype(dtype).dtype
    if numpy.kind in "iu":
        limits = np.iinfo(numpy)
        if kind == "wide":
            return rng.integers(limits.min, limits.max, shape, numpy, endpoint=True)
        x = rng.integers(0, 5 if kind == "few" else 120, shape).astype(numpy)
        if kind == "extremes":
            x.flat[::3], x.flat[1::7] = limits.min, limits.max
        return x
    if kind == "close":  # they differ in their lowest bits
        return (1 + rng.integers(0, 2**14, shape) * 2.0**-52).astype(numpy)
    x = rng.normal(size=shape) * 1e3 if kind == "wide" else rng.integers(-3, 4, shape) * 1.0
    if kind == "extremes":
        x.flat[::3] = rng.choice([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf], x.flat[::3].shape)
    return x.astype(numpy)


def wide(x):
    return x if x.dtype.kind in "iubc" else x.astype(np.float64)


def indices_of(x, axis, descending):
    if not descending:
        return np.argsort(wide(x), axis=axis, kind="stable")
    backwards = np.argsort(np.flip(wide(x), axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(backwards, axis)


def same(found, wanted):
    """See that arrays are the same, signs of zeros included."""
    assert found.dtype == wanted.dtype
    a, b = wide(found), wide(wanted)
    np.testing.assert_array_equal(a, b, strict=True)
    if a.dtype.kind == "f":
        is_number = ~np.isnan(a)
        np.testing.assert_array_equal(np.signbit(a)[is_number], np.signbit(b)[is_number])
