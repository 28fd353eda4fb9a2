"""Residual networks: forward, and the training step: cross-entropy, backward, momentum.

After K. He et al., "Deep residual learning for image recognition", 2015: ResNet-18 in its form for
small images, with a stem of one 3×3 convolution and no pooling before the four stages, and
ResNet-50, whose blocks have the stride in their 3×3 convolution, as most libraries have it. In
training, batch norm is in training mode, and its running statistics are updated by each contender.
Images and labels are random.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import devices
from benchmarks.frameworks import Array, Described, torch_module, torch_tensors
from benchmarks.workload import Case, Contest, Maker, Target

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Channels, and the stride of the first of a stage's blocks."""

RATE, MOMENTUM = 0.01, 0.9
CARRIED = 0.1
"""The share of a batch's statistics in the running ones."""


@dataclass(frozen=True)
class Net:
    """A residual network, the batches that it sees, and in what it computes.

    Attributes:
        name: Of the network.
        size: Height and width of the images.
        classes: How many labels there are.
        stem: The first kernel's height and width.
        blocks: How many blocks each stage has.
        widens: By how much blocks of three convolutions widen what the first two make; 0: blocks
            have two convolutions.
        batch: How many images.
        precision: As in `gpt.Gpt`.
    """

    name: str
    size: int
    classes: int
    stem: int
    blocks: tuple[int, ...]
    widens: int
    batch: int
    precision: str = "float32"

    def apply(
        self,
        image: Any,
        layer: Callable[[Any, int, int], Any],
        relu: Callable[[Any], Any],
        pool: Callable[[Any], Any],
    ) -> Any:
        """Return what comes of images before they are averaged.

        Args:
            image: [N, 3, H, W]
            layer: Applies the convolution of a number, with a stride, and batch norm behind it.
            relu: The activation.
            pool: The largest of 3×3 places, at every second place; where the stem is a large one.
        """
        number = itertools.count()
        is_large = self.stem > 3
        h = relu(layer(image, next(number), 2 if is_large else 1))
        h = pool(h) if is_large else h
        for count, (_, first) in zip(self.blocks, STAGES, strict=True):
            for block in range(count):
                strides = (1, first, 1) if self.widens else (first, 1)
                strides = strides if block == 0 else (1,) * len(strides)
                inner = h
                for stride in strides[:-1]:
                    inner = relu(layer(inner, next(number), stride))
                inner = layer(inner, next(number), strides[-1])
                if block == 0 and (self.widens or first != 1):
                    h = layer(h, next(number), first)
                h = relu(inner + h)
        return h

    def kernels(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the shapes of the convolutions' weights, in the order of `apply`."""
        yield STAGES[0][0], 3, self.stem, self.stem
        channels = STAGES[0][0]
        for count, (inner, first) in zip(self.blocks, STAGES, strict=True):
            outputs = inner * (self.widens or 1)
            for block in range(count):
                if self.widens:
                    yield inner, channels, 1, 1
                    yield inner, inner, 3, 3
                    yield outputs, inner, 1, 1
                else:
                    yield outputs, channels, 3, 3
                    yield outputs, outputs, 3, 3
                if block == 0 and (self.widens or first != 1):
                    yield outputs, channels, 1, 1
                channels = outputs

    def weights(self) -> list[Array]:
        """Return the convolutions' weights and then those of the last layer."""
        rng = np.random.default_rng(0)
        arrays = []
        for shape in (*self.kernels(), (STAGES[-1][0] * (self.widens or 1), self.classes)):
            inputs = shape[0] if len(shape) == 2 else math.prod(shape[1:])
            arrays.append(rng.standard_normal(shape, np.float32) * np.float32((2 / inputs) ** 0.5))
        return arrays

    def batches(self) -> list[tuple[Array, Array]]:
        """Return 8 batches of random images with random labels."""
        rng = np.random.default_rng(1)
        x = rng.standard_normal((8, self.batch, 3, self.size, self.size), np.float32)
        return list(zip(x, rng.integers(0, self.classes, (8, self.batch)), strict=True))


def described(net: Net, training: bool) -> Described:
    """Describe the step to graphfw, or the scores alone, for any batch size."""
    import graphfw as gf

    with gf.Graph() as graph:
        x = gf.placeholder(("batch", 3, net.size, net.size), name="x")
        y = gf.placeholder(("batch",), gf.int64, name="y")
        *held, last = [gf.Variable(a, name=f"w{i}") for i, a in enumerate(net.weights())]

        def layer(h: Any, number: int, stride: int) -> Any:
            weight = held[number]
            h = gf.conv(h, weight, stride=stride, padding=weight.shape[-1] // 2)
            return gf.nn.BatchNorm2d(weight.shape[0], momentum=CARRIED).train(training)(h)

        pool = functools.partial(gf.max_pool, kernel_size=3, stride=2, padding=1)
        h = net.apply(x, layer, gf.relu, pool)
        shift = gf.Variable(np.zeros(net.classes, np.float32), name="shift")
        scores = gf.mean(h, axis=(2, 3)) @ last + shift
        if not training:
            return Described(graph, scores, [x])
        loss = gf.nn.cross_entropy(scores, y)
        train = gf.optim.SGD(RATE, momentum=MOMENTUM).minimize(loss)
    return Described(graph, [loss, train], [x, y])


def graphfw_case(net: Net, training: bool) -> Case:
    """Return a step of graphfw, or the scores of a batch."""
    graph, fetches, feeds = described(net, training)
    plan = devices.session(graph, net.precision).compile(fetches, feeds=feeds)
    stream = itertools.cycle([devices.given(batch) for batch in net.batches()])
    if not training:
        return Case(lambda: plan(next(stream)[0]))
    return Case(lambda: plan(*next(stream))[0])


def torch_case(compiled: bool, net: Net, training: bool) -> Case:
    """Return a step of PyTorch, channels last and with the fused SGD; or the scores."""
    torch = torch_module()
    torch.set_grad_enabled(training)
    torch.backends.cudnn.benchmark = True
    if net.precision == "tf32":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    else:
        torch.backends.cudnn.allow_tf32 = False
    F, way = torch.nn.functional, {"memory_format": torch.channels_last}
    *kernels, last = torch_tensors(net.weights())
    held = [w.to(**way).requires_grad_(training) for w in kernels]
    scales, shifts, means, variances = [
        torch_tensors([np.full(len(w), value, np.float32) for w in kernels])
        for value in (1, 0, 0, 1)
    ]
    top = [last, *torch_tensors([np.zeros(net.classes, np.float32)])]
    everything = [t.requires_grad_(training) for t in (*held, *scales, *shifts, *top)]

    def layer(h: Any, n: int, stride: int) -> Any:
        h = F.conv2d(h, held[n], stride=stride, padding=held[n].shape[-1] // 2)
        of_batch = (means[n], variances[n], scales[n], shifts[n])
        return F.batch_norm(h, *of_batch, training=training, momentum=CARRIED)

    relu = functools.partial(F.relu, inplace=True)
    pool = functools.partial(F.max_pool2d, kernel_size=3, stride=2, padding=1)
    mixed = net.precision == "bf16"

    def scores_of(x: Any) -> Any:
        way_in = (
            torch.autocast(x.device.type, torch.bfloat16) if mixed else contextlib.nullcontext()
        )
        with way_in:
            return net.apply(x, layer, relu, pool).mean((2, 3)) @ top[0] + top[1]

    def loss_of(x: Any, y: Any) -> Any:
        return F.cross_entropy(scores_of(x), y)

    if compiled:
        torch.compiler.reset()
        scores_of, loss_of = devices.compiled(scores_of), devices.compiled(loss_of)
    batches = [torch_tensors(batch) for batch in net.batches()]
    stream = itertools.cycle([(x.to(**way), y) for x, y in batches])
    if not training:
        return Case(lambda: scores_of(next(stream)[0]))
    optimiser = torch.optim.SGD(everything, lr=RATE, momentum=MOMENTUM, fused=True)

    def step() -> Any:
        optimiser.zero_grad()
        loss = loss_of(*next(stream))
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Case(step)


def jax_case(net: Net, training: bool) -> Case:
    """Return a step of JAX, one function, which is given the state's memory; or the scores."""
    import jax
    from jax import numpy as jnp

    if net.precision == "tf32":
        jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    kind = jnp.bfloat16 if net.precision == "bf16" else jnp.float32

    def scores_of(held: Any, running: Any, x: Any) -> Any:
        weights_, scales, shifts, (last, shift) = held
        carried = []

        def layer(h: Any, n: int, stride: int) -> Any:
            pad = [(weights_[n].shape[-1] // 2,) * 2] * 2
            w = weights_[n].astype(kind)
            h = jax.lax.conv_general_dilated(h.astype(kind), w, (stride, stride), pad)
            h = h.astype(jnp.float32)
            mean, var = running[n]
            if training:
                mean, var = jnp.mean(h, (0, 2, 3)), jnp.var(h, (0, 2, 3))
                count = h.size // mean.size
                now = (mean, var * (count / (count - 1)))
                old = zip(running[n], now, strict=True)
                carried.append([r + CARRIED * (jax.lax.stop_gradient(v) - r) for r, v in old])
            factor = scales[n] / jnp.sqrt(var + 1e-5)
            mean, factor, shift = (v[:, None, None] for v in (mean, factor, shifts[n]))
            return (h - mean) * factor + shift

        def pool(h: Any) -> Any:
            pad = [(0, 0), (0, 0), (1, 1), (1, 1)]
            of = (1, 1, 3, 3), (1, 1, 2, 2)
            return jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, *of, pad)

        h = net.apply(x, layer, jax.nn.relu, pool)
        return h.mean((2, 3)) @ last + shift, carried

    def loss_of(held: Any, running: Any, x: Any, y: Any) -> Any:
        scores, carried = scores_of(held, running, x)
        chosen = jnp.take_along_axis(scores, y[:, None], axis=1)[:, 0]
        return jnp.mean(jax.nn.logsumexp(scores, axis=1) - chosen), carried

    def update(state: Any, x: Any, y: Any) -> Any:
        held, momenta, running = state
        compute = jax.value_and_grad(loss_of, has_aux=True)
        (loss, running), gradients = compute(held, running, x, y)
        momenta = jax.tree.map(lambda v, g: MOMENTUM * v + g, momenta, gradients)
        held = jax.tree.map(lambda p, v: p - RATE * v, held, momenta)
        return loss, (held, momenta, running)

    *first, last = map(jax.device_put, net.weights())
    counts = [len(w) for w in first]
    ones, zeros = [jnp.ones(n) for n in counts], [jnp.zeros(n) for n in counts]
    start = (first, ones, zeros, (last, jnp.zeros(net.classes)))
    running = [[jnp.zeros(n), jnp.ones(n)] for n in counts]
    stream = itertools.cycle([tuple(map(jax.device_put, batch)) for batch in net.batches()])
    if not training:
        compiled = jax.jit(lambda x: scores_of(start, running, x)[0])
        return Case(lambda: devices.waited(compiled(next(stream)[0])))
    state = [(start, jax.tree.map(jnp.zeros_like, start), running)]
    donated = jax.jit(update, donate_argnums=0)

    def step() -> Any:
        loss, state[0] = donated(state[0], *next(stream))
        return devices.waited(loss)

    return Case(step)


def makers(net: Net, training: bool) -> dict[str, Maker]:
    """Return what makes the contenders."""
    return {
        "graphfw": functools.partial(graphfw_case, net, training),
        "torch": functools.partial(torch_case, False, net, training),
        "torch.compile": functools.partial(torch_case, True, net, training),
        "jax": functools.partial(jax_case, net, training),
    }


def _contest(batch: int) -> Contest:
    net = Net("ResNet-18", 32, 10, 3, (2, 2, 2, 2), 0, batch)
    return Contest(
        f"resnet18-train-{batch}",
        f"ResNet-18 training step on 32×32 images, batch {batch}",
        makers(net, True),
        (Target(0.8),),
        rtol=2e-3,
        checks=3,
    )


WORKLOADS = [_contest(32), _contest(64)]
