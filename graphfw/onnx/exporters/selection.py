"""Elements that indices name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphfw.ir.constants import constant_array, fill_value
from graphfw.ir.dtype import bool_, int64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.onnx.builder import Builder, Val
from graphfw.onnx.errors import needs_opset
from graphfw.onnx.exporters.movement import fields, positions
from graphfw.onnx.table import writes


@writes("gather")
def _gather(b: Builder, node: Node, x: Val, *indices: Val) -> Val:
    axis, shape = fields(node).axis, node.inputs[0].shape
    if len(indices) == 1:
        index = indices[0] if indices[0].dtype.name == "int32" else b.cast(indices[0], int64)
        return b("Gather", x, index, axis=axis)
    end = axis + len(indices)
    joined = b.reshape(x, (*shape[:axis], size_of(shape[axis:end]), *shape[end:]))
    place = _joined(b, indices, shape[axis:end])
    return b("Gather", joined, place, axis=axis)


def _joined(b: Builder, indices: Sequence[Val], sizes: Shape, *, from_end: bool = True) -> Val:
    """Return indices of several axes as those of one, counted from the front.

    Where they count `from_end`, a negative one counts from the end.
    """
    total: Val | None = None
    for index, size in zip(indices, sizes, strict=True):
        wide = b.cast(index, int64)
        if from_end and index.dtype.kind == "int":
            is_negative = b("Less", wide, b.scalar(0, int64), dtype=bool_)
            wide = b("Where", is_negative, b("Add", wide, b.size(size)), wide)
        total = wide if total is None else b("Add", b("Mul", total, b.size(size)), wide)
    assert total is not None
    return total


@writes("index_add", "index_max", "index_min", "index_set")
def _put(b: Builder, node: Node, x: Val, values: Val, *indices: Val) -> Val:
    """Scatter along the first axis, which the indexed ones become together."""
    axis, shape = fields(node).axis, node.inputs[0].shape
    end, named = axis + len(indices), node.inputs[1].ndim - (len(shape) - len(indices))
    size = size_of(shape[axis:end])
    rest = (*shape[:axis], *shape[end:])
    place = b("Unsqueeze", _joined(b, indices, shape[axis:end]), b.ints([-1]))
    front = b.reshape(x, (*shape[:axis], size, *shape[end:]))
    order = [axis, *range(axis), *range(axis + 1, len(rest) + 1)]
    names = [*range(axis, axis + named)]
    others = [i for i in range(node.inputs[1].ndim) if i not in names]
    if axis:
        front = b("Transpose", front, perm=order)
        values = b("Transpose", values, perm=[*names, *others])
    made = _scattered(b, node, front, place, values)
    if axis:
        back = sorted(range(len(order)), key=order.__getitem__)
        made = b("Transpose", made, perm=back)
    return b.reshape(made, shape) if len(indices) > 1 else made


@writes("max_unpool")
def _max_unpool(b: Builder, node: Node, x: Val, values: Val, *indices: Val) -> Val:
    """MaxUnpool into zeros, by a kernel that makes it the sizes there are."""
    op, shape = fields(node), node.inputs[0].shape
    kernel = [
        size - (count - 1) * step
        for size, count, step in zip(op.dims, op.places, op.strides, strict=True)
    ]
    fill = fill_value(node.inputs[0])
    fits = len(indices) == len(shape) and values.dtype.name in ("float32", "bfloat16")
    fits &= fill is not None and not fill.any()
    if not fits or not all(isinstance(size, int) and size > 0 for size in kernel):
        return _put(b, node, x, values, *indices)
    planes = size_of(node.inputs[1].shape[:-1])
    places = b.reshape(_joined(b, indices, shape, from_end=False), (planes, 1, *op.places))
    laid = b.reshape(values, (planes, 1, *op.places))
    made = b("MaxUnpool", laid, places, kernel_shape=kernel, strides=op.strides)
    return b.reshape(made, shape)


def _scattered(b: Builder, node: Node, x: Val, place: Val, values: Val) -> Val:
    """x: [J, *R], place: [*I, 1], values: [*I, *R] -> [J, *R]"""
    if node.op.name != "index_set":
        how = node.op.name.removeprefix("index_")
        if how != "add" and b.opset < 18:
            raise needs_opset(f"the {how} of what is put at one place", 18)
        return b("ScatterND", x, place, values, reduction=how)
    if _names_each_once(node.inputs[2:]):
        return b("ScatterND", x, place, values)
    if b.opset < 18:
        raise needs_opset("which of two values is put at one place", 18)
    # Of those put at one place the last counts: find which that is, then take it from there.
    index, shape = node.inputs[2:], node.inputs[0].shape
    axis = fields(node).axis
    named = node.inputs[1].shape[axis : node.inputs[1].ndim - (len(shape) - axis - len(index))]
    count, size = size_of(named), size_of(shape[axis : axis + len(index)])
    rest = (*shape[:axis], *shape[axis + len(index) :])
    none = b("Expand", b.scalar(-1, int64), b.shape((size,)))
    order = b.reshape(positions(b, count), named)
    last = b("ScatterND", none, place, order, reduction="max")
    is_put = b("GreaterOrEqual", last, b.scalar(0, int64), dtype=bool_)
    # One row more, so that there is one to take where nothing is put.
    row = b("Expand", b.scalar(0, x.dtype), b.shape((1, *rest)))
    rows = b("Concat", b.reshape(values, (count, *rest)), row, axis=0)
    taken = b("Gather", rows, last, axis=0)
    mask = b("Reshape", is_put, b.ints([-1, *[1] * len(rest)]))
    return b("Where", mask, taken, x)


def _names_each_once(indices: Sequence[Tensor]) -> bool:
    if all(t.type.size == 1 for t in indices):
        return True
    array = constant_array(indices[0])
    if array is None or len(indices) > 1 or (array < 0).any():
        return False
    return len(np.unique(array)) == array.size
