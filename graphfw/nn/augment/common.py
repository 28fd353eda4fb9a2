"""Arguments of augmentations, and their draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from graphfw.errors import ArgumentError, DTypeError, ShapeError, counted
from graphfw.ir.dtype import float32
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand
from graphfw.ops.random.distributions import uniform
from graphfw.ops.random.draws import is_number

Range: TypeAlias = float | Sequence[float]
"""A number, which says how far draws are from the middle, or a pair (low, high)."""


def images(what: str, x: TensorLike) -> Tensor:
    """Return images [*B, C, H, W] as a tensor.

    Raises:
        ShapeError: It has fewer than three dims.
    """
    tensor = as_tensor(x)
    demand(
        tensor.ndim >= 3,
        f"{what}: images must be [*B, C, H, W]; x has {counted(tensor.ndim, 'dim')}",
        {"x": tensor},
        fix="give each image a dim for its channels: gf.expand_dims(x, axis=-3)",
        error=ShapeError,
    )
    return tensor


def demand_floats(what: str, x: Tensor) -> None:
    """See that a tensor has real floats: integers would lose what is between them.

    Raises:
        DTypeError: It has not.
    """
    fix = "take gf.real(x) or gf.abs(x)"
    if not x.dtype.is_inexact:
        scaled = " / 255" if x.dtype.name == "uint8" else ""
        fix = f"convert it before: gf.astype(x, gf.float32){scaled}"
    message = f"{what}: wants floating-point tensors, not {x.dtype.name}"
    demand(x.dtype.is_floating, message, {"x": x}, fix=fix, error=DTypeError)


def demand_share(what: str, label: str, value: Any) -> None:
    """See that an argument is a number from 0 to 1.

    Raises:
        ArgumentError: It is not.
    """
    fits = is_number(value) and 0 <= value <= 1
    message = f"{what}: {label}={value!r} must be a number from 0 to 1"
    is_percent = is_number(value) and 1 < value <= 100
    demand(fits, message, fix=f"use {label}={value / 100:g}" if is_percent else f"use {label}=0.5")


def read_range(
    what: str,
    label: str,
    given: Range,
    *,
    middle: float = 0.0,
    least: float = -math.inf,
    most: float = math.inf,
) -> tuple[float, float]:
    """Return the bounds that an argument sets to draws.

    Args:
        what: The public function.
        label: Its argument.
        given: A number d for the range from middle - d to middle + d, or a pair (low, high).
        middle: What changes nothing.
        least: The lowest bound: a number d reaches down to it, a pair must not pass it.
        most: The highest bound, which neither may pass.

    Raises:
        ArgumentError: It is neither, the number is negative, the pair is not in order, or a bound
            is passed.
    """
    example = "a number, or a pair (low, high)"
    if is_number(given) and not isinstance(given, Sequence):
        text = f"{what}: {label}={given!r} must be finite and not negative"
        demand(0 <= given < math.inf, text, fix=f"use {label}={abs(given)}, or {example}")
        low, high = max(middle - given, least), middle + given
    else:
        low, high = read_pair(what, label, given, f"use {example}")
    if not least <= low or not high <= most:
        bound = f"below {least:g}" if low < least else f"above {most:g}"
        raise ArgumentError(
            f"{what}: {label}={given!r} reaches {bound}",
            fix=f"stay between {least:g} and {most:g}" if most < math.inf else f"use {example}",
        )
    return low, high


def read_pair(what: str, label: str, given: Any, fix: str) -> tuple[float, float]:
    """Return a pair (low, high) of finite numbers.

    Raises:
        ArgumentError: It is none, or low is above high.
    """
    fits = isinstance(given, (list, tuple)) and len(given) == 2 and all(map(is_number, given))
    fits = fits and all(map(math.isfinite, given))
    demand(fits, f"{what}: {label}={given!r} is no pair of finite numbers", fix=fix)
    low, high = given
    demand(low <= high, f"{what}: {label}={given!r} is not in order", fix=f"use ({high}, {low})")
    return float(low), float(high)


def draws(dims: Shape, count: int, name: str | None) -> list[Tensor]:
    """Draw fractions in [0, 1) for each example: all that a call needs, from one stream.

    They are float32 whatever the images are, so that these don't change what is drawn.
    """
    fractions = uniform((*dims, count), dtype=float32, name=name)
    return [fractions[..., i] for i in range(count)]


def between(fraction: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Return the numbers that lie at fractions of the way from low to high."""
    low, high = bounds
    return low + (high - low) * fraction


def over_images(x: Tensor) -> Tensor:
    """Give numbers of examples the dims of images.  [*B] -> [*B, 1, 1, 1]"""
    return F.expand_dims(x, axis=(-3, -2, -1))
