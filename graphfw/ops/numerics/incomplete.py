"""The incomplete gamma and beta functions, and their derivatives by their parameters, on arrays.

All in float64. Derivatives are carried along as jets: truncated power series in the parameters.

Sources: series and continued fraction of the incomplete gamma function as in W. Gautschi, "A
computational procedure for incomplete gamma functions" (1979) and Abramowitz & Stegun 6.5.29,
6.5.31; for large parameters N. M. Temme, "The asymptotic expansion of the incomplete gamma
functions" (1979), whose coefficients follow from DLMF 8.12. The continued fraction of the
incomplete beta function is Abramowitz & Stegun 26.5.8; its factor in front of it and the logarithm
of the beta function are as in A. R. Didonato and A. H. Morris, Algorithm 708 (1992).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphfw.ops.numerics.gamma import STIRLING, digamma, lgamma, lgamma_above_one
from graphfw.ops.numerics.jets import Jet, exponential
from graphfw.ops.numerics.polygamma import polygamma
from graphfw.ops.numerics.special import erfc
from graphfw.ops.numerics.wide import polynomial

__all__ = ["betainc", "betaln", "gammainc"]

_PIECE = 4096
"""So many elements are computed together: each piece ends when its own have converged."""
_LARGE = 8.0
"""From here on Stirling's series is exact."""
_ASYMPTOTIC = 200.0
"""From here on Temme's expansion serves, for x near a."""
_NEAR = 0.3
_MOST_TRIPS = 20_000
_EPS = 2.0**-54
_TEMME = (
    (
        -0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073,
        0.0003527336860670194, -0.0001787551440329218, 3.919263178522438e-05,
        -2.185448510679992e-06, -1.85406221071516e-06, 8.296711340953087e-07,
        -1.7665952736826078e-07, 6.707853543401498e-09, 1.0261809784240309e-08,
        -4.382036018453353e-09, 9.14769958223679e-10,
    ),
    (
        -0.001851851851851852, -0.003472222222222222, 0.0026455026455026454,
        -0.0009902263374485596, 0.00020576131687242798, -4.018775720164609e-07,
        -1.8098550334489977e-05, 7.64916091608111e-06, -1.6120900894563446e-06,
        4.647127802807434e-09, 1.378633446915721e-07, -5.752545603517705e-08,
        1.1951628599778148e-08,
    ),
    (
        0.004133597883597883, -0.0026813271604938273, 0.0007716049382716049,
        2.0093878600823047e-06, -0.0001073665322636516, 5.2923448829120125e-05,
        -1.2760635188618728e-05, 3.423578734096138e-08, 1.3721957309062934e-06,
        -6.298992138380055e-07, 1.4280614206064242e-07,
    ),
    (
        0.0006494341563786008, 0.00022947209362139917, -0.0004691894943952557,
        0.00026772063206283885, -7.561801671883977e-05, -2.396505113867297e-07,
        1.1082654115347302e-05, -5.6749528269915965e-06, 1.4230900732435883e-06,
    ),
    (
        -0.0008618882909167117, 0.0007840392217200666, -0.0002990724803031902,
        -1.4638452578843418e-06, 6.641498215465122e-05, -3.968365047179435e-05,
        1.1375726970678419e-05,
    ),
    (
        -0.00033679855336635813, -6.972813758365857e-05, 0.0002772753244959392,
        -0.00019932570516188847,
    ),
)  # fmt: skip


def gammainc(xp: Any, a: Any, x: Any, upper: bool, order: int) -> Any:
    """A derivative by `a` of the regularised incomplete gamma function, the lower or the upper."""

    def piece(a: Any, x: Any) -> Any:
        inside = (a > 0) & (a < math.inf) & (x > 0) & (x < math.inf)
        p, q = xp.where(inside, a, 1.0), xp.where(inside, x, 1.0)
        is_near = (p >= _ASYMPTOTIC) & (xp.abs(q - p) <= _NEAR * p) & (order == 0)
        is_small = (q <= 1.1) & (q < 0.5 / p) & upper & (order == 0)
        is_series = ~is_near & ~is_small & (q < p + 1)
        is_fraction = ~is_near & ~is_small & ~is_series
        y = xp.zeros_like(p)
        for mask, method, is_upper in (
            (is_near, lambda xp, p, q, order: _temme(xp, p, q, upper), upper),
            (is_small, _gamma_of_small, True),
            (is_series, _gamma_series, False),
            (is_fraction, _gamma_fraction, True),
        ):
            if mask.any():
                found = method(xp, p[mask], q[mask], order)
                if is_upper != upper:
                    found = -found if order else 1.0 - found
                y[mask] = found
        below = (x == 0) | ((a == math.inf) & (x < math.inf))
        above = (x == math.inf) | (a == 0)
        if order:
            edge = xp.where(below | above, 0.0, math.nan)
        else:
            edge = xp.where(below, 1.0 if upper else 0.0, math.nan)
            edge = xp.where(above & ~below, 0.0 if upper else 1.0, edge)
        valid = (a >= 0) & (x >= 0) & ~((a == 0) & (x == 0)) & ~((a == math.inf) & (x == math.inf))
        return xp.where(inside, y, xp.where(valid, edge, math.nan))

    return _in_pieces(xp, piece, a, x)


def _in_pieces(xp: Any, function: Callable[..., Any], *xs: Any) -> Any:
    """Apply a function to a few thousand elements at a time."""
    shape = np.broadcast_shapes(*[x.shape for x in xs])
    flat = [xp.broadcast_to(x, shape).reshape(-1) for x in xs]
    y = xp.empty(flat[0].shape, xp.float64)
    for start in range(0, y.size, _PIECE):
        part = slice(start, start + _PIECE)
        y[part] = function(*[x[part] for x in flat])
    return y.reshape(shape)


def _log1p_less(xp: Any, x: Any, sum: Any) -> Any:
    """log(1 + x) - x for x > -1, exact near 0; `sum` is 1 + x."""
    is_small = xp.abs(x) < 0.4
    s = xp.where(is_small, x, 0.0)
    r = s / (2.0 + s)
    square = r * r
    odd = polynomial(square, tuple([1 / (2 * k + 3) for k in range(14)]))
    near = r * (2.0 * square * odd - s)
    return xp.where(is_small, near, xp.log(sum) - x)


def _stirling(xp: Any, x: Any) -> Any:
    """What Stirling's formula lacks of lgamma(x), x >= 8."""
    z = 1.0 / x
    return z * polynomial(z * z, STIRLING)


def _gamma_front(xp: Any, a: Any, x: Any, order: int) -> Jet:
    """x^a exp(-x) / Gamma(a + 1)."""
    is_large = a >= _LARGE
    large, at = xp.where(is_large, a, _LARGE), xp.where(is_large, x, _LARGE)
    exponent = large * _log1p_less(xp, (at - large) / large, at / large) - _stirling(xp, large)
    from_large = xp.exp(exponent) / xp.sqrt(2 * math.pi * large)
    log = xp.log(x)
    usual = xp.exp(xp.where(is_large, 0.0, a * log - x - lgamma(xp, a + 1.0)))
    value = xp.where(is_large, from_large, usual)
    terms: dict[tuple[int, int], Any] = {}
    for i in range(1, order + 1):
        slope = log - digamma(xp, a + 1.0) if i == 1 else -polygamma(xp, i - 1, a + 1.0)
        terms[i, 0] = slope / math.factorial(i)
    return exponential(Jet(terms, (order, 0)), value)


def _gamma_series(xp: Any, a: Any, x: Any, order: int) -> Any:
    """The lower function: the front times the sum of x^n / ((a + 1) … (a + n))."""
    one = xp.ones_like(a)
    term = total = Jet({(0, 0): one}, (order, 0))
    for n in range(1, _MOST_TRIPS):
        below = Jet({(0, 0): a + n, (1, 0): one}, (order, 0))
        term = term.times(x).over(below if order else Jet({(0, 0): a + n}, (0, 0)))
        total = total.plus(term)
        if n % 8 == 0 and _has_converged(xp, term, total, _EPS).all():
            break
    return _gamma_front(xp, a, x, order).times(total).derivative()


def _has_converged(xp: Any, change: Jet, total: Jet, eps: float) -> Any:
    """Where all coefficients change by little more than rounding; NaN does not change either."""
    done = True
    for powers, step in change.terms.items():
        scale = xp.abs(total.value)
        if powers != (0, 0):
            scale = 16.0 * (scale + xp.abs(total.terms[powers]))
        done = done & ~(xp.abs(step) > eps * scale)
    return done


def _settled(xp: Any, ratio: Jet, found: Jet, done: Any) -> tuple[Jet, Any]:
    """The new value of continued fractions, and which are done: these stay, for errors add up."""
    change = found.plus(ratio.times(-1.0))
    terms = {
        powers: xp.where(done, ratio.terms.get(powers, 0.0), term)
        for powers, term in found.terms.items()
    }
    return Jet(terms, found.order), done | _has_converged(xp, change, found, 4 * _EPS)


def _gamma_fraction(xp: Any, a: Any, x: Any, order: int) -> Any:
    """The upper function: the front times a continued fraction."""
    limits = (order, 0)

    def linear(value: Any, slope: float) -> Jet:
        return Jet({(0, 0): value, (1, 0): slope} if order else {(0, 0): value}, limits)

    one = xp.ones_like(a)
    before = [Jet({(0, 0): one}, limits), Jet({(0, 0): x}, limits)]
    first = linear(x + 2.0 - a, -1.0)
    now = [Jet({(0, 0): x + 1.0}, limits), first.times(x)]
    ratio = now[0].over(now[1])
    done = xp.zeros(a.shape, bool)
    for n in range(1, _MOST_TRIPS):
        across = linear(x + 2.0 * n + 2.0 - a, -1.0)
        down = linear(-n * (1.0 + n - a), float(n))
        now, before = (
            [across.times(k).plus(down.times(m)) for k, m in zip(now, before, strict=True)],
            now,
        )
        if n % 8 == 0:
            scale = 1.0 / xp.abs(now[1].value)
            now, before = [k.times(scale) for k in now], [k.times(scale) for k in before]
            ratio, done = _settled(xp, ratio, now[0].over(now[1]), done)
            if done.all():
                break
    front = _gamma_front(xp, a, x, order)
    return front.times(linear(a, 1.0)).times(ratio).derivative()


def _gamma_of_small(xp: Any, a: Any, x: Any, order: int) -> Any:
    """The upper function where 1 less the lower one would lose digits: small a and x."""
    log = a * xp.log(x)
    is_low = a < 0.23
    low = xp.where(is_low, a, 0.1)
    lgamma1p = xp.where(is_low, lgamma_above_one(low), lgamma(xp, a + 1.0))
    term, total = xp.ones_like(a), xp.zeros_like(a)
    for n in range(1, 24):
        term = term * -x / n
        total = total + term / (a + n)
    return -xp.expm1(log - lgamma1p) - xp.exp(log - lgamma1p) * a * total


def _temme(xp: Any, a: Any, x: Any, upper: bool) -> Any:
    """Either function for large a and x near it."""
    mu = (x - a) / a
    phi = -_log1p_less(xp, mu, x / a)
    eta = xp.copysign(xp.sqrt(2.0 * phi), mu)
    z = 1.0 / a
    total: Any = 0.0
    for row in reversed(_TEMME):
        total = total * z + polynomial(eta, row)
    rest = total * xp.exp(-a * phi) / xp.sqrt(2 * math.pi * a)
    sign = 1.0 if upper else -1.0
    return 0.5 * erfc(xp, sign * eta * xp.sqrt(0.5 * a)) + sign * rest


def betaln(xp: Any, a: Any, b: Any) -> Any:
    """The logarithm of the absolute value of the beta function."""
    low, high = xp.minimum(a, b), xp.maximum(a, b)
    is_large, are_large = high >= _LARGE, low >= _LARGE
    h = xp.where(is_large & (high < math.inf), high, _LARGE)
    least = xp.where(is_large & (low > 0), xp.minimum(low, h), 1.0)
    # lgamma(h) - lgamma(least + h)
    less = -(least + h - 0.5) * xp.log1p(least / h) - least * (xp.log(h) - 1.0)
    less = less + _stirling(xp, h) - _stirling(xp, least + h)
    m = xp.where(are_large, least, _LARGE)
    both = (
        -0.5 * xp.log(h)
        + (m - 0.5) * xp.log(m / (m + h))
        - h * xp.log1p(m / h)
        + 0.5 * math.log(2 * math.pi)
        + (_stirling(xp, m) + _stirling(xp, h) - _stirling(xp, m + h))
    )
    one = lgamma(xp, least) + less
    usual_low, usual_high = [xp.where(is_large & (low > 0), 1.0, v) for v in (low, high)]
    small = lgamma(xp, usual_low) + (lgamma(xp, usual_high) - lgamma(xp, usual_low + usual_high))
    y = xp.where(is_large & (low > 0), xp.where(are_large, both, one), small)
    y = xp.where((high == math.inf) & (low > 0), -math.inf, y)
    return xp.where(xp.isnan(a) | xp.isnan(b), math.nan, y)


def betainc(xp: Any, a: Any, b: Any, x: Any, order: tuple[int, int]) -> Any:
    """A derivative by `a` and `b` of the regularised incomplete beta function."""
    is_value = order == (0, 0)

    def piece(a: Any, b: Any, x: Any) -> Any:
        inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & (a < math.inf) & (b < math.inf)
        p, q, z = [xp.where(inside, v, d) for v, d in ((a, 1.0), (b, 1.0), (x, 0.5))]
        turns = z > (p + 1.0) / (p + q + 2.0)
        y = xp.zeros_like(p)
        for mask, is_turned in ((~turns, False), (turns, True)):
            if not mask.any():
                continue
            u, v, w = p[mask], q[mask], z[mask]
            if is_turned:
                found = _beta_fraction(xp, v, u, 1.0 - w, w, order[::-1])
                y[mask] = 1.0 - found if is_value else -found
            else:
                y[mask] = _beta_fraction(xp, u, v, w, 1.0 - w, order)
        known = (a >= 0) & (b >= 0) & (x >= 0) & (x <= 1)
        below = (x == 0) | (b == 0) | (a == math.inf)
        above = (x == 1) | (a == 0) | (b == math.inf)
        if is_value:
            at_end = (x == 0) | (x == 1)
            edge = xp.where(at_end, x, xp.where(above, 1.0, 0.0))
            edge = xp.where(below & above & ~at_end, math.nan, edge)
        else:
            edge = 0.0
        return xp.where(inside, y, xp.where(known, edge, math.nan))

    return _in_pieces(xp, piece, a, b, x)


def _beta_front(xp: Any, a: Any, b: Any, x: Any, y: Any, order: tuple[int, int]) -> Jet:
    """x^a y^b / B(a, b), where y = 1 - x."""
    are_large = xp.minimum(a, b) >= _LARGE
    p, q, z = [xp.where(are_large, v, d) for v, d in ((a, _LARGE), (b, _LARGE), (x, 0.5))]
    w = xp.where(are_large, y, 0.5)
    whole = p + q
    away = xp.where(p <= q, p - whole * z, whole * w - q)
    left = p * _log1p_less(xp, -away / p, z * whole / p)
    exponent = left + q * _log1p_less(xp, away / q, w * whole / q)
    correction = _stirling(xp, p) + _stirling(xp, q) - _stirling(xp, whole)
    from_large = xp.sqrt(p / whole * q) * xp.exp(exponent - correction) / math.sqrt(2 * math.pi)
    logs = xp.log(x), xp.where(x < 0.5, xp.log1p(-x), xp.log(y))
    usual = xp.exp(xp.where(are_large, 0.0, a * logs[0] + b * logs[1] - betaln(xp, a, b)))
    terms: dict[tuple[int, int], Any] = {}
    for i in range(order[0] + 1):
        for j in range(order[1] + 1):
            if i + j:
                slope = _psi(xp, i + j - 1, a + b)
                if j == 0:
                    slope = slope - _psi(xp, i - 1, a) + (logs[0] if i == 1 else 0.0)
                if i == 0:
                    slope = slope - _psi(xp, j - 1, b) + (logs[1] if j == 1 else 0.0)
                terms[i, j] = slope / (math.factorial(i) * math.factorial(j))
    return exponential(Jet(terms, order), xp.where(are_large, from_large, usual))


def _psi(xp: Any, n: int, x: Any) -> Any:
    return polygamma(xp, n, x) if n else digamma(xp, x)


def _beta_fraction(xp: Any, a: Any, b: Any, x: Any, y: Any, order: tuple[int, int]) -> Any:
    one = xp.ones_like(a)

    def linear(value: Any, by_a: float, by_b: float = 0.0) -> Jet:
        terms = {(0, 0): value}
        if order[0]:
            terms[1, 0] = by_a
        if order[1] and by_b:
            terms[0, 1] = by_b
        return Jet(terms, order)

    unit = Jet({(0, 0): one}, order)
    before, now = [unit, Jet({(0, 0): 0.0 * one}, order)], [unit, unit]
    # now[0] / now[1] is 1 + d1 / (1 + d2 / (1 + …)); its inverse is what is wanted
    ratio = unit
    done = xp.zeros(a.shape, bool)
    for m in range(_MOST_TRIPS):
        odd = linear(a + m, 1.0).times(linear(a + b + m, 1.0, 1.0)).times(-x)
        odd = odd.over(linear(a + 2.0 * m, 1.0).times(linear(a + 2.0 * m + 1.0, 1.0)))
        if m:
            even = linear(m * (b - m), 0.0, float(m)).times(x)
            even = even.over(linear(a + 2.0 * m - 1.0, 1.0).times(linear(a + 2.0 * m, 1.0)))
            now, before = _onward(now, before, even)
        now, before = _onward(now, before, odd)
        if m % 8 == 7:
            scale = 1.0 / xp.abs(now[0].value)
            now, before = [k.times(scale) for k in now], [k.times(scale) for k in before]
            ratio, done = _settled(xp, ratio, now[1].over(now[0]), done)
            if done.all():
                break
    front = _beta_front(xp, a, b, x, y, order).over(linear(a, 1.0))
    return front.times(ratio).derivative()


def _onward(now: list[Jet], before: list[Jet], d: Jet) -> tuple[list[Jet], list[Jet]]:
    return [k.plus(d.times(m)) for k, m in zip(now, before, strict=True)], now
