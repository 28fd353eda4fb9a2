"""Activations: ONNX has operators for them, and a graph the ops that they are made of."""

from __future__ import annotations

import graphfw as gf
from graphfw.ir.tensor import Tensor
from graphfw.onnx.fitting import fitted
from graphfw.onnx.node import ModelNode
from graphfw.onnx.table import Attribute, Rule, read_only, reads

read_only(
    Rule("Celu", gf.celu, {"alpha": Attribute("alpha")}),
    Rule("Elu", gf.elu, {"alpha": Attribute("alpha")}),
    Rule("Gelu", gf.gelu, {"approximate": Attribute("approximate")}),
    Rule("HardSwish", gf.hardswish),
    Rule("LeakyRelu", gf.leaky_relu, {"negative_slope": Attribute("alpha")}),
    Rule("Mish", gf.mish),
    Rule("Softplus", gf.softplus),
    Rule("Softsign", gf.softsign),
)


@reads("HardSigmoid")
def _hard_sigmoid(node: ModelNode, x: Tensor) -> Tensor:
    return gf.clip(x * node.attr("alpha", 0.2) + node.attr("beta", 0.5), 0, 1)


@reads("PRelu")
def _prelu(node: ModelNode, x: Tensor, slope: Tensor) -> Tensor:
    if node.version < 7 and slope.ndim == 1:
        slope = gf.reshape(slope, (-1, *[1] * (x.ndim - 2)))
    x, slope = fitted(x, slope)
    return gf.where(gf.less(x, gf.zeros_like(x)), x * slope, x)


@reads("Selu")
def _selu(node: ModelNode, x: Tensor) -> Tensor:
    alpha = node.attr("alpha", 1.67326319217681884765625)
    gamma = node.attr("gamma", 1.05070102214813232421875)
    return gf.multiply(gf.elu(x, alpha=alpha), gamma)


@reads("Shrink")
def _shrink(node: ModelNode, x: Tensor) -> Tensor:
    bias, bound = node.attr("bias", 0.0), node.attr("lambd", 0.5)
    low, high = gf.less(x, -bound), gf.greater(x, bound)
    zero = gf.zeros_like(x)
    moved = gf.where(
        low, x + gf.full_like(x, bias), gf.where(high, x - gf.full_like(x, bias), zero)
    )
    return moved


@reads("Swish")
def _swish(node: ModelNode, x: Tensor) -> Tensor:
    return x * gf.sigmoid(x * node.attr("alpha", 1.0))


@reads("ThresholdedRelu")
def _thresholded_relu(node: ModelNode, x: Tensor) -> Tensor:
    return gf.where(gf.greater(x, node.attr("alpha", 1.0)), x, gf.zeros_like(x))
