"""Arithmetic, elementwise: one row an op."""

from __future__ import annotations

from functools import partial
from typing import Any

from graphfw.errors import ArgumentError
from graphfw.ir.concrete import describe
from graphfw.ir.functions import F, public
from graphfw.ir.op import COMMUTATIVE, IDEMPOTENT, INVOLUTION, NONDIFF, ok
from graphfw.ir.tensor import Tensor
from graphfw.ops import numerics
from graphfw.ops.args import TensorLike, as_tensor, ruled
from graphfw.ops.dtypes import require_numeric
from graphfw.ops.elementwise.table import (
    apply,
    binary,
    binary_function,
    binary_op,
    unary,
    unary_function,
    unary_op,
)

__all__ = [
    "abs",
    "add",
    "ceil",
    "copysign",
    "divide",
    "floor",
    "floor_divide",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "nextafter",
    "positive",
    "pow",
    "reciprocal",
    "remainder",
    "round",
    "sign",
    "square",
    "subtract",
    "trunc",
]

# Sums and products.

Add = binary_op(
    "add",
    doc="""Add.  x1, x2: numeric, broadcast -> [*B]

    >>> import graphfw as gf
    >>> gf.add(gf.asarray([1, 2]), 3)
    Tensor([4, 5], dtype=int64)
    """,
    vjp=(lambda ct, y, a, b: ct, lambda ct, y, a, b: ct),
    traits=(COMMUTATIVE,),
    mixed_precision="follows",
)
add = binary_function(Add)
Subtract = binary_op(
    "subtract",
    doc="Subtract.  x1, x2: numeric, broadcast -> [*B]",
    vjp=(lambda ct, y, a, b: ct, lambda ct, y, a, b: -ct),
    scalar="sub",
    mixed_precision="follows",
)
subtract = binary_function(Subtract)
Multiply = binary_op(
    "multiply",
    doc="Multiply.  x1, x2: numeric, broadcast -> [*B]",
    vjp=(lambda ct, y, a, b: ct * F.conj(b), lambda ct, y, a, b: ct * F.conj(a)),
    traits=(COMMUTATIVE,),
    scalar="mul",
    mixed_precision="follows",
)
multiply = binary_function(Multiply)
Divide = binary_op(
    "divide",
    doc="Divide; integers become floats.  x1, x2: floating-point or complex, broadcast -> [*B]",
    vjp=(
        lambda ct, y, a, b: F.chain_divide(ct, F.conj(b)),
        lambda ct, y, a, b: F.chain_divide(F.chain_multiply(-ct, F.conj(y)), F.conj(b)),
    ),
    accepts="floating-point or complex",
    domain=(0.5, 2.0),
    scalar="div",
)
divide = binary_function(Divide)


def _chain_multiply(xp: Any, a: Any, b: Any) -> Any:
    return xp.where((a == 0) | (b == 0), a.dtype.type(0), a * b)


def _chain_divide(xp: Any, a: Any, b: Any) -> Any:
    return xp.where(a == 0, a, a / b)


# In a gradient, a cotangent of 0 says that this element has no effect: where(x > 0, log(x), 0). Its
# slope may be infinite, and 0 * inf is NaN. A `where` around the product would keep the NaN out,
# but be wrong in the second derivative, which the product has also where the cotangent is 0.
chain_multiply = binary(
    "chain_multiply",
    doc="""Multiply, with 0 times anything, infinity and NaN too, being 0: for gradient rules.

    x1, x2: floating-point or complex, broadcast -> [*B].  The chain rule's product of a cotangent
    and a slope that can be infinite; and the products in such a slope.
    """,
    vjp=(
        lambda ct, y, a, b: F.chain_multiply(ct, F.conj(b)),
        lambda ct, y, a, b: F.chain_multiply(ct, F.conj(a)),
    ),
    xp=_chain_multiply,
    accepts="floating-point or complex",
    traits=(COMMUTATIVE,),
    scalar=lambda k, a, b: k.select(k.or_(k.eq(a, 0), k.eq(b, 0)), 0, k.mul(a, b)),
)
chain_divide = binary(
    "chain_divide",
    doc="""Divide, with 0 divided by anything, 0 and NaN too, being 0: for gradient rules.

    x1, x2: floating-point or complex, broadcast -> [*B].  `chain_multiply` by a slope's reciprocal.
    """,
    vjp=(
        lambda ct, y, a, b: F.chain_divide(ct, F.conj(b)),
        lambda ct, y, a, b: F.chain_divide(F.chain_multiply(-ct, F.conj(y)), F.conj(b)),
    ),
    xp=_chain_divide,
    accepts="floating-point or complex",
    domain=(0.5, 2.0),
    scalar=lambda k, a, b: k.select(k.eq(a, 0), a, k.div(a, b)),
)


@public
def square(x: TensorLike, /) -> Tensor:
    """Multiply by itself.  x: numeric [*A] -> [*A]

    Raises:
        DTypeError: x is bool.
    """
    tensor = as_tensor(x)
    return multiply(tensor, tensor)


@public
def reciprocal(x: TensorLike, /) -> Tensor:
    """Return 1 / x; integers become floats.  x: floating-point or complex [*A] -> [*A]

    Raises:
        DTypeError: x is bool.
    """
    return divide(1, as_tensor(x))


# Division with whole quotients.

FloorDivide = binary_op(
    "floor_divide",
    doc="""The quotient, rounded down; no gradient.  x1, x2: real, broadcast -> [*B]

    Of integers divided by 0: 0. Of infinity: an infinity, where NumPy gives NaN.

    >>> import graphfw as gf
    >>> gf.floor_divide(gf.asarray([7, -7]), 2)
    Tensor([ 3, -4], dtype=int64)
    """,
    vjp=NONDIFF,
    xp=numerics.floor_divide,
    accepts="real",
)
floor_divide = binary_function(FloorDivide)
remainder = binary(
    "remainder",
    doc="""Compute what `floor_divide` leaves, with the sign of x2.  x1, x2: real, broadcast -> [*B]

    Of integers divided by 0: 0.
    """,
    vjp=(
        lambda ct, y, a, b: ct,
        lambda ct, y, a, b: F.chain_multiply(ct, -F.floor_divide(a, b)),
    ),
    accepts="real",
    domain=(0.5, 2.0),
    smooth=False,
)

# Powers.


def _pow(xp: Any, a: Any, b: Any) -> Any:
    if b.dtype.kind != "i":
        return xp.power(a, b)
    # NumPy refuses negative powers of integers, a compiled kernel can't: 1 / a^-b, towards 0.
    result = xp.power(a, xp.maximum(b, 0))
    odd = (b & 1).astype(bool)
    inverse = xp.where(a == 1, 1, xp.where(a == -1, xp.where(odd, -1, 1), 0)).astype(a.dtype)
    return xp.where(b < 0, inverse, result)


def _pow_base(ct: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    # b a^(b-1), which is 0 for b = 0 at a = 0 too.
    constant = b == 0
    power = F.pow(a, F.where(constant, 1, b - 1))
    slope = F.where(constant, 0, chain_multiply(b, power))
    return chain_multiply(ct, F.conj(slope))


def _pow_exponent(ct: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    # y log(a), which is 0 at a = 0 for b > 0; also for b = 0, where 0^b jumps from 1 to 0.
    zero = (a == 0) & (F.real(b) >= 0)
    slope = F.where(zero, 0, chain_multiply(y, F.log(F.where(zero, 1, a))))
    return chain_multiply(ct, F.conj(slope))


Pow = binary_op(
    "pow",
    doc="x1 to the power x2.  x1, x2: numeric, broadcast  ->  [*B]",
    vjp=(_pow_base, _pow_exponent),
    xp=_pow,
    domain=(0.5, 2.0),
    samples=(ok("int32[5]", "int32[5]", ints=(-3, 4)), ok("uint8[5]", "uint8[5]")),
)


@public
def pow(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Raise x1 to the power x2.  x1, x2: numeric, broadcast -> [*B]

    An integer to a negative power is rounded towards 0: 0 but for 1 and -1.

    Raises:
        ArgumentError: An integer tensor is raised to a negative Python int.

    >>> import graphfw as gf
    >>> gf.pow(gf.asarray([1.0, 2.0, 3.0]), 2)
    Tensor([1., 4., 9.], dtype=float32)
    """
    if isinstance(x2, int) and x2 < 0 and (base := as_tensor(x1)).dtype.is_integer:
        raise ArgumentError(
            f"pow: an integer to the power {x2} is no integer",
            operands=[describe("x1", base)],
            fix=f"write x ** {float(x2)}",
        )
    return apply(Pow(), x1, x2)


# Signs and components.

Negative = unary_op(
    "negative",
    doc="Change the sign.  x: numeric [*A] -> [*A]",
    vjp=lambda ct, y, x: -ct,
    accepts="numeric",
    scalar="neg",
    mixed_precision="follows",
    traits=(INVOLUTION,),
)
negative = unary_function(Negative)


@public
def positive(x: TensorLike, /) -> Tensor:
    """Return x itself.  x: numeric [*A] -> [*A]

    Raises:
        DTypeError: x is bool.
    """
    tensor = as_tensor(x)
    ruled("positive", tensor, require_numeric, tensor.dtype)
    return tensor


abs = unary(
    "abs",
    doc="""The absolute value, of complex numbers the length.  x: numeric [*A] -> real [*A]

    Its gradient at 0 is 0.
    """,
    vjp=lambda ct, y, x: ct * F.sign(x),
    accepts="numeric",
    result="real",
    smooth=False,
    mixed_precision="follows",
    traits=(IDEMPOTENT,),
)


def _sign_of_complex(x: Tensor) -> Tensor | None:
    if not x.dtype.is_complex:
        return None
    zero = x == 0
    return F.where(zero, 0, x / F.where(zero, 1, abs(x)))


def _sign(k: Any, x: Any) -> Any:
    difference = k.sub(k.cast(k.gt(x, 0), x.dtype), k.cast(k.lt(x, 0), x.dtype))
    return k.select(k.isnan(x), x, difference)


sign = unary(
    "sign",
    doc="""-1, 0 or 1; of complex numbers x / |x|, and 0 of 0.  x: numeric [*A] -> [*A]

    Of reals it has no gradient.
    """,
    vjp=NONDIFF,
    accepts="real",
    shortcut=_sign_of_complex,
    scalar=_sign,
    mixed_precision="follows",
    traits=(IDEMPOTENT,),
)
copysign = binary(
    "copysign",
    doc="""The size of x1 with the sign of x2, which -0.0 has too.

    x1, x2: floating-point, broadcast -> [*B].  The gradient is x1's, and 0 at 0.
    """,
    vjp=(lambda ct, y, a, b: ct * (F.sign(a) * F.copysign(1, b)), None),
    accepts="floating-point",
    smooth=False,
    mixed_precision="follows",
)
nextafter = binary(
    "nextafter",
    doc="""The next number after x1 towards x2; no gradient.

    x1, x2: floating-point, broadcast -> [*B]
    """,
    vjp=NONDIFF,
    accepts="floating-point",
    widen=False,
    scalar=None,
)


# The larger and the smaller.


def _extreme_rules(beaten: str) -> tuple[Any, Any]:
    """The rules of maximum and minimum: a NaN counts as unbeaten, a tie is shared."""

    def rule(ct: Tensor, own: Tensor, other: Tensor) -> Tensor:
        shared = F.where(own == other, ct * 0.5, ct)
        return F.where(getattr(F, beaten)(own, other), 0, shared)

    return lambda ct, y, a, b: rule(ct, a, b), lambda ct, y, a, b: rule(ct, b, a)


Maximum = binary_op(
    "maximum",
    doc="""The larger of two; NaN if one is NaN.  x1, x2: real, broadcast -> [*B]

    Where both are equal, each gets half of the gradient.
    """,
    vjp=_extreme_rules("less"),
    accepts="real",
    smooth=False,
    scalar="max",
    mixed_precision="follows",
    traits=(IDEMPOTENT,),
)
maximum = binary_function(Maximum)
Minimum = binary_op(
    "minimum",
    doc="""The smaller of two; NaN if one is NaN.  x1, x2: real, broadcast -> [*B]

    Where both are equal, each gets half of the gradient.
    """,
    vjp=_extreme_rules("greater"),
    accepts="real",
    smooth=False,
    scalar="min",
    mixed_precision="follows",
    traits=(IDEMPOTENT,),
)
minimum = binary_function(Minimum)

# Rounding.


def _itself_if_integer(x: Tensor) -> Tensor | None:
    return x if x.dtype.is_integer else None


_rounding = partial(
    unary,
    vjp=NONDIFF,
    shortcut=_itself_if_integer,
    mixed_precision="follows",
    traits=(IDEMPOTENT,),
)
floor = _rounding(
    "floor",
    doc="Round down; no gradient. Integers stay as they are.  x: real [*A] -> [*A]",
    accepts="floating-point",
)
ceil = _rounding(
    "ceil",
    doc="Round up; no gradient. Integers stay as they are.  x: real [*A] -> [*A]",
    accepts="floating-point",
)
trunc = _rounding(
    "trunc",
    doc="Round towards 0; no gradient. Integers stay as they are.  x: real [*A] -> [*A]",
    accepts="floating-point",
)
round = _rounding(
    "round",
    doc="""Round to whole numbers, halves to even; no gradient.  x: numeric [*A] -> [*A]

    Integers stay as they are; of complex numbers both components are rounded.
    """,
    xp="rint",
)
