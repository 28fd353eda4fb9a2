"""Padding of one, two or three spatial dims: each layer calls `gf.pad` with a mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

from graphfw.ir.tensor import Tensor
from graphfw.nn.convolution import check_rank
from graphfw.nn.module import Module
from graphfw.ops.args import TensorLike, as_tensor, is_whole
from graphfw.ops.composed import demand
from graphfw.ops.shape.padding import PadMode, pad

PadWidths: TypeAlias = int | Sequence[int] | Sequence[Sequence[int]]
"""One number for all ends of all spatial dims, or a pair (before, after) for each dim in order."""


class _PadLayer(Module):
    """The base: spatial dims become longer at both ends."""

    rank: ClassVar[int]
    mode: ClassVar[PadMode]
    value: float = 0.0

    def __init__(self, padding: PadWidths, *, name: str | None = None) -> None:
        super().__init__(name=name)
        self.padding = _pairs(type(self).__name__, padding, self.rank)

    def forward(self, x: TensorLike) -> Tensor:
        """Pad.  x: [N, C, *S] -> [N, C, *(before + S + after)]"""
        tensor = as_tensor(x)
        check_rank(type(self).__name__, self.rank, tensor)
        widths = ((0, 0), (0, 0), *self.padding)
        return pad(tensor, widths, mode=self.mode, constant_values=self.value)

    def extra_repr(self) -> str:
        """Return the text of the padding."""
        pairs = self.padding
        return f"{pairs[0] if len(pairs) == 1 else pairs}"


def _pairs(layer: str, padding: Any, rank: int) -> tuple[tuple[int, int], ...]:
    """Return a pair (before, after) for each spatial dim.

    Raises:
        ArgumentError: Padding is something else, such as PyTorch's (left, right, top, bottom).
    """
    if is_whole(padding):
        padding = (padding,) * 2 if rank == 1 else ((padding, padding),) * rank
    rows = list(padding) if isinstance(padding, Sequence) and not isinstance(padding, str) else []
    message = f"{layer}: padding={padding!r} is no pair (before, after) for each of {rank} dims"
    if rank == 1 and len(rows) == 2 and all(map(is_whole, rows)):
        rows = [rows]
    fix = "give one number, or pairs: " + str(((1, 1), (2, 2), (3, 3))[:rank])
    if rank > 1 and len(rows) == 2 * rank and all(map(is_whole, rows)):
        given = tuple(zip(rows[::2], rows[1::2], strict=True))
        fix = f"write padding={given[::-1]}: here the last dim comes last"
    are_pairs = all(isinstance(row, Sequence) and len(row) == 2 for row in rows)
    fits = len(rows) == rank and are_pairs and all(is_whole(n) for row in rows for n in row)
    demand(fits, message, fix="give one number, or a pair: (1, 2)" if rank == 1 else fix)
    message = f"{layer}: padding={padding!r} is negative"
    is_positive = all(n >= 0 for row in rows for n in row)
    demand(is_positive, message, fix="write a slice to take away: x[:, :, 1:-1]")
    return tuple((int(before), int(after)) for before, after in rows)


class _ConstantPad(_PadLayer):
    """The base of those that add a number of one's own."""

    mode = "constant"

    def __init__(self, padding: PadWidths, value: float, *, name: str | None = None) -> None:
        super().__init__(padding, name=name)
        self.value = value

    def extra_repr(self) -> str:
        """Return the text of the padding and the number."""
        return f"{super().extra_repr()}, value={self.value}"


class ZeroPad1d(_PadLayer):
    """Add zeros at both ends of the spatial dim.  x: [N, C, L]

    See `gf.pad`.

    Args:
        padding: One number, or a pair (before, after).
        name: See `Module`.

    Raises:
        ArgumentError: padding is something else, or negative.
        ShapeError: In a call: x has another number of dims.
    """

    rank = 1
    mode = "constant"


class ZeroPad2d(_PadLayer):
    """Add zeros at both ends of the spatial dims.  x: [N, C, H, W]

    `padding` is one number, or pairs: ((top, bottom), (left, right)). See
    `ZeroPad1d`.
    """

    rank = 2
    mode = "constant"


class ZeroPad3d(_PadLayer):
    """Add zeros at both ends of the spatial dims.  x: [N, C, D, H, W]

    `padding` is one number, or pairs: ((front, back), (top, bottom), (left, right)). See
    `ZeroPad1d`.
    """

    rank = 3
    mode = "constant"


class ConstantPad1d(_ConstantPad):
    """Add a number at both ends of the spatial dim.  x: [N, C, L]

    See `gf.pad`.

    Args:
        padding: One number, or a pair (before, after).
        value: The number to add.
        name: See `Module`.

    Raises:
        ArgumentError: padding is something else, or negative.
        ShapeError: In a call: x has another number of dims.
    """

    rank = 1


class ConstantPad2d(_ConstantPad):
    """Add a number at both ends of the spatial dims.  x: [N, C, H, W]

    `padding` is one number, or pairs: ((top, bottom), (left, right)). See
    `ConstantPad1d`.
    """

    rank = 2


class ConstantPad3d(_ConstantPad):
    """Add a number at both ends of the spatial dims.  x: [N, C, D, H, W]

    `padding` is one number, or pairs: ((front, back), (top, bottom), (left, right)). See
    `ConstantPad1d`.
    """

    rank = 3


class ReflectionPad1d(_PadLayer):
    """Mirror x at its ends, without the elements there.  x: [N, C, L]

    See `gf.pad`.

    Args:
        padding: One number, or a pair (before, after).
        name: See `Module`.

    Raises:
        ArgumentError: padding is something else, or negative.
        ShapeError: In a call: x has another number of dims, or no elements.
    """

    rank = 1
    mode = "reflect"


class ReflectionPad2d(_PadLayer):
    """Mirror x at its ends, without the elements there.  x: [N, C, H, W]

    `padding` is one number, or pairs: ((top, bottom), (left, right)). See
    `ReflectionPad1d`.
    """

    rank = 2
    mode = "reflect"


class ReflectionPad3d(_PadLayer):
    """Mirror x at its ends, without the elements there.  x: [N, C, D, H, W]

    `padding` is one number, or pairs: ((front, back), (top, bottom), (left, right)). See
    `ReflectionPad1d`.
    """

    rank = 3
    mode = "reflect"


class ReplicationPad1d(_PadLayer):
    """Repeat the elements at the ends.  x: [N, C, L]

    See `gf.pad`.

    Args:
        padding: One number, or a pair (before, after).
        name: See `Module`.

    Raises:
        ArgumentError: padding is something else, or negative.
        ShapeError: In a call: x has another number of dims, or no elements.
    """

    rank = 1
    mode = "edge"


class ReplicationPad2d(_PadLayer):
    """Repeat the elements at the ends.  x: [N, C, H, W]

    `padding` is one number, or pairs: ((top, bottom), (left, right)). See
    `ReplicationPad1d`.
    """

    rank = 2
    mode = "edge"


class ReplicationPad3d(_PadLayer):
    """Repeat the elements at the ends.  x: [N, C, D, H, W]

    `padding` is one number, or pairs: ((front, back), (top, bottom), (left, right)). See
    `ReplicationPad1d`.
    """

    rank = 3
    mode = "edge"


class CircularPad1d(_PadLayer):
    """Go on with the elements of the other end.  x: [N, C, L]

    See `gf.pad`.

    Args:
        padding: One number, or a pair (before, after).
        name: See `Module`.

    Raises:
        ArgumentError: padding is something else, or negative.
        ShapeError: In a call: x has another number of dims, or no elements.
    """

    rank = 1
    mode = "wrap"


class CircularPad2d(_PadLayer):
    """Go on with the elements of the other end.  x: [N, C, H, W]

    `padding` is one number, or pairs: ((top, bottom), (left, right)). See
    `CircularPad1d`.
    """

    rank = 2
    mode = "wrap"


class CircularPad3d(_PadLayer):
    """Go on with the elements of the other end.  x: [N, C, D, H, W]

    `padding` is one number, or pairs: ((front, back), (top, bottom), (left, right)). See
    `CircularPad1d`.
    """

    rank = 3
    mode = "wrap"
