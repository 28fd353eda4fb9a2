"""Parts of joins that products, and what copies, write where they belong."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.tensor import Node
from graphfw.runtime.cupy_executor import cublaslt as binding
from tests.strict_xp import plain_array


def joined(session, g, outputs, feeds, **options):
    """Run on both executors; return the names of what is left to be joined or copied."""
    gpu, cpu = session(g, **options), gf.Session(g, seed=3)
    plan = gpu.compile(outputs, [*feeds])
    found, wanted = plan(*feeds.values()), cpu.compile(outputs, [*feeds])(*feeds.values())
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        one, other = plain_array(one).astype(np.float64), other.astype(np.float64)
        tolerance = 5e-2 if wanted[0].dtype.itemsize == 2 else 2e-5
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    build = plan._run.build
    nodes = [n for w in build.work for n in ((w,) if isinstance(w, Node) else w.step.nodes)]
    return [node.op.name for node in nodes if node.op.name in ("concat", "roll", "slice_set")]


def graph(rng, *shapes, dtype=gf.float32):
    g = gf.Graph()
    with g:
        tensors = [gf.placeholder(shape, dtype, name=f"x{k}") for k, shape in enumerate(shapes)]
    sizes = [[dim if isinstance(dim, int) else 5 for dim in shape] for shape in shapes]
    arrays = [rng.normal(size=size).astype(dtype.dtype) for size in sizes]
    return g, dict(zip(tensors, arrays, strict=True))


@pytest.mark.parametrize("dtype", [gf.float32, gf.float64, gf.bfloat16], ids=str)
def test_products(fake, session, rng, dtype):
    g, feeds = graph(rng, ("n", 24), (24, 16), (24, 32), dtype=dtype)
    with g:
        x, v, w = feeds
        y = gf.concat([x @ v, gf.tanh(x), x @ w], axis=1)
    assert joined(session, g, [y], feeds) == []


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shared", [True, False])
def test_batches(fake, session, rng, axis, shared):
    g, feeds = graph(rng, (3, 5, 8), (8, 16) if shared else (3, 8, 16))
    with g:
        x, w = feeds
        y = gf.concat([gf.exp(x) @ w, x @ w], axis=axis)
    assert joined(session, g, [y], feeds) == []


FUSED = {
    "bias": (lambda x, w, b, r: x @ w + b, binding.BIAS),
    "residual": (lambda x, w, b, r: x @ w + r, binding.PLAIN),
    "gelu": (
        lambda x, w, b, r: gf.gelu(x @ w + b + r, approximate="tanh"),
        binding.GELU | binding.BIAS,
    ),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("refused", [False, True], ids=["taken", "refused"])
@pytest.mark.parametrize("k", [8, 0])
@pytest.mark.parametrize("how", FUSED)
def test_what_products_take_up(fake, cublaslt, session, rng, how, k, refused):
    make, epilogue = FUSED[how]
    g, feeds = graph(rng, (2, "n", k), (k, 16), (16,), (2, "n", 16))
    with g:
        x, w, b, r = feeds
        section = make(x, w, b, r)
        y = gf.concat([gf.sin(r), section, gf.tanh(r)], axis=2)
        z = gf.concat([gf.cos(r), make(gf.sin(x), w, b, r)], axis=0)
        across = gf.concat([gf.exp(r), make(gf.cos(x), w, b, r)], axis=1)
    if refused:
        cublaslt.refused = {epilogue}
    left = joined(session, g, [y, z, across], feeds, matmul_precision="high")
    assert left == (["concat"] if k else left), "its rows do not lie like those of one matrix"


def test_products_that_would_not_be_aligned(fake, session, rng):
    g, feeds = graph(rng, ("n", 8), (8, 18), (8, 16))
    with g:
        x, v, w = feeds
        outputs = [
            gf.concat([x @ w, gf.tanh(x)[:, :2]], axis=1),  # rows of 18 elements
            gf.concat([x @ v, x @ w, gf.exp(x)[:, :2]], axis=1),  # x @ w begins behind 18
        ]
    assert joined(session, g, outputs, feeds) == ["concat", "concat"]


def test_what_is_wanted_by_itself_too(fake, session, rng):
    g, feeds = graph(rng, ("n", 8), (8, 16))
    with g:
        x, w = feeds
        product = x @ w
        outputs = [gf.concat([product, gf.exp(x)], axis=1), product]
    assert joined(session, g, outputs, feeds) == ["concat"]


def test_what_reads_sections_reads_them_there(fake, session, rng):
    g, feeds = graph(rng, ("n", 8), (8, 16), (16, 24))
    with g:
        x, v, w = feeds
        first = x @ v
        second = first @ w
        y = gf.concat([gf.concat([first, gf.tanh(first)], axis=1), second], axis=1)
        z = gf.sum(second, axis=0)
    assert joined(session, g, [y, z], feeds) == []


def test_what_copies(fake, session, rng):
    g, feeds = graph(rng, ("n", 24), (2,))
    with g:
        x, v = feeds
        rolled, put = gf.roll(x, 2, axis=1), gf.index_set(x, (slice(None), slice(3, 5)), v)
        y = gf.concat([rolled, gf.exp(x), put], axis=1)
    assert sorted(joined(session, g, [y], feeds)) == ["roll", "slice_set"]
