"""Complex numbers as pairs of reals along a last dim more: ONNX Runtime hardly has them.

They may occur between operations, not among a model's inputs, outputs and weights.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.onnx.builder import Builder, Val, fields
from graphfw.onnx.table import writes

Compose = Callable[..., Tensor]

_ALIKE = (
    *("add", "assert_shape", "broadcast_to", "concat", "flip", "gather", "identity", "index_add"),
    *("index_set", "negative", "permute_dims", "reshape", "resize", "roll", "slice", "slice_set"),
    *("stop_gradient", "subtract", "sum", "where"),
)
"""Ops that treat real parts and imaginary parts alike."""


def _paired(*names: str) -> Callable[[Compose], Compose]:
    """Register a function of a node, and of pairs and reals, as what writes complex ops."""

    def register(compose: Compose) -> Compose:
        @writes(*names, operands="complex")
        def write(b: Builder, node: Node, *inputs: Val) -> list[Val]:
            kinds = [pair_type(t.type) for t in node.inputs]
            reals = [Val(x.name, kind.dtype) for x, kind in zip(inputs, kinds, strict=True)]
            made = b.expand(lambda *xs: compose(node, *xs), reals, kinds)
            return [Val(y.name, kind.dtype) for y, kind in zip(made, node.types, strict=True)]

        return compose

    return register


def pair_type(kind: TensorType) -> TensorType:
    """Return the type of the pairs that stand for a complex tensor; a real one's is its own."""
    return TensorType(kind.dtype.real, (*kind.shape, 2)) if kind.dtype.is_complex else kind


def _of(real: Tensor, imag: Tensor) -> Tensor:
    return gf.stack([real, imag], axis=-1)


@_paired(*_ALIKE)
def _alike(node: Node, *xs: Tensor) -> Tensor:
    axes = tuple([-1 if t.dtype.is_complex else None for t in node.inputs])
    made: Tensor = gf.vmap(
        lambda *components: emit(node.op, *components), in_axes=axes, out_axes=-1
    )(*xs)
    return made


@_paired("real")
def _real(node: Node, x: Tensor) -> Tensor:
    return x[..., 0]


@_paired("imag")
def _imag(node: Node, x: Tensor) -> Tensor:
    return x[..., 1]


@_paired("conj")
def _conj(node: Node, x: Tensor) -> Tensor:
    return _of(x[..., 0], -x[..., 1])


@_paired("abs")
def _abs(node: Node, x: Tensor) -> Tensor:
    return gf.hypot(x[..., 0], x[..., 1])


@_paired("astype")
def _astype(node: Node, x: Tensor) -> Tensor:
    kind = node.types[0].dtype
    if not node.inputs[0].dtype.is_complex:
        x = gf.astype(x, kind.real)
        return _of(x, gf.zeros_like(x))
    return gf.astype(x, kind.real)


@_paired("multiply")
def _multiply(node: Node, a: Tensor, b: Tensor) -> Tensor:
    (p, q), (r, s) = (a[..., 0], a[..., 1]), (b[..., 0], b[..., 1])
    return _of(p * r - q * s, p * s + q * r)


@_paired("divide")
def _divide(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """a conj(b) / |b|², with b brought to the size of 1 before, so that nothing overflows."""
    scale = gf.max(gf.abs(b), axis=-1)
    (p, q), (r, s) = (a[..., 0], a[..., 1]), (b[..., 0] / scale, b[..., 1] / scale)
    size = (r * r + s * s) * scale
    return _of((p * r + q * s) / size, (q * r - p * s) / size)


@_paired("constant")
def _constant(node: Node) -> Tensor:
    array = fields(node).value.array
    return gf.constant(np.stack([array.real, array.imag], axis=-1))
