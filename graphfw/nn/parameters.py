"""The variables of layers, and what they begin with."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any

from graphfw.errors import ArgumentError, did_you_mean
from graphfw.ir import ambient
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.state_dict import refuse_square
from graphfw.ir.variable import Initializer, Variable
from graphfw.nn import init


def parameter(
    initial: Any,
    shape: Sequence[int],
    dtype: DTypeLike | None = None,
    *,
    trainable: bool = True,
    is_transposed: bool = False,
) -> Variable:
    """Make a layer's variable, whose name comes with the attribute that it is assigned to.

    Args:
        initial: An initialiser, or an array of the shape.
        shape: The shape.
        dtype: As for `Variable`.
        trainable: As for `Variable`.
        is_transposed: Whether PyTorch's layer has the transposed matrix.
    """
    if is_transposed:
        refuse_square("the layer's weight", initial)
    if not callable(initial):
        dtype = dtype or ambient.get_default_dtype()
    # Without a scope: the one of a module under construction is not its path yet.
    with ambient.override(ambient.current_scope, ""):
        made = Variable(initial, shape=shape, dtype=dtype, trainable=trainable)
    if is_transposed:
        made.is_transposed = True
    return made


def initial_of(layer: str, argument: str, value: Any, default: Initializer) -> Any:
    """Return the first value of a layer's variable: the one that was given, or else the default.

    Raises:
        ArgumentError: A number or a name was given.
    """
    if value is None:
        return default
    if isinstance(value, (Number, str)):
        raise ArgumentError(
            f"{layer}: {argument}={value!r} is neither an initialiser nor an array",
            fix=_fix(argument, value),
        )
    return value


def _fix(argument: str, value: Any) -> str:
    if not isinstance(value, str):
        named = {0: "zeros", 1: "ones"}.get(value, f"constant(value={value!s})")
    elif value in init.__all__:
        named = value
    else:
        near = did_you_mean(value, init.__all__)
        return near or f"write {argument}=gf.nn.init.zeros, for example"
    return f"write {argument}=gf.nn.init.{named}"
