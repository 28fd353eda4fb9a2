"""Greedy generation by a GPT, with a cache of keys and values: the prompts, then token by token.

The network is that of `gpt`. Of graphfw and JAX the whole generation is one call; in PyTorch Python
calls each step, eager with the slots that are full, compiled with all slots and a mask.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import devices
from benchmarks.frameworks import Array, steps_of, torch_module, torch_tensors
from benchmarks.workload import Case, Contest, Maker, Target
from benchmarks.workloads.gpt import EPS, Gpt

_PROMPT, _NEW = 16, 112


def _sizes(batch: int) -> Gpt:
    return Gpt(4, 256, 4, _PROMPT + _NEW, batch, 256)


def _prompts(gpt: Gpt) -> Array:
    return np.random.default_rng(2).integers(0, gpt.vocabulary, (gpt.batch, _PROMPT))


def _weights(gpt: Gpt) -> list[Array]:
    """Return weights that make texts of many tokens: the head sees more than the last token."""
    weights = gpt.weights()
    weights[-1] = weights[-1] * np.float32(20)
    return weights


# graphfw


def _graphfw_model(gpt: Gpt) -> tuple[Any, dict[str, Array]]:
    """Return the model, and its weights by name."""
    import graphfw as gf

    class Model(gf.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = gf.nn.Embedding(gpt.vocabulary, gpt.width)
            self.positions = gf.nn.LearnedPositions(gpt.time, gpt.width)
            self.layers = gf.nn.TransformerEncoder(
                gpt.width,
                gpt.heads,
                gpt.layers,
                dropout=0.0,
                activation=functools.partial(gf.gelu, approximate="tanh"),
                norm_first=True,
                causal=True,
                eps=EPS,
            )
            self.head = gf.nn.Linear(gpt.width, gpt.vocabulary, bias=False)

        def init_cache(self, batch: Any, max_length: Any, **options: Any) -> Any:
            return self.layers.init_cache(batch, max_length, **options)

        def forward(self, tokens: Any, cache: Any) -> tuple[Any, Any]:
            at = cache[0].positions(tokens.shape[1])
            x, cache = self.layers(self.positions(self.tokens(tokens), at), cache=cache)
            return self.head(x), cache

    weights = _weights(gpt)
    state = {"tokens.weight": weights[0], "positions.weight": weights[1]}
    state |= {"layers.norm.weight": weights[-3], "layers.norm.bias": weights[-2]}
    state["head.weight"] = weights[-1]
    for i, layer in enumerate(gpt.layers_of(weights)):
        n1, b1, qkv, qkv_b, out, out_b, n2, b2, up, up_b, down, down_b = layer
        found = {"norm1": (n1, b1), "norm2": (n2, b2), "self_attn.out_proj": (out, out_b)}
        found |= {"linear1": (up, up_b), "linear2": (down, down_b)}
        joined = zip(*[np.split(x, 3, axis=-1) for x in (qkv, qkv_b)], strict=True)
        found |= {f"self_attn.{c}_proj": pair for c, pair in zip("qkv", joined, strict=True)}
        for name, pair in found.items():
            for kind, array in zip(("weight", "bias"), pair, strict=True):
                state[f"layers.layers.{i}.{name}.{kind}"] = array
    return Model(), state


def graphfw_case(gpt: Gpt) -> Case:
    """Return the generation, which is one run."""
    import graphfw as gf

    with gf.Graph() as graph:
        model, state = _graphfw_model(gpt)
        prompts = gf.placeholder(("batch", "time"), gf.int64, name="prompts")
        made = gf.nn.generate(model, prompts, _NEW)
    session = devices.session(graph)
    model.load_state_dict(session, state, format="graphfw")
    plan = session.compile(made, feeds=[prompts])
    fed = devices.given([_prompts(gpt)])
    return Case(lambda: plan(*fed), steps=lambda: steps_of(plan, fed))


# PyTorch


def torch_case(compiled: bool, gpt: Gpt) -> Case:
    """Return the generation, step by step."""
    torch = torch_module()
    torch.set_grad_enabled(False)
    f, width, heads, room = torch.nn.functional, gpt.width, gpt.heads, gpt.time
    arrays = [a.T.copy() if a.ndim == 2 and i > 1 else a for i, a in enumerate(_weights(gpt))]
    held = torch_tensors(arrays)
    (prompts,) = torch_tensors([_prompts(gpt)])
    size = (gpt.layers, gpt.batch, heads, room, width // heads)
    keys, values = (torch.zeros(size, device=prompts.device) for _ in range(2))
    slots = torch.arange(room, device=prompts.device)

    def step(tokens: Any, at: Any, seen: Any, full: int) -> Any:
        h = f.embedding(tokens, held[0]) + held[1][at]
        for i, layer in enumerate(gpt.layers_of(held)):
            n1, b1, qkv, qkv_b, out, out_b, n2, b2, up, up_b, down, down_b = layer
            joined = f.linear(f.layer_norm(h, (width,), n1, b1, EPS), qkv, qkv_b)
            q, k, v = joined.view(*h.shape[:2], 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            keys[i].index_copy_(2, at, k)
            values[i].index_copy_(2, at, v)
            there = keys[i, :, :, :full], values[i, :, :, :full]
            attended = f.scaled_dot_product_attention(q, *there, attn_mask=seen)
            h = h + f.linear(attended.transpose(1, 2).reshape(h.shape), out, out_b)
            inner = f.linear(f.layer_norm(h, (width,), n2, b2, EPS), up, up_b)
            h = h + f.linear(f.gelu(inner, approximate="tanh"), down, down_b)
        last = f.layer_norm(h[:, -1:], (width,), held[-3], held[-2], EPS)
        return f.linear(last, held[-1]).argmax(-1)

    if compiled:
        torch.compiler.reset()
    one = devices.compiled(step) if compiled else step

    def generate() -> Any:
        tokens, made = prompts, [prompts]
        for end in range(_PROMPT, _PROMPT + _NEW):
            at = slots[end - tokens.shape[1] : end]
            full = room if compiled else end
            has_mask = compiled or len(at) > 1
            seen = slots[:full] <= at[:, None] if has_mask else None
            tokens = (step if len(at) > 1 else one)(tokens, at, seen, full)
            made.append(tokens)
        return torch.cat(made, 1)

    return Case(generate)


# JAX


def jax_case(gpt: Gpt) -> Case:
    """Return the generation, which is one function."""
    import jax
    from jax import numpy as jnp

    width, heads, room = gpt.width, gpt.heads, gpt.time
    held = [jax.device_put(a) for a in _weights(gpt)]
    prompts = jax.device_put(_prompts(gpt))

    def norm(x: Any, scale: Any, shift: Any) -> Any:
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + EPS) * scale + shift

    def step(held: Any, tokens: Any, begin: Any, cache: Any) -> tuple[Any, Any]:
        at = begin + jnp.arange(tokens.shape[1])
        seen = jnp.arange(room) <= at[:, None]
        h, after = held[0][tokens] + held[1][at], []
        for layer, (keys, values) in zip(gpt.layers_of(held), cache, strict=True):
            n1, b1, qkv, qkv_b, out, out_b, n2, b2, up, up_b, down, down_b = layer
            joined = norm(h, n1, b1) @ qkv + qkv_b
            split = joined.reshape(*h.shape[:2], 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
            q, k, v = split
            keys = jax.lax.dynamic_update_slice(keys, k, (0, 0, begin, 0))
            values = jax.lax.dynamic_update_slice(values, v, (0, 0, begin, 0))
            after.append((keys, values))
            scores = (q * (width // heads) ** -0.5) @ keys.swapaxes(-1, -2)
            weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1)
            h = h + (weights @ values).swapaxes(1, 2).reshape(h.shape) @ out + out_b
            h = h + jax.nn.gelu(norm(h, n2, b2) @ up + up_b, approximate=True) @ down + down_b
        logits = norm(h[:, -1], held[-3], held[-2]) @ held[-1]
        return jnp.argmax(logits, axis=-1)[:, None], after

    def generate(held: Any, prompts: Any) -> Any:
        size = (gpt.batch, heads, room, width // heads)
        empty = [(jnp.zeros(size), jnp.zeros(size)) for _ in range(gpt.layers)]
        tokens, cache = step(held, prompts, 0, empty)

        def iteration(carry: Any, begin: Any) -> Any:
            tokens, cache = step(held, carry[0], begin, carry[1])
            return (tokens, cache), tokens[:, 0]

        begins = _PROMPT + jnp.arange(_NEW - 1)
        rest = jax.lax.scan(iteration, (tokens, cache), begins)[1]
        return jnp.concatenate([prompts, tokens, rest.T], axis=1)

    compiled = jax.jit(generate)
    return Case(lambda: devices.waited(compiled(held, prompts)))


_MAKERS: dict[str, Callable[[Gpt], Case]] = {
    "graphfw": graphfw_case,
    "torch": functools.partial(torch_case, False),
    "torch.compile": functools.partial(torch_case, True),
    "jax": jax_case,
}


def _contest(batch: int) -> Contest:
    gpt = _sizes(batch)
    makers: dict[str, Maker] = {w: functools.partial(make, gpt) for w, make in _MAKERS.items()}
    title = f"greedy generation of {_NEW} tokens, {gpt}"
    return Contest(f"generate-{batch}", title, makers, (Target(0.8),))


WORKLOADS = [_contest(1), _contest(8)]
