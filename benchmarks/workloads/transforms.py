"""The cost of `hvp`, `hessian` and `vmap`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Arrays, Formula
from benchmarks.workload import Contest, Maker, Target


def _weights(*sizes: int) -> Arrays:
    """Return weights and biases in turn."""
    rng = np.random.default_rng(0)
    arrays: list[Array] = []
    for rows, columns in itertools.pairwise(sizes):
        arrays.append(rng.standard_normal((rows, columns), np.float32) / np.float32(rows**0.5))
        arrays.append(0.1 * rng.standard_normal(columns, np.float32))
    return arrays


def _mlp(xp: Any, x: Any, held: Any) -> Any:
    for w, b in zip(held[0:-2:2], held[1:-2:2], strict=True):
        x = xp.tanh(x @ w + b)
    return x @ held[-2] + held[-1]


def _without_compile(formula: Formula) -> dict[str, Maker]:
    """Leave out what would compile a transform of torch.func once more."""
    return {name: maker for name, maker in formula.makers().items() if name != "torch.compile"}


# The Hessian of an MLP's squared error by its weights, times a vector.  x: [256, 64], y: [256, 1]

LAYERS = 6


def _hvp_inputs() -> Arrays:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((256, 64), np.float32), rng.standard_normal((256, 1), np.float32)
    held = _weights(64, 256, 256, 1)
    return [x, y, *held, *[rng.standard_normal(w.shape, np.float32) for w in held]]


def _error(xp: Any, x: Any, y: Any) -> Any:
    return lambda *held: xp.mean((_mlp(xp, x, held) - y) ** 2)


def _hvp_graphfw(x: Any, y: Any, *rest: Any) -> Any:
    import graphfw as gf

    return [*gf.hvp(_error(gf, x, y), rest[:LAYERS], rest[LAYERS:])[1]]


def _hvp_torch(x: Any, y: Any, *rest: Any) -> Any:
    import torch

    # Twice backwards: three times as fast here as torch.func.jvp of the gradient.
    with torch.enable_grad():
        held = [w.detach().requires_grad_() for w in rest[:LAYERS]]
        gradient = torch.autograd.grad(_error(torch, x, y)(*held), held, create_graph=True)
        return [*torch.autograd.grad(gradient, held, rest[LAYERS:])]


def _hvp_jax(x: Any, y: Any, *rest: Any) -> Any:
    import jax

    gradient = jax.grad(_error(jax.numpy, x, y), tuple(range(LAYERS)))
    return [*jax.jvp(gradient, rest[:LAYERS], rest[LAYERS:])[1]]


HVP = Formula(_hvp_inputs, _hvp_graphfw, torch=_hvp_torch, jax=_hvp_jax)


# The Hessian of a coupled function of 32 variables.  x: [32], w: [32, 32]


def _hessian_inputs() -> Arrays:
    rng = np.random.default_rng(2)
    return [rng.standard_normal(32, np.float32), rng.standard_normal((32, 32), np.float32) / 6]


def _coupled(xp: Any, w: Any) -> Any:
    return lambda x: xp.sum(xp.tanh(w @ x) ** 2) + xp.sum(x[1:] * x[:-1] ** 3)


def _hessian_graphfw(x: Any, w: Any) -> Any:
    import graphfw as gf

    return gf.hessian(_coupled(gf, w))(x)


def _hessian_torch(x: Any, w: Any) -> Any:
    import torch

    return torch.func.hessian(_coupled(torch, w))(x)


def _hessian_jax(x: Any, w: Any) -> Any:
    import jax

    return jax.hessian(_coupled(jax.numpy, w))(x)


HESSIAN = Formula(_hessian_inputs, _hessian_graphfw, torch=_hessian_torch, jax=_hessian_jax)


# The gradient of each example by the weights of an MLP.  x: [256, 784], y: [256]


def _examples_inputs() -> Arrays:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((256, 784), np.float32), rng.integers(0, 10, 256)
    return [x, y, *_weights(784, 128, 10)]


def _examples_graphfw(x: Any, y: Any, *held: Any) -> Any:
    import graphfw as gf

    def gradients(x: Any, y: Any) -> Any:
        return gf.grad(gf.nn.cross_entropy(_mlp(gf, x, held), y), [*held])

    return gf.vmap(gradients)(x, y)


def _examples_torch(x: Any, y: Any, *held: Any) -> Any:
    import torch

    def loss(held: Any, x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(_mlp(torch, x, held), y)

    return [*torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(held, x, y)]


def _examples_jax(x: Any, y: Any, *held: Any) -> Any:
    import jax

    def loss(held: Any, x: Any, y: Any) -> Any:
        return -jax.nn.log_softmax(_mlp(jax.numpy, x, held))[y]

    return [*jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(held, x, y)]


EXAMPLES = Formula(_examples_inputs, _examples_graphfw, torch=_examples_torch, jax=_examples_jax)


WORKLOADS = [
    Contest(
        "hvp-mlp",
        "Hessian of an MLP 64-256-256-1's error times a vector, batch 256",
        _without_compile(HVP),
        (Target(0.8),),
        rtol=1e-3,
    ),
    Contest(
        "hessian-small",
        "Hessian of a function of 32 variables",
        _without_compile(HESSIAN),
        (Target(0.8),),
    ),
    Contest(
        "per-example-grads",
        "gradients of each of 256 examples by the weights of an MLP 784-128-10",
        _without_compile(EXAMPLES),
        (Target(0.8),),
    ),
]
