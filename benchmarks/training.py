"""Whole training steps beside hand-written NumPy and PyTorch."""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

import graphfw as gf
from benchmarks.timing import Result, compare_apart

SIZES = (784, 512, 256, 10)
RATE = 1e-3

Arrays = list[np.ndarray[Any, Any]]


def _weights() -> Arrays:
    """Return weights and biases in turn, the same for every contender."""
    rng = np.random.default_rng(0)
    arrays: Arrays = []
    for rows, columns in itertools.pairwise(SIZES):
        scale = (2 / rows) ** 0.5
        arrays.append((rng.standard_normal((rows, columns)) * scale).astype(np.float32))
        arrays.append(np.zeros(columns, np.float32))
    return arrays


def _graphfw_step(arrays: Arrays) -> Callable[[Any, Any], float]:
    with gf.Graph() as g:
        x = gf.placeholder(("batch", SIZES[0]), name="x")
        y = gf.placeholder(("batch",), gf.int64, name="y")
        weights = [gf.Variable(a, name=f"w{i}") for i, a in enumerate(arrays)]
        h = x
        for i in range(0, len(weights), 2):
            h = h @ weights[i] + weights[i + 1]
            if i + 2 < len(weights):
                h = gf.relu(h)
        loss = gf.nn.cross_entropy(h, y)
        train = gf.optim.Adam(RATE).minimize(loss)
    plan = gf.Session(g, verify="off").compile([loss, train], feeds=[x, y])
    return lambda xb, yb: float(plan(xb, yb)[0])


def _numpy_step(arrays: Arrays) -> Callable[[Any, Any], float]:
    """Write the same step by hand, as one would without a framework."""
    weights = [a.copy() for a in arrays]
    first = [np.zeros_like(a) for a in arrays]
    second = [np.zeros_like(a) for a in arrays]
    state = {"t": 0}

    def step(x: Any, y: Any) -> float:
        w1, b1, w2, b2, w3, b3 = weights
        h1 = np.maximum(x @ w1 + b1, 0)
        h2 = np.maximum(h1 @ w2 + b2, 0)
        z = h2 @ w3 + b3
        z -= z.max(axis=1, keepdims=True)
        e = np.exp(z)
        total = e.sum(axis=1, keepdims=True)
        rows = np.arange(len(x))
        loss = float(np.mean(np.log(total[:, 0]) - z[rows, y]))
        d3 = e / total
        d3[rows, y] -= 1
        d3 /= len(x)
        d2 = (d3 @ w3.T) * (h2 > 0)
        d1 = (d2 @ w2.T) * (h1 > 0)
        gradients = [x.T @ d1, d1.sum(0), h1.T @ d2, d2.sum(0), h2.T @ d3, d3.sum(0)]
        state["t"] += 1
        fix1, fix2 = 1 - 0.9 ** state["t"], 1 - 0.999 ** state["t"]
        for w, g, m, v in zip(weights, gradients, first, second, strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            w -= RATE * (m / fix1) / (np.sqrt(v / fix2) + 1e-8)
        return loss

    return step


def _torch_step(arrays: Arrays) -> Callable[[Any, Any], float]:
    import torch

    torch.set_num_threads(2)
    layers: list[Any] = []
    for i in range(0, len(arrays), 2):
        layer = torch.nn.Linear(*arrays[i].shape)
        layer.weight.data = torch.from_numpy(arrays[i].T.copy())
        layer.bias.data = torch.from_numpy(arrays[i + 1].copy())
        layers += [layer, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)

    def step(x: Any, y: Any) -> float:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y))
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    return step


MAKERS = {
    "graphfw": _graphfw_step,
    "numpy by hand": _numpy_step,
    "torch eager": _torch_step,
}


def _batches() -> list[tuple[Any, Any]]:
    """Return so many that they are not learnt by heart: vanishing gradients make slow denormals."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((64, 128, SIZES[0])).astype(np.float32)
    return list(zip(x, rng.integers(0, SIZES[-1], (64, 128)), strict=True))


def _contender(name: str) -> Callable[[], object]:
    step = MAKERS[name](_weights())
    batches = itertools.cycle(_batches())
    return lambda: step(*next(batches))


def mlp() -> Result:
    """An MLP 784-512-256-10 at batch 128: forward, backward and Adam."""
    names = [n for n in MAKERS if n != "torch eager" or importlib.util.find_spec("torch")]
    losses = {}
    for name in names:
        step = MAKERS[name](_weights())
        losses[name] = [step(x, y) for x, y in _batches()[:5]]
    for name, values in losses.items():
        np.testing.assert_allclose(values, losses["graphfw"], rtol=2e-4, err_msg=name)
    seconds = compare_apart({name: functools.partial(_contender, name) for name in names})
    return Result("MLP 784-512-256-10 training step, batch 128", seconds, "side by side")


WORKLOADS = {"mlp-step": mlp}
