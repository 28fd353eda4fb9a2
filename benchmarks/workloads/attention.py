"""Attention: short, causal and with padded keys, with gradients; of one query with a cache."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.frameworks import Arrays, Formula
from benchmarks.workload import Contest, Target

SIZES = ((8, 6, 128, 64), (1, 12, 1024, 64), (1, 6, 4096, 64))
"""Batch, heads, queries and keys, width."""

SHORT = tuple((8, 6, time, 64) for time in (4, 8, 16, 32, 64))
"""The same, of short sequences."""

FILLED = (4, 8, 512, 64)
"""Batch, heads, queries and keys, width, of attention that is written out with a number as mask."""

DECODED = ((8, 12, 1024, 64), (1, 12, 4096, 64))
"""Batch, heads, keys, width: what a decoder's cache holds."""


def _inputs(
    size: tuple[int, int, int, int], causal: bool, differentiated: bool, dtype: str = "float32"
) -> Arrays:
    """Return q, k, v, the mask of the keys that are no padding, and a cotangent.

    mask: bool [batch, 1, 1, keys]; about a quarter of the keys are padding.
    """
    batch, _, time, _ = size
    rng = np.random.default_rng(0)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    arrays: Arrays = [rng.standard_normal(size, np.float32).astype(kind) for _ in range(3)]
    if not causal:
        lengths = rng.integers(time // 2, time + 1, batch)
        arrays.append((np.arange(time) < lengths[:, None])[:, None, None, :])
    return [
        *arrays,
        *([rng.standard_normal(size, np.float32).astype(kind)] if differentiated else []),
    ]


def _graphfw(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    import graphfw as gf

    return gf.scaled_dot_product_attention(q, k, v, mask, causal=mask is None)


def _cached_inputs(size: tuple[int, int, int, int]) -> Arrays:
    """Return one query a head, and the keys and values of the cache."""
    batch, heads, keys, width = size
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal((batch, heads, time, width), np.float32) for time in (1, keys, keys)
    ]


def _graphfw_cached(q: Any, k: Any, v: Any) -> Any:
    import graphfw as gf

    return gf.scaled_dot_product_attention(q, k, v)


def _numpy_cached(q: Any, k: Any, v: Any) -> Any:
    scores = (q * np.float32(q.shape[-1] ** -0.5)) @ k.swapaxes(-1, -2)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores @ v


def _torch_cached(q: Any, k: Any, v: Any) -> Any:
    import torch

    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def _jax_cached(q: Any, k: Any, v: Any) -> Any:
    import jax

    scores = (q * q.shape[-1] ** -0.5) @ k.swapaxes(-1, -2)
    return jax.nn.softmax(scores, axis=-1) @ v


def _weights(q: Any, k: Any, mask: Any) -> Any:
    scores = (q * np.float32(q.shape[-1] ** -0.5)) @ k.swapaxes(-1, -2)
    time = q.shape[-2]
    seen = np.tri(time, dtype=np.bool_) if mask is None else mask
    np.copyto(scores, -np.inf, where=~seen)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


def _numpy(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    return _weights(q, k, mask) @ v


def _numpy_grad(q: Any, k: Any, v: Any, *others: Any) -> Any:
    *mask, ct = others
    weights = _weights(q, k, mask[0] if mask else None)
    y = weights @ v
    scores = ct @ v.swapaxes(-1, -2)
    scores -= np.einsum("bhtd,bhtd->bht", ct, y)[..., None]
    scores *= weights
    scores *= np.float32(q.shape[-1] ** -0.5)
    return [y, scores @ k, scores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ ct]


def _torch(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    import torch

    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q, k, v, attn_mask=mask, is_causal=mask is None)


def torch_by_cudnn(q: Any, k: Any, v: Any) -> Any:
    """Return causal attention by cuDNN, which PyTorch takes by itself on some GPUs only."""
    import torch
    from torch.nn import attention

    with attention.sdpa_kernel(attention.SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _jax(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """Write it out: on CPUs that is faster than `jax.nn.dot_product_attention`."""
    import jax
    from jax import numpy as jnp

    scores = (q * q.shape[-1] ** -0.5) @ k.swapaxes(-1, -2)
    seen = jnp.tri(q.shape[-2], dtype=bool) if mask is None else mask
    return jax.nn.softmax(jnp.where(seen, scores, -jnp.inf), axis=-1) @ v


def formula_of(
    size: tuple[int, int, int, int], causal: bool, backward: bool, dtype: str = "float32"
) -> Formula:
    """Return attention, causal or with padded keys, and its gradients if wanted."""
    large = size[2] > 2000  # the other peers would make matrices of gigabytes
    by_numpy = _numpy_grad if backward else _numpy
    return Formula(
        functools.partial(_inputs, size, causal, backward, dtype),
        _graphfw,
        None if large else by_numpy,
        _torch,
        None if large else _jax,
        wrt=(0, 1, 2) if backward else (),
    )


def contest(
    size: tuple[int, int, int, int],
    causal: bool,
    backward: bool,
    name: str = "",
    dtype: str = "float32",
) -> Contest:
    """Return the workload of a formula."""
    batch, heads, time, width = size
    kind = "causal" if causal else "padded"
    text = f"{kind} attention{' and its gradients' if backward else ''}"
    return Contest(
        f"attention-{name or kind}-{time}{'-grad' if backward else ''}",
        f"{text}, B{batch} H{heads} T{time} d{width}",
        formula_of(size, causal, backward, dtype).makers(),
        (Target(1.0 if name else 0.6),),
        rtol=1e-3,
        atol=1e-4,
    )


def _filled_graphfw(q: Any, k: Any, v: Any) -> Any:
    import graphfw as gf

    scores = gf.where(gf.tril(gf.ones(2 * q.shape[-2:-1])) > 0, (q * 0.125) @ k.mT, -1e9)
    return gf.softmax(scores, axis=-1) @ v


def _filled_torch(q: Any, k: Any, v: Any) -> Any:
    import torch

    unseen = ~torch.ones(2 * q.shape[-2:-1], dtype=torch.bool).tril()
    scores = ((q * 0.125) @ k.mT).masked_fill(unseen, -1e9)
    return torch.softmax(scores, dim=-1) @ v


def _filled_jax(q: Any, k: Any, v: Any) -> Any:
    import jax
    from jax import numpy as jnp

    scores = jnp.where(jnp.tri(q.shape[-2], dtype=bool), (q * 0.125) @ k.mT, -1e9)
    return jax.nn.softmax(scores, axis=-1) @ v


def _filled(backward: bool) -> Contest:
    """Return causal attention as textbooks write it, whose masked scores are -1e9."""
    batch, heads, time, width = FILLED
    formula = Formula(
        functools.partial(_inputs, FILLED, True, backward),
        _filled_graphfw,
        _numpy_grad if backward else _numpy,
        _filled_torch,
        _filled_jax,
        wrt=(0, 1, 2) if backward else (),
    )
    return Contest(
        f"attention-filled-{time}{'-grad' if backward else ''}",
        f"attention written out with -1e9{' and its gradients' if backward else ''}, "
        f"B{batch} H{heads} T{time} d{width}",
        formula.makers(),
        (Target(0.6),),
        rtol=1e-3,
        atol=1e-4,
    )


def _decoding(size: tuple[int, int, int, int]) -> Contest:
    batch, heads, keys, width = size
    inputs = functools.partial(_cached_inputs, size)
    formula = Formula(inputs, _graphfw_cached, _numpy_cached, _torch_cached, _jax_cached)
    return Contest(
        f"attention-cached-{keys}",
        f"attention of one query, B{batch} H{heads} keys {keys} d{width}",
        formula.makers(),
        (Target(1.0),),
        rtol=1e-3,
        atol=1e-4,
    )


WORKLOADS = (
    [contest(size, True, backward, "short") for size in SHORT for backward in (False, True)]
    + [
        contest(size, causal, backward)
        for size in SIZES
        for causal in (True, False)
        for backward in (False, True)
    ]
    + [_filled(backward) for backward in (False, True)]
    + [_decoding(size) for size in DECODED]
)
