"""Interpolation, slopes, integrals and steps of samples, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from tests.support.gradcheck import check_gradients


@pytest.mark.parametrize("options", [{}, {"left": -7.0}, {"right": 5.0}, {"period": 2.5}], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_interp_is_numpys(dtype, options, rng):
    xp = np.sort(rng.normal(size=6))
    fp = rng.normal(size=6).astype(dtype) * (1 + (dtype == "complex128") * 1j)
    x = np.concatenate([rng.normal(size=(2, 8)) * 2, [[*xp, np.nan, -9.0]]])
    ours = gf.interp(x, xp, fp, **options)
    np.testing.assert_allclose(
        ours.numpy(), np.interp(x, xp, fp, **options), rtol=1e-11, strict=True
    )
    one = gf.interp(x, xp[:1], fp[:1], **options)
    np.testing.assert_allclose(one.numpy(), np.interp(x, xp[:1], fp[:1], **options), rtol=1e-12)


def test_interp_of_steps_integers_and_in_any_order():
    steps = gf.interp([0.5, 1.0, 1.5], [0.0, 1.0, 1.0, 2.0], [0.0, 1.0, 5.0, 6.0])
    assert steps.numpy().tolist() == [0.5, 5.0, 5.5]
    assert gf.interp([1, 2], [0, 4], [0, 8]).numpy().tolist() == [2, 4]
    angles = gf.interp([-180.0, 5.0], [190.0, -190.0, 350.0, -350.0], [5.0, 10, 3, 4], period=360)
    expected = np.interp([-180.0, 5.0], [190.0, -190.0, 350.0, -350.0], [5, 10, 3, 4], period=360)
    np.testing.assert_allclose(angles.numpy(), expected, rtol=1e-6)


def test_interp_with_symbolic_sizes_and_gradients(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("k",), "float64", name="x")
        xp, fp = (gf.placeholder(("n",), "float64", name=name) for name in ("xp", "fp"))
        made = [gf.interp(x, xp, fp), gf.interp(x, xp, fp, period=3.0)]
        assert made[0].shape == x.shape
    points, values, coordinates = (
        np.sort(rng.uniform(0, 3, 5)),
        rng.normal(size=5),
        rng.normal(size=7),
    )
    with gf.Session(g) as session:
        for count in (5, 1):
            fed = {x: coordinates, xp: points[:count], fp: values[:count]}
            for found, period in zip(session.run(made, fed), (None, 3.0), strict=True):
                expected = np.interp(coordinates, points[:count], values[:count], period=period)
                np.testing.assert_allclose(found, expected, rtol=1e-11)
    leaves = [gf.asarray(v) for v in (rng.uniform(0.1, 2.9, 4), np.arange(4.0), rng.normal(size=4))]
    check_gradients(gf.interp(*leaves), leaves, rng)


def test_errors_of_interp():
    with pytest.raises(gf.ArgumentError, match="interp: xp is not in rising order") as caught:
        gf.interp([1.0], [1.0, 0.0], [1.0, 2.0])
    assert "gf.argsort(xp)" in caught.value.fix
    with pytest.raises(gf.ShapeError, match=r"interp: xp \[2\] and fp \[3\] are no points"):
        gf.interp([1.0], [1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(gf.ShapeError, match="are no points"):
        gf.interp([1.0], gf.zeros(0), gf.zeros(0))
    with pytest.raises(gf.ArgumentError, match="interp: period=0"):
        gf.interp([1.0], [1.0], [1.0], period=0)


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("axis", [None, 0, -1, (1, 0)])
def test_gradient_is_numpys(axis, edge_order, rng):
    x = rng.normal(size=(4, 3, 5))
    coordinates = [np.cumsum(rng.uniform(0.1, 1, n)) for n in x.shape]
    axes = range(3) if axis is None else np.atleast_1d(axis)
    uneven = [coordinates[i] if n % 2 == 0 else 0.5 for n, i in enumerate(axes)]
    for spacing in ([], [2.0], uneven):
        ours = gf.gradient(x, *spacing, axis=axis, edge_order=edge_order)
        theirs = np.gradient(x, *spacing, axis=axis, edge_order=edge_order)
        assert isinstance(ours, tuple) == isinstance(theirs, tuple)
        pairs = zip(ours, theirs, strict=True) if isinstance(ours, tuple) else [(ours, theirs)]
        for our, their in pairs:
            np.testing.assert_allclose(our.numpy(), their, rtol=1e-10, atol=1e-12, strict=True)


def test_gradient_of_vectors_of_two_samples_and_of_symbolic_sizes(rng):
    np.testing.assert_allclose(gf.gradient([1.0, 4.0]).numpy(), [3, 3])
    np.testing.assert_allclose(gf.gradient([1, 4, 9], [0.0, 1.0, 3.0]).numpy(), [3, 17 / 6, 2.5])
    with gf.Graph() as g:
        x = gf.placeholder((2, "n"), "float64", name="x")
        made = gf.gradient(x, axis=1)
        assert made.shape == x.shape
    with gf.Session(g) as session:
        for size in (2, 3, 6):
            array = rng.normal(size=(2, size))
            np.testing.assert_allclose(session.run(made, {x: array}), np.gradient(array, axis=1))
    samples, coordinates = gf.asarray(rng.normal(size=5)), gf.asarray(np.arange(5.0) ** 2)
    for order in (1, 2):
        slopes = gf.gradient(samples, coordinates, edge_order=order)
        check_gradients(slopes, [samples, coordinates], rng, tolerance=1e-5)


def test_errors_of_gradient():
    x = gf.ones((2, 3))
    with pytest.raises(gf.ArgumentError, match="gradient: 3 spacings for 2 axes"):
        gf.gradient(x, 1.0, 1.0, 1.0)
    with pytest.raises(gf.ShapeError, match="gradient: 2 samples along axis 0, and 3 are needed"):
        gf.gradient(x, edge_order=2)
    with pytest.raises(
        gf.ShapeError, match=r"gradient: positions \[2\] for 3 samples along axis 1"
    ):
        gf.gradient(x, [1.0, 2.0], axis=1)
    with pytest.raises(gf.ArgumentError, match="gradient: edge_order=3"):
        gf.gradient(x, edge_order=3)
    with pytest.raises(gf.AxisError, match="gradient: axis 2 is out of range"):
        gf.gradient(x, axis=2)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_trapezoid_is_numpys(axis, rng):
    y = rng.normal(size=(4, 3, 5))
    x = np.sort(rng.normal(size=y.shape[axis]))
    for options in ({}, {"dx": 0.3}):
        ours = gf.trapezoid(y, axis=axis, **options)
        np.testing.assert_allclose(ours.numpy(), np.trapezoid(y, axis=axis, **options), atol=1e-14)
    ours = gf.trapezoid(y, x, axis=axis)
    np.testing.assert_allclose(ours.numpy(), np.trapezoid(y, x, axis=axis), atol=1e-14)
    full = rng.normal(size=y.shape)
    ours = gf.trapezoid(y, full, axis=axis)
    np.testing.assert_allclose(ours.numpy(), np.trapezoid(y, full, axis=axis), atol=1e-14)


def test_trapezoid_of_few_samples_and_symbolic_sizes(rng):
    assert gf.trapezoid(gf.ones(1)).item() == 0
    assert gf.trapezoid(gf.zeros((2, 0))).numpy().tolist() == [0, 0]
    assert gf.trapezoid([1, 2, 3]).item() == 4
    with gf.Graph() as g:
        x = gf.placeholder(("n", 2), name="x")
        made = gf.trapezoid(x, axis=0)
    with gf.Session(g) as session:
        array = rng.normal(size=(5, 2)).astype(np.float32)
        expected = np.trapezoid(array, axis=0)
        np.testing.assert_allclose(session.run(made, {x: array}), expected, rtol=1e-5)
    leaves = [gf.asarray(rng.normal(size=4)) for _ in range(2)]
    check_gradients(gf.trapezoid(*leaves), leaves, rng)


def test_ediff1d_is_numpys(rng):
    x = rng.integers(-9, 9, (2, 3))
    for options in (
        {},
        {"to_begin": 7},
        {"to_end": [[1, 2], [3, 4]]},
        {"to_begin": 1, "to_end": 2},
    ):
        ours = gf.ediff1d(x, **options)
        np.testing.assert_array_equal(ours.numpy(), np.ediff1d(x, **options), strict=True)
    assert gf.ediff1d(gf.zeros(1)).shape == (0,)
    with pytest.raises(gf.DTypeError):
        gf.ediff1d([True, False])


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("options", [{}, {"discont": 4.0}, {"period": 3.0}, {"period": 4}], ids=str)
def test_unwrap_is_numpys(options, axis, rng):
    x = rng.uniform(-9, 9, (4, 6))
    ours = gf.unwrap(x, axis=axis, **options)
    np.testing.assert_allclose(ours.numpy(), np.unwrap(x, axis=axis, **options), atol=1e-12)


@pytest.mark.parametrize("period", [4, 5, 255])
def test_unwrap_of_integers_is_numpys(period, rng):
    x = rng.integers(-9, 9, 20) * 50
    ours = gf.unwrap(x, period=period)
    np.testing.assert_array_equal(ours.numpy(), np.unwrap(x, period=period), strict=True)
    unsigned = gf.unwrap(np.array([1, 3, 0, 2], np.uint8), period=4)
    assert unsigned.dtype is gf.int64
    assert unsigned.numpy().tolist() == [1, 3, 4, 6]
    halves = np.array([0, 2, 4, 2, 0])
    ours = gf.unwrap(halves, period=4)
    np.testing.assert_array_equal(ours.numpy(), np.unwrap(halves, period=4))


def test_unwrap_of_nothing_symbolic_sizes_and_gradients(rng):
    assert gf.unwrap(gf.zeros(1)).numpy().tolist() == [0]
    with gf.Graph() as g:
        x = gf.placeholder(("n",), "float64", name="x")
        made = gf.unwrap(x)
    with gf.Session(g) as session:
        array = rng.uniform(-9, 9, 6)
        np.testing.assert_allclose(session.run(made, {x: array}), np.unwrap(array), atol=1e-12)
    leaf = gf.asarray(rng.uniform(-9, 9, 5))
    check_gradients(gf.unwrap(leaf), [leaf], rng)
    assert gf.unwrap([1, 2]).dtype is gf.float32
