"""concat, slice_set, roll and slices that are checked when they run, natively."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.ir.build import emit
from graphfw.ops.shape.concat import Concat
from graphfw.ops.shape.flip_roll import Roll
from graphfw.ops.shape.gather_scatter import Slice, SliceSet
from graphfw.runtime.numpy_executor.special import moves
from tests.runtime.numpy_executor.special_runs import (
    DTYPES,
    LAYOUTS,
    assert_native,
    computed,
    drawn,
    same,
)


@pytest.fixture(autouse=True, params=["one work item", "many work items"])
def work_items(request, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    if request.param == "many work items":
        monkeypatch.setattr(moves, "_WORK_ITEM", 96)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_concat_along_any_axis(rng, axis, layout):
    shapes = [[3, 5, 7] for _ in range(4)]
    for shape, size in zip(shapes, (2, 1, 0, 6), strict=True):
        shape[axis] = size
    arrays = [drawn(rng, shape) for shape in shapes]
    layouts = (layout, "plain", layout, layout)
    same(computed(Concat(axis), arrays, layouts), np.concatenate(arrays, axis))


@pytest.mark.parametrize("dtype", [*DTYPES, "complex64", "complex128"])
def test_concat_of_any_dtype(rng, dtype):
    a, b = drawn(rng, (5, 3), dtype), drawn(rng, (5, 18), dtype)
    op = Concat(1)
    same(computed(op, [a, b]), op.eval(np, a, b))


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
def test_concat_of_rows_of_any_length(rng, dtype):
    """Rows shorter than a vector are copied by its parts, which end with the last element."""
    for widths in (range(1, 24), range(24, 48), range(60, 70)):
        arrays = [drawn(rng, (3, width), dtype) for width in widths]
        same(computed(Concat(1), arrays), np.concatenate(arrays, 1))


@pytest.mark.parametrize("axis", [0, 1])
def test_concat_of_sizes_known_later(rng, axis):
    a, b = drawn(rng, (6, 6)), drawn(rng, (6, 6))
    same(computed(Concat(axis), [a, b], symbolic=True), np.concatenate([a, b], axis))
    empty = drawn(rng, (0, 0))
    assert computed(Concat(axis), [empty, empty], symbolic=True).size == 0


def test_concat_of_what_is_broadcast(rng):
    x = drawn(rng, (1, 40))
    with gf.Graph() as g:
        t = gf.placeholder(x.shape)
        y = gf.concat([gf.broadcast_to(t, (9, 40)), gf.zeros((9, 33))], axis=1)
    plan = gf.Session(g).compile(y, [t])
    assert_native(plan)
    same(plan(x), np.concatenate([np.repeat(x, 9, 0), np.zeros((9, 33), np.float32)], 1))


def test_many_small_inputs(rng):
    arrays = [drawn(rng, (3, 2)) for _ in range(40)]
    with gf.Graph() as g:
        feeds = [gf.placeholder(a.shape) for a in arrays]
        y = gf.stack(feeds, axis=-1)
    plan = gf.Session(g).compile(y, feeds)
    assert_native(plan)
    same(plan(*arrays), np.stack(arrays, -1))


WINDOWS = [
    ((0, 0, 0), (5, 7, 4), (1, 1, 1)),
    ((1, 2, 0), (3, 4, 4), (1, 1, 1)),
    ((0, 3, 1), (5, 1, 2), (1, 1, 1)),
    ((1, 0, 1), (2, 3, 2), (3, 2, 2)),
    ((4, 1, 0), (1, 2, 1), (5, 5, 1)),
    ((2, 9, 0), (2, 0, 4), (1, 1, 1)),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("window", WINDOWS)
def test_slice_set(rng, window, layout):
    op = SliceSet(*window)
    x, values = drawn(rng, (5, 7, 4)), drawn(rng, window[1])
    wanted = op.eval(np, x, values)
    same(computed(op, [x, values], (layout, "plain")), wanted)
    same(computed(op, [x, values], ("plain", layout)), wanted)


@pytest.mark.parametrize("dtype", [*DTYPES, "complex128"])
def test_slice_set_of_any_dtype(rng, dtype):
    op = SliceSet((1,), (20,), (2,))
    x, values = drawn(rng, (50,), dtype), drawn(rng, (20,), dtype)
    same(computed(op, [x, values]), op.eval(np, x, values))


def window_plan(make):
    with gf.Graph() as g:
        x, n = gf.placeholder(("a", 3)), gf.placeholder(("n",))
        y = make(x, n)
        v = gf.Variable(np.zeros(2, np.float32), name="v")
        change = gf.update(v, v + 1)
    session = gf.Session(g, verify="each")  # "values" has no sizes for dims of no tensor
    plan = session.compile([y, change], [x, n])
    assert_native(plan)
    return session, plan


def test_a_window_of_sizes_known_later_is_checked(rng):
    def make(x, n):
        size = n.shape[0]
        op = SliceSet((size, 0), (2, 3), (1, 1))
        return emit(op, x, gf.ones((2, 3)))

    session, plan = window_plan(make)
    x = drawn(rng, (6, 3))
    for size in (0, 3, 4):
        wanted = x.copy()
        wanted[size : size + 2] = 1
        same(plan(x, np.zeros(size, np.float32))[0], wanted)
    before = session.state_dict()["v"]
    with pytest.raises(ExecutionError, match="index 6 is out of range for dim 0 of size 6"):
        plan(x, np.zeros(5, np.float32))
    assert (session.state_dict()["v"] == before).all()


def test_a_slice_of_sizes_known_later_is_checked(rng):
    def make(x, n):
        size = n.shape[0]
        return emit(Slice((size, 1), (2, 2), (1, 1)), x)

    _, plan = window_plan(make)
    x = drawn(rng, (6, 3))
    for size in (0, 4):
        same(plan(x, np.zeros(size, np.float32))[0], x[size : size + 2, 1:])
    with pytest.raises(ExecutionError, match="index 6 is out of range for dim 0 of size 6"):
        plan(x, np.zeros(5, np.float32))


def test_a_variable_is_changed_where_it_lies(rng):
    old, new = drawn(rng, (30, 9)), drawn(rng, (2, 9))
    with gf.Graph() as g:
        row = gf.placeholder((2, 9))
        held = gf.Variable(old, name="held")
        change = gf.update(held, emit(SliceSet((7, 0), (2, 9), (1, 1)), held, row))
    session = gf.Session(g)
    plan = session.compile(change, [row])
    assert_native(plan)
    assert len(plan._run.build.steps) == 2  # the window, and the mark that all is written
    plan(new)
    wanted = old.copy()
    wanted[7:9] = new
    same(session.state_dict()["held"], wanted)


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("shifts", "axes"), [((2,), (1,)), ((-1, 3), (0, 2)), ((9, -5, 1), (0, 1, 2))]
)
def test_roll(rng, shifts, axes, layout):
    x = drawn(rng, (4, 5, 6))
    same(computed(Roll(shifts, axes), [x], (layout,)), np.roll(x, shifts, axes))


def test_roll_of_sizes_known_later(rng):
    for shape in ((5, 3), (1, 7), (0, 3), (4, 0)):
        x = drawn(rng, shape)
        same(computed(Roll((-2, 8), (0, 1)), [x], symbolic=True), np.roll(x, (-2, 8), (0, 1)))


def test_gradients_of_sections(rng, monkeypatch):
    x, w = drawn(rng, (6, 5, 12)), drawn(rng, (6, 5, 9))
    with gf.Graph() as g:
        t, u = gf.placeholder(("n", 5, 12)), gf.placeholder(("n", 5, 9))
        views = [t[..., :4], t[:, 1:3, 2:6], gf.pad(t, [(0, 0), (2, 1), (1, 0)])]
        joined = gf.concat([views[0], gf.exp(views[0]), u[..., ::-1]], axis=2)
        loss = gf.sum(joined**2) + gf.sum(gf.exp(views[1])) + gf.sum(gf.sin(views[2]))
        slopes = gf.grad(loss, [t, u])
    plan = gf.Session(g).compile(slopes, [t, u])
    assert_native(plan)
    got = plan(x, w)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    wanted = gf.Session(g).compile(slopes, [t, u])(x, w)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)
