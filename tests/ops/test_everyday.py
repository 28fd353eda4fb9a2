"""Weighted means, percentiles, Kronecker products, sinc and shapes, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from tests.support.gradcheck import check_gradients


def same(ours, wanted, rtol=1e-13):
    np.testing.assert_allclose(ours.numpy(), wanted, rtol=rtol, atol=1e-15, strict=True)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
def test_average_is_numpys(axis, rng):
    x = rng.normal(size=(2, 3, 4))
    same(gf.average(x, axis=axis), np.average(x, axis=axis))
    whole = rng.uniform(size=x.shape)
    same(gf.average(x, axis=axis, weights=whole), np.average(x, axis=axis, weights=whole))
    kept = gf.average(x, axis=axis, weights=whole, keepdims=True)
    same(kept, np.average(x, axis=axis, weights=whole, keepdims=True))
    if axis is not None:
        along = rng.uniform(size=np.array(x.shape)[np.atleast_1d(axis)])
        same(gf.average(x, axis=axis, weights=along), np.average(x, axis=axis, weights=along))


def test_average_leaves_out_what_is_false(rng):
    x = rng.normal(size=(3, 4)).astype(np.float32)
    mask = x > np.sort(x, axis=0)[0]
    ours = gf.average(x, axis=0, weights=mask)
    same(ours, np.mean(x, axis=0, where=mask).astype(np.float32), rtol=1e-6)
    assert gf.average([1, 2], weights=[3, 1]).dtype is gf.float32
    assert np.isnan(gf.average(np.ones(2), weights=np.zeros(2)).numpy())
    with pytest.raises(gf.ShapeError, match=r"average: the weights have the shape \[4\], which"):
        gf.average(x, axis=0, weights=np.ones(4))


@pytest.mark.parametrize("q", [0, 30, 100, [10, 62.5], [[0], [7]]])
@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_percentiles_are_numpys(q, method, rng):
    x = rng.normal(size=(3, 7))
    for axis in (None, 0, (0, 1)):
        given = {"axis": axis, "method": method, "keepdims": True}
        same(gf.percentile(x, q, **given), np.percentile(x, q, **given))
        holes = np.where(x > np.median(x, axis=0), np.nan, x)
        same(gf.nanpercentile(holes, q, **given), np.nanpercentile(holes, q, **given))


def test_percentiles_out_of_range():
    with pytest.raises(gf.ArgumentError, match=r"percentile: q=101\.0 is not between 0 and 100"):
        gf.percentile(np.ones(3), 101)


SHAPES = [((2, 3), (4, 5)), ((3,), (4,)), ((), (2, 2)), ((2,), (3, 2, 2)), ((2, 0), (3, 1))]


@pytest.mark.parametrize(("first", "second"), SHAPES)
@pytest.mark.parametrize("dtype", ["float64", "complex128", "int32"])
def test_kron_is_numpys(first, second, dtype, rng):
    a, b = (rng.normal(0, 9, size=shape).astype(dtype) for shape in (first, second))
    same(gf.kron(a, b), np.kron(a, b))
    if dtype != "int32" and 0 not in first:
        leaves = [gf.asarray(a), gf.asarray(b)]
        check_gradients(gf.kron(*leaves), leaves, rng)


def test_sinc_is_numpys(rng):
    x = np.concatenate([[0.0, -0.0, 1e-300, 0.1, -0.159, 0.16, 3, np.nan], rng.normal(0, 3, 99)])
    same(gf.sinc(x), np.sinc(x), rtol=1e-14)
    same(gf.sinc(x.astype(np.float32)), np.sinc(x.astype(np.float32)), rtol=1e-5)
    z = x[:7] + 1j * rng.normal(size=7)
    same(gf.sinc(z), np.sinc(z))
    leaf = gf.asarray(np.array([0.0, 0.1, 0.17, -2.3]))
    check_gradients(gf.sinc(leaf), [leaf], rng)
    second = gf.grad(gf.grad(gf.sum(gf.sinc(leaf)), leaf).sum(), leaf)
    np.testing.assert_allclose(second.numpy()[0], -(np.pi**2) / 3)
    assert gf.sinc([0, 1]).dtype is gf.float32


def test_shapes():
    assert gf.broadcast_shapes((3, 1), (1, 4), ()) == np.broadcast_shapes((3, 1), (1, 4), ())
    assert gf.broadcast_shapes() == ()
    with pytest.raises(gf.ShapeError, match="broadcast_shapes: shapes don't broadcast"):
        gf.broadcast_shapes((3,), (4,))
    x = np.ones((2, 3))
    for axis in (0, -1, (0, 2), (-1, 0), (3, -2), ()):
        assert gf.expand_dims(x, axis).shape == np.expand_dims(x, axis).shape
    for axis in ((0, 0), (0, 4), 3):
        with pytest.raises(gf.AxisError):
            gf.expand_dims(x, axis)


def test_sizes_that_are_not_known(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("r", "c"), gf.float64, name="x")
        made = [
            gf.kron(x, x[:1]),
            gf.average(x, axis=1, weights=gf.arange(x.shape[1])),
            gf.percentile(x, 30, axis=0),
            gf.sinc(x),
            gf.expand_dims(x, (0, -1)),
        ]
        assert gf.broadcast_shapes(x.shape, (1, x.shape[1])) == x.shape
    for shape in ((2, 3), (5, 2)):
        array = rng.normal(size=shape)
        wanted = [
            np.kron(array, array[:1]),
            np.average(array, axis=1, weights=np.arange(shape[1])),
            np.percentile(array, 30, axis=0),
            np.sinc(array),
            np.expand_dims(array, (0, -1)),
        ]
        with gf.Session(g) as session:
            for value, known in zip(session.run(made, {x: array}), wanted, strict=True):
                np.testing.assert_allclose(value, known, rtol=1e-12, atol=1e-15)


def test_jacobians_have_the_names_of_others():
    x = gf.asarray([1.0, 2.0, 3.0])
    for jacobian in (gf.jacfwd, gf.jacrev):
        made = jacobian(lambda x: x[:2] * x[2])(x)
        np.testing.assert_array_equal(made.numpy(), [[3, 0, 1], [0, 3, 2]])
    blocks = gf.jacfwd(lambda x, y: x * y, argnums=(0, 1))(x, x)
    assert [block.shape for block in blocks] == [(3, 3), (3, 3)]
