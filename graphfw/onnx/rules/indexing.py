"""Operators that read and write elements by their places."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphfw as gf
from graphfw.errors import counted
from graphfw.ir.tensor import Tensor
from graphfw.onnx.fitting import sized
from graphfw.onnx.measuring import dims_of, is_measured
from graphfw.onnx.node import Call
from graphfw.onnx.table import reads
from graphfw.ops.measured import NonZero, measure


@reads("Gather", moves=True)
def _gather(node: Call, x: Tensor, indices: Tensor) -> Tensor:
    return gf.take(x, indices, axis=node.attr("axis", 0))


@reads("GatherElements", moves=True)
def _gather_elements(node: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = node.axis(node.attr("axis", 0), x.ndim)
    node.require(
        indices.ndim == x.ndim, f"x has {counted(x.ndim, 'dim')}, and its indices {indices.ndim}"
    )
    # Along the other axes indices may be shorter than x.
    key = tuple([slice(None) if i == axis else slice(0, d) for i, d in enumerate(indices.shape)])
    part = x[key]
    for i, size in enumerate(indices.shape):
        part = part if i == axis else sized(part, i, size)
    return gf.take_along_axis(part, indices, axis=axis)


@reads("GatherND", moves=True)
def _gather_nd(node: Call, x: Tensor, indices: Tensor) -> Tensor:
    return x[_key(node, x, indices, node.attr("batch_dims", 0))]


def _key(node: Call, x: Tensor, indices: Tensor, batch_dims: int = 0) -> tuple[Tensor, ...]:
    """Return the key that indexes a tensor at the tuples in the last dim of indices."""
    count = indices.shape[-1] if indices.ndim else 0
    node.require(
        isinstance(count, int) and 0 <= batch_dims < indices.ndim and count + batch_dims <= x.ndim,
        f"indices of shape {indices.shape} don't fit {counted(x.ndim, 'dim')}",
    )
    places = gf.unstack(indices, axis=-1)
    batch = []
    for axis in range(batch_dims):
        shape = [1] * (indices.ndim - 1)
        shape[axis] = -1
        batch.append(gf.reshape(gf.arange(indices.shape[axis]), shape))
    return (*batch, *places)


@reads("Scatter", "ScatterElements", moves=True)
def _scatter_elements(node: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
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
def _scatter_nd(node: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    return _reduced(node, x, _key(node, x, indices), updates)


def _reduced(node: Call, x: Tensor, key: tuple[Any, ...], updates: Tensor) -> Tensor:
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


@reads("TensorScatter", moves=True)
def _tensor_scatter(
    node: Call, past: Tensor, update: Tensor, starts: Tensor | None = None
) -> Tensor:
    """Write an update into a cache along an axis, from each example's own place on.

    past: [B, ..., S, ...], update: [B, ..., T, ...], starts: [B]
    """
    axis = node.axis(node.attr("axis", -2), past.ndim)
    key: list[Any] = []
    for i, size in enumerate(update.shape):
        shape = [1] * past.ndim
        shape[i] = -1
        places = gf.reshape(gf.arange(size), shape)
        if i == axis and starts is not None:
            places = places + gf.reshape(starts, (-1, *[1] * (past.ndim - 1)))
        key.append(places)
    if node.attr("mode", "linear") == "circular":
        key[axis] = gf.remainder(key[axis], past.shape[axis])
    return gf.index_set(past, tuple(key), update)


@reads("OneHot", moves=True)
def _one_hot(node: Call, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    count = node.integer(depth, "the depth")
    places = gf.remainder(gf.astype(indices, gf.int64), count)
    inside = gf.logical_and(indices >= -count, indices < count)
    hot = gf.one_hot(places, count, dtype=gf.bool, axis=node.attr("axis", -1))
    hot = gf.logical_and(hot, gf.expand_dims(inside, node.attr("axis", -1)))
    return gf.where(hot, values[1], values[0])


@reads("Compress", moves=True)
def _compress(node: Call, x: Tensor, condition: Tensor) -> Tensor:
    if is_measured(node, condition):
        (places,) = gf.nonzero(condition)
    else:
        places = gf.constant(np.flatnonzero(node.known(condition, "the condition")))
    axis = node.attr("axis", None)
    if axis is None:
        return gf.take(gf.reshape(x, (-1,)), places, axis=0)
    return gf.take(x, places, axis=axis)


@reads("NonZero")
def _nonzero(node: Call, x: Tensor) -> Tensor:
    if _is_nonzero_throughout(node, x):  # so exporters count: 0, 1, … up to a size
        places = [gf.arange(size) for size in x.shape]
        return gf.stack([gf.reshape(p, (-1,)) for p in gf.meshgrid(*places, indexing="ij")])
    if is_measured(node, x):
        return measure(NonZero, ["nonzero"], x if x.ndim else gf.reshape(x, (1,)))[0]
    return gf.constant(np.stack(np.nonzero(np.atleast_1d(node.known(x, "x")))).astype(np.int64))


def _is_nonzero_throughout(node: Call, x: Tensor) -> bool:
    """Whether x is one number that is not 0, repeated over a shape that need not be known."""
    if x.node.op.name != "broadcast_to":
        return False
    value = node.facts.value(x.node.inputs[0])
    return value is not None and value.size == 1 and bool(np.all(value != 0))


@reads("Unique")
def _unique(node: Call, x: Tensor) -> tuple[Tensor, ...]:
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


@reads("TopK")
def _top_k(node: Call, x: Tensor, k: Tensor | None = None) -> tuple[Tensor, ...]:
    count = node.attr("k") if k is None else dims_of(node, gf.reshape(k, (1,)), "k")[0]
    largest = bool(node.attr("largest", 1))
    made = gf.topk(x, count, axis=node.attr("axis", -1), largest=largest)
    return made.values, made.indices


@reads("ReverseSequence", moves=True)
def _reverse_sequence(node: Call, x: Tensor, lengths: Tensor) -> Tensor:
    time = node.axis(node.attr("time_axis", 0), x.ndim)
    batch = node.axis(node.attr("batch_axis", 1), x.ndim)
    places = gf.arange(x.shape[time])
    shape = [1] * x.ndim
    shape[time] = -1
    places = gf.reshape(places, shape)
    shape = [1] * x.ndim
    shape[batch] = -1
    ends = gf.reshape(lengths, shape)
    return gf.take_along_axis(x, gf.where(places < ends, ends - 1 - places, places), axis=time)
