"""Sliding windows: laid out, reduced, added up in place."""

from __future__ import annotations

import math
from typing import Any

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.dtype import float32
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.onnx.builder import Builder, Val
from graphfw.onnx.exporters.movement import fields
from graphfw.onnx.table import composes, writes
from graphfw.ops.window_reductions import least
from graphfw.ops.windows import Fold, Windows

_POOLED = ("float16", "bfloat16", "float32")


@composes("windows")
def _windows(op: Any, x: Tensor) -> Tensor:
    rank = len(op.window)
    lead = x.ndim - rank
    for place in reversed(range(rank)):
        x = gf.take(x, _indices(op, place, x.shape[lead + place]), axis=lead + place)
    inside = [lead + 2 * i for i in range(rank)]
    return gf.permute_dims(x, [*range(lead), *inside, *[i + 1 for i in inside]])


def _indices(op: Any, place: int, size: Any) -> Tensor:
    """Return which element of a dim each of the window is in each place.  -> [window, P]"""
    count = op.places((*[1] * place, size, *[1] * (len(op.window) - place - 1)))[place]
    starts = gf.arange(count) * op.strides[place]
    inside = gf.arange(op.window[place]) * op.dilations[place]
    return gf.add(gf.expand_dims(inside, axis=1), starts)


def _seen(op: Any, x: Tensor, outside: float = 0) -> Tensor:
    """Return the elements of the window in all places.  [*B, *S] -> [*B, K, *P]"""
    lead = x.ndim - len(op.window)
    x = gf.pad(x, [*[(0, 0)] * lead, *op.pairs], constant_values=outside)
    seen = emit(Windows(op.window, op.strides, op.dilations), x)
    places = seen.shape[lead + len(op.window) :]
    return gf.reshape(seen, (*seen.shape[:lead], size_of(op.window), *places))


@writes("window_max", "window_sum")
def _pooled(b: Builder, node: Node, x: Val) -> Val:
    op, shape = fields(node), node.inputs[0].shape
    rank = len(op.window)
    lead = len(shape) - rank
    is_max = node.op.name == "window_max"
    fits = x.dtype.name in (*_POOLED, *(("float64", "int8", "uint8") if is_max else ()))
    # Padding is numbers there, and not as wide as the window has elements.
    ends = zip(op.before, op.after, op.window, strict=True)
    fits &= all(isinstance(b + a, int) and max(b, a) < size for b, a, size in ends)
    if not fits or rank > 3 or (b.opset < 19 and not is_max and set(op.dilations) != {1}):
        return b.expand(lambda t: _reduced(op, t), [x], [node.inputs[0].type])[0]
    if lead != 2:
        x = b.reshape(x, (size_of(shape[:lead]), 1, *shape[lead:]))
    options = {"kernel_shape": op.window, "strides": op.strides}
    pads = [*op.before, *op.after]
    if any(pads):
        options["pads"] = pads
    if set(op.dilations) != {1}:
        options["dilations"] = op.dilations
    if is_max:
        made = b("MaxPool", x, **options)
    else:
        mean = b("AveragePool", b.cast(x, float32), count_include_pad=1, **options)
        count = b.scalar(math.prod(op.window), float32)
        made = b.cast(b("Mul", mean, count), x.dtype)
    return made if lead == 2 else b.reshape(made, node.types[0].shape)


def _reduced(op: Any, x: Tensor) -> Tensor:
    axis = x.ndim - len(op.window)
    if op.name == "window_max":
        return gf.max(_seen(op, x, least(x.dtype)), axis=axis)
    return gf.sum(_seen(op, x), axis=axis, dtype=x.dtype)


@composes("window_argmax")
def _argmax(op: Any, x: Tensor) -> Tensor:
    return gf.argmax(_seen(op, x, least(x.dtype)), axis=x.ndim - len(op.window))


@composes("window_take")
def _take(op: Any, x: Tensor, number: Tensor) -> Tensor:
    axis = x.ndim - len(op.window)
    is_it = _is_number(op, number, axis)
    return gf.sum(gf.where(is_it, _seen(op, x), 0), axis=axis, dtype=x.dtype)


@composes("window_put")
def _put(op: Any, x: Tensor, number: Tensor) -> Tensor:
    lead = x.ndim - len(op.window)
    each = gf.where(_is_number(op, number, lead), gf.expand_dims(x, axis=lead), 0)
    laid = gf.reshape(each, (*x.shape[:lead], *op.window, *x.shape[lead:]))
    whole = emit(Fold(op.window, op.strides, op.dilations, op.wider(op.dims)), laid)
    inside: Tensor = op.inside(whole, op.dims)
    return inside


def _is_number(op: Any, number: Tensor, axis: int) -> Tensor:
    """Say which element of the window the numbers are.  [*B, *P] -> [*B, K, *P]"""
    numbers = gf.reshape(gf.arange(size_of(op.window)), (-1, *[1] * len(op.window)))
    return gf.expand_dims(gf.astype(number, gf.int64), axis=axis) == numbers


@writes("fold")
def _fold(b: Builder, node: Node, x: Val) -> Val:
    op, shape = fields(node), node.inputs[0].shape
    rank = len(op.window)
    lead, places = shape[: len(shape) - 2 * rank], shape[len(shape) - rank :]
    # ONNX Runtime's Col2Im puts dilated windows in the wrong places but where there are two dims.
    spread = rank != 2 and set(op.dilations) != {1}
    if x.dtype.name not in _POOLED or b.opset < 18 or 0 in places or spread:
        return b.expand(lambda t: _by_products(op, t), [x], [node.inputs[0].type])[0]
    rows = b.reshape(x, (size_of(lead), size_of(op.window), size_of(places)))
    made = b(
        "Col2Im",
        b.cast(rows, float32),
        b.shape(op.dims),
        b.ints(op.window),
        dilations=op.dilations,
        strides=op.strides,
        pads=[0] * (2 * rank),
    )
    return b.reshape(b.cast(made, x.dtype), node.types[0].shape)


def _by_products(op: Any, x: Tensor) -> Tensor:
    """Add up dim by dim: a matrix of 0 and 1 says where the window's elements lie."""
    rank = len(op.window)
    lead = x.ndim - 2 * rank
    pairs = [axis for i in range(rank) for axis in (lead + i, lead + rank + i)]
    x = gf.permute_dims(x, [*range(lead), *pairs])
    front = x.shape[:lead]
    trailing: Shape = ()
    for place in reversed(range(rank)):
        size = op.dims[place]
        index = gf.reshape(_indices(op, place, size), (1, -1))
        where = gf.astype(gf.expand_dims(gf.arange(size), axis=1) == index, x.dtype)
        before = x.shape[: lead + 2 * place]
        x = gf.reshape(x, (*before, index.shape[1], size_of(trailing)))
        trailing = (size, *trailing)
        x = gf.reshape(where @ x, (*before, *trailing))
    return gf.reshape(x, (*front, *op.dims))
