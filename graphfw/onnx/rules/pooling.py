"""Pooling and sliding windows: the largest, the mean or a norm of a window's elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import graphfw as gf
from graphfw.ir.build import emit
from graphfw.ir.constants import fill_value
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import float32
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.onnx.builder import Builder, Val, fields
from graphfw.onnx.node import ModelNode
from graphfw.onnx.rules.convolution import Pairs, padding, steps
from graphfw.onnx.rules.indexing import joined_index, write_put
from graphfw.onnx.table import composes, reads, writes
from graphfw.ops.dtypes import least
from graphfw.ops.nn.unfold import FoldWindows, Windows
from graphfw.ops.nn.window import windows_of


def _window(node: ModelNode, x: Tensor) -> tuple[tuple[int, ...], dict[str, Any], Pairs]:
    """Return the kernel, what gf's pooling functions take, and the padding."""
    kernel = node.attr("kernel_shape")
    node.require(min(kernel, default=0) > 0, f"kernel_shape {kernel} must be positive")
    stride, dilation = steps(node, len(kernel))
    pads = padding(node, x.shape[2:], kernel, stride, dilation)
    return kernel, {"stride": stride, "dilation": dilation}, pads


def _widened(x: Tensor, pads: Pairs, value: Any) -> Tensor:
    return gf.pad(x, [(0, 0), (0, 0), *pads], constant_values=value)


@reads("MaxPool")
def _max_pool(node: ModelNode, x: Tensor) -> Any:
    kernel, how, pads = _window(node, x)
    how.update(padding=pads, ceil_mode=bool(node.attr("ceil_mode", 0)))
    if not node.wants(1):
        return gf.max_pool(x, kernel, **how)
    y, indices = gf.max_pool(x, kernel, return_indices=True, **how)
    if node.attr("storage_order", 0):
        indices = _columns_first(indices, x.shape[2:])
    return y, indices + _first_indices(x, x.shape[2:])


def _first_indices(x: Tensor, sizes: Sequence[DimLike]) -> Tensor:
    """Return the flat index at which each plane of `sizes` begins, by x's batch and channels."""
    size: Any = 1
    for dim in sizes:
        size = size * dim
    plane = gf.arange(x.shape[0] * x.shape[1]) * size
    return gf.reshape(plane, (x.shape[0], x.shape[1], *[1] * (x.ndim - 2)))


def _columns_first(indices: Tensor, sizes: Sequence[DimLike]) -> Tensor:
    """Return indices in row-major order as indices in column-major order."""
    made = gf.zeros_like(indices)
    for size in reversed(sizes):
        made, indices = made * size + indices % size, indices // size
    return made


@reads("AveragePool")
def _average_pool(node: ModelNode, x: Tensor) -> Tensor:
    kernel, how, pads = _window(node, x)
    counts = bool(node.attr("count_include_pad", 0))
    ceil_mode = bool(node.attr("ceil_mode", 0))
    return gf.avg_pool(
        x, kernel, padding=pads, ceil_mode=ceil_mode, count_include_pad=counts, **how
    )


_POOLED = ("float16", "bfloat16", "float32")


@writes("window_max", "window_sum")
def _write_pooled(b: Builder, node: Node, x: Val) -> Val:
    op, shape = fields(node), node.inputs[0].shape
    rank = len(op.window)
    lead = len(shape) - rank
    is_max = node.op.name == "window_max"
    fits = x.dtype.name in (*_POOLED, *(("float64", "int8", "uint8") if is_max else ()))
    # Padding is numbers there, and not as wide as the window has elements.
    ends = zip(op.before, op.after, op.window, strict=True)
    fits &= all(isinstance(b + a, int) and max(b, a) < size for b, a, size in ends)
    if not fits or rank > 3 or (b.opset < 19 and not is_max and set(op.dilations) != {1}):
        return b.expand(lambda t: _pooled_by_reduction(op, t), [x], [node.inputs[0].type])[0]
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


def _pooled_by_reduction(op: Any, x: Tensor) -> Tensor:
    axis = x.ndim - len(op.window)
    if op.name == "window_max":
        return gf.max(_seen(op, x, least(x.dtype)), axis=axis)
    return gf.sum(_seen(op, x), axis=axis, dtype=x.dtype)


@reads("LpPool")
def _lp_pool(node: ModelNode, x: Tensor) -> Tensor:
    kernel, how, pads = _window(node, x)
    ceil_mode = bool(node.attr("ceil_mode", 0))
    return gf.lp_pool(_widened(x, pads, 0), node.attr("p", 2), kernel, ceil_mode=ceil_mode, **how)


@reads("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(node: ModelNode, x: Tensor) -> Tensor:
    axes = tuple(range(2, x.ndim))
    if node.op_type == "GlobalAveragePool":
        return gf.mean(x, axis=axes, keepdims=True)
    if node.op_type == "GlobalMaxPool":
        return gf.max(x, axis=axes, keepdims=True)
    order = node.attr("p", 2)
    node.require(order, "p is 0")
    return gf.pow(gf.sum(gf.pow(gf.abs(x), order), axis=axes, keepdims=True), 1 / order)


@reads("MaxUnpool")
def _max_unpool(node: ModelNode, x: Tensor, indices: Tensor, shape: Tensor | None = None) -> Tensor:
    """Put each element back where it came from, among zeros."""
    kernel = node.attr("kernel_shape")
    stride, dilation = steps(node, len(kernel))
    pads = padding(node, x.shape[2:], kernel, stride, dilation)
    windows = windows_of(x.shape[2:], kernel, stride, (1,) * len(kernel), tuple(pads))
    sizes = [window.transposed - window.before - window.after for window in windows]
    # The indices count through the tensor that was pooled, which has the sizes of the kernel.
    inside = indices - _first_indices(x, sizes)
    y = gf.max_unpool(x, inside, kernel, stride=stride, padding=pads)
    if shape is None:
        return y
    wanted = node.dims(shape, "the shape")
    more = [(0, w - n) for w, n in zip(wanted[2:], sizes, strict=True)]
    return gf.pad(y, [(0, 0), (0, 0), *more])


@writes("max_unpool")
def _write_max_unpool(b: Builder, node: Node, x: Val, values: Val, *indices: Val) -> Val:
    """Write MaxUnpool into zeros, with the kernel that gives the op's sizes."""
    op, shape = fields(node), node.inputs[0].shape
    kernel = [
        size - (count - 1) * step
        for size, count, step in zip(op.dims, op.pooled_sizes, op.strides, strict=True)
    ]
    fill = fill_value(node.inputs[0])
    fits = len(indices) == len(shape) and values.dtype.name in ("float32", "bfloat16")
    fits &= fill is not None and not fill.any()
    if not fits or not all(isinstance(size, int) and size > 0 for size in kernel):
        return write_put(b, node, x, values, *indices)
    planes = size_of(node.inputs[1].shape[:-1])
    joined = b.reshape(
        joined_index(b, indices, shape, from_end=False), (planes, 1, *op.pooled_sizes)
    )
    laid = b.reshape(values, (planes, 1, *op.pooled_sizes))
    made = b("MaxUnpool", laid, joined, kernel_shape=kernel, strides=op.strides)
    return b.reshape(made, shape)


@composes("windows")
def _write_windows(op: Any, x: Tensor) -> Tensor:
    rank = len(op.window)
    lead = x.ndim - rank
    for axis_index in reversed(range(rank)):
        x = gf.take(x, _indices(op, axis_index, x.shape[lead + axis_index]), axis=lead + axis_index)
    inside = [lead + 2 * i for i in range(rank)]
    return gf.permute_dims(x, [*range(lead), *inside, *[i + 1 for i in inside]])


def _indices(op: Any, axis_index: int, size: Any) -> Tensor:
    """Return the index that each tap of the window reads at each position.  -> [window, P]"""
    count = op.output_sizes((*[1] * axis_index, size, *[1] * (len(op.window) - axis_index - 1)))[
        axis_index
    ]
    starts = gf.arange(count) * op.strides[axis_index]
    inside = gf.arange(op.window[axis_index]) * op.dilations[axis_index]
    return gf.add(gf.expand_dims(inside, axis=1), starts)


def _seen(op: Any, x: Tensor, outside: float = 0) -> Tensor:
    """Return the elements of the window at all positions.  [*B, *S] -> [*B, K, *P]"""
    lead = x.ndim - len(op.window)
    x = gf.pad(x, [*[(0, 0)] * lead, *op.pairs], constant_values=outside)
    seen = emit(Windows(op.window, op.strides, op.dilations), x)
    indices = seen.shape[lead + len(op.window) :]
    return gf.reshape(seen, (*seen.shape[:lead], size_of(op.window), *indices))


@composes("window_argmax")
def _write_argmax(op: Any, x: Tensor) -> Tensor:
    return gf.argmax(_seen(op, x, least(x.dtype)), axis=x.ndim - len(op.window))


@composes("window_take")
def _write_take(op: Any, x: Tensor, number: Tensor) -> Tensor:
    axis = x.ndim - len(op.window)
    is_it = _is_number(op, number, axis)
    return gf.sum(gf.where(is_it, _seen(op, x), 0), axis=axis, dtype=x.dtype)


@composes("window_put")
def _write_put(op: Any, x: Tensor, number: Tensor) -> Tensor:
    lead = x.ndim - len(op.window)
    each = gf.where(_is_number(op, number, lead), gf.expand_dims(x, axis=lead), 0)
    laid = gf.reshape(each, (*x.shape[:lead], *op.window, *x.shape[lead:]))
    whole = emit(FoldWindows(op.window, op.strides, op.dilations, op.wider(op.dims)), laid)
    inside: Tensor = op.inside(whole, op.dims)
    return inside


def _is_number(op: Any, number: Tensor, axis: int) -> Tensor:
    """Return the elements of the window that the numbers name.  [*B, *P] -> [*B, K, *P]"""
    numbers = gf.reshape(gf.arange(size_of(op.window)), (-1, *[1] * len(op.window)))
    return gf.expand_dims(gf.astype(number, gf.int64), axis=axis) == numbers


@reads("Col2Im")
def _col2im(node: ModelNode, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    kernel = node.ints(block, "the block's shape")
    stride, dilation = steps(node, len(kernel))
    sizes = node.dims(image, "the image's shape")
    pads = node.numbers("pads", (0,) * 2 * len(kernel))
    pairs = list(zip(pads[: len(kernel)], pads[len(kernel) :], strict=True))
    whole = [n + low + high for n, (low, high) in zip(sizes, pairs, strict=True)]
    y = gf.fold(x, whole, kernel, stride=stride, dilation=dilation)
    cut = [slice(low, low + n) for n, (low, _) in zip(sizes, pairs, strict=True)]
    return y[(slice(None), slice(None), *cut)]


@writes("fold")
def _write_fold(b: Builder, node: Node, x: Val) -> Val:
    op, shape = fields(node), node.inputs[0].shape
    rank = len(op.window)
    lead, indices = shape[: len(shape) - 2 * rank], shape[len(shape) - rank :]
    # ONNX Runtime's Col2Im puts dilated windows at wrong positions but where there are two dims.
    spread = rank != 2 and set(op.dilations) != {1}
    if x.dtype.name not in _POOLED or b.opset < 18 or 0 in indices or spread:
        return b.expand(lambda t: _by_products(op, t), [x], [node.inputs[0].type])[0]
    rows = b.reshape(x, (size_of(lead), size_of(op.window), size_of(indices)))
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
    for axis_index in reversed(range(rank)):
        size = op.dims[axis_index]
        index = gf.reshape(_indices(op, axis_index, size), (1, -1))
        where = gf.astype(gf.expand_dims(gf.arange(size), axis=1) == index, x.dtype)
        before = x.shape[: lead + 2 * axis_index]
        x = gf.reshape(x, (*before, index.shape[1], size_of(trailing)))
        trailing = (size, *trailing)
        x = gf.reshape(where @ x, (*before, *trailing))
    return gf.reshape(x, (*front, *op.dims))
