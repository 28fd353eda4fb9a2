"""Convolutions and what takes windows out of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import graphfw as gf
from graphfw.errors import ShapeError, counted
from graphfw.ir.dim import DimLike, dim_max
from graphfw.ir.tensor import Tensor
from graphfw.onnx.fitting import sized
from graphfw.onnx.node import Call
from graphfw.onnx.table import reads

Pairs = list[tuple[DimLike, DimLike]]

_AUTO_PADS = ("NOTSET", "SAME_LOWER", "SAME_UPPER", "VALID")


@reads("Conv")
def _conv(node: Call, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    return convolved(node, x, w, bias)


def convolved(node: Call, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """Convolve as the node's attributes say."""
    kernel = _kernel(node, w)
    stride, dilation = steps(node, len(kernel))
    groups = node.attr("group", 1)
    return gf.conv(
        sized(x, 1, w.shape[1] * groups),
        w,
        bias,
        stride=stride,
        padding=padding(node, x.shape[2:], kernel, stride, dilation),
        dilation=dilation,
        groups=groups,
    )


def steps(node: Call, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the strides and the dilations of a node over so many spatial dims."""
    stride, dilation = (node.numbers(n, (1,) * rank) for n in ("strides", "dilations"))
    positive = min((*stride, *dilation), default=1) > 0
    node.require(positive, f"strides {stride} and dilations {dilation} must be positive")
    return stride, dilation


def _kernel(node: Call, w: Tensor) -> list[int]:
    """Return the spatial sizes of the weights.  w: [M, C, *kernel]"""
    node.require(w.ndim >= 3, f"its weights have {counted(w.ndim, 'dim')}, and no spatial ones")
    sizes = [size for size in w.shape[2:] if isinstance(size, int)]
    if len(sizes) != w.ndim - 2:
        spatial = list(w.shape[2:])
        raise ShapeError(f"{node.op_type}: the kernel's sizes must be known, and are {spatial}")
    stated = node.attr("kernel_shape", tuple(sizes))
    node.require(list(stated) == sizes, f"kernel_shape is {stated}, and its weights have {sizes}")
    return sizes


def padding(
    node: Call,
    sizes: Sequence[DimLike],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Pairs:
    """Return a node's padding before and after each spatial dim."""
    node.require(
        len(sizes) == len(kernel),
        f"{counted(len(kernel), 'size')} don't fit {counted(len(sizes), 'dim')}",
    )
    auto = node.choice("auto_pad", "NOTSET", _AUTO_PADS)
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        return [
            _same(n, k, s, d, auto == "SAME_LOWER")
            for n, k, s, d in zip(sizes, kernel, stride, dilation, strict=True)
        ]
    none = (0,) * 2 * len(kernel)
    pads = node.numbers("pads", none) if auto == "NOTSET" else none
    return list(zip(pads[: len(kernel)], pads[len(kernel) :], strict=True))


def _same(size: DimLike, kernel: int, stride: int, dilation: int, lower: bool) -> Any:
    """Return the padding with which ceil(size / stride) places come out."""
    places = -(-size // stride)
    reach = (places - 1) * stride + (kernel - 1) * dilation + 1
    total = dim_max(reach - size, 0)
    small = total // 2
    return (total - small, small) if lower else (small, total - small)


@reads("ConvTranspose")
def _conv_transpose(node: Call, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    kernel = _kernel(node, w)
    rank = len(kernel)
    node.require(x.ndim == rank + 2, f"x has {counted(x.ndim, 'dim')}, and its weights {w.ndim}")
    stride, dilation = steps(node, rank)
    extra = node.numbers("output_padding", (0,) * rank)
    wanted = node.attr("output_shape", None)
    node.require(wanted is None or len(wanted) >= rank, f"output_shape is {wanted}")
    auto = node.choice("auto_pad", "NOTSET", _AUTO_PADS)
    # What comes out without any cut: then the ends are cut off by `pads`.
    whole = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(x.shape[2:], stride, kernel, dilation, extra, strict=True)
    ]
    if wanted is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = (
            wanted[-rank:]
            if wanted is not None
            else [n * s for n, s in zip(x.shape[2:], stride, strict=True)]
        )
        cuts = [_split(w - n, auto != "SAME_UPPER") for w, n in zip(whole, sizes, strict=True)]
    else:
        cuts = padding(node, x.shape[2:], kernel, stride, dilation)
    y = gf.conv_transpose(
        x, w, stride=stride, dilation=dilation, output_padding=0, groups=node.attr("group", 1)
    )
    more = [e - _missing(high) for e, (_, high) in zip(extra, cuts, strict=True)]
    if any(not isinstance(e, int) or e for e in more):
        y = gf.pad(y, [(0, 0), (0, 0), *[(0, e) for e in more]])
    key = [slice(None), slice(None)]
    for size, (low, high) in zip(whole, cuts, strict=True):
        key.append(slice(low, size - high))
    y = y[tuple(key)]
    return y if bias is None else y + gf.reshape(sized(bias, 0, y.shape[1]), (-1, *[1] * rank))


def _split(total: DimLike, lower: bool) -> tuple[DimLike, DimLike]:
    """Share out what is cut off; a negative total is what is missing, and lacks at the end."""
    if isinstance(total, int) and total < 0:
        return 0, total
    small = total // 2
    return (total - small, small) if lower else (small, total - small)


def _missing(cut: DimLike) -> DimLike:
    """Return the cut where it is negative."""
    return min(cut, 0) if isinstance(cut, int) else 0


_MOST_TAPS = 1024
"""Elements of a deformed kernel: each is a part of the graph."""


@reads("DeformConv")
def _deform_conv(
    node: Call,
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Convolve with windows whose elements are moved.

    offset: [N, groups * 2 * K, H', W'] with y before x; mask: [N, groups * K, H', W']. J. Dai et
    al., "Deformable convolutional networks", 2017.
    """
    kernel = _kernel(node, w)
    stride, dilation = steps(node, 2)
    pads = padding(node, x.shape[2:], kernel, stride, dilation)
    groups, parts = node.attr("group", 1), node.attr("offset_group", 1)
    x = sized(x, 1, w.shape[1] * groups)
    count = kernel[0] * kernel[1]
    node.require(
        count <= _MOST_TAPS,
        f"a kernel of {kernel} has more than {counted(_MOST_TAPS, 'element')}",
    )
    n, channels, *sizes = x.shape
    height, width = offset.shape[2:]
    moves = gf.reshape(offset, (n, parts, count, 2, height, width))
    taps = []
    for tap in range(count):
        at = (tap // kernel[1], tap % kernel[1])
        places = []
        for axis, (out, size) in enumerate(zip((height, width), sizes, strict=True)):
            first = gf.arange(out) * stride[axis] - pads[axis][0] + at[axis] * dilation[axis]
            first = gf.astype(first, x.dtype)
            line = gf.reshape(first, (-1, 1)) if axis == 0 else first
            place = moves[:, :, tap, axis] + line
            extent = gf.astype(gf.asarray(size), x.dtype)
            places.append((2 * place + 1 - extent) / extent)
        grid = gf.stack([places[1], places[0]], axis=-1)
        images = gf.reshape(x, (n * parts, channels // parts, *sizes))
        seen = gf.grid_sample(images, gf.reshape(grid, (n * parts, height, width, 2)))
        seen = gf.reshape(seen, (n, parts, channels // parts, height, width))
        if mask is not None:
            weights = gf.reshape(mask, (n, parts, count, 1, height, width))
            seen = seen * weights[:, :, tap]
        taps.append(gf.reshape(seen, (n, groups, channels // groups, height, width)))
    columns = gf.stack(taps, axis=3)
    weight = gf.reshape(w, (groups, w.shape[0] // groups, w.shape[1], count))
    y = gf.reshape(gf.einsum("ngckhw,gock->ngohw", columns, weight), (n, w.shape[0], height, width))
    return y if bias is None else y + gf.reshape(bias, (-1, 1, 1))


@reads("Col2Im")
def _col2im(node: Call, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    kernel = node.ints(block, "the block's shape")
    stride, dilation = steps(node, len(kernel))
    sizes = node.dims(image, "the image's shape")
    pads = node.numbers("pads", (0,) * 2 * len(kernel))
    pairs = list(zip(pads[: len(kernel)], pads[len(kernel) :], strict=True))
    whole = [n + low + high for n, (low, high) in zip(sizes, pairs, strict=True)]
    y = gf.fold(x, whole, kernel, stride=stride, dilation=dilation)
    cut = [slice(low, low + n) for n, (low, _) in zip(sizes, pairs, strict=True)]
    return y[(slice(None), slice(None), *cut)]
