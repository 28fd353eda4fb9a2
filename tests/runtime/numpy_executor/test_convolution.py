"""Convolutions and pooling as native steps, against the ops' own eval."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ops.nn.convolution_ops import Conv, ConvWeight
from graphfw.ops.nn.pooling_ops import WindowMax, WindowSum
from graphfw.runtime.numpy_executor import backend
from graphfw.runtime.numpy_executor.codegen import AVX512
from graphfw.runtime.numpy_executor.convolution import (
    conv_steps,
    lowering,
    pixel_major_steps,
    pools,
)
from tests.runtime.numpy_executor.convolution_runs import (
    ERRORS,
    any_window,
    close,
    convolved_by,
    drawn,
    op_for,
    strategies_of,
)
from tests.runtime.numpy_executor.matmul_runs import storage_of, view_of
from tests.runtime.numpy_executor.special_runs import assert_native, computed
from tests.support.kernels import TARGETS

ways = pytest.mark.parametrize("way", ["direct", "pixel-major"])
"""The strategies that serve all sizes."""


@pytest.fixture(autouse=True)
def compiling(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def by(way):
    """Return a function that chooses the strategy of a name; the first where it does not serve."""

    def choose(strategies):
        return next((s for s in strategies if s.name == way), strategies[0]).make()

    return choose


def convolved(op, x, w, way="direct", **how):
    return convolved_by(by(way), op, x, w, **how)


@pytest.mark.exhaustive
@ways
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_any_window(rng, rank, target, way):
    for _ in range(12):
        op, x, w = any_window(rng, rank, (1, 7), (1, 20))
        what = f"{op} of {x.shape} and {w.shape}"
        close(convolved(op, x, w, way, target=target), op, x, w, what)


@pytest.mark.exhaustive
@ways
@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("groups", [1, 5, 10])
def test_any_dtype(rng, dtype, groups, way):
    x, w = drawn(rng, (2, 10, 9, 35), dtype), drawn(rng, (20, 10 // groups, 3, 3), dtype)
    op = op_for(x.shape, w.shape, (1, 2), 1, 1, groups)
    close(convolved(op, x, w, way), op, x, w)


@pytest.mark.exhaustive
@ways
@pytest.mark.parametrize("kernel", [1, 3, 11])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_long_sums_in_pieces(rng, kernel, stride, way):
    """Several pieces of k, several panels, tiles of two heights."""
    x, w = drawn(rng, (1, 70, 14, 19)), drawn(rng, (45, 70, kernel, kernel))
    op = op_for(x.shape, w.shape, stride, kernel // 2)
    close(convolved(op, x, w, way), op, x, w)


def test_rows_are_places_of_the_whole_image_where_windows_see_one_element(rng, monkeypatch):
    """Long rows in tiles of 14; rows that would be too long; every second element in each dim."""
    for sizes, stride in (((7, 7), 1), ((30, 31), 1), ((13, 9), 2), ((9, 40), (2, 3))):
        x, w = drawn(rng, (2, 300, *sizes)), drawn(rng, (70, 300, 1, 1))
        op = op_for(x.shape, w.shape, stride)
        close(convolved(op, x, w, "pixel-major"), op, x, w)
        with monkeypatch.context() as patched:
            patched.setattr(pixel_major_steps, "_TOGETHER", 1)
            close(convolved(op, x, w, "pixel-major"), op, x, w)


@pytest.mark.parametrize("ahead", [0, 1 << 40])
def test_panels_laid_out_ahead_or_not_give_the_same(rng, monkeypatch, ahead):
    x, w = drawn(rng, (1, 128, 7, 9)), drawn(rng, (300, 128, 3, 3))
    op = op_for(x.shape, w.shape, 1, 1)
    usual = convolved(op, x, w)
    monkeypatch.setattr(lowering, "_AHEAD", ahead)
    assert np.array_equal(convolved(op, x, w), usual)
    close(usual, op, x, w)


@ways
def test_one_plan_for_any_number_of_images(rng, monkeypatch, way):
    monkeypatch.setattr(backend, "by_estimate", by(way))
    w, b = drawn(rng, (40, 30, 3, 3)), drawn(rng, (40,))
    with gf.Graph() as g:
        x = gf.placeholder(("n", 30, 7, 16))
        y = gf.relu(gf.conv(x, w, b, padding=1))
    plan = gf.Session(g).compile(y, feeds=[x])
    for images in (1, 0, 5):
        array = drawn(rng, (images, 30, 7, 16))
        wanted = np.maximum(
            op_for(array.shape, w.shape, 1, 1).eval(np, array, w) + b[:, None, None], 0
        )
        np.testing.assert_allclose(plan(array), wanted, rtol=1e-4, atol=1e-4)


def test_long_rows_are_not_turned(rng):
    x, w = drawn(rng, (1, 3, 5000)), drawn(rng, (20, 3, 3))
    found = []

    def choose(strategies):
        found.extend([one.name for one in strategies])
        return strategies[0].make()

    op, memory = op_for(x.shape, w.shape), {}
    out = storage_of(np.empty((1, 20, *op.output_sizes), np.float32))
    conv_steps((), op, view_of(x, memory), view_of(w, memory), out, None, choose=choose)
    assert "pixel-major" not in found


@ways
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_operands_that_lie_in_any_way(rng, groups, way):
    op = op_for((2, 6, 11, 20), (12, 6 // groups, 2, 3), (1, 2), 1, 1, groups)
    whole = drawn(rng, (20, 12, 3, 8))
    weights = drawn(rng, (3, 2, 6 // groups, 12))
    images = {
        "channels last": np.moveaxis(drawn(rng, (2, 11, 20, 6)), -1, 1),
        "sliced": drawn(rng, (4, 7, 13, 41))[1:3, 1:, 2:, ::2][..., :20],
        "flipped": drawn(rng, (2, 6, 11, 20))[:, ::-1, ::-1, ::-1],
        "broadcast": np.broadcast_to(drawn(rng, (1, 6, 11, 1)), (2, 6, 11, 20)),
        "transposed": np.moveaxis(whole[:, :11, :2, :6], (0, 1, 2, 3), (3, 2, 0, 1)),
    }
    reversed_weights = np.moveaxis(weights, (0, 1, 2, 3), (3, 2, 1, 0))[..., ::-1]
    for name, x in images.items():
        close(convolved(op, x, reversed_weights, way), op, x, reversed_weights, name)


@ways
@pytest.mark.parametrize("groups", [1, 16])
def test_work_items_in_any_order_and_fixed_weights_give_the_same_bits(rng, groups, way):
    x, w = drawn(rng, (3, 16, 33, 30)), drawn(rng, (48, 16 // groups, 3, 3))
    op = op_for(x.shape, w.shape, 1, 1, 1, groups)
    usual = convolved(op, x, w, way)
    assert np.array_equal(convolved(op, x, w, way, order=-1), usual)
    assert np.array_equal(convolved(op, x, w, way, fixed=True), usual)


@pytest.mark.parametrize("groups", [1, 4])
def test_one_plan_for_all_sizes(rng, groups):
    w, b = drawn(rng, (20, 8 // groups, 3, 3)), drawn(rng, (20,))
    with gf.Graph() as g:
        x = gf.placeholder(("n", 8, "h", "w"))
        y = gf.relu(gf.conv(x, w, b, padding=1, stride=(1, 2), groups=groups))
    plan = gf.Session(g).compile(y, feeds=[x])
    assert_native(plan)
    op = None
    for sizes in ((1, 8, 5, 6), (3, 8, 40, 33), (2, 8, 1, 1), (0, 8, 3, 3), (1, 8, 64, 200)):
        array = drawn(rng, sizes)
        op = op_for(sizes, w.shape, (1, 2), 1, 1, groups)
        wanted = np.maximum(op.eval(np, array, w) + b[:, None, None], 0)
        np.testing.assert_allclose(plan(array), wanted, rtol=1e-4, atol=1e-4)


FOLLOWING = {
    "bias": lambda y, b, r: y + b,
    "activation": lambda y, b, r: gf.relu(y),
    "bias, residual, activation": lambda y, b, r: gf.relu(y + b + r),
    "scale and shift": lambda y, b, r: y * b + gf.exp(b),
    "kept and used": lambda y, b, r: (y, gf.tanh(y + b)),
    "what is of rows only": lambda y, b, r: y * gf.mean(r, axis=(2, 3), keepdims=True),
    "along one spatial dim": lambda y, b, r: y + r[:1, :1, :, :1],
    "a mean": lambda y, b, r: gf.mean(gf.relu(y + b), axis=(2, 3)),
    "other columns": lambda y, b, r: gf.softmax(gf.reshape(y, (*y.shape[:2], -1)), axis=-1),
    "two readers": lambda y, b, r: (gf.sum(y), gf.relu(y + r)),
}
"""Functions behind a convolution: of its result, of a bias, and of another tensor like it."""


@pytest.mark.exhaustive
@ways
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("groups", [1, 3, 9])
@pytest.mark.parametrize("following", FOLLOWING)
def test_what_follows_a_convolution(rng, monkeypatch, following, groups, batch, way):
    monkeypatch.setattr(backend, "by_estimate", by(way))
    with gf.Graph() as g:
        x = gf.placeholder((batch, 9, 10, 13))
        r = gf.placeholder((batch, 18, 10, 13))
        b = gf.constant(drawn(rng, (18, 1, 1)))
        w = gf.constant(drawn(rng, (18, 9 // groups, 3, 3)))
        y = FOLLOWING[following](gf.conv(x, w, padding=1, groups=groups), b, r)
    fetched = list(y) if isinstance(y, tuple) else [y]
    arrays = [drawn(rng, t.shape) for t in (x, r)]
    plan = gf.Session(g).compile(fetched, feeds=[x, r])
    assert_native(plan)
    got = plan(*arrays)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    wanted = gf.Session(g).compile(fetched, feeds=[x, r])(*arrays)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


def test_bias_and_activation_are_one_step_with_the_convolution():
    for batch in (1, "n"):
        for groups in (1, 8):
            with gf.Graph() as g:
                x = gf.placeholder((batch, 8, 20, 20))
                w = gf.ones((16, 8 // groups, 3, 3))
                y = gf.relu(gf.conv(x, w, gf.ones(16), groups=groups) * 2)
            plan = gf.Session(g).compile(y, feeds=[x])
            assert len(plan._run.build.steps) == 1, plan.explain()


def test_threads_don_t_change_bits(rng):
    x, w, d = drawn(rng, (2, 24, 30, 30)), drawn(rng, (48, 24, 3, 3)), drawn(rng, (48, 1, 5, 5))
    with gf.Graph() as g:
        t = gf.placeholder(x.shape)
        y = gf.max_pool(gf.conv(gf.conv(t, w), d, groups=48, stride=2), 2)
    one, two = (gf.Session(g, threads=n).compile(y, feeds=[t])(x) for n in (1, 2))
    assert np.array_equal(one, two)


def test_weights_of_variables_follow_updates(rng):
    x, w = drawn(rng, (2, 3, 8, 8)), drawn(rng, (5, 3, 3, 3))
    with gf.Graph() as g:
        t = gf.placeholder(x.shape)
        v = gf.Variable(w, name="w")
        y = gf.conv(t, v)
    session = gf.Session(g)
    plan = session.compile(y, feeds=[t])
    op = op_for(x.shape, w.shape)
    close(plan(x), op, x, w)
    session.load_state_dict({"w": w * 2})
    close(plan(x), op, x, w * 2)


def test_why_a_convolution_is_left_to_numpy(rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((1, 2, 5)), gf.placeholder(("o", 2, 3))
        y = gf.conv(x, w)
    plan = gf.Session(g).compile(y, feeds=[x, w])
    assert "the sizes of the weights are not known" in plan.explain()
    a, b = drawn(rng, (1, 2, 5)), drawn(rng, (4, 2, 3))
    close(plan(a, b), op_for(a.shape, b.shape), a, b)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_spread_elements(rng, rank, dtype):
    """Gradients of strided convolutions, and transposed ones."""
    for _ in range(4):
        groups = int(rng.choice([1, 1, 2, 3]))
        channels, outputs = groups * rng.integers(1, 9), groups * rng.integers(1, 9)
        kernel, spreads = (tuple(rng.integers(1, m, rank).tolist()) for m in (5, 4 - rank // 3))
        dilation, before = (tuple(rng.integers(*m, rank).tolist()) for m in ((1, 4), (-2, 5)))
        most = 20 if rank < 3 else 7
        sizes, output_sizes = (tuple(rng.integers(m, most, rank).tolist()) for m in (1, 0))
        x = drawn(rng, (int(rng.integers(0, 3)), channels, *sizes), dtype)
        w = drawn(rng, (outputs, channels // groups, *kernel), dtype)
        op = Conv(output_sizes, before, (1,) * rank, dilation, spreads, groups)
        close(computed(op, [x, w]), op, x, w, f"{op} of {x.shape} and {w.shape}")


def test_transposed_convolution_of_sizes_known_later(rng, monkeypatch):
    w = drawn(rng, (6, 4, 4, 4))
    with gf.Graph() as g:
        x = gf.placeholder(("n", 6, "h", "w"))
        y = gf.relu(gf.conv_transpose(x, w, stride=2, padding=1))
    plan = gf.Session(g).compile(y, feeds=[x])
    assert_native(plan)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    usual = gf.Session(g).compile(y, feeds=[x])
    for sizes in ((1, 6, 7, 9), (3, 6, 1, 1), (0, 6, 2, 2), (2, 6, 16, 33)):
        array = drawn(rng, sizes)
        np.testing.assert_allclose(plan(array), usual(array), rtol=1e-4, atol=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("depthwise", [False, True])
def test_gradient_of_kernels(rng, depthwise, rank, dtype):
    for _ in range(8):
        groups = int(rng.choice([2, 3, 7] if depthwise else [1, 1, 2, 3]))
        channels, outputs = groups * rng.integers(1, 40), groups * rng.integers(1, 40)
        if depthwise:
            channels, outputs = groups, groups * rng.integers(1, 4)
        kernel, stride, dilation = (tuple(rng.integers(1, 4, rank).tolist()) for _ in range(3))
        before = tuple(rng.integers(0, 4, rank).tolist())
        sizes = tuple(rng.integers(5, 40 if rank < 3 else 8, rank).tolist())
        x = drawn(rng, (int(rng.integers(0, 4)), channels, *sizes), dtype)
        w = (outputs, channels // groups, *kernel)
        forward = op_for(x.shape, w, stride, before, dilation, groups)
        y = drawn(rng, (x.shape[0], outputs, *forward.output_sizes), dtype)
        op = ConvWeight(kernel, *forward.values[1:])
        got = computed(op, [x, y], [str(rng.choice(["plain", "transposed", "sliced"]))])
        close(got, op, x, y, f"{op} of {x.shape} and {y.shape}")


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_sizes_known_later(rng, monkeypatch, stride):
    w, b = drawn(rng, (12, 5, 3, 3)), drawn(rng, (12,))
    with gf.Graph() as g:
        x = gf.placeholder(("n", 5, "h", "w"))
        weight = gf.Variable(w, name="weight")
        y = gf.sum(gf.tanh(gf.conv(x, weight, b, padding=1, stride=stride)))
        slopes = [gf.grad(y, t) for t in (x, weight)]
    plan = gf.Session(g).compile(slopes, feeds=[x])
    assert_native(plan)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    usual = gf.Session(g).compile(slopes, feeds=[x])
    for sizes in ((2, 5, 9, 30), (1, 5, 1, 1), (0, 5, 4, 4), (3, 5, 40, 7)):
        array = drawn(rng, sizes)
        for got, wanted in zip(plan(array), usual(array), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("work_item", ["one", "many"])
@pytest.mark.parametrize("op", [WindowMax, WindowSum])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(
    ("window", "strides", "dilations"),
    [
        ((2, 2), (2, 2), (1, 1)),
        ((3, 3), (2, 1), (1, 2)),
        ((3, 2), (1, 3), (2, 1)),
        ((9, 10), (1, 1), (1, 1)),
        ((11, 3), (1, 2), (1, 1)),
        ((4,), (2,), (1,)),
        ((2, 3, 2), (1, 1, 2), (1, 1, 1)),
    ],
)
def test_pooling(rng, monkeypatch, op, dtype, window, strides, dilations, work_item):
    if work_item == "many":
        monkeypatch.setattr(pools, "_WORK_ITEM", 1)
        monkeypatch.setattr(pools, "SEGMENT", 16)
    rank = len(window)
    before, after = (tuple(rng.integers(0, 4, rank).tolist()) for _ in range(2))
    op = op(window, strides, dilations, before, after)
    for layout in ("plain", "transposed", "sliced", "flipped"):
        x = drawn(rng, (3, 4, 11, 12, 45)[-2 - len(window) :], dtype)
        got = computed(op, [x], [layout])
        wanted = op.eval(np, x)
        assert got.dtype == wanted.dtype
        if op.name == "window_max":
            assert np.array_equal(got, wanted)
        else:
            bound = ERRORS[dtype] * op.eval(np, np.abs(x)).astype(np.float64)
            assert (np.abs(got.astype(np.float64) - wanted.astype(np.float64)) <= bound).all()


def test_the_largest_of_a_window_with_nan_is_nan(rng):
    x = drawn(rng, (2, 3, 20, 40))
    x.reshape(-1)[rng.integers(0, x.size, 60)] = np.nan
    x.reshape(-1)[rng.integers(0, x.size, 60)] = -np.inf
    op = WindowMax((3, 3), (2, 2), (1, 1), (1, 0), (0, 1))
    assert np.array_equal(computed(op, [x]), op.eval(np, x), equal_nan=True)


def test_pooling_over_sizes_known_later(rng):
    op = WindowMax((3, 3), (2, 2), (1, 1), (1, 1), (1, 0))
    with gf.Graph() as g:
        x = gf.placeholder(("n", 5, "h", "w"))
        y = emit(op, x)
    plan = gf.Session(g).compile(y, feeds=[x])
    assert_native(plan)
    for sizes in ((1, 5, 3, 3), (2, 5, 30, 41), (0, 5, 4, 4), (3, 5, 9, 100)):
        array = drawn(rng, sizes)
        assert np.array_equal(plan(array), op.eval(np, array))


def test_copies_and_kernels_that_no_cache_holds_are_not_read_again_and_again():
    """Of strided convolutions of many images: rows of a copy, and kernels for each of them."""
    for images, best in ((1, "pixel-major"), (64, "direct")):
        for x, w in (
            ((images, 64, 32, 32), (128, 64, 3, 3)),
            ((images, 256, 8, 8), (512, 256, 3, 3)),
        ):
            arrays = np.empty(x, np.float32), np.empty(w, np.float32)
            found = strategies_of(op_for(x, w, stride=2, before=1), *arrays, target=AVX512)
            assert min(found, key=found.get) == best
