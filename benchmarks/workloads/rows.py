"""Rows reduced, normalised and chosen from: softmax, cross-entropy over many classes, top-k."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Arrays, Formula
from benchmarks.workload import Contest, Target

WIDE = (512, 32_000)
SQUARE = (4096, 1024)


def _inputs(shape: tuple[int, int], differentiated: bool = False) -> Arrays:
    """Return x and, to differentiate, a cotangent."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, np.float32) for _ in range(1 + differentiated)]


def _labelled(shape: tuple[int, int], differentiated: bool = False) -> Arrays:
    """Return logits, classes and, to differentiate, None: the loss is a scalar."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal(shape, np.float32)
    return [logits, rng.integers(0, shape[1], shape[0]), *([None] if differentiated else [])]


# Softmax


def _softmax_graphfw(x: Any) -> Any:
    import graphfw as gf

    return gf.softmax(x, axis=-1)


def _softmax_numpy(x: Any) -> Any:
    y = np.exp(x - x.max(axis=1, keepdims=True))
    y /= y.sum(axis=1, keepdims=True)
    return y


def _softmax_numpy_grad(x: Any, ct: Any) -> Any:
    y = _softmax_numpy(x)
    dx = ct - np.einsum("ij,ij->i", ct, y)[:, None]
    dx *= y
    return [y, dx]


def _softmax_torch(x: Any) -> Any:
    import torch

    return torch.softmax(x, dim=-1)


def _softmax_jax(x: Any) -> Any:
    import jax

    return jax.nn.softmax(x, axis=-1)


def _softmax_pytensor(x: Any) -> Any:
    from pytensor.tensor.special import softmax

    return softmax(x, axis=-1)


# Log-softmax


def _log_softmax_graphfw(x: Any) -> Any:
    import graphfw as gf

    return gf.log_softmax(x, axis=-1)


def _log_softmax_numpy(x: Any) -> Any:
    y = x - x.max(axis=1, keepdims=True)
    y -= np.log(np.exp(y).sum(axis=1, keepdims=True))
    return y


def _log_softmax_numpy_grad(x: Any, ct: Any) -> Any:
    y = _log_softmax_numpy(x)
    dx = np.exp(y)
    dx *= -ct.sum(axis=1, keepdims=True)
    dx += ct
    return [y, dx]


def _log_softmax_torch(x: Any) -> Any:
    import torch

    return torch.log_softmax(x, dim=-1)


def _log_softmax_jax(x: Any) -> Any:
    import jax

    return jax.nn.log_softmax(x, axis=-1)


def _log_softmax_pytensor(x: Any) -> Any:
    from pytensor.tensor.special import log_softmax

    return log_softmax(x, axis=-1)


# The mean cross-entropy with classes given by index


def _entropy_graphfw(x: Any, classes: Any) -> Any:
    import graphfw as gf

    return gf.nn.cross_entropy(x, classes)


def _entropy_numpy(x: Any, classes: Any) -> Any:
    largest = x.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(x - largest).sum(axis=1)) + largest[:, 0]
    return np.mean(log_sum - x[np.arange(len(x)), classes])


def _entropy_numpy_grad(x: Any, classes: Any, _: None) -> Any:
    rows = np.arange(len(x))
    largest = x.max(axis=1, keepdims=True)
    dx = np.exp(x - largest)
    total = dx.sum(axis=1, keepdims=True)
    loss = np.mean(np.log(total[:, 0]) + largest[:, 0] - x[rows, classes])
    dx /= total * np.float32(len(x))
    dx[rows, classes] -= np.float32(1 / len(x))
    return [loss, dx]


def _entropy_torch(x: Any, classes: Any) -> Any:
    import torch

    return torch.nn.functional.cross_entropy(x, classes)


def _entropy_jax(x: Any, classes: Any) -> Any:
    import jax
    from jax import numpy as jnp

    chosen = jnp.take_along_axis(x, classes[:, None], axis=1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(x, axis=1) - chosen)


SOFTMAX = Formula(
    functools.partial(_inputs, WIDE),
    _softmax_graphfw,
    _softmax_numpy,
    _softmax_torch,
    _softmax_jax,
    pytensor=_softmax_pytensor,
)
LOG_SOFTMAX = Formula(
    functools.partial(_inputs, WIDE),
    _log_softmax_graphfw,
    _log_softmax_numpy,
    _log_softmax_torch,
    _log_softmax_jax,
    pytensor=_log_softmax_pytensor,
)
ENTROPY = Formula(
    functools.partial(_labelled, WIDE),
    _entropy_graphfw,
    _entropy_numpy,
    _entropy_torch,
    _entropy_jax,
)


def _both(name: str, title: str, formula: Formula, numpy_grad: Any, inputs: Any) -> list[Contest]:
    """Return the workload of the function, and that of the function with its gradient."""
    backward = dataclasses.replace(
        formula, inputs=functools.partial(inputs, WIDE, True), numpy=numpy_grad, wrt=(0,)
    )
    size = f"{WIDE[0]}×{WIDE[1]}"
    targets = (Target(0.7),)
    return [
        Contest(name, f"{title}, {size}", formula.makers(), targets),
        Contest(f"{name}-grad", f"{title} and its gradient, {size}", backward.makers(), targets),
    ]


# Rows that a mask picks


def _picked_inputs() -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, np.float32) for shape in ((20_000, 256), (256, 64))]


def _picked(x: Any, w: Any) -> Any:
    return x[x[:, 0] > 0] @ w


_PICKED = Formula(_picked_inputs, *[_picked] * 3, constants=1)


# The largest of each row


def _largest_graphfw(x: Any, k: int) -> Any:
    import graphfw as gf

    return gf.topk(x, k)[0]


def _largest_numpy(x: Any, k: int) -> Any:
    return -np.sort(np.partition(-x, k - 1, axis=1)[:, :k], axis=1)


def _largest_torch(x: Any, k: int) -> Any:
    return x.topk(k)[0]


def _largest_jax(x: Any, k: int) -> Any:
    from jax import lax

    return lax.top_k(x, k)[0]


def _largest(k: int, shape: tuple[int, int]) -> Contest:
    """Return a workload: the k largest of each row, in order."""
    functions = (_largest_graphfw, _largest_numpy, _largest_torch, _largest_jax)
    each = [functools.partial(function, k=k) for function in functions]
    formula = Formula(functools.partial(_inputs, shape), *each)
    rows, columns = shape
    title = f"the {k} largest of each row, {rows}×{columns}"
    return Contest(f"topk-{rows}x{columns}", title, formula.makers(), (Target(1.0),))


WORKLOADS = [
    _largest(50, (8, 32_000)),
    _largest(10, (256, 5000)),
    Contest(
        "picked-rows",
        "the rows of 20000×256 that a mask picks, times 256×64",
        _PICKED.makers(),
        (Target(0.9),),
        atol=1e-4,
    ),
    Contest(
        "softmax-4096x1024",
        "softmax, 4096×1024",
        dataclasses.replace(SOFTMAX, inputs=functools.partial(_inputs, SQUARE)).makers(),
        (Target(0.7),),
    ),
    *_both("softmax", "softmax", SOFTMAX, _softmax_numpy_grad, _inputs),
    *_both("log-softmax", "log-softmax", LOG_SOFTMAX, _log_softmax_numpy_grad, _inputs),
    *_both("cross-entropy", "mean cross-entropy", ENTROPY, _entropy_numpy_grad, _labelled),
]
