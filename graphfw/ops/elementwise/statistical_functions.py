"""Elementwise functions of statistics: the normal distribution, log-odds, entropies, gamma.

Public in `graphfw.special`. Formulas and their sources: `graphfw.ops.numerics.normal`.
"""

from __future__ import annotations

import math
from typing import Any

from graphfw.ir.functions import F
from graphfw.ir.tensor import Tensor
from graphfw.ops.elementwise.table import binary, unary
from graphfw.ops.numerics import normal
from graphfw.ops.numerics.gamma import gamma as gamma_of
from graphfw.ops.numerics.wide import native, rounded

__all__ = ["entr", "erfcx", "gamma", "log_ndtr", "logit", "ndtr", "ndtri", "xlog1py", "xlogy"]

_ROOT = math.sqrt(2 * math.pi)


def _density(x: Tensor) -> Tensor:
    """Return the density of the standard normal distribution."""
    return F.exp(-0.5 * x * x) * (1 / _ROOT)


erfcx = unary(
    "erfcx",
    doc="""exp(x²) erfc(x), which neither overflows nor vanishes for positive x.

    x: floating-point [*A] -> [*A]

    >>> import graphfw as gf
    >>> gf.special.erfcx(gf.asarray([0.0, 1e4], dtype=gf.float64))
    Tensor([1.00000000e+00, 5.64189581e-05], dtype=float64)
    """,
    vjp=lambda ct, y, x: F.chain_multiply(ct, 2 * x * y - 2 / math.sqrt(math.pi)),
    xp=rounded(normal.erfcx),
    scalar=native(normal.erfcx),
    accepts="floating-point",
)
gamma = unary(
    "gamma",
    doc="""The gamma function, (x - 1)! of integers.  x: floating-point [*A] -> [*A]

    NaN at -1, -2, …, infinite at 0. That of large x overflows: see `gf.lgamma`.

    >>> import graphfw as gf
    >>> gf.special.gamma(gf.asarray([0.5, 5.0]))
    Tensor([ 1.7724539, 24.       ], dtype=float32)
    """,
    vjp=lambda ct, y, x: F.chain_multiply(ct, y * F.digamma(x)),
    xp=rounded(gamma_of),
    scalar=native(gamma_of),
    accepts="floating-point",
    domain=(0.5, 3.0),
)
ndtr = unary(
    "ndtr",
    doc="""The distribution function of the standard normal distribution.  x: floats [*A] -> [*A]

    Exact also where it is tiny, down to the least number of the dtype.

    >>> import graphfw as gf
    >>> gf.special.ndtr(gf.asarray([0.0, -10.0]))
    Tensor([5.000000e-01, 7.619853e-24], dtype=float32)
    """,
    vjp=lambda ct, y, x: ct * _density(x),
    xp=rounded(normal.ndtr),
    scalar="ndtr",  # a function of its own, and fast: `gf.gelu` computes it
    accepts="floating-point",
)
log_ndtr = unary(
    "log_ndtr",
    doc="""The logarithm of `ndtr`, also where that is too small for the dtype.

    x: floating-point [*A] -> [*A]
    """,
    # The density over ndtr: sqrt(2 / pi) / erfcx(-x / sqrt(2)).
    vjp=lambda ct, y, x: ct * (math.sqrt(2 / math.pi) / F.erfcx(-x * math.sqrt(0.5))),
    xp=rounded(normal.log_ndtr),
    scalar=native(normal.log_ndtr),
    accepts="floating-point",
)
ndtri = unary(
    "ndtri",
    doc="""The inverse of `ndtr`: the quantile function of the standard normal distribution.

    x: floating-point [*A] -> [*A]; infinite at 0 and 1, NaN outside.

    >>> import graphfw as gf
    >>> gf.special.ndtri(gf.asarray([0.5, 0.975, 1.0], dtype=gf.float64))
    Tensor([0.        , 1.95996398,        inf], dtype=float64)
    """,
    vjp=lambda ct, y, x: F.chain_multiply(ct, F.exp(F.chain_multiply(0.5 * y, y)) * _ROOT),
    xp=rounded(normal.ndtri),
    scalar=native(normal.ndtri),
    accepts="floating-point",
    domain=(0.05, 0.95),
)


def _logit(xp: Any, x: Any) -> Any:
    # 2 x - 1 is exact from 1/4 on; so nothing is lost where x is close to 1/2 or 1.
    upper = 2.0 * xp.atanh(2.0 * xp.where(x < 0.25, 0.25, x) - 1.0)
    low = xp.where(x < 0.25, x, 0.25)
    return xp.where(x < 0.25, xp.log(low) - xp.log1p(-low), upper)


logit = unary(
    "logit",
    doc="""log(x / (1 - x)), the inverse of `gf.sigmoid`.  x: floating-point [*A] -> [*A]

    Infinite at 0 and 1, NaN outside.

    >>> import graphfw as gf
    >>> gf.special.logit(gf.asarray([0.0, 0.5, 1.0]))
    Tensor([-inf,   0.,  inf], dtype=float32)
    """,
    vjp=lambda ct, y, x: F.chain_divide(F.chain_divide(ct, x), 1 - x),
    xp=rounded(_logit),
    scalar=native(_logit),
    accepts="floating-point",
    domain=(0.05, 0.95),
)


def _xlogy(xp: Any, x: Any, y: Any) -> Any:
    is_zero = (x == 0.0) & (y == y)
    return xp.where(is_zero, 0.0, x * xp.log(xp.where(is_zero, 1.0, y)))


def _xlog1py(xp: Any, x: Any, y: Any) -> Any:
    is_zero = (x == 0.0) & (y == y)
    return xp.where(is_zero, 0.0, x * xp.log1p(xp.where(is_zero, 0.0, y)))


def _ratio(x: Tensor, y: Tensor) -> Tensor:
    """Return x / y, and 0 where x is 0."""
    is_zero = x == 0
    return F.where(is_zero, 0, x / F.where(is_zero, 1, y))


xlogy = binary(
    "xlogy",
    doc="""x1 log(x2), and 0 where x1 is 0 and x2 is not NaN.  x1, x2: floats, broadcast -> [*B]

    >>> import graphfw as gf
    >>> gf.special.xlogy(gf.asarray([0.0, 2.0]), gf.asarray([0.0, 1.0]))
    Tensor([0., 0.], dtype=float32)
    """,
    vjp=(
        lambda ct, out, x, y: F.chain_multiply(ct, F.log(y)),
        lambda ct, out, x, y: F.chain_multiply(ct, _ratio(x, y)),
    ),
    xp=rounded(_xlogy),
    scalar=native(_xlogy),
    accepts="floating-point",
    domain=(0.5, 2.0),
)
xlog1py = binary(
    "xlog1py",
    doc="""x1 log(1 + x2), and 0 where x1 is 0 and x2 is not NaN.

    x1, x2: floating-point, broadcast -> [*B]
    """,
    vjp=(
        lambda ct, out, x, y: F.chain_multiply(ct, F.log1p(y)),
        lambda ct, out, x, y: F.chain_multiply(ct, _ratio(x, 1 + y)),
    ),
    xp=rounded(_xlog1py),
    scalar=native(_xlog1py),
    accepts="floating-point",
    domain=(-0.5, 2.0),
)


def _entr(xp: Any, x: Any) -> Any:
    y = -x * xp.log(xp.where(x > 0.0, x, 1.0))
    return xp.where(x > 0.0, y, xp.where(x == 0.0, 0.0, xp.where(x < 0.0, -math.inf, x)))


entr = unary(
    "entr",
    doc="""-x log(x): what a probability adds to an entropy.  x: floating-point [*A] -> [*A]

    0 at 0, -inf below.
    """,
    vjp=lambda ct, y, x: F.chain_multiply(-ct, F.log(x) + 1),
    xp=rounded(_entr),
    scalar=native(_entr),
    accepts="floating-point",
    domain=(0.5, 2.0),
)
