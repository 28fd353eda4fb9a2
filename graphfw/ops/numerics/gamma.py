"""The gamma function, its logarithm, and the derivative of that, as pure functions, in float64.

gamma: below 8 by the recurrence from fdlibm's approximation of its logarithm on [2, 3]; from there
on Stirling's formula (Abramowitz & Stegun 6.1.40); of negative numbers by reflection (6.1.17).

Errors in units in the last place, as the tests assert them of x > 0: lgamma and digamma 4. For
x < 0 both cross zero between any two poles and are differences of larger terms, so their error is
bounded relative to those terms instead (see each).

Sources of the coefficients:

* lgamma: fdlibm, `e_lgamma_r.c`. Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved.
  Permission to use, copy, modify, and distribute this software is freely granted, provided that
  this notice is preserved.
* digamma on [1, 2]: J. Maddock, Boost.Math, `digamma.hpp` (Boost Software License 1.0); elsewhere
  the recurrence, reflection and asymptotic series of Abramowitz & Stegun 6.3.5, 6.3.7 and 6.3.18.
"""

from __future__ import annotations

import math
from typing import Any

from graphfw.ops.numerics.wide import polynomial

__all__ = ["digamma", "gamma", "lgamma", "lgamma_of_next", "lgamma_step", "log1p_less", "stirling"]

# lgamma(2 - y) = -y/2 + y (even and odd powers of y), used for 0 < y <= 0.27
_LOG_BELOW_TWO = (
    7.72156649015328655494e-02, 3.22467033424113591611e-01, 6.73523010531292681824e-02,
    2.05808084325167332806e-02, 7.38555086081402883957e-03, 2.89051383673415629091e-03,
    1.19270763183362067845e-03, 5.10069792153511336608e-04, 2.20862790713908385557e-04,
    1.08011567247583939954e-04, 2.52144565451257326939e-05, 4.48640949618915160150e-05,
)  # fmt: skip
# lgamma(m + y) = least + y^2 P(y) around its minimum m; least is a sum of two doubles
_LOG_MINIMUM_AT = 1.46163214496836224576e00
_LOG_LEAST, _LOG_LEAST_REST = -1.21486290535849611461e-01, 3.63867699703950536541e-18
_LOG_MINIMUM = (
    4.83836122723810047042e-01, -1.47587722994593911752e-01, 6.46249402391333854778e-02,
    -3.27885410759859649565e-02, 1.79706750811820387126e-02, -1.03142241298341437450e-02,
    6.10053870246291332635e-03, -3.68452016781138256760e-03, 2.25964780900612472250e-03,
    -1.40346469989232843813e-03, 8.81081882437654011382e-04, -5.38595305356740546715e-04,
    3.15632070903625950361e-04, -3.12754168375120860518e-04, 3.35529192635519073543e-04,
)  # fmt: skip
# lgamma(1 + y) = -y/2 + y P(y)/Q(y) for 0 <= y < 0.2316
_LOG_ABOVE_ONE_P = (
    -7.72156649015328655494e-02, 6.32827064025093366517e-01, 1.45492250137234768737e00,
    9.77717527963372745603e-01, 2.28963728064692451092e-01, 1.33810918536787660377e-02,
)  # fmt: skip
_LOG_ABOVE_ONE_Q = (
    1.0, 2.45597793713041134822e00, 2.12848976379893395361e00, 7.69285150456672783825e-01,
    1.04222645593369134254e-01, 3.21709242282423911810e-03,
)  # fmt: skip
# lgamma(2 + y) = y/2 + y P(y)/Q(y) for 0 <= y < 1
_LOG_ABOVE_TWO_P = (
    -7.72156649015328655494e-02, 2.14982415960608852501e-01, 3.25778796408930981787e-01,
    1.46350472652464452805e-01, 2.66422703033638609560e-02, 1.84028451407337715652e-03,
    3.19475326584100867617e-05,
)  # fmt: skip
_LOG_ABOVE_TWO_Q = (
    1.0, 1.39200533467621045958e00, 7.21935547567138069525e-01, 1.71933865632803078993e-01,
    1.86459191715652901344e-02, 7.77942496381893596434e-04, 7.32668430744625636189e-06,
)  # fmt: skip
# lgamma(x) = (x - 1/2)(log x - 1) + constant + z P(z^2), z = 1/x, for x >= 8
_LOG_LARGE_CONSTANT = 4.18938533204672725052e-01
_LOG_LARGE = (
    8.33333333333329678849e-02, -2.77777777728775536470e-03, 7.93650558643019558500e-04,
    -5.95187557450339963135e-04, 8.36339918996282139126e-04, -1.63092934096575273989e-03,
)  # fmt: skip
_LOG_TINY = 2.0**-70  # below it, lgamma(x) is -log|x| to the last bit
# Beyond it lgamma(x) overflows; a few units below the exact limit, so that rounding never does.
_LOG_HUGE = 2.559983327851637e305

# digamma(x) = (x - root)(scale + P(x - 1)/Q(x - 1)) for 1 <= x <= 2; root is a sum of three doubles
_PSI_ROOT = (1569415565 / 2**30, 381566830 / 2**60, 0.9016312093258695918615325266959189e-19)
_PSI_SCALE = 0.99558162689208984375
_PSI_P = (
    0.25479851061131551, -0.32555031186804491, -0.65031853770896507, -0.28919126444774784,
    -0.045251321448739056, -0.0020713321167745952,
)  # fmt: skip
_PSI_Q = (
    1.0, 2.0767117023730469, 1.4606242909763515, 0.43593529692665969, 0.054151797245674225,
    0.0021284987017821144, -0.55789841321675513e-6,
)  # fmt: skip
# digamma(x) = log x - 1/(2 x) - sum over k >= 1 of B_2k / (2 k x^2k), for x >= 10
_PSI_LARGE = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)
_PSI_TINY = 2.0**-60  # below it, digamma(x) is -1/x to the last bit
_PSI_POLE = 2.0**-1024  # up to here, -1/x overflows

# lgamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + the series of this in 1 / x, for x >= 8
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


def gamma(xp: Any, x: Any) -> Any:
    """The gamma function: NaN at -1, -2, … and -inf, infinite with x's sign at 0."""
    a = xp.abs(x)
    s = xp.where(a < 8.0, a, 2.0)
    whole = xp.floor(s)
    y = s - whole
    product = xp.exp(lgamma_above_two(y))
    for k in (2.0, 3.0, 4.0, 5.0, 6.0):
        product = product * xp.where(whole > k, y + k, 1.0)
    below = xp.where(whole < 1.0, s * (s + 1.0), xp.where(whole < 2.0, s, 1.0))
    small = product / xp.where(below > 0.0, below, 1.0)
    small = xp.where(s > 0.0, small, math.inf)

    b = xp.where((a >= 8.0) & (a < 200.0), a, xp.where(a < 8.0, 8.0, 200.0))
    z = 1.0 / b
    root = xp.power(b, 0.5 * b - 0.25)  # of the power, which overflows earlier than the result
    factor = xp.exp(z * polynomial(z * z, _STIRLING)) * math.sqrt(2 * math.pi)
    large = root * xp.exp(-b) * root * factor
    positive = xp.where(a < 8.0, small, large)

    # Gamma(-a) = -pi / (a sin(pi a) Gamma(a)); the fraction is taken first, for an exact period.
    floor = xp.floor(xp.where(a < 1e300, a, 1.0))
    fraction = xp.where(a < 1e300, a, 1.0) - floor
    half = 0.5 * floor
    sine = xp.sin(math.pi * xp.minimum(fraction, 1.0 - fraction))
    sine = xp.where(half == xp.floor(half), sine, -sine)
    reflects = (x < 0.0) & (fraction > 0.0)
    negative = (-math.pi / xp.where(reflects, sine, 1.0)) / (xp.where(reflects, a, 1.0) * positive)
    # So near 0 the product above would not be 1.
    negative = xp.where(a < 1e-20, -positive, negative)
    result = xp.where(x > 0.0, positive, xp.where(reflects, negative, math.nan))
    result = xp.where(x == 0.0, xp.copysign(positive, x), result)
    return xp.where(xp.isnan(x), x, result)


def lgamma(xp: Any, x: Any) -> Any:
    """The logarithm of the absolute value of the gamma function.

    +inf at 0, at the negative integers and at +-inf; NaN at NaN. For x < 0 the error is at most 4
    units in the last place of max(1, |lgamma(x)|, lgamma(-x)): near a zero on the negative axis few
    digits are left. Formula: fdlibm.

    >>> import numpy as np
    >>> lgamma(np, np.array([0.5, 1.0, 10.0, -2.0])).round(6).tolist()
    [0.572365, 0.0, 12.801827, inf]
    """
    a = xp.abs(x)
    ordinary = (a > 0.0) & (a <= _LOG_HUGE)
    magnitude = xp.where(ordinary, a, 1.0)
    positive = _lgamma_positive(xp, magnitude)

    # Gamma(-a) Gamma(a) = -pi / (a sin(pi a)); the fraction is taken first, for an exact period
    fraction = magnitude - xp.floor(magnitude)
    reflects = (x < 0.0) & (magnitude >= _LOG_TINY) & (fraction > 0.0)
    sine = xp.sin(math.pi * xp.minimum(fraction, 1.0 - fraction))
    negative = xp.log(math.pi / xp.where(reflects, magnitude * sine, 1.0)) - positive

    y = xp.where(reflects, negative, positive)
    pole = (x < 0.0) & (fraction == 0.0)
    return xp.where(xp.isnan(x), x, xp.where(ordinary & ~pole, y, math.inf))


def _lgamma_positive(xp: Any, x: Any) -> Any:
    """The lgamma of 0 < x <= _LOG_HUGE."""
    middle = xp.where((x >= 2.0) & (x < 8.0), x, 2.0)
    whole = xp.floor(middle)
    y = middle - whole
    # Gamma(whole + y) = Gamma(2 + y) (2 + y) (3 + y) ... (whole - 1 + y)
    product = xp.where(whole > 2.0, y + 2.0, 1.0)
    for k in (3.0, 4.0, 5.0, 6.0):
        product = product * xp.where(whole > k, y + k, 1.0)

    large = xp.maximum(x, 8.0)
    z = 1.0 / large
    series = _LOG_LARGE_CONSTANT + z * polynomial(z * z, _LOG_LARGE)

    # Of each piece one logarithm is wanted.
    is_low, is_middle = x < 2.0, x < 8.0
    low = xp.where(x <= 0.9, x, 1.0)
    log = xp.log(xp.where(is_low, low, xp.where(is_middle, product, large)))
    below_two = _lgamma_below_two(xp, x) - log
    y_middle = lgamma_above_two(y) + log
    y_large = (large - 0.5) * (log - 1.0) + series
    return xp.where(is_low, below_two, xp.where(is_middle, y_middle, y_large))


def _lgamma_below_two(xp: Any, x: Any) -> Any:
    """The lgamma of 0.9 < x < 2, and up to 0.9 of x + 1."""
    x = xp.minimum(x, 2.0)
    # x + 1 would round, so the pieces below subtract their centre less the shift, not from the sum.
    shift = xp.where(x <= 0.9, 1.0, 0.0)
    shifted = x + shift

    y = (2.0 - shift) - x
    z = y * y
    even, odd = polynomial(z, _LOG_BELOW_TWO[0::2]), polynomial(z, _LOG_BELOW_TWO[1::2])
    below_two = (y * even + z * odd) - 0.5 * y

    y = x - (_LOG_MINIMUM_AT - shift)
    w = y * y * y
    p0, p1, p2 = (polynomial(w, _LOG_MINIMUM[i::3]) for i in range(3))
    minimum = _LOG_LEAST + (y * y * p0 + (w * (p1 + y * p2) + _LOG_LEAST_REST))

    above_one = lgamma_above_one(xp.where(shifted < 1.5, x - (1.0 - shift), 0.0))
    pieces = xp.where(shifted < 1.7316, minimum, below_two)
    return xp.where(shifted < 1.23164, above_one, pieces)


def lgamma_above_one(y: Any) -> Any:
    """lgamma(1 + y) for 0 <= y < 0.2316."""
    ratio = polynomial(y, _LOG_ABOVE_ONE_P) / polynomial(y, _LOG_ABOVE_ONE_Q)
    return (0.0 - 0.5 * y) + y * ratio  # not -0.5 * y, which makes lgamma(1) -0


def lgamma_above_two(y: Any) -> Any:
    """lgamma(2 + y) for 0 <= y < 1."""
    ratio = polynomial(y, _LOG_ABOVE_TWO_P) / polynomial(y, _LOG_ABOVE_TWO_Q)
    return 0.5 * y + y * ratio


def stirling(x: Any) -> Any:
    """Return the difference of lgamma(x) and Stirling's formula, x >= 8."""
    z = 1.0 / x
    return z * polynomial(z * z, _STIRLING)


def lgamma_of_next(xp: Any, x: Any) -> Any:
    """lgamma(1 + x) for x >= 0, exact also for small x."""
    is_low = x < 0.23
    return xp.where(is_low, lgamma_above_one(xp.where(is_low, x, 0.0)), lgamma(xp, x + 1.0))


def lgamma_step(xp: Any, a: Any, b: Any) -> Any:
    """lgamma(a + b) - lgamma(a) for a > 0 and b >= 0, exact also for small b.

    By Stirling's formula, from 8 on; below by the recurrence from a + 8 on.
    """
    is_low = a < 8.0
    low = xp.where(is_low, a, 8.0)
    grown = b / low  # the product of 1 + b / (a + k), less 1
    for k in range(1, 8):
        ratio = b / (low + float(k))
        grown = grown + ratio + grown * ratio
    below = xp.where(is_low, xp.log1p(grown), 0.0)
    h = xp.where(is_low, a + 8.0, a)
    whole = h + b
    log = xp.log1p(b / h)
    # The difference of both series in 1 / h and 1 / (h + b), over that of these.
    z, w = 1.0 / h, 1.0 / whole
    square, power = w * w, w
    term: Any = 1.0
    total: Any = _STIRLING[0]
    for coefficient in _STIRLING[1:]:
        term = z * z * term + power * (z + w)
        power = power * square
        total = total + coefficient * term
    return (whole - 0.5) * log + b * (xp.log(h) - 1.0) - b * z * w * total - below


def log1p_less(xp: Any, x: Any, sum: Any) -> Any:
    """log(1 + x) - x for x > -1, exact near 0; `sum` is 1 + x."""
    is_small = xp.abs(x) < 0.4
    s = xp.where(is_small, x, 0.0)
    r = s / (2.0 + s)
    square = r * r
    odd = polynomial(square, tuple([1 / (2 * k + 3) for k in range(14)]))
    near = r * (2.0 * square * odd - s)
    return xp.where(is_small, near, xp.log(sum) - x)


def digamma(xp: Any, x: Any) -> Any:
    """The derivative of the logarithm of the gamma function.

    digamma(+-0) = -+inf, digamma(inf) = inf; NaN at the negative integers, at -inf and at NaN. For
    x < 0 the error is at most 6 units in the last place of max(1, |digamma(1 - x)|,
    |pi / tan(pi x)|): near a zero on the negative axis few digits are left.

    >>> import numpy as np
    >>> digamma(np, np.array([0.5, 1.0, 10.0, 0.0, -1.0])).round(6).tolist()
    [-1.96351, -0.577216, 2.251753, -inf, nan]
    """
    a = xp.abs(x)
    finite = a < math.inf
    tiny = a < _PSI_TINY
    ordinary = xp.where(finite & ~tiny, x, 1.0)

    # digamma(x) = digamma(1 - x) - pi / tan(pi x)
    reflects = ordinary < 0.0
    y = _digamma_positive(xp, xp.where(reflects, 1.0 - ordinary, ordinary))
    offset = ordinary - xp.rint(ordinary)  # exact: tan has period pi
    pole = reflects & (offset == 0.0)
    cotangent = math.pi / xp.tan(math.pi * xp.where(reflects & ~pole, offset, 0.25))
    y = xp.where(reflects, y - cotangent, y)

    y = xp.where(tiny, -1.0 / xp.where(tiny & (a > _PSI_POLE), x, 1.0), y)
    y = xp.where(a <= _PSI_POLE, xp.copysign(math.inf, -x), y)
    y = xp.where(pole | (x == -math.inf), math.nan, y)
    return xp.where(xp.isnan(x) | (x == math.inf), x, y)


def _digamma_positive(xp: Any, x: Any) -> Any:
    """The digamma of x >= _PSI_TINY."""
    large = xp.maximum(x, 10.0)
    z = 1.0 / large
    y_large = xp.log(large) - (0.5 * z + z * z * polynomial(z * z, _PSI_LARGE))

    # digamma(x + 1) = digamma(x) + 1/x brings x into [1, 2]: one step up, or at most 8 down
    below = x < 1.0
    u = xp.where(below, x + 1.0, xp.minimum(x, 10.0))
    total = -1.0 / xp.where(below, x, 1.0)
    total = xp.where(below, total, 0.0)
    for _ in range(8):
        above = u > 2.0
        u = xp.where(above, u - 1.0, u)
        total = total + xp.where(above, 1.0 / u, 0.0)
    root_high, root_middle, root_low = _PSI_ROOT
    from_root = ((u - root_high) - root_middle) - root_low
    ratio = polynomial(u - 1.0, _PSI_P) / polynomial(u - 1.0, _PSI_Q)
    y = total + (from_root * _PSI_SCALE + from_root * ratio)
    return xp.where(x < 10.0, y, y_large)
