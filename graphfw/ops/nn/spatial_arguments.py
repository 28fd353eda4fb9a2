"""The arguments of ops on images and the like: kernels, strides, padding, one for each spatial dim.

A spatial dim is a dim after those of the batch and the channels.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from graphfw.errors import ShapeError, counted
from graphfw.ir.dim import DimLike, always_le
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import is_whole, whole
from graphfw.ops.composed import demand, demand_one_of
from graphfw.ops.nn.window import Window, output_sizes_of, windows_of

Ints: TypeAlias = int | Sequence[int]
"""One int for all spatial dims, or one for each."""

Padding: TypeAlias = str | DimLike | Sequence[Any]
"""One number for all spatial dims, one or a pair (before, after) for each, "same" or "valid"."""


def spatial_rank(name: str, x: Tensor) -> int:
    """Return how many spatial dims a tensor [N, C, *S] has: at least one."""
    demand(
        x.ndim >= 3,
        (
            f"{name}: x has {counted(x.ndim, 'dim')}: it must be [N, C, *S], with "
            "one spatial dim or more"
        ),
        {"x": x},
        fix="gf.expand_dims adds a dim for the batch or the channels",
        error=ShapeError,
    )
    return x.ndim - 2


def each(name: str, what: str, given: Any, rank: int, least: int = 1) -> tuple[int, ...]:
    """Return an argument as one int for each of `rank` spatial dims.

    Raises:
        ArgumentError: It is none, there are not as many, or one is below `least`.
    """
    is_many = isinstance(given, Sequence) and not isinstance(given, str)
    numbers = tuple(given) if is_many else (given,) * rank
    fits = len(numbers) == rank and all(map(is_whole, numbers))
    fix = f"give one int, or one for each of the {rank} spatial dims"
    demand(fits, f"{name}: {what}={given!r} does not fit {rank} spatial dims", fix=fix)
    values = tuple([operator.index(number) for number in numbers])
    message = f"{name}: {what}={given!r} must be {least} or more"
    demand(min(values, default=least) >= least, message, fix=f"use {what}={least} or more")
    return values


def read_windows(
    name: str,
    sizes: Shape,
    kernel: Shape,
    stride: Ints,
    dilation: Ints,
    padding: Padding,
) -> tuple[Window, ...]:
    """Return the window along each spatial dim, from the arguments of a public function.

    Raises:
        ArgumentError: An argument does not fit the spatial dims, or the padding is negative.
    """
    rank = len(sizes)
    steps = each(name, "stride", stride, rank), each(name, "dilation", dilation, rank)
    windows = windows_of(sizes, kernel, *steps)
    if isinstance(padding, str):
        demand_one_of(name, "padding", padding, ("same", "valid"))
        return tuple([w.same() for w in windows]) if padding == "same" else windows
    entries = list(padding) if isinstance(padding, Sequence) else [padding] * rank
    pairs = [tuple(e) if isinstance(e, Sequence) else (e, e) for e in entries]
    fits = len(pairs) == rank and all(len(pair) == 2 for pair in pairs)
    demand(
        fits,
        f"{name}: padding={padding!r} does not fit {rank} spatial dims",
        fix=f"give one number, or {rank}, or a pair (before, after) for each dim",
    )
    for pair in pairs:
        for number in pair:
            size = whole(name, "the padding", number)
            message = f"{name}: the padding {size} is negative"
            demand(not always_le(size, -1), message, fix="slice x to take elements away")
    return tuple([w.padded_by(*pair) for w, pair in zip(windows, pairs, strict=True)])


def check_room(
    name: str,
    operands: Mapping[str, Tensor],
    windows: Sequence[Window],
    output_sizes: Sequence[DimLike] | None = None,
) -> None:
    """Demand that the window fits into each dim of x once or more, as far as sizes are known.

    `operands` are x and what else the error is to show, by their labels.
    """
    output_sizes = output_sizes_of(windows) if output_sizes is None else output_sizes
    for axis, (window, count) in enumerate(zip(windows, output_sizes, strict=True), 2):
        if not always_le(count, 0):
            continue
        size, extent, room = window.size, window.extent, window.padded
        padded = f"{size}, padded to {room}" if any(window.padding) else f"{size}"
        spread = f" {window.kernel}, {extent} wide by dilation," if window.dilation > 1 else ""
        demand(
            False,
            f"{name}: the kernel{spread or f' {extent}'} is larger than dim {axis} of x: {padded}",
            operands,
            fix=f"pad by {extent - room} more, or use a smaller kernel",
            error=ShapeError,
        )


def channels_fix(x: Tensor, channels: DimLike) -> str:
    """Say what to do about a tensor that has its channels elsewhere, or not as many."""
    if x.shape[-1] == channels:
        return "channels come before the spatial dims: gf.moveaxis(x, -1, 1)"
    return f"give x [N, {channels}, *S], or a weight for x's {shape_text(x.shape)}"
