"""Reductions over all pairs of points, for which the matrix of pairs need not be made."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.frameworks import Arrays, Formula
from benchmarks.workload import Contest, Target

POINTS, CENTRES, FEATURES = 20_000, 256, 64
SOURCES, TARGETS = 8192, 4096


# k-means: the nearest of the centres.  x: [20000, 64], c: [256, 64] -> int [20000]
# By argmin of |c|² - 2 x·c: |x|² does not matter. Compared by the distances to what was chosen.


def _clusters() -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, FEATURES), np.float32) for n in (POINTS, CENTRES)]


def _nearest_graphfw(x: Any, c: Any) -> Any:
    import graphfw as gf

    return gf.argmin(gf.sum(c * c, axis=1) - 2.0 * (x @ c.mT), axis=1)


def _nearest_numpy(x: Any, c: Any) -> Any:
    scores = x @ (c.T * np.float32(-2))
    scores += np.einsum("ij,ij->i", c, c)
    return scores.argmin(axis=1)


def _nearest_torch(x: Any, c: Any) -> Any:
    import torch

    return torch.addmm((c * c).sum(1), x, c.T, alpha=-2).argmin(1)


def _nearest_jax(x: Any, c: Any) -> Any:
    from jax import numpy as jnp

    return jnp.argmin(jnp.sum(c * c, axis=1) - 2 * (x @ c.T), axis=1)


# The field of Gaussians: sum_j exp(-|x_i - y_j|² / 2).  x: [8192, 3], y: [4096, 3] -> [8192]


def _clouds() -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, 3), np.float32) for n in (SOURCES, TARGETS)]


def _field_graphfw(x: Any, y: Any) -> Any:
    import graphfw as gf

    apart = x[:, None, :] - y[None, :, :]
    return gf.sum(gf.exp(gf.sum(apart * apart, axis=2) * -0.5), axis=1)


def _field_numpy(x: Any, y: Any) -> Any:
    """Go by blocks of rows that stay in the cache, by -|x - y|²/2 = x·y - |x|²/2 - |y|²/2."""
    total = np.empty(len(x), x.dtype)
    half_x, half_y = (np.einsum("ij,ij->i", a, a) * np.float32(0.5) for a in (x, y))
    for first in range(0, len(x), 32):
        rows = slice(first, first + 32)
        block = x[rows] @ y.T
        block -= half_y
        block -= half_x[rows, None]
        total[rows] = np.exp(block, out=block).sum(axis=1)
    return total


def _field_torch(x: Any, y: Any) -> Any:
    import torch

    squares = (x * x).sum(1, keepdim=True) + (y * y).sum(1)
    return torch.addmm(squares, x, y.T, alpha=1, beta=-0.5).exp().sum(1)


def _field_jax(x: Any, y: Any) -> Any:
    from jax import numpy as jnp

    apart = sum((x[:, i, None] - y[:, i]) ** 2 for i in range(3))
    return jnp.sum(jnp.exp(apart * -0.5), axis=1)


_NEAREST = Formula(_clusters, _nearest_graphfw, _nearest_numpy, _nearest_torch, _nearest_jax)
_FIELD = Formula(_clouds, _field_graphfw, _field_numpy, _field_torch, _field_jax)

WORKLOADS = [
    Contest(
        "k-means",
        f"k-means assignment, {POINTS}×{FEATURES} to {CENTRES} centres",
        _NEAREST.makers(),
        (Target(0.6),),
    ),
    Contest(
        "pairwise-field",
        f"sum of Gaussians of all distances, {SOURCES}×{TARGETS} points",
        _FIELD.makers(),
        (Target(0.6),),
    ),
]
