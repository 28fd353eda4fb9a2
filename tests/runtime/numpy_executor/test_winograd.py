"""Convolutions by Winograd's algorithms, against exact numbers and the op's own eval."""

import ctypes
import math
from fractions import Fraction

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor import backend
from graphfw.runtime.numpy_executor.codegen import AVX512, FunctionText, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.convolution import conv_steps
from graphfw.runtime.numpy_executor.convolution.winograd import steps
from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import F2, F4
from graphfw.runtime.numpy_executor.convolution.winograd.plan import (
    WinogradPlan,
    WinogradSizes,
    plan,
)
from graphfw.runtime.numpy_executor.convolution.winograd.vectors import mapped, transposed
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.plan import heights_for
from graphfw.runtime.numpy_executor.matmul.tile import shape_for
from tests.runtime.numpy_executor.convolution_runs import convolved_by, drawn, op_for
from tests.runtime.numpy_executor.matmul_runs import storage_of, view_of
from tests.runtime.numpy_executor.special_runs import assert_native
from tests.support.kernels import TARGETS, with_avx512
from tests.support.work_items import WORK_ITEM, in_a_run

ALGORITHMS = {"winograd-4x4": F4, "winograd-2x2": F2}
ERRORS = {"winograd-4x4": 3e-5, "winograd-2x2": 5e-6, "direct": 5e-6}
"""The largest, in standard deviations of the result."""


@pytest.fixture(autouse=True)
def compiling(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.fixture(params=ALGORITHMS)
def name(request):
    return request.param


def named(name):
    """Return a function that chooses a strategy by its name."""

    def choose(strategies):
        return next(one for one in strategies if one.name == name).make()

    return choose


def used(monkeypatch, name):
    """Have sessions choose a strategy by its name."""
    monkeypatch.setattr(backend, "by_estimate", named(name))


def convolved(op, x, w, name, **how):
    return convolved_by(named(name), op, x, w, **how)


def error(got, op, x, w):
    """Return how far something is from the exact result, in standard deviations of that."""
    exact = op.eval(np, x.astype(np.float64), w.astype(np.float64))
    assert got.shape == exact.shape
    if got.size == 0:
        return 0
    scale = math.sqrt(np.mean(exact**2)) or 1
    return np.abs(got - exact).max() / scale


def any_plan(rng, monkeypatch):
    """Have convolutions cut in a random way."""
    images, down, across, output_blocks, chunk = (int(n) for n in rng.integers(1, [3, 4, 6, 4, 4]))
    is_ahead = bool(rng.integers(2))

    def made(shape, algorithm, sizes):
        block = (sizes.down, sizes.across) if sizes.is_whole else (down, across)
        heights = heights_for(shape, images * math.prod(block))
        return WinogradPlan(images, *block, output_blocks, chunk, is_ahead, heights, 0)

    monkeypatch.setattr(steps, "plan", made)
    return f"{images} {down} {across} {output_blocks} {chunk} {is_ahead}"


def fractions(rng, *shape):
    values = [Fraction(int(n), 7) for n in rng.integers(-99, 99, math.prod(shape))]
    return np.array(values, dtype=object).reshape(shape)


@pytest.mark.parametrize("algorithm", [F4, F2])
def test_the_algorithm_is_exact(rng, algorithm):
    bt, g, at = (
        np.array(matrix, dtype=object)
        for matrix in (algorithm.of_image, algorithm.of_weight, algorithm.of_result)
    )
    n, m = algorithm.size, algorithm.positions
    image, kernel = fractions(rng, n, n), fractions(rng, 3, 3)
    got = at @ ((g @ kernel @ g.T) * (bt @ image @ bt.T)) @ at.T
    for i in range(m):
        for j in range(m):
            assert got[i, j] == (image[i : i + 3, j : j + 3] * kernel).sum()


@pytest.mark.parametrize("algorithm", [F4, F2])
def test_factors_of_images_and_results_are_exact_in_float32(algorithm):
    for row in (*algorithm.of_image, *algorithm.of_result):
        assert all([Fraction(float(np.float32(float(x)))) == x for x in row])


class MapsCode:
    """A function that multiplies a matrix with vectors; without one it transposes them."""

    def __init__(self, shape, matrix=()):
        self.shape, self.matrix = shape, matrix
        self.key = f"test of maps {shape} {matrix}"

    def llvm(self, symbol):
        body = FunctionBody()
        elements = Elements(body, self.shape, self.shape.dtype)
        x, y = (body.array("%buffers", i, "ptr") for i in range(2))
        line = self.shape.lanes * self.shape.size
        count = len(self.matrix[0]) if self.matrix else self.shape.lanes
        values = [elements.load(body.at(x, i * line)) for i in range(count)]
        if self.matrix:
            values = mapped(body, self.shape, self.matrix, values)
        else:
            values = transposed(body, self.shape, values)
        for i, value in enumerate(values):
            elements.store(value, body.at(y, i * line))
        return module([FunctionText(body.work_item(symbol), declarations(self.shape), ())])


def computed(code, x, rows):
    y = np.empty((rows, x.shape[1]), x.dtype)
    buffers = (ctypes.c_void_p * 2)(x.ctypes.data, y.ctypes.data)
    (address,) = compile_codes([code])
    assert WORK_ITEM(address)(buffers, None, 0, None, *in_a_run()) == 0
    return y


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [gf.float32, gf.float64])
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_maps_and_transposes_of_vectors(rng, target, dtype):
    shape = shape_for(dtype, target)
    x = drawn(rng, (shape.lanes, shape.lanes), dtype)
    maps = computed(MapsCode(shape), x, shape.lanes)
    assert np.array_equal(maps, x.T)
    for algorithm in (F4, F2):
        for matrix in (algorithm.of_image, algorithm.of_weight, algorithm.of_result):
            x = drawn(rng, (len(matrix[0]), shape.lanes), dtype)
            got = computed(MapsCode(shape, matrix), x, len(matrix))
            exact = np.array(matrix, dtype=np.float64) @ x
            np.testing.assert_allclose(got, exact, rtol=0, atol=2e-5)


def test_halves_of_maps_are_shared(rng):
    """The image of F(4 x 4) takes 12 operations along a dim, the result 12."""
    shape = shape_for(gf.float32, AVX512)
    for matrix, most in ((F4.of_image, 12), (F4.of_result, 12), (F2.of_image, 4)):
        body = FunctionBody()
        mapped(body, shape, matrix, [f"%x{i}" for i in range(len(matrix[0]))])
        text = body.function("define void @f()")
        assert sum(text.count(word) for word in ("fadd", "fsub", "fmul ", "fmuladd")) <= most


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_any_sizes(rng, monkeypatch, name, target):
    for number in range(16):
        how = any_plan(rng, monkeypatch) if number % 2 else ""
        images, channels, outputs = (int(n) for n in rng.integers([1, 1, 1], [4, 40, 80]))
        sizes = tuple(rng.integers(1, 21, 2).tolist())
        before, after = (tuple(rng.integers(-1, 4, 2).tolist()) for _ in range(2))
        x, w = drawn(rng, (images, channels, *sizes)), drawn(rng, (outputs, channels, 3, 3))
        op = op_for(x.shape, w.shape, 1, before, 1, 1, after)
        got = convolved(op, x, w, name, target=target, fixed=bool(rng.integers(2)))
        assert error(got, op, x, w) <= ERRORS[name], f"{op} of {x.shape} and {w.shape}, {how}"
        if number % 2:
            monkeypatch.setattr(steps, "plan", plan)


@pytest.mark.parametrize("sizes", [(0, 5, 6, 7), (1, 5, 2, 9), (2, 5, 9, 1)])
def test_nothing_to_compute(rng, name, sizes):
    x, w = drawn(rng, (3, *sizes[1:]))[: sizes[0]], drawn(rng, (9, 5, 3, 3))
    op = op_for(x.shape, w.shape)
    assert convolved(op, x, w, name).size == 0


def test_many_channels(rng, name):
    """Long sums are done in pieces; errors don't grow with them."""
    x, w = np.maximum(drawn(rng, (1, 700, 9, 13)), 0), drawn(rng, (40, 700, 3, 3))
    op = op_for(x.shape, w.shape, 1, 1)
    assert error(convolved(op, x, w, name), op, x, w) <= ERRORS[name]


def test_operands_that_lie_in_any_way(rng, name):
    op = op_for((2, 20, 11, 15), (33, 20, 3, 3), 1, 1)
    weights = drawn(rng, (3, 20, 3, 33))
    reversed_weights = np.moveaxis(weights, (0, 1, 2, 3), (3, 1, 2, 0))[..., ::-1, ::-1]
    images = {
        "sliced": drawn(rng, (4, 21, 13, 41))[1:3, 1:, 2:, 3:18],
        "flipped": drawn(rng, (2, 20, 11, 15))[::-1, ::-1, ::-1],
        "broadcast": np.broadcast_to(drawn(rng, (1, 20, 1, 15)), (2, 20, 11, 15)),
        "permuted": np.moveaxis(drawn(rng, (11, 20, 2, 15)), 0, 2).swapaxes(0, 1),
    }
    for what, x in images.items():
        assert x.shape == (2, 20, 11, 15)
        assert (
            error(convolved(op, x, reversed_weights, name), op, x, reversed_weights) <= ERRORS[name]
        ), what


def test_work_items_in_any_order_and_fixed_weights_give_the_same_bits(rng, monkeypatch, name):
    x, w = drawn(rng, (3, 20, 21, 18)), drawn(rng, (90, 20, 3, 3))
    op = op_for(x.shape, w.shape, 1, 1)
    for _ in range(4):
        how = any_plan(rng, monkeypatch)
        usual = convolved(op, x, w, name)
        assert np.array_equal(convolved(op, x, w, name, order=-1), usual), how
        assert np.array_equal(convolved(op, x, w, name, fixed=True), usual), how


def estimates(op, x, w, **options):
    """Return the estimates for a convolution, by the names of its strategies."""
    memory, found = {}, {}

    def choose(strategies):
        found.update({one.name: one.seconds for one in strategies})
        return strategies[0].make()

    out = storage_of(np.empty((x.shape[0], w.shape[0], *op.output_sizes), x.dtype))
    conv_steps((), op, view_of(x, memory), view_of(w, memory), out, None, choose=choose, **options)
    return found


def test_where_the_algorithms_are_not_for_it(rng):
    x, w = drawn(rng, (1, 16, 9, 10)), drawn(rng, (16, 16, 3, 3))
    cases = {
        "stride": (x, w, {"stride": (2, 1)}),
        "dilation": (x, w, {"dilation": 2}),
        "groups": (x, w[:, :8], {"groups": 2}),
        "kernel": (x, w[..., :2], {}),
        "dtype": (x.astype(np.float64), w.astype(np.float64), {}),
        "columns apart": (np.swapaxes(x, 2, 3), w, {}),
        "one dim": (x[:, :, 0], w[:, :, 0], {}),
    }
    for what, (image, kernels, options) in cases.items():
        names = estimates(op_for(image.shape, kernels.shape, **options), image, kernels).keys()
        assert not names & ALGORITHMS.keys(), what
    op = op_for(x.shape, w.shape)
    assert estimates(op, x, w).keys() >= ALGORITHMS.keys()
    assert not estimates(op, x, w, winograd=False).keys() & ALGORITHMS.keys()


@with_avx512
def test_the_rule_takes_them_where_they_are_faster():
    """Not for images of a few places, nor where few channels make little of a product."""

    def known(channels, outputs, size, *, fixed=True, near=False):
        x, w = np.empty((1, channels, size, size), np.float32), (outputs, channels, 3, 3)
        op = op_for(x.shape, w, 1, 1)
        return estimates(op, x, np.empty(w, np.float32), fixed_weight=fixed, is_near=near)

    for sizes in ((64, 64, 224), (512, 512, 28), (256, 256, 14), (3, 64, 224), (3, 16, 64)):
        found = known(*sizes)
        is_winograd = min(found, key=found.get) in ALGORITHMS
        assert is_winograd == (min(sizes) > 3), sizes
    kept, changing = (known(64, 64, 14, fixed=fixed) for fixed in (True, False))
    assert all([changing[name] > kept[name] for name in ALGORITHMS])
    near = known(64, 64, 14, near=True)
    assert all([near[name] < kept[name] for name in ALGORITHMS])


FOLLOWING = {
    "bias, activation": lambda y, b, r: gf.relu(y + b),
    "bias, residual, activation": lambda y, b, r: gf.relu(y + b + r),
    "kept and used": lambda y, b, r: (y, gf.tanh(y + b)),
    "what is of rows only": lambda y, b, r: y * gf.mean(r, axis=(2, 3), keepdims=True),
    "along one spatial dim": lambda y, b, r: y + r[:1, :1, :, :1],
    "two readers": lambda y, b, r: (gf.sum(y), gf.relu(y + r)),
}
"""Functions behind a convolution: of its result, of a bias, and of another tensor like it."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("following", FOLLOWING)
def test_what_follows_a_convolution(rng, monkeypatch, following, batch, name):
    with gf.Graph() as g:
        x, r = (gf.placeholder((batch, channels, 10, 23)) for channels in (19, 34))
        b = gf.constant(drawn(rng, (34, 1, 1)))
        w = gf.constant(drawn(rng, (34, 19, 3, 3)))
        y = FOLLOWING[following](gf.conv(x, w, padding=1), b, r)
    fetched = list(y) if isinstance(y, tuple) else [y]
    arrays = [drawn(rng, t.shape) for t in (x, r)]
    used(monkeypatch, name)
    for _ in range(3):
        how = any_plan(rng, monkeypatch)
        plan = gf.Session(g).compile(fetched, feeds=[x, r])
        assert_native(plan)
        got = plan(*arrays)
        with monkeypatch.context() as context:
            context.setenv("GRAPHFW_JIT", "0")
            wanted = gf.Session(g).compile(fetched, feeds=[x, r])(*arrays)
        for one, other in zip(got, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3, err_msg=how)


def network(rng, batch, size):
    """Return a graph of some layers, and its input and output."""

    def weight(outputs, channels):
        return gf.constant(drawn(rng, (outputs, channels, 3, 3)) / math.sqrt(9 * channels))

    with gf.Graph() as g:
        x = gf.placeholder((batch, 24, size, size) if isinstance(size, int) else size)
        y = gf.relu(gf.conv(x, weight(48, 24), gf.ones(48), padding=1))
        z = gf.relu(gf.conv(y, weight(48, 48), padding=1))
        z = gf.relu(gf.conv(z, weight(48, 48), padding=1) + y)
        z = gf.conv(gf.max_pool(z, 2), weight(70, 48), padding=(0, 2))
    return g, x, z


@pytest.mark.parametrize("batch", [1, 2])
def test_a_network(rng, monkeypatch, name, batch):
    g, x, z = network(rng, batch, 21)
    array = drawn(rng, x.shape)
    used(monkeypatch, name)
    one, two = (gf.Session(g, threads=n).compile(z, feeds=[x])(array) for n in (1, 2))
    assert np.array_equal(one, two)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    wanted = gf.Session(g).compile(z, feeds=[x])(array)
    assert np.abs(one - wanted).max() <= 1e-4 * np.std(wanted)


def test_one_plan_for_all_sizes(rng, monkeypatch, name):
    g, x, z = network(rng, None, ("n", 24, "h", "w"))
    used(monkeypatch, name)
    plan = gf.Session(g).compile(z, feeds=[x])
    assert_native(plan)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    usual = gf.Session(g).compile(z, feeds=[x])
    for sizes in ((1, 24, 6, 7), (3, 24, 40, 33), (0, 24, 9, 9), (1, 24, 64, 130)):
        array = drawn(rng, sizes)
        np.testing.assert_allclose(plan(array), usual(array), rtol=1e-3, atol=1e-4)


def test_weights_of_variables_follow_updates(rng, monkeypatch, name):
    x, w = drawn(rng, (2, 17, 8, 8)), drawn(rng, (35, 17, 3, 3))
    with gf.Graph() as g:
        t = gf.placeholder(x.shape)
        v = gf.Variable(w, name="w")
        y = gf.conv(t, v)
    used(monkeypatch, name)
    session = gf.Session(g)
    plan = session.compile(y, feeds=[t])
    op = op_for(x.shape, w.shape)
    assert error(plan(x), op, x, w) <= ERRORS[name]
    session.load_state_dict({"w": w * 2})
    assert error(plan(x), op, x, w * 2) <= ERRORS[name]


def test_a_step_of_training(rng, monkeypatch, name):
    """The gradient with respect to x is such a convolution too; weights change."""
    x, w = drawn(rng, (2, 17, 11, 9)), [drawn(rng, (n, 17, 3, 3)) / 10 for n in (17, 20)]
    with gf.Graph() as g:
        t = gf.placeholder(x.shape)
        weights = [gf.Variable(one) for one in w]
        y = gf.conv(gf.tanh(gf.conv(t, weights[0], padding=1)), weights[1], padding=1)
        loss = gf.sum(y * y)
        slopes = [gf.grad(loss, one) for one in (t, *weights)]
    used(monkeypatch, name)
    got = gf.Session(g).compile(slopes, feeds=[t])(x)
    monkeypatch.setenv("GRAPHFW_JIT", "0")
    for one, other in zip(got, gf.Session(g).compile(slopes, feeds=[t])(x), strict=True):
        assert np.abs(one - other).max() <= 1e-4 * np.abs(other).max()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_tiles(rng, name, bad):
    """Places that see it are not finite; no other tile is touched."""
    x, w = drawn(rng, (1, 20, 21, 30)), drawn(rng, (18, 20, 3, 3))
    x[0, 3, 9, 14] = bad
    op = op_for(x.shape, w.shape, 1, 1)
    got = convolved(op, x, w, name)
    seen = np.zeros((21, 30), bool)
    seen[8:11, 13:16] = True
    m = ALGORITHMS[name].positions
    assert not np.isfinite(got[0][:, seen]).any()
    far = np.ones((21, 30), bool)
    far[8 - m : 11 + m, 13 - m : 16 + m] = False
    assert np.isfinite(got[0][:, far]).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("algorithm", [F4, F2])
@pytest.mark.parametrize("most", [3, 60, 3000])
def test_plans_have_room_for_every_block(rng, algorithm, most):
    shape = shape_for(gf.float32, AVX512)
    for _ in range(40):
        ends = [9, 2000, 2000, most, most]
        sizes = WinogradSizes(*[int(n) for n in rng.integers([0, 1, 1, 0, 0], ends)])
        how = plan(shape, algorithm, sizes)
        assert how.cycles >= 0
        assert 1 <= how.tiles <= 112
        # Heights make up the tiles of a block, and so the rows of its memory.
        assert how.tiles % how.heights[0] == sum(how.heights[1:])
        if how.images > 1:
            assert (how.down, how.across) == (sizes.down, sizes.across)
