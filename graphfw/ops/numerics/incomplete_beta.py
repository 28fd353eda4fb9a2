"""The incomplete beta function, its derivatives by the parameters, and betaln, in float64.

Derivatives are carried along as jets: truncated power series in the parameters.

Sources: the continued fraction is Abramowitz & Stegun 26.5.8; the factor in front of it and the
logarithm of the beta function are as in A. R. Didonato and A. H. Morris, Algorithm 708 (1992).
"""

from __future__ import annotations

import math
from typing import Any

from graphfw.ops.numerics.gamma import (
    digamma,
    lgamma_of_next,
    lgamma_step,
    log1p_less,
    stirling,
)
from graphfw.ops.numerics.jets import MOST_ITERATIONS, Jet, exponential, settled
from graphfw.ops.numerics.polygamma import polygamma
from graphfw.ops.numerics.wide import full_like, piecewise, repeat

__all__ = ["betainc", "betaln"]

_LARGE = 8.0
"""From here on Stirling's series is exact."""
_SMALL = 0.5
"""Up to here, a lower function above the mean may be tiny."""


def betaln(xp: Any, a: Any, b: Any) -> Any:
    """The logarithm of the beta function; NaN where a or b is negative."""
    low, high = xp.minimum(a, b), xp.maximum(a, b)
    are_large = low >= _LARGE
    h = xp.where(are_large & (high < math.inf), high, _LARGE)
    m = xp.where(are_large, xp.minimum(low, h), _LARGE)
    both = (
        -0.5 * xp.log(h)
        + (m - 0.5) * xp.log(m / (m + h))
        - h * xp.log1p(m / h)
        + 0.5 * math.log(2 * math.pi)
        + (stirling(m) + stirling(h) - stirling(m + h))
    )
    is_usual = (low > 0.0) & ~are_large & (high < math.inf)
    least, most = xp.where(is_usual, low, 1.0), xp.where(is_usual, high, 1.0)
    one = _scaled(xp, least, most) - xp.log(least)
    y = xp.where(are_large, both, xp.where(is_usual, one, xp.where(low == 0.0, math.inf, math.nan)))
    y = xp.where((high == math.inf) & (low > 0.0), -math.inf, y)
    return xp.where(xp.isnan(a) | xp.isnan(b), math.nan, y)


def _scaled(xp: Any, low: Any, high: Any) -> Any:
    """log(low B(low, high)) for 0 < low < 8 and high >= low, exact also for small low."""
    return lgamma_of_next(xp, low) - lgamma_step(xp, high, low)


def betainc(xp: Any, a: Any, b: Any, x: Any, order: tuple[int, int]) -> Any:
    """A derivative by `a` and `b` of the regularised incomplete beta function."""
    is_value = order == (0, 0)
    inside = (a > 0.0) & (b > 0.0) & (x > 0.0) & (x < 1.0) & (a < math.inf) & (b < math.inf)
    p, q, z = [xp.where(inside, v, d) for v, d in ((a, 1.0), (b, 1.0), (x, 0.5))]
    # Above the mean, 1 less the function with a and b exchanged.
    turns = z > (p + 1.0) / (p + q + 2.0)
    first, second = xp.where(turns, q, p), xp.where(turns, p, q)
    near, far = xp.where(turns, 1.0 - z, z), xp.where(turns, z, 1.0 - z)
    by_a = xp.where(turns, 0.0, 1.0)
    u = _moving(first, by_a, 1.0 - by_a, order)
    v = _moving(second, 1.0 - by_a, by_a, order)
    found = _fraction(xp, u, v, near, far)
    if is_value:
        is_small = turns & (q < _SMALL)
        found = xp.where(turns, 1.0 - found, found)
        small = [(is_small, lambda p, q, w: _small(xp, p, q, w), (1.0, 0.1, 0.25))]
        found = xp.where(is_small, piecewise(xp, small, (p, q, near)), found)
    else:
        found = xp.where(turns, -found, found)
    known = (a >= 0.0) & (b >= 0.0) & (x >= 0.0) & (x <= 1.0)
    below = (x == 0.0) | (b == 0.0) | (a == math.inf)
    above = (x == 1.0) | (a == 0.0) | (b == math.inf)
    edge = full_like(xp, found, 0.0)
    if is_value:
        at_end = (x == 0.0) | (x == 1.0)
        edge = xp.where(at_end, x, xp.where(above, 1.0, 0.0))
        edge = xp.where(below & above & ~at_end, math.nan, edge)
    return xp.where(inside, found, xp.where(known, edge, math.nan))


def _moving(value: Any, by_a: Any, by_b: Any, order: tuple[int, int]) -> Jet:
    terms = {(0, 0): value}
    if order[0]:
        terms[1, 0] = by_a
    if order[1]:
        terms[0, 1] = by_b
    return Jet(terms, order)


def _small(xp: Any, a: Any, b: Any, y: Any) -> Any:
    """The function of x = 1 - y above the mean, of a small b.

    The integral from 0 to x is B(a, b) less that up to y with a and b exchanged, whose power series
    begins with y^b / b (Abramowitz & Stegun 26.5.4). Both are near 1 / b, which is left out:

        b B(a, b) I = (b B(a, b) - 1) - (y^b - 1) - b y^b sum of (1 - a)_n / n! y^n / (b + n)
    """
    whole = xp.expm1(lgamma_of_next(xp, b) - lgamma_step(xp, a, b))
    power = xp.expm1(b * xp.log(y))

    def step(n: Any, term: Any, total: Any) -> tuple[Any, ...]:
        for _ in range(4):
            n = n + 1.0
            term = term * ((n - a) / n * y)
            total = total + term / (b + n)
        return n, term, total

    def again(n: Any, term: Any, total: Any) -> Any:
        return (n < MOST_ITERATIONS) & (xp.abs(term) > 2.0**-54 * xp.abs(total) * (b + n))

    zero = full_like(xp, a, 0.0)
    _, _, total = repeat(xp, step(zero, full_like(xp, a, 1.0), zero), again, step)
    return (whole - power - b * (1.0 + power) * total) / (1.0 + whole)


def _front(xp: Any, u: Jet, v: Jet, x: Any, y: Any) -> Jet:
    """x^a y^b / B(a, b), where y = 1 - x."""
    a, b, order = u.value, v.value, u.order
    low, high = xp.minimum(a, b), xp.maximum(a, b)
    are_large = low >= _LARGE
    p, q, z = [xp.where(are_large, v, d) for v, d in ((a, _LARGE), (b, _LARGE), (x, 0.5))]
    w = xp.where(are_large, y, 0.5)
    whole = p + q
    away = xp.where(p <= q, p - whole * z, whole * w - q)
    left = p * log1p_less(xp, -away / p, z * whole / p)
    exponent = left + q * log1p_less(xp, away / q, w * whole / q)
    correction = stirling(p) + stirling(q) - stirling(whole)
    least, most = xp.where(are_large, 1.0, low), xp.where(are_large, 1.0, high)
    logs = xp.log(x), xp.where(x < 0.5, xp.log1p(-x), xp.log(y))
    usual = a * logs[0] + b * logs[1] - _scaled(xp, least, most)
    scale = xp.where(are_large, xp.sqrt(p / whole * q) / math.sqrt(2 * math.pi), least)
    value = scale * xp.exp(xp.where(are_large, exponent - correction, usual))
    # The logarithm's own: a log x + b log y - lgamma(a) - lgamma(b) + lgamma(a + b)
    log = u.times(logs[0]).plus(v.times(logs[1]))
    if order != (0, 0):
        whole_jet = u.plus(v)
        for jet, sign in ((u, -1.0), (v, -1.0), (whole_jet, 1.0)):
            log = log.plus(_lgamma_jet(xp, jet).times(sign))
    return exponential(log, value)


def _lgamma_jet(xp: Any, x: Jet) -> Jet:
    """lgamma of what moves in proportion to the variables, but for its value, which is left out."""
    move = Jet({powers: term for powers, term in x.terms.items() if powers != (0, 0)}, x.order)
    total, power = Jet({(0, 0): 0.0 * x.value}, x.order), move
    for n in range(1, sum(x.order) + 1):
        slope = polygamma(xp, n - 1, x.value) if n > 1 else digamma(xp, x.value)
        total = total.plus(power.times(slope / math.factorial(n)))
        power = power.times(move)
    return total


def _fraction(xp: Any, u: Jet, v: Jet, x: Any, y: Any) -> Any:
    """The function below the mean: the front times a continued fraction."""
    order = u.order
    both = u.plus(v)
    one = full_like(xp, u.value, 1.0)
    unit = Jet({(0, 0): one}, order)
    count = len(unit.values())

    def shifted(jet: Jet, by: Any) -> Jet:
        return Jet(jet.terms | {(0, 0): jet.value + by}, order)

    def onward(now: list[Jet], before: list[Jet], d: Jet) -> tuple[list[Jet], list[Jet]]:
        return [k.plus(d.times(m)) for k, m in zip(now, before, strict=True)], now

    def odd(m: Any) -> Jet:
        d = shifted(u, m).times(shifted(both, m)).times(-x)
        return d.over(shifted(u, 2.0 * m).times(shifted(u, 2.0 * m + 1.0)))

    def even(m: Any) -> Jet:
        d = shifted(v, -m).times(m * x)
        return d.over(shifted(u, 2.0 * m - 1.0).times(shifted(u, 2.0 * m)))

    # now[0] / now[1] is 1 + d1 / (1 + d2 / (1 + …)); its inverse is what is wanted
    def step(m: Any, is_done: Any, *values: Any) -> tuple[Any, ...]:
        ratio, *rest = [Jet.of(values[i * count : i * count + count], order) for i in range(5)]
        now, before = rest[:2], rest[2:]
        for _ in range(3):
            m = m + 1.0
            now, before = onward(now, before, even(m))
            now, before = onward(now, before, odd(m))
        scale = 1.0 / xp.abs(now[0].value)
        now, before = [k.times(scale) for k in now], [k.times(scale) for k in before]
        ratio, is_done = settled(xp, ratio, now[1].over(now[0]), is_done)
        return (m, is_done, *[t for jet in (ratio, *now, *before) for t in jet.values()])

    def again(m: Any, is_done: Any, *values: Any) -> Any:
        return (m < MOST_ITERATIONS) & ~is_done

    zero = 0.0 * one
    now, before = onward([unit, unit], [unit, unit.times(0.0)], odd(zero))
    jets = (unit, *now, *before)
    start = (zero, one < 0.0, *[t for jet in jets for t in jet.values()])
    _, _, *values = repeat(xp, start, again, step)
    front = _front(xp, u, v, x, y).over(u)
    return front.times(Jet.of(values[:count], order)).derivative()
