"""Mathematical functions, elementwise: exponentials, roots, trigonometry, special functions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from graphfw.errors import ArgumentError, DTypeError
from graphfw.ir.build import emit
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.op import COMMUTATIVE, Case, bad, ok, op
from graphfw.ir.shape import require
from graphfw.ir.tensor import Tensor
from graphfw.ops import numerics
from graphfw.ops.args import TensorLike, inexact
from graphfw.ops.composed import demand
from graphfw.ops.elementwise.table import Elementwise, binary, unary
from graphfw.ops.numerics import gamma
from graphfw.ops.numerics.polygamma import polygamma as polygamma_of
from graphfw.ops.numerics.wide import native, rounded

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "expm1",
    "hypot",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "polygamma",
    "rsqrt",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]

# Exponentials and logarithms.

exp = unary(
    "exp",
    doc="""The exponential.  x: floating-point or complex [*A] -> [*A]

    >>> import graphfw as gf
    >>> gf.exp(gf.asarray([0.0, -gf.inf]))
    Tensor([1., 0.], dtype=float32)
    """,
    vjp=lambda ct, y, x: F.chain_multiply(ct, F.conj(y)),
)


def _expm1(xp: Any, x: Any) -> Any:
    result = xp.expm1(x)
    if x.dtype.kind == "c":
        # NumPy multiplies infinity by sin(0) and by sin(inf); where that matters, the 1 does not.
        result = xp.where(xp.isfinite(result), result, xp.exp(x) - 1)
        result.real += 0.0  # the standard has 0 + 0j for -0 + 0j too
    return result


expm1 = unary(
    "expm1",
    xp=_expm1,
    doc="exp(x) - 1, exact near 0.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_multiply(ct, F.conj(F.exp(x))),
)
log = unary(
    "log",
    doc="The natural logarithm; -inf at 0.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_divide(ct, F.conj(x)),
    domain=(0.5, 2.0),
)
log1p = unary(
    "log1p",
    doc="log(1 + x), exact near 0.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_divide(ct, F.conj(1 + x)),
    domain=(-0.5, 2.0),
)
log2 = unary(
    "log2",
    doc="The logarithm to base 2.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_divide(ct, F.conj(x) * math.log(2)),
    domain=(0.5, 2.0),
)
log10 = unary(
    "log10",
    doc="The logarithm to base 10.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_divide(ct, F.conj(x) * math.log(10)),
    domain=(0.5, 2.0),
)


def _log_ratio(y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Return a - b, with 0 where both are the same infinity."""
    return F.where(F.isinf(y) & (a == b), 0, a - b)


def _scalar_logaddexp(k: Any, a: Any, b: Any) -> Any:
    distance = k.neg(k.abs(k.sub(a, b)))
    usual = k.add(k.max(a, b), k.log1p(k.exp(distance)))
    # Of equal infinities the distance is NaN.
    return k.select(k.eq(a, b), k.add(a, math.log(2)), usual)


logaddexp = binary(
    "logaddexp",
    doc="""log(exp(x1) + exp(x2)), without overflow.  x1, x2: floating-point, broadcast -> [*B]""",
    vjp=(
        lambda ct, y, a, b: ct * F.sigmoid(_log_ratio(y, a, b)),
        lambda ct, y, a, b: ct * F.sigmoid(_log_ratio(y, b, a)),
    ),
    accepts="floating-point",
    traits=(COMMUTATIVE,),
    scalar=_scalar_logaddexp,
)


def _sigmoid(xp: Any, x: Any) -> Any:
    # exp of what is not positive: it never overflows, and small results keep their precision.
    e = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, e).astype(x.dtype) / (1 + e)


def _scalar_sigmoid(k: Any, x: Any) -> Any:
    e = k.exp(k.neg(k.abs(x)))
    return k.div(k.select(k.ge(x, 0), 1, e), k.add(1, e))


sigmoid = unary(
    "sigmoid",
    doc="1 / (1 + exp(-x)), the logistic function.  x: floating-point [*A] -> [*A]",
    vjp=lambda ct, y, x: ct * y * (1 - y),
    xp=_sigmoid,
    accepts="floating-point",
    scalar=_scalar_sigmoid,
)

# Roots.

sqrt = unary(
    "sqrt",
    doc="The square root; NaN of negative reals.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_divide(ct * 0.5, F.conj(y)),
    domain=(0.5, 2.0),
)


def _cube(y: Tensor) -> Tensor:
    return F.chain_multiply(y, F.chain_multiply(y, y))


rsqrt = unary(
    "rsqrt",
    doc="1 / sqrt(x); infinite at 0.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_multiply(ct * -0.5, F.conj(_cube(y))),
    xp=lambda xp, x: 1 / xp.sqrt(x),
    domain=(0.5, 2.0),
    scalar=lambda k, x: k.div(1, k.sqrt(x)),
)


def _nonzero(x: Tensor) -> Tensor:
    """Return x, with 1 where it is 0: a divisor of what is 0 there too."""
    return F.where(x == 0, 1, x)


hypot = binary(
    "hypot",
    doc="""sqrt(x1² + x2²), without overflow.  x1, x2: floating-point, broadcast -> [*B]

    Its gradient at the origin is 0.
    """,
    vjp=(
        lambda ct, y, a, b: ct * (a / _nonzero(y)),
        lambda ct, y, a, b: ct * (b / _nonzero(y)),
    ),
    accepts="floating-point",
    traits=(COMMUTATIVE,),
)

# Trigonometry.

sin = unary(
    "sin",
    doc="The sine of radians.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: ct * F.conj(F.cos(x)),
)
cos = unary(
    "cos",
    doc="The cosine of radians.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: -ct * F.conj(F.sin(x)),
)
tan = unary(
    "tan",
    doc="The tangent of radians.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_multiply(ct, F.conj(1 + y * y)),
    domain=(-1.0, 1.0),
)
asin = unary(
    "asin",
    doc="The inverse sine, in radians; NaN beyond ±1.  x: float or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_divide(ct, F.conj(F.sqrt((1 - x) * (1 + x)))),
    xp="arcsin",
    domain=(-0.9, 0.9),
)
acos = unary(
    "acos",
    doc="The inverse cosine, in radians; NaN beyond ±1.  x: float or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_divide(-ct, F.conj(F.sqrt((1 - x) * (1 + x)))),
    xp="arccos",
    domain=(-0.9, 0.9),
)
atan = unary(
    "atan",
    doc="The inverse tangent, in radians.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_divide(ct, F.conj(1 + x * x)),
    xp="arctan",
)


def _atan2_slope(ct: Tensor, across: Tensor, along: Tensor) -> Tensor:
    """Return ct across / (across² + along²), in two steps that don't overflow; 0 at the origin."""
    length = _nonzero(F.hypot(across, along))
    return F.chain_divide(ct * (across / length), length)


atan2 = binary(
    "atan2",
    doc="""The angle in radians of the point (x2, x1).  x1, x2: floating-point, broadcast -> [*B]

    Note the order: the second coordinate first. Its gradient at the origin is 0.
    """,
    vjp=(
        lambda ct, y, a, b: _atan2_slope(ct, b, a),
        lambda ct, y, a, b: _atan2_slope(-ct, a, b),
    ),
    xp="arctan2",
    accepts="floating-point",
    domain=(0.5, 2.0),
)

# Hyperbolic functions.

sinh = unary(
    "sinh",
    doc="The hyperbolic sine.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_multiply(ct, F.conj(F.cosh(x))),
)
cosh = unary(
    "cosh",
    doc="The hyperbolic cosine.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_multiply(ct, F.conj(F.sinh(x))),
)


def _tanh(xp: Any, x: Any) -> Any:
    result = xp.asarray(xp.tanh(x))
    if x.dtype.kind == "c":
        # Beside infinity NumPy gives the 0 the sign of sin(2b), the standard that of b.
        is_far = xp.isinf(x.real) & xp.isfinite(x.imag)
        result.imag = xp.where(is_far, xp.copysign(x.real.dtype.type(0), x.imag), result.imag)
    return result


tanh = unary(
    "tanh",
    xp=_tanh,
    doc="The hyperbolic tangent.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: ct * F.conj(1 - y * y),
)
asinh = unary(
    "asinh",
    doc="The inverse hyperbolic sine.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_divide(ct, F.conj(F.sqrt(1 + x * x))),
    xp="arcsinh",
)
acosh = unary(
    "acosh",
    doc="The inverse hyperbolic cosine; NaN below 1.  x: floating-point or complex [*A] -> [*A]",
    # Not the root of (x - 1)(x + 1): of complex numbers that has the wrong sign in the left half.
    vjp=lambda ct, y, x: F.chain_divide(
        F.chain_divide(ct, F.conj(F.sqrt(x - 1))), F.conj(F.sqrt(x + 1))
    ),
    xp="arccosh",
    domain=(1.5, 3.0),
)
atanh = unary(
    "atanh",
    doc="The inverse hyperbolic tangent.  x: floating-point or complex [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_divide(ct, F.conj((1 - x) * (1 + x))),
    xp="arctanh",
    domain=(-0.9, 0.9),
)

# Special functions.

erf = unary(
    "erf",
    doc="The error function, 2/√π ∫₀ˣ exp(-t²) dt.  x: floating-point [*A] -> [*A]",
    vjp=lambda ct, y, x: ct * (F.exp(-x * x) * (2 / math.sqrt(math.pi))),
    xp=numerics.erf,
    accepts="floating-point",
)
erfc = unary(
    "erfc",
    doc="1 - erf(x), exact where that is tiny.  x: floating-point [*A] -> [*A]",
    vjp=lambda ct, y, x: ct * (F.exp(-x * x) * (-2 / math.sqrt(math.pi))),
    xp=numerics.erfc,
    accepts="floating-point",
)
erfinv = unary(
    "erfinv",
    doc="The inverse of erf; infinite at ±1, NaN beyond.  x: floating-point [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_multiply(
        ct, F.exp(F.chain_multiply(y, y)) * (math.sqrt(math.pi) / 2)
    ),
    xp=numerics.erfinv,
    accepts="floating-point",
    domain=(-0.9, 0.9),
)
lgamma = unary(
    "lgamma",
    doc="The logarithm of |gamma(x)|; infinite at 0, -1, -2, ….  x: floating-point [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_multiply(ct, F.digamma(x)),
    xp=rounded(gamma.lgamma),
    scalar=native(gamma.lgamma),
    accepts="floating-point",
    domain=(0.5, 3.0),
)
digamma = unary(
    "digamma",
    doc="The derivative of lgamma.  x: floating-point [*A] -> [*A]",
    vjp=lambda ct, y, x: F.chain_multiply(ct, F.polygamma(1, x)),
    xp=rounded(gamma.digamma),
    scalar=native(gamma.digamma),
    accepts="floating-point",
    domain=(0.5, 3.0),
)


_FACTORIALS = 170
"""The largest n with an n! that float64 holds."""


@op("polygamma")
class Polygamma(Elementwise):
    """The n-th derivative of digamma, n >= 1.  x: floating-point [*A]  ->  [*A]"""

    n: int
    accepts = "floating-point"
    labels = ("x",)

    def dtype(self, *dtypes: DType) -> DType:
        fits = 1 <= self.n <= _FACTORIALS
        message = f"n={self.n} is not in 1 … {_FACTORIALS}"
        require(fits, message, fix="beyond, n! is no float64", error=ArgumentError)
        return super().dtype(*dtypes)

    def eval(self, xp: Any, x: Any) -> Any:
        return rounded(self._wide)(xp, x)

    def scalar(self, k: Any, x: Any) -> Any:
        return native(self._wide)(k, x)

    def _wide(self, xp: Any, x: Any) -> Any:
        return polygamma_of(xp, self.n, x)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: F.chain_multiply(ct, F.polygamma(self.n + 1, x)),)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield ok("float32[3, k]", n=1, domain=(0.5, 3.0))
        yield ok("float64[5]", n=2, domain=(-0.9, -0.1))
        yield ok("bfloat16[5]", n=1, domain=(0.5, 3.0), smooth=False)
        yield bad("int32[3]", n=1, match="wants floating-point tensors", error=DTypeError)
        yield bad("float32[3]", n=171, match="n=171 is not in 1 … 170", error=ArgumentError)


@public
def polygamma(n: int, x: TensorLike, /) -> Tensor:
    """The n-th derivative of digamma.  x: floating-point [*A] -> [*A]

    Raises:
        ArgumentError: n is negative, or more than 170.
    """
    demand(n >= 0, f"polygamma: n={n} is negative", fix="n=0 is digamma")
    tensor = inexact(x)
    return digamma(tensor) if n == 0 else emit(Polygamma(n), tensor)
