"""The polygamma functions as pure functions of an array module: see `special`."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["polygamma"]

# Bernoulli numbers B_2, B_4, ….
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)

# Where the asymptotic series takes over; up to there the recurrence is applied.
_SHIFT = 12


def polygamma(xp: Any, n: int, x: Any) -> Any:
    """The n-th derivative of digamma, n >= 1.

    x: [*S] -> [*S], dtype kept, computed in float64. At 0, -1, -2, … it is inf for odd n and NaN
    for even n, where the two sides differ.

    For x > 0, (-1)^(n+1) n! times the Hurwitz zeta function of n + 1 by Euler-Maclaurin summation
    (Abramowitz & Stegun 6.4.10, 23.2.23); for x < 0 by reflection (6.4.7).

    >>> import numpy as np
    >>> polygamma(np, 1, np.array([1.0, -0.5])).round(6).tolist()
    [1.644934, 8.934802]
    """
    wide = x.astype(xp.float64)
    left = wide <= 0
    safe = xp.where(left, 1 - wide, wide)
    sign = 1.0 if n % 2 else -1.0
    positive = sign * math.factorial(n) * _zeta(xp, n + 1, safe)
    # psi_n(1 - x) + (-1)^(n+1) psi_n(x) = (-1)^n pi d^n/dx^n cot(pi x)
    reflected = -math.pi * _cot_derivative(xp, n, xp.where(left, wide, 0.5)) - sign * positive
    result = xp.where(left, reflected, positive)
    pole = left & (wide == xp.floor(wide))
    return xp.where(pole, math.inf if n % 2 else math.nan, result).astype(x.dtype)


def _zeta(xp: Any, s: int, x: Any) -> Any:
    """The sum of (x + k)^-s over k >= 0, for x > 0."""
    total = xp.zeros_like(x)
    for k in range(_SHIFT):
        total = total + (x + k) ** -s
    a = x + _SHIFT
    total = total + a ** (1 - s) / (s - 1) + 0.5 * a**-s
    # B_2j / (2j)! times s (s + 1) … (s + 2j - 2) a^-(s + 2j - 1)
    rising = float(s)
    for j, bernoulli in enumerate(_BERNOULLI, 1):
        total = total + bernoulli / math.factorial(2 * j) * rising * a ** -(s + 2 * j - 1)
        rising *= (s + 2 * j - 1) * (s + 2 * j)
    return total


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
    c = 1 / xp.tan(math.pi * (x - xp.rint(x)))
    result = xp.zeros_like(c)
    for coefficient in reversed(poly):
        result = result * c + coefficient
    return result
