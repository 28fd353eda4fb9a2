"""The functions of `ops.numerics.library` as formulas: written from the references themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from graphfw.ops.numerics.library import FUNCTIONS
from graphfw.ops.numerics.wide import written
from graphfw.runtime.numpy_executor.codegen.mathlib_writer import MathBody, Number, Value

_OPERATORS: dict[str, Callable[[Any, Any], Value]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "eq": lambda a, b: a.equals(b),
    "ne": lambda a, b: a.differs(b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_INTRINSICS = {"floor": "floor", "round": "roundeven", "sqrt": "sqrt", "abs": "fabs"}


class BodyValues:
    """Makes values of a function's body, as `Scalars` makes expressions.

    Args:
        body: The function.
        formulas: Those of the library's functions, by name.
    """

    def __init__(self, body: MathBody, formulas: dict[str, tuple[int, Callable[..., Any]]]) -> None:
        self.body = body
        self.formulas = formulas

    def call(self, function: str, *operands: Number) -> Value:
        """A call of a primitive of kernels, of float64 or conditions."""
        element = next(x.element for x in operands if isinstance(x, Value))
        xs = [self.body.constant(x, element) for x in operands]
        if function in _OPERATORS:
            return _OPERATORS[function](*xs)
        if function in _INTRINSICS:
            return self.body.intrinsic(_INTRINSICS[function], *xs)
        if function in ("min", "max"):
            return self._extreme(function, *xs)
        if function == "neg":
            return -xs[0]
        if function == "not":
            return self.body.negated(xs[0])
        if function == "copysign":
            return self.body.copysign(*xs)
        value: Value = self.formulas[function][1](self.body, *xs)
        return value

    def _extreme(self, function: str, a: Value, b: Value) -> Value:
        better = a > b if function == "max" else a < b
        return self.body.select(better | a.differs(a), a, b)

    def const(self, value: float, _: object) -> Value:
        """A number."""
        return self.body.constant(value, "double")

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        """The value of x where the condition holds, else y's."""
        return self.body.select(condition, x, y)

    def isnan(self, x: Value) -> Value:
        """Return whether it is NaN."""
        return x.differs(x)

    def repeat(self, *loop: Any) -> tuple[Value, ...]:
        """See `MathBody.repeat`."""
        return self.body.repeat(*loop)

    def where_rare(self, condition: Value, other: Callable[[], Value], usual: Value) -> Value:
        """See `MathBody.where_rare`."""
        return self.body.where_rare(condition, other, usual)


def formulas(
    others: dict[str, tuple[int, Callable[..., Any]]],
) -> dict[str, tuple[int, Callable[..., Any]]]:
    """Return the arity and the formula of each of these functions.

    Args:
        others: Those of the functions that they call.
    """

    def formula(compute: Callable[..., Any], body: MathBody, *xs: Value) -> Value:
        value: Value = written(compute, BodyValues(body, others), *xs)
        return value

    return {
        name: (arity, partial(formula, compute)) for name, (arity, compute) in FUNCTIONS.items()
    }
