"""Convolutions that are computed with what pools them."""

from functools import partial

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.dtype import float32
from graphfw.ops.nn.pooling_ops import WindowMax
from graphfw.runtime.numpy_executor.convolution import pooled
from graphfw.runtime.numpy_executor.matmul.amx import tiles_for
from graphfw.transforms.grad import grad
from tests.runtime.numpy_executor.pooled_runs import agree, drawn
from tests.support.kernels import with_avx512


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setattr(pooled, "_POOLING", 1e9)  # whatever it takes


SHAPES = [
    # images, channels, outputs, groups, size, kernel, stride, padding, window, step, padding
    (1, 3, 64, 1, (45, 47), 3, 2, 0, 3, 2, 0),
    (2, 3, 40, 1, (31, 29), 7, 2, 3, 3, 2, 1),
    (3, 4, 18, 2, (12, 40), 3, 1, 1, 2, 2, 0),
    (1, 1, 1, 1, (9, 9), 1, 1, 0, 4, 1, 2),
    (2, 2, 33, 1, (40, 5), (5, 1), 1, 0, (3, 2), (4, 3), 0),
    (1, 5, 16, 1, (3, 300), 3, 1, 1, (1, 3), (1, 1), (0, 1)),
    (2, 3, 8, 1, (7, 7), 3, 1, 0, 4, 4, 0),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize("batch", ["known", "n"])
def test_sizes(monkeypatch, rng, sizes, batch):
    images, channels, outputs, groups, size, kernel, stride, padding, window, step, around = sizes
    kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
    with gf.Graph() as g:
        x = gf.placeholder((images if batch == "known" else "n", channels, *size), name="x")
        w = gf.asarray(drawn(rng, (outputs, channels // groups, *kernel)))
        b = gf.asarray(drawn(rng, (outputs, 1, 1)))
        y = gf.conv(x, w, stride=stride, padding=padding, groups=groups)
        y = gf.max_pool(gf.relu(y - b), window, stride=step, padding=around)
    feeds = {x: drawn(rng, (images, channels, *size))}
    agree(monkeypatch, g, [y, gf_sum(g, y)], feeds, fused=True)


def gf_sum(g, y):
    with g:
        return gf.sum(y, axis=(2, 3))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("after", ["nothing", "bias", "residual"])
def test_what_is_done_afterwards(monkeypatch, rng, dtype, after):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3, 21, 22), dtype, name="x")
        r = gf.placeholder(("n", 12, 10, 10), dtype, name="r")
        w = gf.asarray(drawn(rng, (12, 3, 3, 3), dtype))
        y = gf.conv(x, w)
        if after == "bias":
            bias = gf.asarray(drawn(rng, (1, 12, 1, 1), dtype))
            y = gf.minimum(gf.maximum(bias + y, 0.25), 3)
        y = gf.max_pool(y, 3, stride=2, padding=1)
        y = gf.tanh(y[:, :, :10] + r) if after == "residual" else y
    for n in (0, 1, 3):
        feeds = {x: drawn(rng, (n, 3, 21, 22), dtype), r: drawn(rng, (n, 12, 10, 10), dtype)}
        agree(monkeypatch, g, [y], feeds, fused=True)


def test_a_nan_spreads_to_all_windows_that_see_it(monkeypatch, rng):
    with gf.Graph() as g:
        x = gf.placeholder((1, 2, 30, 30), name="x")
        w = gf.asarray(drawn(rng, (5, 2, 3, 3)))
        y = gf.max_pool(gf.relu(gf.conv(x, w) + 1), 3, stride=2)
    array = drawn(rng, (1, 2, 30, 30))
    array[0, 0, 0, 0] = array[0, 1, 17, 14] = array[0, 1, 29, 29] = np.nan
    array[0, 0, 8, 8] = np.inf
    agree(monkeypatch, g, [y], {x: array}, fused=True)


def test_a_section_of_a_concat(monkeypatch, rng):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3, 23, 23), name="x")
        sections = [
            gf.max_pool(gf.conv(x, gf.asarray(drawn(rng, (o, 3, 3, 3)))), 3, stride=2)
            for o in (7, 20)
        ]
        y = gf.relu(gf.concat(sections, axis=1))
    agree(monkeypatch, g, [y], {x: drawn(rng, (2, 3, 23, 23))}, fused=True)


def test_variables_and_weights_that_are_computed(monkeypatch, rng):
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 3, 20, 20), name="x"), gf.placeholder((6, 3, 3, 3), name="w")
        v = gf.Variable(drawn(rng, (6, 1, 1)), name="v")
        y = gf.max_pool(gf.conv(gf.sin(x), w * 2), 2) + v
    feeds = {x: drawn(rng, (2, 3, 20, 20)), w: drawn(rng, (6, 3, 3, 3))}
    agree(monkeypatch, g, [y], feeds, fused=True)


def test_what_others_read_is_computed_as_a_whole(monkeypatch, rng):
    with gf.Graph() as g:
        x = gf.placeholder((2, 3, 20, 20), name="x")
        w = gf.asarray(drawn(rng, (6, 3, 3, 3)))
        y = gf.conv(x, w)
        pool = gf.max_pool(y, 3, stride=2)
    feeds = {x: drawn(rng, (2, 3, 20, 20))}
    agree(monkeypatch, g, [pool, y], feeds, fused=False)
    with g:
        more = gf.mean(y, axis=1)
        loss = gf.sum(gf.max_pool(gf.relu(y), 2))
        fetches = [loss, *grad(loss, [x])]
    agree(monkeypatch, g, [pool, more], feeds, fused=False)
    agree(monkeypatch, g, fetches, feeds, fused=False, rtol=2e-4)


@pytest.mark.parametrize(
    "how",
    [
        {"before": (3, 0)},  # a row of windows that see nothing
        {"after": (0, 40)},
        {"dilations": (2, 1)},
        {"window": (5, 5)},
    ],
)
def test_windows_that_are_pooled_apart(monkeypatch, rng, how):
    rule = {"window": (3, 3), "strides": (2, 2), "dilations": (1, 1), "before": (0, 0)}
    with gf.Graph() as g:
        x = gf.placeholder((2, 3, 20, 20), name="x")
        w = gf.asarray(drawn(rng, (6, 3, 3, 3)))
        y = emit(WindowMax(**{**rule, "after": (0, 0), **how}), gf.conv(x, w))
    agree(monkeypatch, g, [y], {x: drawn(rng, (2, 3, 20, 20))}, fused=False)


@with_avx512
def test_the_estimate_decides(monkeypatch, rng):
    monkeypatch.undo()
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    for channels, fused in ((3, True), (64, False)):
        with gf.Graph() as g:
            x = gf.placeholder((1, channels, 80, 80), name="x")
            w = gf.asarray(drawn(rng, (64, channels, 3, 3)) / 8)
            y = gf.max_pool(gf.conv(x, w), 3, stride=2)
        feeds = {x: drawn(rng, (1, channels, 80, 80))}
        agree(monkeypatch, g, [y], feeds, fused=fused, rtol=2e-4)


@with_avx512
def test_matrix_tiles_are_counted_with(monkeypatch):
    monkeypatch.undo()
    with gf.Graph():
        x = gf.placeholder((1, 24, 80, 80), name="x")
        w = gf.asarray(np.zeros((64, 24, 3, 3), np.float32))
        pool = gf.max_pool(gf.conv(x, w), 3, stride=2).node
    decide = partial(pooled.pools_while_computed, pool.inputs[0].node, pool, winograd=False)
    assert decide()
    assert not decide(tiles=tiles_for("amx", float32, "high"))


SUMS = [
    # images, channels, outputs, groups, size, kernel, stride, padding, window, step
    (1, 3, 64, 1, (45, 47), 3, 2, 0, 2, 2),
    (2, 1, 6, 1, (28, 28), 5, 1, 2, 2, 2),
    (3, 4, 18, 2, (12, 40), 3, 1, 1, (2, 3), (2, 1)),
    (1, 2, 33, 1, (9, 31), 1, 1, 0, 3, 2),
    (0, 3, 8, 1, (8, 8), 3, 1, 0, 2, 2),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("sizes", SUMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("added", ["bias", "nothing"])
def test_sums_of_relus(monkeypatch, rng, sizes, dtype, added):
    images, channels, outputs, groups, size, kernel, stride, padding, window, step = sizes
    with gf.Graph() as g:
        x = gf.placeholder(("n", channels, *size), dtype, name="x")
        w = gf.asarray(drawn(rng, (outputs, channels // groups, kernel, kernel), dtype))
        y = gf.conv(x, w, stride=stride, padding=padding, groups=groups)
        if added == "bias":
            y = gf.asarray(drawn(rng, (outputs, 1, 1), dtype)) + y
        y = gf.avg_pool(gf.relu(y), window, stride=step)
    feeds = {x: drawn(rng, (images, channels, *size), dtype)}
    agree(monkeypatch, g, [y, gf_sum(g, y)], feeds, fused=True, pool="window_relu_sum")


def test_sums_of_relus_that_are_nan_or_nothing(monkeypatch, rng):
    with gf.Graph() as g:
        x = gf.placeholder((2, 3, 16, 16), name="x")
        w = gf.asarray(drawn(rng, (5, 3, 3, 3)))
        b = gf.asarray(np.float32([[[1e9]], [[-1e9]], [[0]], [[np.inf]], [[np.nan]]]))
        y = gf.avg_pool(gf.relu(gf.conv(x, w) + b), 2)
    array = drawn(rng, (2, 3, 16, 16))
    array[0, 1, 5, 6] = np.nan
    agree(monkeypatch, g, [y], {x: array}, fused=True, pool="window_relu_sum")


OTHER_SUMS = {
    "padded": lambda y, b: gf.avg_pool(gf.relu(y + b), 2, padding=1),
    "tanh": lambda y, b: gf.avg_pool(gf.tanh(y + b), 2),
    "bias of places": lambda y, b: gf.avg_pool(gf.relu(y + gf.arange(14, dtype="float32")), 2),
    "read twice": lambda y, b: (z := gf.relu(y + b)).sum() + gf.avg_pool(z, 2),
    "bias twice": lambda y, b: gf.avg_pool(gf.relu(y + y), 2),
}


@pytest.mark.parametrize("name", OTHER_SUMS)
def test_other_sums_are_steps_of_their_own(monkeypatch, rng, name):
    with gf.Graph() as g:
        x = gf.placeholder((2, 3, 16, 16), name="x")
        conv = gf.conv(x, gf.asarray(drawn(rng, (5, 3, 3, 3))))
        y = OTHER_SUMS[name](conv, gf.asarray(drawn(rng, (5, 1, 1))))
    feeds = {x: drawn(rng, (2, 3, 16, 16))}
    agree(monkeypatch, g, [y], feeds, fused=False, pool="window_relu_sum")
