"""Polynomials and convolution, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from tests.support.gradcheck import check_gradients

MODES = ["full", "valid", "same"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float64", "int64", "complex128", "uint8"])
def test_convolve_is_numpys(dtype, mode, rng):
    for sizes in ((7, 3), (3, 7), (4, 4), (6, 2), (2, 6), (1, 5), (1, 1)):
        a, b = (rng.integers(0, 9, size).astype(dtype) for size in sizes)
        ours = gf.convolve(a, b, mode=mode)
        np.testing.assert_allclose(ours.numpy(), np.convolve(a, b, mode), rtol=1e-12, strict=True)


@pytest.mark.parametrize("mode", MODES)
def test_convolve_with_symbolic_sizes(mode, rng):
    with gf.Graph() as g:
        a, b = (gf.placeholder((size,), name=name) for size, name in (("n", "a"), ("m", "b")))
        made = gf.convolve(a, b, mode=mode)
        known = gf.convolve(a, [1.0, 2.0, 3.0], mode=mode)
    with gf.Session(g) as session:
        for sizes in ((7, 3), (2, 6), (4, 4)):
            x, y = (rng.normal(size=size).astype(np.float32) for size in sizes)
            found = session.run([made, known], {a: x, b: y})
            np.testing.assert_allclose(found[0], np.convolve(x, y, mode), rtol=1e-4, atol=1e-5)
            expected = np.convolve(x, [1.0, 2, 3], mode)
            np.testing.assert_allclose(found[1], expected, rtol=1e-4, atol=1e-5)


def test_gradients_and_errors_of_convolve(rng):
    leaves = [gf.asarray(rng.normal(size=size)) for size in (5, 3)]
    check_gradients(gf.convolve(*leaves, mode="same"), leaves, rng)
    with pytest.raises(gf.ShapeError, match=r"convolve: x2 is \[2, 2\], and no vector"):
        gf.convolve([1.0], [[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(gf.ShapeError, match=r"convolve: x1 is \[0\], and no vector"):
        gf.convolve(gf.zeros(0), [1.0])
    with pytest.raises(gf.DTypeError, match="convolve: wants numeric tensors, not bool"):
        gf.convolve([True], [True])
    with pytest.raises(gf.DTypeError, match="polyval: wants numeric tensors, not bool"):
        gf.polyval([True], [True])
    with pytest.raises(gf.ArgumentError, match="convolve: mode='wrap'"):
        gf.convolve([1.0], [1.0], mode="wrap")


def test_polyval_is_numpys(rng):
    for size in (0, 1, 4):
        p, x = rng.normal(size=size), rng.normal(size=(3, 2))
        np.testing.assert_allclose(gf.polyval(p, x).numpy(), np.polyval(p, x), rtol=1e-13)
    p = rng.integers(-3, 4, 4)
    np.testing.assert_array_equal(gf.polyval(p, 5).numpy(), np.polyval(p, 5))
    several = rng.normal(size=(3, 2))
    ours = gf.polyval(several, 2.0)
    np.testing.assert_allclose(ours.numpy(), [np.polyval(c, 2.0) for c in several.T])
    leaves = [gf.asarray(rng.normal(size=3)), gf.asarray(rng.normal(size=4))]
    check_gradients(gf.polyval(*leaves), leaves, rng)
    with gf.Graph(), pytest.raises(gf.ShapeError, match=r"polyval: coefficients \[n\]: how many"):
        gf.polyval(gf.placeholder(("n",), name="p"), 1.0)


@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("n", [None, 0, 1, 4])
def test_vander_is_numpys(n, increasing, rng):
    x = rng.normal(size=3)
    ours = gf.vander(x, n, increasing=increasing)
    np.testing.assert_allclose(ours.numpy(), np.vander(x, n, increasing), rtol=1e-13, strict=True)
    with gf.Graph() as g:
        p = gf.placeholder(("k",), "float64", name="p")
        made = gf.vander(p, n, increasing=increasing)
    with gf.Session(g) as session:
        found = session.run(made, {p: x})
    np.testing.assert_allclose(found, np.vander(x, n, increasing), rtol=1e-13)


def test_gradients_and_errors_of_vander(rng):
    leaf = gf.asarray(np.array([0.0, 1.5, -2.0]))
    check_gradients(gf.vander(leaf, 4), [leaf], rng)
    with pytest.raises(gf.ShapeError, match="vander: wants 1 dim, not 2"):
        gf.vander(gf.ones((2, 2)))


def test_polyfit_is_numpys(rng):
    x, y = rng.uniform(0, 1000, 12), rng.normal(size=(12, 2))
    for degree in (0, 1, 3):
        ours = gf.polyfit(x, y, degree)
        np.testing.assert_allclose(ours.numpy(), np.polyfit(x, y, degree), rtol=1e-8)
        np.testing.assert_allclose(
            gf.polyfit(x, y[:, 0], degree).numpy(), np.polyfit(x, y[:, 0], degree), rtol=1e-8
        )
    narrow = gf.polyfit(gf.asarray([0.0, 1.0]).astype("bfloat16"), [1.0, 3.0], 1)
    np.testing.assert_allclose(narrow.numpy(), [2, 1], rtol=1e-5)
    leaves = [gf.asarray(rng.normal(size=6)) for _ in range(2)]
    check_gradients(gf.polyfit(*leaves, 2), leaves, rng, order=1, tolerance=1e-5)
    with pytest.raises(gf.ShapeError, match="polyfit: degree=-1"):
        gf.polyfit(x, y, -1)
    with pytest.raises(gf.ShapeError, match=r"polyfit: x \[12\] and y \[3\] are no points"):
        gf.polyfit(x, np.ones(3), 1)
