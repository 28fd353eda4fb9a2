"""Pooling: the largest, the mean or a norm of what windows see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import graphfw as gf
from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Tensor
from graphfw.onnx.node import Call
from graphfw.onnx.rules.convolution import Pairs, padding, steps
from graphfw.onnx.table import reads


def _window(node: Call, x: Tensor) -> tuple[tuple[int, ...], dict[str, Any], Pairs]:
    """Return the kernel, what gf's pooling functions take, and the padding."""
    kernel = node.attr("kernel_shape")
    node.require(min(kernel, default=0) > 0, f"kernel_shape {kernel} must be positive")
    stride, dilation = steps(node, len(kernel))
    pads = padding(node, x.shape[2:], kernel, stride, dilation)
    return kernel, {"stride": stride, "dilation": dilation}, pads


def _widened(x: Tensor, pads: Pairs, value: Any) -> Tensor:
    return gf.pad(x, [(0, 0), (0, 0), *pads], constant_values=value)


@reads("MaxPool")
def _max_pool(node: Call, x: Tensor) -> Any:
    kernel, how, pads = _window(node, x)
    how.update(padding=pads, ceil_mode=bool(node.attr("ceil_mode", 0)))
    if not node.wants(1):
        return gf.max_pool(x, kernel, **how)
    y, places = gf.max_pool(x, kernel, return_indices=True, **how)
    if node.attr("storage_order", 0):
        places = _columns_first(places, x.shape[2:])
    return y, places + _first_places(x, x.shape[2:])


def _first_places(x: Tensor, sizes: Sequence[DimLike]) -> Tensor:
    """Return how many elements stand before each plane of a tensor with x's batch and channels."""
    size: Any = 1
    for dim in sizes:
        size = size * dim
    plane = gf.arange(x.shape[0] * x.shape[1]) * size
    return gf.reshape(plane, (x.shape[0], x.shape[1], *[1] * (x.ndim - 2)))


def _columns_first(places: Tensor, sizes: Sequence[DimLike]) -> Tensor:
    """Return places among so many rows, columns, … as they count where the first dim runs first."""
    made = gf.zeros_like(places)
    for size in reversed(sizes):
        made, places = made * size + places % size, places // size
    return made


@reads("AveragePool")
def _average_pool(node: Call, x: Tensor) -> Tensor:
    kernel, how, pads = _window(node, x)
    counts = bool(node.attr("count_include_pad", 0))
    ceil_mode = bool(node.attr("ceil_mode", 0))
    return gf.avg_pool(
        x, kernel, padding=pads, ceil_mode=ceil_mode, count_include_pad=counts, **how
    )


@reads("LpPool")
def _lp_pool(node: Call, x: Tensor) -> Tensor:
    kernel, how, pads = _window(node, x)
    ceil_mode = bool(node.attr("ceil_mode", 0))
    return gf.lp_pool(_widened(x, pads, 0), node.attr("p", 2), kernel, ceil_mode=ceil_mode, **how)


@reads("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(node: Call, x: Tensor) -> Tensor:
    axes = tuple(range(2, x.ndim))
    if node.op_type == "GlobalAveragePool":
        return gf.mean(x, axis=axes, keepdims=True)
    if node.op_type == "GlobalMaxPool":
        return gf.max(x, axis=axes, keepdims=True)
    order = node.attr("p", 2)
    node.require(order, "p is 0")
    return gf.pow(gf.sum(gf.pow(gf.abs(x), order), axis=axes, keepdims=True), 1 / order)


@reads("MaxUnpool")
def _max_unpool(node: Call, x: Tensor, places: Tensor, shape: Tensor | None = None) -> Tensor:
    """Put each element back where it came from, among zeros."""
    kernel = node.attr("kernel_shape")
    stride, dilation = steps(node, len(kernel))
    pads = padding(node, x.shape[2:], kernel, stride, dilation)
    sizes = [
        (n - 1) * s + k - low - high
        for n, s, k, (low, high) in zip(x.shape[2:], stride, kernel, pads, strict=True)
    ]
    # The places count through the tensor that was pooled, which has the sizes of the kernel.
    inside = places - _first_places(x, sizes)
    y = gf.max_unpool(x, inside, kernel, stride=stride, padding=pads)
    if shape is None:
        return y
    wanted = node.dims(shape, "the shape")
    more = [(0, w - n) for w, n in zip(wanted[2:], sizes, strict=True)]
    return gf.pad(y, [(0, 0), (0, 0), *more])
