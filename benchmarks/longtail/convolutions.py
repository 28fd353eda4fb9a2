"""Convolutions beside the plain ones: by channel, in groups, of one dim, and grid samples."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Arrays, Formula
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import NETWORKS, contest, each, layers, name_of, normal
from benchmarks.workload import Contest


def _side(size: int, kernel: int, stride: int, padding: int) -> int:
    return (size + 2 * padding - kernel) // stride + 1


# A convolution with groups, and its gradients.  x: [n, c, s, s], w: [o, c / groups, k, k]


def _conv(xp: Any, x: Any, w: Any, *, stride: int, padding: int, groups: int) -> Any:
    return layers(xp).conv(x, w, stride=stride, padding=padding, groups=groups)


def _conv_inputs(
    shape: tuple[int, ...], weight: tuple[int, ...], result: tuple[int, ...]
) -> Arrays:
    x, w = normal(shape, weight)
    w /= np.float32(np.prod(weight[1:]) ** 0.5)
    return [x, w, *(normal(result, seed=1) if result else [])]


def _contest(
    what: str,
    shape: tuple[int, int, int, int],
    outputs: int,
    kernel: int,
    stride: int,
    groups: int,
    backward: bool,
) -> Contest:
    batch, channels, size, _ = shape
    padding = kernel // 2
    side = _side(size, kernel, stride, padding)
    weight = (outputs, channels // groups, kernel, kernel)
    result = (batch, outputs, side, side) if backward else ()
    formula = Formula(
        functools.partial(_conv_inputs, shape, weight, result),
        **each(_conv, NETWORKS, stride=stride, padding=padding, groups=groups),
        wrt=(0, 1) if backward else (),
        constants=0 if backward else 1,
    )
    title = f"{kernel}×{kernel} {what}, stride {stride}, {batch}×{channels}×{size}×{size}"
    title += ", and its gradients" if backward else ""
    return contest(title, formula, compiled=not backward, rtol=1e-3, atol=1e-4)


def _depthwise(draw: Draw, backward: bool) -> Contest:
    channels, size = draw.size(16, 384, multiple=4), draw.size(7, 112, least=3)
    kernel, stride = draw.choice(3, 3, 5, 7), draw.choice(1, 1, 2)
    batch = max(1, min(draw.size(1, 32), 8_000_000 // (channels * size * size)))
    shape = (batch, channels, size, size)
    return _contest("by channel", shape, channels, kernel, stride, channels, backward)


def depthwise(draw: Draw) -> Contest:
    return _depthwise(draw, False)


def depthwise_grad(draw: Draw) -> Contest:
    return _depthwise(draw, True)


def grouped_grad(draw: Draw) -> Contest:
    groups, each_has = draw.choice(2, 4, 8, 32), draw.size(4, 32, multiple=4)
    size, stride = draw.size(7, 56, least=3), draw.choice(1, 2)
    channels = groups * each_has
    batch = max(1, min(draw.size(1, 16), 2_000_000 // (channels * size * size)))
    shape = (batch, channels, size, size)
    return _contest(f"in {groups} groups", shape, channels, 3, stride, groups, True)


# A block of MobileNetV2: wider, by channel, narrower, and added to its input


def _block_inputs(batch: int, channels: int, size: int, wider: int) -> Arrays:
    inner = channels * wider
    shapes = [(inner, channels, 1, 1), (inner, 1, 3, 3), (channels, inner, 1, 1)]
    x, ct, *weights = normal((batch, channels, size, size), (batch, channels, size, size), *shapes)
    weights = [w / np.float32(np.prod(w.shape[1:]) ** 0.5) for w in weights]
    scales = [np.ones((c, 1, 1), np.float32) for c in (inner, inner, channels)]
    return [x, *weights, *scales, ct]


def _block(xp: Any, x: Any, up: Any, by: Any, down: Any, *scales: Any) -> Any:
    conv = layers(xp).conv
    h = _cut(xp, conv(x, up) * scales[0])
    h = _cut(xp, conv(h, by, padding=1, groups=by.shape[0]) * scales[1])
    return x + conv(h, down) * scales[2]


def _cut(xp: Any, x: Any) -> Any:
    return xp.clip(x, 0.0, 6.0)


def mobilenet_block_grad(draw: Draw) -> Contest:
    channels, size, wider = draw.size(16, 96, multiple=8), draw.size(7, 56), draw.choice(3, 6)
    batch = max(1, min(draw.size(1, 16), 4_000_000 // (channels * wider * size * size)))
    inputs = functools.partial(_block_inputs, batch, channels, size, wider)
    formula = Formula(inputs, **each(_block, NETWORKS), wrt=tuple(range(7)))
    title = f"a MobileNet block and its gradients, {batch}×{channels}×{size}×{size}, {wider} wider"
    return contest(title, formula, compiled=True, rtol=1e-2, atol=1e-3)


# A convolution of one dim with holes, and its gradients, as in WaveNet.  x: [n, c, t]


def _wave_inputs(batch: int, channels: int, time: int) -> Arrays:
    x, w, ct = normal((batch, channels, time), (channels, channels, 3), (batch, channels, time))
    return [x, w / np.float32((3 * channels) ** 0.5), ct]


def _wave(xp: Any, x: Any, w: Any, *, holes: int) -> Any:
    name = name_of(xp)
    if name == "torch":
        return xp.nn.functional.conv1d(x, w, padding=holes, dilation=holes)
    if name == "jax":
        import jax

        pad = [(holes, holes)]
        return jax.lax.conv_general_dilated(x, w, (1,), pad, rhs_dilation=(holes,))
    return xp.conv(x, w, padding=holes, dilation=holes)


def dilated_1d_grad(draw: Draw) -> Contest:
    batch, channels, time = draw.size(1, 8), draw.size(16, 96), draw.size(500, 8000)
    holes = draw.choice(1, 2, 8)
    formula = Formula(
        functools.partial(_wave_inputs, batch, channels, time),
        **each(_wave, NETWORKS, holes=holes),
        wrt=(0, 1),
    )
    title = f"a convolution of {batch}×{channels}×{time} with dilation {holes}, and its gradients"
    return contest(title, formula, rtol=1e-3, atol=1e-3)


# A convolution's transpose, as decoders have it.  x: [n, c, s, s], w: [c, o, 4, 4]


def _decoder_inputs(batch: int, channels: int, outputs: int, size: int) -> Arrays:
    x, w = normal((batch, channels, size, size), (channels, outputs, 4, 4))
    return [x, w / np.float32((4 * channels) ** 0.5)]


def _decoder(xp: Any, x: Any, w: Any) -> Any:
    name = name_of(xp)
    if name == "torch":
        return xp.nn.functional.conv_transpose2d(x, w, stride=2, padding=1)
    if name == "jax":
        import jax

        numbers = ("NCHW", "OIHW", "NCHW")
        return jax.lax.conv_transpose(
            x, w, (2, 2), "SAME", dimension_numbers=numbers, transpose_kernel=True
        )
    return xp.conv_transpose(x, w, stride=2, padding=1)


def transposed(draw: Draw) -> Contest:
    batch, size = draw.size(1, 8), draw.size(7, 64)
    channels, outputs = draw.size(16, 128), draw.size(8, 64)
    formula = Formula(
        functools.partial(_decoder_inputs, batch, channels, outputs, size),
        **each(_decoder, NETWORKS),
        constants=1,
    )
    title = f"a transposed 4×4 convolution of {batch}×{channels}×{size}×{size} to {outputs}"
    return contest(title, formula, rtol=1e-3, atol=1e-4)


# Samples of images at places, bilinear.  x: [n, c, h, w], grid: [n, i, j, 2]


def _samples(batch: int, channels: int, size: int, wanted: int, backward: bool) -> Arrays:
    rng = np.random.default_rng(1)
    (x,) = normal((batch, channels, size, size))
    grid = rng.uniform(-1.1, 1.1, (batch, wanted, wanted, 2)).astype(np.float32)
    return [x, grid, *(normal((batch, channels, wanted, wanted), seed=2) if backward else [])]


def _sampled(xp: Any, x: Any, grid: Any) -> Any:
    name = name_of(xp)
    if name == "torch":
        return xp.nn.functional.grid_sample(x, grid, align_corners=False)
    if name == "jax":
        import jax

        size = np.array([x.shape[3], x.shape[2]], np.float32)
        coordinates = xp.moveaxis(((grid + 1) * size - 1) / 2, -1, 1)[:, ::-1]
        one = functools.partial(jax.scipy.ndimage.map_coordinates, order=1, mode="constant")
        of_image = jax.vmap(lambda image, point: one(image, [*point]), in_axes=(0, None))
        return jax.vmap(of_image)(x, coordinates)
    return xp.grid_sample(x, grid)


def _grid(draw: Draw, backward: bool) -> Contest:
    batch, channels = draw.size(1, 16), draw.choice(3, 8, 16, 32)
    size, wanted = draw.size(32, 256, least=4), draw.size(32, 192, least=4)
    batch = max(1, min(batch, 4_000_000 // (channels * max(size, wanted) ** 2)))
    formula = Formula(
        functools.partial(_samples, batch, channels, size, wanted, backward),
        **each(_sampled, NETWORKS),
        wrt=(0, 1) if backward else (),
    )
    title = f"{batch}×{channels}×{size}×{size} sampled at {wanted}×{wanted} places"
    title += ", and gradients" if backward else ""
    return contest(title, formula, rtol=1e-2, atol=1e-3)


def grid_sample(draw: Draw) -> Contest:
    return _grid(draw, False)


def grid_sample_grad(draw: Draw) -> Contest:
    return _grid(draw, True)


FAMILIES = {
    depthwise: 1,
    depthwise_grad: 1,
    grouped_grad: 1,
    mobilenet_block_grad: 1,
    dilated_1d_grad: 1,
    transposed: 1,
    grid_sample: 1,
    grid_sample_grad: 1,
}
"""Each with how many workloads a run draws from it."""
