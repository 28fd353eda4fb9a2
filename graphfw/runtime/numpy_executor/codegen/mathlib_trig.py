"""Trigonometric functions and their inverses as formulas; see `mathlib_exp` on the polynomials."""

from __future__ import annotations

import math

from graphfw.runtime.numpy_executor.codegen.mathlib_writer import MathBody, Value

# sin(r) = r + r³ P(r²) for |r| <= π/4: 2^-27.9, 2^-57.9.
_SIN_32 = (-0.16666655242443085, 0.008332189172506332, -0.00019518285989761353)
_SIN_64 = (
    -0.1666666666666663, 0.008333333333321915, -0.00019841269829455087, 2.7557313581072265e-06,
    -2.5050742145260722e-08, 1.589593436204573e-10,
)  # fmt: skip
# cos(r) = 1 - r²/2 + r⁴ P(r²) for |r| <= π/4: 2^-33, 2^-63.9.
_COS_32 = (0.04166664555668831, -0.0013887310633435845, 2.4432563805021346e-05)
_COS_64 = (
    0.041666666666666595, -0.0013888888888873346, 2.480158728900564e-05, -2.75573142180848e-07,
    2.0875705526465712e-09, -1.1358755045514546e-11,
)  # fmt: skip
# atan(x) = x + x³ P(x²) for |x| <= 1: 2^-25.8, 2^-54.2.
_ATAN_32 = (
    -0.33333152532577515, 0.1999376267194748, -0.1421094834804535, 0.10665521025657654,
    -0.0755108892917633, 0.043197743594646454, -0.01635885052382946, 0.0029183444567024708,
)  # fmt: skip
_ATAN_64 = (
    -0.33333333333331855, 0.1999999999975444, -0.1428571427130504, 0.11111110677970852,
    -0.09090901223171646, 0.07692212804011474, -0.06665859448305385, 0.058773029698069384,
    -0.05239214223480059, 0.04673893928901701, -0.04092511761330434, 0.034065602004503155,
    -0.02582383595631198, 0.016975018285625604, -0.009182263537104916, 0.0038547128324395324,
    -0.0011635982607721385, 0.00022291394949285802, -2.0247115633707468e-05,
)  # fmt: skip
# asin(x) = x + x³ P(x²) for |x| <= 1/2: 2^-27.6, 2^-55.9.
_ASIN_32 = (
    0.16666752099990845, 0.07495307922363281, 0.0454694889485836, 0.02418244443833828,
    0.042163290083408356,
)  # fmt: skip
_ASIN_64 = (
    0.16666666666665403, 0.07500000000338497, 0.044642856827160675, 0.03038195918294495,
    0.02237175698229532, 0.017359720599497086, 0.013885079867438626, 0.012170236841603385,
    0.006523497651484014, 0.0195406947329514, -0.016244097085432917, 0.03192613662267968,
)  # fmt: skip

# π/2 in three terms, none above the rest: so all are positive, and -0.0 is reduced to itself.
_HALF_PI_32 = (1.570796251296997, 7.549789415861596e-08, 5.390302529957765e-15)
_HALF_PI_64 = (1.5707963267948966, 6.123233995736765e-17, 1.0828566739219139e-32)
# π/2 rounded, and what is missing.
_NEAR_HALF_PI_32 = (1.5707963705062866, -4.3711390001862426e-08)
_NEAR_HALF_PI_64 = (1.5707963267948966, 6.123233995736766e-17)

# Up to here the three terms of π/2 suffice; the few larger arguments go to the C library.
_LIMIT_32, _LIMIT_64 = 1e5, 1e9


def _reduced(m: MathBody, x: Value) -> tuple[Value, Value, Value]:
    """Return n (its low bits), sin(r) and cos(r), where x = n π/2 + r and |r| <= π/4."""
    magic = m.pick(1.5 * 2**23, 1.5 * 2**52)
    sum_ = m.fma(x, 2 / math.pi, magic)
    n = sum_ - magic
    r = x
    for term in _HALF_PI_64 if m.is_double else _HALF_PI_32:
        r = m.fma(n, -term, r)
    z = r * r
    sine = m.fma(r * z, m.polynomial(z, _SIN_64 if m.is_double else _SIN_32), r)
    p = m.polynomial(z, _COS_64 if m.is_double else _COS_32)
    return m.bits(sum_), sine, m.fma(z, m.fma(z, p, -0.5), 1)


def _everywhere(m: MathBody, name: str, x: Value, y: Value) -> Value:
    """Return y, and for large x the C library's value."""
    large = m.abs(x) > m.pick(_LIMIT_32, _LIMIT_64)
    return m.each_lane_where(large, name if m.is_double else name + "f", (x,), y)


def _flipped(m: MathBody, y: Value, n: Value) -> Value:
    """Return y, its sign flipped where bit 1 of n is set."""
    return m.of_bits(m.bits(y) ^ ((n & 2) << (62 if m.is_double else 30)))


def sin(m: MathBody, x: Value) -> Value:
    """The sine.

    Of n π/2 + r it is sin(r), cos(r), -sin(r), -cos(r) for n = 0, 1, 2, 3, and so on.
    """
    n, sine, cosine = _reduced(m, x)
    y = _flipped(m, m.select((n & 1).differs(0), cosine, sine), n)
    return _everywhere(m, "sin", x, m.select(x.equals(0), x, y))


def cos(m: MathBody, x: Value) -> Value:
    """The cosine."""
    n, sine, cosine = _reduced(m, x)
    y = _flipped(m, m.select((n & 1).differs(0), sine, cosine), n + 1)
    return _everywhere(m, "cos", x, y)


def tan(m: MathBody, x: Value) -> Value:
    """The tangent: sin(r) / cos(r), or -cos(r) / sin(r) for odd n."""
    n, sine, cosine = _reduced(m, x)
    odd = (n & 1).differs(0)
    y = _flipped(m, m.select(odd, cosine, sine) / m.select(odd, sine, cosine), n + n)
    return _everywhere(m, "tan", x, m.select(x.equals(0), x, y))


def _asin_of_size(m: MathBody, x: Value) -> tuple[Value, Value]:
    """Return whether |x| > 1/2, and asin of s: |x|, or where that holds sqrt((1 - |x|) / 2)."""
    size = m.abs(x)
    large = size > 0.5
    z = m.select(large, m.fma(size, -0.5, 0.5), size * size)
    s = m.select(large, m.sqrt(z), size)
    return large, m.fma(s * z, m.polynomial(z, _ASIN_64 if m.is_double else _ASIN_32), s)


def asin(m: MathBody, x: Value) -> Value:
    """The inverse sine; of large |x| it is π/2 minus twice that of s."""
    high, low = _NEAR_HALF_PI_64 if m.is_double else _NEAR_HALF_PI_32
    large, p = _asin_of_size(m, x)
    return m.copysign(m.select(large, high - m.fma(p, 2, -low), p), x)


def acos(m: MathBody, x: Value) -> Value:
    """The inverse cosine.

    π/2 - asin(x), or 2 asin(s) for x > 1/2, or π minus that for x < -1/2.
    """
    high, low = _NEAR_HALF_PI_64 if m.is_double else _NEAR_HALF_PI_32
    large, p = _asin_of_size(m, x)
    twice = p + p
    outer = m.select(x < 0, 2 * high - (twice - 2 * low), twice)
    return m.select(large, outer, high - (m.copysign(p, x) - low))


def _atan_up_to_one(m: MathBody, x: Value) -> Value:
    z = x * x
    return m.fma(x * z, m.polynomial(z, _ATAN_64 if m.is_double else _ATAN_32), x)


def atan(m: MathBody, x: Value) -> Value:
    """The inverse tangent; of |x| > 1 it is π/2 minus that of 1 / |x|."""
    high, low = _NEAR_HALF_PI_64 if m.is_double else _NEAR_HALF_PI_32
    size = m.abs(x)
    large = size > 1
    p = _atan_up_to_one(m, m.select(large, 1 / size, size))
    return m.copysign(m.select(large, high - (p - low), p), x)


def atan2(m: MathBody, y: Value, x: Value) -> Value:
    """The angle of the point (x, y): atan of the smaller coordinate over the larger, and turned."""
    high, low = _NEAR_HALF_PI_64 if m.is_double else _NEAR_HALF_PI_32
    along, across = m.abs(x), m.abs(y)
    steep = across > along
    small, large = m.select(steep, along, across), m.select(steep, across, along)
    # Of two zeros 0, of two infinities 1.
    ratio = m.select(small.equals(large), m.select(large.equals(0), 0.0, 1.0), small / large)
    angle = _atan_up_to_one(m, ratio)
    angle = m.select(steep, high - (angle - low), angle)
    left = m.bits(x) < 0
    return m.copysign(m.select(left, 2 * high - (angle - 2 * low), angle), y)
