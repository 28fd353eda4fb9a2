"""Running sums and products, and recurrences, natively: what eval gives to the last bit."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ops.reduce.cumulative import CumulativeProd, CumulativeSum, Recurrence
from graphfw.runtime.numpy_executor.special import scans
from tests.runtime.numpy_executor.special_runs import (
    LAYOUTS,
    NUMBERS,
    assert_native,
    computed,
    drawn,
    same,
)

OPS = [CumulativeSum, CumulativeProd, Recurrence]


@pytest.fixture(autouse=True, params=["one work item", "many work items"])
def work_items(request, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    if request.param == "many work items":
        monkeypatch.setattr(scans, "_WORK_ITEM", 1)
        monkeypatch.setattr(scans, "_BLOCK", 24)


def given(rng, op, shape, dtype="float32"):
    return [drawn(rng, shape, dtype) for _ in range(2 if isinstance(op, Recurrence) else 1)]


def variants(cls, axis):
    yield cls(axis)
    yield cls(axis, True)
    if cls is not Recurrence:
        yield cls(axis, False, True)
        yield cls(axis, True, True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("cls", OPS)
def test_any_axis(rng, cls, axis, layout):
    for op in variants(cls, axis):
        arrays = given(rng, op, (5, 9, 37))
        same(computed(op, arrays, (layout,)), op.eval(np, *arrays))


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("cls", OPS)
def test_any_dtype(rng, cls, dtype):
    for axis in (0, 1):
        for op in variants(cls, axis):
            arrays = given(rng, op, (19, 27), dtype)
            same(computed(op, arrays), op.eval(np, *arrays))


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [(1,), (0,), (300,), (1, 7), (7, 1), (0, 3), (3, 0), (2, 1, 70)])
@pytest.mark.parametrize("cls", OPS)
def test_sizes_known_later(rng, cls, shape):
    for axis in range(len(shape)):
        for op in variants(cls, axis):
            arrays = given(rng, op, shape)
            same(computed(op, arrays, symbolic=True), op.eval(np, *arrays))


@pytest.mark.exhaustive
@pytest.mark.parametrize("cls", OPS)
def test_lines_so_long_that_they_ask_whether_to_end(rng, cls):
    for shape, axis in (((5, 9001), 1), ((8500, 3), 0), ((4097,), 0)):
        for op in variants(cls, axis):
            arrays = given(rng, op, shape)
            same(computed(op, arrays), op.eval(np, *arrays))


@pytest.mark.parametrize("cls", OPS)
def test_infinities_and_nan(rng, cls):
    op = cls(0)
    arrays = given(rng, op, (30, 20))
    for array in arrays:
        array[rng.random(array.shape) < 0.05] = np.inf
        array[rng.random(array.shape) < 0.02] = np.nan
    with np.errstate(all="ignore"):
        wanted = op.eval(np, *arrays)
    np.testing.assert_array_equal(computed(op, arrays), wanted)


def test_an_array_that_nobody_needs_is_written_over(rng):
    x = drawn(rng, (8, 33))
    with gf.Graph() as g:
        t = gf.placeholder(x.shape)
        y = gf.cumulative_sum(gf.cumulative_sum(t, axis=0), axis=1) * 2
    plan = gf.Session(g).compile(y, [t])
    assert_native(plan)
    same(plan(x), np.cumsum(np.cumsum(x, 0), 1) * np.float32(2))


def test_the_gradient_of_a_running_product(rng, monkeypatch):
    x = drawn(rng, (4, 6, 5))
    with gf.Graph() as g:
        t = gf.placeholder(("n", 6, 5))
        (slope,) = gf.grad(gf.sum(gf.cumulative_prod(t, axis=1) ** 2), [t])
    plan = gf.Session(g).compile(slope, [t])
    assert_native(plan)
    got = plan(x)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    np.testing.assert_allclose(got, gf.Session(g).compile(slope, [t])(x), rtol=1e-6, atol=1e-7)
