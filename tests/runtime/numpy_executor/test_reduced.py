"""Convolutions whose epilogues reduce what they compute over all places."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor.convolution import pooled, strategies
from tests.runtime.numpy_executor.pooled_runs import agree, drawn

TOLERANCES = {"float64": 1e-12, "float32": 3e-5, "float16": 2e-3, "bfloat16": 2e-2}


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setattr(pooled, "_POOLING", 1e9)  # whatever it takes


def only(monkeypatch, name):
    """Compute convolutions by one strategy."""
    every = strategies.strategies_of

    def some(*args, **how):
        return [one for one in every(*args, **how) if one.name == name]

    monkeypatch.setattr(strategies, "strategies_of", some)


SHAPES = [
    # images, channels, outputs, groups, size, kernel, stride, padding
    (1, 20, 70, 1, (13, 13), 1, 1, 0),
    (3, 9, 33, 1, (7, 7), 3, 1, 1),
    (2, 6, 8, 2, (9, 6), 3, 2, 1),
    (5, 3, 1, 1, (1, 40), (1, 3), 1, 0),
    (2, 4, 17, 1, (16, 16), 3, 1, 1),
    (4, 300, 45, 1, (5, 5), 1, 1, 0),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("sizes", SHAPES)
def test_sizes(monkeypatch, rng, sizes, dtype):
    images, channels, outputs, groups, size, kernel, stride, padding = sizes
    kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
    with gf.Graph() as g:
        x = gf.placeholder(("n", channels, *size), dtype, name="x")
        w = gf.asarray(drawn(rng, (outputs, channels // groups, *kernel), dtype))
        b = gf.asarray(drawn(rng, (outputs, 1, 1), dtype))
        y = gf.relu(gf.conv(x, w, stride=stride, padding=padding, groups=groups) + b)
        fetches = [gf.mean(y, axis=(2, 3), keepdims=True)]
    for n in (0, 1, images):
        feeds = {x: drawn(rng, (n, channels, *size), dtype)}
        agree(monkeypatch, g, fetches, feeds, fused=True, pool="sum", rtol=TOLERANCES[dtype])


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["direct", "pixel-major", "winograd-4x4", "winograd-2x2"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("size", [(7, 7), (13, 14), (4, 4)])
def test_strategies(monkeypatch, rng, way, batch, size):
    only(monkeypatch, way)
    with gf.Graph() as g:
        x = gf.placeholder((batch, 24, *size), name="x")
        r = gf.placeholder((batch, 50, *size), name="r")
        w = gf.asarray(drawn(rng, (50, 24, 3, 3)) / 15)
        y = gf.relu(gf.conv(x, w, padding=1) + r)
        fetches = [gf.mean(y, axis=(2, 3)), gf.max(y, axis=(2, 3))]
    feeds = {one: drawn(rng, one.shape) for one in (x, r)}
    agree(monkeypatch, g, fetches, feeds, fused=True, pool="sum")


AFTERWARDS = {
    "nothing": lambda y: [gf.max(y, axis=(2, 3))],
    "an affine function": lambda y: [2 * gf.mean(y, axis=(2, 3)) + 1],
    "softmax": lambda y: [gf.softmax(gf.mean(y, axis=(2, 3)), axis=1)],
    "a product": lambda y: [gf.mean(y, axis=(2, 3)) @ gf.asarray(np.eye(40, 5, dtype="float32"))],
    "itself": lambda y: [gf.sum(y, axis=(2, 3)), y],
    "itself, centred": lambda y: [y - gf.mean(gf.relu(y), axis=(2, 3), keepdims=True)],
    "sums over one axis": lambda y: [gf.sum(y, axis=2)],
    "sums over all": lambda y: [gf.sum(y)],
    "sums over images": lambda y: [gf.sum(y, axis=(0, 2, 3))],
    "a place": lambda y: [gf.argmax(gf.reshape(y, (2, 40, 30)), axis=2)],
}
FUSED = ("nothing", "an affine function", "softmax", "a product", "itself", "itself, centred")


@pytest.mark.parametrize("what", AFTERWARDS)
def test_what_is_done_afterwards(monkeypatch, rng, what):
    with gf.Graph() as g:
        x = gf.placeholder((2, 7, 6, 5), name="x")
        y = gf.relu(gf.conv(x, gf.asarray(drawn(rng, (40, 7, 1, 1)) / 9)))
        fetches = AFTERWARDS[what](y)
    feeds = {x: drawn(rng, (2, 7, 6, 5))}
    pool = "max" if what == "nothing" else "sum"
    if what in FUSED:
        agree(monkeypatch, g, fetches, feeds, fused=True, pool=pool)
    else:
        agree(monkeypatch, g, fetches, feeds, fused=False, pool=pool, rtol=2e-4)


def test_nan_and_infinity_reach_their_own_numbers(monkeypatch, rng):
    with gf.Graph() as g:
        x = gf.placeholder((2, 3, 6, 6), name="x")
        y = gf.conv(x, gf.asarray(drawn(rng, (5, 3, 1, 1))))
        fetches = [gf.max(y, axis=(2, 3)), gf.mean(y, axis=(2, 3))]
    array = drawn(rng, (2, 3, 6, 6))
    array[0, 1, 2, 3], array[1, 0, 5, 5] = np.nan, np.inf
    agree(monkeypatch, g, fetches, {x: array}, fused=True, pool="max")


def test_large_images_and_symbolic_ones_are_reduced_apart(monkeypatch, rng):
    for size in ((20, 20), ("h", 6)):
        with gf.Graph() as g:
            x = gf.placeholder((2, 3, *size), name="x")
            y = gf.relu(gf.conv(x, gf.asarray(drawn(rng, (5, 3, 1, 1)))))
            fetches = [gf.mean(y, axis=(2, 3))]
        agree(
            monkeypatch, g, fetches, {x: drawn(rng, (2, 3, 20, size[1]))}, fused=False, pool="sum"
        )


def test_a_single_row_is_reduced_apart(monkeypatch, rng):
    with gf.Graph() as g:
        x = gf.placeholder((1, 3, 41), name="x")
        y = gf.tanh(gf.conv(x, gf.asarray(drawn(rng, (1, 3, 2))), stride=2))
        fetches = [gf.max(y, axis=2, keepdims=True)]
    agree(monkeypatch, g, fetches, {x: drawn(rng, x.shape)}, fused=False, pool="max")


def test_the_estimate_decides(monkeypatch, rng):
    monkeypatch.undo()
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Graph() as g:
        x = gf.placeholder((1, 512, 13, 13), name="x")
        y = gf.relu(gf.conv(x, gf.asarray(drawn(rng, (1000, 512, 1, 1)) / 20)))
        fetches = [gf.mean(y, axis=(2, 3))]
    feeds = {x: drawn(rng, x.shape)}
    agree(monkeypatch, g, fetches, feeds, fused=True, pool="sum")
    monkeypatch.setattr(pooled, "_POOLING", -1e9)
    agree(monkeypatch, g, fetches, feeds, fused=False, pool="sum")
