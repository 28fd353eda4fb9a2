"""Comparisons, logic, bits, and questions about values, elementwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from graphfw.errors import DTypeError
from graphfw.ir.dtype import bool_, float32
from graphfw.ir.functions import F, public
from graphfw.ir.op import COMMUTATIVE, IDEMPOTENT, INVOLUTION, NONDIFF
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand
from graphfw.ops.elementwise.table import (
    binary,
    binary_function,
    binary_op,
    unary,
    unary_function,
    unary_op,
)

__all__ = [
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "signbit",
]


def _beside_infinity(k: Any, compare: Callable[..., Any], x: Any, *, integers: bool) -> Any:
    """Return how a magnitude compares with infinity; of integers that is known."""
    x = k.cast(x, float32) if x.dtype.is_storage else x
    return compare(k.abs(x), inf) if x.dtype.is_floating else k.const(integers, bool_)


equal = binary(
    "equal",
    doc="""Return where elements are equal; NaN equals nothing.  x1, x2: any, broadcast -> bool [*B]

    >>> import graphfw as gf
    >>> gf.equal(gf.asarray([1, 2, 3]), 2)
    Tensor([False,  True, False], dtype=bool)
    """,
    vjp=NONDIFF,
    accepts="any",
    result="bool",
    traits=(COMMUTATIVE,),
    scalar="eq",
)
not_equal = binary(
    "not_equal",
    doc="Return where elements differ; NaN differs from all.  x1, x2: any, broadcast -> bool [*B]",
    vjp=NONDIFF,
    accepts="any",
    result="bool",
    traits=(COMMUTATIVE,),
    scalar="ne",
)
_ordering = partial(binary, vjp=NONDIFF, accepts="real or bool", result="bool")
less = _ordering(
    "less",
    doc="Return where x1 < x2.  x1, x2: real or bool, broadcast -> bool [*B]",
    scalar="lt",
)
less_equal = _ordering(
    "less_equal",
    doc="Return where x1 <= x2.  x1, x2: real or bool, broadcast -> bool [*B]",
    scalar="le",
)
greater = _ordering(
    "greater",
    doc="Return where x1 > x2.  x1, x2: real or bool, broadcast -> bool [*B]",
    scalar="gt",
)
greater_equal = _ordering(
    "greater_equal",
    doc="Return where x1 >= x2.  x1, x2: real or bool, broadcast -> bool [*B]",
    scalar="ge",
)

isnan = unary(
    "isnan",
    doc="Return where elements are NaN; integers never are.  x: any [*A] -> bool [*A]",
    vjp=NONDIFF,
    accepts="any",
    result="bool",
    scalar=lambda k, x: k.isnan(x),
)
isinf = unary(
    "isinf",
    doc="Return where elements are infinite; integers never are.  x: any [*A] -> bool [*A]",
    vjp=NONDIFF,
    accepts="any",
    result="bool",
    scalar=lambda k, x: _beside_infinity(k, k.eq, x, integers=False),
)
isfinite = unary(
    "isfinite",
    doc="Return where elements are neither NaN nor infinite.  x: any [*A] -> bool [*A]",
    vjp=NONDIFF,
    accepts="any",
    result="bool",
    scalar=lambda k, x: _beside_infinity(k, k.lt, x, integers=True),
)
signbit = unary(
    "signbit",
    doc="Return where the sign bit is set, as it is in -0.0.  x: floating-point [*A] -> bool [*A]",
    vjp=NONDIFF,
    accepts="floating-point",
    result="bool",
    scalar=lambda k, x: k.lt(k.copysign(1, x), 0),
)

BitwiseAnd = binary_op(
    "bitwise_and",
    doc="""The bits set in both.  x1, x2: integer or bool, broadcast -> [*B]

    >>> import graphfw as gf
    >>> gf.asarray([12, 10]) & 6
    Tensor([4, 2], dtype=int64)
    """,
    vjp=NONDIFF,
    accepts="integer or bool",
    traits=(COMMUTATIVE, IDEMPOTENT),
    scalar="and",
)
bitwise_and = binary_function(BitwiseAnd)
BitwiseOr = binary_op(
    "bitwise_or",
    doc="The bits set in one or both.  x1, x2: integer or bool, broadcast -> [*B]",
    vjp=NONDIFF,
    accepts="integer or bool",
    traits=(COMMUTATIVE, IDEMPOTENT),
    scalar="or",
)
bitwise_or = binary_function(BitwiseOr)
BitwiseXor = binary_op(
    "bitwise_xor",
    doc="The bits set in exactly one.  x1, x2: integer or bool, broadcast -> [*B]",
    vjp=NONDIFF,
    accepts="integer or bool",
    traits=(COMMUTATIVE,),
    scalar="xor",
)
bitwise_xor = binary_function(BitwiseXor)
BitwiseLeftShift = binary_op(
    "bitwise_left_shift",
    doc="""Shift the bits of x1 left by x2, filling with zeros.  x1, x2: integer, broadcast -> [*B]

    By as many bits as the dtype has, or more: 0. A negative x2 gives 0 too.
    """,
    vjp=NONDIFF,
    xp="left_shift",
    accepts="integer",
    scalar="shl",
)
bitwise_left_shift = binary_function(BitwiseLeftShift)
BitwiseRightShift = binary_op(
    "bitwise_right_shift",
    doc="""Shift the bits of x1 right by x2, keeping the sign.  x1, x2: integer, broadcast -> [*B]

    By as many bits as the dtype has, or more: 0, or -1 where x1 is negative. A negative x2 gives
    the same.
    """,
    vjp=NONDIFF,
    xp="right_shift",
    accepts="integer",
    scalar="shr",
)
bitwise_right_shift = binary_function(BitwiseRightShift)
BitwiseInvert = unary_op(
    "bitwise_invert",
    doc="Flip every bit; of bools, the truth.  x: integer or bool [*A] -> [*A]",
    vjp=NONDIFF,
    xp="invert",
    accepts="integer or bool",
    scalar="not",
    traits=(INVOLUTION,),
)
bitwise_invert = unary_function(BitwiseInvert)


@public
def logical_and(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Return where both are true.  x1, x2: bool, broadcast -> bool [*B]

    Raises:
        DTypeError: One is not bool.
        ShapeError: The shapes don't broadcast.
    """
    return F.bitwise_and(*_masks("logical_and", x1, x2))


@public
def logical_or(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Return where one or both are true.  x1, x2: bool, broadcast -> bool [*B]

    Raises:
        DTypeError: One is not bool.
        ShapeError: The shapes don't broadcast.
    """
    return F.bitwise_or(*_masks("logical_or", x1, x2))


@public
def logical_xor(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Return where exactly one is true.  x1, x2: bool, broadcast -> bool [*B]

    Raises:
        DTypeError: One is not bool.
        ShapeError: The shapes don't broadcast.
    """
    return F.bitwise_xor(*_masks("logical_xor", x1, x2))


@public
def logical_not(x: TensorLike, /) -> Tensor:
    """Return where it is false.  x: bool [*A] -> bool [*A]

    Raises:
        DTypeError: x is not bool.
    """
    return F.bitwise_invert(*_masks("logical_not", x))


def _masks(name: str, *xs: TensorLike) -> tuple[Tensor, ...]:
    """Return the arguments as bool tensors, or refuse them."""
    masks = tuple(as_tensor(x) for x in xs)
    for mask in masks:
        message = f"{name}: wants bool tensors, not {mask.dtype.name}"
        demand(mask.dtype.is_bool, message, {"x": mask}, fix="write x != 0", error=DTypeError)
    return masks
