"""Sort, argsort, topk, searchsorted: order, ties, NaN, gradients, errors."""

import numpy as np
import pytest

import graphfw as gf


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sort_matches_numpy(axis, descending, stable, rng):
    x = rng.integers(-5, 6, (4, 7, 3)).astype(np.float32)
    options = {"axis": axis, "descending": descending, "stable": stable}
    expected = np.sort(x, axis=axis)
    expected = np.flip(expected, axis) if descending else expected
    np.testing.assert_array_equal(gf.sort(gf.asarray(x), **options).numpy(), expected, strict=True)
    indices = gf.argsort(gf.asarray(x), **options)
    assert indices.dtype is gf.int64
    np.testing.assert_array_equal(np.take_along_axis(x, indices.numpy(), axis), expected)


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float16", "bfloat16", "float64"])
def test_equal_elements_keep_their_order(dtype, rng):
    x = rng.integers(0, 3, 100)
    tensor = gf.asarray(x).astype(dtype)
    for descending in (False, True):
        expected = sorted(range(100), key=lambda i: -x[i] if descending else x[i])
        indices = gf.argsort(tensor, descending=descending)
        np.testing.assert_array_equal(indices.numpy(), expected)


def test_signed_zeros_keep_their_order():
    x = np.array([0.0, -0.0, 1.0, -0.0, 0.0])
    for descending in (False, True):
        values = gf.sort(gf.asarray(x), descending=descending).numpy()
        zeros = values[1:] if descending else values[:4]
        np.testing.assert_array_equal(np.signbit(zeros), [False, True, True, False])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nan_is_larger_than_any_number(dtype):
    x = gf.asarray([1.0, np.nan, -np.inf, np.inf, np.nan]).astype(dtype)
    np.testing.assert_array_equal(gf.argsort(x).numpy(), [2, 0, 3, 1, 4])
    np.testing.assert_array_equal(gf.argsort(x, descending=True).numpy(), [1, 4, 3, 0, 2])
    inf, nan = np.inf, np.nan
    ascending = gf.sort(x).numpy().astype(np.float32)
    np.testing.assert_array_equal(ascending, [-inf, 1, inf, nan, nan])
    descending = gf.sort(x, descending=True).numpy().astype(np.float32)
    np.testing.assert_array_equal(descending, [nan, nan, inf, 1, -inf])
    np.testing.assert_array_equal(gf.topk(x, 2).indices.numpy(), [1, 4])


def test_sort_of_extreme_integers():
    x = np.array([0, 255, 1], np.uint8)
    np.testing.assert_array_equal(gf.sort(gf.asarray(x), descending=True).numpy(), [255, 1, 0])
    lowest = np.array([5, np.iinfo(np.int64).min, 7])
    indices = gf.argsort(gf.asarray(lowest), descending=True)
    np.testing.assert_array_equal(indices.numpy(), [2, 0, 1])


def test_sort_of_nothing():
    assert gf.sort(gf.zeros((3, 0))).numpy().shape == (3, 0)
    assert gf.argsort(gf.zeros((0, 3)), descending=True).numpy().shape == (0, 3)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_gradient_of_sort_goes_where_the_elements_came_from(axis, descending, rng):
    x = rng.integers(0, 4, (5, 6)).astype(np.float64)  # with ties
    ct = rng.normal(size=(5, 6))
    tensor = gf.asarray(x)
    gradient = gf.grad(gf.sort(tensor, axis=axis, descending=descending), tensor, grad_y=ct)
    indices = np.argsort(-x if descending else x, axis=axis, kind="stable")
    expected = np.zeros_like(x)
    np.put_along_axis(expected, indices, ct, axis)
    np.testing.assert_array_equal(gradient.numpy(), expected)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("axis", "k"), [(0, 3), (1, 7), (-1, 1), (1, 0)])
def test_topk_takes_the_first_of_equal_elements(axis, k, largest, rng):
    x = rng.integers(0, 4, (5, 7))
    values, indices = gf.topk(gf.asarray(x), k, axis=axis, largest=largest)
    expected = np.argsort(-x if largest else x, axis=axis, kind="stable")
    expected = np.take(expected, range(k), axis=axis)
    assert indices.dtype is gf.int64
    np.testing.assert_array_equal(indices.numpy(), expected)
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, expected, axis))


def check_topk(x, k, axis, largest):
    """It is the beginning of `argsort`, which sorts everything: ties, NaN and zeros alike."""
    indices = gf.topk(x, k, axis=axis, largest=largest).indices.numpy()
    whole = gf.argsort(x, axis=axis, descending=largest).numpy()
    np.testing.assert_array_equal(indices, np.take(whole, range(k), axis), strict=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint64"])
def test_topk_of_many(dtype, largest, rng):
    for span in (1, 3, 100):
        x = gf.asarray(rng.integers(0, span + 1, (3, 1000, 2))).astype(dtype)
        for k in (0, 1, 7, 499, 500, 1000):
            check_topk(x, k, 1, largest)
    x = gf.asarray(rng.permutation(6000).reshape(2, 3000) % 2048).astype(dtype)
    check_topk(x, 10, 1, largest)
    check_topk(gf.permute_dims(x, (1, 0)), 10, 0, largest)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_topk_of_many_special_floats(dtype, largest, rng):
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf]
    for choices in (special, [*special, np.nan], [0.0, -0.0], [np.nan]):
        x = gf.asarray(rng.choice(choices, (4, 1000))).astype(dtype)
        for k in (1, 30, 400):
            check_topk(x, k, 1, largest)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint64"])
def test_topk_of_many_extreme_integers(dtype, largest, rng):
    limits = np.iinfo(dtype)
    choices = np.array([limits.min, limits.min + 1, limits.max - 1, limits.max, 0], dtype)
    x = gf.asarray(rng.choice(choices, (4, 1000)))
    for k in (1, 250, 480):
        check_topk(x, k, 1, largest)
    check_topk(gf.zeros((0, 5000), dtype=dtype), 3, 1, largest)


def test_gradient_of_topk():
    x = gf.asarray([3.0, 9.0, 9.0, 4.0])
    result = gf.topk(x, 2)
    gradient = gf.grad(result.values, x, grad_y=[1.0, 2.0])
    np.testing.assert_array_equal(gradient.numpy(), [0, 1, 2, 0])


def test_topk_of_a_symbolic_size():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        values, indices = gf.topk(x, 2, largest=False)
        assert values.shape == indices.shape == (2,)
    with gf.Session(g) as session:
        fed = np.array([3, 1, 2], np.float32)
        np.testing.assert_array_equal(session.run(values, {x: fed}), [1, 2])
        with pytest.raises(gf.ExecutionError, match="topk: k=2 is more than there are along"):
            session.run(values, {x: fed[:1]})


def test_topk_of_a_slice_of_a_symbolic_size():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 2), name="x")
        n = x.shape[0]
        values = gf.topk(x, n // 2, axis=0).values
        assert values.shape == (n // 2, 2)
        with pytest.raises(gf.ShapeError, match=r"k=n \+ 1 is more than there are"):
            gf.topk(x, n + 1, axis=0)
    with gf.Session(g) as session:
        fed = np.arange(10, dtype=np.float32).reshape(5, 2)
        np.testing.assert_array_equal(session.run(values, {x: fed}), [[8, 9], [6, 7]])


def test_topk_errors():
    x = gf.ones((2, 3))
    with pytest.raises(gf.ShapeError, match=r"topk: k=4 is more than there are: x\[1\] = 3"):
        gf.topk(x, 4)
    with pytest.raises(gf.ArgumentError, match="topk: k is -1, and must be 0 or more"):
        gf.topk(x, -1)
    for k in (1.5, True, "2"):
        with pytest.raises(gf.ArgumentError, match=f"topk: k is {k!r}, and must be an int"):
            gf.topk(x, k)


@pytest.mark.parametrize("name", ["sort", "argsort"])
def test_sort_errors(name):
    function = getattr(gf, name)
    with pytest.raises(gf.AxisError, match=f"{name}: axis 2 is out of range for 2 dims"):
        function(gf.ones((2, 3)), axis=2)
    message = f"{name}: wants real tensors, not complex64"
    with pytest.raises(gf.DTypeError, match=message) as caught:
        function(gf.asarray([1j]))
    assert "gf.abs" in caught.value.fix
    with pytest.raises(gf.DTypeError, match=f"{name}: wants real tensors, not bool") as caught:
        function(gf.asarray([True]))
    assert "gf.astype(x, gf.uint8)" in caught.value.fix


@pytest.mark.parametrize("dtype", ["int32", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("shape", [(), (3, 5), (0,)])
def test_searchsorted_matches_numpy(shape, side, dtype, rng):
    x1, x2 = np.sort(rng.integers(0, 9, 11)), rng.integers(-1, 11, shape)
    result = gf.searchsorted(gf.asarray(x1).astype(dtype), gf.asarray(x2).astype(dtype), side=side)
    assert result.dtype is gf.int64
    np.testing.assert_array_equal(result.numpy(), np.searchsorted(x1, x2, side=side))


def test_searchsorted_with_a_sorter(rng):
    x1, x2 = rng.normal(size=9), rng.normal(size=4)
    sorter = np.argsort(x1)
    result = gf.searchsorted(gf.asarray(x1), x2, sorter=sorter)
    np.testing.assert_array_equal(result.numpy(), np.searchsorted(x1, x2, sorter=sorter))


def test_searchsorted_promotes():
    assert gf.searchsorted(gf.asarray([1, 2]), gf.asarray([1.5])).numpy().tolist() == [1]
    assert gf.searchsorted(gf.asarray([1.0, 2.0]), 1.5).numpy().tolist() == 1


def test_searchsorted_errors():
    with pytest.raises(gf.ArgumentError, match="side='middle' is none of"):
        gf.searchsorted(gf.ones((3,)), gf.ones((3,)), side="middle")
    with pytest.raises(gf.ShapeError, match="x1, the sorted elements, must have 1 dim, not 2"):
        gf.searchsorted(gf.ones((3, 2)), gf.ones((3,)))
