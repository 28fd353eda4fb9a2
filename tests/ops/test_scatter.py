import numpy as np
import pytest

import graphfw as gf
from tests.ops.test_indexing import KEYS, random_key
from tests.support.gradcheck import check_gradients


def run(graph, fetch, feeds):
    with gf.Session(graph) as session:
        return session.run(fetch, feeds)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "complex128"])
def test_values_are_put_where_numpy_puts_them(rng, dtype):
    compared = 0
    while compared < 60:
        shape = tuple(rng.integers(1, 5, rng.integers(1, 4)).tolist())
        key = random_key(rng, shape, arrays=True)
        array = rng.integers(-99, 99, shape).astype(dtype)
        try:
            places = np.asarray(array[key]).shape
        except IndexError:
            continue
        values = rng.integers(-99, 99, places[rng.integers(2) :]).astype(dtype)
        put, added = array.copy(), array.copy()
        put[key] = values
        np.add.at(added, key, np.ascontiguousarray(np.broadcast_to(values, places)).reshape(places))
        assert np.array_equal(gf.index_set(array, key, values).numpy(), put), (shape, key)
        assert np.array_equal(gf.index_add(array, key, values).numpy(), added), (shape, key)
        compared += 1


def test_scalars_take_the_dtype():
    x = gf.zeros((2, 2), dtype="int8")
    assert gf.index_set(x, 0, 7).dtype is gf.int8
    assert gf.index_add(x, (slice(None), 1), 7).numpy().tolist() == [[0, 7], [0, 7]]
    assert gf.index_set(gf.zeros(2, dtype="bool"), 0, True).numpy().tolist() == [True, False]
    assert gf.index_set(gf.zeros(2), [0, 1], gf.asarray([1, 2])).numpy().tolist() == [1, 2]


def test_low_precision_adds_up_in_float32():
    ones = gf.ones(3000, dtype="float16")
    total = gf.index_add(gf.zeros(1, dtype="float16"), np.zeros(3000, int), ones)
    assert total.dtype is gf.float16
    assert total.item() == 3000


def test_sizes_that_are_symbolic():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), "float64", name="x")
        made = [
            gf.index_set(x, slice(1, None), 0),
            gf.index_add(x, -1, [1, 2, 3]),
            gf.index_set(x, (slice(None, None, -2), 0), x[::2, 1]),
        ]
    assert all(y.shape == x.shape for y in made)
    for size in (1, 2, 5):
        fed = np.arange(3.0 * size).reshape(size, 3)
        expected = [fed.copy() for _ in made]
        expected[0][1:] = 0
        expected[1][-1] += [1, 2, 3]
        expected[2][::-2, 0] = fed[::2, 1]
        values = run(g, made, {x: fed})
        assert all(np.array_equal(v, e) for v, e in zip(values, expected, strict=True))


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("put", [gf.index_set, gf.index_add])
def test_gradients(rng, put, name):
    x = gf.asarray(rng.standard_normal((3, 4, 2)))
    values = gf.asarray(rng.standard_normal(x[KEYS[name]].shape))
    check_gradients(put(x, KEYS[name], values), [x, values], rng)


def test_of_values_at_one_place_the_last_gets_the_gradient():
    values = gf.asarray([1.0, 2.0, 3.0])
    y = gf.index_set(gf.zeros(2), [1, 1, 1], values)
    assert y.numpy().tolist() == [0, 3]
    (slope,) = gf.grad(gf.sum(y), [values])
    assert slope.numpy().tolist() == [0, 0, 1]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_add_is_torchs(rng, axis):
    torch = pytest.importorskip("torch")
    array = rng.standard_normal((3, 4, 2))
    shape = [3, 4, 2]
    shape[axis] = 6
    index = rng.integers(0, array.shape[axis], shape)
    updates = rng.standard_normal(shape)
    ours = gf.scatter_add(array, index, updates, axis=axis)
    tensors = map(torch.from_numpy, (array, index, updates))
    x, i, u = tensors
    assert np.allclose(ours.numpy(), x.scatter_add(axis, i, u).numpy(), rtol=1e-14)
    leaves = [gf.asarray(array), gf.asarray(updates)]
    check_gradients(gf.scatter_add(leaves[0], index, leaves[1], axis=axis), leaves, rng)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda x: gf.index_set(x, 0, [1.0, 2.0]), gf.ShapeError, "values .2. don't broadcast to"),
        (lambda x: gf.index_set(x, 5, 0), gf.AxisError, "index 5 is out of range for dim 0"),
        (lambda x: gf.index_add(x, 0, 1j), gf.DTypeError, "index_add: 1j does not fit x"),
        (
            lambda x: gf.index_set(gf.zeros(3, dtype="int32"), 0, 1.5),
            gf.DTypeError,
            "index_set: 1.5 does not fit x, which is int32",
        ),
        (
            lambda x: gf.index_set(x, 0, np.zeros(3)),
            gf.DTypeError,
            "float64.3. does not fit x, which is float32",
        ),
        (
            lambda x: gf.index_add(gf.zeros(3, dtype="bool"), [0], True),
            gf.DTypeError,
            "wants numeric tensors, not bool",
        ),
        (lambda x: gf.scatter_add(x, [0], [1.0]), gf.ShapeError, "x has 2 dims and indices 1"),
        (
            lambda x: gf.scatter_add(x, [[0, 1]] * 4, [[1.0, 1.0, 1.0]] * 4),
            gf.ShapeError,
            "values .4, 3. don't broadcast to the places",
        ),
    ],
)
def test_refusals(make, error, match):
    with pytest.raises(error, match=match):
        make(gf.zeros((4, 3)))


def test_a_place_out_of_range_when_run():
    with gf.Graph() as g:
        i = gf.placeholder((2,), "int64", name="i")
        y = gf.index_add(gf.zeros(3), i, 1)
    assert run(g, y, {i: [-3, 2]}).tolist() == [1, 0, 1]
    with pytest.raises(gf.ExecutionError, match="index 3 is out of range for dim 0 of size 3"):
        run(g, y, {i: [0, 3]})
