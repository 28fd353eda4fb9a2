"""Gradients of kernels as native steps, against the op's own eval."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.dtype import as_dtype
from graphfw.ops.nn.convolution_ops import ConvWeight
from graphfw.runtime.numpy_executor.convolution import gradient, gradient_sums
from graphfw.runtime.numpy_executor.convolution.gradient_tiles import TilesCode
from tests.runtime.numpy_executor.special_runs import LAYOUTS, assert_native, computed, plan_of
from tests.support.kernels import TARGETS

ERRORS = {"float32": 2e-6, "float64": 1e-14, "float16": 1e-3, "bfloat16": 8e-3}


@pytest.fixture(autouse=True)
def compiling(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.fixture(params=["whole", "in chunks"])
def cut(request, monkeypatch):
    """Sums over few positions are cut into chunks, too."""
    if request.param == "in chunks":
        monkeypatch.setattr(gradient, "_CHUNK", 40)
        monkeypatch.setattr(gradient_sums, "_DEPTH", 3)
    else:
        for module in (gradient, gradient_sums):
            monkeypatch.setattr(module, "_WORK_ITEMS", 0)


def drawn(rng, shape, dtype="float32"):
    return rng.standard_normal(shape).astype(as_dtype(dtype).dtype)


def close(got, op, x, y, what=""):
    """Compare with eval in float64, in units of what the sums add up."""
    exact = op.eval(np, x.astype(np.float64), y.astype(np.float64))
    sizes = op.eval(np, np.abs(x).astype(np.float64), np.abs(y).astype(np.float64))
    error = np.abs(got.astype(np.float64) - exact)
    assert got.shape == exact.shape
    info = gf.finfo(as_dtype(x.dtype))
    # Subnormal results are rounded to multiples of it.
    smallest = float(info.smallest_normal) * float(info.eps)
    assert (error <= ERRORS[as_dtype(x.dtype).name] * sizes + smallest).all(), what


def op_for(kernel, before, stride=1, dilation=1, groups=1):
    rank = len(kernel)
    facts = [(v,) * rank if isinstance(v, int) else v for v in (before, stride, dilation)]
    return ConvWeight(kernel, *facts, (1,) * rank, groups)


def is_tiled(plan):
    return any(isinstance(step.code, TilesCode) for step in plan._run.build.steps)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_tile_by_tile(rng, dtype):
    for number in range(6):
        batch, channels, outputs = (int(n) for n in rng.integers((0, 16, 16), (4, 70, 70)))
        sizes, before = rng.integers(3, 20, 2), rng.integers(0, 3, 2)
        output_sizes = [int(n) for n in sizes + before - 2 + rng.integers(0, 3, 2)]
        x = drawn(rng, (batch, channels, *sizes), dtype)
        y = drawn(rng, (batch, outputs, *output_sizes), dtype)
        op = op_for((3, 3), tuple(before.tolist()))
        layouts = (("plain", "plain"), ("sliced", "plain"), ("flipped", "plain"))[number % 3]
        plan, fed = plan_of(op, [x, y], layouts)
        assert is_tiled(plan) == (layouts[0] == "plain")
        close(plan(*fed), op, x, y, f"{op} of {x.shape} and {y.shape}")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("cut")
@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_any_window(rng, rank, dtype):
    for _ in range(5):
        groups = int(rng.choice([1, 1, 2, 3]))
        channels, outputs = (
            groups * rng.choice([1, 5, 32, 33]),
            groups * rng.choice([1, 3, 8, 15, 31, 40]),
        )
        kernel, stride, dilation = (tuple(rng.integers(1, 4, rank).tolist()) for _ in range(3))
        before = tuple(rng.integers(0, 4, rank).tolist())
        sizes = tuple(rng.integers(1, 30 if rank < 3 else 8, rank).tolist())
        output_sizes = tuple(rng.integers(0, 9, rank).tolist())
        x = drawn(rng, (int(rng.integers(0, 5)), channels, *sizes), dtype)
        y = drawn(rng, (x.shape[0], outputs, *output_sizes), dtype)
        op = op_for(kernel, before, stride, dilation, groups)
        got = computed(op, [x, y], [str(rng.choice(LAYOUTS))])
        close(got, op, x, y, f"{op} of {x.shape} and {y.shape}")


@pytest.mark.parametrize("dtype", ERRORS)
def test_kernels_of_one_channel(rng, dtype):
    x, y = drawn(rng, (3, 6, 11, 37), dtype), drawn(rng, (3, 12, 11, 37), dtype)
    op = op_for((3, 5), (1, 2), groups=6)
    close(computed(op, [x, y]), op, x, y)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_on_lesser_processors(rng, monkeypatch, target):
    for module in (gradient, gradient_sums):
        monkeypatch.setattr(module, "host", lambda: target)
    x = drawn(rng, (3, 21, 10, 13))
    for op, outputs, output_sizes in (
        (op_for((3, 3), 1), 37, (10, 13)),
        (op_for((3, 2), 1, 2), 5, (5, 7)),
        (op_for((1, 3), 0, groups=3), 60, (10, 11)),
    ):
        y = drawn(rng, (3, outputs, *output_sizes))
        plan, fed = plan_of(op, [x, y])
        assert {step.code.target for step in plan._run.build.steps} == {target}
        close(plan(*fed), op, x, y)


def test_without_winograd(rng):
    x, y = drawn(rng, (2, 20, 9, 9)), drawn(rng, (2, 24, 9, 9))
    with gf.Graph() as g:
        feeds = [gf.placeholder(x.shape), gf.placeholder(y.shape)]
        w = emit(op_for((3, 3), 1), *feeds)
    plans = [gf.Session(g, winograd=may).compile(w, feeds=feeds) for may in (True, False)]
    assert [is_tiled(plan) for plan in plans] == [True, False]
    for plan in plans:
        close(plan(x, y), op_for((3, 3), 1), x, y)


@pytest.mark.parametrize("stride", [1, 2])
def test_sizes_known_later_and_any_number_of_threads(rng, stride):
    op = op_for((3, 3), 1, stride)
    with gf.Graph() as g:
        x, y = gf.placeholder(("n", 20, "h", "w")), gf.placeholder(("n", 35, "p", "q"))
        w = emit(op, x, y)
    plans = [gf.Session(g, threads=n).compile(w, feeds=[x, y]) for n in (1, 2)]
    assert_native(plans[0])
    for n, h, width in ((1, 5, 6), (3, 40, 33), (2, 1, 1), (0, 3, 3), (5, 64, 20)):
        a = drawn(rng, (n, 20, h, width))
        b = drawn(rng, (n, 35, (h - 1) // stride + 1, (width - 1) // stride + 1))
        one, two = (plan(a, b) for plan in plans)
        assert np.array_equal(one, two)
        close(one, op, a, b)


def test_a_batch_that_is_not_known_counts_as_many_images_where_weights_are_trained():
    """Small images by themselves are not worth transforming kernels each time."""
    chosen = []
    for batch in ("n", 16):
        with gf.Graph() as g:
            x = gf.placeholder((batch, 64, 8, 8))
            w = gf.Variable(gf.nn.init.ones, shape=(64, 64, 3, 3), name="w")
            y = gf.conv(x, w, padding=1)
            loss = gf.mean(y)
            step = gf.optim.SGD(0.1).minimize(loss)
        plan = gf.Session(g).compile([loss, step], feeds=[x])
        steps = plan._run.build.steps
        chosen.append({step.choice.name for step in steps if step.choice is not None})
    assert chosen[0] == chosen[1] != set()


def test_trained_weights_are_laid_out_when_they_are_needed():
    """Not all at once when a step begins: that would be the most memory of all."""
    with gf.Graph() as g:
        y = x = gf.placeholder((1, 128, 4, 4))
        for number in range(6):
            w = gf.Variable(gf.nn.init.ones, shape=(128, 128, 3, 3), name=f"w{number}")
            y = gf.conv(y, w, padding=1)
        loss = gf.mean(y)
        step = gf.optim.SGD(0.1).minimize(loss)
    plan = gf.Session(g).compile([loss, step], feeds=[x])
    weights = [entry for entry in plan.memory().entries if "weights" in entry.name.split()[:2]]
    laid_out = [
        entry for entry in weights if entry.kind == "arena" and "gradients" not in entry.name
    ]
    assert len(laid_out) > 6
    assert all([entry.last == entry.first + 1 for entry in laid_out])
