"""The normal distribution and the scaled error function, as pure functions in float64.

`erfcx` and what follows from it use the rational functions of fdlibm's erfc and, far out, the
asymptotic series (Abramowitz & Stegun 7.1.23); `ndtri` is Wichura's AS 241: see `special`.
"""

from __future__ import annotations

import math
from typing import Any

from graphfw.ops.numerics import special
from graphfw.ops.numerics.wide import polynomial

__all__ = ["erfcx", "log_ndtr", "ndtr", "ndtri"]

_NEAR, _FAR = 1.25, 28.0
# x sqrt(pi) erfcx(x) as a series in 1 / (2 x^2): the products of odd numbers, alternating
_ASYMPTOTIC = (1.0, -1.0, 3.0, -15.0, 105.0, -945.0, 10395.0)


def erfcx(xp: Any, x: Any) -> Any:
    """exp(x^2) erfc(x)."""
    y = _erfcx_of_positive(xp, xp.abs(x))
    return xp.where(x < 0.0, 2.0 * _exp_of_square(xp, x, 1.0) - y, y)


def ndtr(xp: Any, x: Any) -> Any:
    """The standard normal distribution function."""
    a = xp.abs(x)
    tail = 0.5 * _erfcx_of_positive(xp, a * math.sqrt(0.5)) * _exp_of_square(xp, a, -0.5)
    s = xp.where(a < 1.0, x, 0.5) * math.sqrt(0.5)
    centre = 0.5 + 0.5 * (s + s * special.erf_small(s))
    return xp.where(a < 1.0, centre, xp.where(x < 0.0, tail, 1.0 - tail))


def log_ndtr(xp: Any, x: Any) -> Any:
    """The logarithm of the standard normal distribution function."""
    low = xp.where(x < -1.0, x, -1.0)
    slow = xp.log(0.5 * _erfcx_of_positive(xp, xp.maximum(low, -1e100) * -math.sqrt(0.5)))
    left = slow - 0.5 * low * low
    return xp.where(x < -1.0, left, xp.log1p(-ndtr(xp, xp.where(x < -1.0, 0.0, -x))))


def ndtri(xp: Any, p: Any) -> Any:
    """The inverse of ndtr."""
    q = p - 0.5
    is_central = xp.abs(q) <= 0.425
    c = xp.where(is_central, q, 0.0)
    r = 0.180625 - c * c
    ratio = polynomial(r, special.QUANTILE_CENTRE_P) / polynomial(r, special.QUANTILE_CENTRE_Q)
    rest = xp.minimum(p, 1.0 - p)
    t = xp.sqrt(-xp.log(xp.where((rest > 0.0) & (rest < 0.1), rest, 0.05)))
    near = polynomial(t - 1.6, special.QUANTILE_TAIL_P) / polynomial(
        t - 1.6, special.QUANTILE_TAIL_Q
    )
    far = polynomial(t - 5.0, special.QUANTILE_FAR_P) / polynomial(t - 5.0, special.QUANTILE_FAR_Q)
    tail = xp.where(t <= 5.0, near, far)
    tail = xp.where(rest > 0.0, tail, xp.where(rest == 0.0, math.inf, math.nan))
    return xp.where(is_central, c * ratio, xp.copysign(tail, q))


def _erfcx_of_positive(xp: Any, a: Any) -> Any:
    s = xp.where(a < special.SMALL, a, 0.5)
    small = 1.0 - (s + s * special.erf_small(s))
    middle = (1.0 - special.ERF_ONE) - special.erf_middle(xp, a)
    low = xp.where(a < _NEAR, a, 0.0)
    close = xp.exp(low * low) * xp.where(a < special.SMALL, small, middle)
    b = xp.where((a >= _NEAR) & (a < _FAR), a, _NEAR)
    between = xp.exp(special.erfc_exponent(xp, b) - 0.5625) / b
    far = xp.where(a >= _FAR, a, _FAR)
    h = 0.5 / far / far
    outer = polynomial(h, _ASYMPTOTIC) / far * (1 / math.sqrt(math.pi))
    y = xp.where(a < _NEAR, close, xp.where(a < _FAR, between, outer))
    return xp.where(xp.isnan(a), a, y)


def _exp_of_square(xp: Any, x: Any, factor: float) -> Any:
    """exp(factor x^2), factor -1/2 or 1: the square of a shortened x is exact."""
    a = xp.minimum(xp.abs(x), 64.0)
    z = xp.rint(a * 2.0**20) * 2.0**-20
    return xp.exp(factor * z * z) * xp.exp(factor * (a - z) * (a + z))
