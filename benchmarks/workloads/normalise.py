"""Normalisation: layer norm, RMS norm, and batch norm in training, with their gradients."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Arrays, Formula
from benchmarks.workload import Contest, Target

ROWS, COLUMNS = 4096, 768
IMAGES = (64, 64, 56, 56)
EPS = 1e-5


def _inputs(parameters: int, differentiated: bool = False) -> Arrays:
    """Return x: [4096, 768], scale and shift: [768], and a cotangent."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, COLUMNS), np.float32) * 2 + 1
    weights = [rng.standard_normal(COLUMNS, np.float32) for _ in range(parameters)]
    return [x, *weights, *([rng.standard_normal(x.shape, np.float32)] if differentiated else [])]


# Layer norm


def _layer_graphfw(x: Any, w: Any, b: Any) -> Any:
    import graphfw as gf

    return gf.layer_norm(x, w, b, axis=-1, eps=EPS)


def _standardised(x: Any) -> tuple[Any, Any]:
    normal = x - x.mean(axis=1, keepdims=True)
    factor = 1 / np.sqrt(np.einsum("ij,ij->i", normal, normal) / np.float32(COLUMNS) + EPS)
    factor = factor.astype(np.float32)[:, None]
    normal *= factor
    return normal, factor


def _layer_numpy(x: Any, w: Any, b: Any) -> Any:
    normal, _ = _standardised(x)
    normal *= w
    normal += b
    return normal


def _layer_numpy_grad(x: Any, w: Any, b: Any, ct: Any) -> Any:
    normal, factor = _standardised(x)
    dx = ct * w
    dx -= dx.mean(axis=1, keepdims=True) + normal * (
        np.einsum("ij,ij->i", dx, normal)[:, None] / np.float32(COLUMNS)
    )
    dx *= factor
    return [normal * w + b, dx, np.einsum("ij,ij->j", ct, normal), ct.sum(axis=0)]


def _layer_torch(x: Any, w: Any, b: Any) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, (COLUMNS,), w, b, EPS)


def _layer_jax(x: Any, w: Any, b: Any) -> Any:
    import jax
    from jax import numpy as jnp

    centred = x - jnp.mean(x, axis=1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + EPS) * w + b


# RMS norm


def _rms_graphfw(x: Any, w: Any) -> Any:
    import graphfw as gf

    return gf.rms_norm(x, w, axis=-1, eps=EPS)


def _rms_factor(x: Any) -> Any:
    factor = 1 / np.sqrt(np.einsum("ij,ij->i", x, x) / np.float32(COLUMNS) + EPS)
    return factor.astype(np.float32)[:, None]


def _rms_numpy(x: Any, w: Any) -> Any:
    y = x * _rms_factor(x)
    y *= w
    return y


def _rms_numpy_grad(x: Any, w: Any, ct: Any) -> Any:
    factor = _rms_factor(x)
    normal = x * factor
    dx = ct * w
    dx -= normal * (np.einsum("ij,ij->i", dx, normal)[:, None] / np.float32(COLUMNS))
    dx *= factor
    return [normal * w, dx, np.einsum("ij,ij->j", ct, normal)]


def _rms_torch(x: Any, w: Any) -> Any:
    import torch

    return torch.nn.functional.rms_norm(x, (COLUMNS,), w, EPS)


def _rms_jax(x: Any, w: Any) -> Any:
    import jax
    from jax import numpy as jnp

    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=1, keepdims=True) + EPS) * w


# Batch norm by the batch's own statistics.  x: [64, 64, 56, 56], channels at axis 1


def _image_inputs(differentiated: bool = False) -> Arrays:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(IMAGES, np.float32) * 2 + 1
    weights = [rng.standard_normal(IMAGES[1], np.float32) for _ in range(2)]
    return [x, *weights, *([rng.standard_normal(IMAGES, np.float32)] if differentiated else [])]


def _batch_graphfw(x: Any, w: Any, b: Any) -> Any:
    import graphfw as gf

    others = (0, 2, 3)
    return gf.batch_norm(x, gf.mean(x, axis=others), gf.var(x, axis=others), w, b, axis=1, eps=EPS)


def _batch_numpy(x: Any, w: Any, b: Any) -> Any:
    scale, shift, _, _ = _batch_factors(x, w, b)
    y = x * scale[:, None, None]
    y += shift[:, None, None]
    return y


def _batch_factors(x: Any, w: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    mean = x.mean(axis=(0, 2, 3))
    centred = x - mean[:, None, None]
    variance = np.einsum("nchw,nchw->c", centred, centred) / np.float32(x.size // x.shape[1])
    factor = (1 / np.sqrt(variance + EPS)).astype(np.float32)
    return w * factor, b - mean * w * factor, mean, factor


def _batch_numpy_grad(x: Any, w: Any, b: Any, ct: Any) -> Any:
    scale, shift, mean, factor = _batch_factors(x, w, b)
    count = np.float32(x.size // x.shape[1])
    normal = x * factor[:, None, None]
    normal -= (mean * factor)[:, None, None]
    db = ct.sum(axis=(0, 2, 3))
    dw = np.einsum("nchw,nchw->c", ct, normal)
    dx = ct - (db / count)[:, None, None]
    normal *= (dw / count)[:, None, None]
    dx -= normal
    dx *= scale[:, None, None]
    return [x * scale[:, None, None] + shift[:, None, None], dx, dw, db]


def _batch_torch(x: Any, w: Any, b: Any) -> Any:
    import torch

    return torch.nn.functional.batch_norm(x, None, None, w, b, training=True, eps=EPS)


def _batch_jax(x: Any, w: Any, b: Any) -> Any:
    import jax
    from jax import numpy as jnp

    others = (0, 2, 3)
    mean = jnp.mean(x, axis=others, keepdims=True)
    centred = x - mean
    factor = jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=others, keepdims=True) + EPS)
    return centred * factor * w[:, None, None] + b[:, None, None]


LAYER = Formula(
    functools.partial(_inputs, 2), _layer_graphfw, _layer_numpy, _layer_torch, _layer_jax
)
RMS = Formula(functools.partial(_inputs, 1), _rms_graphfw, _rms_numpy, _rms_torch, _rms_jax)
BATCH = Formula(_image_inputs, _batch_graphfw, _batch_numpy, _batch_torch, _batch_jax)


def _grad(formula: Formula, numpy_grad: Any, inputs: Any, parameters: int) -> Formula:
    """Return the formula with its gradients by x and all parameters."""
    wrt = tuple(range(1 + parameters))
    return dataclasses.replace(formula, inputs=inputs, numpy=numpy_grad, wrt=wrt)


_LAYER_GRAD = _grad(LAYER, _layer_numpy_grad, functools.partial(_inputs, 2, True), 2)
_RMS_GRAD = _grad(RMS, _rms_numpy_grad, functools.partial(_inputs, 1, True), 1)
_BATCH_GRAD = _grad(BATCH, _batch_numpy_grad, functools.partial(_image_inputs, True), 2)
_SIZE, _IMAGE = f"{ROWS}×{COLUMNS}", "×".join(map(str, IMAGES))


def _contest(name: str, title: str, formula: Formula, limit: float) -> Contest:
    return Contest(name, title, formula.makers(), (Target(limit),), rtol=1e-3, atol=1e-4)


WORKLOADS = [
    _contest("layer-norm", f"layer norm, {_SIZE}", LAYER, 0.9),
    _contest("layer-norm-grad", f"layer norm and its gradients, {_SIZE}", _LAYER_GRAD, 0.9),
    _contest("rms-norm", f"RMS norm, {_SIZE}", RMS, 0.9),
    _contest("rms-norm-grad", f"RMS norm and its gradients, {_SIZE}", _RMS_GRAD, 0.9),
    _contest("batch-norm", f"batch norm in training, {_IMAGE}", BATCH, 0.7),
    _contest("batch-norm-grad", f"batch norm and its gradients, {_IMAGE}", _BATCH_GRAD, 0.7),
]
