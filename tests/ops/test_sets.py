"""The distinct elements of constant tensors, and membership in tensors of any kind."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf

DTYPES = ["bool", "int8", "uint64", "float16", "bfloat16", "float32", "float64", "complex64"]


def drawn(dtype, shape=(5, 4)):
    values = np.random.default_rng().integers(-3, 4, shape)
    return values.astype(gf.asarray(0, dtype=dtype).numpy().dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 4), (), (0, 3), (1,)])
def test_unique_all(dtype, shape):
    array = drawn(dtype, shape)
    found = gf.unique_all(gf.asarray(array))
    wide = array.astype(np.float32) if dtype == "bfloat16" else array
    expected = np.unique(wide, return_index=True, return_inverse=True, return_counts=True)
    assert found.values.dtype == gf.asarray(array).dtype
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.numpy().astype(theirs.dtype), theirs.reshape(ours.shape))
    assert found.inverse_indices.shape == array.shape
    assert {t.dtype for t in found[1:]} == {gf.int64}
    np.testing.assert_array_equal(found.values.numpy()[found.inverse_indices.numpy()], array)


def test_the_others_are_derived_from_it():
    x = gf.asarray([2.0, 1.0, 2.0])
    np.testing.assert_array_equal(gf.unique_values(x).numpy(), [1, 2])
    counts = gf.unique_counts(x)
    np.testing.assert_array_equal([counts.values.numpy(), counts.counts.numpy()], [[1, 2], [1, 2]])
    inverse = gf.unique_inverse(x)
    np.testing.assert_array_equal(inverse.values.numpy(), [1, 2])
    np.testing.assert_array_equal(inverse.inverse_indices.numpy(), [1, 0, 1])


def test_every_nan_is_distinct_and_zeros_are_equal():
    found = gf.unique_all(gf.asarray([gf.nan, -0.0, 0.0, gf.nan]))
    np.testing.assert_array_equal(found.values.numpy(), [0, np.nan, np.nan])
    np.testing.assert_array_equal(found.counts.numpy(), [2, 1, 1])


def test_unique_of_constants_inside_a_graph():
    with gf.Graph() as g:
        values = gf.unique_values([3, 1, 3])
        assert values.shape == (2,)
        x = gf.placeholder((2,), gf.int64, name="x")
        y = x * values
    with gf.Session(g) as session:
        np.testing.assert_array_equal(session.run(y, {x: [1, 1]}), [1, 3])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("invert", [False, True])
def test_isin(dtype, invert):
    x1, x2 = drawn(dtype), drawn(dtype, (3,))
    found = gf.isin(gf.asarray(x1), gf.asarray(x2), invert=invert)
    assert found.dtype == gf.bool
    np.testing.assert_array_equal(found.numpy(), np.isin(x1, x2, invert=invert))


def test_isin_of_nan_nothing_and_scalars():
    x = gf.asarray([1.0, gf.nan])
    np.testing.assert_array_equal(gf.isin(x, [gf.nan, 1.0]).numpy(), [True, False])
    np.testing.assert_array_equal(gf.isin(x, gf.zeros((0, 2))).numpy(), [False, False])
    assert gf.isin(2, [[1], [2]]).shape == ()
    assert bool(gf.isin(gf.asarray(2), 2))


def test_isin_of_symbolic_tensors():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), gf.int64, name="x")
        known = gf.placeholder(("k", 2), gf.int64, name="known")
        found = gf.isin(x, known)
    assert found.shape == x.shape
    with gf.Session(g) as session:
        result = session.run(found, {x: [1, 5, 2], known: [[2, 3], [9, 1]]})
    np.testing.assert_array_equal(result, [True, False, True])


def test_isin_of_dtypes_that_nothing_holds():
    with pytest.raises(gf.DTypeError, match="isin: no integer dtype holds both"):
        gf.isin(gf.asarray([1], dtype=gf.uint64), gf.asarray([1]))
