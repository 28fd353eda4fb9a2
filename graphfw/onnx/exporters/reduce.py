"""Sums and other reductions, products of matrices, running sums, orders."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dtype import DType, bool_, float32, int32, int64
from graphfw.ir.tensor import Node
from graphfw.onnx.builder import Builder, Val
from graphfw.onnx.errors import Unsupported
from graphfw.onnx.exporters.movement import fields
from graphfw.onnx.table import writes

_REDUCTIONS = {"sum": "ReduceSum", "prod": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


def reduced(b: Builder, kind: str, x: Val, axes: Sequence[int], keepdims: bool) -> Val:
    """Reduce along axes; before opset 18 most operators have them as an attribute."""
    if not axes:
        return x
    if kind != "ReduceSum" and b.opset < 18:
        return b(kind, x, axes=axes, keepdims=int(keepdims))
    return b(kind, x, b.ints(axes), keepdims=int(keepdims))


@writes(*_REDUCTIONS)
def _reduction(b: Builder, node: Node, x: Val) -> Val:
    op = fields(node)
    made = reduced(b, _REDUCTIONS[node.op.name], _wide(b, x), op.axes, op.keepdims)
    return b.cast(made, x.dtype)


def _wide(b: Builder, x: Val) -> Val:
    """Return it as what sums are accumulated in."""
    return b.cast(x, float32) if x.dtype.is_low_precision else x


@writes("all", "any")
def _truth(b: Builder, node: Node, x: Val) -> Val:
    """Count: of no elements all are true, and none is."""
    op = fields(node)
    if not op.axes:
        return x
    counted = b("Not", x) if node.op.name == "all" else x
    count = reduced(b, "ReduceSum", b.cast(counted, int32), op.axes, op.keepdims)
    found = b("Greater", count, b.scalar(0, int32), dtype=bool_)
    return b("Not", found) if node.op.name == "all" else found


@writes("argmax", "argmin")
def _arg_extreme(b: Builder, node: Node, x: Val) -> Val:
    op = fields(node)
    kind = "ArgMax" if node.op.name == "argmax" else "ArgMin"
    return b(kind, x, dtype=int64, axis=op.axis, keepdims=int(op.keepdims))


@writes("matmul")
def _matmul(b: Builder, node: Node, x1: Val, x2: Val) -> Val:
    return b.cast(b("MatMul", _wide(b, x1), _wide(b, x2)), x1.dtype)


@writes("cumulative_sum")
def _cumulative_sum(b: Builder, node: Node, x: Val) -> Val:
    op = fields(node)
    made = b(
        "CumSum",
        _wide(b, x),
        b.constant(op.axis, int64),
        exclusive=int(op.exclusive),
        reverse=int(op.reverse),
    )
    return b.cast(made, x.dtype)


@writes("sort", "argsort")
def _sort(b: Builder, node: Node, x: Val) -> Val:
    """TopK of all; of those that tie the first comes first."""
    op = fields(node)
    count = b.dim(node.inputs[0].shape[op.axis])
    found = _top(b, x, count, op.axis, op.descending)
    return found[0] if node.op.name == "sort" else found[1]


@writes("topk")
def _topk(b: Builder, node: Node, x: Val) -> Val:
    op = fields(node)
    return _top(b, x, b.dim(op.k), op.axis, op.largest)[1]


def _top(b: Builder, x: Val, count: Val, axis: int, largest: bool) -> list[Val]:
    if x.dtype.name == "uint64":
        raise Unsupported("the order of uint64")
    wide = x if x.dtype.name not in ("bfloat16", "uint16", "uint32") else b.cast(x, _ordered(x))
    values, places = b.many(
        "TopK", [wide, count], [wide.dtype, int64], axis=axis, largest=int(largest)
    )
    return [b.cast(values, x.dtype), places]


def _ordered(x: Val) -> DType:
    return float32 if x.dtype.is_floating else int64


@writes("det")
def _det(b: Builder, node: Node, x: Val) -> Val:
    return b("Det", x)
