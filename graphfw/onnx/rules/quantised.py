"""Quantised numbers: conversions and products."""

from __future__ import annotations

import graphfw as gf
from graphfw.ir.dtype import DType
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import ModelNode
from graphfw.onnx.rules.convolution import convolved
from graphfw.onnx.table import reads
from graphfw.onnx.types import converted, dtype_of, limits


@reads("QuantizeLinear")
@reads("QuantizeLinear", domain="com.microsoft")
def _quantize(node: ModelNode, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    number = node.attr("output_dtype", 0)
    to = zero.dtype if zero is not None else dtype_of(number) if number else gf.uint8
    node.require(to.name.startswith(("float", "int", "uint")), f"it can't make {to}")
    axis, block = node.attr("axis", 1), node.attr("block_size", 0)
    precision = node.attr("precision", 0)
    wide = dtype_of(precision) if precision else gf.result_type(x.dtype, scale.dtype)
    ratio = gf.astype(x, wide) / gf.astype(_laid(scale, x, axis, block), wide)
    offset = None if zero is None else _laid(zero, x, axis, block)
    return quantized(ratio, offset, to, saturate=bool(node.attr("saturate", 1)))


def quantized(ratio: Tensor, zero: Tensor | None, to: DType, saturate: bool = True) -> Tensor:
    """Round numbers that are divided by their scale, move and clip them."""
    if to.name.startswith("float"):
        moved = ratio if zero is None else ratio + gf.astype(zero, ratio.dtype)
        return converted(moved, to, saturate=saturate)
    wide = gf.result_type(ratio.dtype, gf.float32)  # float16 can't count to the largest uint16
    moved = gf.astype(gf.round(ratio), wide)
    if zero is not None:
        moved = moved + gf.astype(zero, wide)
    return gf.astype(gf.clip(moved, *limits(to)), to)


@reads("DequantizeLinear")
@reads("DequantizeLinear", domain="com.microsoft")
def _dequantize(node: ModelNode, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    axis, block = node.attr("axis", 1), node.attr("block_size", 0)
    number = node.attr("output_dtype", 0)
    to = dtype_of(number) if number else scale.dtype
    factor = gf.astype(_laid(scale, x, axis, block), gf.float32)
    offset = None if zero is None else _laid(zero, x, axis, block)
    return gf.astype(centred(x, offset) * factor, to)


def centred(x: Tensor, zero: Tensor | None) -> Tensor:
    """Return the whole numbers that quantised ones stand for, as float32."""
    if zero is None:
        return gf.astype(x, gf.float32)
    if x.dtype.name.startswith("float"):
        return gf.astype(x, gf.float32) - gf.astype(zero, gf.float32)
    return gf.astype(gf.astype(x, gf.int32) - gf.astype(zero, gf.int32), gf.float32)


def _laid(parameter: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """Lay scales or zero points along x: one for all, one per index of an axis, or blocks."""
    if parameter.ndim == 0 or (parameter.ndim == 1 and parameter.shape[0] == 1):
        return gf.reshape(parameter, ())
    if block:
        repeated = gf.repeat(parameter, block, axis=axis)
        key = tuple([slice(0, size) for size in x.shape])
        return repeated[key]
    shape = [1] * x.ndim
    shape[axis % x.ndim] = -1
    return gf.reshape(parameter, shape)


@reads("MatMulInteger")
def _matmul_integer(
    node: ModelNode,
    a: Tensor,
    b: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
) -> Tensor:
    return _integers(a, _rows(a_zero)) @ _integers(b, b_zero)


@reads("ConvInteger")
def _conv_integer(
    node: ModelNode,
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
) -> Tensor:
    return convolved(node, _integers(x, x_zero), _integers(w, _channels(w_zero, w)))


def _integers(x: Tensor, zero: Tensor | None) -> Tensor:
    whole = gf.astype(x, gf.int32)
    return whole if zero is None else whole - gf.astype(zero, gf.int32)


def _rows(zero: Tensor | None) -> Tensor | None:
    """Lay a zero point for each row along the rows."""
    return gf.expand_dims(zero, -1) if zero is not None and zero.ndim == 1 else zero


def _channels(zero: Tensor | None, w: Tensor) -> Tensor | None:
    """Lay a zero point for each output channel along the first axis."""
    if zero is None or not zero.ndim:
        return zero
    return gf.reshape(zero, (-1, *[1] * (w.ndim - 1)))


@reads("QLinearMatMul")
def _quantised_matmul(
    node: ModelNode,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    product = _integers(a, _rows(a_zero)) @ _integers(b, b_zero)
    scales = [gf.astype(s, gf.float32) for s in (_rows(a_scale), b_scale, y_scale)]
    ratio = gf.astype(product, gf.float32) * (scales[0] * scales[1] / scales[2])
    return quantized(ratio, y_zero, y_zero.dtype)


@reads("QLinearConv")
def _quantised_conv(
    node: ModelNode,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
) -> Tensor:
    y = convolved(node, _integers(x, x_zero), _integers(w, _channels(w_zero, w)))
    wide = [-1, *[1] * (x.ndim - 2)]
    if bias is not None:
        y = y + gf.reshape(bias, wide)
    factor = gf.reshape(w_scale, wide) if w_scale.ndim else w_scale
    return quantized(gf.astype(y, gf.float32) * (x_scale * factor / y_scale), y_zero, y_zero.dtype)


@reads("DynamicQuantizeLinear")
def _dynamic_quantize(node: ModelNode, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return quantized_range(x)


def quantized_range(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a tensor in 8 bits, from its least to its largest element, its scale and zero."""
    low, high = gf.minimum(gf.min(x), 0.0), gf.maximum(gf.max(x), 0.0)
    scale = (high - low) / 255
    scale = gf.where(scale == 0, gf.ones_like(scale), scale)  # of nothing but zeros
    zero = gf.astype(gf.clip(gf.round(-low / scale), 0, 255), gf.uint8)
    return quantized(x / scale, zero, gf.uint8), scale, zero
