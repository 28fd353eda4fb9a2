"""Convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import graphfw as gf
from graphfw.errors import ShapeError, counted
from graphfw.ir.build import emit
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.onnx.builder import LAST, Builder, Val, fields
from graphfw.onnx.errors import Unsupported
from graphfw.onnx.fitting import sized
from graphfw.onnx.node import ModelNode
from graphfw.onnx.table import reads, writes
from graphfw.ops.nn.unfold import Windows
from graphfw.ops.nn.window import Window, windows_of

Pairs = list[tuple[DimLike, DimLike]]

_AUTO_PADS = ("NOTSET", "SAME_LOWER", "SAME_UPPER", "VALID")


@reads("Conv")
def _conv(node: ModelNode, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    return convolved(node, x, w, bias)


def convolved(node: ModelNode, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
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


def steps(node: ModelNode, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the strides and the dilations of a node over so many spatial dims."""
    stride, dilation = (node.numbers(n, (1,) * rank) for n in ("strides", "dilations"))
    positive = min((*stride, *dilation), default=1) > 0
    node.require(positive, f"strides {stride} and dilations {dilation} must be positive")
    return stride, dilation


def _kernel(node: ModelNode, w: Tensor) -> list[int]:
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
    node: ModelNode,
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
        windows = windows_of(tuple(sizes), tuple(kernel), stride, dilation)
        return [window.same(odd_first=auto == "SAME_LOWER").padding for window in windows]
    none = (0,) * 2 * len(kernel)
    pads = node.numbers("pads", none) if auto == "NOTSET" else none
    return list(zip(pads[: len(kernel)], pads[len(kernel) :], strict=True))


@writes("conv")
def _write_conv(b: Builder, node: Node, x: Val, weight: Val) -> Val:
    op = fields(node)
    _check(op)
    sizes, kernel = node.inputs[0].shape[2:], node.inputs[1].shape[2:]
    if set(op.input_dilations) == {1} and x.dtype.is_floating:
        return _sliding(b, op, x, weight, sizes, kernel)
    transposed = _transposed(b, node, x, weight)
    if transposed is not None:
        return transposed
    x, sizes = _spread(b, op, x, node.inputs[0].shape)
    if x.dtype.is_floating:
        return _sliding(b, op, x, weight, sizes, kernel)
    return _of_integers(b, node, x, weight, sizes)


def _of_integers(b: Builder, node: Node, x: Val, weight: Val, sizes: Shape) -> Val:
    """Write a product of matrices: ONNX's Conv is for floats.  sizes: those of x by now"""
    op, kinds = fields(node), [t.type for t in node.inputs]
    windows = _windows(op, sizes, kinds[1].shape[2:])
    x = _padded(b, x, windows)
    kinds[0] = TensorType(x.dtype, (*kinds[0].shape[:2], *[w.padded for w in windows]))
    return b.expand(lambda *xs: _products(op, *xs), [x, weight], kinds)[0]


def _products(op: Any, x: Tensor, weight: Tensor) -> Tensor:
    """Convolve by products.  x: [N, C, *S] without margins, weight: [O, C/G, *K] -> [N, O, *P]"""
    kernel = tuple([int(size) for size in weight.shape[2:]])
    seen = emit(Windows(kernel, op.strides, op.dilations), x)
    batch, terms = x.shape[0], size_of(weight.shape[1:])
    groups, output_size = max(op.groups, 1), size_of(op.output_sizes)
    columns = gf.reshape(seen, (batch, groups, terms, output_size))
    rows = gf.reshape(weight, (groups, weight.shape[0] // groups, terms))
    return gf.reshape(rows @ columns, (batch, weight.shape[0], *op.output_sizes))


def _check(op: Any) -> None:
    if isinstance(op.groups, Dim):
        raise Unsupported(f"{counted(op.groups, 'group')}, whose number must be fixed")


def _sliding(b: Builder, op: Any, x: Val, weight: Val, sizes: Shape, kernel: Shape) -> Val:
    """Write a Conv whose windows begin `before` x and are at as many positions as wanted."""
    windows = _windows(op, sizes, kernel)
    ends = [_end(*axis) for axis in zip(windows, op.output_sizes, strict=True)]
    pads: Sequence[int]
    if any(end is None for end in ends) or any(isinstance(n, Dim) or n < 0 for n in op.before):
        # What Conv can't say: x is padded, or cut, to just what the windows see.
        x = _padded(b, x, windows)
        pads = [0] * (2 * len(windows))
    else:
        pads = [*op.before, *[end for end in ends if end is not None]]
    return b(
        "Conv",
        x,
        weight,
        strides=op.strides,
        dilations=op.dilations,
        pads=pads,
        group=max(op.groups, 1),
    )


def _windows(op: Any, sizes: Shape, kernel: Shape) -> list[Window]:
    """Return windows with the padding at the end that the last reads; below 0 if input is left."""
    pairs = tuple([(before, 0) for before in op.before])
    windows = windows_of(sizes, kernel, op.strides, op.dilations, pairs)
    ends = zip(windows, op.output_sizes, strict=True)
    return [
        window.padded_by(window.before, window.padding_after(output_size))
        for window, output_size in ends
    ]


def _padded(b: Builder, x: Val, windows: Sequence[Window]) -> Val:
    """Pad, or cut, x to just what windows see."""
    ends = [[w.before for w in windows], [w.after for w in windows]]
    return b("Pad", x, b.shape((0, 0, *ends[0], 0, 0, *ends[1])))


def _end(window: Window, output_size: DimLike) -> int | None:
    """Return a number of zeros after x with which the windows have so many positions, or None."""
    extent, stride = window.extent, window.stride
    if isinstance(window.after, int):
        return max(window.after, 0) if window.after > -stride else None
    if isinstance(extent, Dim):
        return None
    room = window.size + window.before - extent
    ends = range(extent + stride)
    return next((end for end in ends if (room + end) // stride + 1 == output_size), None)


@reads("ConvTranspose")
def _conv_transpose(node: ModelNode, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    kernel = _kernel(node, w)
    rank = len(kernel)
    node.require(x.ndim == rank + 2, f"x has {counted(x.ndim, 'dim')}, and its weights {w.ndim}")
    stride, dilation = steps(node, rank)
    extra = node.numbers("output_padding", (0,) * rank)
    wanted = node.attr("output_shape", None)
    node.require(wanted is None or len(wanted) >= rank, f"output_shape is {wanted}")
    auto = node.choice("auto_pad", "NOTSET", _AUTO_PADS)
    # What comes out without any cut: then the ends are cut off by `pads`.
    windows = windows_of(x.shape[2:], tuple(kernel), stride, dilation)
    whole = [window.transposed + e for window, e in zip(windows, extra, strict=True)]
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


def _transposed(b: Builder, node: Node, x: Val, weight: Val) -> Val | None:
    """Write a ConvTranspose where there is one of these sizes."""
    op, kernel = fields(node), node.inputs[1].shape[2:]
    if set(op.strides) != {1} or set(op.input_dilations) == {1} or not x.dtype.is_floating:
        return None
    pads, extra = [], []
    windows = windows_of(node.inputs[0].shape[2:], kernel, op.input_dilations, op.dilations)
    for window, begin, output_size in zip(
        windows, op.before_reversed(kernel), op.output_sizes, strict=True
    ):
        end = window.transposed - begin - output_size
        if isinstance(begin, Dim) or isinstance(end, Dim) or begin < 0 or -end >= window.stride:
            return None
        pads.append((begin, max(end, 0)))
        extra.append(max(-end, 0))
    return b(
        "ConvTranspose",
        x,
        _reversed_weight(b, node, weight),
        strides=op.input_dilations,
        dilations=op.dilations,
        pads=[*[begin for begin, _ in pads], *[end for _, end in pads]],
        output_padding=extra,
        group=max(op.groups, 1),
    )


def _reversed_weight(b: Builder, node: Node, weight: Val) -> Val:
    """Return the weight as ConvTranspose has it: [O, C/G, *K] -> [C, O/G, *K], reversed in K."""
    op, w = fields(node), node.inputs[1]
    groups, kernel = op.groups, w.shape[2:]
    wanted = (node.inputs[0].shape[1], w.shape[0] // groups, *kernel)
    source = _before_turning(w, groups)
    if source is not None and source.shape == wanted:
        return b.value(source)
    axes = list(range(2, w.ndim))
    ends = b.ints([LAST] * len(axes))
    minus = b.ints([-1] * len(axes))
    flipped = b("Slice", weight, minus, ends, b.ints(axes), minus)
    if groups == 1:
        return b("Transpose", flipped, perm=[1, 0, *axes])
    grouped = b.reshape(flipped, (groups, w.shape[0] // groups, w.shape[1], *kernel))
    swapped = b("Transpose", grouped, perm=[0, 2, 1, *[axis + 1 for axis in axes]])
    return b.reshape(swapped, wanted)


def _before_turning(w: Tensor, groups: DimLike) -> Tensor | None:
    """Return the weights before `ops.correlation.turned` turned them, if it has made w."""
    steps = ["permute_dims"] if groups == 1 else ["reshape", "permute_dims", "reshape"]
    axes = [1, 0] if groups == 1 else [0, 2, 1]
    if any(size != 1 for size in w.shape[2:]):
        steps.append("flip")
    for step in steps:
        op: Any = w.node.op
        if op.name != step:
            return None
        if step == "permute_dims" and list(op.axes) != [*axes, *range(len(axes), len(op.axes))]:
            return None
        flipped = [axis for axis, size in enumerate(w.shape) if axis > 1 and size != 1]
        if step == "flip" and list(op.axes) != flipped:
            return None
        w = w.node.inputs[0]
    return w


def _spread(b: Builder, op: Any, x: Val, shape: Shape) -> tuple[Val, Shape]:
    """Put zeros between the elements of x: `spread` - 1 after each but the last."""
    dims = list(shape)
    for axis, spread in enumerate(op.input_dilations, 2):
        if spread == 1:
            continue
        wide = b("Unsqueeze", x, b.ints([axis + 1]))
        after = [0] * (len(dims) + 1)
        after[axis + 1] = spread - 1
        dims[axis] = dims[axis] * spread
        filled = b("Pad", wide, b.ints([*[0] * (len(dims) + 1), *after]))
        x = b.reshape(filled, tuple(dims))
        dims[axis] = dims[axis] - (spread - 1)
        x = b("Slice", x, b.ints([0]), b.ints([1 - spread]), b.ints([axis]))
    return x, tuple(dims[2:])


@writes("conv_weight")
def _write_conv_weight(b: Builder, node: Node, x: Val, y: Val) -> Val:
    """Write a Conv over x whose kernel is y; N and the channels exchange their roles.

    What moves the window, the stride, is how far the kernel's elements are apart, and the reverse.
    """
    op = fields(node)
    _check(op)
    groups = max(op.groups, 1)
    batch, channels, *_ = node.inputs[0].shape
    axes = list(range(2, node.inputs[0].ndim))
    x, sizes = _spread(b, op, x, node.inputs[0].shape)
    swap = [1, 0, *axes]
    if groups == 1:
        source = b("Transpose", x, perm=swap)
    else:
        grouped = b.reshape(x, (batch, groups, channels // groups, *sizes))
        moved = b("Transpose", grouped, perm=[2, 1, 0, *[axis + 1 for axis in axes]])
        source = b.reshape(moved, (channels // groups, groups * batch, *sizes))
    kernel = b("Transpose", y, perm=swap)
    backwards = type(op)(
        op.output_sizes, op.before, op.dilations, op.strides, (1,) * len(axes), op.groups
    )
    made = _sliding(b, backwards, source, kernel, sizes, node.inputs[1].shape[2:])
    return b("Transpose", made, perm=swap)


_MOST_TAPS = 1024
"""The most elements of a deformed kernel: each adds nodes to the graph."""


@reads("DeformConv")
def _deform_conv(
    node: ModelNode,
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
    node.require(x.ndim == w.ndim == 4, f"x has {counted(x.ndim, 'dim')}, and its weights {w.ndim}")
    kernel = _kernel(node, w)
    stride, dilation = steps(node, 2)
    pads = padding(node, x.shape[2:], kernel, stride, dilation)
    groups, offset_groups = node.attr("group", 1), node.attr("offset_group", 1)
    x = sized(x, 1, w.shape[1] * groups)
    count = kernel[0] * kernel[1]
    node.require(
        count <= _MOST_TAPS,
        f"a kernel of {kernel} has more than {counted(_MOST_TAPS, 'element')}",
    )
    n, channels, *sizes = x.shape
    height, width = offset.shape[2:]
    moves = gf.reshape(offset, (n, offset_groups, count, 2, height, width))
    taps = []
    for tap in range(count):
        at = (tap // kernel[1], tap % kernel[1])
        output_size = []
        for axis, (out, size) in enumerate(zip((height, width), sizes, strict=True)):
            first = gf.arange(out) * stride[axis] - pads[axis][0] + at[axis] * dilation[axis]
            first = gf.astype(first, x.dtype)
            line = gf.reshape(first, (-1, 1)) if axis == 0 else first
            position = moves[:, :, tap, axis] + line
            extent = gf.astype(gf.asarray(size), x.dtype)
            output_size.append((2 * position + 1 - extent) / extent)
        grid = gf.stack([output_size[1], output_size[0]], axis=-1)
        images = gf.reshape(x, (n * offset_groups, channels // offset_groups, *sizes))
        seen = gf.grid_sample(images, gf.reshape(grid, (n * offset_groups, height, width, 2)))
        seen = gf.reshape(seen, (n, offset_groups, channels // offset_groups, height, width))
        if mask is not None:
            weights = gf.reshape(mask, (n, offset_groups, count, 1, height, width))
            seen = seen * weights[:, :, tap]
        taps.append(gf.reshape(seen, (n, groups, channels // groups, height, width)))
    columns = gf.stack(taps, axis=3)
    weight = gf.reshape(w, (groups, w.shape[0] // groups, w.shape[1], count))
    y = gf.reshape(gf.einsum("ngckhw,gock->ngohw", columns, weight), (n, w.shape[0], height, width))
    return y if bias is None else y + gf.reshape(bias, (-1, 1, 1))
