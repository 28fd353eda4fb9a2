"""Operators and ops that make tensors of nothing, or of sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

import graphfw as gf
from graphfw.errors import counted
from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Node, Tensor
from graphfw.onnx.builder import Builder, Val, fields, positions
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.measuring import dims_of, is_measured, measured
from graphfw.onnx.node import ModelNode, Strings, Value, as_value
from graphfw.onnx.table import reads, writes
from graphfw.onnx.types import dtype_of

# Tensors out of nothing


@reads("Constant")
def _constant(node: ModelNode) -> Value:
    for name in ("value", "sparse_value"):
        if name in node.attributes:
            return as_value(node.attr(name))
    for name, dtype in (("int", np.int64), ("float", np.float32)):
        for suffix in ("", "s"):
            if f"value_{name}{suffix}" in node.attributes:
                return gf.constant(np.asarray(node.attr(f"value_{name}{suffix}"), dtype))
    for name in ("value_string", "value_strings"):
        if name in node.attributes:
            return Strings(node.attr(name))
    raise OnnxError("Constant: it has no value")


@writes("constant")
def _write_constant(b: Builder, node: Node) -> Val:
    return b.constant(fields(node).value.array)


@reads("ConstantOfShape")
def _constant_of_shape(node: ModelNode, shape: Tensor) -> Tensor:
    value = node.attr("value", np.zeros(1, np.float32))
    return gf.full(dims_of(node, shape, "the shape"), gf.constant(value.reshape(())))


@reads("EyeLike")
def _eye_like(node: ModelNode, x: Tensor) -> Tensor:
    dtype = dtype_of(node.attr("dtype")) if "dtype" in node.attributes else x.dtype
    node.require(x.ndim == 2, f"x has {counted(x.ndim, 'dim')}, not 2")
    return gf.eye(*x.shape, k=node.attr("k", 0), dtype=dtype)


@reads("Range")
def _range(node: ModelNode, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    bounds = (start, limit, delta)
    is_open = any(node.facts.value(x) is None for x in bounds)
    if is_open and node.facts.measures and is_measured(node, *bounds):
        return _measured_range(node, *bounds)
    if start.dtype.is_floating:
        first, last, step = (node.real(x, "a bound") for x in (start, limit, delta))
        node.require(step and math.isfinite((last - first) / step), "its step is 0, or a bound is")
        count = max(math.ceil((last - first) / step), 0)
        return start + gf.astype(gf.arange(count), start.dtype) * delta
    begin, end = node.dim(start, "the start"), node.dim(limit, "the limit")
    by = node.integer(delta, "the step")
    node.require(by, "its step is 0")
    return gf.arange(begin, end, by, dtype=start.dtype)


def _measured_range(node: ModelNode, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    start, limit, delta = (gf.reshape(x, ()) for x in (start, limit, delta))
    # Integers are divided exactly; -(-a // b) rounds up.
    is_real = start.dtype.is_floating
    count = gf.ceil((limit - start) / delta) if is_real else -((start - limit) // delta)
    (size,) = measured(node, gf.reshape(gf.maximum(gf.astype(count, gf.int64), 0), (1,)), "its end")
    return start + gf.astype(gf.arange(size), start.dtype) * delta


@writes("arange")
def _write_arange(b: Builder, node: Node) -> Val:
    op = fields(node)
    return b.cast(positions(b, op.size, op.start, op.step), node.types[0].dtype)


@reads("Shape")
def _shape(node: ModelNode, x: Tensor | Strings) -> Tensor:
    return _sizes(x.shape[slice(node.attr("start", 0), node.attr("end", None))])


@reads("Size")
def _size(node: ModelNode, x: Tensor | Strings) -> Tensor:
    size: DimLike = 1
    for dim in x.shape:
        size = size * dim
    return gf.asarray(size, dtype=gf.int64)


def _sizes(shape: Sequence[DimLike]) -> Tensor:
    if all(isinstance(dim, int) for dim in shape):
        return gf.constant(np.asarray(shape, np.int64))
    return gf.stack([gf.asarray(dim, dtype=gf.int64) for dim in shape])


@writes("dim_value")
def _write_dim_value(b: Builder, node: Node) -> Val:
    return b.cast(b.size(fields(node).dim), node.types[0].dtype)
