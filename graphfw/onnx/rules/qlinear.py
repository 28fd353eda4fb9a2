"""ONNX Runtime's own operators on quantised numbers.

Each is computed with the numbers that the quantised ones stand for.
"""

from __future__ import annotations

from collections.abc import Callable

import graphfw as gf
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import ModelNode
from graphfw.onnx.rules.contrib import CONTRIB
from graphfw.onnx.rules.products import gemm
from graphfw.onnx.rules.quantised import centred, quantized, quantized_range
from graphfw.onnx.table import reads


def _real(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """Return the numbers that quantised ones stand for; scales may be one a column."""
    return centred(x, zero) * scale


def _again(y: Tensor, scale: Tensor, zero: Tensor | None, like: Tensor) -> Tensor:
    return quantized(y / scale, zero, like.dtype if zero is None else zero.dtype)


@reads("QLinearAdd", "QLinearMul", domain=CONTRIB)
def _pairs(
    node: ModelNode,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> Tensor:
    x, y = _real(a, a_scale, a_zero), _real(b, b_scale, b_zero)
    return _again(x + y if node.op_type == "QLinearAdd" else x * y, y_scale, y_zero, a)


_UNARY: dict[str, Callable[[ModelNode, Tensor], Tensor]] = {
    "QLinearLeakyRelu": lambda node, x: gf.leaky_relu(x, negative_slope=node.attr("alpha", 0.01)),
    "QLinearSigmoid": lambda node, x: gf.sigmoid(x),
    "QLinearGlobalAveragePool": lambda node, x: _mean(node, x),
    "QLinearSoftmax": lambda node, x: gf.softmax(x, axis=node.attr("axis", -1)),
}


@reads(*_UNARY, domain=CONTRIB)
def _unary(
    node: ModelNode,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> Tensor:
    made = _UNARY[node.op_type](node, _real(x, x_scale, x_zero))
    return _again(made, y_scale, y_zero, x)


def _mean(node: ModelNode, x: Tensor) -> Tensor:
    axes = range(1, x.ndim - 1) if node.attr("channels_last", 0) else range(2, x.ndim)
    return gf.mean(x, axis=tuple(axes), keepdims=True)


@reads("QLinearConcat", domain=CONTRIB)
def _concat(node: ModelNode, y_scale: Tensor, y_zero: Tensor, *xs: Tensor) -> Tensor:
    node.require(xs and not len(xs) % 3, "each of its inputs needs a scale and a zero point")
    operands = [_real(*xs[i : i + 3]) for i in range(0, len(xs), 3)]
    return _again(gf.concat(operands, axis=node.attr("axis")), y_scale, y_zero, xs[0])


@reads("QGemm", domain=CONTRIB)
def _qgemm(
    node: ModelNode,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    c: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
) -> Tensor:
    if node.attr("transB", 0) and b_scale.ndim == 1 and b_scale.shape[0] != 1:  # one a row
        b_scale, b_zero = gf.expand_dims(b_scale, -1), gf.expand_dims(b_zero, -1)
    made = gemm(node, _real(a, a_scale, a_zero), _real(b, b_scale, b_zero), None)
    if c is not None:  # in units of the product
        unit = a_scale * gf.reshape(b_scale, (-1,)) * node.attr("alpha", 1.0)
        made = made + gf.astype(c, gf.float32) * unit
    return made if y_scale is None else _again(made, y_scale, y_zero, a)


@reads("MatMulIntegerToFloat", domain=CONTRIB)
def _matmul_to_float(
    node: ModelNode,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    made = (centred(a, a_zero) @ centred(b, b_zero)) * (a_scale * b_scale)
    return made if bias is None else made + bias


@reads("DynamicQuantizeMatMul", domain=CONTRIB)
def _dynamic_matmul(
    node: ModelNode,
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    whole, a_scale, a_zero = quantized_range(a)
    made = (centred(whole, a_zero) @ centred(b, b_zero)) * (a_scale * b_scale)
    return made if bias is None else made + bias
