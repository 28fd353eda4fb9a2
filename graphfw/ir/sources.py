"""The ops that values enter a graph by: placeholder, variable, constant, the size of a dim."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from graphfw.ir.dim import DimLike, symbol
from graphfw.ir.dtype import BY_NAME, DType, as_dtype, float32, int64
from graphfw.ir.literal import Literal, to_array
from graphfw.ir.op import NONDIFF, PURE, SOURCE, Case, Cost, Inferred, Op, infer_as, ok, op
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
    """A value that is fed to each run.  -> dims"""


@op("variable")
class VariableOp(_Source):
    """The contents of a variable at the start of the run.  -> dims"""


@op("constant")
class Constant(Op):
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


def number(value: complex, dtype: DType | None) -> Constant:
    """Return a Python number as a constant; see `to_array`."""
    if dtype is None or isinstance(value, complex):  # the default dtype, which changes
        return Constant(Literal.taken(to_array(value, dtype)))
    # By the type, too, for 1 is equal to True and 1.0; and by the text, for 0.0 is equal to -0.0.
    key = (value or str(value), type(value), dtype.name)
    known = _numbers.get(key)
    if known is None:
        known = Constant(Literal.taken(to_array(value, dtype)))
        infer_as(known, _scalar_types(dtype.name))
        if len(_numbers) >= _NUMBERS:
            _numbers.clear()
        _numbers[key] = known
    return known


_numbers: dict[tuple[complex | str, type, str], Constant] = {}
_NUMBERS = 1024
"""So many numbers are remembered: graphs have 0, 1 and -inf thousands of times."""


@cache
def _scalar_types(dtype: str) -> Inferred:
    return {(): ((), (TensorType(BY_NAME[dtype], ()),))}


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
