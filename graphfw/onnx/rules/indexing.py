"""Operators that read and write elements at indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.errors import counted
from graphfw.ir.constants import constant_array
from graphfw.ir.dtype import bool_, int64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.onnx.builder import Builder, Val, fields, positions
from graphfw.onnx.errors import needs_opset
from graphfw.onnx.fitting import sized
from graphfw.onnx.node import ModelNode
from graphfw.onnx.table import reads, writes


@reads("Gather", moves=True)
def _gather(node: ModelNode, x: Tensor, indices: Tensor) -> Tensor:
    return gf.take(x, indices, axis=node.attr("axis", 0))


@writes("gather")
def _write_gather(b: Builder, node: Node, x: Val, *indices: Val) -> Val:
    axis, shape = fields(node).axis, node.inputs[0].shape
    if len(indices) == 1:
        index = indices[0] if indices[0].dtype.name == "int32" else b.cast(indices[0], int64)
        return b("Gather", x, index, axis=axis)
    end = axis + len(indices)
    joined = b.reshape(x, (*shape[:axis], size_of(shape[axis:end]), *shape[end:]))
    position = joined_index(b, indices, shape[axis:end])
    return b("Gather", joined, position, axis=axis)


def joined_index(b: Builder, indices: Sequence[Val], sizes: Shape, *, from_end: bool = True) -> Val:
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


@reads("GatherElements", moves=True)
def _gather_elements(node: ModelNode, x: Tensor, indices: Tensor) -> Tensor:
    axis = node.axis(node.attr("axis", 0), x.ndim)
    node.require(
        indices.ndim == x.ndim, f"x has {counted(x.ndim, 'dim')}, and its indices {indices.ndim}"
    )
    # Along the other axes indices may be shorter than x.
    key = tuple([slice(None) if i == axis else slice(0, d) for i, d in enumerate(indices.shape)])
    kept = x[key]
    for i, size in enumerate(indices.shape):
        kept = kept if i == axis else sized(kept, i, size)
    return gf.take_along_axis(kept, indices, axis=axis)


@reads("GatherND", moves=True)
def _gather_nd(node: ModelNode, x: Tensor, indices: Tensor) -> Tensor:
    return x[_key(node, x, indices, node.attr("batch_dims", 0))]


def _key(node: ModelNode, x: Tensor, indices: Tensor, batch_dims: int = 0) -> tuple[Tensor, ...]:
    """Return the key that indexes a tensor at the tuples in the last dim of indices."""
    count = indices.shape[-1] if indices.ndim else 0
    node.require(
        isinstance(count, int) and 0 <= batch_dims < indices.ndim and count + batch_dims <= x.ndim,
        f"indices of shape {indices.shape} don't fit {counted(x.ndim, 'dim')}",
    )
    columns = gf.unstack(indices, axis=-1)
    batch = []
    for axis in range(batch_dims):
        shape = [1] * (indices.ndim - 1)
        shape[axis] = -1
        batch.append(gf.reshape(gf.arange(indices.shape[axis]), shape))
    return (*batch, *columns)


@reads("Scatter", "ScatterElements", moves=True)
def _scatter_elements(node: ModelNode, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis = node.axis(node.attr("axis", 0), x.ndim)
    node.require(
        indices.ndim == x.ndim, f"x has {counted(x.ndim, 'dim')}, and its indices {indices.ndim}"
    )
    key: list[Any] = []
    for i, size in enumerate(indices.shape):
        shape = [1] * x.ndim
        shape[i] = -1
        key.append(indices if i == axis else gf.reshape(gf.arange(size), shape))
    return _reduced(node, x, tuple(key), updates)


@reads("ScatterND", moves=True)
def _scatter_nd(node: ModelNode, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    return _reduced(node, x, _key(node, x, indices), updates)


def _reduced(node: ModelNode, x: Tensor, key: tuple[Any, ...], updates: Tensor) -> Tensor:
    how = node.choice("reduction", "none", ("add", "max", "min", "mul", "none"))
    put = {
        "none": gf.index_set,
        "add": gf.index_add,
        "mul": gf.index_multiply,
        "max": gf.index_max,
        "min": gf.index_min,
    }
    if x.dtype.is_bool and how in ("mul", "max", "min"):
        x, updates = gf.astype(x, gf.uint8), gf.astype(updates, gf.uint8)
        return gf.astype(put[how](x, key, updates), gf.bool)
    return put[how](x, key, updates)


@writes("index_add", "index_max", "index_min", "index_set")
def write_put(b: Builder, node: Node, x: Val, values: Val, *indices: Val) -> Val:
    """Scatter along the first axis, which the indexed ones become together."""
    axis, shape = fields(node).axis, node.inputs[0].shape
    end, named = axis + len(indices), node.inputs[1].ndim - (len(shape) - len(indices))
    size = size_of(shape[axis:end])
    rest = (*shape[:axis], *shape[end:])
    position = b("Unsqueeze", joined_index(b, indices, shape[axis:end]), b.ints([-1]))
    front = b.reshape(x, (*shape[:axis], size, *shape[end:]))
    order = [axis, *range(axis), *range(axis + 1, len(rest) + 1)]
    names = [*range(axis, axis + named)]
    others = [i for i in range(node.inputs[1].ndim) if i not in names]
    if axis:
        front = b("Transpose", front, perm=order)
        values = b("Transpose", values, perm=[*names, *others])
    made = _scattered(b, node, front, position, values)
    if axis:
        back = sorted(range(len(order)), key=order.__getitem__)
        made = b("Transpose", made, perm=back)
    return b.reshape(made, shape) if len(indices) > 1 else made


def _scattered(b: Builder, node: Node, x: Val, position: Val, values: Val) -> Val:
    """Scatter rows.  x: [J, *R], position: [*I, 1], values: [*I, *R] -> [J, *R]"""
    if node.op.name != "index_set":
        how = node.op.name.removeprefix("index_")
        if how != "add" and b.opset < 18:
            raise needs_opset(f"the {how} of what is put at one position", 18)
        return b("ScatterND", x, position, values, reduction=how)
    if _names_each_once(node.inputs[2:]):
        return b("ScatterND", x, position, values)
    if b.opset < 18:
        raise needs_opset("which of two values is put at one position", 18)
    # Of those put at one position the last counts: find which that is, then take it from there.
    index, shape = node.inputs[2:], node.inputs[0].shape
    axis = fields(node).axis
    named = node.inputs[1].shape[axis : node.inputs[1].ndim - (len(shape) - axis - len(index))]
    count, size = size_of(named), size_of(shape[axis : axis + len(index)])
    rest = (*shape[:axis], *shape[axis + len(index) :])
    none = b("Expand", b.scalar(-1, int64), b.shape((size,)))
    order = b.reshape(positions(b, count), named)
    last = b("ScatterND", none, position, order, reduction="max")
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


@reads("TensorScatter", moves=True)
def _tensor_scatter(
    node: ModelNode, past: Tensor, update: Tensor, starts: Tensor | None = None
) -> Tensor:
    """Write an update into a cache along an axis, from each example's own position on.

    past: [B, ..., S, ...], update: [B, ..., T, ...], starts: [B]
    """
    axis = node.axis(node.attr("axis", -2), past.ndim)
    key: list[Any] = []
    for i, size in enumerate(update.shape):
        shape = [1] * past.ndim
        shape[i] = -1
        indices = gf.reshape(gf.arange(size), shape)
        if i == axis and starts is not None:
            indices = indices + gf.reshape(starts, (-1, *[1] * (past.ndim - 1)))
        key.append(indices)
    if node.attr("mode", "linear") == "circular":
        key[axis] = gf.remainder(key[axis], past.shape[axis])
    return gf.index_set(past, tuple(key), update)


@reads("OneHot", moves=True)
def _one_hot(node: ModelNode, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    count = node.integer(depth, "the depth")
    classes = gf.remainder(gf.astype(indices, gf.int64), count)
    inside = gf.logical_and(indices >= -count, indices < count)
    hot = gf.one_hot(classes, count, dtype=gf.bool, axis=node.attr("axis", -1))
    hot = gf.logical_and(hot, gf.expand_dims(inside, node.attr("axis", -1)))
    return gf.where(hot, values[1], values[0])


@reads("ReverseSequence", moves=True)
def _reverse_sequence(node: ModelNode, x: Tensor, lengths: Tensor) -> Tensor:
    time = node.axis(node.attr("time_axis", 0), x.ndim)
    batch = node.axis(node.attr("batch_axis", 1), x.ndim)
    indices = gf.arange(x.shape[time])
    shape = [1] * x.ndim
    shape[time] = -1
    indices = gf.reshape(indices, shape)
    shape = [1] * x.ndim
    shape[batch] = -1
    ends = gf.reshape(lengths, shape)
    return gf.take_along_axis(x, gf.where(indices < ends, ends - 1 - indices, indices), axis=time)
