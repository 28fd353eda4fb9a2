"""The error functions as pure functions of an array module.

They are the reference evaluation of the ops of the same names: every faster path is compared with
them. `xp` is the array module of the argument (NumPy or CuPy); only functions that both have are
used. Shapes and dtypes are kept: `x: [*S] -> [*S]`.

Each function is glued from pieces that are accurate on an interval. All pieces are evaluated for
all elements, and `xp.where` picks; so a piece that could overflow, divide by zero or be invalid
outside its interval first replaces the arguments that are not its own by harmless ones.

Precision, in units in the last place (ULP) of the exact result, as the tests assert it:

========  ==========  =================================
function  float64     float32
========  ==========  =================================
erf       2           2, computed in float32
erfc      4           1, computed in float64
erfinv    6           1, computed in float64
========  ==========  =================================

float16 and bfloat16 are computed in the precision of float32's column and rounded once more.

Sources of the coefficients:

* erf, erfc: fdlibm, `s_erf.c`. Copyright (C) 1993 by Sun Microsystems, Inc. All rights reserved.
  Permission to use, copy, modify, and distribute this software is freely granted, provided that
  this notice is preserved.
* erfinv: M. J. Wichura, "Algorithm AS 241: The percentage points of the normal distribution",
  Applied Statistics 37 (1988), routine PPND16.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from graphfw.ops.numerics.wide import OVERFLOW, narrowed, polynomial

__all__ = ["erf", "erfc", "erfinv"]


def _apply(xp: Any, x: Any, compute: Callable[[Any, Any], Any], *, single: bool) -> Any:
    """`compute(xp, x)` in float64, or where `single` holds in float32 for narrower dtypes."""
    name = x.dtype.name
    if name not in OVERFLOW:
        raise TypeError(f"expected a real floating dtype, got {name}")
    work = xp.float32 if single and name != "float64" else xp.float64
    y = compute(xp, x.astype(work))
    return narrowed(xp, y, x.dtype)


# ------------------------------------------------------------------------------------ erf, erfc

# erf(x) = x + x P(x^2)/Q(x^2) for |x| < 0.84375
_ERF_SMALL_P = (
    1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02,
    -5.77027029648944159157e-03, -2.37630166566501626084e-05,
)  # fmt: skip
_ERF_SMALL_Q = (
    1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02, 5.08130628187576562776e-03,
    1.32494738004321644526e-04, -3.96022827877536812320e-06,
)  # fmt: skip
# erf(1 + s) = c + P(s)/Q(s) for 0.84375 <= 1 + s < 1.25; c is short, so that 1 - c is exact
ERF_ONE = 8.45062911510467529297e-01
_ERF_MIDDLE_P = (
    -2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01,
    3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02,
    -2.16637559486879084300e-03,
)  # fmt: skip
_ERF_MIDDLE_Q = (
    1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01, 7.18286544141962662868e-02,
    1.26171219808761642112e-01, 1.36370839120290507362e-02, 1.19844998467991074170e-02,
)  # fmt: skip
# erfc(x) = exp(-x^2 - 0.5625 + P(1/x^2)/Q(1/x^2)) / x for 1.25 <= x < 1/0.35 ...
_ERFC_NEAR_P = (
    -9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e+01,
    -6.23753324503260060396e+01, -1.62396669462573470355e+02, -1.84605092906711035994e+02,
    -8.12874355063065934246e+01, -9.81432934416914548592e+00,
)  # fmt: skip
_ERFC_NEAR_Q = (
    1.0, 1.96512716674392571292e+01, 1.37657754143519042600e+02, 4.34565877475229228821e+02,
    6.45387271733267880336e+02, 4.29008140027567833386e+02, 1.08635005541779435134e+02,
    6.57024977031928170135e+00, -6.04244152148580987438e-02,
)  # fmt: skip
# ... and for 1/0.35 <= x <= 28
_ERFC_FAR_P = (
    -9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e+01,
    -1.60636384855821916062e+02, -6.37566443368389627722e+02, -1.02509513161107724954e+03,
    -4.83519191608651397019e+02,
)  # fmt: skip
_ERFC_FAR_Q = (
    1.0, 3.03380607434824582924e+01, 3.25792512996573918826e+02, 1.53672958608443695994e+03,
    3.19985821950859553908e+03, 2.55305040643316442583e+03, 4.74528541206955367215e+02,
    -2.24409524465858183362e+01,
)  # fmt: skip
SMALL, _MIDDLE, _NEAR = 0.84375, 1.25, 1 / 0.35


def erf(xp: Any, x: Any) -> Any:
    """The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.

    x: [*S] -> [*S], dtype kept. erf(+-0) = +-0, erf(+-inf) = +-1, erf(nan) = nan. Formula: fdlibm.

    Raises:
        TypeError: the dtype is not a real floating one.

    >>> import numpy as np
    >>> erf(np, np.array([0.0, 0.5, -np.inf])).round(6).tolist()
    [0.0, 0.5205, -1.0]
    """
    return _apply(xp, x, _erf, single=True)


def erfc(xp: Any, x: Any) -> Any:
    """The complementary error function 1 - erf(x), accurate where it is tiny.

    x: [*S] -> [*S], dtype kept. erfc(-inf) = 2, erfc(inf) = 0, erfc(nan) = nan. Results below the
    normal range are within 2 of the smallest positive number. Formula: fdlibm.

    Raises:
        TypeError: the dtype is not a real floating one.

    >>> import numpy as np
    >>> erfc(np, np.array([0.0, -np.inf])).tolist(), f"{erfc(np, np.float64(10.0)):.6e}"
    ([1.0, 2.0], '2.088488e-45')
    """
    return _apply(xp, x, _erfc, single=False)


def _erf(xp: Any, x: Any) -> Any:
    a = xp.abs(x)
    s = xp.where(a < SMALL, a, 0.5)
    small = s + s * erf_small(s)
    middle = ERF_ONE + erf_middle(xp, a)
    tail = 1.0 - _erfc_tail(xp, a, limit=6.0)  # at 6, erfc is below the last bit of 1
    y = xp.where(a < SMALL, small, xp.where(a < _MIDDLE, middle, tail))
    return xp.where(xp.isnan(x), x, xp.copysign(y, x))


def _erfc(xp: Any, x: Any) -> Any:
    a = xp.abs(x)
    s = xp.where(a < SMALL, x, 0.5)
    r = s * erf_small(s)
    # Above 1/4 the subtraction from 1 would lose bits; x - 1/2 is exact there.
    small = xp.where(s < 0.25, 1.0 - (s + r), 0.5 - ((s - 0.5) + r))
    m = erf_middle(xp, a)
    middle = xp.where(x > 0, (1.0 - ERF_ONE) - m, 1.0 + (ERF_ONE + m))
    t = _erfc_tail(xp, a, limit=28.0)  # at 28, erfc is below the smallest positive number
    tail = xp.where(x > 0, t, 2.0 - t)
    y = xp.where(a < SMALL, small, xp.where(a < _MIDDLE, middle, tail))
    return xp.where(xp.isnan(x), x, y)


def erf_small(x: Any) -> Any:
    z = x * x
    return polynomial(z, _ERF_SMALL_P) / polynomial(z, _ERF_SMALL_Q)


def erf_middle(xp: Any, a: Any) -> Any:
    s = xp.where((a >= SMALL) & (a < _MIDDLE), a, 1.0) - 1.0
    return polynomial(s, _ERF_MIDDLE_P) / polynomial(s, _ERF_MIDDLE_Q)


def _erfc_tail(xp: Any, a: Any, *, limit: float) -> Any:
    """The erfc of [1.25, limit]; arguments outside are moved to the nearest end, NaN to 1.25."""
    a = xp.where(a > _MIDDLE, xp.minimum(a, limit), _MIDDLE)
    # exp would amplify the rounding error of a^2, so a^2 = z^2 + (a - z)(a + z) with z so short
    # that z^2 is exact.
    scale = 2.0**6 if a.dtype.itemsize == 4 else 2.0**20
    z = xp.rint(a * scale) / scale
    return xp.exp(-z * z - 0.5625) * xp.exp((z - a) * (z + a) + erfc_exponent(xp, a)) / a


def erfc_exponent(xp: Any, a: Any) -> Any:
    """Return a^2 + 0.5625 + log(a erfc(a)) in [1.25, 28]."""
    s = 1.0 / (a * a)
    near = polynomial(s, _ERFC_NEAR_P) / polynomial(s, _ERFC_NEAR_Q)
    far = polynomial(s, _ERFC_FAR_P) / polynomial(s, _ERFC_FAR_Q)
    return xp.where(a < _NEAR, near, far)


# --------------------------------------------------------------------------------------- erfinv

# The normal quantile at 1/2 + q is q P(r)/Q(r), r = 0.180625 - q^2, for |q| <= 0.425 ...
QUANTILE_CENTRE_P = (
    3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
    1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
    3.3430575583588128105e4, 2.5090809287301226727e3,
)  # fmt: skip
QUANTILE_CENTRE_Q = (
    1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
    2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
    5.2264952788528545610e3,
)  # fmt: skip
# ... and at a tail probability p, with t = sqrt(-log p), P(t - 1.6)/Q(t - 1.6) for t <= 5 ...
QUANTILE_TAIL_P = (
    1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
    3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
    2.27238449892691845833e-2, 7.74545014278341407640e-4,
)  # fmt: skip
QUANTILE_TAIL_Q = (
    1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
    1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
    1.05075007164441684324e-9,
)  # fmt: skip
# ... and P(t - 5)/Q(t - 5) beyond
QUANTILE_FAR_P = (
    6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
    2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
    2.71155556874348757815e-5, 2.01033439929228813265e-7,
)  # fmt: skip
QUANTILE_FAR_Q = (
    1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
    7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
    2.04426310338993978564e-15,
)  # fmt: skip


def erfinv(xp: Any, x: Any) -> Any:
    """The inverse of the error function: the y with erf(y) = x.

    x: [*S] -> [*S], dtype kept. erfinv(+-0) = +-0, erfinv(+-1) = +-inf, nan where |x| > 1 or x is
    nan. Formula: Wichura's AS 241, as erfinv(x) = quantile((1 + x)/2) / sqrt(2).

    Raises:
        TypeError: the dtype is not a real floating one.

    >>> import numpy as np
    >>> erfinv(np, np.array([0.0, 0.5, -1.0, 2.0])).round(6).tolist()
    [0.0, 0.476936, -inf, nan]
    """
    return _apply(xp, x, _erfinv, single=False)


def _erfinv(xp: Any, x: Any) -> Any:
    a = xp.abs(x)
    central = a <= 0.85
    c = xp.where(central, a, 0.5)
    r = 0.180625 - 0.25 * c * c
    half_slope = polynomial(r, QUANTILE_CENTRE_P) / polynomial(r, QUANTILE_CENTRE_Q)
    centre = c * (half_slope * (0.5 * math.sqrt(0.5)))
    # 1 - |x| is exact here, so nothing is lost however close |x| comes to 1.
    p = xp.where((a > 0.85) & (a < 1.0), 0.5 * (1.0 - a), 0.05)
    t = xp.sqrt(-xp.log(p))
    near = polynomial(t - 1.6, QUANTILE_TAIL_P) / polynomial(t - 1.6, QUANTILE_TAIL_Q)
    far = polynomial(t - 5.0, QUANTILE_FAR_P) / polynomial(t - 5.0, QUANTILE_FAR_Q)
    tail = xp.where(t <= 5.0, near, far) * math.sqrt(0.5)
    y = xp.where(central, centre, tail)
    y = xp.where(a == 1.0, math.inf, xp.where(a <= 1.0, y, math.nan))
    return xp.copysign(y, x)
