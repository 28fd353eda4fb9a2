"""Running sums and products, and differences: values, options, gradients, errors."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ops.reduce.cumulative import CumulativeProd, CumulativeSum, Recurrence
from tests.support.gradcheck import check_gradients


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("include_initial", [False, True])
@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_matches_numpy(name, include_initial, axis, rng):
    x = rng.integers(-3, 4, (3, 1, 5)).astype(np.float64)
    options = {"axis": axis, "include_initial": include_initial}
    result = getattr(gf, name)(gf.asarray(x), **options)
    expected = getattr(np, name)(x, **options)
    np.testing.assert_array_equal(result.numpy(), expected, strict=True)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("cls", "run"), [(CumulativeSum, np.cumsum), (CumulativeProd, np.cumprod)])
def test_reverse_and_exclusive(cls, run, reverse, exclusive, rng):
    x = rng.normal(size=(3, 4))
    result = emit(cls(1, reverse, exclusive), gf.asarray(x)).numpy()
    lines = x[:, ::-1] if reverse else x
    if exclusive:
        lines = np.concatenate([np.full((3, 1), cls.start), lines[:, :-1]], axis=1)
    expected = run(lines, axis=1)
    np.testing.assert_allclose(result, expected[:, ::-1] if reverse else expected)


def test_dtypes_are_those_of_sums():
    assert gf.cumulative_sum(gf.asarray([True, True])).dtype is gf.int64
    assert gf.cumulative_sum(gf.asarray(np.ones(3, np.uint8))).dtype is gf.uint64
    assert gf.cumulative_prod(gf.asarray(np.full(3, 100, np.int8))).numpy().tolist()[-1] == 10**6
    assert gf.cumulative_prod(gf.asarray([1, 2]), dtype="float64").dtype is gf.float64


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_precision_accumulates_in_float32(dtype):
    sums = gf.cumulative_sum(gf.ones((3000,), dtype=dtype))
    assert sums.dtype.name == dtype
    assert float(sums[-1]) == float(gf.asarray(3000.0).astype(dtype))


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_of_nothing(name):
    function = getattr(gf, name)
    assert function(gf.zeros((2, 0)), axis=1).numpy().shape == (2, 0)
    initial = function(gf.zeros((2, 0)), axis=1, include_initial=True).numpy()
    np.testing.assert_array_equal(initial, np.full((2, 1), name == "cumulative_prod"))


def test_symbolic_sizes():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        (n,) = x.shape
        sums = gf.cumulative_sum(x, include_initial=True)
        assert sums.shape == (n + 1,)
    with gf.Session(g) as session:
        np.testing.assert_array_equal(session.run(sums, {x: np.ones(3, np.float32)}), [0, 1, 2, 3])


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_axis_errors(name):
    function = getattr(gf, name)
    message = f"{name}: along which of the 2 dims is not said"
    with pytest.raises(gf.AxisError, match=message) as caught:
        function(gf.ones((2, 3)))
    assert caught.value.fix == "pass axis="
    with pytest.raises(gf.AxisError, match=f"{name}: axis 2 is out of range for 2 dims"):
        function(gf.ones((2, 3)), axis=2)
    with pytest.raises(gf.AxisError, match="a 0-d tensor has no axes"):
        function(gf.asarray(1.0))
    with pytest.raises(gf.DTypeError, match=f"{name}: wants numeric tensors, not bool"):
        function(gf.asarray([1, 2]), dtype=bool)


def test_gradient_of_a_running_sum(rng):
    tensor = gf.asarray(rng.normal(size=(2, 5)))
    ct = rng.normal(size=(2, 5))
    gradient = gf.grad(gf.cumulative_sum(tensor, axis=1), tensor, grad_y=ct)
    np.testing.assert_allclose(gradient.numpy(), np.cumsum(ct[:, ::-1], axis=1)[:, ::-1])


def difference(function, x, direction, step):
    """The derivative of a polynomial along a direction, in extended precision."""
    x = x.astype(np.longdouble)
    return (function(x + step * direction) - function(x - step * direction)) / (2 * step)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("zeros", [(), (2,), (1, 3), (0, 1, 4)])
def test_gradients_of_a_running_product_with_zeros(zeros, reverse, exclusive, rng):
    x = rng.uniform(0.5, 2, 5)
    x[list(zeros)] = 0
    weights, first_way, second_way = rng.normal(size=(3, 5))

    def weighted(values):
        order = slice(None, None, -1 if reverse else 1)
        running = np.cumprod(values[order])
        if exclusive:
            running = np.concatenate([[1], running[:-1]])
        return np.sum(running[order] * weights)

    def along(values):
        return difference(weighted, values, first_way, 1e-5)

    tensor = gf.asarray(x)
    y = gf.sum(emit(CumulativeProd(0, reverse, exclusive), tensor) * weights)
    first = gf.sum(gf.grad(y, tensor) * first_way)
    np.testing.assert_allclose(float(first), float(along(x)), rtol=1e-7, atol=1e-8)
    second = gf.sum(gf.grad(first, tensor) * second_way)
    expected = difference(along, x, second_way, 1e-4)
    np.testing.assert_allclose(float(second), float(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_recurrence(reverse, rng):
    a, b = rng.normal(size=(2, 3, 6))
    result = emit(Recurrence(1, reverse), gf.asarray(a), gf.asarray(b)).numpy()
    state = np.zeros(3)
    for t in range(6)[:: -1 if reverse else 1]:
        np.testing.assert_allclose(result[:, t], state)
        state = a[:, t] * state + b[:, t]


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("n", [0, 1, 2, 6])
def test_diff_matches_numpy(n, axis, rng):
    x = rng.integers(-9, 10, (3, 5))
    result = gf.diff(gf.asarray(x), axis=axis, n=n)
    np.testing.assert_array_equal(result.numpy(), np.diff(x, axis=axis, n=n), strict=True)


def test_diff_with_edges(rng):
    x = rng.normal(size=(3, 5))
    before, after = rng.normal(size=(3, 2)), rng.normal(size=(3, 1))
    result = gf.diff(gf.asarray(x), n=2, prepend=before, append=after)
    np.testing.assert_array_equal(result.numpy(), np.diff(x, n=2, prepend=before, append=after))
    result = gf.diff(gf.asarray(x), axis=0, prepend=0, append=1.5)
    np.testing.assert_array_equal(result.numpy(), np.diff(x, axis=0, prepend=0, append=1.5))


def test_diff_with_symbolic_size():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        steps = gf.diff(x, n=2)
    with gf.Session(g) as session:
        squares = np.arange(5, dtype=np.float32) ** 2
        np.testing.assert_array_equal(session.run(steps, {x: squares}), [2, 2, 2])
        assert session.run(steps, {x: squares[:1]}).shape == (0,)


def test_diff_errors():
    with pytest.raises(gf.ArgumentError, match="diff: n is -1, and must be 0 or more"):
        gf.diff(gf.ones((3,)), n=-1)
    with pytest.raises(gf.DTypeError, match="diff: wants numeric tensors, not bool"):
        gf.diff(gf.asarray([True, False]))
    with pytest.raises(gf.AxisError, match="diff: axis 1 is out of range"):
        gf.diff(gf.ones((3,)), axis=1)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float64", "int8"])
@pytest.mark.parametrize("kind", ["max", "min"])
def test_running_extremes_are_numpys(kind, dtype, axis, rng):
    x = rng.integers(-9, 10, (3, 1, 6)).astype(dtype)
    result = getattr(gf, f"cumulative_{kind}")(gf.asarray(x), axis=axis)
    expected = {"max": np.maximum, "min": np.minimum}[kind].accumulate(x, axis=axis)
    np.testing.assert_array_equal(result.numpy(), expected, strict=True)


def test_running_extremes_of_nan_of_nothing_and_of_symbolic_sizes(rng):
    np.testing.assert_array_equal(
        gf.cumulative_max([1.0, np.nan, 2.0]).numpy(), [1, np.nan, np.nan]
    )
    assert gf.cumulative_min(gf.zeros((2, 0)), axis=1).shape == (2, 0)
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = gf.cumulative_min(x)
        assert y.shape == x.shape
    with gf.Session(g) as session:
        for size in (0, 1, 5):
            array = rng.normal(size=size).astype(np.float32)
            np.testing.assert_array_equal(session.run(y, {x: array}), np.minimum.accumulate(array))


def test_gradients_and_errors_of_running_extremes(rng):
    x = gf.asarray(rng.permutation(np.arange(6.0)))
    for function in (gf.cumulative_max, gf.cumulative_min):
        check_gradients(function(x), [x], rng)
    with pytest.raises(gf.AxisError, match="cumulative_max: along which of the 2 dims"):
        gf.cumulative_max(gf.ones((2, 3)))
    with pytest.raises(gf.DTypeError, match="cumulative_min: wants real tensors, not bool"):
        gf.cumulative_min([True, False])
