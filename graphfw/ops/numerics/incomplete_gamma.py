"""The incomplete gamma functions, and their derivatives by the parameter, in float64.

Derivatives are carried along as jets: truncated power series in the parameter.

Sources: series and continued fraction as in W. Gautschi, "A computational procedure for incomplete
gamma functions" (1979) and Abramowitz & Stegun 6.5.29, 6.5.31; for large parameters N. M. Temme,
"The asymptotic expansion of the incomplete gamma functions" (1979), whose coefficients follow from
DLMF 8.12.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from graphfw.ops.numerics.gamma import digamma, lgamma_of_next, log1p_less, stirling
from graphfw.ops.numerics.jets import MOST_ITERATIONS, Jet, exponential, has_converged, settled
from graphfw.ops.numerics.normal import ndtr
from graphfw.ops.numerics.polygamma import polygamma
from graphfw.ops.numerics.wide import full_like, piecewise, polynomial, repeat

__all__ = ["gammainc"]

_LARGE = 8.0
"""From here on Stirling's series is exact."""
_ASYMPTOTIC = 200.0
"""From here on Temme's expansion serves, for x near a."""
_NEAR = 0.3
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
    inside = (a > 0.0) & (a < math.inf) & (x > 0.0) & (x < math.inf)
    p, q = xp.where(inside, a, 1.0), xp.where(inside, x, 1.0)
    is_near = (p >= _ASYMPTOTIC) & (xp.abs(q - p) <= _NEAR * p)
    is_small = (q <= 1.1) & (q < 0.5 / p)
    is_other = ~is_near if order == 0 else q == q
    if upper and order == 0:
        is_other = is_other & ~is_small

    def of(method: Callable[..., Any], is_wanted: bool) -> Callable[..., Any]:
        def value(p: Any, q: Any, *front: Any) -> Any:
            y = method(xp, p, q, Jet.of(front, (order, 0)))
            if is_wanted:
                return y
            return -y if order else 1.0 - y

        return value

    front = _front(xp, p, q, order).values()
    zeros = (0.0,) * len(front)
    pieces = [
        (is_other & (q < p + 1.0), of(_series, not upper), (1.0, 0.5, *zeros)),
        (is_other & (q >= p + 1.0), of(_fraction, upper), (1.0, 4.0, *zeros)),
    ]
    if order == 0:
        pieces.append((is_near, lambda p, q, _: _temme(xp, p, q, upper), (200.0, 200.0, 0.0)))
        if upper:
            pieces.append((is_small & ~is_near, of(_small, True), (0.1, 0.5, 0.0)))
    y = piecewise(xp, pieces, (p, q, *front))
    below = (x == 0.0) | ((a == math.inf) & (x < math.inf))
    above = (x == math.inf) | (a == 0.0)
    if order:
        edge = xp.where(below | above, 0.0, math.nan)
    else:
        edge = xp.where(below, 1.0 if upper else 0.0, math.nan)
        edge = xp.where(above & ~below, 0.0 if upper else 1.0, edge)
    neither = ((a == 0.0) & (x == 0.0)) | ((a == math.inf) & (x == math.inf))
    valid = (a >= 0.0) & (x >= 0.0) & ~neither
    return xp.where(inside, y, xp.where(valid, edge, math.nan))


def _front(xp: Any, a: Any, x: Any, order: int) -> Jet:
    """x^a exp(-x) / Gamma(a + 1)."""
    is_large = a >= _LARGE
    large, at = xp.where(is_large, a, _LARGE), xp.where(is_large, x, _LARGE)
    exponent = large * log1p_less(xp, (at - large) / large, at / large) - stirling(large)
    log = xp.log(x)
    usual = a * log - x - lgamma_of_next(xp, xp.where(is_large, 1.0, a))
    scale = xp.where(is_large, xp.sqrt(2.0 * math.pi * large), 1.0)
    value = xp.exp(xp.where(is_large, exponent, usual)) / scale
    terms: dict[tuple[int, int], Any] = {}
    for i in range(1, order + 1):
        slope = log - digamma(xp, a + 1.0) if i == 1 else -polygamma(xp, i - 1, a + 1.0)
        terms[i, 0] = slope / math.factorial(i)
    return exponential(Jet(terms, (order, 0)), value)


def _series(xp: Any, a: Any, x: Any, front: Jet) -> Any:
    """The lower function: the front times the sum of x^n / ((a + 1) … (a + n))."""
    one = full_like(xp, a, 1.0)
    order = front.order

    def both(values: Sequence[Any]) -> tuple[Jet, Jet]:
        half = len(values) // 2
        return Jet.of(values[:half], order), Jet.of(values[half:], order)

    def step(n: Any, *values: Any) -> tuple[Any, ...]:
        term, total = both(values)
        for _ in range(4):
            n = n + 1.0
            term = term.times(x).over(Jet.linear(a + n, one, order))
            total = total.plus(term)
        return (n, *term.values(), *total.values())

    def again(n: Any, *values: Any) -> Any:
        term, total = both(values)
        return (n < MOST_ITERATIONS) & ~has_converged(xp, term, total, 2.0**-54)

    start = Jet({(0, 0): one}, order).values()
    _, *values = repeat(xp, (full_like(xp, a, 0.0), *start, *start), again, step)
    return front.times(both(values)[1]).derivative()


def _fraction(xp: Any, a: Any, x: Any, front: Jet) -> Any:
    """The upper function: the front times a continued fraction."""
    order = front.order
    one = full_like(xp, a, 1.0)
    count = len(front.values())

    def step(n: Any, is_done: Any, *values: Any) -> tuple[Any, ...]:
        ratio, *both = [Jet.of(values[i * count : i * count + count], order) for i in range(5)]
        now, before = both[:2], both[2:]
        for _ in range(4):
            n = n + 1.0
            across = Jet.linear(x + 2.0 * n + 2.0 - a, -one, order)
            down = Jet.linear(-n * (1.0 + n - a), n, order)
            following = [
                across.times(k).plus(down.times(m)) for k, m in zip(now, before, strict=True)
            ]
            now, before = following, now
        scale = 1.0 / xp.abs(now[1].value)
        now, before = [k.times(scale) for k in now], [k.times(scale) for k in before]
        ratio, is_done = settled(xp, ratio, now[0].over(now[1]), is_done)
        return (n, is_done, *[v for jet in (ratio, *now, *before) for v in jet.values()])

    def again(n: Any, is_done: Any, *values: Any) -> Any:
        return (n < MOST_ITERATIONS) & ~is_done

    unit = Jet({(0, 0): one}, order)
    now = [unit.times(x + 1.0), Jet.linear(x + 2.0 - a, -one, order).times(x)]
    jets = (now[0].over(now[1]), *now, unit, unit.times(x))
    is_zero = front.value == 0.0  # far out, where the terms overflow
    start = (full_like(xp, a, 0.0), is_zero, *[v for jet in jets for v in jet.values()])
    _, _, *values = repeat(xp, start, again, step)
    ratio = Jet.of(values[:count], order)
    y = front.times(Jet.linear(a, one, order)).times(ratio).derivative()
    return xp.where(is_zero, 0.0, y)


def _small(xp: Any, a: Any, x: Any, front: Jet) -> Any:
    """The upper function where 1 less the lower one would lose digits: small a and x."""
    exponent = a * xp.log(x) - lgamma_of_next(xp, a)
    term, total = full_like(xp, a, 1.0), full_like(xp, a, 0.0)
    for n in range(1, 24):
        term = term * -x / float(n)
        total = total + term / (a + float(n))
    return -xp.expm1(exponent) - xp.exp(exponent) * a * total


def _temme(xp: Any, a: Any, x: Any, upper: bool) -> Any:
    """Either function for large a and x near it."""
    mu = (x - a) / a
    phi = -log1p_less(xp, mu, x / a)
    eta = xp.copysign(xp.sqrt(2.0 * phi), mu)
    z = 1.0 / a
    total: Any = 0.0
    for row in reversed(_TEMME):
        total = total * z + polynomial(eta, row)
    rest = total * xp.exp(-a * phi) / xp.sqrt(2.0 * math.pi * a)
    sign = -1.0 if upper else 1.0
    return ndtr(xp, sign * eta * xp.sqrt(a)) - sign * rest
