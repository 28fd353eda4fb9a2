"""Powers and lengths of floats as formulas; see `mathlib_exp` on the polynomials."""

from __future__ import annotations

import math

from graphfw.runtime.numpy_executor.codegen.mathlib_exp import exp, split_float
from graphfw.runtime.numpy_executor.codegen.mathlib_writer import MathBody, Value

# log2(m) = s P(s²) for s = (m - 1) / (m + 1) and sqrt(1/2) <= m <= sqrt(2): 2^-37.8.
_LOG2 = (
    2.8853900817900793, 0.9617966733509973, 0.5770835831342346, 0.4116728328047764,
    0.3407279331067523,
)  # fmt: skip
# 2 atanh(s) = 2 s + 2/3 s³ + s⁵ P(s²) for the same s: 2^-71.
_LOG = (
    0.3999999999999998, 0.2857142857144384, 0.2222222221779069, 0.18181818843854655,
    0.15384558438824963, 0.13336264084025368, 0.11675789360695968, 0.11981680371330378,
)  # fmt: skip
# 2/3 and ln(2) in two terms. The first of ln(2) has 41 bits: its products with exponents are exact.
_TWO_THIRDS = (2 / 3, 3.700743415417188e-17)
_LN2 = (0.693147180559663, 2.8235290563031577e-13)
# 2^r = P(r) for |r| <= 1/2: 2^-29.
_EXP2 = (
    1.0000000005558978, 0.6931472057538497, 0.2402264686710513, 0.055503287331577486,
    0.009618491568606117, 0.0013399950779833028, 0.0001534513298164263,
)  # fmt: skip


def pow(m: MathBody, x: Value, y: Value) -> Value:
    """x^y: that of |x|, and what powers of negative and of special numbers are."""
    size, finite = m.abs(x), m.abs(x) < math.inf
    result = _pow_64(m, size, y) if m.is_double else _pow_32(m, size, y)
    # 1 where one operand alone decides, and of -1 to an infinite power.
    to_infinity = size.equals(1) & m.abs(y).equals(math.inf)
    result = m.select(x.equals(1) | y.equals(0) | to_infinity, 1.0, result)
    whole = m.intrinsic("trunc", y).equals(y)
    halved = 0.5 * y
    odd = whole & m.intrinsic("trunc", halved).differs(halved)
    result = m.select((m.bits(x) < 0) & odd, -result, result)
    undefined = (x < 0) & finite & whole.equals(0)
    return m.select(undefined, math.nan, result)


def _pow_32(m: MathBody, size: Value, y: Value) -> Value:
    """2^(y log2(x)) of x >= 0, computed in float64."""
    wide = m.convert("fpext", size, "double")
    bits = m.bits(wide)
    exponent = (bits - m.bits(m.constant(math.sqrt(0.5), "double"))) >> 52
    mantissa = m.of_bits(bits - (exponent << 52))
    s = (mantissa - 1) / (mantissa + 1)
    logarithm = m.convert("sitofp", exponent, "double") + s * m.polynomial(s * s, _LOG2)
    # Of NaN and infinity themselves.
    special = m.select(size.equals(0), m.constant(-math.inf, "double"), wide)
    logarithm = m.select((size > 0) & (size < math.inf), logarithm, special)
    power = _exp2(m, m.convert("fpext", y, "double") * logarithm)
    return m.convert("fptrunc", power, "float")


def _exp2(m: MathBody, x: Value) -> Value:
    """2^x in float64, of what becomes float32."""
    magic = 1.5 * 2**52
    x = m.at_least(m.at_most(x, 200), -200)
    sum_ = x + magic
    p = m.polynomial(x - (sum_ - magic), _EXP2)
    n = m.bits(sum_) - m.bits(m.constant(magic, "double"))
    return p * m.of_bits((n + 1023) << 52)


def _pow_64(m: MathBody, size: Value, y: Value) -> Value:
    """e^(y log(x)) of x >= 0, the exponent in two float64 numbers, its sum."""
    large, small = _long_log(m, size)
    usual = (size > 0) & (size < math.inf)
    special = m.select(size.equals(0), -math.inf, size)
    large, small = m.select(usual, large, special), m.select(usual, small, 0.0)
    exponent = y * large
    more = m.fma(y, large, -exponent) + y * small
    # Where the result overflows, or is 0, the small term may be infinite or NaN.
    return exp(m, exponent, m.select(m.abs(exponent) < 1000, more, 0.0))


def _long_log(m: MathBody, x: Value) -> tuple[Value, Value]:
    """Return the logarithm of a positive float64 as a sum of two, to some 65 bits.

    Of log(x) = e ln(2) + 2 s + 2/3 s³ + ... the terms down to s³ are sums of two numbers each.
    """
    e, f = split_float(m, x)
    # s = f / (2 + f).
    divisor = 2 + f
    inverse = 1 / divisor
    s = f * inverse
    missing = m.fma(-s, divisor, f) - s * (f - (divisor - 2))
    s_low = missing * inverse
    square, square_low = _product(m, s, s)
    square_low = m.fma(s + s, s_low, square_low)
    cube, cube_low = _product(m, s, square)
    cube_low = m.fma(s, square_low, m.fma(s_low, square, cube_low))
    third, third_low = _product(m, cube, m.constant(_TWO_THIRDS[0], "double"))
    third_low = m.fma(cube, _TWO_THIRDS[1], m.fma(cube_low, _TWO_THIRDS[0], third_low))
    rest = m.fma(cube * square, m.polynomial(square, _LOG), third_low)
    # The first number of each sum is the larger one, or 0.
    twos = e * _LN2[0]
    first, first_low = _sum(twos, s + s)
    second, second_low = _sum(first, third)
    small = m.fma(e, _LN2[1], (s_low + s_low) + first_low + second_low + rest)
    return _sum(second, small)


def _product(m: MathBody, a: Value, b: Value) -> tuple[Value, Value]:
    """Return a b as a sum of two numbers, exact."""
    product = a * b
    return product, m.fma(a, b, -product)


def _sum(a: Value, b: Value) -> tuple[Value, Value]:
    """Return a + b as a sum of two numbers, exact where |a| >= |b| or a is 0."""
    total = a + b
    return total, b - (total - a)


def hypot(m: MathBody, x: Value, y: Value) -> Value:
    """sqrt(x² + y²), of large and small numbers by way of a power of two; infinite if one is."""
    a, b = m.abs(x), m.abs(y)
    large, small = m.select(a > b, a, b), m.select(a > b, b, a)
    huge, tiny = large > m.pick(2.0**62, 2.0**510), large < m.pick(2.0**-50, 2.0**-450)
    down, up = m.pick(2.0**-66, 2.0**-520), m.pick(2.0**100, 2.0**625)
    scale = m.select(huge, down, m.select(tiny, up, 1.0))
    back = m.select(huge, 1 / down, m.select(tiny, 1 / up, 1.0))
    p, q = large * scale, small * scale
    length = m.sqrt(m.fma(p, p, q * q)) * back
    return m.select(a.equals(math.inf) | b.equals(math.inf), math.inf, length)


def narrow(m: MathBody, x: Value) -> Value:
    """float64 to float32, towards 0, the last bit set where that is not exact."""
    near = m.convert("fptrunc", x, "float")
    back = m.convert("fpext", near, "double")
    further = m.convert("zext", m.abs(back) > m.abs(x), "i32")
    # NaN does not differ "ordered": its bits stay.
    inexact = m.convert("zext", (back < x) | (back > x), "i32")
    return m.of_bits((m.bits(near) - further) | inexact)
