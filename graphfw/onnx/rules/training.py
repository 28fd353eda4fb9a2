"""Optimisers' steps, and gradients of the preview domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import graphfw as gf
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.node import ModelNode
from graphfw.onnx.table import reads

_DOMAIN = "ai.onnx.preview.training"


@reads("Gradient", domain=_DOMAIN)
def _gradient(node: ModelNode, *gradient: Tensor) -> tuple[Tensor, ...]:
    """Differentiate the value `y` by the values `xs`, where they are computed."""
    xs = [node.named(name) for name in node.attr("xs")]
    if any(x is not value for x, value in zip(xs, gradient, strict=False)):
        raise OnnxError("Gradient: its inputs must be the tensors that it differentiates by")
    return tuple(gf.grad(node.named(node.attr("y")), xs))


One = Callable[..., tuple[Tensor, ...]]


def _each(xs: Sequence[Tensor], kinds: int, step: One) -> tuple[Tensor, ...]:
    """Make a step for each parameter; inputs and outputs come sorted by kind."""
    count = len(xs) // kinds
    rows = [step(*xs[i::count]) for i in range(count)]
    return tuple([x for kind in zip(*rows, strict=True) for x in kind])


@reads("Adagrad", domain=_DOMAIN)
def _adagrad(node: ModelNode, rate: Tensor, step: Tensor, *xs: Tensor) -> tuple[Tensor, ...]:
    decay, epsilon = node.attr("decay_factor", 0.0), node.attr("epsilon", 1e-6)
    norm = node.attr("norm_coefficient", 0.0)
    scaled = rate / (1 + gf.astype(step, rate.dtype) * decay)

    def one(x: Tensor, g: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = g + x * norm
        h = h + gf.square(g)
        return x - scaled * g / (gf.sqrt(h) + epsilon), h

    return _each(xs, 3, one)


@reads("Adam", domain=_DOMAIN)
def _adam(node: ModelNode, rate: Tensor, step: Tensor, *xs: Tensor) -> tuple[Tensor, ...]:
    alpha, beta = node.attr("alpha", 0.9), node.attr("beta", 0.999)
    epsilon, norm = node.attr("epsilon", 1e-6), node.attr("norm_coefficient", 0.0)
    after = node.attr("norm_coefficient_post", 0.0)
    t = gf.astype(step, rate.dtype)
    corrected = rate * gf.sqrt(1 - gf.pow(beta, t)) / (1 - gf.pow(alpha, t))
    scaled = gf.where(step > 0, corrected, rate)

    def one(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = g + x * norm
        v = v * alpha + g * (1 - alpha)
        h = h * beta + gf.square(g) * (1 - beta)
        return (x - scaled * v / (gf.sqrt(h) + epsilon)) * (1 - after), v, h

    return _each(xs, 4, one)


@reads("Momentum", domain=_DOMAIN)
def _momentum(node: ModelNode, rate: Tensor, step: Tensor, *xs: Tensor) -> tuple[Tensor, ...]:
    alpha, beta = node.attr("alpha"), node.attr("beta")
    norm, is_nesterov = node.attr("norm_coefficient"), node.attr("mode") == "nesterov"
    weight = gf.where(step > 0, gf.astype(gf.asarray(beta), rate.dtype), gf.ones_like(rate))

    def one(x: Tensor, g: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        g = g + x * norm
        v = v * alpha + g * weight
        return x - rate * (g + v * alpha if is_nesterov else v), v

    return _each(xs, 3, one)
