"""The training step of a ResNet-18 for images of 32×32: forward, cross-entropy, backward, momentum.

Its form for small images: K. He et al., "Deep residual learning for image recognition", 2015, with
a stem of one 3×3 convolution and no pooling before the four stages. Batch norm is in training mode,
and its running statistics are updated by each contender. Images and labels are random.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.frameworks import Array, Described, torch_module
from benchmarks.workload import Case, Contest, Target

SIZE, CLASSES = 32, 10
STEM = 64
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels, and the stride of the first of a stage's two blocks."""

RATE, MOMENTUM = 0.01, 0.9
CARRIED = 0.1
"""How much of a batch's statistics goes into the running ones."""


def network(
    image: Any, layer: Callable[[Any, int, int], Any], relu: Callable[[Any], Any]
) -> tuple[Any, int]:
    """Return what comes of the image before pooling, and the number of layers.

    Args:
        image: [N, 3, H, W]
        layer: Applies the convolution of a number, with a stride, and batch norm behind it.
        relu: The activation.
    """
    number = itertools.count()
    h = relu(layer(image, next(number), 1))
    for _, first in STAGES:
        for stride in (first, 1):
            inner = relu(layer(h, next(number), stride))
            inner = layer(inner, next(number), 1)
            if stride != 1:
                h = layer(h, next(number), stride)
            h = relu(inner + h)
    return h, next(number)


def kernels() -> Iterator[tuple[int, int, int, int]]:
    """Yield the shapes of the convolutions' weights, in the order of `network`."""
    yield STEM, 3, 3, 3
    channels = STEM
    for outputs, first in STAGES:
        for stride in (first, 1):
            yield outputs, channels, 3, 3
            yield outputs, outputs, 3, 3
            if stride != 1:
                yield outputs, channels, 1, 1
            channels = outputs


def weights() -> list[Array]:
    """Return the convolutions' weights and then those of the last layer, for every contender."""
    rng = np.random.default_rng(0)
    arrays = []
    for shape in (*kernels(), (STAGES[-1][0], CLASSES)):
        inputs = shape[0] if len(shape) == 2 else math.prod(shape[1:])
        arrays.append(rng.standard_normal(shape, np.float32) * np.float32((2 / inputs) ** 0.5))
    return arrays


def batches(size: int) -> list[tuple[Array, Array]]:
    """Return 8 batches of random images with random labels."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((8, size, 3, SIZE, SIZE), np.float32)
    return list(zip(x, rng.integers(0, CLASSES, (8, size)), strict=True))


def described() -> Described:
    """Describe the step to graphfw, for any batch size."""
    import graphfw as gf

    with gf.Graph() as graph:
        x = gf.placeholder(("batch", 3, SIZE, SIZE), name="x")
        y = gf.placeholder(("batch",), gf.int64, name="y")
        *held, last = [gf.Variable(a, name=f"w{i}") for i, a in enumerate(weights())]

        def layer(h: Any, number: int, stride: int) -> Any:
            weight = held[number]
            h = gf.conv(h, weight, stride=stride, padding=weight.shape[-1] // 2)
            return gf.nn.BatchNorm2d(weight.shape[0], momentum=CARRIED)(h)

        h, _ = network(x, layer, gf.relu)
        shift = gf.Variable(np.zeros(CLASSES, np.float32), name="shift")
        loss = gf.nn.cross_entropy(gf.mean(h, axis=(2, 3)) @ last + shift, y)
        train = gf.optim.SGD(RATE, momentum=MOMENTUM).minimize(loss)
    return Described(graph, [loss, train], [x, y])


def graphfw_step(size: int) -> Case:
    """Return a step of graphfw."""
    import graphfw as gf

    graph, fetches, feeds = described()
    plan = gf.Session(graph, verify="off").compile(fetches, feeds=feeds)
    stream = itertools.cycle(batches(size))
    return Case(lambda: float(plan(*next(stream))[0]))


def torch_step(size: int, compiled: bool) -> Case:
    """Return a step of PyTorch, channels last, which is its faster way; with the fused SGD."""
    torch = torch_module()
    torch.set_grad_enabled(True)
    F, way = torch.nn.functional, {"memory_format": torch.channels_last}
    *kernels_, last = [torch.from_numpy(a) for a in weights()]
    held = [w.to(**way).requires_grad_() for w in kernels_]
    counts = [len(w) for w in held]
    scales = [torch.ones(n, requires_grad=True) for n in counts]
    shifts = [torch.zeros(n, requires_grad=True) for n in counts]
    means, variances = [torch.zeros(n) for n in counts], [torch.ones(n) for n in counts]
    top = [last.requires_grad_(), torch.zeros(CLASSES, requires_grad=True)]
    everything = [*held, *scales, *shifts, *top]
    optimiser = torch.optim.SGD(everything, lr=RATE, momentum=MOMENTUM, fused=True)

    def layer(h: Any, n: int, stride: int) -> Any:
        h = F.conv2d(h, held[n], stride=stride, padding=held[n].shape[-1] // 2)
        of_batch = (means[n], variances[n], scales[n], shifts[n])
        return F.batch_norm(h, *of_batch, training=True, momentum=CARRIED)

    def loss_of(x: Any, y: Any) -> Any:
        h, _ = network(x, layer, functools.partial(F.relu, inplace=True))
        return F.cross_entropy(h.mean((2, 3)) @ top[0] + top[1], y)

    if compiled:
        torch.compiler.reset()
        loss_of = torch.compile(loss_of)
    stream = itertools.cycle(batches(size))

    def step() -> float:
        x, y = map(torch.from_numpy, next(stream))
        optimiser.zero_grad()
        loss = loss_of(x.to(**way), y)
        loss.backward()
        optimiser.step()
        return float(loss.detach())

    return Case(step)


def jax_step(size: int) -> Case:
    """Return a step of JAX, one function, which is given the state's memory."""
    import jax
    from jax import numpy as jnp

    def loss_of(held: Any, running: Any, x: Any, y: Any) -> Any:
        weights_, scales, shifts, (last, shift) = held
        carried = []

        def layer(h: Any, n: int, stride: int) -> Any:
            pad = [(weights_[n].shape[-1] // 2,) * 2] * 2
            h = jax.lax.conv_general_dilated(h, weights_[n], (stride, stride), pad)
            mean, var = jnp.mean(h, (0, 2, 3)), jnp.var(h, (0, 2, 3))
            count = h.size // mean.size
            now = (mean, var * (count / (count - 1)))
            old = zip(running[n], now, strict=True)
            carried.append([r + CARRIED * (jax.lax.stop_gradient(v) - r) for r, v in old])
            factor = scales[n] / jnp.sqrt(var + 1e-5)
            mean, factor, shift = (v[:, None, None] for v in (mean, factor, shifts[n]))
            return (h - mean) * factor + shift

        h, _ = network(x, layer, jax.nn.relu)
        scores = h.mean((2, 3)) @ last + shift
        chosen = jnp.take_along_axis(scores, y[:, None], axis=1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(scores, axis=1) - chosen), carried

    def update(state: Any, x: Any, y: Any) -> Any:
        held, momenta, running = state
        compute = jax.value_and_grad(loss_of, has_aux=True)
        (loss, running), gradients = compute(held, running, x, y)
        momenta = jax.tree.map(lambda v, g: MOMENTUM * v + g, momenta, gradients)
        held = jax.tree.map(lambda p, v: p - RATE * v, held, momenta)
        return loss, (held, momenta, running)

    *first, last = map(jax.device_put, weights())
    counts = [len(w) for w in first]
    ones, zeros = [jnp.ones(n) for n in counts], [jnp.zeros(n) for n in counts]
    start = (first, ones, zeros, (last, jnp.zeros(CLASSES)))
    running = [[jnp.zeros(n), jnp.ones(n)] for n in counts]
    state = [(start, jax.tree.map(jnp.zeros_like, start), running)]
    compiled = jax.jit(update, donate_argnums=0)
    stream = itertools.cycle(batches(size))

    def step() -> float:
        loss, state[0] = compiled(state[0], *next(stream))
        return float(jax.block_until_ready(loss))

    return Case(step)


def _contest(size: int) -> Contest:
    makers = {
        "graphfw": functools.partial(graphfw_step, size),
        "torch": functools.partial(torch_step, size, False),
        "torch.compile": functools.partial(torch_step, size, True),
        "jax": functools.partial(jax_step, size),
    }
    return Contest(
        f"resnet18-train-{size}",
        f"ResNet-18 training step on 32×32 images, batch {size}",
        makers,
        (Target(0.8),),
        rtol=2e-3,
        checks=3,
    )


WORKLOADS = [_contest(32), _contest(64)]
