"""Whole quotients and remainders of all numbers, and powers of integers, as formulas."""

from __future__ import annotations

import math

from graphfw.runtime.numpy_executor.codegen.mathlib_writer import MathBody, Value


def floor_divide(m: MathBody, x: Value, y: Value) -> Value:
    """The quotient, rounded down; of integers by 0: 0; of an infinity x / y."""
    if not m.dtype.is_floating:
        return _integers(m, x, y)[0]
    rest = _fmod(m, x, y)
    fraction = x / y
    uneven = rest.differs(0) & (rest < 0).differs(y < 0)
    quotient = (x - rest) / y
    quotient = m.select(uneven, quotient - 1, quotient)
    down = m.intrinsic("floor", quotient)
    # x - rest was rounded: the quotient may be just below a whole number.
    down = m.select(quotient - down > 0.5, down + 1, down)
    whole = m.select(quotient.equals(0), m.copysign(m.constant(0, x.element), fraction), down)
    as_it_is = y.equals(0) | m.abs(x).equals(math.inf)
    return m.select(as_it_is, fraction, whole)


def remainder(m: MathBody, x: Value, y: Value) -> Value:
    """Return the remainder of `floor_divide`, with the sign of y; of integers by 0: 0."""
    if not m.dtype.is_floating:
        return _integers(m, x, y)[1]
    rest = _fmod(m, x, y)
    other_sign = (rest < 0).differs(y < 0)
    signed = m.select(other_sign, rest + y, rest)
    zero = rest.equals(0) & y.differs(0)
    return m.select(zero, m.copysign(m.constant(0, x.element), y), signed)


def _fmod(m: MathBody, x: Value, y: Value) -> Value:
    """Return x - q y for the quotient q towards 0, which is exact; only the sign of 0 may be wrong.

    Rounding the quotient x / y may have made it 1 too large, never too small. What is left after
    q y, or after (q - 1) y, is a multiple of the smaller operand's last bit, and smaller than y:
    a float.
    """
    quotient = m.intrinsic("trunc", x / y)
    rest = m.fma(-quotient, y, x)
    divisor = m.abs(y)
    too_large = ((m.bits(x) ^ m.bits(rest)) < 0) & rest.differs(0)
    rest = m.select(too_large, rest + m.copysign(divisor, x), rest)
    rest = m.select(m.abs(x) < divisor, x, rest)
    inexact = m.abs(quotient) >= m.pick(2.0**23, 2.0**52)
    return m.each_lane_where(inexact, "fmod" if m.is_double else "fmodf", (x, y), rest)


def _integers(m: MathBody, x: Value, y: Value) -> tuple[Value, Value]:
    """Return quotient and remainder of integers; nothing traps."""
    signed = m.dtype.kind == "int"
    none = y.equals(0)
    opposite = y.equals(-1)
    # The least integer divided by -1 has no quotient among the integers: by wrapping it is itself.
    divisor = m.select(none | opposite if signed else none, 1, y)
    quotient = _towards_zero(m, x, divisor)
    if signed:
        quotient = m.select(opposite, -x, quotient)
    rest = x - quotient * m.select(none, 1, y)
    if signed:
        uneven = rest.differs(0) & ((rest ^ y) < 0)
        quotient = m.select(uneven, quotient - 1, quotient)
        rest = m.select(uneven, rest + y, rest)
    return m.select(none, 0, quotient), m.select(none, 0, rest)


def _towards_zero(m: MathBody, x: Value, y: Value) -> Value:
    """Return x / y, rounded towards 0; y is not 0 and, if signed, not -1.

    Processors have no vectors of integer divisions. Floats with more than twice the integers' bits
    give the same: a quotient that is not whole is further from the next whole number than they
    round.
    """
    signed = m.dtype.kind == "int"
    if m.dtype.itemsize == 8:
        return m.let(x.element, f"{'sdiv' if signed else 'udiv'} {x.type} {x.text}, {y.text}")
    element = "double" if m.dtype.itemsize == 4 else "float"
    to_float, to_integer = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    quotient = m.convert(to_float, x, element) / m.convert(to_float, y, element)
    return m.convert(to_integer, quotient, x.element)


def pow(m: MathBody, x: Value, y: Value) -> Value:
    """x^y of integers, wrapping; to negative powers 1 / x^-y, towards 0, and 0 of 0."""
    signed = m.dtype.kind == "int"
    one = m.constant(1, x.element)
    result, _, _ = m.repeat(
        (one, x, m.select(y < 0, 0, y) if signed else y),
        lambda result, base, exponent: exponent.differs(0),
        lambda result, base, exponent: (
            m.select((exponent & 1).differs(0), result * base, result),
            base * base,
            m.let(exponent.element, f"lshr {exponent.type} {exponent.text}, {one.text}"),
        ),
    )
    if not signed:
        return result
    of_minus_one = m.select((y & 1).differs(0), -1, 1)
    inverse = m.select(x.equals(1), 1, m.select(x.equals(-1), of_minus_one, 0))
    return m.select(y < 0, inverse, result)
