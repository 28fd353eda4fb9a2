"""Moving elements along axes: flip and roll."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphfw.errors import counted
from graphfw.ir.affine import Index
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike
from graphfw.ir.functions import F, public
from graphfw.ir.op import INVOLUTION, PURE, Case, bad, ok, op
from graphfw.ir.shape import normalize_axes
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import Axes, TensorLike, as_tensor, axes_in_order, axes_of, whole
from graphfw.ops.batching import along_axes
from graphfw.ops.composed import demand
from graphfw.ops.shape.axes import flatten
from graphfw.ops.shape.movement import Movement, reshape

__all__ = ["flip", "roll"]


@op("flip")
class Flip(Movement):
    """The elements in reverse order along axes.  x: [*A]  ->  [*A]"""

    axes: tuple[int, ...]
    traits = Movement.traits | {INVOLUTION}
    batch = along_axes

    def shape(self, x: Shape) -> Shape:
        normalize_axes(self.axes, len(x))
        return x

    def eval(self, xp: Any, x: Any) -> Any:
        return xp.flip(x, self.axes)

    def source_index(self, index: Index, x: Shape, y: Shape) -> Index:
        return tuple(
            [
                d - 1 - i if a in self.axes else i
                for a, (i, d) in enumerate(zip(index, x, strict=True))
            ]
        )

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: F.flip(ct, axis=self.axes),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, n]", axes=(0, 1))
        yield ok("int32[0, 2]", axes=(0,))
        yield bad("float32[3]", axes=(1,), match="axis 1 is out of range for 1 dim")


@public
def flip(x: TensorLike, /, *, axis: Axes = None) -> Tensor:
    """Reverse the order of the elements along axes, all by default.  x: [*A] -> [*A]

    Raises:
        AxisError: There is no such axis.
    """
    tensor = as_tensor(x)
    axes = axes_of("flip", tensor, axis)
    return emit(Flip(axes), tensor) if axes else tensor


@op("roll")
class Roll(Movement):
    """The elements moved along axes, round and round.  x: [*A]  ->  [*A]"""

    traits = frozenset({PURE})
    shifts: tuple[DimLike, ...]
    axes: tuple[int, ...]
    batch = along_axes

    def shape(self, x: Shape) -> Shape:
        normalize_axes(self.axes, len(x))
        return x

    def eval(self, xp: Any, x: Any) -> Any:
        return xp.roll(x, self.shifts, self.axes)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: F.roll(ct, tuple(-shift for shift in self.shifts), axis=self.axes),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, n]", shifts=(1, -2), axes=(0, 1))
        yield ok("int32[0, 2]", shifts=(1,), axes=(0,))
        yield bad("float32[3]", shifts=(1,), axes=(1,), match="axis 1 is out of range for 1 dim")


@public
def roll(
    x: TensorLike, /, shift: DimLike | Sequence[DimLike], *, axis: int | Sequence[int] | None = None
) -> Tensor:
    """Move the elements along axes; those that leave enter at the other end.  x: [*A] -> [*A]

    Without `axis` the elements move in row-major order through the whole tensor.

    Raises:
        AxisError: There is no such axis, or one stands twice.
        ArgumentError: There are not as many shifts as axes.
    """
    tensor = as_tensor(x)
    if axis is None:
        return reshape(roll(flatten(tensor), shift, axis=0), tensor.shape)
    axes = axes_in_order("roll", tensor, axis)
    shifts = tuple(shift) if isinstance(shift, Sequence) else (shift,) * len(axes)
    message = f"roll: {counted(len(shifts), 'shift')} for {counted(len(axes), 'axis', 'axes')}"
    fits = len(shifts) == len(axes)
    demand(fits, message, {"x": tensor}, fix="give one shift for all axes, or one for each")
    moved = tuple(whole("roll", "the shift", s) for s in shifts)
    return emit(Roll(moved, axes), tensor) if axes else tensor
