"""Gradients of pooling as native steps, against the ops' own eval."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import as_dtype
from graphfw.ops.nn.pooling_ops import WindowArgmax, WindowPut, WindowTake
from graphfw.ops.nn.unfold import FoldWindows
from graphfw.runtime.numpy_executor.convolution import window_argmax
from tests.runtime.numpy_executor.special_runs import LAYOUTS, assert_native, computed
from tests.support.kernels import TARGETS

ERRORS = {"float32": 1e-6, "float64": 1e-15, "float16": 1e-3, "bfloat16": 8e-3}
WINDOWS = [
    ((2, 2), (2, 2), (1, 1), (0, 0), (0, 0)),
    ((3, 3), (2, 1), (1, 2), (1, 2), (0, 4)),
    ((3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
    ((3, 2), (1, 3), (2, 1), (0, 1), (4, 1)),
    ((2, 10), (1, 1), (1, 2), (1, 7), (0, 9)),
    ((4,), (2,), (1,), (3,), (2,)),
    ((2, 3, 2), (1, 1, 2), (1, 1, 1), (1, 0, 1), (0, 2, 1)),
]


@pytest.fixture(autouse=True, params=["usual work items", "small work items"])
def compiling(request, monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    if request.param == "small work items":
        monkeypatch.setattr(window_argmax, "_WORK_ITEM", 1)


def drawn(rng, shape, dtype="float32"):
    """Return numbers some of which are equal."""
    return (rng.integers(-9, 9, shape) * 0.3).astype(as_dtype(dtype).dtype)


def sizes_for(rng, window):
    return (2, 3, *[int(n) for n in rng.integers(12, 70 if len(window) < 3 else 30, len(window))])


def close(got, wanted, size):
    assert got.dtype == wanted.dtype
    error = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    assert (error <= ERRORS[as_dtype(got.dtype).name] * size).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("facts", WINDOWS)
def test_the_largest_and_what_is_chosen(rng, facts, dtype):
    argmax, take = WindowArgmax(*facts), WindowTake(*facts)
    x = drawn(rng, sizes_for(rng, facts[0]), dtype)
    numbers = argmax.eval(np, x)
    for layout in LAYOUTS:
        assert np.array_equal(computed(argmax, [x], [layout]), numbers)
        other = str(rng.choice(LAYOUTS))
        assert np.array_equal(
            computed(take, [x, numbers], [layout, other]), take.eval(np, x, numbers)
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("facts", WINDOWS)
def test_sums_where_the_chosen_lie(rng, facts, dtype):
    sizes = sizes_for(rng, facts[0])
    put = WindowPut(*facts, sizes[2:])
    shape = (*sizes[:2], *put.output_sizes(sizes[2:]))
    y, numbers = drawn(rng, shape, dtype), rng.integers(0, np.prod(facts[0]), shape)
    wanted, most = put.eval(np, y, numbers), put.eval(np, np.abs(y), numbers)
    for layout in LAYOUTS:
        close(computed(put, [y, numbers], [layout, str(rng.choice(LAYOUTS))]), wanted, most)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("facts", WINDOWS)
def test_windows_added_up(rng, facts, dtype):
    sizes = sizes_for(rng, facts[0])
    fold = FoldWindows(*facts[:3], sizes[2:])
    y = drawn(rng, (*sizes[:2], *facts[0], *fold.output_sizes(sizes[2:])), dtype)
    for layout in LAYOUTS:
        close(computed(fold, [y], [layout]), fold.eval(np, y), fold.eval(np, np.abs(y)))


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_on_lesser_processors(rng, monkeypatch, target):
    monkeypatch.setattr(window_argmax, "host", lambda: target)
    for dtype in ("float32", "float64", "float16"):
        x = drawn(rng, (3, 11, 29), dtype)
        argmax, put = WindowArgmax(*WINDOWS[2]), WindowPut(*WINDOWS[2], x.shape[1:])
        numbers = argmax.eval(np, x)
        assert np.array_equal(computed(argmax, [x]), numbers)
        y = drawn(rng, numbers.shape, dtype)
        wanted, most = put.eval(np, y, numbers), put.eval(np, np.abs(y), numbers)
        close(computed(put, [y, numbers]), wanted, most)


def test_what_is_no_number_chooses_nothing(rng):
    facts = WINDOWS[2]
    x, shape = drawn(rng, (2, 12, 33)), (2, 6, 17)
    numbers = rng.choice([-1, 0, 4, 8, 9, 2**31, 2**32, -(2**32)], shape)
    take, put = WindowTake(*facts), WindowPut(*facts, x.shape[1:])
    assert np.array_equal(computed(take, [x, numbers]), take.eval(np, x, numbers))
    y = drawn(rng, shape)
    close(computed(put, [y, numbers]), put.eval(np, y, numbers), put.eval(np, np.abs(y), numbers))


def test_of_nans_the_last_is_the_largest(rng):
    x = drawn(rng, (2, 3, 20, 40))
    x.reshape(-1)[rng.integers(0, x.size, 200)] = np.nan
    x.reshape(-1)[rng.integers(0, x.size, 900)] = -np.inf
    op = WindowArgmax((3, 3), (2, 2), (1, 1), (1, 1), (0, 1))
    assert np.array_equal(computed(op, [x]), op.eval(np, x))


@pytest.mark.exhaustive
@pytest.mark.parametrize("pool", ["max", "mean", "norm", "padded", "places"])
def test_gradients_of_pooling_of_sizes_known_later(rng, monkeypatch, pool):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 5, "h", "w"))
        if pool == "max":
            y = gf.max_pool(x, 3, stride=2)
        elif pool == "mean":
            y = gf.avg_pool(x, (2, 3), stride=(2, 1))
        elif pool == "norm":
            y = gf.lp_pool(x, 2, 2)
        elif pool == "padded":
            y = gf.max_pool(x, 3, stride=2, padding=1)
        else:
            y, _ = gf.max_pool(x, 2, return_indices=True)
        first = gf.grad(gf.sum(gf.exp(y)), x)
        second = gf.grad(gf.sum(first * gf.sin(x)), x)
    plan = gf.Session(g).compile([first, second], feeds=[x])
    assert_native(plan)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    usual = gf.Session(g).compile([first, second], feeds=[x])
    for sizes in ((2, 5, 9, 30), (1, 5, 3, 3), (0, 5, 4, 4), (3, 5, 40, 7)):
        array = drawn(rng, sizes)
        for got, wanted in zip(plan(array), usual(array), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
