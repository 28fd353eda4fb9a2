"""Bessel functions of orders 0 and 1 as pure functions of an array module, in float64.

Near 0 (up to 8): the power series of I (Abramowitz & Stegun 9.6.10), and Chebyshev series of J and
of what Y is besides a logarithm (9.1.10, 9.1.11). Beyond: Chebyshev series in 8 / x of the factors
of the asymptotic forms, sqrt(x) exp(-x) I(x) (9.7.1), and P and Q with

    J(x) + i Y(x) = sqrt(2 / (pi x)) (P + i Q) exp(i (x - pi / 4 - order pi / 2))    (9.2.5, 9.2.6)

The coefficients were computed by interpolation at 48 Chebyshev points with 60 digits, of mpmath's
functions.
"""

from __future__ import annotations

import math
from typing import Any

from graphfw.ops.numerics.wide import polynomial, series

__all__ = ["i0", "i0e", "i1", "i1e", "j0", "j1", "y0", "y1"]

_EDGE = 8.0
# I0(x) = sum of (x/2)^2k / k!^2, I1(x) = x/2 times the sum of (x/2)^2k / (k! (k + 1)!)
_I0_NEAR = tuple([1 / math.factorial(k) ** 2 for k in range(25)])
_I1_NEAR = tuple([1 / (math.factorial(k) * math.factorial(k + 1)) for k in range(25)])
# sqrt(x) exp(-x) I(x), in t = 16 / x - 1
_I0_FAR = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06,
    2.0489185894690638e-07, 2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10,
    1.1889147107846439e-11, -3.1499165279632416e-11, -1.3215811840447713e-11,
    -1.7941785315068062e-12, 7.180124451383666e-13, 3.8527783827421426e-13, 1.54008621752141e-14,
    -4.150569347287222e-14, -9.554846698828307e-15, 3.8116806693526224e-15,
    1.7725601330565263e-15, -3.425485619677219e-16, -2.8276239805165836e-16,
    3.461222867697461e-17, 4.46562142029676e-17, -4.830504485944178e-18, -7.23318048787476e-18,
    9.921475412173676e-19, 1.1936508908460063e-18,
)  # fmt: skip
_I1_FAR = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
    -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09,
    -5.589743462196584e-10, -1.8974958123505413e-11, 3.2526035830154884e-11,
    1.4125807436613782e-11, 2.0356285441470896e-12, -7.198551776245908e-13,
    -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
    1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15,
    3.3082023109209285e-16, 2.96262899764595e-16, -3.209525921993424e-17, -4.650305368489358e-17,
    4.414348323071704e-18, 7.517296310842111e-18, -9.314178867326863e-19, -1.2421932751949152e-18,
)  # fmt: skip
# J0(x) and J1(x) / x, in t = x^2 / 32 - 1
_J0_NEAR = (
    0.15772797147489012, -0.008723442352852221, 0.2651786132033368, -0.37009499387264977,
    0.15806710233209725, -0.034893769411408884, 0.004819180069467605, -0.00046062616620627504,
    3.246032882100508e-05, -1.7619469077621507e-06, 7.608163592418782e-08, -2.679253530557673e-09,
    7.848696314479465e-11, -1.9438346867370164e-12, 4.125320595634374e-14, -7.588508125447546e-16,
    1.2218515873961411e-17,
)  # fmt: skip
_J1_NEAR = (
    0.08104484632565812, -0.1489751450676521, 0.1609992623572097, -0.08268049176681791,
    0.022213639654966037, -0.003646940600769276, 0.0004050337728354822, -3.255554866857259e-05,
    1.9858774049915165e-06, -9.521984756750436e-08, 3.687133759097148e-09, -1.178026622695885e-10,
    3.160154580348003e-12, -7.221755239651773e-14, 1.4232144003513942e-15,
    -2.4441972916190464e-17, 3.6912682997929334e-19,
)  # fmt: skip
# Y0(x) - 2/pi log(x) J0(x), and (Y1(x) - 2/pi (log(x) J1(x) - 1 / x)) / x, in the same t
_Y0_NEAR = (
    -0.03314611320328494, -0.2744743055297453, 0.17903431407718265, 0.26156734625504663,
    -0.17730201278114358, 0.04719668959576339, -0.007287962479552079, 0.0007531135932577742,
    -5.632079141056987e-05, 3.206532537654801e-06, -1.44072332740187e-07, 5.248794787330516e-09,
    -1.5837552541812015e-10, 4.02633081830612e-12, -8.747341203310769e-14, 1.6434898714919468e-15,
    -2.6977881152566837e-17, 3.9032584173475982e-19,
)  # fmt: skip
_Y1_NEAR = (
    0.0025380132357417816, -0.01608717304766875, -0.09591204536083074, 0.08445197259652346,
    -0.028328123944594365, 0.005289897544167113, -0.0006414551451326356, 5.505982873338744e-05,
    -3.53808001868935e-06, 1.7707804556154404e-07, -7.11055004989928e-09, 2.344337905911516e-10,
    -6.4651518414115946e-12, 1.51429151205002e-13, -3.0511859694473254e-15, 5.34668038572867e-17,
    -8.224911372021585e-19,
)  # fmt: skip
# P, and Q x / 8, in t = 128 / x^2 - 1
_P0_FAR = (
    0.9994603493475187, -0.0005365220468132117, 3.0751847875194745e-06, -5.1705945376060975e-08,
    1.6306464635151382e-09, -7.86409137723707e-11, 5.168262387349193e-12, -4.3045788699253914e-13,
    4.3265957431549404e-14, -5.069034095935236e-15, 6.748072215733873e-16,
    -1.0011513723467786e-16, 1.6305919233744186e-17, -2.880866169482871e-18,
)  # fmt: skip
_Q0_FAR = (
    -0.015555854605337009, 6.838519942611649e-05, -7.414498411060647e-07, 1.7972457247968992e-08,
    -7.27191593686632e-10, 4.2201219046687385e-11, -3.206747420996635e-12, 3.006145125351706e-13,
    -3.336328185322427e-14, 4.255225040245461e-15, -6.09993013164005e-16, 9.662128970303257e-17,
    -1.6686065214378146e-17, 3.1082440486738143e-18, -6.191115787358145e-19,
    1.3091448717220122e-19, -2.9211627152642775e-20,
)  # fmt: skip
_P1_FAR = (
    1.0009030408600137, 0.0008989898330859408, -3.987284300488908e-06, 6.177633960644299e-08,
    -1.8718907491063067e-09, 8.816898659582339e-11, -5.704863640395645e-12, 4.699195515230542e-13,
    -4.6842237839904895e-14, 5.452674896044717e-15, -7.221180842274018e-16,
    1.0667689114335412e-16, -1.7312313216116335e-17, 3.0492991197665872e-18,
)  # fmt: skip
_Q1_FAR = (
    0.04677778706953532, -9.62772354915708e-05, 9.138615257955454e-07, -2.0959781384083424e-08,
    8.229193327650554e-10, -4.686363688176945e-11, 3.5152187949686082e-12, -3.2643156743279e-13,
    3.5967765829165294e-14, -4.5612523950772974e-15, 6.508282957783384e-16,
    -1.0269147531823243e-16, 1.767635548776479e-17, -3.2834519872981614e-18,
    6.524081149589261e-19, -1.3765771484849487e-19,
)  # fmt: skip


def i0(xp: Any, x: Any) -> Any:
    """The modified Bessel function of the first kind of order 0."""
    a = xp.abs(x)
    return xp.where(a <= _EDGE, _i_near(xp, a, _I0_NEAR), _grown(xp, a, _I0_FAR))


def i0e(xp: Any, x: Any) -> Any:
    """exp(-|x|) times i0(x)."""
    a = xp.abs(x)
    near = _i_near(xp, a, _I0_NEAR) * xp.exp(-xp.minimum(a, _EDGE))
    return xp.where(a <= _EDGE, near, _i_far(xp, a, _I0_FAR))


def i1(xp: Any, x: Any) -> Any:
    """The modified Bessel function of the first kind of order 1."""
    a = xp.abs(x)
    near = 0.5 * a * _i_near(xp, a, _I1_NEAR)
    return xp.copysign(xp.where(a <= _EDGE, near, _grown(xp, a, _I1_FAR)), x)


def i1e(xp: Any, x: Any) -> Any:
    """exp(-|x|) times i1(x)."""
    a = xp.abs(x)
    near = 0.5 * a * _i_near(xp, a, _I1_NEAR) * xp.exp(-xp.minimum(a, _EDGE))
    return xp.copysign(xp.where(a <= _EDGE, near, _i_far(xp, a, _I1_FAR)), x)


def _i_near(xp: Any, a: Any, coefficients: tuple[float, ...]) -> Any:
    a = xp.where(a <= _EDGE, a, _EDGE)
    return polynomial(0.25 * a * a, coefficients)


def _i_far(xp: Any, a: Any, coefficients: tuple[float, ...]) -> Any:
    """exp(-a) I(a) for a >= 8; NaN for NaN."""
    a = xp.maximum(a, _EDGE)
    return series(2.0 * _EDGE / a - 1.0, coefficients) / xp.sqrt(a)


def _grown(xp: Any, a: Any, coefficients: tuple[float, ...]) -> Any:
    """I(a) for a >= 8, which overflows later than exp(a)."""
    a = xp.where(a < _HUGE, a, xp.where(xp.isnan(a), a, _HUGE))
    half = xp.exp(0.5 * xp.maximum(a, _EDGE))
    return half * (half * _i_far(xp, a, coefficients))


_HUGE = 800.0  # from 714 on, I overflows


def j0(xp: Any, x: Any) -> Any:
    """The Bessel function of the first kind of order 0."""
    a = xp.abs(x)
    return xp.where(a <= _EDGE, series(_near(xp, a), _J0_NEAR), _wave(xp, a, 0)[0])


def j1(xp: Any, x: Any) -> Any:
    """The Bessel function of the first kind of order 1."""
    a = xp.abs(x)
    y = xp.where(a <= _EDGE, x * series(_near(xp, a), _J1_NEAR), _wave(xp, a, 1)[0])
    return xp.where(x < -_EDGE, -y, y)


def y0(xp: Any, x: Any) -> Any:
    """The Bessel function of the second kind of order 0."""
    a = xp.where((x > 0.0) & (x <= _EDGE), x, 1.0)
    t = _near(xp, a)
    near = (2 / math.pi) * xp.log(a) * series(t, _J0_NEAR) + series(t, _Y0_NEAR)
    return _second_kind(xp, x, near, _wave(xp, x, 0)[1])


def y1(xp: Any, x: Any) -> Any:
    """The Bessel function of the second kind of order 1."""
    a = xp.where((x > _TINY) & (x <= _EDGE), x, 1.0)
    t = _near(xp, a)
    entire = (2 / math.pi) * xp.log(a) * series(t, _J1_NEAR) + series(t, _Y1_NEAR)
    near = a * entire - (2 / math.pi) / a
    tiny = (-2 / math.pi) / xp.where((x > _LEAST) & (x <= _TINY), x, 1.0)
    near = xp.where(x > _TINY, near, xp.where(x > _LEAST, tiny, -math.inf))
    return _second_kind(xp, x, near, _wave(xp, x, 1)[1])


_TINY = 1e-20  # below it, y1(x) is -2 / (pi x) to the last bit
_LEAST = 2 / math.pi / 1.7976931348623157e308  # up to here, that overflows


def _second_kind(xp: Any, x: Any, near: Any, far: Any) -> Any:
    """-inf at 0, NaN below."""
    y = xp.where(x <= _EDGE, near, far)
    return xp.where(x > 0.0, y, xp.where(x == 0.0, -math.inf, math.nan))


def _near(xp: Any, a: Any) -> Any:
    a = xp.where(a <= _EDGE, a, _EDGE)
    return a * a / 32.0 - 1.0


def _wave(xp: Any, a: Any, order: int) -> tuple[Any, Any]:
    """J and Y for a >= 8; 0 at infinity, and NaN for NaN."""
    far = xp.where(a < math.inf, xp.maximum(a, _EDGE), xp.where(xp.isnan(a), a, _EDGE))
    z = _EDGE / far
    t = 2.0 * z * z - 1.0
    p = series(t, _P1_FAR if order else _P0_FAR)
    q = z * series(t, _Q1_FAR if order else _Q0_FAR)
    sine, cosine = xp.sin(far), xp.cos(far)
    # sqrt(2) times the cosine and the sine of the phase
    c, s = (sine - cosine, -sine - cosine) if order else (cosine + sine, sine - cosine)
    scale = 1.0 / xp.sqrt(math.pi * far)
    is_finite = (a < math.inf) | xp.isnan(a)
    j = xp.where(is_finite, scale * (p * c - q * s), 0.0)
    return j, xp.where(is_finite, scale * (p * s + q * c), 0.0)
