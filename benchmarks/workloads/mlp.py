"""The training step of an MLP 784-512-256-10: forward, cross-entropy, backward, Adam.

A batch differs from the one before: there are so many that they are not learnt by heart, for
vanishing gradients would make slow denormal numbers.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks import devices
from benchmarks.frameworks import Array, Described, torch_module, torch_tensors
from benchmarks.workload import Case, Contest, Maker, Target

SIZES = (784, 512, 256, 10)
RATE = 1e-3

Step = Callable[[Any, Any], Any]
"""From a batch, where it is needed, to the loss."""


def weights() -> list[Array]:
    """Return weights and biases in turn, the same for every contender."""
    rng = np.random.default_rng(0)
    arrays: list[Array] = []
    for rows, columns in itertools.pairwise(SIZES):
        arrays.append(rng.standard_normal((rows, columns), np.float32) * (2 / rows) ** 0.5)
        arrays.append(np.zeros(columns, np.float32))
    return arrays


def batches(size: int, count: int = 64) -> list[tuple[Array, Array]]:
    """Return batches of random images with random labels."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((count, size, SIZES[0]), np.float32)
    return list(zip(x, rng.integers(0, SIZES[-1], (count, size)), strict=True))


def described(arrays: list[Array]) -> Described:
    """Describe the step to graphfw, for any batch size."""
    import graphfw as gf

    with gf.Graph() as graph:
        x = gf.placeholder(("batch", SIZES[0]), name="x")
        y = gf.placeholder(("batch",), gf.int64, name="y")
        held = [gf.Variable(a, name=f"w{i}") for i, a in enumerate(arrays)]
        h: Any = x
        for i in range(0, len(held), 2):
            h = h @ held[i] + held[i + 1]
            if i + 2 < len(held):
                h = gf.relu(h)
        loss = gf.nn.cross_entropy(h, y)
        train = gf.optim.Adam(RATE).minimize(loss)
    return Described(graph, [loss, train], [x, y])


def graphfw_step() -> Step:
    """Return a step of graphfw."""
    graph, fetches, feeds = described(weights())
    plan = devices.session(graph).compile(fetches, feeds=feeds)
    return lambda xb, yb: plan(xb, yb)[0]


def numpy_step() -> Step:
    """Return the step written by hand, as one would without a framework."""
    held = weights()
    first = [np.zeros_like(a) for a in held]
    second = [np.zeros_like(a) for a in held]
    count = 0

    def step(x: Any, y: Any) -> Any:
        nonlocal count
        w1, b1, w2, b2, w3, b3 = held
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
        count += 1
        fix1, fix2 = 1 - 0.9**count, 1 - 0.999**count
        for w, g, m, v in zip(held, gradients, first, second, strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            w -= RATE * (m / fix1) / (np.sqrt(v / fix2) + 1e-8)
        return loss

    return step


def torch_step(compiled: bool) -> Step:
    """Return a step of PyTorch, with the fused Adam; torch.compile may make the gradients."""
    torch = torch_module()
    torch.set_grad_enabled(True)
    arrays = weights()
    layers: list[Any] = []
    for i in range(0, len(arrays), 2):
        layer = torch.nn.Linear(*arrays[i].shape)
        layer.weight.data, layer.bias.data = torch_tensors([arrays[i].T.copy(), arrays[i + 1]])
        layers += [layer, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE, fused=True)

    def loss_of(x: Any, y: Any) -> Any:
        return torch.nn.functional.cross_entropy(model(x), y)

    if compiled:
        torch.compiler.reset()
        loss_of = devices.compiled(loss_of)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = loss_of(x, y)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step


def jax_update() -> tuple[Any, Any]:
    """Return a step of JAX, one function, which is given the state's memory; and the state."""
    import jax
    from jax import numpy as jnp

    def loss_of(held: Any, x: Any, y: Any) -> Any:
        h = x
        for i in range(0, len(held), 2):
            h = h @ held[i] + held[i + 1]
            if i + 2 < len(held):
                h = jax.nn.relu(h)
        chosen = jnp.take_along_axis(h, y[:, None], axis=1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(h, axis=1) - chosen)

    def update(state: Any, x: Any, y: Any) -> Any:
        count, held, means, squares = state
        loss, gradients = jax.value_and_grad(loss_of)(held, x, y)
        count = count + 1
        means = [m + (g - m) * 0.1 for m, g in zip(means, gradients, strict=True)]
        squares = [v + (g * g - v) * 0.001 for v, g in zip(squares, gradients, strict=True)]
        rate, root = RATE / (1 - 0.9**count), jnp.sqrt(1 - 0.999**count)
        held = [
            p - rate * m / (jnp.sqrt(v) / root + 1e-8)
            for p, m, v in zip(held, means, squares, strict=True)
        ]
        return loss, (count, held, means, squares)

    start = [jax.device_put(a) for a in weights()]
    zeros = [jnp.zeros_like(a) for a in start]
    state = jnp.float32(0), start, zeros, [jnp.copy(z) for z in zeros]
    return jax.jit(update, donate_argnums=0), state


def jax_step() -> Step:
    """Return a step of JAX."""
    compiled, first = jax_update()
    state = [first]

    def step(x: Any, y: Any) -> Any:
        loss, state[0] = compiled(state[0], x, y)
        return devices.waited(loss)

    return step


STEPS: dict[str, Callable[[], Step]] = {
    "graphfw": graphfw_step,
    "numpy": numpy_step,
    "torch": functools.partial(torch_step, False),
    "torch.compile": functools.partial(torch_step, True),
    "jax": jax_step,
}


def placed_batches(contender: str, size: int, count: int = 64) -> list[list[Any]]:
    """Return batches as a contender takes them."""
    converters = {"graphfw": devices.given, "numpy": list, "jax": _jax_arrays}
    convert = converters.get(contender, torch_tensors)
    return [convert(batch) for batch in batches(size, count)]


def _case(contender: str, size: int) -> Case:
    step = STEPS[contender]()
    stream = itertools.cycle(placed_batches(contender, size))
    return Case(lambda: step(*next(stream)))


def _jax_arrays(arrays: Sequence[Any]) -> list[Any]:
    import jax

    return [jax.device_put(array) for array in arrays]


def _makers(size: int) -> dict[str, Maker]:
    return {name: functools.partial(_case, name, size) for name in STEPS}


WORKLOADS = [
    Contest(
        f"mlp-step-{size}",
        f"MLP 784-512-256-10 training step, batch {size}",
        _makers(size),
        (Target(0.75),),
        rtol=5e-4,
        checks=5,
    )
    for size in (128, 8)
]
