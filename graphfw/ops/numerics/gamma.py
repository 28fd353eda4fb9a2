"""The gamma function as a pure function of an array module, in float64.

Below 8 by the recurrence from fdlibm's approximation of its logarithm on [2, 3]; from there on
Stirling's formula (Abramowitz & Stegun 6.1.40); of negative numbers by reflection (6.1.17).
"""

from __future__ import annotations

import math
from typing import Any

from graphfw.ops.numerics.special import lgamma_above_two
from graphfw.ops.numerics.wide import polynomial

__all__ = ["STIRLING", "gamma"]

# lgamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + the series of this in 1 / x, for x >= 8
STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


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
    factor = xp.exp(z * polynomial(z * z, STIRLING)) * math.sqrt(2 * math.pi)
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
