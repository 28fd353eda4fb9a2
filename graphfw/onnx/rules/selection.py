"""Elements that values choose: orders, distinct elements, those that are not zero."""

from __future__ import annotations

from functools import partial

import numpy as np

import graphfw as gf
from graphfw.errors import counted
from graphfw.ir.dtype import DType, bool_, float32, int64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.onnx.builder import Builder, Val, fields
from graphfw.onnx.errors import Unsupported
from graphfw.onnx.measuring import dims_of, is_measured
from graphfw.onnx.node import ModelNode
from graphfw.onnx.table import reads, writes
from graphfw.ops.data_dependent.measuring_ops import NonZero, measure


@reads("Compress", moves=True)
def _compress(node: ModelNode, x: Tensor, condition: Tensor) -> Tensor:
    node.require(condition.ndim == 1, f"its condition has {counted(condition.ndim, 'dim')}, not 1")
    if is_measured(node, condition):
        (indices,) = gf.nonzero(condition)
    else:
        indices = gf.constant(np.flatnonzero(node.known(condition, "the condition")))
    axis = node.attr("axis", None)
    if axis is None:
        return gf.take(gf.reshape(x, (-1,)), indices, axis=0)
    return gf.take(x, indices, axis=axis)


@reads("NonZero")
def _nonzero(node: ModelNode, x: Tensor) -> Tensor:
    if _is_nonzero_throughout(node, x):  # so exporters count: 0, 1, … up to a size
        indices = [gf.arange(size) for size in x.shape]
        return gf.stack([gf.reshape(p, (-1,)) for p in gf.meshgrid(*indices, indexing="ij")])
    if is_measured(node, x):
        return measure(NonZero, ["nonzero"], x if x.ndim else gf.reshape(x, (1,)))[0]
    return gf.constant(np.stack(np.nonzero(np.atleast_1d(node.known(x, "x")))).astype(np.int64))


def _is_nonzero_throughout(node: ModelNode, x: Tensor) -> bool:
    """Return whether x is one number other than 0, repeated over a shape that may be unknown."""
    if x.node.op.name != "broadcast_to":
        return False
    value = node.facts.value(x.node.inputs[0])
    return value is not None and value.size == 1 and bool(np.all(value != 0))


@writes("nonzero")
def _write_nonzero(b: Builder, node: Node, x: Val) -> Val:
    made = b("NonZero", b.cast(x, bool_), dtype=int64)
    b.measure(fields(node).dims[0], made, 1)
    return made


@reads("Unique")
def _unique(node: ModelNode, x: Tensor) -> tuple[Tensor, ...]:
    axis = node.attr("axis", None)
    if axis is None and is_measured(node, x):
        return _measured_unique(x, bool(node.attr("sorted", 1)))
    value = node.known(x, "x")
    values, first, inverse, counts = np.unique(value, True, True, True, axis=axis)
    if not node.attr("sorted", 1):
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        values = np.take(values, order, axis=axis or 0)
        first, counts, inverse = first[order], counts[order], rank[inverse]
    others = [gf.constant(v.reshape(-1).astype(np.int64)) for v in (first, inverse, counts)]
    return (gf.constant(values), *others)


def _measured_unique(x: Tensor, is_sorted: bool) -> tuple[Tensor, ...]:
    found = gf.unique_all(gf.reshape(x, (-1,)))
    if is_sorted:
        return found
    order = gf.argsort(found.indices)
    ordered = [gf.take(each, order, axis=0) for each in (found.values, found.indices, found.counts)]
    values, first, counts = ordered
    return values, first, gf.take(gf.argsort(order), found.inverse_indices, axis=0), counts


_UNIQUE = {
    **dict.fromkeys(("float32", "float16", "bfloat16"), float32),
    **dict.fromkeys(("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32"), int64),
}
"""The dtypes in which ONNX Runtime finds distinct elements of others; all keep order."""


@writes("unique")
def _write_unique(b: Builder, node: Node, x: Val) -> list[Val]:
    shape = node.inputs[0].shape
    wide = _UNIQUE.get(x.dtype.name, x.dtype)
    if wide.name == "uint64":
        raise Unsupported("uint64")
    flat = b.reshape(b.cast(x, wide), (size_of(shape),))
    values, first, inverse, counts = b.many("Unique", [flat], [wide, int64, int64, int64], sorted=1)
    b.measure(fields(node).dims[0], values, 0)
    return [b.cast(values, x.dtype), first, b.reshape(inverse, shape), counts]


@writes("sizes")
def _write_sizes(b: Builder, node: Node, x: Val) -> Val:
    made = b("Identity", b.cast(x, int64))
    for index, dim in enumerate(fields(node).dims):
        bounds = b.ints([index]), b.ints([index + 1]), b.ints([0])
        b.symbol(str(dim), partial(b, "Slice", made, *bounds))
    return made


@reads("TopK")
def _top_k(node: ModelNode, x: Tensor, k: Tensor | None = None) -> tuple[Tensor, ...]:
    count = node.attr("k") if k is None else dims_of(node, gf.reshape(k, (1,)), "k")[0]
    largest = bool(node.attr("largest", 1))
    made = gf.topk(x, count, axis=node.attr("axis", -1), largest=largest)
    return made.values, made.indices


@writes("sort", "argsort")
def _write_sort(b: Builder, node: Node, x: Val) -> Val:
    """Write TopK of all elements, in which the first of equal ones comes first."""
    op = fields(node)
    count = b.dim(node.inputs[0].shape[op.axis])
    found = _top(b, x, count, op.axis, op.descending)
    return found[0] if node.op.name == "sort" else found[1]


@writes("topk")
def _write_topk(b: Builder, node: Node, x: Val) -> Val:
    op = fields(node)
    return _top(b, x, b.dim(op.k), op.axis, op.largest)[1]


def _top(b: Builder, x: Val, count: Val, axis: int, largest: bool) -> list[Val]:
    if x.dtype.name == "uint64":
        raise Unsupported("the order of uint64")
    wide = x if x.dtype.name not in ("bfloat16", "uint16", "uint32") else b.cast(x, _ordered(x))
    values, indices = b.many(
        "TopK", [wide, count], [wide.dtype, int64], axis=axis, largest=int(largest)
    )
    return [b.cast(values, x.dtype), indices]


def _ordered(x: Val) -> DType:
    return float32 if x.dtype.is_floating else int64
