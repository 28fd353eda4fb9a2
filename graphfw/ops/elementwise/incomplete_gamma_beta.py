"""The incomplete gamma and beta functions, elementwise: public in `graphfw.special`.

Formulas and their sources: `graphfw.ops.numerics.incomplete_gamma` and `incomplete_beta`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from graphfw.errors import DTypeError, GradientError
from graphfw.ir.build import emit
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.op import COMMUTATIVE, Case, bad, ok, op
from graphfw.ir.shape import require
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, inexact, promoted
from graphfw.ops.elementwise.table import Elementwise, binary
from graphfw.ops.numerics import incomplete_beta, incomplete_gamma
from graphfw.ops.numerics.jets import Jet, exponential
from graphfw.ops.numerics.wide import in_pieces, native, of_library, rounded

__all__ = ["betainc", "betaln", "gammainc", "gammaincc"]


_ORDERS = 16
"""The most derivatives by a parameter: in seconds, which grow with the square of their number."""


def _require_orders(*orders: int) -> None:
    for order in orders:
        message = f"{order} derivatives by a parameter are not in 0 … {_ORDERS}"
        fix = "differentiate by x instead, or less often"
        require(0 <= order <= _ORDERS, message, fix=fix, error=GradientError)


@op("gammainc")
class GammaInc(Elementwise):
    """A derivative by `a` of the regularised incomplete gamma function.  a, x: floats -> [*B]

    Attributes:
        upper: Whether it is the integral from x on, not up to x.
        order: How often it is differentiated; 0: the function itself.
    """

    upper: bool = False
    order: int = 0
    accepts = "floating-point"
    labels = ("a", "x")

    def dtype(self, *dtypes: DType) -> DType:
        _require_orders(self.order)
        return super().dtype(*dtypes)

    def eval(self, xp: Any, a: Any, x: Any) -> Any:
        compute = partial(incomplete_gamma.gammainc, upper=self.upper, order=self.order)
        return rounded(in_pieces(compute))(xp, a, x)

    def scalar(self, k: Any, a: Any, x: Any) -> Any:
        if self.order > 1:
            return None
        if self.order:
            slope = of_library(k, "gammainc_by_a", a, x)
            return k.neg(slope) if self.upper else slope
        return of_library(k, "gammaincc" if self.upper else "gammainc", a, x)

    def vjp(self, ct: Tensor, y: Tensor, a: Tensor, x: Tensor) -> tuple[Any, ...]:
        def by_a() -> Tensor:
            slope = emit(GammaInc(self.upper, self.order + 1), a, x)
            return F.sum_to(F.chain_multiply(ct, slope), a.shape)

        def by_x() -> Tensor:
            slope = _gamma_density(a, x, self.order)
            return F.sum_to(F.chain_multiply(-ct if self.upper else ct, slope), x.shape)

        return by_a, by_x

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield ok("float32[3, n]", "float32[3, n]", domain=(0.5, 3.0))
        yield ok("float32[3, 1]", "float32[n]", upper=True, domain=(0.5, 3.0))
        yield ok("float64[4]", "float64[4]", order=1, domain=(0.5, 3.0))
        yield bad("float32[3]", "float32[4]", match="shapes don't broadcast")
        yield bad("int32[3]", "int32[3]", match="wants floating-point tensors", error=DTypeError)
        yield bad("float32[3]", "float32[3]", order=17, match="not in 0", error=GradientError)


def _gamma_density(a: Tensor, x: Tensor, order: int) -> Tensor:
    """Return a derivative by a of x^(a - 1) exp(-x) / Gamma(a)."""
    value = F.exp(F.xlogy(a - 1, x) - x - F.lgamma(a))
    terms: dict[tuple[int, int], Any] = {}
    for i in range(1, order + 1):
        slope = (F.log(x) if i == 1 else 0) - F.polygamma(i - 1, a)
        terms[i, 0] = slope / math.factorial(i)
    density: Tensor = exponential(Jet(terms, (order, 0)), value).derivative()
    return density


def _gamma(name: str, upper: bool, a: TensorLike, x: TensorLike) -> Tensor:
    left, right = map(inexact, promoted(name, a, x))
    return emit(GammaInc(upper), left, right, shown=(a, x))


@public
def gammainc(a: TensorLike, x: TensorLike, /) -> Tensor:
    """The regularised lower incomplete gamma function, ∫₀ˣ t^(a-1) exp(-t) dt / Γ(a).

    a, x: floating-point, broadcast -> [*B]. The distribution function of a gamma distribution of
    shape a. NaN where a or x is negative. Gradients flow to both.

    Raises:
        DTypeError: A tensor is of another kind.
        ShapeError: The shapes don't broadcast.

    >>> import graphfw as gf
    >>> gf.special.gammainc(gf.asarray([1.0, 5.0]), gf.asarray([1.0, 5.0]))
    Tensor([0.63212055, 0.5595067 ], dtype=float32)
    """
    return _gamma("gammainc", False, a, x)


@public
def gammaincc(a: TensorLike, x: TensorLike, /) -> Tensor:
    """The regularised upper incomplete gamma function, 1 - gammainc(a, x), exact where it is tiny.

    a, x: floating-point, broadcast -> [*B]. Errors as for `gammainc`.
    """
    return _gamma("gammaincc", True, a, x)


_INSIDE = (0.2, 0.8)


@op("betainc")
class BetaInc(Elementwise):
    """A derivative by `a` and `b` of the regularised incomplete beta function.

    a, b, x: floating-point, broadcast -> [*B]

    Attributes:
        order_a: How often it is differentiated by a.
        order_b: How often by b.
    """

    order_a: int = 0
    order_b: int = 0
    accepts = "floating-point"
    labels = ("a", "b", "x")

    def dtype(self, *dtypes: DType) -> DType:
        _require_orders(self.order_a, self.order_b)
        return super().dtype(*dtypes)

    def eval(self, xp: Any, a: Any, b: Any, x: Any) -> Any:
        compute = partial(incomplete_beta.betainc, order=(self.order_a, self.order_b))
        return rounded(in_pieces(compute))(xp, a, b, x)

    def scalar(self, k: Any, a: Any, b: Any, x: Any) -> Any:
        name = {(0, 0): "betainc", (1, 0): "betainc_by_a", (0, 1): "betainc_by_b"}
        function = name.get((self.order_a, self.order_b))
        return of_library(k, function, a, b, x) if function else None

    def vjp(self, ct: Tensor, y: Tensor, a: Tensor, b: Tensor, x: Tensor) -> tuple[Any, ...]:
        i, j = self.order_a, self.order_b

        def by(parameter: Tensor, more: tuple[int, int]) -> Callable[[], Tensor]:
            def slope() -> Tensor:
                found = emit(BetaInc(*more), a, b, x)
                return F.sum_to(F.chain_multiply(ct, found), parameter.shape)

            return slope

        def by_x() -> Tensor:
            return F.sum_to(F.chain_multiply(ct, _beta_density(a, b, x, (i, j))), x.shape)

        return by(a, (i + 1, j)), by(b, (i, j + 1)), by_x

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield ok("float32[3, n]", "float32[3, n]", "float32[3, n]", domain=_INSIDE)
        yield ok("float32[3, 1]", "float32[n]", "float32[]", domain=_INSIDE)
        yield ok("float64[4]", "float64[4]", "float64[4]", order_b=1, domain=_INSIDE)
        yield bad("float32[3]", "float32[4]", "float32[]", match="shapes don't broadcast")
        yield bad(
            "int32[3]", "int32[3]", "int32[3]", match="wants floating-point", error=DTypeError
        )


def _beta_density(a: Tensor, b: Tensor, x: Tensor, order: tuple[int, int]) -> Tensor:
    """Return a derivative by a and b of x^(a - 1) (1 - x)^(b - 1) / B(a, b)."""
    value = F.exp(F.xlogy(a - 1, x) + F.xlog1py(b - 1, -x) - F.betaln(a, b))
    terms: dict[tuple[int, int], Any] = {}
    for i in range(order[0] + 1):
        for j in range(order[1] + 1):
            if i + j:
                slope = F.polygamma(i + j - 1, a + b)
                if j == 0:
                    slope = slope - F.polygamma(i - 1, a) + (F.log(x) if i == 1 else 0)
                if i == 0:
                    slope = slope - F.polygamma(j - 1, b) + (F.log1p(-x) if j == 1 else 0)
                terms[i, j] = slope / (math.factorial(i) * math.factorial(j))
    density: Tensor = exponential(Jet(terms, order), value).derivative()
    return density


@public
def betainc(a: TensorLike, b: TensorLike, x: TensorLike, /) -> Tensor:
    """The regularised incomplete beta function, ∫₀ˣ t^(a-1) (1-t)^(b-1) dt / B(a, b).

    a, b, x: floating-point, broadcast -> [*B]. The distribution function of a beta distribution.
    NaN where a or b is negative or x is outside [0, 1]. Gradients flow to all three.

    Raises:
        DTypeError: A tensor is of another kind.
        ShapeError: The shapes don't broadcast.

    >>> import graphfw as gf
    >>> gf.special.betainc(2.0, 2.0, gf.asarray([0.0, 0.5, 1.0]))
    Tensor([0. , 0.5, 1. ], dtype=float32)
    """
    given = (a, b, x)
    return emit(BetaInc(), *map(inexact, promoted("betainc", *given)), shown=given)


betaln = binary(
    "betaln",
    doc="""The logarithm of the beta function Γ(x1) Γ(x2) / Γ(x1 + x2).

    x1, x2: floating-point, not negative, broadcast -> [*B]

    >>> import graphfw as gf
    >>> gf.special.betaln(gf.asarray([2.0, 1e6]), gf.asarray([1.0, 1.0]))
    Tensor([ -0.6931472, -13.815511 ], dtype=float32)
    """,
    vjp=(
        lambda ct, y, a, b: F.chain_multiply(ct, F.digamma(a) - F.digamma(a + b)),
        lambda ct, y, a, b: F.chain_multiply(ct, F.digamma(b) - F.digamma(a + b)),
    ),
    xp=rounded(incomplete_beta.betaln),
    scalar=native(incomplete_beta.betaln),
    accepts="floating-point",
    traits=(COMMUTATIVE,),
    domain=(0.5, 3.0),
)
