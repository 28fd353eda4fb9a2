"""One token at a time: weights in 32, 16 and 8 bits, and caches that a scan carries."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.frameworks import Array, Arrays, Formula
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import NETWORKS, cast, contest, each, layers, name_of, normal
from benchmarks.longtail.model import Model
from benchmarks.workload import Contest

SIZE = 64
"""The width of a head."""

PER_LAYER = 8


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return a matrix of a small scale: even numbers are drawn faster than normal ones."""
    spread = np.float32((12 / shape[0]) ** 0.5)
    array = (rng.random(shape, np.float32) - np.float32(0.5)) * spread
    return array.astype(getattr(ml_dtypes, dtype, dtype))


def _weights(depth: int, heads: int, vocabulary: int, dtype: str) -> list[Array]:
    """Return the table, the layers (scales, shifts and matrices), and the last scale and shift."""
    rng, w = np.random.default_rng(0), heads * SIZE
    arrays = [_drawn(rng, (vocabulary, w), dtype)]
    for _ in range(depth):
        for shape in ((w, 3 * w), (w, w)):
            arrays += [np.ones(w, np.float32), np.zeros(w, np.float32)] if shape[1] > w else []
            arrays.append(_drawn(rng, shape, dtype))
        arrays += [np.ones(w, np.float32), np.zeros(w, np.float32)]
        arrays += [_drawn(rng, shape, dtype) for shape in ((w, 4 * w), (4 * w, w))]
    return [*arrays, np.ones(w, np.float32), np.zeros(w, np.float32)]


def _tokens(batch: int, vocabulary: int, depth: int, heads: int, seen: int) -> list[Arrays]:
    """Return a batch: the tokens, and the keys and values that each layer has seen."""
    rng = np.random.default_rng(1)
    kept = rng.random((2, depth, batch, heads, seen, SIZE), np.float32) - np.float32(0.5)
    return [[rng.integers(0, vocabulary, batch), kept[0], kept[1]]]


def _decoded(xp: Any, held: Any, token: Any, keys: Any, values: Any, *, way: str) -> Any:
    """Return the scores of the next token, and the keys and values of this one.

    Args:
        xp: The library.
        held: The weights.
        token: [batch]
        keys, values: [layers, batch, heads, time, size]
        way: "cast": 16-bit weights are cast in the graph; "half": products compute in 16 bits;
            "": all is float32.
    """
    of, batch, heads = layers(xp), token.shape[0], keys.shape[2]

    def product(x: Any, w: Any) -> Any:
        if way == "half":
            return cast(cast(x, "bfloat16") @ w, "float32")
        return x @ (cast(w, "float32") if way == "cast" else w)

    h = cast(held[0][token], "float32")
    made = []
    for layer in range(keys.shape[0]):
        first = 1 + layer * PER_LAYER
        s1, b1, qkv, out, s2, b2, up, down = held[first : first + PER_LAYER]
        joined = product(of.layer_norm(h, s1, b1), qkv)
        projections = xp.reshape(joined, (batch, 3, heads, 1, SIZE))
        q, k, v = (projections[:, i] for i in range(3))
        seen = [xp.concat([old[layer], new], axis=2) for old, new in ((keys, k), (values, v))]
        y = xp.reshape(of.attention(q, *seen, False), (batch, heads * SIZE))
        h = h + product(y, out)
        h = h + product(of.gelu(product(of.layer_norm(h, s2, b2), up)), down)
        made += [k, v]
    scores = product(of.layer_norm(h, held[-2], held[-1]), held[0].T)
    return [scores, xp.stack(made)]


def _token(draw: Draw, batch: int, way: str) -> Contest:
    depth, heads = draw.size(2, 12, least=1), draw.size(4, 12)
    vocabulary, seen = draw.size(1000, 50_000), draw.size(64, 1024)
    dtype = "bfloat16" if way else "float32"
    model = Model(
        functools.partial(_weights, depth, heads, vocabulary, dtype),
        functools.partial(_tokens, batch, vocabulary, depth, heads, seen),
        each(_decoded, NETWORKS, way=way),
    )
    kind = {"": "float32", "cast": "bfloat16 cast in the graph", "half": "bfloat16"}[way]
    title = f"a token of batch {batch}: {depth} layers, {heads * SIZE} wide, {seen} seen, {kind}"
    rtol, atol = (0.2, 5e-2) if way == "half" else (1e-2, 1e-3)
    return Contest("", title, model.makers(), rtol=rtol, atol=atol)


def token_float32(draw: Draw) -> Contest:
    return _token(draw, 1, "")


def token_bfloat16_cast(draw: Draw) -> Contest:
    return _token(draw, 1, "cast")


def token_bfloat16(draw: Draw) -> Contest:
    return _token(draw, 1, "half")


def token_batch(draw: Draw) -> Contest:
    return _token(draw, draw.size(2, 16), "")


# Rows times weights in 8 bits, with a scale for each column.  x: [m, k], w: int8 [k, n]


def _eight_bits(m: int, k: int, n: int, transposed: bool) -> Arrays:
    rng = np.random.default_rng(0)
    w = rng.integers(-127, 128, (n, k) if transposed else (k, n)).astype(np.int8)
    return [*normal((m, k)), rng.random(n, np.float32) / 127, w]


def _of_eight_bits(xp: Any, x: Any, scales: Any, w: Any, *, transposed: bool) -> Any:
    wide = cast(w, "float32")
    return (x @ (wide.T if transposed else wide)) * scales


def row_int8(draw: Draw) -> Contest:
    m, k, n = draw.choice(1, 1, 4), draw.size(512, 4096), draw.size(512, 4096)
    transposed = draw.choice(False, True)
    formula = Formula(
        functools.partial(_eight_bits, m, k, n, transposed),
        **each(_of_eight_bits, NETWORKS, transposed=transposed),
        constants=1,
    )
    title = f"{m} rows of {k} times int8 weights {'of outputs first, ' if transposed else ''}to {n}"
    return contest(title, formula, compiled=True, rtol=1e-3, atol=1e-4)


# A sequence decoded in a scan that carries the cache.  x: [steps, w], cache: [heads, time, size]


def _cached_inputs(steps: int, heads: int) -> Arrays:
    w = heads * SIZE
    x, qkv, out = normal((steps, w), (w, 3 * w), (w, w))
    factor = np.float32(w**0.5)
    return [x, qkv / factor, out / factor, *np.zeros((2, heads, steps, SIZE), np.float32)]


def _attend(xp: Any, state: Any, x: Any, i: Any, keys: Any, values: Any, weights: Any) -> Any:
    """Return what one token becomes; keys and values have its own already."""
    q, positions = state
    scores = xp.sum(q[:, None, :] * keys, axis=-1) * SIZE**-0.5
    scores = xp.where(positions <= i, scores, -1e9)
    highest = xp.max(scores, axis=-1, keepdims=True)
    probabilities = xp.exp(scores - highest)
    probabilities = probabilities / xp.sum(probabilities, axis=-1, keepdims=True)
    y = xp.sum(probabilities[..., None] * values, axis=1)
    return x + xp.reshape(y, (-1,)) @ weights


def _in_scan(xp: Any, x: Any, qkv: Any, out: Any, keys: Any, values: Any) -> Any:
    heads, steps, _ = keys.shape
    positions = xp.arange(steps)

    def step(carry: Any, given: Any) -> Any:
        last, keys, values = carry
        i, row = given
        h = row + 0.1 * last
        q, k, v = (xp.reshape(h @ qkv, (3, heads, SIZE))[j] for j in range(3))
        keys, values = keys.at[:, i].set(k), values.at[:, i].set(v)
        y = _attend(xp, (q, positions), h, i, keys, values, out)
        return (y, keys, values), y

    init = (xp.zeros_like(x[0]), keys, values)
    if name_of(xp) == "jax":
        import jax

        return jax.lax.scan(step, init, (positions, x))[1]
    return xp.scan(step, init, (positions, x))[1]


def _in_python(x: Any, qkv: Any, out: Any, keys: Any, values: Any) -> Any:
    import torch

    heads, steps, _ = keys.shape
    keys, values, last, ys = keys.clone(), values.clone(), torch.zeros_like(x[0]), []
    for i in range(steps):
        h = x[i] + 0.1 * last
        q, k, v = (h @ qkv).view(3, heads, SIZE)
        keys[:, i], values[:, i] = k, v
        attend = torch.nn.functional.scaled_dot_product_attention
        y = attend(q[:, None], keys[:, : i + 1], values[:, : i + 1])
        last = h + y.reshape(-1) @ out
        ys.append(last)
    return torch.stack(ys)


def cache_in_scan(draw: Draw) -> Contest:
    steps, heads = draw.size(32, 512, least=4), draw.size(2, 12)
    functions = {**each(_in_scan, ("graphfw", "jax")), "torch": _in_python}
    formula = Formula(functools.partial(_cached_inputs, steps, heads), **functions)
    title = f"{steps} tokens in a scan that carries a cache, {heads} heads of {SIZE}"
    return contest(title, formula, rtol=1e-2, atol=1e-3)


FAMILIES = {
    token_float32: 1,
    token_bfloat16_cast: 1,
    token_bfloat16: 1,
    token_batch: 1,
    row_int8: 1,
    cache_in_scan: 1,
}
"""Each with how many workloads a run draws from it."""
