"""The operators of tensors: `x + y` is `gf.add(x, y)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from graphfw.ir.functions import CALLED, FUNCTIONS, OVERRIDABLE
from graphfw.ir.modes import OPEN

if TYPE_CHECKING:
    from graphfw.ir.tensor import Tensor


Operator: TypeAlias = Callable[[Any, Any], "Tensor"]

_NUMBERS = frozenset({bool, int, float, complex})
"""The types, exactly, of values that answer for themselves in no case."""


def _operator(name: str) -> Operator:
    """Return the method of an operator whose left operand is the tensor."""

    def operator(self: Any, other: Any) -> Tensor:
        # Quickly, what is most common.
        if not OPEN and (type(other) in _NUMBERS or isinstance(other, Operators)):
            result: Tensor = FUNCTIONS[name](self, other)
            return result
        return _asking(name, self, other)

    return operator


def _reflected(name: str) -> Operator:
    """Return the method of an operator whose right operand is the tensor."""

    def operator(self: Any, other: Any) -> Tensor:
        if not OPEN and (type(other) in _NUMBERS or isinstance(other, Operators)):
            result: Tensor = FUNCTIONS[name](other, self)
            return result
        return _asking(name, other, self)

    return operator


def _asking(name: str, x1: Any, x2: Any) -> Tensor:
    """Apply an operator to operands of which one may answer for itself, or a mode."""
    if x1 is None or x2 is None or isinstance(x1, str) or isinstance(x2, str):
        return typed(NotImplemented)
    return typed(OVERRIDABLE[name](x1, x2))


class Operators:
    """The base of `Tensor` that has its operators."""

    __slots__ = ()

    __add__ = _operator("add")
    __radd__ = _reflected("add")
    __sub__ = _operator("subtract")
    __rsub__ = _reflected("subtract")
    __mul__ = _operator("multiply")
    __rmul__ = _reflected("multiply")
    __truediv__ = _operator("divide")
    __rtruediv__ = _reflected("divide")
    __floordiv__ = _operator("floor_divide")
    __rfloordiv__ = _reflected("floor_divide")
    __mod__ = _operator("remainder")
    __rmod__ = _reflected("remainder")
    __pow__ = _operator("pow")
    __rpow__ = _reflected("pow")
    __matmul__ = _operator("matmul")
    __rmatmul__ = _reflected("matmul")
    __and__ = _operator("bitwise_and")
    __rand__ = _reflected("bitwise_and")
    __or__ = _operator("bitwise_or")
    __ror__ = _reflected("bitwise_or")
    __xor__ = _operator("bitwise_xor")
    __rxor__ = _reflected("bitwise_xor")
    __lshift__ = _operator("bitwise_left_shift")
    __rlshift__ = _reflected("bitwise_left_shift")
    __rshift__ = _operator("bitwise_right_shift")
    __rrshift__ = _reflected("bitwise_right_shift")
    __eq__ = _operator("equal")  # type: ignore[assignment]  # a tensor, no bool
    __ne__ = _operator("not_equal")  # type: ignore[assignment]  # a tensor, no bool
    __lt__ = _operator("less")
    __le__ = _operator("less_equal")
    __gt__ = _operator("greater")
    __ge__ = _operator("greater_equal")

    def __neg__(self) -> Tensor:
        return typed(CALLED.negative(self))

    def __pos__(self) -> Tensor:
        return typed(CALLED.positive(self))

    def __abs__(self) -> Tensor:
        return typed(CALLED.abs(self))

    def __invert__(self) -> Tensor:
        return typed(CALLED.bitwise_invert(self))


def typed(value: Any) -> Tensor:
    """Give the result of a function found by name its type back."""
    result: Tensor = value
    return result
