"""Turns, shifts, zooms and shears of images."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.dtype import float32
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.nn.augment.common import (
    Range,
    between,
    demand_floats,
    draws,
    images,
    read_range,
)
from graphfw.ops.args import TensorLike, as_tensor, converted
from graphfw.ops.composed import demand, demand_one_of, wide
from graphfw.ops.random.draws import is_number

_MODES = ("linear", "bilinear", "nearest", "cubic", "bicubic")
_RADIAN = math.pi / 180


@explained
def random_affine(
    x: TensorLike,
    /,
    *,
    degrees: Range = 0.0,
    translate: Sequence[float] = (0.0, 0.0),
    scale: Range = 0.0,
    shear: Range = 0.0,
    fill: float = 0.0,
    mode: str = "linear",
    name: str | None = None,
) -> Tensor:
    """Turn, shift, zoom and shear each image around its middle.  x: [*B, C, H, W] -> [*B, C, H, W]

    The map is torchvision's: an image is sheared, zoomed, turned, and then shifted, by amounts that
    are drawn for each from uniform distributions. `gf.grid_sample` samples it. Not in evaluation
    (`gf.training(False)`), where x is returned.

    Args:
        x: Floats; float16 and bfloat16 are computed in float32.
        degrees: Angles: a number d for -d to d, or a pair (low, high).
        translate: How far at most, across and down, as shares of the width and the height, from 0
            to 1.
        scale: Factors: a number d below 1 for 1 - d to 1 + d, or a pair (low, high), above 0.
        shear: Angles in degrees, inside of ±90, by which columns lean: as degrees.
        fill: What is outside of the image.
        mode: How to interpolate: see `gf.grid_sample`.
        name: The name of the random stream; see `graphfw.random`.

    Raises:
        ShapeError: x has fewer than three dims.
        DTypeError: x has no real floats.
        ArgumentError: A number is negative, a pair is not in order, a range reaches too far, fill
            is not finite, or there is no such mode.

    >>> import graphfw as gf
    >>> image = gf.asarray([[[1.0, 2.0], [3.0, 4.0]]])
    >>> gf.round(gf.nn.augment.random_affine(image, degrees=(90, 90)))
    Tensor([[[3., 1.],
             [4., 2.]]], dtype=float32)
    """
    what = "random_affine"
    tensor = images(what, x)
    demand_floats(what, tensor)
    demand_one_of(what, "mode", mode, _MODES)
    angles = read_range(what, "degrees", degrees)
    factors = read_range(what, "scale", scale, middle=1.0, least=0.0)
    message = f"{what}: scale={scale!r} reaches 0, where nothing of an image is left"
    demand(factors[0] > 0, message, fix="use scale=0.2, or a pair such as scale=(0.8, 1.25)")
    leans = read_range(what, "shear", shear)
    message = f"{what}: shear={shear!r} must be inside of ±90 degrees"
    demand(-90 < leans[0] and leans[1] < 90, message, fix="use shear=10")
    shifts = _shifts(translate)
    is_finite = is_number(fill) and math.isfinite(fill)
    demand(is_finite, f"{what}: fill={fill!r} is no finite number", fix="use fill=0.0")
    moves = any(shifts) or (angles, factors, leans) != ((0, 0), (1, 1), (0, 0))
    if not (moves and ambient.asks_for_training()):
        return tensor
    *batch, channels, height, width = tensor.shape
    count = math.prod(batch)
    fractions = [F.reshape(fraction, (count,)) for fraction in draws(tuple(batch), 5, name)]
    turn, zoom, lean, across, down = map(
        between, fractions, (angles, factors, leans, *[(-shift, shift) for shift in shifts])
    )
    ratio = converted(as_tensor(height), float32) / converted(as_tensor(width), float32)
    theta = _inverse(turn * _RADIAN, zoom, lean * _RADIAN, across, down, ratio)
    flat = F.reshape(wide(tensor), (count, channels, height, width))
    grid = F.affine_grid(theta, flat.shape)
    # Outside of an image `grid_sample` has zeros, so elements are taken relative to the fill.
    moved = F.grid_sample(flat - fill if fill else flat, grid, mode=mode)
    return converted(F.reshape(moved + fill if fill else moved, tensor.shape), tensor.dtype)


def _shifts(given: Sequence[float]) -> tuple[float, float]:
    """Return the largest shifts of images, across and down."""
    fits = isinstance(given, (list, tuple)) and len(given) == 2 and all(map(is_number, given))
    fits = fits and all([0 <= share <= 1 for share in given])
    message = f"random_affine: translate={given!r} must be two shares, from 0 to 1"
    demand(fits, message, fix="use translate=(0.1, 0.1), for the width and the height")
    across, down = given
    return across, down


def _inverse(
    angle: Tensor,
    factor: Tensor,
    lean: Tensor,
    across: Tensor,
    down: Tensor,
    ratio: Tensor,
) -> Tensor:
    """Return where the elements of the results come from, as `gf.affine_grid` wants it.

    Args:
        angle: [N], clockwise, in radians.
        factor: [N]
        lean: [N], in radians.
        across: [N], as a share of the width.
        down: [N], as a share of the height.
        ratio: Height by width, for coordinates run from -1 to 1 over both.
    """
    sine, cosine, slope = F.sin(angle), F.cos(angle), F.tan(lean)
    # Forwards it is [[cosine, -cosine slope - sine], [sine, cosine - sine slope]], of determinant
    # 1, times the factor.
    x_by_x = (cosine - sine * slope) / factor
    x_by_y = (cosine * slope + sine) / factor * ratio
    y_by_x = -sine / factor / ratio
    y_by_y = cosine / factor
    # Both coordinates have a range of 2.
    first = F.stack([x_by_x, x_by_y, -2 * (x_by_x * across + x_by_y * down)], axis=-1)
    second = F.stack([y_by_x, y_by_y, -2 * (y_by_x * across + y_by_y * down)], axis=-1)
    return F.stack([first, second], axis=-2)
