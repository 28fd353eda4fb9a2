"""Convolutions by cuDNN, on a stand-in that computes what it is told."""

import sys

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, ExecutorError
from graphfw.ir.build import emit
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.runtime.cupy_executor import cudnn
from graphfw.runtime.cupy_executor.device import Device
from tests.runtime.cupy_executor.test_convolution import TOLERANCE, drawn, random_op


def compare(session, g, fetches, feeds, *, rtol=0.0, runs=1, **options):
    """Compare runs with those of the CPU; return the plan's report."""
    wanted = gf.Session(g, seed=3).run(fetches, feeds)
    own = session(g, **options)
    for _ in range(runs):
        found = own.run(fetches, feeds, host=True)
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.dtype
            tolerance = rtol or TOLERANCE[str(other.dtype)]
            scale = max(np.abs(other.astype(np.float64)).max(initial=0), 1.0)
            np.testing.assert_allclose(
                one.astype(np.float64),
                other.astype(np.float64),
                rtol=tolerance,
                atol=tolerance * scale,
            )
    plan = own.compile(fetches, feeds=[*feeds])
    return plan.explain(*[np.shape(array) for array in feeds.values()])


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("weight", [False, True], ids=["conv", "conv_weight"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16], ids=str)
def test_random_arguments(dtype, weight, library, session, rng):
    for _ in range(6):
        op, first, second = random_op(rng, weight)
        with gf.Graph() as g:
            x, w = gf.placeholder(first, dtype), gf.placeholder(second, dtype)
            y = emit(op, x, w)
        compare(session, g, [y], {x: drawn(rng, first, dtype), w: drawn(rng, second, dtype)})


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    ("rank", "options"),
    [
        (1, {"padding": 2, "stride": 2}),
        (2, {"padding": 1}),
        (2, {"padding": ((1, 0), (2, 1)), "stride": (2, 1), "dilation": (1, 2)}),
        (2, {"padding": 1, "groups": 2}),
        (3, {"padding": 1, "stride": 2}),
    ],
    ids=["1d", "plain", "uneven", "groups", "3d"],
)
def test_gradients(rank, options, library, session, rng):
    """Each is computed in one of the three forms; sizes are known in runs only."""
    size, groups = (9, 8, 7)[:rank], options.get("groups", 1)
    with gf.Graph() as g:
        x = gf.placeholder(("n", 4, *size), name="x")
        w = gf.placeholder((6, 4 // groups, *(3, 2, 3)[:rank]), name="w")
        y = gf.conv(x, w, **options)
        dx, dw = gf.grad(gf.sum(y * y), [x, w])
    feeds = {x: drawn(rng, (3, 4, *size)), w: drawn(rng, w.shape)}
    text = compare(session, g, [y, dx, dw], feeds)
    kinds = {"conv_fprop", "conv_dgrad", "conv_wgrad"}
    if groups != 1:  # turned kernels lie in an order of their own
        kinds -= {"conv_dgrad"}
    assert {name for names in library.runs for name in names} == kinds
    assert text.count("by cuDNN, 1000 B of scratch memory") == 3
    assert " 0 operations by CuPy" in text


def test_transposed_convolutions(library, session, rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((2, 3, 5, 4), name="x"), gf.placeholder((3, 2, 3, 3), name="w")
        y = gf.conv_transpose(x, w, stride=2, padding=1)
        dx, dw = gf.grad(gf.sum(y * y), [x, w])
    feeds = {x: drawn(rng, x.shape), w: drawn(rng, w.shape)}
    text = compare(session, g, [y, dx, dw], feeds)
    assert [names[0] for names in library.runs] == ["conv_dgrad", "conv_fprop"]
    assert "conv_weight" in text


def ended(dtype, end):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 4, 6, 5), dtype, name="x")
        w, b = gf.placeholder((8, 4, 3, 3), dtype, name="w"), gf.placeholder((8,), dtype, name="b")
        r = gf.placeholder(("n", 8, 6, 5), dtype, name="r")
        y = end(gf.conv(x, w, b, padding=1), r)
    return g, x, w, b, r, y


ENDINGS = {
    "bias": (lambda y, r: y, ["add"], 0),
    "bias relu": (lambda y, r: gf.relu(y), [], 1),
    "residual": (lambda y, r: y + r, ["add", "add"], 0),
    "residual first": (lambda y, r: r + y, ["add", "add"], 0),
    "residual relu": (lambda y, r: gf.relu(r + y), [], 1),
    "gelu": (lambda y, r: gf.gelu(y), [], 1),
    "scaled": (lambda y, r: gf.relu(y * 2.0), [], 1),
    "shifted": (lambda y, r: y - 1.0, [], 1),
    "twice": (lambda y, r: y + r + r, [], 1),
}


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_follows(dtype, name, library, session, rng):
    """Operations that cuDNN knows are a part of it; others are kernels behind it."""
    end, operations, kernels = ENDINGS[name]
    g, x, w, b, r, y = ended(dtype, end)
    kind = np.dtype(dtype)
    feeds = {x: drawn(rng, (3, 4, 6, 5), kind), w: drawn(rng, w.shape, kind)}
    feeds |= {b: drawn(rng, b.shape, kind)}
    if r.node in {node for node in _nodes(y)}:
        feeds[r] = drawn(rng, (3, 8, 6, 5), kind)
    text = compare(session, g, [y], feeds, rtol=1e-2 if dtype == "float16" else 0.0)
    assert library.runs == [["conv_fprop", *operations]]
    assert text.count("elements") == kernels


def _nodes(y):
    seen, left = set(), [y.node]
    while left:
        node = left.pop()
        if node not in seen:
            seen.add(node)
            left += [tensor.node for tensor in node.inputs]
    return seen


def test_what_follows_for_one_image(library, session, rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((1, 4, 6, 5), name="x"), gf.placeholder((8, 4, 3, 3), name="w")
        b, r = gf.placeholder((8,), name="b"), gf.placeholder((1, 8, 6, 5), name="r")
        y = gf.conv(x, w, b, padding=1) + r
    feeds = {one: drawn(rng, one.shape) for one in (x, w, b, r)}
    compare(session, g, [y], feeds)
    assert library.runs == [["conv_fprop", "add", "add"]]


def test_in_a_loop(library, session, rng):
    """An element of a sequence that does not lie as cuDNN wants it is copied."""
    with gf.Graph() as g:
        x, w = gf.placeholder((5, 3, 3, 3), name="x"), gf.placeholder((3, 3, 3, 3), name="w")
        y, ys = gf.scan(
            lambda c, e: (c + gf.tanh(gf.conv(e[None], w, padding=1)), gf.sum(c)),
            gf.zeros((1, 3, 3, 3)),
            x,
        )
    feeds = {x: drawn(rng, x.shape), w: drawn(rng, w.shape)}
    text = compare(session, g, [y, ys], feeds, runs=4)
    assert "      |         conv tanh add: " in text
    assert len(library.runs) == 4 * 5


def test_a_result_that_is_needed_besides(library, session, rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((2, 4, 6, 5), name="x"), gf.placeholder((8, 4, 3, 3), name="w")
        y = gf.conv(x, w, padding=1)
        z = gf.relu(y + gf.ones((8, 1, 1)))
    compare(session, g, [y, z], {x: drawn(rng, x.shape), w: drawn(rng, w.shape)})
    assert library.runs == [["conv_fprop"]]


@pytest.mark.slow
def test_without_a_way_kernels_do_it(library, session, rng):
    """So do they in recorded runs, one after the other."""
    library.refused = lambda names: True
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 70, 3, 3), name="x"), gf.placeholder((70, 70, 3, 3), name="w")
        y = gf.tanh(gf.conv(gf.relu(gf.conv(x, w, padding=1) + 1.0), w, padding=1))
        (z,) = gf.grad(gf.sum(y * y), [w])
    feeds = {x: drawn(rng, (2, 70, 3, 3)), w: drawn(rng, w.shape) / 30}
    text = compare(session, g, [y, z], feeds, runs=5)
    assert not library.runs
    assert "by kernels, since cuDNN has no way that is allowed: no engine:\n" in text
    assert "and much more" not in text
    assert "they save" in text


def test_recorded_runs(library, session, rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((2, 4, 6, 5), name="x"), gf.placeholder((4, 4, 3, 3), name="w")
        y = x
        for _ in range(4):
            y = gf.tanh(gf.conv(y, w, padding=1))
    text = compare(session, g, [y], {x: drawn(rng, x.shape), w: drawn(rng, w.shape)}, runs=6)
    assert "they save" in text
    assert len(library.runs) == 6 * 4
    assert len(library.graphs) == 1, "equal convolutions have one plan"


def test_engines_of_the_package_are_not_taken(library, session, rng):
    """They have no notes."""
    library.engine = "a kernel that is compiled by Python"
    g, x, w, b, _, y = ended("float32", lambda y, r: y)
    feeds = {x: drawn(rng, (1, 4, 6, 5)), w: drawn(rng, w.shape), b: drawn(rng, b.shape)}
    assert "by kernels, since the package has a kernel of its own" in compare(
        session, g, [y], feeds
    )
    assert not library.runs


def test_plans_are_kept_for_each_size(library, session, rng):
    g, x, w, b, _, y = ended("float32", lambda y, r: y)
    own, kernels = session(g), drawn(rng, w.shape)
    for n in (1, 2, 1, 3, 2):
        own.run(y, {x: drawn(rng, (n, 4, 6, 5)), w: kernels, b: drawn(rng, b.shape)})
    assert len(library.graphs) == 3


EXACT = {"NONDETERMINISTIC", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "FFT"}
EXACT |= {"WINOGRAD_TILE_13x13"}
WINOGRAD = {"WINOGRAD", "WINOGRAD_TILE_4x4", "WINOGRAD_TILE_6x6"}


@pytest.mark.parametrize(
    ("dtype", "options", "barred"),
    [
        ("float32", {}, {"TENSOR_CORE"}),
        ("float32", {"matmul_precision": "high"}, set()),
        ("float32", {"matmul_precision": "highest"}, {"TENSOR_CORE", *WINOGRAD}),
        ("float32", {"winograd": False}, {"TENSOR_CORE", *WINOGRAD}),
        ("float64", {}, set()),
        ("float16", {}, WINOGRAD),
    ],
)
def test_how_exact(dtype, options, barred, library, session, rng):
    g, x, w, b, _, y = ended(dtype, lambda y, r: y)
    kind = np.dtype(dtype)
    feeds = {x: drawn(rng, (1, 4, 6, 5), kind), w: drawn(rng, w.shape, kind)}
    compare(session, g, [y], {**feeds, b: drawn(rng, b.shape, kind)}, **options)
    (graph,) = library.graphs
    assert {*graph.barred} == EXACT | barred
    assert graph.limit == cudnn.WORKSPACE


@pytest.mark.parametrize(
    ("before", "reason"),
    [(-1, "it leaves out part of the image"), (0, "")],
)
def test_what_cudnn_can_not_be_told(before, reason, library, session, rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((1, 8, 6), name="x"), gf.placeholder((8, 8, 2), name="w")
        y = emit(Conv((5,), (before,), (1,), (1,), (1,)), x, w)
    text = compare(session, g, [y], {x: drawn(rng, x.shape), w: drawn(rng, w.shape)})
    assert reason in text
    assert bool(library.runs) is not bool(reason)


def test_operands_that_lie_otherwise(library, session, rng):
    """Images may be channels-last; not several times at one place, nor at any address."""
    with gf.Graph() as g:
        x, w = gf.placeholder((2, 6, 6, 8), name="x"), gf.placeholder((8, 8, 3, 3), name="w")
        transposed = gf.conv(gf.permute_dims(x, (0, 3, 1, 2)), w)
        spread = gf.conv(gf.broadcast_to(x[:1, :, :, :1], (2, 6, 6, 8)), w[:6, :6, :, :])
        shifted = gf.conv(x[:, 1:, 1:, 1:], w[:, :5, :2, :2])
    feeds = {x: drawn(rng, x.shape), w: drawn(rng, w.shape)}
    text = compare(session, g, [transposed, spread, shifted], feeds)
    assert len(library.runs) == 1
    assert "does not lie in an order that cuDNN takes" in text
    assert "begins where no 16 bytes begin" in text


def test_products_and_single_channels_are_not_asked_for(library, session, rng):
    with gf.Graph() as g:
        x = gf.placeholder((2, 8, 4, 4), name="x")
        w, v = gf.placeholder((8, 1, 3, 3), name="w"), gf.placeholder((8, 8, 1, 1), name="v")
        single, product = gf.conv(x, w, groups=8), gf.conv(x, v)
    feeds = {one: drawn(rng, one.shape) for one in (x, w, v)}
    text = compare(session, g, [single, product], feeds)
    assert not library.graphs
    assert "cuDNN is asked for no convolution: it would not do them better" in text


def reasons(session, g, y, x, w, b):
    return session(g).compile([y], feeds=[x, w, b]).explain()


def test_switched_off_or_not_installed(library, session, monkeypatch):
    g, x, w, b, _, y = ended("float32", lambda y, r: y)
    unknown = reasons(session, g, y, x, w, b)
    assert "by cuDNN where it has a way at given sizes, else by kernels" in unknown
    assert "1 convolutions by cuDNN where it has a way" in unknown
    monkeypatch.setenv("GRAPHFW_CUDNN", "0")
    assert "for no convolution: GRAPHFW_CUDNN=0" in reasons(session, g, y, x, w, b)
    monkeypatch.setenv("GRAPHFW_CUDNN", "1")
    monkeypatch.setitem(sys.modules, "cudnn", None)
    text = reasons(session, g, y, x, w, b)
    assert "for no convolution: nvidia-cudnn-frontend is not installed" in text
    monkeypatch.setenv("GRAPHFW_CUDNN", "yes")
    with pytest.raises(ArgumentError, match="GRAPHFW_CUDNN='yes' is neither 0 nor 1"):
        reasons(session, g, y, x, w, b)


@pytest.mark.parametrize(
    ("version", "text"),
    [(0, "finds no cuDNN: Unable to find libcudnn.so.9"), (90000, "cuDNN 9.0.0 is installed")],
)
def test_a_library_that_does_not_do(version, text, library, session):
    library.version = version
    g, x, w, b, _, y = ended("float32", lambda y, r: y)
    with pytest.raises(ExecutorError, match=text) as caught:
        reasons(session, g, y, x, w, b)
    assert "GRAPHFW_CUDNN=0 has all computed by graphfw's own kernels" in caught.value.fix


def test_nvrtc_is_loaded_before_cudnn_looks_for_it(fake, library, monkeypatch):
    before = []
    create = library.create_handle

    def missing():
        before.append("NVRTC")
        raise RuntimeError("CuPy failed to load libnvrtc.so.13")

    monkeypatch.setattr(fake.cuda.nvrtc, "getVersion", missing)
    monkeypatch.setattr(library, "create_handle", lambda: before.append("cuDNN") or create())
    assert Device(fake, 0).by_cudnn
    assert before == ["NVRTC", "cuDNN"]


def test_a_library_that_refuses_the_gpu_or_a_run(library, session, monkeypatch, rng):
    def refuse(*_, **__):
        raise RuntimeError("CUDNN_STATUS_NOT_INITIALIZED\nand more")

    g, x, w, b, _, y = ended("float32", lambda y, r: y)
    feeds = {x: drawn(rng, (1, 4, 6, 5)), w: drawn(rng, w.shape), b: drawn(rng, b.shape)}
    own = session(g)
    own.run(y, feeds)
    monkeypatch.setattr(library, "set_stream", refuse)
    with pytest.raises(ExecutorError, match="it has planned: CUDNN_STATUS_NOT_INITIALIZED\n"):
        own.run(y, feeds)
    kept = library.pygraph
    monkeypatch.setattr(library, "pygraph", lambda *, device: None)
    with pytest.raises(ExecutorError, match=r"does not take what it is told: .*unexpected"):
        session(g).run(y, feeds)
    monkeypatch.setattr(library, "pygraph", kept)
    monkeypatch.setattr(library, "create_handle", refuse)
    with pytest.raises(ExecutorError, match="cuDNN refuses this GPU: CUDNN_STATUS_NOT_INIT"):
        session(g).run(y, feeds)
