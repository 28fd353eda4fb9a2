"""Operands that are read across: work items transpose them first, whatever their sizes."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor.codegen.transpose import transposed

AXES = [(1, 0), (0, 2, 1), (2, 0, 1), (1, 2, 0), (2, 3, 0, 1), (0, 3, 1, 2), (0, 2, 3, 1)]


def shapes(rank):
    """Sizes around those of vectors and tiles."""
    return {
        2: [(1, 1), (3, 700), (700, 3), (31, 129), (33, 127), (64, 64), (100, 17), (257, 300)],
        3: [(3, 40, 50), (40, 50, 3), (2, 33, 129), (5, 16, 100)],
        4: [(4, 26, 15, 16), (2, 3, 20, 30), (2, 20, 30, 3), (3, 17, 5, 40)],
    }[rank]


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "bool"])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("axes", AXES, ids=str)
def test_copies(rng, axes, symbolic, dtype):
    names = ["a", "b", "c", "d"][: len(axes)]
    for shape in shapes(len(axes)):
        with gf.Graph() as g:
            x = gf.placeholder(names if symbolic else shape, dtype, name="x")
            y = gf.permute_dims(x, axes)
        a = rng.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)
        with gf.Session(g) as session:
            np.testing.assert_array_equal(session.run(y, {x: a}), a.transpose(axes))


@pytest.mark.parametrize("shape", [(5, 3), (31, 129), (257, 300), (1000, 7)])
def test_what_is_computed_of_some_operands_across(rng, shape):
    with gf.Graph() as g:
        x, y = gf.placeholder(shape, name="x"), gf.placeholder(shape[::-1], name="y")
        z = gf.placeholder(shape[::-1], gf.int16, name="z")
        found = x * y.mT + gf.astype(z.mT, gf.float32) * gf.abs(y.mT)
    a, b = rng.standard_normal(shape, np.float32), rng.standard_normal(shape[::-1], np.float32)
    c = rng.integers(-9, 9, shape[::-1]).astype(np.int16)
    with gf.Session(g) as session:
        result = session.run(found, {x: a, y: b, z: c})
    np.testing.assert_allclose(result, a * b.T + c.T * abs(b.T), rtol=1e-5, atol=1e-5)


def test_more_operands_than_are_transposed(rng):
    with gf.Graph() as g:
        xs = [gf.placeholder((70, 50), name=f"x{number}") for number in range(6)]
        total = sum((x.mT * number for number, x in enumerate(xs)), gf.zeros((50, 70)))
    arrays = [rng.standard_normal((70, 50), np.float32) for _ in xs]
    with gf.Session(g) as session:
        found = session.run(total, dict(zip(xs, arrays, strict=True)))
    wanted = sum(a.T * number for number, a in enumerate(arrays))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_result_may_lie_across_too(rng):
    with gf.Graph() as g:
        x = gf.placeholder((40, 50, 60), name="x")
        y = gf.concat([gf.permute_dims(x, (2, 1, 0)), gf.permute_dims(x, (2, 1, 0)) * 2], axis=2)
    a = rng.standard_normal((40, 50, 60), np.float32)
    with gf.Session(g) as session:
        found = session.run(y, {x: a})
    t = a.transpose(2, 1, 0)
    np.testing.assert_array_equal(found, np.concatenate([t, t * 2], axis=2))


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "int64"])
@pytest.mark.parametrize("shape", [(3, 300), (70, 9), (130, 16), (257, 33), (8, 17)])
def test_columns_of_what_is_dense_along_positions(rng, shape, dtype):
    with gf.Graph() as g:
        x = gf.placeholder((2, *shape), dtype, name="x")
        found = gf.max(gf.permute_dims(x, (0, 2, 1)), axis=1), gf.cumulative_sum(x[1].mT, axis=0)
    a = rng.integers(-100, 100, (2, *shape)).astype(dtype)
    with gf.Session(g) as session:
        largest, sums = session.run(found, {x: a})
    np.testing.assert_array_equal(largest, a.max(2))
    np.testing.assert_array_equal(sums, a[1].T.cumsum(0, sums.dtype))


@pytest.mark.parametrize("form", ["<4 x i32>", "<8 x double>", "<16 x i8>", "<16 x float>"])
def test_squares_in_registers(form):
    lanes = int(form[1:].partition(" ")[0])
    vectors = {f"%r{n}": [(n, lane) for lane in range(lanes)] for n in range(lanes)}

    def let(text):
        operands, _, order = text.removeprefix("shufflevector ").rpartition("> <")
        first, second = [operand.split()[-1] for operand in operands.split(",")[:2]]
        both = vectors[first] + vectors[second]
        vectors[name := f"%{len(vectors)}"] = [
            both[int(lane.split()[-1])] for lane in order.rstrip(">").split(",")
        ]
        return name

    found = transposed(let, form, lanes, [f"%r{n}" for n in range(lanes)])
    assert [vectors[name] for name in found] == [
        [(lane, n) for lane in range(lanes)] for n in range(lanes)
    ]


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(300, 3), (9, 70), (17, 130), (33, 257), (100, 8), (700, 33)])
def test_rows_of_what_is_dense_along_rows(rng, shape, dtype):
    with gf.Graph() as g:
        x = gf.placeholder((2, *shape), dtype, name="x")
        rows = gf.permute_dims(x, (0, 2, 1))
        largest = gf.max(rows, axis=2)
        found = largest, gf.argmin(rows, axis=2), gf.astype(rows, "float64") - largest[..., None]
    a = rng.integers(-100, 100, (2, *shape)).astype(dtype)
    with gf.Session(g) as session:
        largest, smallest, left = session.run(found, {x: a})
    t = a.transpose(0, 2, 1)
    np.testing.assert_array_equal(largest, t.max(2))
    np.testing.assert_array_equal(smallest, t.argmin(2))
    np.testing.assert_array_equal(left, t.astype("float64") - t.max(2)[..., None])
