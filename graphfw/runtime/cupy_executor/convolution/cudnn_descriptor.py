"""Convolutions as cuDNN describes them: three forms of one relation.

An image [N, C, *S], a filter [O, C/G, *K] and a response [N, O, *P] are related, in each spatial
dim, by

    p * stride + k * dilation - before == i

Two of the three are given and the third is made: the response ("fprop"), the image ("dgrad") or the
filter ("wgrad").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from graphfw.ir.dim import DimLike, always_ge
from graphfw.ops.nn.channels_last import PixelConv, PixelConvWeight, pixels_last
from graphfw.ops.nn.convolution_ops import Conv, ConvWeight, Correlation
from graphfw.runtime.cupy_executor.convolution.common import in_group
from graphfw.runtime.cupy_executor.cudnn import ALIGNED
from graphfw.runtime.kernels.steps import View
from graphfw.runtime.limits import Precision

CudnnConvKind: TypeAlias = Literal["fprop", "dgrad", "wgrad"]

CONVOLUTIONS = (Conv, ConvWeight, PixelConv, PixelConvWeight)
"""The ops that are such convolutions."""

OPERANDS = ("image", "filter", "response")
MADE: dict[CudnnConvKind, str] = {"fprop": "response", "dgrad": "image", "wgrad": "filter"}
"""The output of each form."""


class Numerics(NamedTuple):
    """The dtypes that a convolution may be computed in.

    Attributes:
        precision: See `Options`.
        winograd: Whether Winograd's algorithms may be used.
    """

    precision: Precision
    winograd: bool


class CudnnConvForm(NamedTuple):
    """A convolution as cuDNN describes it.

    Attributes:
        kind: The output.
        image: The view of the image; likewise `filter` and `response`.
        before: The zeros before the image.
        strides: The distances of neighbouring positions of the filter.
    """

    kind: CudnnConvKind
    image: View
    filter: View
    response: View
    before: tuple[DimLike, ...]
    strides: tuple[int, ...]

    @property
    def params(self) -> tuple[DimLike, ...]:
        """The params of a `CudnnConv`."""
        views = (self.image, self.filter, self.response)
        lying = [number for v in views for number in (*v.shape, *v.strides, v.offset)]
        return (*lying, *self.before)


def terms(op: Correlation, x: View, other: View, out: View) -> CudnnConvForm | None:
    """Return cuDNN's form of a convolution or a gradient of weights; None if there is none.

    Args:
        op: A `Conv` or a `ConvWeight`.
        x: Its first input.
        other: Its second input.
        out: Its result.
    """
    if isinstance(op, ConvWeight):
        if any(spread != 1 for spread in op.input_dilations):
            return None  # it would have to write its result backwards
        return CudnnConvForm("wgrad", x, out, other, op.before, op.strides)
    assert isinstance(op, Conv)
    taps = zip(other.shape[2:], other.strides[2:], strict=True)
    is_forward = all([size == 1 or always_ge(stride, 0) for size, stride in taps])
    if is_forward and all(spread == 1 for spread in op.input_dilations):
        return CudnnConvForm("fprop", x, other, out, op.before, op.strides)
    back = _flipped(other, op.groups)
    if back is None or any(stride != 1 for stride in op.strides):
        return None
    return CudnnConvForm(
        "dgrad", out, back, x, op.before_reversed(other.shape[2:]), op.input_dilations
    )


def _flipped(weight: View, groups: DimLike) -> View | None:
    """Return the weights of which these are the reverse: [C, O/G, *K] -> [O, C/G, *K].

    None if strides can't describe it.
    """
    inputs, outputs, *window = weight.shape
    along, down, *taps = weight.strides
    each_has = in_group(inputs, groups)
    if groups == 1:
        channels, step = outputs, down
    elif outputs == 1:
        channels, step = groups, each_has * along
    elif each_has * along == outputs * down:
        channels, step = groups * outputs, down
    else:
        return None
    last = sum([(k - 1) * tap for k, tap in zip(window, taps, strict=True)])
    shape = (channels, each_has, *window)
    strides = (step, along, *[-tap for tap in taps])
    return View(weight.storage, weight.offset + last, shape, strides)


class OperandStrides(NamedTuple):
    """The layout of an operand at given sizes, in elements."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class CudnnConvDescriptor(NamedTuple):
    """The description of a convolution for cuDNN at given sizes, with two spatial dims or three.

    Attributes:
        image: The layout of the image; likewise `filter` and `response`.
        before: The number of zeros before the image, in each spatial dim.
        after: The number of zeros after it.
        strides: The distances of neighbouring positions of the filter.
        dilations: The distances of its elements.
    """

    image: OperandStrides
    filter: OperandStrides
    response: OperandStrides
    before: list[int]
    after: list[int]
    strides: list[int]
    dilations: list[int]


def described(
    params: Sequence[int],
    window: tuple[Sequence[int], Sequence[int]],
    itemsize: int,
    *,
    by_pixel: bool,
) -> CudnnConvDescriptor | str:
    """Return the description for cuDNN, or why it takes no such convolution.

    Args:
        params: The params of a `CudnnConv`.
        window: The strides and the dilations of the filter in each spatial dim.
        itemsize: The bytes of an element.
        by_pixel: Whether operands are channels-last, where their strides don't tell.
    """
    strides, dilations = map(list, window)
    rank, numbers = len(strides), iter(params)
    operands = [_taken(numbers, rank + 2) for _ in OPERANDS]
    before = list(numbers)
    for name, one in zip(OPERANDS, operands, strict=True):
        if 0 in one.shape:
            return "there is nothing to multiply"
        if _overlaps(one):
            return f"the {name} does not lie in an order that cuDNN takes"
        if one.offset * itemsize % ALIGNED:
            return f"the {name} begins where no {ALIGNED} bytes begin"
    image, weight, response = operands
    after = []
    sizes = (image.shape[2:], weight.shape[2:], response.shape[2:])
    for size, taps, output_sizes, at, step, apart in zip(
        *sizes, before, strides, dilations, strict=True
    ):
        missing = (output_sizes - 1) * step + (taps - 1) * apart + 1 - at - size
        if at < 0 or missing <= -step:
            return "it leaves out part of the image, which cuDNN can't be told"
        after.append(max(missing, 0))
    if rank == 1:
        for each, usual in ((before, 0), (after, 0), (strides, 1), (dilations, 1)):
            each.insert(0, usual)
    image, weight, response = [_plain(one, by_pixel=by_pixel) for one in operands]
    return CudnnConvDescriptor(image, weight, response, before, after, strides, dilations)


def _taken(numbers: Iterator[int], rank: int) -> OperandStrides:
    shape = tuple([next(numbers) for _ in range(rank)])
    strides = tuple([next(numbers) for _ in range(rank)])
    return OperandStrides(next(numbers), shape, strides)


def _plain(one: OperandStrides, *, by_pixel: bool) -> OperandStrides:
    """Return a layout with two spatial dims at least, and usual strides of dims of one element."""
    shape, strides = list(one.shape), list(one.strides)
    if len(shape) == 3:
        shape.insert(2, 1)
        strides.insert(2, 0)
    step, rank = 1, len(shape)
    for axis in reversed(pixels_last(rank) if by_pixel else range(rank)):
        if shape[axis] == 1:
            strides[axis] = step
        step = strides[axis] * shape[axis]
    return OperandStrides(one.offset, tuple(shape), tuple(strides))


def _overlaps(one: OperandStrides) -> bool:
    """Return whether elements overlap, or are reversed."""
    end = 0
    for stride, size in sorted(zip(one.strides, one.shape, strict=True)):
        if size > 1:
            if stride <= end:
                return True
            end = stride * (size - 1) + end
    return False
