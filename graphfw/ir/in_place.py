"""Refusals of what would change a variable in Python: only runs, and `assign`, do that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphfw.errors import ArgumentError, ConcreteValueError
from graphfw.ir import concrete
from graphfw.ir.graph import current_graph
from graphfw.ir.model_graph import ModelGraph

if TYPE_CHECKING:
    from graphfw.ir.tensor import Tensor


def change_of(variable: Tensor, name: str, value: str) -> str:
    """Return the expression to write where a variable is to have another value.

    Args:
        variable: The variable.
        name: An expression of it, such as `layer.weight`.
        value: An expression of the value.
    """
    if not current_graph().is_ambient:
        return f"gf.update({name}, {value}), which each run does"
    if isinstance(variable.graph, ModelGraph):
        return f"{name}.assign({value})"
    return f"session[{name}] = value"


def _refused(sign: str) -> Callable[[Any, Any], Any]:
    """Return the method of an operator that is to change its left operand."""

    def operator(self: Any, other: Any) -> Any:
        fix = f"write {change_of(self, 'variable', f'variable {sign} value')}"
        if not current_graph().is_ambient:
            fix += "; optimisers have minimize(loss)"
        raise ArgumentError(
            f"variable {sign}= value would leave the variable as it is, and name a new tensor",
            operands=[concrete.describe("variable", self)],
            fix=f"{fix}; for a new tensor write y = variable {sign} value",
        )

    return operator


class NotInPlace:
    """The base of `Variable` that refuses the operators `+=`, `-=`, …, and `variable[i] = v`.

    Of other tensors Python makes `x += 1` to `x = x + 1`. Of a variable this would lose it.
    """

    __slots__ = ()

    __iadd__ = _refused("+")
    __isub__ = _refused("-")
    __imul__ = _refused("*")
    __itruediv__ = _refused("/")
    __ifloordiv__ = _refused("//")
    __imod__ = _refused("%")
    __ipow__ = _refused("**")
    __imatmul__ = _refused("@")
    __iand__ = _refused("&")
    __ior__ = _refused("|")
    __ixor__ = _refused("^")
    __ilshift__ = _refused("<<")
    __irshift__ = _refused(">>")

    def __setitem__(self: Any, key: Any, value: Any) -> None:
        raise ConcreteValueError(
            "a variable keeps its elements in Python: variable[i] = v has no meaning",
            operands=[concrete.describe("x", self)],
            fix=f"write {change_of(self, 'variable', 'variable.at[i].set(v)')}",
        )
