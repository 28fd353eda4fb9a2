"""Means, variances, deviations: values, precision, gradients, errors."""

import numpy as np
import pytest

import graphfw as gf


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("name", ["mean", "var", "std"])
def test_matches_numpy(name, axis, keepdims, rng):
    x = rng.normal(loc=3, size=(3, 1, 5))
    result = getattr(gf, name)(gf.asarray(x), axis=axis, keepdims=keepdims)
    expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-15, strict=True)


@pytest.mark.parametrize("correction", [1, 1.0, 0.5, 7])
@pytest.mark.parametrize("name", ["var", "std"])
def test_correction(name, correction, rng):
    x = rng.normal(size=(5, 3))
    result = getattr(gf, name)(gf.asarray(x), axis=0, correction=correction)
    if correction == 7:  # more than there are elements
        assert np.isinf(result.numpy()).all()
    else:
        np.testing.assert_allclose(result.numpy(), getattr(np, name)(x, axis=0, ddof=correction))


@pytest.mark.parametrize("correction", [0, 1, 0.5, 4])
def test_symbolic_sizes(correction, rng):
    x = rng.normal(size=(4, 3)).astype(np.float32)
    with gf.Graph() as g:
        p = gf.placeholder(("n", 3), name="p")
        y = gf.var(p, correction=correction)
        mean = gf.mean(p, axis=0)
        middle = gf.median(p, axis=0)
        middles = gf.median(p)
    with gf.Session(g) as session:
        values = session.run([y, mean, middle, middles], {p: x})
        expected = [np.var(x, ddof=correction), x.mean(axis=0), np.median(x, axis=0), np.median(x)]
        for value, wanted in zip(values, expected, strict=True):
            np.testing.assert_allclose(value, wanted, rtol=1e-5)


def test_dtypes():
    for name in ("mean", "var", "std", "median"):
        function = getattr(gf, name)
        assert function(gf.asarray([1, 2])).dtype is gf.float32
        assert function(gf.asarray([True, False])).dtype is gf.float32
        for dtype in (gf.float16, gf.bfloat16, gf.float64):
            assert function(gf.ones((3,), dtype=dtype)).dtype is dtype


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_is_computed_in_float32(dtype):
    # The sum, 1e5, is no float16; the squared distances, 1e6, are none either.
    assert float(gf.mean(gf.full((100_000,), 1.0, dtype=dtype))) == 1.0
    spread = gf.asarray([-1000.0, 1000.0]).astype(dtype)
    assert float(gf.std(spread)) == 1000.0


def test_variance_keeps_its_digits_far_from_zero():
    x = gf.asarray([10000.0, 10001.0, 10002.0])
    np.testing.assert_allclose(float(gf.var(x)), 2 / 3, rtol=1e-5)


def test_mean_of_complex_and_of_nothing():
    assert complex(gf.mean(gf.asarray([1 + 2j, 3 - 4j]))) == 2 - 1j
    assert np.isnan(float(gf.mean(gf.zeros((0,)))))


@pytest.mark.parametrize("name", ["var", "std", "median"])
def test_complex_is_refused(name):
    with pytest.raises(gf.DTypeError, match=f"{name}: wants floating-point tensors, not complex64"):
        getattr(gf, name)(gf.asarray([1j]))


@pytest.mark.parametrize("name", ["mean", "var", "std", "median"])
def test_an_axis_that_is_not_there(name):
    with pytest.raises(gf.AxisError, match=f"{name}: axis 1 is out of range for 1 dim"):
        getattr(gf, name)(gf.ones((3,)), axis=1)


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("correction", ["a", np.nan, np.inf, None, 1j])
def test_a_correction_is_a_number(name, correction):
    with pytest.raises(gf.ArgumentError, match=f"{name}: correction=.* is no finite number"):
        getattr(gf, name)(gf.ones((3,)), correction=correction)
    assert np.isfinite(float(getattr(gf, name)(gf.ones((3,)), correction=np.float32(1))))


def test_gradients(rng):
    x = rng.normal(size=(3, 5))
    tensor = gf.asarray(x)
    np.testing.assert_allclose(gf.grad(gf.mean(tensor), tensor).numpy(), np.full((3, 5), 1 / 15))
    distance = x - x.mean(axis=1, keepdims=True)
    gradient = gf.grad(gf.var(tensor, axis=1, correction=1), tensor, grad_y=1.0)
    np.testing.assert_allclose(gradient.numpy(), distance / 2)
    gradient = gf.grad(gf.std(tensor, axis=1), tensor, grad_y=1.0)
    deviation = x.std(axis=1, keepdims=True)
    np.testing.assert_allclose(gradient.numpy(), distance / deviation / 5)


def test_deviation_of_equal_elements_has_gradient_zero():
    x = gf.asarray([[2.0, 2.0, 2.0], [1.0, 2.0, 3.0]])
    first = gf.grad(gf.std(x, axis=1), x, grad_y=1.0)
    np.testing.assert_array_equal(first.numpy()[0], [0, 0, 0])
    assert np.isfinite(gf.grad(gf.sum(first * first), x).numpy()).all()
    assert np.isnan(float(gf.std(gf.asarray([np.nan, 1.0]))))
