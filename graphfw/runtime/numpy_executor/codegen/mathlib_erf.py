"""The error functions as formulas; see `mathlib_exp` on the polynomials."""

from __future__ import annotations

import math

from graphfw.ops.numerics import special
from graphfw.runtime.numpy_executor.codegen.mathlib_exp import exp_within, log
from graphfw.runtime.numpy_executor.codegen.mathlib_writer import MathBody, Value

# erf(x) = x + x P(x²) for |x| <= 1: 2^-29.3, 2^-56.3.
_ERF_32 = (
    0.12837916612625122, -0.3761262595653534, 0.11283581703901291, -0.026853589341044426,
    0.005187826231122017, -0.0008005345007404685, 7.836775330360979e-05,
)  # fmt: skip
_ERF_64 = (
    0.1283791670955126, -0.37612638903184076, 0.11283791670969515, -0.0268661706476727,
    0.005223977648821495, -0.0008548328298874294, 0.00012055377215500553, -1.492666088488004e-05,
    1.6477480843979867e-06, -1.6519077240144333e-07, 1.575799533148976e-08,
    -1.5485394757554137e-09, 1.270485548042903e-10,
)  # fmt: skip
# erfc(x) = P(x)⁴ for 1 <= x <= 3.95, from where on erf is 1 in float32: 8.5e-9, absolute.
_ROOT_32 = (
    1.0021846294403076, -0.29362085461616516, -0.09323877841234207, -0.017613939940929413,
    0.04391320422291756, -0.012797948904335499, 0.0007895262679085135, 0.0001758104481268674,
    -2.2126154362922534e-05,
)  # fmt: skip
# (1 + 2 x) e^(x²) erfc(x) = P((x - k) / (x + k)): k = 2 for x < 11: 2^-25.5, k = 3 for x < 28:
# 2^-54.6.
_SCALED_32 = (
    1.2769783735275269, -0.09276394546031952, -0.16603121161460876, 0.1640552431344986,
    -0.05420404672622681, -0.00806018803268671, 0.008626624941825867, 0.0013119998620823026,
    -0.0012213496956974268, -0.0003947003569919616,
)  # fmt: skip
_SCALED_64 = (
    1.2530080582697296, -0.13562110612458125, -0.04756229435344357, 0.1296451587027513,
    -0.11927366341554968, 0.06830802734478904, -0.02377051491493897, 0.00252939179832551,
    0.0018886903251321189, -0.0007798320897252427, -0.00010515958580140652,
    0.00012509829139914939, 4.948520288790148e-06, -2.009677945763197e-05, -7.284244839889442e-07,
    3.463835270100817e-06, 3.500513859726111e-07, -6.043549127787384e-07, -1.3176014309944993e-07,
    9.11637106632351e-08, 3.297011319702775e-08, -8.232933776056364e-09, -4.12765390038068e-09,
)  # fmt: skip

# ndtr(-x) = P(x - 3)⁴ for 0 <= x <= 4: 2^-25.3; from there to 5.6 2^-27, absolute. Other powers and
# other points than 3 have larger rounding errors.
_FOURTH_ROOT_32 = (
    0.19167931377887726, -0.15732552111148834, 0.04229505732655525, 0.00036242915666662157,
    -0.0023386969696730375, 0.00030368330772034824, 5.870457607670687e-05, -1.7194304746226408e-05,
    -1.6606787767159403e-07, 5.36962318165024e-07, -6.313575884320244e-09, -6.954341991161073e-09,
)  # fmt: skip

# x e^(x²/2) ndtr(-x) = P(1 / x²) for 4 <= x <= 14.5: 2^-25.2.
_MILLS_32 = (
    0.39894211292266846, -0.39888137578964233, 1.1891114711761475, -5.520109176635742,
    26.68716049194336, -77.56053161621094,
)  # fmt: skip

# erfinv(x) / x of w = -log(1 - x²): P(w - 2.5) for w < 5, P(sqrt(w) - 3) for w < 16, which is all
# that there is in float32: 2^-27.3.
_INVERSE_NEAR_32 = (
    1.5014094114303589, 0.24664027988910675, -0.004177386872470379, -0.0012527419021353126,
    0.00021834444487467408, -4.963347691955278e-06, -3.4627048535185168e-06,
    4.6617066118415096e-07, 2.3232644252857426e-08, -8.791056771428885e-09,
)  # fmt: skip
_INVERSE_FAR_32 = (
    2.832976818084717, 1.0016751289367676, 0.009445684030652046, -0.007639409974217415,
    0.005683172028511763, -0.0035869874991476536, 0.0014958580723032355, -7.662014104425907e-05,
    -0.0003187243710272014, 0.0001289648498641327,
)  # fmt: skip


def erf(m: MathBody, x: Value) -> Value:
    """The error function: up to 1 a polynomial, from there on 1 - erfc."""
    size = m.abs(x)
    near = _erf_of_small(m, size)
    if m.is_double:
        far = 1 - _erfc_of_size(m, m.at_most(size, 6))
    else:
        root = m.polynomial(m.at_most(size, 3.95), _ROOT_32)
        square = root * root
        far = m.fma(-square, square, 1)
    return m.copysign(m.select(size < 1, near, far), x)


def _erf_of_small(m: MathBody, x: Value) -> Value:
    return m.fma(x, m.polynomial(x * x, _ERF_64 if m.is_double else _ERF_32), x)


def erfc(m: MathBody, x: Value) -> Value:
    """1 - erf(x), of positive x from 1/2 on a product, so that small results are exact."""
    # What is larger has the result 0.
    size = m.at_most(m.abs(x), m.pick(10.5, 27.5))
    y = _erfc_of_size(m, size)
    far = m.select(x < 0, 2 - y, y)
    return m.select(size < 0.5, 1 - _erf_of_small(m, x), far)


def _erfc_of_size(m: MathBody, x: Value) -> Value:
    """Return erfc(x) of x >= 0: e^(-x²) times a smooth function of x."""
    return _power_of_square(m, x, 1) * _scaled_erfc(m, x) / m.fma(x, 2, 1)


def _scaled_erfc(m: MathBody, x: Value) -> Value:
    """Return (1 + 2 x) e^(x²) erfc(x) of x >= 0."""
    k = m.pick(2, 3)
    return m.polynomial((x - k) / (x + k), _SCALED_64 if m.is_double else _SCALED_32)


def _power_of_square(m: MathBody, x: Value, scale: float) -> Value:
    """Return e^(-scale x²); the scale is a power of two."""
    # The square's rounding error, as large as the exponent, is a factor of its own.
    square = x * x
    error = m.fma(x, x, -square)
    return exp_within(m, square * -scale, error * -scale)


def ndtr(m: MathBody, x: Value) -> Value:
    """The normal distribution function; that of a negative x as e^(-x²/2) times a smooth function.

    In float32 that is for x < -4 only, which is rare; nearer to 0 a power of a polynomial will do.
    """
    size = m.abs(x)
    if m.is_double:
        tail = _ndtr_tail(m, size)
        return m.select(x < 0, tail, 1 - tail)
    root = m.polynomial(m.at_most(size, 5.6) - 3, _FOURTH_ROOT_32)
    square = root * root
    near = m.select(x < 0, square * square, m.fma(-square, square, 1))
    return m.where_rare(x < -4, lambda: _ndtr_far(m, size), near)


def _ndtr_tail(m: MathBody, x: Value) -> Value:
    """Return ndtr(-x) of x >= 0."""
    size = m.at_most(x, 38.7)  # of what is larger it is 0
    root = size * math.sqrt(0.5)
    return _power_of_square(m, size, 0.5) * _scaled_erfc(m, root) / m.fma(root, 4, 2)


def _ndtr_far(m: MathBody, x: Value) -> Value:
    """Return ndtr(-x) of x >= 4 in float32, by Mills' ratio."""
    size = m.at_most(x, 14.5)  # of what is larger it is 0
    inverse = 1 / size
    ratio = inverse * m.polynomial(inverse * inverse, _MILLS_32)
    return _power_of_square(m, size, 0.5) * ratio


def erfinv(m: MathBody, x: Value) -> Value:
    """The inverse of the error function."""
    size = m.abs(x)
    y = _quantile(m, size) if m.is_double else _inverse_32(m, size)
    y = m.select(size.equals(1), math.inf, y)
    return m.copysign(m.select(size > 1, math.nan, y), x)


def _inverse_32(m: MathBody, x: Value) -> Value:
    """M. Giles, "Approximating the erfinv function", 2011; of other intervals and degrees."""
    w = -log(m, m.fma(-x, x, 1))
    near = m.polynomial(w - 2.5, _INVERSE_NEAR_32)
    far = m.polynomial(m.sqrt(w) - 3, _INVERSE_FAR_32)
    return x * m.select(w < 5, near, far)


def _quantile(m: MathBody, x: Value) -> Value:
    """Wichura's AS 241, as `numerics.erfinv` has it: one of three quotients of polynomials."""
    t = m.sqrt(-log(m, m.fma(x, -0.5, 0.5)))
    pieces = (
        (m.fma(x * x, -0.25, 0.180625), special.QUANTILE_CENTRE_P, special.QUANTILE_CENTRE_Q),
        (t - 1.6, special.QUANTILE_TAIL_P, special.QUANTILE_TAIL_Q),
        (t - 5, special.QUANTILE_FAR_P, special.QUANTILE_FAR_Q),
    )
    centre, near, far = [[m.polynomial(at, c) for c in both] for at, *both in pieces]
    is_near, is_far = x > 0.85, t > 5
    above, below = [
        m.select(is_near, m.select(is_far, c, b), a)
        for a, b, c in zip(centre, near, far, strict=True)
    ]
    scale = m.select(is_near, math.sqrt(0.5), x * (0.5 * math.sqrt(0.5)))
    return scale * (above / below)
