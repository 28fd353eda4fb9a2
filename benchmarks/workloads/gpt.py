"""A GPT: forward, and the training step: cross-entropy, backward and AdamW.

Norms before attention and MLP, learnt positions, GELU by tanh, a head of its own weights. Every
contender has the same weights.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks import devices, timing
from benchmarks.frameworks import Array, Described, steps_of, torch_module, torch_tensors
from benchmarks.workload import Case, Contest, Maker, Probe, Runner, Target

Figures = tuple[dict[str, float], dict[str, str]]

RATE, DECAY, EPS = 3e-4, 1e-2, 1e-5
PER_LAYER = 12
_LIMITED_BATCH, _LIMIT = 16, 0.7

_NORM_SCALES = (0, 6)
"""Which of a layer's weights are scales of norms."""


@dataclass(frozen=True)
class Gpt:
    """The sizes of a network and of its batches, and in what its products compute.

    Attributes:
        layers, width, heads: Of the network.
        time, batch: Tokens of a sequence, and sequences.
        vocabulary: How many tokens there are.
        precision: "float32"; on GPUs also "tf32"; "bf16": mixed with float32, as each library does
            that.
    """

    layers: int
    width: int
    heads: int
    time: int
    batch: int
    vocabulary: int
    precision: str = "float32"

    def __str__(self) -> str:
        """Say the sizes."""
        text = f"{self.layers} layers, {self.width} wide, {self.heads} heads, T {self.time}"
        return f"{text}, vocabulary {self.vocabulary}, batch {self.batch}"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Tables of tokens and positions; the layers; the last norm's scale and shift; the head."""
        w = self.width
        layer = [(w,), (w,), (w, 3 * w), (3 * w,), (w, w), (w,)]
        layer += [(w,), (w,), (w, 4 * w), (4 * w,), (4 * w, w), (w,)]
        tables = [(self.vocabulary, w), (self.time, w)]
        return [*tables, *layer * self.layers, (w,), (w,), (w, self.vocabulary)]

    def weight(self, number: int) -> Array:
        """Return one of the weights: a small matrix, a scale of 1 or a shift of 0."""
        shapes = self.shapes
        shape = shapes[number]
        if len(shape) > 1:
            spread = np.float32(0.07)  # a standard deviation of 0.02
            drawn = np.random.default_rng(number).random(shape, np.float32)
            return (drawn - np.float32(0.5)) * spread
        scales = {2 + i * PER_LAYER + j for i in range(self.layers) for j in _NORM_SCALES}
        is_scale = number in scales or number == len(shapes) - 3
        return np.ones(shape, np.float32) if is_scale else np.zeros(shape, np.float32)

    def weights(self) -> list[Array]:
        """Return all weights in the order of `shapes`."""
        return [self.weight(number) for number in range(len(self.shapes))]

    def initialisers(self) -> list[Callable[..., Array]]:
        """Return what makes the weights when a session of graphfw begins; till then none are."""
        count = len(self.shapes)
        return [lambda shape, dtype, number=number: self.weight(number) for number in range(count)]

    def batches(self, batch: int | None = None) -> list[tuple[Array, Array]]:
        """Return 16 batches of random tokens with those that come next."""
        size = (16, self.batch if batch is None else batch, self.time + 1)
        text = np.random.default_rng(1).integers(0, self.vocabulary, size)
        return [(np.ascontiguousarray(b[:, :-1]), np.ascontiguousarray(b[:, 1:])) for b in text]

    def layers_of(self, held: Sequence[Any]) -> list[Sequence[Any]]:
        """Return the weights of each layer."""
        return [held[i : i + PER_LAYER] for i in range(2, 2 + self.layers * PER_LAYER, PER_LAYER)]


SMALL = Gpt(6, 384, 6, 128, 8, 256)
MIXED = replace(SMALL, precision="bf16")


def named(name: str) -> Gpt:
    """Return the network of a name: gpt, gpt-bf16, or gpt-4x128, of 4 layers that is 128 wide."""
    if name in ("gpt", "gpt-bf16"):
        return SMALL if name == "gpt" else MIXED
    layers, width = map(int, name.removeprefix("gpt-").split("x"))
    return replace(SMALL, layers=layers, width=width, heads=width // 64)


# graphfw


def _graphfw_graph(gpt: Gpt, initial: Sequence[Any]) -> tuple[Any, Any, Any, Any, Any]:
    """Return the graph, its feeds, the logits and the loss."""
    import graphfw as gf

    with gf.Graph() as graph:
        tokens = gf.placeholder(("batch", gpt.time), gf.int64, name="tokens")
        after = gf.placeholder(("batch", gpt.time), gf.int64, name="after")
        held = [gf.Variable(initial[i], f"w{i}", shape=s) for i, s in enumerate(gpt.shapes)]
        h = gf.take(held[0], tokens, axis=0) + held[1]
        for n1, b1, qkv, qkv_b, out, out_b, n2, b2, up, up_b, down, down_b in gpt.layers_of(held):
            joined = gf.layer_norm(h, n1, b1, eps=EPS) @ qkv + qkv_b
            joined = gf.reshape(joined, (*joined.shape[:-1], 3, gpt.heads, gpt.width // gpt.heads))
            q, k, v = (gf.swapaxes(joined[:, :, i], 1, 2) for i in range(3))
            attended = gf.scaled_dot_product_attention(q, k, v, causal=True)
            attended = gf.reshape(gf.swapaxes(attended, 1, 2), h.shape)
            h = h + (attended @ out + out_b)
            inner = gf.layer_norm(h, n2, b2, eps=EPS) @ up + up_b
            h = h + (gf.gelu(inner, approximate="tanh") @ down + down_b)
        logits = gf.layer_norm(h, held[-3], held[-2], eps=EPS) @ held[-1]
        loss = gf.nn.cross_entropy(logits, after)
    return graph, tokens, after, logits, loss


def graphfw_forward(gpt: Gpt) -> Case:
    """Return the logits of one batch."""
    graph, tokens, _, logits, _ = _graphfw_graph(gpt, gpt.initialisers())
    plan = devices.session(graph, gpt.precision).compile(logits, feeds=[tokens])
    batch = devices.given(gpt.batches()[0][:1])
    return Case(lambda: plan(*batch))


def described(gpt: Gpt, initial: Sequence[Any]) -> Described:
    """Describe the training step of weights that begin as arrays, or as initialisers make them."""
    import graphfw as gf

    graph, tokens, after, _, loss = _graphfw_graph(gpt, initial)
    with graph:
        train = gf.optim.AdamW(RATE, weight_decay=DECAY).minimize(loss)
    return Described(graph, [loss, train], [tokens, after])


def graphfw_step(gpt: Gpt) -> Case:
    """Return a training step."""
    graph, fetches, feeds = described(gpt, gpt.initialisers())
    plan = devices.session(graph, gpt.precision).compile(fetches, feeds=feeds)
    batches = list(map(devices.given, gpt.batches()))
    stream = itertools.cycle(batches)
    return Case(lambda: plan(*next(stream))[0], steps=lambda: steps_of(plan, batches[0]))


def limited_times(rounds: int) -> Figures:
    """Return the time of a step that keeps within a part of the memory, and of one without limit.

    Returns:
        The seconds, and what the limit has changed.
    """
    import graphfw as gf

    graph, fetches, feeds = described(SMALL, SMALL.initialisers())
    tokens, after = SMALL.batches(_LIMITED_BATCH)[0]
    plan = gf.Session(graph, verify="off").compile(fetches, feeds=feeds)
    peak = plan.memory(tokens, after).peak
    session = gf.Session(graph, verify="off", memory_limit=int(_LIMIT * peak))
    limited = session.compile(fetches, feeds=feeds)
    least = limited.memory(tokens, after).peak
    calls = {
        "graphfw": lambda: limited(tokens, after),
        "graphfw, no limit": lambda: plan(tokens, after),
    }
    note = f"takes {least / 2**20:.0f} MiB, without the limit {peak / 2**20:.0f} MiB"
    return timing.compare(calls, rounds), {"graphfw": note}


def _limited(runner: Runner) -> Figures:
    figures: Figures = runner.call("graphfw", limited_times, runner.settings.rounds)
    return figures


# PyTorch


def _torch_model(gpt: Gpt) -> tuple[Any, list[Any]]:
    """Return the function from tokens to logits, and the parameters: matrices as Linear has them.

    Tables stay as they are, and matrices are transposed: [out, in].
    """
    torch = torch_module()
    if gpt.precision == "tf32":
        torch.set_float32_matmul_precision("high")
    functional, width, heads = torch.nn.functional, gpt.width, gpt.heads
    arrays = [a.T.copy() if a.ndim == 2 and i > 1 else a for i, a in enumerate(gpt.weights())]
    held = [torch.nn.Parameter(t) for t in torch_tensors(arrays)]

    def logits_of(tokens: Any) -> Any:
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=gpt.precision == "bf16"):
            return plain(tokens)

    def plain(tokens: Any) -> Any:
        h = functional.embedding(tokens, held[0]) + held[1]
        for n1, b1, qkv, qkv_b, out, out_b, n2, b2, up, up_b, down, down_b in gpt.layers_of(held):
            joined = functional.linear(functional.layer_norm(h, (width,), n1, b1, EPS), qkv, qkv_b)
            projections = joined.view(*h.shape[:2], 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            attended = functional.scaled_dot_product_attention(*projections, is_causal=True)
            attended = attended.transpose(1, 2).reshape(h.shape)
            h = h + functional.linear(attended, out, out_b)
            inner = functional.linear(functional.layer_norm(h, (width,), n2, b2, EPS), up, up_b)
            inner = functional.gelu(inner, approximate="tanh")
            h = h + functional.linear(inner, down, down_b)
        normal = functional.layer_norm(h, (width,), held[-3], held[-2], EPS)
        return functional.linear(normal, held[-1]).float()

    return logits_of, held


def torch_forward(compiled: bool, gpt: Gpt) -> Case:
    """Return the logits of one batch."""
    torch = torch_module()
    torch.set_grad_enabled(False)
    logits_of, _ = _torch_model(gpt)
    if compiled:
        torch.compiler.reset()
        logits_of = devices.compiled(logits_of)
    (tokens,) = torch_tensors(gpt.batches()[0][:1])
    return Case(lambda: logits_of(tokens))


def torch_step(compiled: bool, gpt: Gpt) -> Case:
    """Return a training step, with the fused AdamW."""
    torch = torch_module()
    torch.set_grad_enabled(True)
    logits_of, held = _torch_model(gpt)
    optimiser = torch.optim.AdamW(held, RATE, weight_decay=DECAY, fused=True)

    def loss_of(tokens: Any, after: Any) -> Any:
        logits = logits_of(tokens).view(-1, gpt.vocabulary)
        return torch.nn.functional.cross_entropy(logits, after.view(-1))

    if compiled:
        torch.compiler.reset()
        loss_of = devices.compiled(loss_of)
    stream = itertools.cycle(list(map(torch_tensors, gpt.batches())))

    def step() -> Any:
        optimiser.zero_grad()
        loss = loss_of(*next(stream))
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Case(step)


# JAX


def _jax_logits(gpt: Gpt, held: Any, tokens: Any) -> Any:
    import jax
    from jax import numpy as jnp

    if gpt.precision == "tf32":
        jax.config.update("jax_default_matmul_precision", "tensorfloat32")
    if gpt.precision == "bf16":
        held = [w.astype(jnp.bfloat16) for w in held]

    def norm(x: Any, scale: Any, shift: Any) -> Any:
        x, kind = x.astype(jnp.float32), x.dtype
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return (centred * jax.lax.rsqrt(variance + EPS) * scale + shift).astype(kind)

    width, heads = gpt.width, gpt.heads
    seen = jnp.tri(gpt.time, dtype=bool)
    h = held[0][tokens] + held[1]
    for n1, b1, qkv, qkv_b, out, out_b, n2, b2, up, up_b, down, down_b in gpt.layers_of(held):
        joined = norm(h, n1, b1) @ qkv + qkv_b
        split = joined.reshape(*h.shape[:2], 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
        q, k, v = split
        scores = (q * (width // heads) ** -0.5) @ k.swapaxes(-1, -2)
        scores = jnp.where(seen, scores.astype(jnp.float32), -jnp.inf)
        attended = jax.nn.softmax(scores, axis=-1).astype(v.dtype) @ v
        h = h + attended.swapaxes(1, 2).reshape(h.shape) @ out + out_b
        inner = jax.nn.gelu(norm(h, n2, b2) @ up + up_b, approximate=True)
        h = h + inner @ down + down_b
    return (norm(h, held[-3], held[-2]) @ held[-1]).astype(jnp.float32)


def jax_forward(gpt: Gpt) -> Case:
    """Return the logits of one batch."""
    import jax

    held = [jax.device_put(a) for a in gpt.weights()]
    tokens = jax.device_put(gpt.batches()[0][0])
    compiled = jax.jit(functools.partial(_jax_logits, gpt))
    return Case(lambda: devices.waited(compiled(held, tokens)))


def jax_update(gpt: Gpt) -> tuple[Any, Any]:
    """Return a training step, one function, which is given the state's memory; and the state."""
    import jax
    from jax import numpy as jnp

    def loss_of(held: Any, tokens: Any, after: Any) -> Any:
        logits = _jax_logits(gpt, held, tokens)
        chosen = jnp.take_along_axis(logits, after[..., None], axis=-1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - chosen)

    def update(state: Any, tokens: Any, after: Any) -> Any:
        count, held, means, squares = state
        loss, gradients = jax.value_and_grad(loss_of)(held, tokens, after)
        count = count + 1
        means = [m + (g - m) * 0.1 for m, g in zip(means, gradients, strict=True)]
        squares = [v * 0.999 + g * g * 0.001 for v, g in zip(squares, gradients, strict=True)]
        rate, root = RATE / (1 - 0.9**count), jnp.sqrt(1 - 0.999**count)
        held = [
            p * (1 - RATE * DECAY) - rate * m / (jnp.sqrt(v) / root + 1e-8)
            for p, m, v in zip(held, means, squares, strict=True)
        ]
        return loss, (count, held, means, squares)

    start = [jax.device_put(a) for a in gpt.weights()]
    zeros = [jnp.zeros_like(a) for a in start]
    state = jnp.float32(0), start, zeros, [jnp.copy(z) for z in zeros]
    return jax.jit(update, donate_argnums=0), state


def jax_step(gpt: Gpt) -> Case:
    """Return a training step."""
    import jax

    compiled, first = jax_update(gpt)
    state = [first]
    stream = itertools.cycle([tuple(map(jax.device_put, b)) for b in gpt.batches()])

    def step() -> Any:
        loss, state[0] = compiled(state[0], *next(stream))
        return devices.waited(loss)

    return Case(step)


FORWARDS: dict[str, Callable[[Gpt], Case]] = {
    "graphfw": graphfw_forward,
    "torch": functools.partial(torch_forward, False),
    "torch.compile": functools.partial(torch_forward, True),
    "jax": jax_forward,
}
STEPS: dict[str, Callable[[Gpt], Case]] = {
    "graphfw": graphfw_step,
    "torch": functools.partial(torch_step, False),
    "torch.compile": functools.partial(torch_step, True),
    "jax": jax_step,
}


def makers(gpt: Gpt, kinds: dict[str, Callable[[Gpt], Case]]) -> dict[str, Maker]:
    """Return what makes the contenders of a size."""
    return {who: functools.partial(make, gpt) for who, make in kinds.items()}


WORKLOADS = [
    Contest("gpt-forward", f"GPT forward, {SMALL}", makers(SMALL, FORWARDS), (Target(0.8),), 1e-3),
    Contest(
        "gpt-step",
        f"GPT training step with AdamW, {SMALL}",
        makers(SMALL, STEPS),
        (Target(0.8),),
        rtol=1e-3,
        checks=3,
    ),
    Contest(
        "gpt-step-bf16",
        "gpt-step in mixed precision with bfloat16",
        makers(MIXED, STEPS),
        (Target(0.8),),
        rtol=1e-2,
        checks=3,
    ),
    Probe(
        "limited-gpt",
        f"gpt-step, batch {_LIMITED_BATCH}, in {_LIMIT:.0%} of the memory it takes without a limit",
        _limited,
        (Target(1.33, "graphfw, no limit"),),  # a third of a step is its forward graph
    ),
]
