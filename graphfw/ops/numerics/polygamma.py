"""The polygamma functions as pure functions of an array module, in float64."""

from __future__ import annotations

import math
from typing import Any

from graphfw.ops.numerics.wide import polynomial

__all__ = ["polygamma"]

# Bernoulli numbers B_2, B_4, ….
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)

# Where the asymptotic series takes over; up to there the recurrence is applied.
_SHIFT = 12


def polygamma(xp: Any, n: int, x: Any) -> Any:
    """The n-th derivative of digamma, n >= 1: at 0, -1, -2, … inf for odd n and NaN for even n.

    For x > 0, (-1)^(n+1) n! times the Hurwitz zeta function of n + 1 by Euler-Maclaurin summation
    (Abramowitz & Stegun 6.4.10, 23.2.23); for x < 0 by reflection (6.4.7).

    >>> import numpy as np
    >>> polygamma(np, 1, np.array([1.0, -0.5])).round(6).tolist()
    [1.644934, 8.934802]
    """
    left = x <= 0.0
    safe = xp.where(left, 1.0 - x, x)
    sign = 1.0 if n % 2 else -1.0
    positive = sign * math.factorial(n) * _zeta(n + 1, safe)
    # psi_n(1 - x) + (-1)^(n+1) psi_n(x) = (-1)^n pi d^n/dx^n cot(pi x)
    reflected = -math.pi * _cot_derivative(xp, n, xp.where(left, x, 0.5)) - sign * positive
    result = xp.where(left, reflected, positive)
    pole = left & (x == xp.floor(x))
    return xp.where(pole, math.inf if n % 2 else math.nan, result)


def _zeta(s: int, x: Any) -> Any:
    """The sum of (x + k)^-s over k >= 0, for x > 0."""
    total = 0.0
    for k in range(_SHIFT):
        total = total + _power(1.0 / (x + float(k)), s)
    z = 1.0 / (x + float(_SHIFT))
    # B_2j / (2j)! times s (s + 1) … (s + 2j - 2), of z^(s + 2j - 1)
    rising = float(s)
    series = []
    for j, bernoulli in enumerate(_BERNOULLI, 1):
        series.append(bernoulli / math.factorial(2 * j) * rising)
        rising *= (s + 2 * j - 1) * (s + 2 * j)
    rest = 1.0 / (s - 1) + z * (0.5 + z * polynomial(z * z, tuple(series)))
    return total + _power(z, s - 1) * rest


def _power(x: Any, n: int) -> Any:
    """x^n, n >= 1, by multiplication."""
    half = _power(x, n // 2) if n > 1 else None
    if half is None:
        return x
    return half * half * x if n % 2 else half * half


def _cot_derivative(xp: Any, n: int, x: Any) -> Any:
    """The n-th derivative of cot(pi x), by x."""
    # As a polynomial in c = cot(pi x), whose own derivative is -pi (1 + c^2).
    poly = [0.0, 1.0]
    for _ in range(n):
        slope = [i * c for i, c in enumerate(poly)][1:]
        poly = [0.0] * (len(slope) + 2)
        for i, c in enumerate(slope):
            poly[i] -= math.pi * c
            poly[i + 2] -= math.pi * c
    # The period of cot: near a large integer, pi x would have lost all its digits.
    return polynomial(1.0 / xp.tan(math.pi * (x - xp.rint(x))), tuple(poly))
