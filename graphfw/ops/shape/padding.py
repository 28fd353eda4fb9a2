"""Adding elements around a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from graphfw.errors import ShapeError, counted
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike, always_le, dim_max
from graphfw.ir.functions import F, public
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, whole
from graphfw.ops.composed import demand, demand_one_of
from graphfw.ops.creation.constructors import full
from graphfw.ops.creation.ranges import arange
from graphfw.ops.shape.gather_scatter import SliceSet, take

__all__ = ["pad"]

PadMode: TypeAlias = Literal["constant", "edge", "reflect", "symmetric", "wrap"]


@public
def pad(
    x: TensorLike,
    pad_width: DimLike | Sequence[Any],
    /,
    *,
    mode: PadMode = "constant",
    constant_values: TensorLike = 0,
) -> Tensor:
    """Add elements before and after, along each axis.  x: [*A] -> [*(before + A + after)]

    Args:
        x: What to pad.
        pad_width: How many: one number, a pair (before, after) for all axes, or a pair for each
            axis, as for `np.pad`. Numbers may be symbolic dims.
        mode: What to add: "constant" values, the "edge" element, the elements mirrored without
            the edge ("reflect") or with it ("symmetric"), or those of the other end ("wrap").
        constant_values: The scalar that "constant" adds.

    Raises:
        ShapeError: `pad_width` does not fit x, or `mode` repeats elements where there are none.
        ArgumentError: A number is negative, or there is no such mode.

    >>> import graphfw as gf
    >>> gf.pad(gf.asarray([1, 2, 3]), (2, 1), mode="reflect")
    Tensor([3, 2, 1, 2, 3, 2], dtype=int64)
    """
    tensor = as_tensor(x)
    widths = _widths(tensor, pad_width)
    demand_one_of("pad", "mode", mode, ("constant", *_MIRRORS))
    if mode != "constant":
        for axis, width in enumerate(widths):
            if width != (0, 0):
                tensor = take(tensor, _mirrored(tensor, axis, *width, mode), axis=axis)
        return tensor
    dims = tuple(a + d + b for (a, b), d in zip(widths, tensor.shape, strict=True))
    background = full(dims, constant_values, dtype=tensor.dtype)
    starts = tuple(before for before, _ in widths)
    return emit(SliceSet(starts, tensor.shape, (1,) * tensor.ndim), background, tensor)


def _widths(x: Tensor, pad_width: DimLike | Sequence[Any]) -> list[tuple[DimLike, DimLike]]:
    """Return how much to add before and after each axis."""
    entries: list[Any] = list(pad_width) if isinstance(pad_width, Sequence) else [pad_width]
    if all(not isinstance(entry, Sequence) for entry in entries):
        entries = [entries]
    listed = [entry if isinstance(entry, Sequence) else [entry] for entry in entries]
    pairs = [tuple(entry) * (2 if len(entry) == 1 else 1) for entry in listed]
    pairs *= x.ndim if len(pairs) == 1 else 1
    fits = len(pairs) == x.ndim and all(len(pair) == 2 for pair in pairs)
    demand(
        fits,
        f"pad: pad_width={pad_width} does not fit {counted(x.ndim, 'dim')}",
        {"x": x},
        fix="give a pair (before, after) for each dim",
        error=ShapeError,
    )
    widths = [whole("pad", "the width", width) for pair in pairs for width in pair]
    for width in widths:
        message = f"pad: the width {width} is negative"
        demand(not always_le(width, -1), message, {"x": x}, fix="use x[start:stop] to take away")
    return list(zip(widths[::2], widths[1::2], strict=True))


def _edge(position: Tensor, size: DimLike) -> Tensor:
    return F.minimum(F.maximum(position, 0), size - 1)


def _wrap(position: Tensor, size: DimLike) -> Tensor:
    return position % size


def _reflect(position: Tensor, size: DimLike) -> Tensor:
    # With one element there is nothing to mirror: that one is repeated.
    folded = position % dim_max(2 * size - 2, 1)
    return F.minimum(folded, 2 * size - 2 - folded)


def _symmetric(position: Tensor, size: DimLike) -> Tensor:
    folded = position % (2 * size)
    return F.minimum(folded, 2 * size - 1 - folded)


_MIRRORS = {"edge": _edge, "reflect": _reflect, "symmetric": _symmetric, "wrap": _wrap}


def _mirrored(x: Tensor, axis: int, before: DimLike, after: DimLike, mode: str) -> Tensor:
    """Return for each position of a padded axis the position of x that its element comes from."""
    size = x.shape[axis]
    demand(
        size != 0,
        f"pad: mode={mode!r} repeats elements, and dim {axis} has none",
        {"x": x},
        fix='use mode="constant"',
        error=ShapeError,
    )
    return _MIRRORS[mode](arange(-before, size + after), size)
