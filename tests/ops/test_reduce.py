"""Reductions: values against NumPy, dtypes, empty axes, ties, NaN, and the errors' texts."""

import itertools

import numpy as np
import pytest
import scipy.special

import graphfw as gf
from graphfw.ir.dtype import as_dtype

AXES = [None, 0, -1, (0, 2), (), (-2, 0, 2)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "all", "any"])
def test_matches_numpy(name, axis, keepdims, rng):
    x = rng.integers(-2, 3, (3, 1, 5)).astype(np.float64)
    result = getattr(gf, name)(gf.asarray(x), axis=axis, keepdims=keepdims).numpy()
    expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.parametrize("axis", [None, 0, (0, 2)])
def test_count_nonzero_matches_numpy(axis, rng):
    x = rng.integers(-1, 2, (3, 1, 5)).astype(np.float32)
    result = gf.count_nonzero(gf.asarray(x), axis=axis, keepdims=True)
    assert result.dtype is gf.int64
    np.testing.assert_array_equal(result.numpy(), np.count_nonzero(x, axis=axis, keepdims=True))


def test_count_nonzero_of_nan_and_complex():
    assert int(gf.count_nonzero(gf.asarray([np.nan, 0.0, -0.0]))) == 1
    assert int(gf.count_nonzero(gf.asarray([0j, 1j]))) == 1


@pytest.mark.parametrize(
    ("given", "accumulated"),
    [
        *((name, "int64") for name in ("bool", "int8", "int16", "int32", "int64")),
        *((name, "uint64") for name in ("uint8", "uint16", "uint32", "uint64")),
        *((n, n) for n in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")),
    ],
)
def test_sums_and_products_have_the_standards_dtype(given, accumulated):
    x = gf.ones((3,), dtype=given)
    for function in (gf.sum, gf.prod):
        result = function(x)
        assert result.dtype.name == accumulated
        assert result.numpy().dtype == as_dtype(accumulated)


def test_small_integers_do_not_overflow():
    assert int(gf.sum(gf.asarray(np.full(9, 100, np.int8)))) == 900
    assert int(gf.prod(gf.asarray(np.full(3, 200, np.uint8)))) == 8_000_000


def test_dtype_argument_converts_first():
    x = gf.asarray([0.6, 0.6])
    assert int(gf.sum(x, dtype=gf.int32)) == 0
    assert gf.sum(x, dtype=gf.float64).dtype is gf.float64
    assert float(gf.prod(gf.asarray([200, 200]), dtype="float32")) == 40000.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_accumulates_in_float32(dtype):
    # Added one by one in two bytes, ones stop counting at 2048, or at 256.
    assert float(gf.sum(gf.ones((3000,), dtype=dtype))) == float(gf.asarray(3000.0).astype(dtype))
    halves = gf.asarray([2.0**15, 2.0**15, 2.0**-15, 2.0**-15]).astype(dtype)
    assert float(gf.prod(halves)) == 1.0


def test_reductions_of_nothing():
    empty = gf.zeros((0, 3))
    np.testing.assert_array_equal(gf.sum(empty, axis=0).numpy(), [0, 0, 0])
    np.testing.assert_array_equal(gf.prod(empty, axis=0).numpy(), [1, 1, 1])
    np.testing.assert_array_equal(gf.all(empty, axis=0).numpy(), [True] * 3)
    np.testing.assert_array_equal(gf.any(empty, axis=0).numpy(), [False] * 3)
    assert int(gf.count_nonzero(empty)) == 0
    assert gf.max(empty, axis=1).shape == gf.argmax(empty, axis=1).shape == (0,)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_nothing_can_be_chosen_from_nothing(name):
    with pytest.raises(gf.ShapeError, match=f"{name}: axis 1 has size 0, and of no elements none"):
        getattr(gf, name)(gf.zeros((3, 0)), axis=1)


@pytest.mark.parametrize("name", ["max", "argmin"])
def test_nothing_can_be_chosen_from_nothing_in_a_run(name):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = getattr(gf, name)(x, axis=0)
    with gf.Session(g) as session:
        assert session.run(y, {x: np.ones(2, np.float32)}) in (0, 1)
        with pytest.raises(gf.ExecutionError, match=f"{name}: axis 0 has size 0"):
            session.run(y, {x: np.ones(0, np.float32)})


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nan_is_the_extreme(dtype):
    x = gf.asarray([[1.0, np.nan, 3.0, np.nan], [1.0, 4.0, 4.0, -np.inf]]).astype(dtype)
    for function in (gf.max, gf.min):
        np.testing.assert_array_equal(np.isnan(function(x, axis=1).numpy()), [True, False])
    np.testing.assert_array_equal(gf.argmax(x, axis=1).numpy(), [1, 1])
    np.testing.assert_array_equal(gf.argmin(x, axis=1).numpy(), [1, 3])


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arg_extremes_match_numpy(name, axis, keepdims, rng):
    x = rng.integers(0, 3, (4, 5, 7))
    result = getattr(gf, name)(gf.asarray(x), axis=axis, keepdims=keepdims)
    expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    assert result.dtype is gf.int64
    np.testing.assert_array_equal(result.numpy(), expected)


def test_argmax_of_a_scalar():
    assert int(gf.argmax(gf.asarray(5.0))) == 0
    assert gf.argmax(gf.asarray(5.0), keepdims=True).shape == ()


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_complex_has_no_order(name):
    with pytest.raises(gf.DTypeError) as caught:
        getattr(gf, name)(gf.asarray([1j]))
    assert f"{name}: wants real tensors, not complex64" in str(caught.value)
    assert "fix  complex numbers have no order: use gf.abs or gf.real" in str(caught.value)


def test_extremes_of_bools_name_any_and_all():
    with pytest.raises(gf.DTypeError, match="max: wants real tensors, not bool") as caught:
        gf.max(gf.asarray([True]))
    assert "gf.any" in caught.value.fix
    assert "gf.all" in caught.value.fix
    with pytest.raises(gf.DTypeError, match="argmax: wants real tensors, not bool") as caught:
        gf.argmax(gf.asarray([True]))
    assert "gf.astype(x, gf.uint8)" in caught.value.fix


def test_a_sum_in_bool_is_refused():
    with pytest.raises(gf.DTypeError, match="sum: wants numeric tensors, not bool"):
        gf.sum(gf.asarray([1, 2]), dtype=bool)


@pytest.mark.parametrize(
    "name", ["sum", "prod", "max", "argmax", "all", "count_nonzero", "logsumexp"]
)
def test_an_axis_that_is_not_there(name):
    with pytest.raises(gf.AxisError, match=f"{name}: axis 2 is out of range for 2 dims"):
        getattr(gf, name)(gf.ones((2, 3)), axis=2)


@pytest.mark.parametrize(
    "name", ["sum", "prod", "max", "argmax", "all", "count_nonzero", "logsumexp", "median"]
)
def test_axes_are_ints_in_any_form(name):
    function, x = getattr(gf, name), gf.ones((2, 3))
    assert function(x, axis=np.int64(1)).shape == (2,)
    for axis in ("a", 1.0):
        with pytest.raises(gf.AxisError, match=f"{name}: axis {axis!r} is no int"):
            function(x, axis=axis)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_one_axis_is_not_several(name):
    with pytest.raises(gf.AxisError, match=rf"{name}: axis \(0, 1\) is no int"):
        getattr(gf, name)(gf.ones((2, 3)), axis=(0, 1))


def test_an_axis_named_twice():
    with pytest.raises(gf.AxisError, match=r"max: axis \(0, -2\) names a dim twice"):
        gf.max(gf.ones((2, 3)), axis=(0, -2))


def test_symbolic_shapes():
    with gf.Graph():
        x = gf.placeholder(("n", 3, "m"), name="x")
        n, _, m = x.shape
        assert gf.prod(x, axis=(0, 1)).shape == (m,)
        assert gf.min(x, axis=-1, keepdims=True).shape == (n, 3, 1)
        assert gf.argmax(x, axis=1).shape == (n, m)
        assert gf.argmax(x, keepdims=True).shape == (1, 1, 1)
        assert gf.logsumexp(x, axis=0).shape == (3, m)


@pytest.mark.parametrize("function", [gf.max, gf.min])
def test_ties_share_the_gradient(function):
    sign = 1.0 if function is gf.max else -1.0
    x = gf.asarray([[2.0, 5.0, 5.0, 1.0], [3.0, 3.0, 3.0, 3.0]]) * sign
    gradient = gf.grad(function(x, axis=1), x, grad_y=[1.0, 2.0])
    np.testing.assert_array_equal(gradient.numpy(), [[0, 0.5, 0.5, 0], [0.5] * 4])


def test_gradient_of_the_largest_of_all(rng):
    x = rng.permutation(12).reshape(3, 4).astype(np.float64)
    tensor = gf.asarray(x)
    np.testing.assert_array_equal(gf.grad(gf.max(tensor), tensor).numpy(), x == 11)


def test_nan_in_a_maximum_stays_visible_in_the_gradient():
    x = gf.asarray([1.0, np.nan, 3.0])
    assert np.isnan(gf.grad(gf.max(x) * gf.max(x), x).numpy()).any()
    # What is masked out afterwards leaves nothing behind.
    masked = gf.where(False, gf.max(x), 0.0)
    np.testing.assert_array_equal(gf.grad(masked, x).numpy(), [0, 0, 0])


def products_without(x, *left_out):
    """The product along the last axis, leaving out these places."""
    return np.prod(np.delete(x, left_out, axis=-1), axis=-1)


@pytest.mark.parametrize("zeros", [(), (1,), (0, 3), (0, 1, 2, 3)])
def test_gradient_of_a_product_with_zeros(zeros, rng):
    x = rng.uniform(1, 2, 4)
    x[list(zeros)] = 0
    tensor = gf.asarray(x)
    (first,) = gf.grad(gf.prod(tensor), [tensor])
    np.testing.assert_allclose(first.numpy(), [products_without(x, i) for i in range(4)])

    direction = rng.normal(size=4)
    (second,) = gf.grad(gf.sum(first * direction), [tensor])
    hessian = np.zeros((4, 4))
    for i, j in itertools.permutations(range(4), 2):
        hessian[i, j] = products_without(x, i, j)
    np.testing.assert_allclose(second.numpy(), hessian @ direction, atol=1e-12)

    (third,) = gf.grad(gf.sum(second * direction), [tensor])
    expected = np.zeros(4)
    for i, j, k in itertools.permutations(range(4), 3):
        expected[i] += products_without(x, i, j, k) * direction[j] * direction[k]
    np.testing.assert_allclose(third.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("axis", [1, (0, 2), None, ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_gradient_of_a_product_over_axes(axis, keepdims, rng):
    x = rng.uniform(0.5, 2, (2, 3, 5))
    tensor = gf.asarray(x)
    product = gf.prod(tensor, axis=axis, keepdims=keepdims)
    ct = rng.normal(size=product.shape)
    gradient = gf.grad(product, tensor, grad_y=ct)
    total = np.prod(x, axis=axis, keepdims=True)
    np.testing.assert_allclose(gradient.numpy(), ct.reshape(total.shape) * total / x)


def test_gradient_of_a_product_with_symbolic_sizes(rng):
    x = rng.uniform(0.5, 2, (3, 4)).astype(np.float32)
    with gf.Graph() as g:
        p = gf.placeholder(("n", "m"), name="p")
        gradient = gf.grad(gf.prod(p), p)
    with gf.Session(g) as session:
        np.testing.assert_allclose(session.run(gradient, {p: x}), np.prod(x) / x, rtol=1e-5)


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
def test_logsumexp_matches_scipy(axis, keepdims, rng):
    x = rng.normal(scale=500, size=(2, 3, 5))
    result = gf.logsumexp(gf.asarray(x), axis=axis, keepdims=keepdims)
    expected = scipy.special.logsumexp(x, axis=axis, keepdims=keepdims)
    np.testing.assert_allclose(result.numpy(), expected, strict=True)


def test_logsumexp_at_infinity():
    inf = np.inf
    x = gf.asarray([[-inf, -inf], [inf, 1.0], [inf, -inf], [-inf, 2.0]])
    y = gf.logsumexp(x, axis=1)
    np.testing.assert_array_equal(y.numpy(), [-inf, inf, inf, 2.0])
    first = gf.grad(y, x, grad_y=1.0)
    np.testing.assert_allclose(first.numpy(), [[0.5, 0.5], [1, 0], [1, 0], [0, 1]])
    second = gf.grad(gf.sum(first * gf.asarray([1.0, 2.0])), x)
    np.testing.assert_array_equal(second.numpy(), np.zeros((4, 2)))
    assert np.isnan(float(gf.logsumexp(gf.asarray([np.nan, 1.0]))))


def test_gradient_of_logsumexp_is_softmax(rng):
    x = rng.normal(size=(3, 5))
    tensor = gf.asarray(x)
    gradient = gf.grad(gf.logsumexp(tensor, axis=1), tensor, grad_y=1.0)
    np.testing.assert_allclose(gradient.numpy(), scipy.special.softmax(x, axis=1))


def test_logsumexp_of_integers_and_complex():
    assert gf.logsumexp(gf.asarray([1, 2])).dtype is gf.float32
    with pytest.raises(gf.DTypeError, match="logsumexp: wants floating-point tensors, not complex"):
        gf.logsumexp(gf.asarray([1j]))
