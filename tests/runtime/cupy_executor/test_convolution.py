"""Convolutions and their gradients by kernels for GPUs, against the ops' own `eval`."""

import re

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.ops.nn.convolution_ops import Conv, ConvWeight
from graphfw.ops.nn.pooling_ops import WindowArgmax, WindowMax, WindowPut
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor import convolution
from graphfw.runtime.cupy_executor.codegen import module
from graphfw.runtime.cupy_executor.convolution import codes, fused_conv_steps
from graphfw.runtime.cupy_executor.convolution.codes import engine
from graphfw.runtime.cupy_executor.convolution.epilogue import CudaEpilogue
from graphfw.runtime.cupy_executor.target import GpuTarget
from graphfw.runtime.kernels.steps import View
from graphfw.runtime.planning.draws import Draws
from tests.support.cuda_compilers import compiled
from tests.support.hand_steps import computed

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


def check(op, a, b, precision="highest", rtol=0.0, wide=False):
    """Compare what the kernels make with `eval`; return the names of the kernels."""
    found, names = computed(op, a, b, precision=precision, wide=wide)
    wanted = np.asarray(op.eval(np, a, b)).astype(np.float64)
    tolerance = rtol or TOLERANCE[str(a.dtype)]
    scale = max(np.abs(wanted).max(initial=0), 1.0)
    np.testing.assert_allclose(
        found.astype(np.float64), wanted, rtol=tolerance, atol=tolerance * scale
    )
    return names


def facts(rank, *, output_sizes, before=1, stride=1, dilation=1, spread=1, groups=1):
    return (
        output_sizes,
        (before,) * rank,
        (stride,) * rank,
        (dilation,) * rank,
        (spread,) * rank,
        groups,
    )


def drawn(rng, shape, dtype=np.float32):
    return rng.normal(size=shape).astype(dtype)


def random_op(rng, weight):
    """Return an op with random fields, and the shapes of its operands."""
    rank = int(rng.integers(1, 4))
    strides, dilations, spreads = [tuple(map(int, rng.integers(1, 4, rank))) for _ in range(3)]
    if weight and max(spreads) > 1 and rng.random() < 0.5:
        strides = (1,) * rank
    elif weight:
        spreads = (1,) * rank
    before = tuple(map(int, rng.integers(-1, 4, rank)))
    groups = int(rng.choice([1, 1, 2, 3]))
    images, channels, outputs = int(rng.integers(0, 4)), *map(int, rng.integers(1, 4, 2))
    size, output_sizes = [tuple(map(int, rng.integers(1, 8, rank))) for _ in range(2)]
    kernel = tuple(map(int, rng.integers(1, 4, rank)))
    x = (images, groups * channels, *size)
    if weight:
        op = ConvWeight(kernel, before, strides, dilations, spreads, groups)
        return op, x, (images, groups * outputs, *output_sizes)
    op = Conv(output_sizes, before, strides, dilations, spreads, groups)
    return op, x, (groups * outputs, channels, *kernel)


OTHERS = ["tf32", "float64", "float16"]


@pytest.mark.parametrize("weight", [False, True], ids=["conv", "conv_weight"])
@pytest.mark.parametrize(
    "dtype",
    [
        np.float32,
        pytest.param(ml_dtypes.bfloat16, marks=pytest.mark.slow),
        pytest.param(np.float64, marks=pytest.mark.slow),
        pytest.param(np.float16, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_random_arguments(dtype, weight, rng):
    for _ in range(8):
        op, first, second = random_op(rng, weight)
        check(op, drawn(rng, first, dtype), drawn(rng, second, dtype))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["large", "small", "flat"])
@pytest.mark.parametrize(
    "dtype",
    ["float32", "bfloat16", *[pytest.param(d, marks=pytest.mark.slow) for d in OTHERS]],
)
def test_tiles(dtype, name, monkeypatch, rng):
    """Each kind of tile, more than one of it along each side, and odd ends."""
    monkeypatch.setattr(
        codes.MultiplyInstructions,
        "tile",
        lambda self, *_: {t.name: t for t in self.tiles}.get(name, self.tiles[0]),
    )
    precision, rtol = ("high", 2e-3) if dtype == "tf32" else ("highest", 0.0)
    kind = np.float32 if dtype == "tf32" else getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    op = Conv((9, 11), *facts(2, output_sizes=())[1:])
    x, w = drawn(rng, (2, 5, 9, 11), kind), drawn(rng, (133, 5, 3, 3), kind)
    assert check(op, x, w, precision, rtol) == ["conv_pack", "conv"]
    back = ConvWeight((3, 3), *op.values[1:])
    y = drawn(rng, (2, 133, 9, 11), kind)
    assert check(back, x, y, precision, rtol)[0] == "conv_weight"


def test_wide_indices(rng):
    op = Conv(*facts(2, output_sizes=(3, 5), stride=2, spread=3, groups=2))
    check(op, drawn(rng, (2, 4, 3, 5)), drawn(rng, (6, 2, 3, 2)), wide=True)
    op = ConvWeight(*facts(2, output_sizes=(3, 2), stride=2, groups=2))
    check(op, drawn(rng, (2, 4, 6, 5)), drawn(rng, (2, 6, 3, 4)), wide=True)
    op = Conv(*facts(1, output_sizes=(9,), spread=2, groups=4))
    check(op, drawn(rng, (2, 4, 6)), drawn(rng, (4, 1, 3)), wide=True)
    x, fields = drawn(rng, (2, 3, 8)), ((3,), (2,), (1,), (1,), (1,))
    found, _ = computed(WindowMax(*fields), x, wide=True)
    number, _ = computed(WindowArgmax(*fields), x, wide=True)
    np.testing.assert_array_equal(found, WindowMax(*fields).eval(np, x))
    back = WindowPut(*fields, (8,))
    np.testing.assert_array_equal(
        computed(back, found, number, wide=True)[0], back.eval(np, found, number)
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_kernels_of_one_element_that_lie_as_a_matrix(dtype, rng):
    op = Conv((3, 3), *facts(2, output_sizes=(), before=0)[1:])
    x = drawn(rng, (2, 16, 3, 3), dtype)
    w = drawn(rng, (8, 16, 1, 1), dtype)
    assert check(op, x, w) == (["conv_pack", "conv"] if dtype == "float32" else ["conv"])


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=str)
def test_sums_in_pieces(dtype, rng):
    x = drawn(rng, (1, 90, 4, 3), dtype)
    op = Conv((4, 3), *facts(2, output_sizes=())[1:])
    names = check(op, x, drawn(rng, (5, 90, 3, 3), dtype), rtol=1e-2 if dtype == np.float16 else 0)
    assert names == ["conv_pack", "conv", "conv_add"]
    x, y = drawn(rng, (3, 2, 15, 15), dtype), drawn(rng, (3, 3, 15, 15), dtype)
    back = ConvWeight((3, 3), *op.values[1:])
    names = check(back, x, y, rtol=1e-2 if dtype == np.float16 else 0)
    assert names == ["conv_weight", "conv_add"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("groups", [6, 2])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=str)
def test_channel_by_channel(dtype, groups, rng):
    """With many places, with few, with strides, and spread."""
    for size, stride, spread in ((13, 1, 1), (5, 2, 1), (4, 1, 2)):
        output_sizes = (size // stride * spread, size // stride * spread + 1)
        op = Conv(*facts(2, output_sizes=output_sizes, stride=stride, spread=spread, groups=groups))
        x, w = drawn(rng, (2, groups, size, size), dtype), drawn(rng, (6, 1, 3, 4), dtype)
        assert check(op, x, w) == ["depthwise"]
        if spread == 1 or groups == 6:
            back = ConvWeight((3, 4), *op.values[1:])
            names = check(back, x, drawn(rng, (2, 6, *output_sizes), dtype))
            assert names[0] == "depthwise_weight"


def test_operands_that_lie_otherwise(fake, rng):
    with gf.Graph() as g:
        x = gf.placeholder((2, 7, 6, 5), name="x")
        w = gf.placeholder((3, 3, 5, 4), name="w")
        y = gf.conv(gf.permute_dims(x, (0, 3, 1, 2))[:, :, ::-1], gf.permute_dims(w, (3, 2, 0, 1)))
        dx, dw = gf.grad(gf.sum(y), [x, w])
    feeds = {t: rng.normal(size=t.shape).astype(np.float32) for t in (x, w)}
    found = []
    for name in ("numpy", "cupy"):
        with gf.Session(g, executor=name) as session:
            found.append([session.executor.to_host(v) for v in session.run([y, dx, dw], feeds)])
            plan = session.compile([y, dx, dw], [x, w])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)
    assert " 0 operations by CuPy" in plan.explain()


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.slow
def test_training_is_that_of_the_cpu(fake, rank, rng):
    """With strides, groups, and a transposed convolution; images may be of any number."""
    with gf.Graph() as g:
        x = gf.placeholder(("n" if rank == 2 else 3, 4, *[7] * rank), name="x")
        shapes = [(6, 2, *[3] * rank), (6, 1, *[3] * rank), (6, 3, *[2] * rank)]
        w, d, t = [
            gf.Variable(drawn(rng, shape), name=n) for n, shape in zip("wdt", shapes, strict=True)
        ]
        y = gf.tanh(gf.conv(x, w, stride=2, padding=1, groups=2))
        y = gf.conv(y, d, padding=1, groups=6)
        y = gf.conv_transpose(y, t, stride=2)
        loss = gf.mean(y * y)
        train = gf.optim.SGD(0.1).minimize(loss)
    feeds = {x: drawn(rng, (3, 4, *[7] * rank))}
    results = []
    for name in ("numpy", "cupy"):
        with gf.Session(g, executor=name) as session:
            run = [session.run([loss, train], feeds)[0] for _ in range(2)]
            held = session.run([w, d, t], {})
            results.append([session.executor.to_host(v) for v in (*run, *held)])
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def both(g, fetches, feeds):
    """Run on the CPU and on the stand-in; return what each gives, and the plan of the latter."""
    results = []
    for name in ("numpy", "cupy"):
        with gf.Session(g, executor=name) as session:
            plan = session.compile(fetches, list(feeds))
            found = plan(*feeds.values())
            results.append([session.executor.to_host(value) for value in found])
    return (*results, plan)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    ("dtype", "groups", "keeps"),
    [
        (gf.float32, 1, False),
        (gf.float32, 4, True),
        (gf.float16, 2, True),
        (gf.float16, 4, False),
    ],
)
def test_what_follows_is_done_to_sums(fake, dtype, groups, keeps, monkeypatch, rng):
    """A bias, an activation, another image that is added, one number for each image."""
    if keeps:  # the sums themselves as well

        def kept(node, nodes, x, weight, product, *rest):
            return fused_conv_steps(node, nodes, x, weight, node.outputs[0], *rest)

        monkeypatch.setattr(convolution, "fused_conv_steps", kept)
    count = 3 if keeps else "n"
    with gf.Graph() as g:
        x = gf.placeholder((count, 4, 6, 5), dtype, name="x")
        other = gf.placeholder((count, 4, 6, 5), dtype, name="other")
        w = drawn(rng, (4, 4 // groups, 3, 3), dtype.dtype)
        bias = drawn(rng, 4, dtype.dtype)
        y = gf.relu(gf.conv(x, w, bias, padding=1, groups=groups) + other)
        z = gf.conv(x, -w, padding=1, groups=groups)
        last = gf.tanh(z) * other[:, :1, :1, :1] + gf.reshape(bias, (4, 1, 1))
        fetches = [y, last]
    feeds = {t: drawn(rng, (3, 4, 6, 5), dtype.dtype) for t in (x, other)}
    wanted, found, plan = both(g, fetches, feeds)
    for a, b in zip(wanted, found, strict=True):
        rtol = 1e-5 if dtype is gf.float32 else 2e-2
        np.testing.assert_allclose(b.astype(float), a.astype(float), rtol=rtol, atol=rtol)
    kernels = re.findall(r"^ +\d+  ([a-z]+)", plan.explain(), re.MULTILINE)
    assert set(kernels) == {"conv"}
    if not keeps:
        wanted, found, _ = both(g, fetches, {t: a[:0] for t, a in feeds.items()})
        assert [a.shape for a in found] == [a.shape for a in wanted]


def test_kernels_of_one_element_are_products(fake, cublaslt, rng):
    """Operands lie well; so does the gradient of the images."""
    with gf.Graph() as g:
        x = gf.placeholder(("n", 8, 2, 4), name="x")
        other = gf.placeholder(("n", 8, 3, 3), name="other")
        w = gf.Variable(drawn(rng, (12, 8, 1, 1)), name="w")
        y, z = gf.conv(x, w), gf.conv(other, w)
        dx, dw = gf.grad(gf.sum(y * y) + gf.sum(z), [x, w])
    feeds = {x: drawn(rng, (3, 8, 2, 4)), other: drawn(rng, (3, 8, 3, 3))}
    wanted, found, _ = both(g, [y, z, dx, dw], feeds)
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)
    assert len(cublaslt.products) == 2


def test_results_that_are_sections_of_others(fake, rng):
    """As in networks that join what they have found before to what they find later."""
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3, 6, 4), name="x")
        y = gf.relu(gf.conv(x, drawn(rng, (5, 3, 3, 3)), drawn(rng, 5), padding=1))
        inner = gf.relu(gf.conv(gf.max_pool(y, 2), drawn(rng, (4, 5, 3, 3)), padding=1))
        outer = gf.conv_transpose(inner, drawn(rng, (4, 2, 2, 2)), stride=2)
        joined = gf.concat([y, outer, gf.relu(gf.conv(x, drawn(rng, (2, 3, 1, 1))))], axis=1)
        fetches = [gf.tanh(gf.conv(joined, drawn(rng, (2, 9, 1, 1)))), joined]
    wanted, found, _ = both(g, fetches, {x: drawn(rng, (2, 3, 6, 4))})
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("keeps", [False, True])
def test_what_follows_sums_in_pieces(fake, keeps, rng):
    with gf.Graph() as g:
        x = gf.placeholder((1, 90, 4, 3), name="x")
        sums = gf.conv(x, drawn(rng, (5, 90, 3, 3)), padding=1)
        y = gf.relu(sums + drawn(rng, (5, 1, 1)))
    outputs = [y, sums] if keeps else [y]
    wanted, found, plan = both(g, outputs, {x: drawn(rng, (1, 90, 4, 3))})
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert "conv: adding" in plan.explain()


ENGINES = [
    engine(gf.float32), engine(gf.float64), engine(gf.float16),
    engine(gf.bfloat16), engine(gf.float32, rounds=True),
]  # fmt: skip


def codes_of(how, rank):
    ends = CudaEpilogue(how.dtype)
    found = [codes.conv_code(how, rank, epilogue) for epilogue in (ends, None)]
    found += [codes.weight_code(how, rank), codes.add_code(how.sums, how.dtype)]
    found += [codes.pack_code(how, rank), codes.depthwise_weight_code(how, rank)]
    return [*found, *[codes.depthwise_code(how, rank, ends, is_spread=s) for s in (False, True)]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "wide", "rank", "how"),
    [("sm_80", False, 2, ENGINES[3]), ("sm_90", True, 1, ENGINES[0])],
    ids=["bfloat16", "float32"],
)
def test_gpus_compilers_take_them(architecture, wide, rank, how):
    assert compiled(module(codes_of(how, rank)), architecture, wide=wide)


@pytest.mark.slow
@pytest.mark.parametrize("how", ENGINES, ids=lambda how: how.dtype.name)
def test_gpus_compilers_take_all(how):
    """Half of the combinations: a module takes half a minute."""
    number = ENGINES.index(how)
    rank, wide = 2 + number % 2, number % 2 == 0
    assert compiled(module(codes_of(how, rank)), ["sm_80", "sm_90"][number // 2 % 2], wide=wide)


@pytest.mark.parametrize(
    ("images", "tile", "wide"), [(4, "small", False), (1 << 13, "large", True)]
)
def test_how_it_is_launched(images, tile, wide):
    """Tiles that make enough blocks, and indices that have room for all elements."""
    with gf.Graph():
        x = gf.placeholder((images, 64, 56, 56), gf.float16)
        y = gf.conv(x, gf.ones((128, 64, 3, 3), dtype=gf.float16), padding=1)
    views = [View(t, 0, t.shape, contiguous(t.shape)) for t in (*y.node.inputs, y)]
    step = GpuTarget(Draws(()), "highest").lower_node(y.node, views[:2], views[2:])[1]
    launch = step.code.launch(step.params)
    assert (launch.variant, launch.is_wide) == (tile, wide)
    rows, columns = (128, 128) if tile == "large" else (64, 64)
    assert launch.grid == 128 // rows * -(-images * 56 * 56 // columns)


def test_blocks_have_the_memory_that_any_may_have():
    for tile in [tile for how in ENGINES for tile in how.tiles]:
        assert tile.shared <= 48 << 10
        assert tile.threads <= 256
