"""The arguments of ops on images and the like: kernels, strides, padding, one for each spatial dim.

A spatial dim is a dim behind those of the batch and the channels.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from graphfw.errors import ShapeError, counted
from graphfw.ir.dim import DimLike, always_le, dim_max, dim_min
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import is_whole, whole
from graphfw.ops.composed import demand, demand_one_of
from graphfw.utils.records import record

Ints: TypeAlias = int | Sequence[int]
"""One int for all spatial dims, or one for each."""

Pairs: TypeAlias = tuple[tuple[DimLike, DimLike], ...]
"""How many elements to add before and after each dim."""

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


@record
class Sliding:
    """How a window slides along one dim.

    Attributes:
        size: The dim's size.
        kernel: How many elements the window has.
        stride: How far it moves.
        dilation: How far its elements are apart.
    """

    size: DimLike
    kernel: DimLike
    stride: int
    dilation: int

    @property
    def extent(self) -> DimLike:
        """How wide the window is."""
        return self.dilation * (self.kernel - 1) + 1

    def count(self, before: DimLike, after: DimLike) -> DimLike:
        """Return in how many places the window fits, with so many elements added."""
        room = self.size + before + after - self.extent
        return dim_max(room // self.stride + 1, 0)

    def count_up(self, before: DimLike, after: DimLike) -> DimLike:
        """The same, where the last window may reach beyond the end, if it begins before it."""
        room = self.size + before + after - self.extent
        begun = (self.size + before - 1) // self.stride + 1
        return dim_max(dim_min((room + self.stride - 1) // self.stride + 1, begun), 0)

    def missing(self, before: DimLike, places: DimLike) -> DimLike:
        """Return how many elements after the end so many windows need."""
        needed = (places - 1) * self.stride + self.extent
        return dim_max(needed - self.size - before, 0)

    def same(self) -> tuple[DimLike, DimLike]:
        """Return the padding with which there are size/stride places, rounded up."""
        total = self.missing(0, (self.size + self.stride - 1) // self.stride)
        return total // 2, total - total // 2


def slidings(
    sizes: Shape, kernel: Shape, strides: Sequence[int], dilations: Sequence[int]
) -> list[Sliding]:
    """Return how a window slides along each spatial dim."""
    return [Sliding(*facts) for facts in zip(sizes, kernel, strides, dilations, strict=True)]


def padding_pairs(name: str, padding: Padding, windows: Sequence[Sliding]) -> Pairs:
    """Return a `padding` argument as a pair for each spatial dim.

    Raises:
        ArgumentError: It is none, does not fit, or is negative.
    """
    rank = len(windows)
    if isinstance(padding, str):
        demand_one_of(name, "padding", padding, ("same", "valid"))
        return tuple([w.same() if padding == "same" else (0, 0) for w in windows])
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
    return tuple([(before, after) for before, after in pairs])


def check_room(
    name: str,
    operands: Mapping[str, Tensor],
    windows: Sequence[Sliding],
    pairs: Pairs,
    places: Sequence[DimLike],
) -> None:
    """Demand that the window fits into each dim of x once or more, as far as sizes are known.

    `operands` are x and what else the error is to show, by their labels.
    """
    for axis, (window, pair, count) in enumerate(zip(windows, pairs, places, strict=True), 2):
        if not always_le(count, 0):
            continue
        size, extent = window.size, window.extent
        padded = f"{size}, padded to {size + sum(pair)}" if any(pair) else f"{size}"
        spread = f" {window.kernel}, {extent} wide by dilation," if window.dilation > 1 else ""
        demand(
            False,
            f"{name}: the kernel{spread or f' {extent}'} is larger than dim {axis} of x: {padded}",
            operands,
            fix=f"pad by {extent - size - sum(pair)} more, or use a smaller kernel",
            error=ShapeError,
        )


def channels_fix(x: Tensor, channels: DimLike) -> str:
    """Say what to do about a tensor that has its channels elsewhere, or not as many."""
    if x.shape[-1] == channels:
        return "channels come before the spatial dims: gf.moveaxis(x, -1, 1)"
    return f"give x [N, {channels}, *S], or a weight for x's {shape_text(x.shape)}"
