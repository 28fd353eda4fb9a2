"""Pooling: its gradient alone, and behind a convolution that sees few channels."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Arrays, Formula
from benchmarks.workload import Contest, Target

IMAGES = ((64, 64, 32, 32), (64, 128, 16, 16), (16, 64, 56, 56))
"""The images that are pooled: [N, C, H, W]."""

STEMS = ((16, 3, 64, 5, 32), (64, 1, 28, 5, 6))
"""Images, their channels, height and width, the kernel's size, outputs."""


def _image_and_cotangent(shape: tuple[int, int, int, int]) -> Arrays:
    rng = np.random.default_rng(0)
    n, c, h, w = shape
    return [rng.standard_normal(s, np.float32) for s in (shape, (n, c, h // 2, w // 2))]


def _max_graphfw(x: Any) -> Any:
    import graphfw as gf

    return gf.max_pool(x, 2)


def _max_torch(x: Any) -> Any:
    import torch

    return torch.nn.functional.max_pool2d(x, 2)


def _max_jax(x: Any) -> Any:
    import jax

    windows = (1, 1, 2, 2)
    return jax.lax.reduce_window(x, -np.inf, jax.lax.max, windows, windows, "VALID")


def _gradient(shape: tuple[int, int, int, int]) -> Contest:
    inputs = functools.partial(_image_and_cotangent, shape)
    formula = Formula(inputs, _max_graphfw, torch=_max_torch, jax=_max_jax, wrt=(0,))
    text = "×".join(map(str, shape))
    name = f"max-pool-grad-{text.replace('×', 'x')}"
    title = f"max_pool of 2×2 and its gradient, {text}"
    return Contest(name, title, formula.makers(), (Target(0.9),))


def _stem_inputs(stem: tuple[int, ...]) -> Arrays:
    images, channels, size, kernel, outputs = stem
    rng = np.random.default_rng(0)
    scale = np.float32((channels * kernel * kernel) ** -0.5)
    return [
        rng.standard_normal((images, channels, size, size), np.float32),
        rng.standard_normal((outputs, channels, kernel, kernel), np.float32) * scale,
        rng.standard_normal(outputs, np.float32),
    ]


def _stem_graphfw(x: Any, w: Any, b: Any) -> Any:
    import graphfw as gf

    return gf.avg_pool(gf.relu(gf.conv(x, w, b, padding=w.shape[-1] // 2)), 2)


def _stem_torch(x: Any, w: Any, b: Any) -> Any:
    import torch

    f = torch.nn.functional
    y = f.conv2d(x, w, b, padding=w.shape[-1] // 2)
    return f.avg_pool2d(f.relu(y, inplace=True), 2)


def _stem_jax(x: Any, w: Any, b: Any) -> Any:
    import jax

    pad = w.shape[-1] // 2
    y = jax.lax.conv_general_dilated(x, w, (1, 1), ((pad, pad), (pad, pad)))
    y = jax.nn.relu(y + b[:, None, None])
    windows = (1, 1, 2, 2)
    return jax.lax.reduce_window(y, 0.0, jax.lax.add, windows, windows, "VALID") / 4


def _stem(stem: tuple[int, ...]) -> Contest:
    images, channels, size, kernel, outputs = stem
    formula = Formula(
        functools.partial(_stem_inputs, stem),
        _stem_graphfw,
        torch=_stem_torch,
        jax=_stem_jax,
        constants=2,
    )
    name = f"conv-avg-pool-{images}x{channels}x{size}"
    title = (
        f"{kernel}×{kernel} convolution + ReLU + avg_pool of 2×2, {images} images of {size}², "
        f"{channels} to {outputs} channels"
    )
    return Contest(name, title, formula.makers(), (Target(0.9),), atol=1e-4)


WORKLOADS = [*map(_gradient, IMAGES), *map(_stem, STEMS)]
