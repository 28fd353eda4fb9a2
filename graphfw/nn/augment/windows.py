"""Flips, crops and erased rectangles: no element changes but by moving or vanishing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

from graphfw.errors import ShapeError
from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import float32, int64
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.nn.augment.common import demand_share, draws, images, over_images, read_pair
from graphfw.ops.args import TensorLike, as_tensor, converted, scalar_like
from graphfw.ops.composed import demand, demand_one_of
from graphfw.ops.nn.spatial_arguments import Ints, each
from graphfw.ops.random.draws import is_number
from graphfw.ops.run_checks import checked
from graphfw.ops.shape.padding import PadMode


@explained
def random_flip(
    x: TensorLike, /, *, axis: int = -1, p: float = 0.5, name: str | None = None
) -> Tensor:
    """Mirror each image with probability p.  x: [*B, C, H, W] -> [*B, C, H, W]

    Not in evaluation (`gf.training(False)`), where x is returned.

    Args:
        x: The images, of any dtype.
        axis: -1 exchanges left and right, -2 top and bottom.
        p: The probability, from 0 to 1.
        name: The name of the random stream; see `graphfw.random`.

    Raises:
        ShapeError: x has fewer than three dims.
        ArgumentError: axis is neither -1 nor -2, or p is outside [0, 1].

    >>> import graphfw as gf
    >>> gf.nn.augment.random_flip(gf.asarray([[[1, 2, 3]]]), p=1.0)
    Tensor([[[3, 2, 1]]], dtype=int64)
    """
    tensor = images("random_flip", x)
    message = f"random_flip: axis={axis!r} is neither -1 (left and right) nor -2 (top and bottom)"
    is_spatial = axis in (-1, -2, tensor.ndim - 1, tensor.ndim - 2)
    demand(is_spatial, message, {"x": tensor}, fix="use axis=-1; images are [*B, C, H, W]")
    demand_share("random_flip", "p", p)
    if not ambient.asks_for_training():
        return tensor
    (fraction,) = draws(tensor.shape[:-3], 1, name)
    return F.where(over_images(fraction < p), F.flip(tensor, axis=axis), tensor)


@explained
def random_crop(
    x: TensorLike,
    size: Ints,
    /,
    *,
    padding: Ints = 0,
    padding_mode: PadMode = "constant",
    name: str | None = None,
) -> Tensor:
    """Cut a window out of each image, anywhere.  x: [*B, C, H, W] -> [*B, C, *size]

    All positions are equally likely. In evaluation (`gf.training(False)`) the window is in the
    middle, so that the shape is the same.

    Args:
        x: The images, of any dtype.
        size: The window's height and width; one int for both.
        padding: How much is added above and below, and left and right, before; one int for both.
        padding_mode: What is added: see the modes of `gf.pad`; "constant" is zeros.
        name: The name of the random stream; see `graphfw.random`.

    Raises:
        ShapeError: x has fewer than three dims, or the window is larger than the padded images. It
            is an ExecutionError where a run tells.
        ArgumentError: size or padding is no int or pair of ints, size is below 1, padding is
            negative, or there is no such mode.

    >>> import graphfw as gf
    >>> gf.nn.augment.random_crop(gf.ones((8, 3, 32, 32)), 32, padding=4).shape
    (8, 3, 32, 32)
    """
    tensor = images("random_crop", x)
    window = each("random_crop", "size", size, 2)
    margins = each("random_crop", "padding", padding, 2, least=0)
    demand_one_of("random_crop", "padding_mode", padding_mode, get_args(PadMode))
    if any(margins):
        widths = [(0, 0)] * (tensor.ndim - 2) + [(margin, margin) for margin in margins]
        tensor = F.pad(tensor, widths, mode=padding_mode)
    rooms = [_room(tensor, axis, n) for axis, n in zip((-2, -1), window, strict=True)]
    if ambient.asks_for_training():
        fractions = draws(tensor.shape[:-3], 2, name)
        starts = [
            # Below room + 1 also when rounded, for images of less than 2^24 rows.
            F.astype(F.floor(fraction * converted(room + 1, float32)), int64)
            for fraction, room in zip(fractions, rooms, strict=True)
        ]
    else:
        starts = [F.reshape(room // 2, (1,) * (tensor.ndim - 3)) for room in rooms]
    rows, columns = [
        F.expand_dims(start, axis=-1) + F.positions(n)
        for start, n in zip(starts, window, strict=True)
    ]
    ahead = [
        F.reshape(F.positions(dim), (dim, *[1] * (tensor.ndim - 1 - axis)))
        for axis, dim in enumerate(tensor.shape[:-2])
    ]
    # One index is faster than two of `gf.take_along_axis`.
    return tensor[
        (*ahead, F.expand_dims(rows, axis=(-3, -1)), F.expand_dims(columns, axis=(-3, -2)))
    ]


def _room(x: Tensor, axis: int, length: int) -> Tensor:
    """Return by how much a window may move along an axis, which must not be less than 0."""
    size: DimLike = x.shape[axis]
    side, label = ("height", "rows") if axis == -2 else ("width", "columns")
    message = f"random_crop: the window's {side} is {length}"
    if isinstance(size, Dim):
        text = f"{message}, and the padded images have fewer {label}"
        fix = "use a smaller size, or more padding"
        return checked({"x": as_tensor(size - length)}, lambda room: room >= 0, text, fix=fix)
    text = f"{message}, and the padded images are {shape_text(x.shape[-2:])}"
    fix = f"use size={size} or less, or padding={-(-(length - size) // 2)} more"
    demand(length <= size, text, {"padded": x}, fix=fix, error=ShapeError)
    return as_tensor(size - length)


@explained
def random_erasing(
    x: TensorLike,
    /,
    *,
    p: float = 0.5,
    scale: Sequence[float] = (0.02, 0.33),
    ratio: Sequence[float] = (0.3, 3.3),
    value: float = 0,
    name: str | None = None,
) -> Tensor:
    """Erase a rectangle of each image with probability p.  x: [*B, C, H, W] -> [*B, C, H, W]

    Z. Zhong et al., "Random erasing data augmentation", 2017. All areas in `scale` are equally
    likely, and so are the logarithms of all ratios in `ratio` with which the rectangle fits into
    the image; sides are rounded to whole elements. With p=1 and ratio=(1, 1) it is the cutout of
    T. DeVries and G. Taylor, 2017, whose squares stay in the image. Not in evaluation
    (`gf.training(False)`), where x is returned.

    Args:
        x: The images, of any dtype.
        p: The probability, from 0 to 1.
        scale: The least and the greatest area, as shares of the image's, from 0 to 1.
        ratio: The least and the greatest ratio of height to width, above 0.
        value: What is in the rectangle afterwards.
        name: The name of the random stream; see `graphfw.random`.

    Raises:
        ShapeError: x has fewer than three dims.
        ArgumentError: p is outside [0, 1], scale or ratio is no pair of such numbers in order, or
            value is no number of x's dtype.
        DTypeError: value is beyond the range of x's dtype.

    >>> import graphfw as gf
    >>> image = gf.ones((1, 4, 4))
    >>> erased = gf.nn.augment.random_erasing(image, p=1.0, scale=(0.25, 0.25), ratio=(1, 1))
    >>> int(gf.sum(erased == 0))
    4
    """
    what = "random_erasing"
    tensor = images(what, x)
    demand_share(what, "p", p)
    least, most = read_pair(what, "scale", scale, "use scale=(0.02, 0.33)")
    message = f"{what}: scale={scale!r} must be shares of the image's area, from 0 to 1"
    demand(least >= 0 and most <= 1, message, fix="use scale=(0.02, 0.33)")
    flattest, steepest = read_pair(what, "ratio", ratio, "use ratio=(0.3, 3.3)")
    message = f"{what}: ratio={ratio!r} must be above 0"
    demand(flattest > 0, message, fix="it is height / width: use ratio=(0.3, 3.3)")
    fits = is_number(value) and (tensor.dtype.is_inexact or float(value).is_integer())
    message = f"{what}: value={value!r} is no number that {tensor.dtype.name} has"
    demand(fits, message, {"x": tensor}, fix="use value=0")
    filling = scalar_like(what, value, tensor.dtype)
    if not ambient.asks_for_training():
        return tensor
    chance, share, shape, down, across = draws(tensor.shape[:-3], 5, name)
    height, width = [converted(as_tensor(n), float32) for n in tensor.shape[-2:]]
    area = (least + (most - least) * share) * height * width
    low = F.clip(F.log(area / width**2), math.log(flattest), math.log(steepest))
    high = F.clip(F.log(height**2 / area), math.log(flattest), math.log(steepest))
    root = F.exp((low + F.maximum(high - low, 0) * shape) / 2)
    tall = F.minimum(F.round(F.sqrt(area) * root), height)
    broad = F.minimum(F.round(F.sqrt(area) / root), width)
    corners = F.floor(down * (height - tall + 1)), F.floor(across * (width - broad + 1))
    inside = rectangle(corners, (tall, broad), tensor.shape[-2:])
    return F.where(inside & over_images(chance < p), filling, tensor)


def rectangle(
    corners: Sequence[Tensor], sides: Sequence[Tensor], size: Sequence[DimLike]
) -> Tensor:
    """Return where the elements of rectangles are.  [*B] -> bools [*B, 1, H, W]

    Args:
        corners: The first row and the first column: whole floats.
        sides: The height and the width: whole floats.
        size: The dims H and W.
    """
    masks = []
    for first, length, count, other in zip(corners, sides, size, (-1, -2), strict=True):
        at = F.positions(count) - F.astype(F.expand_dims(first, axis=-1), int64)
        within = (at >= 0) & (at < F.astype(F.expand_dims(length, axis=-1), int64))
        masks.append(F.expand_dims(within, axis=(-3, other)))
    return masks[0] & masks[1]
