"""Training steps: perceptrons, transformers of words and images, a small convolutional network."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Arrays, Formula
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import NETWORKS, contest, each, layers, normal, permuted
from benchmarks.longtail.model import ADAM, SGD, Model
from benchmarks.workload import Contest
from benchmarks.workloads import gpt

ONES = 0
"""In lists of weights' shapes: a vector of ones, (size, ONES), where (size,) is one of zeros."""


def _weights(shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    """Return matrices [in, out] and kernels [out, in, h, w] of a new network's scale; vectors."""
    rng = np.random.default_rng(0)
    arrays = []
    for shape in shapes:
        if len(shape) == 1 or shape[1] == ONES:
            arrays.append(np.full(shape[0], len(shape) - 1, np.float32))
            continue
        inputs = shape[0] if len(shape) == 2 else int(np.prod(shape[1:]))
        arrays.append(rng.standard_normal(shape, np.float32) / np.float32(inputs**0.5))
    return arrays


def _labelled(shape: tuple[int, ...], classes: int) -> list[Arrays]:
    """Return 8 batches of random inputs with random labels."""
    rng = np.random.default_rng(1)
    return [
        [rng.standard_normal(shape, np.float32), rng.integers(0, classes, shape[0])]
        for _ in range(8)
    ]


def _steps(title: str, model: Model, **more: Any) -> Contest:
    return Contest("", title, model.makers(), rtol=2e-3, checks=3, **more)


# A perceptron of some layers


def _perceptron(xp: Any, held: Any, x: Any, labels: Any) -> Any:
    of = layers(xp)
    *inner, last, shift = held
    for w, b in zip(inner[::2], inner[1::2], strict=True):
        x = of.relu(x @ w + b)
    return of.cross_entropy(x @ last + shift, labels)


def perceptron_step(draw: Draw) -> Contest:
    widths = [draw.size(32, 1024), *[draw.size(64, 1024) for _ in range(draw.choice(1, 2, 4))]]
    widths.append(draw.size(2, 100))
    batch, optimiser = draw.size(8, 512), draw.choice(ADAM, SGD)
    shapes = [s for a, b in itertools.pairwise(widths) for s in ((a, b), (b,))]
    model = Model(
        functools.partial(_weights, tuple(shapes)),
        functools.partial(_labelled, (batch, widths[0]), widths[-1]),
        each(_perceptron, NETWORKS),
        optimiser,
        1e-3,
    )
    sizes = "-".join(map(str, widths))
    return _steps(f"a training step of a perceptron {sizes}, batch {batch}, {optimiser}", model)


# A GPT, and one of many equal layers


def _gpt(draw: Draw, layers_: int, width: int, batch: int, time: int) -> Contest:
    heads = max(1, width // draw.choice(32, 64))
    width = heads * (width // heads)
    net = gpt.Gpt(layers_, width, heads, time, batch, draw.size(64, 2000))
    return Contest(
        "",
        f"a training step with AdamW of a GPT: {net}",
        gpt.makers(net, gpt.STEPS),
        rtol=2e-3,
        checks=3,
    )


def gpt_step(draw: Draw) -> Contest:
    width, batch = draw.size(128, 512, multiple=64), draw.size(2, 16)
    return _gpt(draw, draw.choice(2, 3, 4), width, batch, draw.size(32, 256, least=4))


def equal_layers_step(draw: Draw) -> Contest:
    width, batch = draw.size(128, 320, multiple=64), draw.size(1, 8)
    return _gpt(draw, draw.size(8, 32, least=3), width, batch, draw.size(32, 128, least=4))


# A transformer of image patches


def _vit_shapes(depth: int, width: int, patch: int, count: int, classes: int) -> Any:
    layer = [(width, ONES), (width,), (width, 3 * width), (3 * width,), (width, width), (width,)]
    layer += [(width, ONES), (width,), (width, 4 * width), (4 * width,)]
    layer += [(4 * width, width), (width,)]
    ends = [(width, ONES), (width,), (width, classes), (classes,)]
    return ((3 * patch * patch, width), (count, width), *layer * depth, *ends)


def _vit(xp: Any, held: Any, x: Any, labels: Any, *, heads: int, patch: int) -> Any:
    of = layers(xp)
    batch, side = x.shape[0], x.shape[2] // patch
    patches = xp.reshape(x, (batch, 3, side, patch, side, patch))
    x = permuted(xp, patches, (0, 2, 4, 1, 3, 5))
    h = xp.reshape(x, (batch, side * side, -1)) @ held[0] + held[1]
    for first in range(2, len(held) - 4, 12):
        s1, b1, qkv, qkv_b, out, out_b, s2, b2, up, up_b, down, down_b = held[first : first + 12]
        h = h + _attended(xp, of.layer_norm(h, s1, b1) @ qkv + qkv_b, heads, False) @ out + out_b
        h = h + of.gelu(of.layer_norm(h, s2, b2) @ up + up_b) @ down + down_b
    scale, shift, head, head_b = held[-4:]
    return of.cross_entropy(xp.mean(of.layer_norm(h, scale, shift), axis=1) @ head + head_b, labels)


def _attended(xp: Any, joined: Any, heads: int, causal: bool) -> Any:
    """Return attention of queries, keys and values that lie side by side.  joined: [b, t, 3 w]."""
    batch, time, width = joined.shape
    projections = xp.reshape(joined, (batch, time, 3, heads, width // 3 // heads))
    q, k, v = (xp.swapaxes(projections[:, :, i], 1, 2) for i in range(3))
    y = xp.swapaxes(layers(xp).attention(q, k, v, causal), 1, 2)
    return xp.reshape(y, (batch, time, width // 3))


def vit_step(draw: Draw) -> Contest:
    depth, heads, patch = draw.choice(2, 4, 6), draw.choice(2, 3, 4), draw.choice(4, 8)
    width, side = 64 * heads, draw.size(4, 12)
    batch, classes = draw.size(2, 16), draw.size(10, 100)
    shapes = _vit_shapes(depth, width, patch, side * side, classes)
    size = side * patch
    model = Model(
        functools.partial(_weights, shapes),
        functools.partial(_labelled, (batch, 3, size, size), classes),
        each(_vit, NETWORKS, heads=heads, patch=patch),
        ADAM,
        1e-3,
    )
    title = f"a training step of a vision transformer: {depth} layers, {width} wide, {heads} heads"
    return _steps(f"{title}, {side}×{side} patches, batch {batch}", model)


# A block as in Llama: rotary positions, grouped keys, a gated MLP; and its gradients


def _llama_inputs(batch: int, time: int, heads: int, shared: int, inner: int) -> Arrays:
    size = 64
    width, keys = heads * size, heads // shared * size
    attention = ((width, ONES), (width, width), (width, keys), (width, keys), (width, width))
    shapes = (*attention, (width, ONES), (width, inner), (width, inner), (inner, width))
    x, ct = normal((batch, time, width), (batch, time, width))
    angles = np.arange(time)[:, None] * 1e4 ** (-np.arange(size // 2) / (size // 2))
    turns = [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
    return [x, *_weights(shapes), *turns, ct]


def _rotated(xp: Any, x: Any, cosines: Any, sines: Any) -> Any:
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return xp.concat([a * cosines - b * sines, b * cosines + a * sines], axis=-1)


def _llama(
    xp: Any,
    x: Any,
    s1: Any,
    wq: Any,
    wk: Any,
    wv: Any,
    out: Any,
    s2: Any,
    gate: Any,
    up: Any,
    down: Any,
    cosines: Any,
    sines: Any,
) -> Any:
    of = layers(xp)
    batch, time, width = x.shape
    h = of.rms_norm(x, s1)

    def split(y: Any) -> Any:
        return xp.swapaxes(xp.reshape(y, (batch, time, y.shape[-1] // 64, 64)), 1, 2)

    q = _rotated(xp, split(h @ wq), cosines, sines)
    k, v = _rotated(xp, split(h @ wk), cosines, sines), split(h @ wv)
    shared = width // wk.shape[-1]
    if shared > 1:
        k, v = (
            xp.reshape(xp.stack([y] * shared, axis=2), (batch, width // 64, time, 64))
            for y in (k, v)
        )
    y = xp.reshape(xp.swapaxes(of.attention(q, k, v, True), 1, 2), (batch, time, width))
    x = x + y @ out
    h = of.rms_norm(x, s2)
    return x + (of.silu(h @ gate) * (h @ up)) @ down


def llama_block_grad(draw: Draw) -> Contest:
    batch, time = draw.size(1, 4), draw.size(64, 512, least=4)
    heads, shared = draw.choice(4, 8), draw.choice(1, 2, 4)
    inner = draw.size(512, 1536, multiple=16)
    formula = Formula(
        functools.partial(_llama_inputs, batch, time, heads, shared, inner),
        **each(_llama, NETWORKS),
        wrt=tuple(range(10)),
    )
    title = f"a Llama block and its gradients, {batch}×{time}×{heads * 64}, {shared} heads a key"
    return contest(title, formula, compiled=True, rtol=1e-2, atol=1e-3)


# A small convolutional network


def _convnet(xp: Any, held: Any, x: Any, labels: Any) -> Any:
    of = layers(xp)
    k1, b1, k2, b2, w, b = held
    h = of.max_pool(of.relu(of.conv(x, k1, padding=1) + b1[:, None, None]), 2)
    h = of.max_pool(of.relu(of.conv(h, k2, padding=1) + b2[:, None, None]), 2)
    return of.cross_entropy(xp.reshape(h, (x.shape[0], -1)) @ w + b, labels)


def convnet_step(draw: Draw) -> Contest:
    batch, size, channels = draw.size(8, 128), draw.size(16, 64, multiple=4), draw.choice(1, 3)
    first, second = draw.size(8, 64), draw.size(16, 96)
    flat = second * (size // 4) ** 2
    shapes = (
        (first, channels, 3, 3),
        (first,),
        (second, first, 3, 3),
        (second,),
        (flat, 10),
        (10,),
    )
    model = Model(
        functools.partial(_weights, shapes),
        functools.partial(_labelled, (batch, channels, size, size), 10),
        each(_convnet, NETWORKS),
        SGD,
        1e-2,
    )
    title = f"a training step of two convolutions to {first} and {second} channels"
    return _steps(f"{title}, {batch}×{channels}×{size}×{size}", model)


FAMILIES = {
    perceptron_step: 2,
    gpt_step: 1,
    equal_layers_step: 1,
    vit_step: 1,
    llama_block_grad: 1,
    convnet_step: 1,
}
"""Each with how many workloads a run draws from it."""
