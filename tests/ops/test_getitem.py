import numpy as np
import pytest

import graphfw as gf
from tests.support.gradcheck import check_gradients


def run(graph, fetch, feeds):
    with gf.Session(graph) as session:
        return session.run(fetch, feeds)


def outcome(make):
    """The value, or the error that came instead."""
    try:
        return make(), None
    except (IndexError, ValueError) as error:
        return None, error


def random_key(rng, shape, *, arrays):
    """A key of any kind, sometimes out of range, for an array of this shape."""
    bound = [None, *range(-6, 7)]
    named = [(), (2,), (3, 2), (1,)][rng.integers(4)]
    key = []
    for dim in shape:
        kind = rng.integers(10)
        if kind < 4:
            start, stop = (bound[rng.integers(len(bound))] for _ in "ab")
            key.append(slice(start, stop, [None, 1, -1, 2, -2, 3, -3][rng.integers(7)]))
        elif kind < 6:
            key.append(int(rng.integers(-dim - 1, dim + 1)))
        elif kind < 8 and arrays:
            key.append(rng.integers(-max(dim, 1), max(dim, 1), named[rng.integers(2) :]))
        elif kind == 8:
            key += [None, slice(None)]
        elif Ellipsis not in [k for k in key if k is Ellipsis]:
            key.append(Ellipsis)
            break
    return tuple(key) if len(key) != 1 else key[0]


@pytest.mark.parametrize("arrays", [False, True], ids=["basic", "arrays"])
def test_keys_mean_what_they_mean_to_numpy(rng, arrays):
    compared = 0
    for _ in range(300):
        shape = tuple(rng.integers(0, 5, rng.integers(1, 5)).tolist())
        array = rng.integers(0, 100, shape)
        key = random_key(rng, shape, arrays=arrays)
        expected, error = outcome(lambda a=array, k=key: np.asarray(a[k]))
        ours, our_error = outcome(lambda a=array, k=key: gf.getitem(a, k))
        if error is not None or our_error is not None:
            # Where nothing is read NumPy lets wrong indices pass.
            assert our_error is not None, (shape, key)
            assert error is not None or expected.size == 0, (shape, key)
            continue
        assert ours.shape == expected.shape, (shape, key)
        assert np.array_equal(ours.numpy(), expected), (shape, key)
        compared += 1
    assert compared > 50


@pytest.mark.parametrize("arrays", [False, True], ids=["basic", "arrays"])
def test_keys_mean_the_same_where_sizes_are_symbolic(rng, arrays):
    compared = 0
    while compared < 40:
        shape = tuple(rng.integers(1, 5, rng.integers(1, 4)).tolist())
        key = random_key(rng, shape, arrays=arrays)
        array = rng.integers(0, 100, shape)
        expected, error = outcome(lambda a=array, k=key: np.asarray(a[k]))
        if error is not None:
            continue
        with gf.Graph() as g:
            x = gf.placeholder((None,) * len(shape), "int64", name="x")
            y = x[key]
        value = run(g, y, {x: array})
        assert value.shape == expected.shape, (shape, key)
        assert np.array_equal(value, expected), (shape, key)
        compared += 1


def test_equal_sizes_have_equal_shapes():
    with gf.Graph():
        x = gf.placeholder(("n", 4), name="x")
        n = x.shape[0]
        assert x[1:].shape == x[:-1].shape
        assert x[2:].shape == x[1:-1].shape
        assert x[-3:].shape == x[:3].shape
        assert x[::-1].shape == x[:].shape == x[...].shape == x[:n].shape == (n, 4)
        assert x[::2].shape == ((n + 1) // 2, 4)
        assert x[n // 2 :].shape == (n - n // 2, 4)
        assert x[-1].shape == x[n - 1].shape == (4,)
        assert x[:, -2:].shape == (n, 2)


def test_a_key_that_takes_all_makes_no_node():
    x = gf.zeros((2, 3))
    assert x[:] is x
    assert x[...] is x
    assert x[:, 0:3] is x


@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_dims_as_bounds(size):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), "int64", name="x")
        n = x.shape[0]
        made = [x[: n // 2], x[n // 2 :], x[n - 3 :], x[: n - 3], x[n - 1], x[n - 1 :: -1], x[1:n]]
    fed = np.arange(size)
    values = run(g, made, {x: fed})
    below = max(size - 3, 0)
    expected = [
        *(fed[: size // 2], fed[size // 2 :], fed[below:], fed[:below]),
        *(fed[-1], fed[::-1], fed[1:]),
    ]
    assert all(np.array_equal(v, e) for v, e in zip(values, expected, strict=True))


def test_boolean_arrays_with_known_values(rng):
    array = rng.standard_normal((3, 4, 2))
    mask = rng.random((3, 4)) < 0.5
    x = gf.asarray(array)
    assert np.array_equal(x[mask].numpy(), array[mask])
    assert np.array_equal(x[gf.asarray(mask)].numpy(), array[mask])
    assert np.array_equal(x[:, mask[0], 0].numpy(), array[:, mask[0], 0])
    assert np.array_equal(x[[True, False, True]].numpy(), array[[True, False, True]])
    assert x[np.zeros((3, 4), bool)].shape == (0, 2)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4), (0, 0)])
def test_an_empty_mask_selects_nothing(rng, shape):
    array = rng.standard_normal((3, 4, 2))
    mask = np.zeros(shape, bool)
    assert gf.asarray(array)[mask].shape == array[mask].shape


@pytest.mark.parametrize("chosen", [True, False])
def test_a_0d_boolean_tensor_chooses_all_or_nothing(rng, chosen):
    array = rng.standard_normal((3, 4))
    x = gf.asarray(array)
    assert np.array_equal(x[gf.asarray(chosen)].numpy(), array[np.bool_(chosen)])
    assert x[0, 0][gf.asarray(chosen)].shape == (int(chosen),)
    assert gf.index_set(x, gf.asarray(chosen), 7.0).numpy()[0, 0] == (7 if chosen else array[0, 0])
    with pytest.raises(gf.DTypeError, match="a 0-d boolean in a tuple is no index"):
        x[gf.asarray(chosen), 0]


def test_tensors_as_indices():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), "float64", name="x")
        i = gf.placeholder(("k",), "int32", name="i")
        y = gf.placeholder((), "uint8", name="y")
        made = [x[i], x[i, 0], x[y], x[:, y], x[i[:, None], [2, 0]]]
    assert [t.shape for t in made] == [(*i.shape, 3), i.shape, (3,), x.shape[:1], (*i.shape, 2)]
    fed = np.arange(12.0).reshape(4, 3)
    index = np.array([3, -4, 3], "int32")
    values = run(g, made, {x: fed, i: index, y: np.uint8(2)})
    expected = [fed[index], fed[index, 0], fed[2], fed[:, 2], fed[index[:, None], [2, 0]]]
    assert all(np.array_equal(v, e) for v, e in zip(values, expected, strict=True))


def test_indices_out_of_range_when_run():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), "float64", name="x")
        i = gf.placeholder((), "int64", name="i")
        last, third, taken = x[-1], x[2], gf.take(x, i, axis=1)
    with pytest.raises(gf.ExecutionError, match="index -1 is out of range for dim 0 of size 0"):
        run(g, last, {x: np.zeros((0, 3))})
    with pytest.raises(gf.ExecutionError, match="index 2 is out of range for dim 0 of size 2"):
        run(g, third, {x: np.zeros((2, 3))})
    for wrong in (3, -4):
        with pytest.raises(gf.ExecutionError, match=f"index {wrong} is out of range for dim 1"):
            run(g, taken, {x: np.zeros((2, 3)), i: wrong})


@pytest.mark.parametrize(
    ("key", "error", "match"),
    [
        ((slice(None), 3), gf.AxisError, "getitem: index 3 is out of range for dim 1 of size 3"),
        ((slice(None), -4), gf.AxisError, "index -4 is out of range for dim 1 of size 3"),
        ((slice(None), [0, 5]), gf.AxisError, "index 5 is out of range for dim 1 of size 3"),
        ((0, 0, 0), gf.AxisError, "3 for 2 dims"),
        ((..., ...), gf.AxisError, "one `...` at most"),
        (1.5, gf.DTypeError, "1.5 is no index"),
        ([1.5], gf.DTypeError, "a tensor float32.1. is no index"),
        (True, gf.DTypeError, "True is no index"),
        ("a", gf.DTypeError, "'a' is no index"),
        (slice(1.5, None), gf.DTypeError, "the bound 1.5 of a slice is no int"),
        (slice(None, None, 0), gf.ArgumentError, "step 0 of a slice"),
        ((slice(None), [True, False]), gf.AxisError, "a boolean index of size 2 for dim 1"),
        ((0, [0, 1], [[0, 1, 2]]), gf.AxisError, "3 for 2 dims"),
        (([0, 1], [0, 1, 2]), gf.ShapeError, "getitem: shapes don't broadcast"),
    ],
)
def test_refused_keys(key, error, match):
    with gf.Graph():
        x = gf.placeholder(("n", 3), name="x")
        with pytest.raises(error, match=match):
            x[key]


def test_keys_that_only_a_run_knows_are_refused():
    with gf.Graph():
        x = gf.placeholder(("n", 3), name="x")
        i = gf.placeholder((), "int64")
        with pytest.raises(gf.ConcreteValueError, match="bounds of a slice") as caught:
            x[:i]
        assert "gf.take" in caught.value.fix
        with pytest.raises(gf.ArgumentError, match="the bound -n of a slice is never positive"):
            x[-x.shape[0] :]
        with pytest.raises(gf.ArgumentError, match="step n of a slice"):
            x[:: x.shape[0]]


KEYS = {
    "slices": (slice(1, None, 2), slice(None, None, -1)),
    "int and new axis": (-1, None),
    "repeated indices": ([0, 2, 0],),
    "indices apart": ([0, 2, 0], slice(None), [1, 1, 0]),
    "int, slice, indices": (0, slice(1, 3), [1, 0, 1]),
    "slice, indices": (slice(None, 0, -1), [[1, 0], [3, 3]]),
}


@pytest.mark.parametrize("name", KEYS)
def test_gradients(rng, name):
    x = gf.asarray(rng.standard_normal((3, 4, 2)))
    check_gradients(x[KEYS[name]], [x], rng)


def test_gradients_of_sizes_that_are_symbolic():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), "float64", name="x")
        (slope,) = gf.grad(gf.sum((x[1:] - x[:-1]) ** 2) + x[-1], [x])
    assert slope.shape == x.shape
    assert run(g, slope, {x: [1, 4, 9]}).tolist() == [-6, -4, 11]
    assert run(g, slope, {x: [1]}).tolist() == [1]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_is_numpys(rng, axis):
    array = rng.standard_normal((3, 4, 2))
    for shape in ((), (5,), (2, 0), (2, 3)):
        index = rng.integers(-2, 2, shape)
        ours = gf.take(array, index, axis=axis)
        expected = np.take(array, index, axis)
        assert ours.shape == expected.shape
        assert np.array_equal(ours.numpy(), expected)


def test_take_refuses():
    with pytest.raises(gf.ArgumentError, match="take: axis is missing, and x has 2 dims"):
        gf.take(gf.zeros((2, 3)), [0])
    with pytest.raises(gf.DTypeError, match="indices must be integers, not float32"):
        gf.take(gf.zeros(3), [0.5])
    with pytest.raises(gf.AxisError, match="take: axis 1"):
        gf.take(gf.zeros(3), [0], axis=1)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_along_axis_is_numpys(rng, axis):
    array = rng.standard_normal((3, 4, 2))
    for size in (0, 1, 5):
        shape = [3, 4, 2]
        shape[axis] = size
        index = rng.integers(-2, 2, shape)
        ours = gf.take_along_axis(array, index, axis=axis)
        assert np.array_equal(ours.numpy(), np.take_along_axis(array, index, axis))
    x = gf.asarray(array)
    index = gf.argsort(x, axis=axis)
    check_gradients(gf.take_along_axis(x, index, axis=axis), [x], rng)


def test_take_along_axis_of_symbolic_dims():
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 3), "float64", name="x")
        labels = gf.placeholder(("batch",), "int64", name="labels")
        picked = gf.take_along_axis(x, labels[:, None], axis=1)
        (slope,) = gf.grad(gf.sum(picked), [x])
        with pytest.raises(gf.ShapeError, match="x has 2 dims and indices 1"):
            gf.take_along_axis(x, labels)
        with pytest.raises(gf.ShapeError, match="don't fit together beside axis 1"):
            gf.take_along_axis(x, gf.zeros((5, 1), dtype="int64"))
    assert picked.shape == (*labels.shape, 1)
    fed = np.arange(6.0).reshape(2, 3)
    values, slopes = run(g, [picked, slope], {x: fed, labels: [2, 0]})
    assert values.tolist() == [[2], [3]]
    assert slopes.tolist() == [[0, 0, 1], [1, 0, 0]]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(rng, axis):
    index = rng.integers(-1, 6, (3, 2))
    hot = gf.one_hot(index, 5, axis=axis)
    expected = np.moveaxis(np.arange(5) == index[..., None], -1, axis)
    assert hot.dtype is gf.float32
    assert np.array_equal(hot.numpy(), expected)
    assert gf.one_hot(index, 0, dtype="bool", axis=axis).numpy().size == 0


def test_one_hot_of_dims_and_refusals():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), "int32", name="x")
        hot = gf.one_hot(x, x.shape[0], dtype="int8")
    assert hot.shape == (*x.shape, *x.shape)
    assert run(g, hot, {x: np.array([1, 0], "int32")}).tolist() == [[0, 1], [1, 0]]
    with pytest.raises(gf.DTypeError, match="one_hot: indices must be integers"):
        gf.one_hot([0.5], 3)
    with pytest.raises(gf.AxisError, match="one_hot: axis 2"):
        gf.one_hot([0], 3, axis=2)


def test_nonzero(rng):
    array = rng.integers(0, 2, (3, 4))
    for ours, expected in zip(gf.nonzero(array), np.nonzero(array), strict=True):
        assert np.array_equal(ours.numpy(), expected)
    with pytest.raises(gf.ShapeError, match="nonzero: wants 1 dim or more"):
        gf.nonzero(3)


@pytest.mark.parametrize("index", [-7, 9])
def test_indices_are_checked_whatever_they_point_at(index):
    with gf.Graph() as g:
        i = gf.placeholder(("n",), "int64", name="i")
        v = gf.placeholder(("k",), name="v")
        pointed = [
            gf.zeros(3),
            gf.zeros((3, 1)),
            gf.arange(v.shape[0]),
            gf.arange(v.shape[0]) * 2 + 1,
            gf.broadcast_to(v[0], (3,)),
            v * 2,
        ]
        made = [gf.take(x, i, axis=0) for x in pointed]
    with gf.Session(g) as session:
        for y in made:
            assert len(session.run(y, {i: [0, 2], v: np.ones(3, np.float32)})) == 2
            with pytest.raises(gf.ExecutionError, match=f"index {index} is out of range"):
                session.run(y, {i: [0, index], v: np.ones(3, np.float32)})
