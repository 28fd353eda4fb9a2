"""Reductions of segments, against loops over NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from tests.support.gradcheck import check_gradients

PLAIN = {
    "segment_sum": np.sum,
    "segment_prod": np.prod,
    "segment_mean": np.mean,
    "segment_max": np.max,
    "segment_min": np.min,
}
SHAPES = [(7,), (7, 3), (7, 2, 2), (1,), (0,), (0, 2), (4, 0)]


def by_loop(name, x, ids, count):
    empty = {"segment_sum": 0, "segment_prod": 1, "segment_mean": np.nan}
    if x.dtype.kind == "f":
        empty |= {"segment_max": -np.inf, "segment_min": np.inf}
    else:
        info = np.iinfo(x.dtype)
        empty |= {"segment_max": info.min, "segment_min": info.max}
    rows = [
        PLAIN[name](x[ids == i], axis=0) if (ids == i).any() else np.full(x.shape[1:], empty[name])
        for i in range(count)
    ]
    return np.stack(rows)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float64", "int8", "uint16"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", PLAIN)
def test_they_are_loops_over_numpys(name, shape, dtype, rng):
    x = rng.integers(0, 5, shape).astype(dtype)
    ids = rng.permutation(rng.integers(0, 4, shape[0]))
    result = getattr(gf, name)(gf.asarray(x), ids, 5).numpy()
    np.testing.assert_allclose(result, by_loop(name, x, ids, 5), rtol=1e-6)


def test_dtypes():
    x = np.ones(3, np.int8)
    ids = [0, 1, 0]
    assert gf.segment_sum(x, ids, 2).dtype is gf.int64
    assert gf.segment_prod(x, ids, 2).dtype is gf.int64
    assert gf.segment_max(x, ids, 2).dtype is gf.int8
    assert gf.segment_mean(x, ids, 2).dtype is gf.float32
    half = gf.ones((3000,), dtype="float16")
    assert gf.segment_sum(half, np.zeros(3000, int), 1).item() == 3000
    assert gf.segment_mean(half * 100, np.zeros(3000, int), 1).item() == 100
    assert gf.segment_sum([True, True], [0, 0], 1).item() == 2


def test_nan_infinities_and_overflow_stay_in_their_segment():
    x = gf.asarray([np.nan, 1.0, 1e30, 1e30, 2.0, -np.inf])
    ids = [0, 0, 1, 1, 2, 3]
    np.testing.assert_array_equal(
        gf.segment_max(x, ids, 4).numpy()[[0, 2, 3]], [np.nan, 2, -np.inf]
    )
    np.testing.assert_array_equal(
        gf.segment_min(x, ids, 4).numpy()[[0, 2, 3]], [np.nan, 2, -np.inf]
    )
    products = gf.segment_prod(x, ids, 4)
    np.testing.assert_array_equal(products.numpy(), [np.nan, np.inf, 2, -np.inf])
    slopes = gf.grad(products, x, grad_y=np.ones(4, np.float32))
    assert slopes.numpy()[4:].tolist() == [1, 1]


@pytest.mark.parametrize("name", PLAIN)
def test_gradients(name, rng):
    x = gf.asarray(rng.permutation(10.0 + np.arange(10)).reshape(5, 2) / 10)
    check_gradients(getattr(gf, name)(x, [1, 0, 1, 2, 1], 3), [x], rng)


def test_gradients_of_products_with_zeros(rng):
    x = gf.asarray([2.0, 0.0, 3.0, 0.0, 0.0, 5.0])
    x = gf.astype(x, "float64")
    leaf = gf.asarray(x.numpy())
    check_gradients(gf.segment_prod(leaf, [0, 1, 1, 2, 2, 2], 3), [leaf], rng)


@pytest.mark.parametrize("name", PLAIN)
def test_symbolic_sizes(name, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 2), name="x")
        ids = gf.placeholder(("n",), "int32", name="ids")
        like = gf.placeholder(("k",), name="like")
        made = getattr(gf, name)(x, ids, like.shape[0])
        assert made.shape == (like.shape[0], 2)
    with gf.Session(g) as session:
        for size, count in ((6, 4), (0, 2), (1, 1)):
            array = rng.normal(size=(size, 2)).astype(np.float32)
            numbers = rng.integers(0, count, size).astype(np.int32)
            zeros = np.zeros(count, np.float32)
            found = session.run(made, {x: array, ids: numbers, like: zeros})
            np.testing.assert_allclose(found, by_loop(name, array, numbers, count), rtol=1e-5)
        for wrong in (-1, 1):
            with pytest.raises(
                gf.ExecutionError, match=f"{name}: a segment id is {wrong}, and there"
            ):
                session.run(made, {x: array, ids: np.full(1, wrong, np.int32), like: zeros})


@pytest.mark.parametrize("name", PLAIN)
def test_examples_of_a_batch(name, rng):
    x, ids = rng.normal(size=(3, 5)), rng.integers(0, 3, (3, 5))
    function = getattr(gf, name)
    each = gf.vmap(lambda row, numbers: function(row, numbers, 3))(gf.asarray(x), gf.asarray(ids))
    expected = [by_loop(name, a, b, 3) for a, b in zip(x, ids, strict=True)]
    np.testing.assert_allclose(each.numpy(), expected, rtol=1e-12)


def test_errors():
    x = gf.ones((3, 2))
    with pytest.raises(gf.ShapeError, match=r"segment_sum: segment_ids \[2\] for rows \[3, 2\]"):
        gf.segment_sum(x, [0, 1], 2)
    with pytest.raises(gf.DTypeError, match="segment_max: segment_ids must be integers"):
        gf.segment_max(x, [0.0, 1.0, 1.0], 2)
    with pytest.raises(gf.DTypeError, match="segment_min: wants real tensors, not bool"):
        gf.segment_min(gf.asarray([True]), [0], 2)
    with pytest.raises(gf.ShapeError, match="segment_prod: a dim can't be -1"):
        gf.segment_prod(x, [0, 1, 1], -1)
