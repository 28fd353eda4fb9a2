"""Quotients of sizes, of which models compute scales: `float(height) / float(x.shape[2])`.

They are exact, whatever float a model computes them in: what comes of `h / w * w` is h.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from graphfw.ir.dim import DimLike, always_ge, exact_div


@dataclass(frozen=True)
class Ratio:
    """A symbolic dim, or the quotient of two sizes of which one is symbolic.

    Attributes:
        top: What is divided.
        under: By what; nobody asks whether it may be 0 in a run.
    """

    top: DimLike
    under: DimLike

    def __add__(self, other: Any) -> float | Ratio:
        b = _as_ratio(other)
        return ratio(self.top * b.under + b.top * self.under, self.under * b.under)

    __radd__ = __add__

    def __sub__(self, other: Any) -> float | Ratio:
        b = _as_ratio(other)
        return self + Ratio(-b.top, b.under)

    def __rsub__(self, other: Any) -> float | Ratio:
        return _as_ratio(other) - self

    def __mul__(self, other: Any) -> float | Ratio:
        b = _as_ratio(other)
        (top, b_under), (b_top, under) = (
            _cancelled(self.top, b.under),
            _cancelled(b.top, self.under),
        )
        return ratio(top * b_top, under * b_under)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> float | Ratio:
        b = _as_ratio(other)
        return self * Ratio(b.under, b.top)

    def __rtruediv__(self, other: Any) -> float | Ratio:
        return _as_ratio(other) / self

    def __str__(self) -> str:
        return f"({self.top})/({self.under})"

    def floor(self) -> Ratio:
        """Round down."""
        return Ratio(self.top // self.under, 1)

    def ceil(self) -> Ratio:
        """Round up."""
        return Ratio(-(-self.top // self.under), 1)

    def integer(self) -> DimLike:
        """Return the integer that a cast makes of the ratio.

        Raises:
            TypeError: It may be negative: a cast rounds towards 0.
        """
        if not (always_ge(self.top, 0) and always_ge(self.under, 0)):
            raise TypeError("that depends on the sign")
        return self.top // self.under


def ratio(top: DimLike, under: DimLike) -> float | Ratio:
    """Return a quotient, as a number where it is one."""
    top, under = _cancelled(top, under)
    if isinstance(top, int) and isinstance(under, int):
        return top / under
    return Ratio(top, under)


def _cancelled(a: DimLike, b: DimLike) -> tuple[DimLike, DimLike]:
    """Return a and b without a common factor, where one divides the other."""
    if (whole := exact_div(a, b)) is not None:
        return whole, 1
    if (whole := exact_div(b, a)) is not None:
        return 1, whole
    return a, b


def _as_ratio(x: Any) -> Ratio:
    """Return a number as a quotient of integers: 1.2 is 6/5, and not a bit less.

    Raises:
        TypeError: It is none of small integers.
    """
    if isinstance(x, Ratio):
        return x
    exact = Fraction(x)
    short = exact.limit_denominator(2**16)
    if abs(short - exact) > abs(exact) / 2**22:
        raise TypeError(f"{x} is no quotient of small integers")
    return Ratio(short.numerator, short.denominator)
