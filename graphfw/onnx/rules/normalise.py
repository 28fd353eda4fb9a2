"""Normalisation over a batch, a channel, an example."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import graphfw as gf
from graphfw.errors import counted
from graphfw.ir.constants import constant_array
from graphfw.ir.literal import Array
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import ModelNode
from graphfw.onnx.table import reads
from graphfw.ops.composed import power_of_positive


@reads("BatchNormalization")
def _batch_normalization(
    node: ModelNode, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor
) -> tuple[Tensor, ...] | Tensor:
    epsilon, momentum = node.attr("epsilon", 1e-5), node.attr("momentum", 0.9)
    if not node.attr("spatial", 1):  # opset 7: statistics for each element of an example
        factor = scale * gf.rsqrt(var + epsilon)
        return (x - mean) * factor + bias
    node.require(x.ndim > 1, "x has no channels")
    node.require(
        node.version >= 14 or not any(node.outputs[1:]),
        f"training in opset {node.version} is not supported: say training_mode in opset 14",
    )
    if not node.attr("training_mode", 0):
        return _by_statistics(x, mean, var, scale, bias, epsilon)
    axes = tuple([i for i in range(x.ndim) if i != 1])
    now, spread = gf.mean(x, axis=axes), gf.var(x, axis=axes)
    y = _by_statistics(x, now, spread, scale, bias, epsilon)
    return y, mean * momentum + now * (1 - momentum), var * momentum + spread * (1 - momentum)


def _by_statistics(
    x: Tensor, mean: Tensor, var: Tensor, scale: Tensor, bias: Tensor, epsilon: float
) -> Tensor:
    found = [constant_array(t) for t in (mean, var, scale, bias)]
    known = [array for array in found if array is not None]
    if len(known) == len(found):
        factor, shift = _known_statistics(known, epsilon, x)
    else:
        per_channel = scale * gf.rsqrt(var + epsilon)
        factor, shift = _wide(per_channel, x), _wide(bias - mean * per_channel, x)
    return gf.astype(x * factor + shift, x.dtype)


def _known_statistics(arrays: Sequence[Array], epsilon: float, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the factor and the addend of x, laid along axis 1, each rounded once.

    Networks have hundreds of these, and each of them would be a dozen nodes to fold.
    """
    dtype = gf.result_type(*[array.dtype for array in arrays]).dtype
    mean, var, scale, bias = [array.astype(np.float64) for array in arrays]
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + epsilon)
        shift = bias - mean * factor
        factor, shift = factor.astype(dtype), shift.astype(dtype)
    dims = _along_channels(x)
    return gf.constant(factor.reshape(dims)), gf.constant(shift.reshape(dims))


def _wide(per_channel: Tensor, x: Tensor) -> Tensor:
    """Lay one value a channel along axis 1 of x."""
    return gf.reshape(per_channel, _along_channels(x))


def _along_channels(x: Tensor) -> tuple[int, ...]:
    return (-1, *[1] * (x.ndim - 2))


@reads("LayerNormalization")
def _layer_normalization(
    node: ModelNode, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, ...]:
    axis = node.axis(node.attr("axis", -1), x.ndim)
    y, mean, spread = standardised(x, axis, node.attr("epsilon", 1e-5))
    y = y * scale
    return y if bias is None else y + bias, mean, spread


def standardised(
    x: Tensor, axis: int, epsilon: float, *, is_centred: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Standardise over an axis and those after it, in float32 at least.

    Returns: what comes out, in x's dtype; the mean (0 where it is not to be centred); what it was
    multiplied by.
    """
    axes = tuple(range(axis, x.ndim))
    wide = gf.astype(x, gf.result_type(x.dtype, gf.float32))
    mean = gf.mean(wide, axis=axes, keepdims=True)
    centred = wide - mean if is_centred else wide
    spread = gf.rsqrt(gf.mean(gf.square(centred), axis=axes, keepdims=True) + epsilon)
    return gf.astype(centred * spread, x.dtype), mean, spread


@reads("InstanceNormalization")
def _instance_normalization(node: ModelNode, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    axes = tuple(range(2, x.ndim))
    y = _centred(x, axes, node.attr("epsilon", 1e-5))
    return y * _wide(scale, x) + _wide(bias, x)


def _centred(x: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    centred = x - gf.mean(x, axis=axes, keepdims=True)
    return centred * gf.rsqrt(gf.mean(gf.square(centred), axis=axes, keepdims=True) + epsilon)


_MOST_CHANNELS = 4096
"""The most channels that are added up: each adds nodes to the graph."""


@reads("LRN")
def _local_response_normalization(node: ModelNode, x: Tensor) -> Tensor:
    size = node.attr("size")
    node.require(0 < size <= _MOST_CHANNELS, f"size={size} is not from 1 to {_MOST_CHANNELS}")
    node.require(x.ndim >= 2, f"its input of {counted(x.ndim, 'dim')} has no channels")
    alpha, beta = node.attr("alpha", 1e-4), node.attr("beta", 0.75)
    before = (size - 1) // 2
    pairs = [(0, 0)] * x.ndim
    pairs[1] = (before, size - 1 - before)
    squares = gf.pad(gf.square(x), pairs)
    channels = x.shape[1]
    total = squares[:, :channels]
    for i in range(1, size):
        total = total + squares[:, i : channels + i]
    bias = node.attr("bias", 1.0)
    divisor = total * (alpha / size) + bias
    positive = bias > 0 and alpha >= 0
    return x / (power_of_positive(divisor, beta) if positive else gf.pow(divisor, beta))
