"""Picking elements out and putting them back: the primitives under indexing, each with its adjoint.

A window is a range with a step along each axis. Gathered elements are named by integer tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from graphfw.errors import AxisError, DTypeError
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike, always_ge
from graphfw.ir.dtype import DType, int64
from graphfw.ir.functions import F, public
from graphfw.ir.op import PURE, Case, Cost, Op, bad, ok, op
from graphfw.ir.shape import Requirement, broadcast, normalize_axis, require, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import TensorLike, as_tensor, ruled
from graphfw.ops.movement import Movement

__all__ = ["take"]


class Window(Op):
    """The base of ops on the elements start, start + step, … of each axis, `size` of them."""

    starts: tuple[DimLike, ...]
    sizes: tuple[DimLike, ...]
    steps: tuple[int, ...]

    def check(self, x: Shape) -> None:
        """See that the window lies inside x, as far as that is known."""
        require(len(x) == len(self.sizes), f"a window of {len(self.sizes)} dims in {shape_text(x)}")
        for axis, (start, size, step) in enumerate(self.axes()):
            require(step > 0, f"step {step} at axis {axis} must be positive")
            last = start + (size - 1) * step
            if isinstance(size, int) and size > 0:
                outside = always_ge(-1, start) or always_ge(last, x[axis])
                require(not outside, _out_of_range(last, axis, x[axis]), (), "", AxisError)

    def axes(self) -> Iterator[tuple[DimLike, DimLike, int]]:
        """Yield start, size and step of each axis."""
        return zip(self.starts, self.sizes, self.steps, strict=True)

    def slices(self, x: Any) -> tuple[slice, ...]:
        """Return the window as an index of an array; all fields are ints here.

        Raises:
            IndexError: It is not inside.
        """
        result = []
        for axis, (start, size, step) in enumerate(self.axes()):
            last = start + (size - 1) * step
            if size and not 0 <= start <= last < x.shape[axis]:
                at_fault = start if start < 0 else last
                raise IndexError(_out_of_range(at_fault, axis, x.shape[axis]))
            result.append(slice(start, last + 1, step) if size else slice(0, 0))
        return tuple(result)


def _out_of_range(index: DimLike, axis: int, dim: DimLike) -> str:
    return f"index {index} is out of range for dim {axis} of size {dim}"


@op("slice")
class Slice(Window, Movement):
    """The elements in a window.  x: [*A]  ->  sizes"""

    def shape(self, x: Shape) -> Shape:
        self.check(x)
        return self.sizes

    def eval(self, xp: Any, x: Any) -> Any:
        return x[self.slices(x)]

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: emit(SliceSet(*self.values), F.zeros_like(x), ct),)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return Cost(0, outputs[0].nbytes, outputs[0].nbytes)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[5, n]", starts=(1, 0), sizes=(2, 3), steps=(2, 1), sizes_=None) if False else ok(
            "float32[5, 4]", starts=(1, 0), sizes=(2, 3), steps=(2, 1)
        )
