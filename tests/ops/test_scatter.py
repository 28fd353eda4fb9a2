import numpy as np
import pytest

import graphfw as gf
from tests.ops.test_getitem import KEYS, random_key
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
            shape_there = np.asarray(array[key]).shape
        except IndexError:
            continue
        values = rng.integers(-99, 99, shape_there[rng.integers(2) :]).astype(dtype)
        put, added = array.copy(), array.copy()
        put[key] = values
        np.add.at(
            added,
            key,
            np.ascontiguousarray(np.broadcast_to(values, shape_there)).reshape(shape_there),
        )
        assert np.array_equal(gf.index_set(array, key, values).numpy(), put), (shape, key)
        assert np.array_equal(gf.index_add(array, key, values).numpy(), added), (shape, key)
        compared += 1


COMBINED = {"multiply": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float64", "int8", "uint32"])
@pytest.mark.parametrize("name", COMBINED)
def test_values_are_combined_where_numpy_combines_them(name, dtype, rng):
    compared = 0
    while compared < 20:
        shape = tuple(rng.integers(1, 5, rng.integers(1, 4)).tolist())
        key = random_key(rng, shape, arrays=True)
        array = rng.integers(0, 9, shape).astype(dtype)
        try:
            shape_there = np.asarray(array[key]).shape
        except IndexError:
            continue
        values = rng.integers(0, 9, shape_there[rng.integers(2) :]).astype(dtype)
        expected = array.copy()
        spread = np.ascontiguousarray(np.broadcast_to(values, shape_there)).reshape(shape_there)
        COMBINED[name].at(expected, key, spread)
        result = getattr(gf.asarray(array).at[key], name)(values)
        assert np.array_equal(result.numpy(), expected), (shape, key)
        compared += 1


def test_at_reads_as_an_assignment():
    x = gf.zeros((2, 3))
    assert x.at[0, 1:].set([5, 6]).numpy().tolist() == [[0, 5, 6], [0, 0, 0]]
    assert x.at[[0, 0], 1].add(2).numpy().tolist() == [[0, 4, 0], [0, 0, 0]]
    assert x.at[x == 0].set(1).numpy().tolist() == [[1] * 3] * 2
    assert x.at[1].max([-1, 0, 1]).numpy().tolist() == [[0, 0, 0], [0, 0, 1]]
    assert x.at[...].min(-2).numpy().tolist() == [[-2] * 3] * 2
    assert "x.at[key].set(values)" in repr(x.at)
    assert repr(x.at[0]) == "x.at[0]: write .set(values), .add, .multiply, .max or .min behind it"
    with pytest.raises(gf.ConcreteValueError) as caught:
        x[0] = 1
    assert "x = x.at[i].set(v)" in caught.value.fix


def test_at_answers_for_methods_that_others_have():
    x = gf.zeros(3)
    for name, fix in (
        ("subtract", ".add(-values)"),
        ("get", "x[key]"),
        ("maximum", ".max(values)"),
    ):
        with pytest.raises(gf.UnknownNameError, match=f"has no attribute '{name}'") as caught:
            getattr(x.at[0], name)
        assert fix in caught.value.fix


@pytest.mark.parametrize("name", COMBINED)
def test_gradients_of_combined_values(name, rng):
    x = gf.asarray(rng.permutation(12.0 + np.arange(12)).reshape(3, 4) / 7)
    values = gf.asarray(rng.permutation(11.5 + np.arange(4)) / 7)
    for key in (([0, 2, 0, 1], 1), (1, slice(None))):
        check_gradients(getattr(x.at[key], name)(values), [x, values], rng)


@pytest.mark.parametrize("name", COMBINED)
def test_combined_values_of_symbolic_sizes(name, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), "float64", name="x")
        key = gf.placeholder(("k",), "int64", name="key")
        values = gf.placeholder(("k", 3), "float64", name="values")
        made = getattr(x.at[key], name)(values)
        assert made.shape == x.shape
    array, shape_there, put = rng.normal(size=(4, 3)), [1, -1, 1], rng.normal(size=(3, 3))
    expected = array.copy()
    COMBINED[name].at(expected, shape_there, put)
    found = run(g, made, {x: array, key: shape_there, values: put})
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_combining_wants_numbers_with_an_order():
    with pytest.raises(gf.DTypeError, match="index_multiply: wants numeric tensors, not bool"):
        gf.asarray([True]).at[0].multiply(True)
    with pytest.raises(gf.DTypeError, match="index_max: wants real tensors, not complex64"):
        gf.asarray([1j]).at[0].max(1)
    with pytest.raises(gf.DTypeError, match=r"index_min: 1\.5 does not fit x, which is int64"):
        gf.asarray([1]).at[0].min(1.5)
    with pytest.raises(gf.ShapeError, match=r"index_max: values \[2\] don't broadcast"):
        gf.zeros(3).at[:].max([1, 2])


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
            "values .4, 3. don't broadcast to the indexed elements",
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


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_put_along_axis_is_numpys(axis, rng):
    array = rng.standard_normal((3, 4, 2))
    shape = [3, 4, 2]
    shape[axis] = 2
    index = rng.permuted(np.broadcast_to(np.arange(2), shape), axis=axis)
    values = rng.standard_normal(shape)
    expected = array.copy()
    np.put_along_axis(expected, index, values, axis)
    assert np.array_equal(gf.put_along_axis(array, index, values, axis=axis).numpy(), expected)
    leaves = [gf.asarray(array), gf.asarray(values)]
    check_gradients(gf.put_along_axis(leaves[0], index, leaves[1], axis=axis), leaves, rng)
    with pytest.raises(gf.ShapeError, match="put_along_axis: values"):
        gf.put_along_axis(array, index, np.ones(7), axis=axis)
