"""Exponentials, logarithms and hyperbolic functions as formulas.

The polynomials are least-squares fits in 45 digits on Chebyshev points, reweighted towards the
minimax polynomial of the relative error; coefficients were rounded one by one, the first first, and
the others fitted anew after each. The error given with a table is the largest relative one of the
function that the polynomial is for, before rounding errors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from graphfw.runtime.numpy_executor.codegen.mathlib_writer import MathBody, Value

# expm1(r) = r + r² P(r) for |r| <= ln(2) / 2: 2^-26.1, 2^-55.5.
_EXPM1_32 = (
    0.4999999701976776, 0.1666654348373413, 0.04166753962635994, 0.008366541005671024,
    0.0013861117186024785,
)  # fmt: skip
_EXPM1_64 = (
    0.5000000000000006, 0.16666666666666607, 0.041666666666573766, 0.008333333333377973,
    0.0013888888932325973, 0.0001984126974390629, 2.4801504503258704e-05, 2.7557385445219334e-06,
    2.7626307940523074e-07, 2.5060732696118876e-08,
)  # fmt: skip

# log(1 + f) = f - f²/2 + f³ P(f) for sqrt(1/2) <= 1 + f <= sqrt(2): 2^-27.3.
_LOG_32 = (
    0.3333333134651184, -0.250008225440979, 0.2000124305486679, -0.16623321175575256,
    0.14201569557189941, -0.13160419464111328, 0.12762178480625153, -0.07633986324071884,
)  # fmt: skip
# 2 atanh(s) = 2 s + s³ P(s²) for s = f / (2 + f) of the same f: 2^-58.5.
_LOG_64 = (
    0.6666666666666734, 0.3999999999941711, 0.285714287418708, 0.22222198624394496,
    0.1818356174439862, 0.1531411480392118, 0.14795323137125063,
)  # fmt: skip

LN2 = math.log(2)
# ln(2), log10(2), 1 / ln(2) and 1 / ln(10) in two terms: the first of the dtype and, of ln(2), not
# above it: so the second is positive, and n ln(2) with n = 0 leaves -0.0 as it is.
_LN2_32 = (0.6931471228599548, 5.7699990475432854e-08)
_LN2_64 = (0.6931471805599453, 2.3190468138462996e-17)
_LOG_TERMS = {
    "log2": (
        (1.4426950216293335, 1.9259629911266175e-08),
        (1.4426950408889634, 2.0355273740931033e-17),
    ),
    "log10": (
        (0.4342944920063019, -1.0103050052231683e-08),
        (0.4342944819032518, 1.098319650216765e-17),
    ),
    "log10 of 2": (
        (0.3010300099849701, -1.4320988897559699e-08),
        (0.3010299956639812, -2.8037281277851704e-18),
    ),
}


def _mantissa_bits(m: MathBody) -> int:
    return 52 if m.is_double else 23


def _bias(m: MathBody) -> int:
    return 1023 if m.is_double else 127


def power_of_two(m: MathBody, exponent: Value) -> Value:
    """Return 2^n of an integer n; what has no normal result gives some number."""
    return m.of_bits((exponent + _bias(m)) << _mantissa_bits(m))


class ExpReduction(NamedTuple):
    """x = n ln(2) + r, where |r| <= ln(2) / 2.

    Attributes:
        n: As an integer.
        whole: n as a float.
        rest: expm1(r).
    """

    n: Value
    whole: Value
    rest: Value


def whole_and_rest(m: MathBody, x: Value, more: Value | None = None) -> ExpReduction:
    """Split x + more."""
    # Adding and subtracting 1.5 * 2^23 rounds to a whole number, which then stands in the low bits.
    magic = m.pick(1.5 * 2**23, 1.5 * 2**52)
    high, low = _LN2_64 if m.is_double else _LN2_32
    sum_ = m.fma(x, 1 / LN2, magic)
    n = sum_ - magic
    # The first difference is exact: both are multiples of the last bit of `high`.
    r = m.fma(n, -low, m.fma(n, -high, x))
    r = r if more is None else r + more
    p = m.polynomial(r, _EXPM1_64 if m.is_double else _EXPM1_32)
    whole = m.bits(sum_) - m.bits(m.constant(magic, sum_.element))
    return ExpReduction(whole, n, m.fma(r * r, p, r))


def exp(m: MathBody, x: Value, more: Value | None = None) -> Value:
    """e^(x + more), where `more` is small or left out."""
    # Beyond these limits results are infinite, and 0.
    return exp_within(m, m.at_least(m.at_most(x, m.pick(89, 710)), m.pick(-104, -746)), more)


def exp_within(m: MathBody, x: Value, more: Value | None = None) -> Value:
    """e^(x + more) where x is at most as large as in `exp`, and not much less."""
    n, whole, q = whole_and_rest(m, x, more)
    if m.can_scale:
        return m.scaled(1 + q, whole)
    # The scale is two factors: so small results are rounded once, and large ones overflow.
    half = n >> 1
    return (1 + q) * power_of_two(m, half) * power_of_two(m, n - half)


def _scaled_expm1(m: MathBody, x: Value, k: int) -> Value:
    """Return expm1(x) / 2^k: it does not overflow where the caller's result is finite."""
    n, _, q = whole_and_rest(m, x)
    scale = power_of_two(m, n - k)
    return m.fma(q, scale, scale - 2.0**-k)


def expm1(m: MathBody, x: Value) -> Value:
    """e^x - 1."""
    limited = m.at_least(m.at_most(x, m.pick(89, 710)), m.pick(-18, -40))
    return _itself_if_tiny(m, x, 2 * _scaled_expm1(m, limited, 1))


def sinh(m: MathBody, x: Value) -> Value:
    """(e^x - e^-x) / 2 = (E + E / (E + 1)) / 2 with E = expm1(|x|)."""
    scaled = _scaled_expm1(m, m.at_most(m.abs(x), m.pick(89.5, 710.5)), 2)
    half = scaled + scaled / m.fma(scaled, 4, 1)
    return _itself_if_tiny(m, x, m.copysign(2 * half, x))


def cosh(m: MathBody, x: Value) -> Value:
    """(e^x + e^-x) / 2."""
    n, _, q = whole_and_rest(m, m.at_most(m.abs(x), m.pick(89.5, 710.5)))
    scale = power_of_two(m, n - 2)
    scaled = m.fma(q, scale, scale)
    return m.fma(scaled, 2, 0.125 / scaled)


def tanh(m: MathBody, x: Value) -> Value:
    """E / (E + 2) with E = expm1(2 |x|)."""
    size = m.at_most(m.abs(x), m.pick(10, 20))
    scaled = _scaled_expm1(m, size + size, 1)
    return m.copysign(scaled / (scaled + 1), x)


def _itself_if_tiny(m: MathBody, x: Value, y: Value) -> Value:
    """Return x where f(x) rounds to it: there y may have lost the last bit, or the sign of 0."""
    return m.select(m.abs(x) < m.pick(2.0**-26, 2.0**-55), x, y)


def _split(m: MathBody, x: Value) -> Value:
    """Return the integer e for which x 2^-e is at least sqrt(1/2) and below sqrt(2)."""
    root = m.bits(m.constant(math.sqrt(0.5), x.element))
    return (m.bits(x) - root) >> _mantissa_bits(m)


def _log_rest(m: MathBody, f: Value) -> Value:
    """Return log(1 + f) - f, for 1 + f between sqrt(1/2) and sqrt(2)."""
    if m.is_double:
        s = f / (2 + f)
        z = s * s
        half_square = 0.5 * f * f
        return s * m.fma(z, m.polynomial(z, _LOG_64), half_square) - half_square
    square = f * f
    return m.fma(square, -0.5, square * f * m.polynomial(f, _LOG_32))


def split_float(m: MathBody, x: Value) -> tuple[Value, Value]:
    """Return e, as a float, and f, where x = 2^e (1 + f) is positive and finite."""
    shift = 54 if m.is_double else 23
    small = x < m.pick(2.0**-126, 2.0**-1022)
    normal = m.select(small, x * 2.0**shift, x)
    e = _split(m, normal)
    mantissa = m.of_bits(m.bits(normal) - (e << _mantissa_bits(m)))
    exponent = m.convert("sitofp", e, x.element) - m.select(small, float(shift), 0.0)
    return exponent, mantissa - 1


def _logarithm(m: MathBody, x: Value, y: Value, zero: float) -> Value:
    """Return y, or what the logarithm is where x is not above `zero`, or infinite."""
    y = m.select(x.equals(math.inf), x, y)
    return m.select(x > zero, y, m.select(x.equals(zero), -math.inf, math.nan))


def _natural(m: MathBody, exponent: Value, f: Value) -> Value:
    """Return log(2^exponent (1 + f))."""
    high, low = _LN2_64 if m.is_double else _LN2_32
    return m.fma(exponent, high, f + m.fma(exponent, low, _log_rest(m, f)))


def log(m: MathBody, x: Value) -> Value:
    """The natural logarithm."""
    return _logarithm(m, x, _natural(m, *split_float(m, x)), 0.0)


def log1p(m: MathBody, x: Value) -> Value:
    """log(1 + x). The f of 1 + x = 2^e (1 + f) is x 2^-e + (2^-e - 1), rounded once."""
    e = _split(m, 1 + x)
    # Four times 2^-e: that is a normal number for all e.
    scale = power_of_two(m, 2 - e)
    f = m.fma(0.25 * x, scale, m.fma(scale, 0.25, -1.0))
    y = _natural(m, m.convert("sitofp", e, x.element), f)
    return _itself_if_tiny(m, x, _logarithm(m, x, y, -1.0))


def _scaled_logarithm(m: MathBody, x: Value, base: str) -> tuple[Value, Value, Value]:
    """Return e, and log(1 + f) / log(base) as a large and a small term, where x = 2^e (1 + f)."""
    exponent, f = split_float(m, x)
    high, low = _LOG_TERMS[base][m.is_double]
    large = f * high
    small = m.fma(f, low, m.fma(_log_rest(m, f), high, m.fma(f, high, -large)))
    return exponent, large, small


def log2(m: MathBody, x: Value) -> Value:
    """The logarithm to base 2; exact for powers of 2."""
    exponent, large, small = _scaled_logarithm(m, x, "log2")
    return _logarithm(m, x, exponent + (large + small), 0.0)


def log10(m: MathBody, x: Value) -> Value:
    """The logarithm to base 10."""
    exponent, large, small = _scaled_logarithm(m, x, "log10")
    high, low = _LOG_TERMS["log10 of 2"][m.is_double]
    y = m.fma(exponent, high, large + m.fma(exponent, low, small))
    return _logarithm(m, x, y, 0.0)


# Beyond this, x ± 1 and sqrt(x² ± 1) are x, and x² may overflow.
_LARGE = 2.0**60


def asinh(m: MathBody, x: Value) -> Value:
    """log(a + sqrt(a² + 1)) of a = |x|, as log1p of what is exact for small a."""
    size = m.abs(x)
    large = size > _LARGE
    square = size * size
    argument = size + square / (1 + m.sqrt(m.fma(size, size, 1)))
    y = log1p(m, m.select(large, size, argument)) + m.select(large, LN2, 0.0)
    return m.copysign(y, x)


def acosh(m: MathBody, x: Value) -> Value:
    """log(x + sqrt(x² - 1)), as log1p of t + sqrt(t² + 2 t) with t = x - 1."""
    large = x > _LARGE
    t = x - 1
    argument = t + m.sqrt(m.fma(t, t, t + t))
    y = log1p(m, m.select(large, x, argument)) + m.select(large, LN2, 0.0)
    return m.select(x >= 1, y, math.nan)


def atanh(m: MathBody, x: Value) -> Value:
    """log((1 + a) / (1 - a)) / 2 of a = |x|, as log1p of 2 a / (1 - a)."""
    size = m.abs(x)
    y = 0.5 * log1p(m, (size + size) / (1 - size))
    return m.copysign(y, x)
