"""The ops that values enter a graph by: placeholder, variable, constant, the size of a dim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphfw.ir.dim import DimLike, symbol
from graphfw.ir.dtype import DType, as_dtype, float32, int64
from graphfw.ir.literal import Literal
from graphfw.ir.op import NONDIFF, PURE, SOURCE, Case, Cost, Op, ok, op
from graphfw.ir.types import Shape, TensorType


class _Source(Op):
    """A value that a run is given: it is never evaluated."""

    traits = frozenset({SOURCE})
    dims: Shape
    to: DType
    vjp = NONDIFF

    def shape(self) -> Shape:
        return self.dims

    def dtype(self) -> DType:
        return self.to

    def eval(self, xp: Any) -> Any:
        raise AssertionError(f"a {self.name} is given, not evaluated")

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return Cost(0, 0, 0)


@op("placeholder")
class Placeholder(_Source):
    """A value that is fed to each run.  -> dims

    Attributes:
        split: The dims that are split over processes, each with its axis of the mesh.
    """

    split: tuple[tuple[str, str], ...] = ()


@op("variable")
class VariableOp(_Source):
    """The contents of a variable at the start of the run.  -> dims"""


@op("constant")
class ConstantOp(Op):
    """A value that is part of the graph."""

    value: Literal
    traits = frozenset({PURE, SOURCE})
    vjp = NONDIFF

    def shape(self) -> Shape:
        shape: Shape = self.value.shape
        return shape

    def dtype(self) -> DType:
        return as_dtype(self.value.dtype)

    def eval(self, xp: Any) -> Any:
        return xp.asarray(self.value.array)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return Cost(0, 0, 0)


@op("dim_value")
class DimValue(Op):
    """The size that a dim has in a run, as a 0-d tensor.  -> []"""

    dim: DimLike
    to: DType
    vjp = NONDIFF

    def shape(self) -> Shape:
        return ()

    def dtype(self) -> DType:
        return self.to

    def eval(self, xp: Any) -> Any:
        return xp.asarray(self.dim, dtype=self.to.dtype)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return Cost(0, 0, outputs[0].nbytes)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok(dim=2 * symbol("n"), to=int64)
        yield ok(dim=5, to=float32)
