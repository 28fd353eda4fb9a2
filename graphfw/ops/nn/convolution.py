"""Convolutions over any number of spatial dims, and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphfw.errors import ShapeError, counted
from graphfw.ir.build import emit
from graphfw.ir.dim import Dim, DimLike, always_le, dim_max
from graphfw.ir.functions import F, public
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, promoted
from graphfw.ops.composed import demand
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.ops.nn.spatial_arguments import (
    Ints,
    Padding,
    channels_fix,
    check_room,
    each,
    read_windows,
)
from graphfw.ops.nn.window import Window, fields_of, output_sizes_of

__all__ = ["conv", "conv_transpose"]


@public
def conv(
    x: TensorLike,
    weight: TensorLike,
    /,
    bias: TensorLike | None = None,
    *,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve over the spatial dims, as many as the weight has.

    x: [N, C, *S], weight: [O, C/groups, *K], bias: [O] -> [N, O, *T], with
    T = (S + padding before and after - dilation (K - 1) - 1) // stride + 1.
    result[n, o, p] = bias[o] + sum over c and k of x[n, c, i] weight[o, c, k], where
    i = p stride + k dilation - before: as everywhere in deep learning, the kernel is not reversed.
    Numeric dtypes, promoted; float16 and bfloat16 accumulate in float32.

    Args:
        x: The images, sequences or volumes.
        weight: The kernels.
        bias: What is added to each channel of the result.
        stride: How far the window moves: one int, or one for each spatial dim.
        padding: How many zeros to add at both ends: one number, one for each spatial dim, or a pair
            (before, after) for each; "valid" for none; "same" for S/stride positions, rounded up,
            with the odd zero at the end. Numbers may be symbolic dims. For other modes use
            `gf.pad`.
        dilation: How far the kernel's elements are apart.
        groups: Into how many groups the channels are divided; with C groups each channel has
            kernels of its own ("depthwise").

    Raises:
        ShapeError: Dims or channels don't fit, or the kernel is larger than the padded x.
        ArgumentError: stride, padding, dilation or groups are not what they should be.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", 3, "height", "width"), name="x")
    ...     gf.conv(x, gf.ones((8, 3, 3, 3)), stride=2, padding=1).shape
    (batch, 8, (height + 1)//2, (width + 1)//2)
    """
    a, w, *rest = promoted("conv", x, weight, *([] if bias is None else [bias]))
    _check_ranks("conv", a, w, "[O, C/groups, *K]")
    count = _checked_groups("conv", groups, {"x": a, "weight": w})
    demand(
        a.shape[1] == count * w.shape[1],
        f"conv: x has {counted(a.shape[1], 'channel')}, and the weight takes {w.shape[1] * count}"
        + (f": {w.shape[1]} in each of {counted(count, 'group')}" if count > 1 else ""),
        {"x": a, "weight": w},
        fix=channels_fix(a, w.shape[1] * count),
        error=ShapeError,
    )
    kernels = w.shape[0]
    demand(
        isinstance(kernels, Dim) or kernels % count == 0,
        (
            f"conv: the weight's {counted(kernels, 'kernel')} don't divide into "
            f"{counted(count, 'group')}"
        ),
        {"weight": w},
        fix=f"use a multiple of {counted(count, 'kernel')}",
        error=ShapeError,
    )
    windows = read_windows("conv", a.shape[2:], w.shape[2:], stride, dilation, padding)
    check_room("conv", {"x": a, "weight": w}, windows)
    return _shifted("conv", emit(_sliding(windows, output_sizes_of(windows), count), a, w), rest)


@public
def conv_transpose(
    x: TensorLike,
    weight: TensorLike,
    /,
    bias: TensorLike | None = None,
    *,
    stride: Ints = 1,
    padding: Padding = 0,
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Do the transpose of a convolution: what `conv` with the same arguments takes from, is given.

    x: [N, C, *S], weight: [C, O/groups, *K], bias: [O] -> [N, O, *T], with
    T = (S - 1) stride - padding before and after + dilation (K - 1) + output_padding + 1.
    Numeric dtypes, promoted; float16 and bfloat16 accumulate in float32.

    Args:
        x: The images, sequences or volumes.
        weight: The kernels.
        bias: What is added to each channel of the result.
        stride: How far apart the elements of x come to lie.
        padding: How much to cut off at both ends: numbers as for `conv`.
        output_padding: How much longer than the least that such a `conv` takes the result is.
        dilation: How far the kernel's elements are apart.
        groups: Into how many groups the channels are divided.

    Raises:
        ShapeError: Dims or channels don't fit, or nothing is left of the result.
        ArgumentError: stride, padding, output_padding, dilation or groups are not what they should
            be.

    >>> import graphfw as gf
    >>> gf.conv_transpose([[[1.0, 2.0]]], [[[1.0, 10.0]]], stride=2)
    Tensor([[[ 1., 10.,  2., 20.]]], dtype=float32)
    """
    name = "conv_transpose"
    a, w, *rest = promoted(name, x, weight, *([] if bias is None else [bias]))
    _check_ranks(name, a, w, "[C, O/groups, *K]")
    count = _checked_groups(name, groups, {"x": a, "weight": w})
    demand(
        a.shape[1] == w.shape[0],
        f"{name}: x has {counted(a.shape[1], 'channel')}, and the weight takes {w.shape[0]}",
        {"x": a, "weight": w},
        fix=channels_fix(a, w.shape[0]),
        error=ShapeError,
    )
    message = f"{name}: padding={padding!r} does not say how much to cut off"
    demand(not isinstance(padding, str), message, fix="give numbers")
    windows = read_windows(name, a.shape[2:], w.shape[2:], stride, dilation, padding)
    extra = each(name, "output_padding", output_padding, len(windows), 0)
    sizes = tuple([_length(a, *fact) for fact in zip(windows, extra, strict=True)])
    forward = _sliding(windows, a.shape[2:], count)
    return _shifted(name, forward.backward(a, w, sizes), rest)


def _sliding(windows: Sequence[Window], output_sizes: Shape, groups: int) -> Conv:
    """Return the convolution by windows that are at so many positions."""
    _, strides, dilations, before, _ = fields_of(windows)
    return Conv(output_sizes, before, strides, dilations, (1,) * len(windows), groups)


def _length(x: Tensor, window: Window, extra: int) -> DimLike:
    """Return one size of the result of a transposed convolution."""
    step, spread = window.stride, window.dilation
    message = (
        f"conv_transpose: output_padding={extra} must be below stride={step} or dilation={spread}"
    )
    demand(extra < max(step, spread), message, fix="use a larger stride, or gf.pad on the result")
    whole = window.transposed + extra
    length = whole - window.before - window.after
    message = (
        f"conv_transpose: of {counted(whole, 'element')}, the padding {window.padding} leaves none"
    )
    demand(not always_le(length, 0), message, {"x": x}, fix="cut off less", error=ShapeError)
    return dim_max(length, 0)


def _check_ranks(name: str, x: Tensor, weight: Tensor, layout: str) -> None:
    """Demand that x and the weight have as many spatial dims."""
    fits = x.ndim == weight.ndim >= 3
    fix = f"x is [N, C, *S], the weight {layout}"
    if x.ndim == weight.ndim - 1:
        fix = f"give x a dim for the batch: x[None] is {shape_text((1, *x.shape))}"
    demand(
        fits,
        f"{name}: x and the weight must have two dims and as many spatial ones: "
        f"they have {x.ndim} and {weight.ndim}",
        {"x": x, "weight": weight},
        fix=fix,
        error=ShapeError,
    )


def _checked_groups(name: str, groups: Any, operands: dict[str, Tensor]) -> int:
    (count,) = each(name, "groups", groups, 1)
    channels = operands["x"].shape[1]
    divides = isinstance(channels, Dim) or channels % count == 0
    message = (
        f"{name}: {counted(channels, 'channel')} of x don't divide into {counted(count, 'group')}"
    )
    demand(divides, message, operands, fix=f"use groups that divide {channels}", error=ShapeError)
    return count


def _shifted(name: str, y: Tensor, bias: Sequence[Tensor]) -> Tensor:
    """Add the bias, if there is one, to each channel."""
    if not bias:
        return y
    (shift,) = bias
    demand(
        shift.shape == y.shape[1:2],
        f"{name}: bias must have shape [{y.shape[1]}], not {shape_text(shift.shape)}",
        {"bias": shift},
        fix="give one number for each channel of the result",
        error=ShapeError,
    )
    shifted: Tensor = y + F.reshape(shift, (*shift.shape, *[1] * (y.ndim - 2)))
    return shifted
