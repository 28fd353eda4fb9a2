"""Attention in sessions on the stand-in for CuPy: with its gradients, among other operations."""

import numpy as np
import pytest

import graphfw as gf
from tests.strict_xp import plain_array
from tests.support.cuda_compilers import compiled

HEADS, WIDTH = 4, 8


@pytest.fixture(autouse=True)
def by_kernels(monkeypatch):
    """Use graphfw's own kernels, also on a GPU where cuDNN is installed."""
    monkeypatch.setenv("GRAPHFW_CUDNN", "0")


def agree(g, fetches, feeds, rtol=1e-5):
    """Run on the CPU and on the stand-in; return what the plan says of the latter."""
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile(fetches, list(feeds))
        found = [session.executor.to_host(x) for x in plan(*feeds.values())]
        text = plan.explain(*[array.shape for array in feeds.values()])
    with gf.Session(g) as session:
        wanted = session.run(fetches, feeds)
    for a, b in zip(found, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max(initial=1))
    return text


def heads_of(x, shared=1):
    """Cut a projection into q, k and v; so many heads of queries share keys and values."""
    split = gf.permute_dims(gf.reshape(x, (*x.shape[:2], -1, WIDTH)), (0, 2, 1, 3))
    keys = HEADS // shared
    q, k, v = split[:, :HEADS], split[:, HEADS : HEADS + keys], split[:, HEADS + keys :]
    if shared == 1:
        return q, k, v
    grouped = gf.reshape(q, (q.shape[0], keys, shared, *q.shape[2:]))
    return grouped, gf.expand_dims(k, axis=2), gf.expand_dims(v, axis=2)


@pytest.mark.parametrize(
    ("dtype", "shared", "rtol"),
    [
        (gf.float32, 1, 1e-5),
        pytest.param(gf.float16, 1, 1e-2, marks=pytest.mark.slow),
        (gf.bfloat16, 2, 5e-2),
    ],
    ids=str,
)
def test_a_layer(anywhere, dtype, shared, rtol, rng):
    with gf.Graph() as g:
        columns = (HEADS + 2 * HEADS // shared) * WIDTH
        x = gf.placeholder(("batch", "time", 12), dtype, name="x")
        w = gf.placeholder((12, columns), dtype, name="w")
        y = gf.scaled_dot_product_attention(*heads_of(x @ w, shared), causal=True)
        y = gf.tanh(gf.reshape(y, (x.shape[0], HEADS, -1, WIDTH)))
        fetches = [y, *gf.grad(gf.sum(y * y), [x, w])]
    feeds = {x: rng.normal(size=(2, 21, 12)), w: rng.normal(size=(12, columns)) / 3}
    text = agree(g, fetches, {t: a.astype(dtype.dtype) for t, a in feeds.items()}, rtol)
    assert text.count("  attention: ") == 1
    assert text.count("  attention_grad: ") == 2
    assert "attention: by CuPy" not in text
    assert "attention_grad: by CuPy" not in text


def test_composed_attention_and_several_sizes(anywhere, rng):
    with gf.Graph() as g:
        q = gf.placeholder(("batch", "queries", 16), name="q")
        k = gf.placeholder(("batch", "keys", 16), name="k")
        seen = gf.placeholder(("batch", 1, "keys"), gf.bool, name="seen")
        scores = gf.where(seen, q @ gf.matrix_transpose(k) / 4.0, -np.inf)
        y = gf.softmax(scores, axis=-1) @ k
    with gf.Session(g, executor="cupy") as session, gf.Session(g) as other:
        plan = session.compile(y, [q, k, seen])
        assert "  attention: " in plan.explain()
        for batch, queries, keys in ((2, 70, 33), (1, 3, 600), (0, 3, 4), (2, 5, 0)):
            shapes = ((batch, queries, 16), (batch, keys, 16))
            arrays = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
            arrays.append(rng.uniform(size=(batch, 1, keys)) < 0.7)
            wanted = other.run(y, dict(zip((q, k, seen), arrays, strict=True)))
            found = session.executor.to_host(plan(*arrays))
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("fill", [-1e9, -2.0])
def test_masked_scores_that_are_a_number(anywhere, fill, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 2, "time", 16), name="x")
        seen = gf.placeholder(("batch", 1, 1, "time"), gf.bool, name="seen")
        rows = gf.arange(x.shape[2])
        y = gf.softmax(gf.where(rows[:, None] >= rows, x @ x.mT / 4, fill)) @ x
        y = gf.softmax(gf.where(seen, y @ y.mT / 4, fill)) @ y
        fetches = [y, gf.grad(gf.sum(y * y), x)]
    feeds = {x: rng.normal(size=(3, 2, 37, 16)).astype(np.float32)}
    feeds[seen] = rng.uniform(size=(3, 1, 1, 37)) < [[[[0.7]]], [[[0]]], [[[2]]]]
    text = agree(g, fetches, feeds)
    assert "  attention: " in text
    assert "attention_grad: " in text
    assert "attention: by CuPy" not in text


def test_tf32_is_a_choice(fake):
    with gf.Graph() as g:
        x = gf.placeholder((40, 8), name="x")
        y = gf.scaled_dot_product_attention(x, x, x)
    for precision, engine in (("highest", "gf_by_cores<float>"), ("high", "gf_by_tf32")):
        with gf.Session(g, executor="cupy", matmul_precision=precision) as session:
            kernels = session.compile(y, [x]).source().rsplit('extern "C"')[1:]
        assert any([engine in kernel for kernel in kernels])


@pytest.mark.parametrize(
    ("width", "dtype"), [("width", gf.float32), (300, gf.float16), (130, gf.float64)], ids=str
)
def test_what_is_left_to_cupy(fake, width, dtype, rng):
    with gf.Graph() as g:
        x = gf.placeholder((40, width), dtype, name="x")
        y = gf.scaled_dot_product_attention(x, x, x)
    data = rng.normal(size=(40, 5 if width == "width" else width)).astype(dtype.dtype)
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile(y, [x])
        found = plain_array(plan(data)).astype(np.float64)
        assert "attention: by CuPy, made at " in plan.explain()
    with gf.Session(g) as session:
        wanted = session.run(y, {x: data}).astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_with_a_convolution_in_one_module(fake, rng):
    with gf.Graph() as g:
        x = gf.placeholder((2, 16, 5, 9), gf.float16, name="x")
        w = gf.placeholder((16, 16, 3, 3), gf.float16, name="w")
        y = gf.matrix_transpose(gf.reshape(gf.conv(x, w, padding=1), (2, 16, 45)))
        z = gf.scaled_dot_product_attention(y, y, y)
    feeds = {t: rng.normal(size=t.shape).astype(np.float16) / 3 for t in (x, w)}
    with gf.Session(g, executor="cupy") as session:
        plan = session.compile(z, [x, w])
        found = plain_array(plan(*feeds.values())).astype(np.float64)
        source = plan.source()
    with gf.Session(g) as session:
        wanted = session.run(z, feeds).astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)
    assert "gf_attention<" in source
    assert "gf_conv" in source
    assert compiled(source, "sm_80")
