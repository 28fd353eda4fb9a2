"""The operators of tensors: `x + y` is `gf.add(x, y)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphfw.ir.functions import CALLED, FUNCTIONS, OVERRIDABLE
from graphfw.ir.modes import OPEN

if TYPE_CHECKING:
    from graphfw.ir.tensor import Tensor


class Operators:
    """The base of `Tensor` that has its operators."""

    __slots__ = ()

    def __add__(self, other: Any) -> Tensor:
        return _binary("add", self, other)

    def __radd__(self, other: Any) -> Tensor:
        return _binary("add", other, self)

    def __sub__(self, other: Any) -> Tensor:
        return _binary("subtract", self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return _binary("subtract", other, self)

    def __mul__(self, other: Any) -> Tensor:
        return _binary("multiply", self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return _binary("multiply", other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return _binary("divide", self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return _binary("divide", other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        return _binary("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return _binary("floor_divide", other, self)

    def __mod__(self, other: Any) -> Tensor:
        return _binary("remainder", self, other)

    def __rmod__(self, other: Any) -> Tensor:
        return _binary("remainder", other, self)

    def __pow__(self, other: Any) -> Tensor:
        return _binary("pow", self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return _binary("pow", other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return _binary("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return _binary("matmul", other, self)

    def __and__(self, other: Any) -> Tensor:
        return _binary("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Tensor:
        return _binary("bitwise_and", other, self)

    def __or__(self, other: Any) -> Tensor:
        return _binary("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Tensor:
        return _binary("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Tensor:
        return _binary("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Tensor:
        return _binary("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Tensor:
        return _binary("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Any) -> Tensor:
        return _binary("bitwise_left_shift", other, self)

    def __rshift__(self, other: Any) -> Tensor:
        return _binary("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Any) -> Tensor:
        return _binary("bitwise_right_shift", other, self)

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]  # a tensor, no bool
        return _binary("equal", self, other)

    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]  # a tensor, no bool
        return _binary("not_equal", self, other)

    def __lt__(self, other: Any) -> Tensor:
        return _binary("less", self, other)

    def __le__(self, other: Any) -> Tensor:
        return _binary("less_equal", self, other)

    def __gt__(self, other: Any) -> Tensor:
        return _binary("greater", self, other)

    def __ge__(self, other: Any) -> Tensor:
        return _binary("greater_equal", self, other)

    def __neg__(self) -> Tensor:
        return typed(CALLED.negative(self))

    def __pos__(self) -> Tensor:
        return typed(CALLED.positive(self))

    def __abs__(self) -> Tensor:
        return typed(CALLED.abs(self))

    def __invert__(self) -> Tensor:
        return typed(CALLED.bitwise_invert(self))


def _binary(name: str, x1: Any, x2: Any) -> Tensor:
    if isinstance(x1, Operators) and isinstance(x2, Operators) and not OPEN:
        return typed(FUNCTIONS[name](x1, x2))
    if x1 is None or x2 is None or isinstance(x1, str) or isinstance(x2, str):
        return typed(NotImplemented)
    return typed(OVERRIDABLE[name](x1, x2))


def typed(value: Any) -> Tensor:
    """Give the result of a function found by name its type back."""
    result: Tensor = value
    return result
