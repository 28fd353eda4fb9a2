"""Ops that measure sizes: from then on these are symbols that the model computes."""

from __future__ import annotations

from functools import partial

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import bool_, float32, int64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.onnx.builder import Builder, Val
from graphfw.onnx.errors import Unsupported
from graphfw.onnx.exporters.movement import fields
from graphfw.onnx.table import writes

_UNIQUE = {
    **dict.fromkeys(("float32", "float16", "bfloat16"), float32),
    **dict.fromkeys(("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32"), int64),
}
"""The dtypes in which ONNX Runtime finds distinct elements of others; all keep order."""


@writes("nonzero")
def _nonzero(b: Builder, node: Node, x: Val) -> Val:
    made = b("NonZero", b.cast(x, bool_), dtype=int64)
    _counted(b, fields(node).dims[0], made, 1)
    return made


@writes("unique")
def _unique(b: Builder, node: Node, x: Val) -> list[Val]:
    shape = node.inputs[0].shape
    wide = _UNIQUE.get(x.dtype.name, x.dtype)
    if wide.name == "uint64":
        raise Unsupported("uint64")
    flat = b.reshape(b.cast(x, wide), (size_of(shape),))
    values, first, inverse, counts = b.many("Unique", [flat], [wide, int64, int64, int64], sorted=1)
    _counted(b, fields(node).dims[0], values, 0)
    return [b.cast(values, x.dtype), first, b.reshape(inverse, shape), counts]


@writes("sizes")
def _sizes(b: Builder, node: Node, x: Val) -> Val:
    made = b("Identity", b.cast(x, int64))
    for place, dim in enumerate(fields(node).dims):
        bounds = b.ints([place]), b.ints([place + 1]), b.ints([0])
        b.symbol(str(dim), partial(b, "Slice", made, *bounds))
    return made


@writes("non_max_suppression")
def _non_max_suppression(b: Builder, node: Node, boxes: Val, scores: Val, *limits: Val) -> Val:
    if boxes.dtype.name == "float64":
        raise Unsupported("float64")
    most, overlap, lowest = limits
    given = [
        b.cast(boxes, float32),
        b.cast(scores, float32),
        b.reshape(b.cast(most, int64), (1,)),
        b.reshape(b.cast(overlap, float32), (1,)),
        b.reshape(b.cast(lowest, float32), (1,)),
    ]
    centred = int(fields(node).centred)
    (made,) = b.many("NonMaxSuppression", given, [int64], center_point_box=centred)
    _counted(b, fields(node).dims[0], made, 0)
    return made


def _counted(b: Builder, dim: DimLike, x: Val, axis: int) -> None:
    """Say that a symbol is the size of a value along an axis."""
    b.symbol(str(dim), partial(b, "Shape", x, dtype=int64, start=axis, end=axis + 1))
