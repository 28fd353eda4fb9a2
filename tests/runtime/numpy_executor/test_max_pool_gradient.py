"""Gradients of maxima of windows side by side: found and sent in one step."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import as_dtype
from graphfw.transforms.grad import grad
from tests.runtime.numpy_executor.special_runs import assert_native


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def routed(monkeypatch, g, y, feeds, *, is_routed=True):
    """Run a gradient, and see that it is what node by node gives, to the bit."""
    with monkeypatch.context() as context, gf.Session(g) as session:
        context.setenv("GRAPHFW_JIT", "0")
        wanted = session.run(y, feeds)
    with gf.Session(g, threads=2) as session:
        plan = session.compile(y, list(feeds))
        assert_native(plan)
        names = [node.op.name for step in plan._run.build.steps for node in step.nodes]
        assert ("window_route" in names) == is_routed
        assert ("window_put" in names) != is_routed
        found = plan(*feeds.values())
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    bits = f"u{found.dtype.itemsize}"
    np.testing.assert_array_equal(found.view(bits), wanted.view(bits))
    return found


def gradient(shape, window, dtype="float32", dims=None):
    """Return a graph with a gradient of max_pool, and its placeholders."""
    with gf.Graph() as g:
        x = gf.placeholder(dims or shape, dtype, name="x")
        pooled = gf.max_pool(x, window)
        given = gf.placeholder(pooled.shape, dtype, name="given")
        return g, grad(gf.sum(pooled * given), x), [x, given]


def images(rng, shape, dtype):
    """Return images with many elements that tie, some NaNs and both zeros."""
    x = rng.integers(-2, 3, shape).astype(np.float64) * rng.choice([-1.0, 1.0], shape)
    x[rng.random(shape) < 0.1] = np.nan
    x[rng.random(shape) < 0.1] = -np.inf
    return x.astype(as_dtype(dtype).dtype)


SHAPES = [
    ((2, 3, 12, 40), 2),
    ((3, 2, 5, 33), 2),
    ((2, 5, 14, 14), 2),
    ((1, 2, 16, 16), 2),
    ((4, 1, 7, 5), (3, 2)),
    ((2, 3, 6, 2), (1, 2)),
    ((2, 2, 9, 3), (4, 2)),
    ((3, 4, 67), 2),
    ((0, 3, 4, 4), 2),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("shape", "window"), SHAPES)
@pytest.mark.parametrize("dims", ["known", "open"])
def test_sizes(monkeypatch, rng, shape, window, dims):
    names = None if dims == "known" else ("n", shape[1], *"hw"[: len(shape) - 2])
    g, y, tensors = gradient(shape, window, dims=names)
    rank = len(shape) - 2
    steps = (window,) * rank if isinstance(window, int) else window
    indices = [size // step for size, step in zip(shape[2:], steps, strict=True)]
    given = rng.standard_normal((*shape[:2], *indices)).astype(np.float32)
    given[rng.random(given.shape) < 0.2] = -0.0
    x = images(rng, shape, "float32")
    found = routed(monkeypatch, g, y, dict(zip(tensors, [x, given], strict=True)))
    np.testing.assert_allclose(found.sum(dtype="f8"), given.sum(dtype="f8"), 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_dtypes(monkeypatch, rng, dtype):
    g, y, tensors = gradient((2, 3, 8, 38), 2, dtype)
    arrays = [images(rng, (2, 3, 8, 38), dtype), images(rng, (2, 3, 4, 19), dtype)]
    routed(monkeypatch, g, y, dict(zip(tensors, arrays, strict=True)))


def test_windows_of_larger_images(monkeypatch, rng):
    with gf.Graph() as g:
        x = gf.placeholder((3, 5, 20, 50), name="x")
        cropped = x[:, 1:4, 2:18, 4:44]
        y = grad(gf.sum(gf.sin(gf.max_pool(cropped, 2))), cropped)
    routed(monkeypatch, g, y, {x: images(rng, (3, 5, 20, 50), "float32")})


VIEWS = {
    "channels behind": lambda x, c: (gf.permute_dims(x, (0, 3, 1, 2)), c),
    "one number for all": lambda x, c: (x, gf.broadcast_to(c[:1, :1, :1, :1], c.shape)),
    "every second": lambda x, c: (x[..., ::2], c[..., ::2]),
    "both": lambda x, c: (gf.permute_dims(x, (0, 3, 2, 1)), gf.permute_dims(c, (0, 1, 3, 2))),
    "planes apart": lambda x, c: (x[:, ::2, 1:, :-1], c[:, ::2]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(monkeypatch, rng, name):
    with gf.Graph() as g:
        x = gf.placeholder((2, 8, 8, 8), name="x")
        c = gf.placeholder((2, 8, 4, 4), name="c")
        seen, given = VIEWS[name](x, c)
        pooled = gf.max_pool(seen, 2)
        y = grad(gf.sum(pooled * given[..., : pooled.shape[2], : pooled.shape[3]]), seen)
    feeds = {x: images(rng, (2, 8, 8, 8), "float32"), c: images(rng, (2, 8, 4, 4), "float32")}
    routed(monkeypatch, g, y, feeds)


OTHERS = {
    "overlapping": lambda x: gf.max_pool(x, 2, stride=1),
    "apart": lambda x: gf.max_pool(x, 2, stride=3),
    "wide": lambda x: gf.max_pool(x, 3),
    "padded": lambda x: gf.max_pool(x, 2, padding=1),
    "at the end": lambda x: gf.max_pool(x[..., :7], 2, ceil_mode=True),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_windows_are_not(monkeypatch, rng, name):
    with gf.Graph() as g:
        x = gf.placeholder((2, 3, 8, 8), name="x")
        y = grad(gf.sum(OTHERS[name](x) ** 2), x)
    routed(monkeypatch, g, y, {x: images(rng, (2, 3, 8, 8), "float32")}, is_routed=False)


def test_places_that_are_wanted_too(monkeypatch, rng):
    with gf.Graph() as g:
        x = gf.placeholder((2, 3, 8, 8), name="x")
        pooled, indices = gf.max_pool(x, 2, return_indices=True)
        y = grad(gf.sum(pooled * gf.astype(indices, gf.float32)), x)
    routed(monkeypatch, g, y, {x: images(rng, (2, 3, 8, 8), "float32")}, is_routed=False)
