"""ONNX Runtime's own operators, which models have that it has optimised: layers and products.

Described in its docs/ContribOperators.md. Attention and quantised ones have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import ModelNode
from graphfw.onnx.rules.convolution import convolved
from graphfw.onnx.rules.normalise import standardised
from graphfw.onnx.rules.products import gemm
from graphfw.onnx.table import reads

CONTRIB = "com.microsoft"

_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "": lambda x: x,
    "Clip": gf.clip,
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: gf.clip(x * alpha + beta, 0, 1),
    "LeakyRelu": lambda x, alpha=0.01: gf.leaky_relu(x, negative_slope=alpha),
    "Relu": gf.relu,
    "Sigmoid": gf.sigmoid,
    "Tanh": gf.tanh,
}


# Products


@reads("FusedMatMul", "TransposeMatMul", domain=CONTRIB)
def _fused_matmul(node: ModelNode, a: Tensor, b: Tensor) -> Tensor:
    a, b = (
        _transposed(node, x, side) if x.ndim > 1 else x  # a vector stays
        for x, side in ((a, "A"), (b, "B"))
    )
    alpha = node.attr("alpha", 1.0)
    product = gf.matmul(a, b)
    return product if alpha == 1 else product * alpha


def _transposed(node: ModelNode, x: Tensor, side: str) -> Tensor:
    if node.attr(f"transBatch{side}", 0):  # [M, *B, K], as if it were [*B, M, K]
        x = gf.moveaxis(x, 0, -2)
    return x.mT if node.attr(f"trans{side}", 0) else x


@reads("FusedGemm", domain=CONTRIB)
def _fused_gemm(node: ModelNode, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    alpha = [node.attr("activation_alpha", 0.0)] if "activation_alpha" in node.attributes else []
    return _activated(node, gemm(node, a, b, c), alpha)


@reads("FusedConv", domain=CONTRIB)
def _fused_conv(
    node: ModelNode, x: Tensor, w: Tensor, bias: Tensor | None = None, more: Tensor | None = None
) -> Tensor:
    y = convolved(node, x, w, bias)
    return _activated(node, y if more is None else y + more, node.attr("activation_params", ()))


def _activated(node: ModelNode, x: Tensor, parameters: Any) -> Tensor:
    return _ACTIVATIONS[node.choice("activation", "", _ACTIVATIONS)](x, *parameters)


@reads("MatMulNBits", domain=CONTRIB)
def _matmul_bits(
    node: ModelNode,
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    group: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Multiply by weights of 2, 4 or 8 bits.

    a: [..., K]; b: [N, blocks, bytes]; scales: [N * blocks] -> [..., N]
    """
    k, n = node.attr("K", 0), node.attr("N", 0)
    bits, block = node.attr("bits", 4), node.attr("block_size", 0)
    node.require(k > 0 and n > 0, f"its weights are {k}×{n}")
    node.require(bits in (2, 4, 8) and block > 0, f"it has {bits} bits in blocks of {block}")
    node.require(group is None, "groups by index (g_idx) are not supported")
    blocks = -(-k // block)
    whole = gf.astype(_unpacked(gf.reshape(b, (n, -1)), bits), gf.float32)[:, : blocks * block]
    whole = gf.reshape(whole, (n, blocks, block))
    if zeros is None:
        middle: Any = float(1 << (bits - 1))
    elif zeros.dtype == gf.uint8:
        middle = _unpacked(gf.reshape(zeros, (n, -1)), bits)[:, :blocks]
        middle = gf.expand_dims(gf.astype(middle, gf.float32), -1)
    else:
        middle = gf.reshape(gf.astype(zeros, gf.float32), (n, blocks, 1))
    weights = (whole - middle) * gf.reshape(gf.astype(scales, gf.float32), (n, blocks, 1))
    weights = gf.astype(gf.reshape(weights, (n, -1))[:, :k], a.dtype)
    made = a @ weights.mT
    return made if bias is None else made + bias


def _unpacked(x: Tensor, bits: int) -> Tensor:
    """Return the numbers that bytes hold, the lowest bits first.  x: [N, bytes]"""
    if bits == 8:
        return x
    shifts = gf.constant(np.arange(0, 8, bits, dtype=np.uint8))
    shifted = gf.bitwise_right_shift(gf.expand_dims(x, -1), shifts)
    mask = gf.constant(np.asarray((1 << bits) - 1, np.uint8))
    return gf.reshape(gf.bitwise_and(shifted, mask), (x.shape[0], x.shape[1] * (8 // bits)))


# Activations


@reads("BiasGelu", domain=CONTRIB)
def _bias_gelu(node: ModelNode, x: Tensor, bias: Tensor) -> Tensor:
    return gf.gelu(x + bias)


@reads("Gelu", domain=CONTRIB)
def _gelu(node: ModelNode, x: Tensor) -> Tensor:
    return gf.gelu(x)


@reads("FastGelu", domain=CONTRIB)
def _fast_gelu(node: ModelNode, x: Tensor, bias: Tensor | None = None) -> Tensor:
    return gf.gelu(x if bias is None else x + bias, approximate="tanh")


@reads("QuickGelu", domain=CONTRIB)
def _quick_gelu(node: ModelNode, x: Tensor) -> Tensor:
    return x * gf.sigmoid(x * node.attr("alpha", 1.702))


# Normalisation


@reads("SimplifiedLayerNormalization")
def _simplified(node: ModelNode, x: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    axis = node.axis(node.attr("axis", -1), x.ndim)
    y, _, spread = standardised(x, axis, node.attr("epsilon", 1e-5), is_centred=False)
    return y * scale, spread


@reads("SkipLayerNormalization", domain=CONTRIB)
def _skip(
    node: ModelNode,
    x: Tensor,
    skip: Tensor,
    scale: Tensor,
    shift: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, ...]:
    total = x + skip if bias is None else x + skip + bias
    y, mean, spread = standardised(total, total.ndim - 1, node.attr("epsilon", 1e-12))
    y = y * scale
    return y if shift is None else y + shift, mean, spread, total


@reads("SkipSimplifiedLayerNormalization", domain=CONTRIB)
def _skip_simplified(
    node: ModelNode, x: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    total = x + skip if bias is None else x + skip + bias
    last = total.ndim - 1
    y, mean, spread = standardised(total, last, node.attr("epsilon", 1e-5), is_centred=False)
    return y * scale, mean, spread, total


@reads("EmbedLayerNormalization", domain=CONTRIB)
def _embed(
    node: ModelNode,
    words: Tensor,
    segments: Tensor | None,
    word_table: Tensor,
    position_table: Tensor,
    segment_table: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    mask: Tensor | None = None,
    positions: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Add the embeddings of words, positions and segments.

    words: [B, T] -> what is standardised [B, T, D], the lengths [B], the sums [B, T, D]
    """
    node.require(scale is not None and shift is not None, "its gamma or beta is missing")
    assert scale is not None
    assert shift is not None
    length = words.shape[1]
    by_position = (
        position_table[:length] if positions is None else gf.take(position_table, positions, axis=0)
    )
    total = gf.take(word_table, words, axis=0) + by_position
    if segments is not None and segment_table is not None:
        total = total + gf.take(segment_table, segments, axis=0)
    y, _, _ = standardised(total, 2, node.attr("epsilon", 1e-12))
    if mask is None:
        ends = gf.zeros((words.shape[0],), dtype=gf.int32)
    else:
        ends = gf.astype(gf.sum(mask, axis=1), gf.int32)
    return y * scale + shift, ends, total


@reads("RotaryEmbedding", domain=CONTRIB)
def _rotary(node: ModelNode, x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs of elements by their position.  x: [B, T, heads * D] or [B, heads, T, D]"""
    width = 2 * cos.shape[1]
    if x.ndim == 3:
        heads = node.attr("num_heads", 0)
        split = gf.reshape(x, (*x.shape[:2], heads or x.shape[2] // width, -1))
        result = rotated(node, gf.swapaxes(split, 1, 2), positions, cos, sin)
        return gf.reshape(gf.swapaxes(result, 1, 2), x.shape)
    return rotated(node, x, positions, cos, sin)


def rotated(node: ModelNode, x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs of elements by their position.

    x: [B, heads, T, D]; positions: [B, T], or [1] with the first; cos, sin: [positions, D / 2]
    """
    node.require(node.attr("scale", 1.0) == 1, "a scale is not supported")
    if positions.ndim == 1:
        positions = gf.expand_dims(gf.arange(x.shape[2]), 0) + positions
    width = 2 * cos.shape[1]
    c, s = (gf.expand_dims(gf.take(table, positions, axis=0), 1) for table in (cos, sin))
    turning, rest = x[..., :width], x[..., width:]
    if node.attr("interleaved", 0) or node.attr("rotary_interleaved", 0):
        a, b = turning[..., ::2], turning[..., 1::2]
        pairs = gf.stack([a * c - b * s, a * s + b * c], axis=-1)
        made = gf.reshape(pairs, turning.shape)
    else:
        a, b = turning[..., : width // 2], turning[..., width // 2 :]
        made = gf.concat([a * c - b * s, a * s + b * c], axis=-1)
    return gf.concat([made, rest], axis=-1)
