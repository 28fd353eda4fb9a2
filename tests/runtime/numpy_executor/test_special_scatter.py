"""index_add and index_set, natively: what eval gives to the last bit, in whatever work items."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.ir.build import emit
from graphfw.ir.dtype import as_dtype
from graphfw.ops.shape.gather_scatter import IndexAdd, IndexSet
from graphfw.ops.shape.scatter_extremes import IndexMax, IndexMin
from graphfw.runtime.numpy_executor.special import partials, scatter
from tests.runtime.numpy_executor.special_runs import (
    DTYPES,
    LAYOUTS,
    NUMBERS,
    assert_native,
    computed,
    drawn,
    plan_of,
    same,
)


@pytest.fixture(autouse=True, params=["one work item", "many work items"])
def work_items(request, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    if request.param == "many work items":
        monkeypatch.setattr(scatter, "_WORK_ITEM", 1)
        monkeypatch.setattr(scatter, "_BLOCK", 20)
        monkeypatch.setattr(partials, "_CHUNK", 7)
        monkeypatch.setattr(partials, "_JOINED", 50)
        monkeypatch.setattr(partials, "_LONG", 1)


def problem(rng, dtype="float32", index="int64", count=43):
    x, values = drawn(rng, (11, 37), dtype), drawn(rng, (count, 37), dtype)
    low = 0 if index[0] == "u" else -11
    return x, values, rng.integers(low, 11, count).astype(index)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", [IndexAdd(0), IndexSet(0), IndexMax(0), IndexMin(0)])
def test_rows(rng, op, layout):
    arrays = problem(rng)
    wanted = op.eval(np, *arrays)
    for number in range(3):
        layouts = ["plain"] * 3
        layouts[number] = layout
        same(computed(op, arrays, layouts), wanted)


@pytest.mark.parametrize("op", [IndexAdd(0), IndexSet(0), IndexMax(0)])
def test_so_many_indices_that_it_asks_whether_to_end(rng, op):
    count = scatter.SCAN * 4096 + 5
    arrays = drawn(rng, (50,)), drawn(rng, (count,)), rng.integers(0, 50, count)
    same(computed(op, arrays), op.eval(np, *arrays))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", NUMBERS)
def test_sums_of_any_dtype(rng, dtype):
    arrays = problem(rng, dtype)
    same(computed(IndexAdd(0), arrays), IndexAdd(0).eval(np, *arrays))
    same(computed(IndexAdd(0), arrays, ("transposed", "flipped")), IndexAdd(0).eval(np, *arrays))


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_any_dtype(rng, dtype):
    arrays = problem(rng, dtype)
    same(computed(IndexSet(0), arrays), IndexSet(0).eval(np, *arrays))


@pytest.mark.parametrize("index", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64"])
def test_indices_of_any_dtype(rng, index):
    arrays = problem(rng, index=index)
    same(computed(IndexAdd(0), arrays), IndexAdd(0).eval(np, *arrays))


@pytest.mark.exhaustive
@pytest.mark.parametrize("op", [IndexAdd, IndexSet, IndexMax])
@pytest.mark.parametrize(
    ("axis", "shape", "named"),
    [
        (1, (3, 8, 5), [(6,)]),
        (2, (3, 4, 7), [(9,)]),
        (0, (40,), [(300,)]),
        (0, (9,), [()]),
        (1, (2, 4, 5, 3), [(6,), (2, 1)]),
        (0, (4, 5, 6), [(3, 1, 1), (7, 1), (2,)]),
        (0, (1, 3), [(5,)]),
        (1, (3, 1), [(1,)]),
        (1, (0, 4, 2), [(3,)]),
        (0, (4, 0), [(3,)]),
        (0, (4, 2), [(0,)]),
        (0, (0, 2), [(0,)]),
    ],
)
def test_any_axes(rng, op, axis, shape, named):
    one = op(axis)
    indices = [
        rng.integers(-max(1, n), max(1, n), dims)
        for dims, n in zip(named, shape[axis:], strict=False)
    ]
    index_shape = np.broadcast_shapes(*named)
    x = drawn(rng, shape)
    values = drawn(rng, (*shape[:axis], *index_shape, *shape[axis + len(named) :]))
    arrays = (x, values, *indices)
    wanted = one.eval(np, *arrays)
    same(computed(one, arrays), wanted)
    same(computed(one, arrays, ("flipped", "transposed", "flipped")), wanted)
    same(computed(one, arrays, symbolic=True), wanted)


def test_many_indices(rng):
    x, count = drawn(rng, (700, 3)), 9001
    arrays = x, drawn(rng, (count, 3)), rng.integers(-700, 700, count)
    for op in (IndexAdd(0), IndexSet(0)):
        same(computed(op, arrays), op.eval(np, *arrays))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_of_rows_taken(rng, monkeypatch, dtype):
    table = drawn(rng, (50, 24), dtype)
    tokens = rng.integers(-50, 50, (6, 7))
    with gf.Graph() as g:
        t, w = gf.placeholder(("b", 7), gf.int64), gf.placeholder((50, 24), as_dtype(dtype))
        rows = gf.take(w, t, axis=0)
        (slope,) = gf.grad(gf.sum(rows * rows), [w])
    plan = gf.Session(g).compile(slope, [t, w])
    assert_native(plan)
    got = plan(tokens, table)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    same(got, gf.Session(g).compile(slope, [t, w])(tokens, table))


@pytest.mark.parametrize(
    ("refusal", "wrong", "message"),
    [
        ("", 11, "index 11 is out of range for dim 0 of size 11"),
        ("", -12, "index -12 is out of range"),
        ("no class {index} of {size}", -1, "no class -1 of 11"),
        ("no class {index} of {size}", 11, "no class 11 of 11"),
    ],
)
def test_a_wrong_index_is_named_and_nothing_is_written(rng, refusal, wrong, message):
    x, values, indices = problem(rng)
    indices = abs(indices) % 11
    with gf.Graph() as g:
        held = gf.Variable(x, name="held")
        feeds = [gf.placeholder(values.shape), gf.placeholder(indices.shape, gf.int64)]
        change = gf.update(held, emit(IndexAdd(0, refusal), held, *feeds))
    session = gf.Session(g)
    plan = session.compile(change, feeds)
    assert_native(plan)
    bad = indices.copy()
    bad[17] = wrong
    with pytest.raises(ExecutionError, match=message):
        plan(values, bad)
    same(session.state_dict()["held"], x)
    plan(values, indices)
    same(session.state_dict()["held"], IndexAdd(0).eval(np, x, values, indices))


def test_a_large_unsigned_index_is_wrong(rng):
    x, values, indices = problem(rng, index="uint64")
    plan, fed = plan_of(IndexSet(0), (x, values, indices))
    fed[2] = fed[2].copy()
    fed[2][3] = 2**64 - 1
    with pytest.raises(ExecutionError, match="out of range"):
        plan(*fed)


def test_a_variable_is_changed_where_it_lies(rng):
    x, values, indices = problem(rng)
    with gf.Graph() as g:
        held = gf.Variable(x, name="held")
        feeds = [gf.placeholder(values.shape), gf.placeholder(indices.shape, gf.int64)]
        change = gf.update(held, emit(IndexSet(0), held, *feeds))
    session = gf.Session(g)
    plan = session.compile(change, feeds)
    assert len(plan._run.build.steps) == 3  # the places, what is put there, and the mark
    for _ in range(2):
        plan(values, indices)
        x = IndexSet(0).eval(np, x, values, indices)
        same(session.state_dict()["held"], x)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", [IndexMax(0), IndexMin(0)])
def test_extremes_of_any_dtype(rng, op, dtype):
    arrays = problem(rng, dtype)
    same(computed(op, arrays), op.eval(np, *arrays))
    same(computed(op, arrays, ("transposed", "flipped"), symbolic=True), op.eval(np, *arrays))


@pytest.mark.parametrize("op", [IndexMax(0), IndexMin(0)])
def test_extremes_with_nan_and_infinity(rng, op):
    numbers = np.array([np.nan, -0.0, 0.0, np.inf, -np.inf, 1.0, -1.0], np.float32)
    for _ in range(5):
        x, values = rng.choice(numbers, 9), rng.choice(numbers, 60)
        arrays = x, values, rng.integers(0, 9, 60)
        with np.errstate(invalid="ignore"):
            got, wanted = computed(op, arrays), op.eval(np, *arrays)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
@pytest.mark.parametrize("width", [(), (1,), (5,)])
def test_counts_of_few_places(rng, dtype, width):
    """Each work item counts by itself; sums of integers wrap around in any order."""
    arrays = (
        drawn(rng, (13, *width), dtype),
        rng.integers(0, 127, (5000, *width)).astype(dtype),
        rng.integers(-13, 13, 5000),
    )
    wanted = IndexAdd(0).eval(np, *arrays)
    same(computed(IndexAdd(0), arrays), wanted)
    same(computed(IndexAdd(0), arrays, symbolic=True), wanted)
    same(computed(IndexAdd(0), arrays, ("flipped", "sliced")), wanted)


@pytest.mark.parametrize("op", [IndexAdd(0), IndexMax(0)])
def test_a_wrong_index_among_many_is_named(rng, op):
    indices = rng.integers(0, 13, 5000)
    plan, fed = plan_of(op, (drawn(rng, (13,), "int32"), drawn(rng, (5000,), "int32"), indices))
    plan(*fed)
    fed[2] = indices.copy()
    fed[2][4000] = 13
    with pytest.raises(ExecutionError, match="index 13 is out of range for dim 0 of size 13"):
        plan(*fed)
