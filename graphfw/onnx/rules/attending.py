"""Attention of ONNX Runtime's own operators, which optimised transformers have."""

from __future__ import annotations

from typing import Any

import graphfw as gf
from graphfw.errors import counted
from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import ModelNode
from graphfw.onnx.rules.contrib import CONTRIB, rotated
from graphfw.onnx.table import reads


@reads("Attention", domain=CONTRIB)
def _attention(
    node: ModelNode,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    more: Tensor | None = None,
    length: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Attend with queries, keys and values of one product.

    x: [B, T, C]; weights: [C, 3 * D]; past: [2, B, heads, P, D / heads] -> [B, T, D], present
    """
    node.require(length is None, "a buffer that past and present share is not supported")
    node.require(not node.attr("do_rotary", 0), "do_rotary is not supported")
    whole = x @ weights if bias is None else x @ weights + bias
    if "qkv_hidden_sizes" in node.attributes:
        sizes = node.numbers("qkv_hidden_sizes", (0, 0, 0))
        projections = gf.split(whole, [sizes[0], sizes[0] + sizes[1]], axis=-1)
    else:
        projections = gf.split(whole, 3, axis=-1)
    heads = node.attr("num_heads", 0)
    q, k, v = (_heads(node, projection, heads) for projection in projections)
    if past is not None:
        k, v = gf.concat([past[0], k], axis=2), gf.concat([past[1], v], axis=2)
    made = _attended(node, q, k, v, _masked(node, mask, k.shape[2]), more)
    return (made, gf.stack([k, v])) if node.wants(1) else (made,)


@reads("MultiHeadAttention", domain=CONTRIB)
def _multi_head(
    node: ModelNode,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    more: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Attend with queries, keys and values that are already projected.

    query: [B, T, D], or [B, T, heads, 3, E] with all three; key: [B, S, D], or [B, heads, S, E];
    value like key -> [B, T, D], present key, present value
    """
    heads = node.attr("num_heads", 0)
    if query.ndim == 5:
        query, key, value = (query[:, :, :, i] for i in range(3))
        query, key, value = (gf.reshape(t, (*t.shape[:2], -1)) for t in (query, key, value))
    elif key is not None and key.ndim == 5:
        key, value = (gf.reshape(key[:, :, :, i], (*key.shape[:2], -1)) for i in range(2))
    node.require(key is not None and value is not None, "its key or value is missing")
    assert key is not None
    assert value is not None
    if bias is not None:
        ends = [query.shape[-1], 2 * query.shape[-1]]
        added = gf.split(bias, ends, axis=0)
        node.require(key.ndim == 3, "a bias of keys that are in heads is not supported")
        query, key, value = query + added[0], key + added[1], value + added[2]
    q, k, v = (_heads(node, t, heads) if t.ndim == 3 else t for t in (query, key, value))
    if past_key is not None and past_value is not None:
        k, v = gf.concat([past_key, k], axis=2), gf.concat([past_value, v], axis=2)
    return _attended(node, q, k, v, _masked(node, mask, k.shape[2]), more), k, v


@reads("GroupQueryAttention", domain=CONTRIB)
def _group_query(
    node: ModelNode,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    ends: Tensor,
    total: Tensor,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Attend causally, several query heads to each head of keys.

    query: [B, T, D]; key, value: [B, T, KV]; past: [B, heads, P, E]; ends: [B] positions of the
    last keys -> [B, T, D], present key, present value. The past is taken to be as long as its
    tensor.
    """
    heads, shared = node.attr("num_heads", 0), node.attr("kv_num_heads", 0)
    node.require(
        0 < shared <= heads and not heads % shared,
        f"{counted(heads, 'head')} don't share {shared}",
    )
    if key is None or value is None:
        width = query.shape[-1] // (heads + 2 * shared)
        cuts = [heads * width, (heads + shared) * width]
        query, key, value = gf.split(query, cuts, axis=-1)
    window = node.attr("local_window_size", -1)
    node.require(
        window == -1 and not node.attr("softcap", 0.0), "windows and caps aren't supported"
    )
    q = _heads(node, query, heads)
    k, v = (_heads(node, t, shared) for t in (key, value))
    before: DimLike = 0 if past_key is None else past_key.shape[2]
    if node.attr("do_rotary", 0):
        node.require(cos is not None and sin is not None, "its cos_cache or sin_cache is missing")
        assert cos is not None
        assert sin is not None
        positions = gf.expand_dims(gf.arange(q.shape[2]) + before, 0)
        q, k = (rotated(node, t, positions, cos, sin) for t in (q, k))
    if past_key is not None and past_value is not None:
        k, v = gf.concat([past_key, k], axis=2), gf.concat([past_value, v], axis=2)
    seen = gf.expand_dims(gf.arange(k.shape[2]), 0) <= gf.expand_dims(
        gf.arange(q.shape[2]) + before, -1
    )
    # After an example's end there is padding.
    inside = gf.arange(k.shape[2]) <= gf.reshape(gf.astype(ends, gf.int64), (-1, 1, 1, 1))
    times = heads // shared
    made = gf.scaled_dot_product_attention(
        q,
        gf.repeat(k, times, axis=1),
        gf.repeat(v, times, axis=1),
        gf.logical_and(seen, inside),
        scale=node.attr("scale", 0.0) or None,
    )
    return _joined(made), k, v


def _heads(node: ModelNode, x: Tensor, count: int) -> Tensor:
    """[B, T, heads * E] -> [B, heads, T, E]"""
    fits = x.ndim == 3 and count > 0 and (not isinstance(x.shape[2], int) or not x.shape[2] % count)
    node.require(fits, f"{x.shape} can't be shared out to {counted(count, 'head')}")
    return gf.swapaxes(gf.reshape(x, (x.shape[0], x.shape[1], count, x.shape[2] // count)), 1, 2)


def _joined(x: Tensor) -> Tensor:
    """[B, heads, T, E] -> [B, T, heads * E]"""
    b, heads, length, width = x.shape
    return gf.reshape(gf.swapaxes(x, 1, 2), (b, length, heads * width))


def _masked(node: ModelNode, mask: Tensor | None, keys: DimLike) -> Tensor | None:
    """Return the addend of the scores for a mask of ints.

    mask: [B, S] or [B, T, S] with 1 for keys to see, or [B] with the numbers of keys
    """
    if mask is None:
        return None
    low = node.attr("mask_filter_value", -10000.0)
    if mask.ndim == 1:
        seen: Any = gf.arange(keys) < gf.reshape(gf.astype(mask, gf.int64), (-1, 1, 1, 1))
    else:
        node.require(mask.ndim in (2, 3), f"a mask of shape {mask.shape} is not supported")
        seen = gf.expand_dims(mask != 0, 1)
        seen = gf.expand_dims(seen, 2) if mask.ndim == 2 else seen
    return gf.where(seen, 0.0, low)


def _attended(
    node: ModelNode, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, more: Tensor | None
) -> Tensor:
    """Attend.  q: [B, heads, T, E] -> [B, T, heads * E]"""
    if node.attr("unidirectional", 0):
        # The last query sees the last key.
        keys, queries = k.shape[2], q.shape[2]
        ahead = gf.arange(keys) > gf.expand_dims(gf.arange(queries) + (keys - queries), -1)
        future = gf.where(ahead, float("-inf"), 0.0)
        mask = future if mask is None else mask + future
    if more is not None:
        mask = more if mask is None else mask + more
    if mask is not None:
        mask = gf.astype(mask, q.dtype)
    made = gf.scaled_dot_product_attention(q, k, v, mask, scale=node.attr("scale", 0.0) or None)
    return _joined(made)
