"""Complex numbers in kernels: pairs of floats, the real part first, as they lie in memory.

A pair is made where elements are loaded and taken apart where a primitive function is applied, so
kernels compute floats only. The formulas are NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from graphfw.ir.dtype import DType, bool_
from graphfw.runtime.kernels.ir import Const, Expr
from graphfw.runtime.kernels.primitives import PrimitiveCalls
from graphfw.utils.records import record


@record(eq=False)
class Pair(Expr):
    """A complex number; no kernel has one, as each is taken apart."""

    real: Expr
    imag: Expr


class Components(NamedTuple):
    """The components of a complex number, or one value for each of them."""

    real: Expr
    imag: Expr


class NoComplexFormError(Exception):
    """A function has no form for complex numbers."""


def components_of(x: Expr) -> Components:
    """Return the components of a complex number."""
    if isinstance(x, Pair):
        return Components(x.real, x.imag)
    dtype = x.dtype.real
    return Components(Expr(dtype), Expr(dtype))  # of a placeholder


def literal(value: complex, dtype: DType) -> Pair:
    """Return a complex literal."""
    kind, value = dtype.real, complex(value)
    return Pair(dtype, Const(kind, value.real), Const(kind, value.imag))


def called(k: PrimitiveCalls, function: str, args: Sequence[Expr]) -> Expr:
    """Return a primitive function of complex numbers.

    Raises:
        NoComplexFormError: There is no form for it.
    """
    form = _FORMS.get(function)
    if form is None:
        raise NoComplexFormError(function)
    found = form(k, *map(components_of, args))
    return Pair(args[0].dtype, *found) if isinstance(found, Components) else found


def cast(k: PrimitiveCalls, x: Expr, dtype: DType) -> Expr:
    """Return a value in another dtype, where one of both is complex.

    Raises:
        NoComplexFormError: A complex number would become real.
    """
    if not x.dtype.is_complex:
        real = k.cast(x, dtype.real)
        return Pair(dtype, real, Const(dtype.real, 0.0))
    real, imag = components_of(x)
    if dtype is bool_:
        return k.or_(k.cast(real, bool_), k.cast(imag, bool_))
    if not dtype.is_complex:
        raise NoComplexFormError("cast")
    return Pair(dtype, k.cast(real, dtype.real), k.cast(imag, dtype.real))


def select(k: PrimitiveCalls, condition: Expr, x: Expr, y: Expr) -> Expr:
    """Return x where the condition holds, else y."""
    pairs = zip(components_of(x), components_of(y), strict=True)
    return Pair(x.dtype, *[k.select(condition, a, b) for a, b in pairs])


def _multiplied(k: PrimitiveCalls, x: Components, y: Components) -> Components:
    real = k.sub(k.mul(x.real, y.real), k.mul(x.imag, y.imag))
    return Components(real, k.add(k.mul(x.real, y.imag), k.mul(x.imag, y.real)))


def _divided(k: PrimitiveCalls, x: Components, y: Components) -> Components:
    """Divide without overflow in between (Smith, Communications of the ACM 5, 1962, p. 435)."""
    is_real = k.ge(k.abs(y.real), k.abs(y.imag))
    larger, smaller = k.select(is_real, y.real, y.imag), k.select(is_real, y.imag, y.real)
    is_zero = k.and_(is_real, k.eq(larger, 0))
    ratio = k.div(smaller, larger)
    scale = k.div(1, k.select(is_zero, 0, k.add(larger, k.mul(smaller, ratio))))
    first, second = k.select(is_real, x.real, x.imag), k.select(is_real, x.imag, x.real)
    # By zero each component is infinite, or NaN.
    real = k.select(is_zero, first, k.add(first, k.mul(second, ratio)))
    imag = k.select(is_zero, second, k.sub(second, k.mul(first, ratio)))
    real, imag = k.mul(real, scale), k.mul(imag, scale)
    return Components(real, k.select(is_real, imag, k.neg(imag)))


def _exponential(k: PrimitiveCalls, x: Components) -> Components:
    """Return e**x, with the values of C's `cexp` (C99, G.6.3.1) where components are not finite."""
    half = k.exp(k.mul(x.real, 0.5))  # e**real itself may overflow where the result does not
    not_finite = k.ne(k.sub(x.imag, x.imag), 0)
    at_end = k.and_(not_finite, k.eq(k.abs(x.real), inf))
    at_zero = k.and_(at_end, k.lt(x.real, 0))
    cosine = k.select(at_end, k.select(at_zero, 0.0, k.const(1.0, half.dtype)), k.cos(x.imag))
    sine = k.select(at_zero, 0.0, k.sin(x.imag))
    imag = k.mul(k.mul(half, sine), half)
    return Components(k.mul(k.mul(half, cosine), half), k.select(k.eq(x.imag, 0), x.imag, imag))


def _power(k: PrimitiveCalls, x: Components, y: Components) -> Components:
    if not (_is_literal(y.real, 2) and _is_literal(y.imag, 0)):
        raise NoComplexFormError("pow")
    return _multiplied(k, x, x)  # as NumPy does


def _is_literal(x: Expr, value: float) -> bool:
    return isinstance(x, Const) and x.value == value


_FORMS: Mapping[str, Callable[..., Components | Expr]] = {
    "add": lambda k, x, y: Components(k.add(x.real, y.real), k.add(x.imag, y.imag)),
    "sub": lambda k, x, y: Components(k.sub(x.real, y.real), k.sub(x.imag, y.imag)),
    "neg": lambda k, x: Components(k.neg(x.real), k.neg(x.imag)),
    "mul": _multiplied,
    "div": _divided,
    "abs": lambda k, x: k.hypot(x.real, x.imag),
    "eq": lambda k, x, y: k.and_(k.eq(x.real, y.real), k.eq(x.imag, y.imag)),
    "ne": lambda k, x, y: k.or_(k.ne(x.real, y.real), k.ne(x.imag, y.imag)),
    "exp": _exponential,
    "pow": _power,
}
