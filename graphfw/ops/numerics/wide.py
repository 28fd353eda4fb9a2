"""Special functions that are computed in float64 and rounded once, on arrays and in kernels.

Such a function is written once, `compute(xp, *xs)`, with operators and few functions of the array
module. `rounded` makes of it the reference evaluation of an op, and `native` what compiled code
computes: for this the module is `_Kernel`, and an array is `_Element`, one expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphfw.ir.dtype import float64

__all__ = ["native", "polynomial", "rounded", "series"]

# The least magnitude that rounds to infinity: half a unit beyond the largest finite value.
OVERFLOW = {
    "float16": 65520.0,
    "bfloat16": math.ldexp(1 - 2.0**-9, 128),
    "float32": math.ldexp(1 - 2.0**-25, 128),
    "float64": math.inf,
}


def rounded(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return `f(xp, *xs)` that computes in float64 and rounds to the dtype of the first array.

    Floats of 16 bits are rounded twice, as in kernels, which keep them in float32.
    """

    def evaluate(xp: Any, *xs: Any) -> Any:
        dtype = xs[0].dtype
        with np.errstate(all="ignore"):
            y = compute(xp, *[x.astype(xp.float64) for x in xs])
            if dtype.itemsize == 2:
                y = narrowed(xp, y, np.dtype(np.float32))
            return narrowed(xp, y, dtype)

    return evaluate


def narrowed(xp: Any, y: Any, dtype: Any) -> Any:
    """Round to a floating dtype.

    A cast that overflows would warn, so what is too large becomes infinite before it.
    """
    if y.dtype == dtype:
        return y
    y = xp.where(xp.abs(y) >= OVERFLOW[dtype.name], xp.copysign(y.dtype.type(math.inf), y), y)
    return y.astype(dtype)


def polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """The polynomial with these coefficients, constant term first, by Horner's rule."""
    y: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        y = y * x + c
    return y


def series(t: Any, coefficients: tuple[float, ...]) -> Any:
    """The sum of Chebyshev polynomials of t in [-1, 1] with these coefficients (Clenshaw, 1955)."""
    twice = t + t
    ahead: Any = coefficients[-1]
    behind: Any = 0.0
    for c in coefficients[-2:0:-1]:
        ahead, behind = twice * ahead - behind + c, ahead
    return t * ahead - behind + coefficients[0]


def native(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return `scalar(k, *xs)`, which computes one element of the result in kernels."""

    def scalar(k: Any, *xs: Any) -> Any:
        wide = [_Element(k, k.cast(x, float64)) for x in xs]
        return k.cast(compute(_Kernel(k), *wide).value, xs[0].dtype)

    return scalar


class _Element:
    """An expression of a kernel with the operators of an array."""

    def __init__(self, k: Any, value: Any) -> None:
        self.k = k
        self.value = value

    def _with(self, function: str, *operands: Any) -> _Element:
        values = [x.value if isinstance(x, _Element) else x for x in operands]
        return _Element(self.k, self.k.call(function, *values))

    def __add__(self, other: Any) -> _Element:
        return self._with("add", self, other)

    def __radd__(self, other: Any) -> _Element:
        return self._with("add", other, self)

    def __sub__(self, other: Any) -> _Element:
        return self._with("sub", self, other)

    def __rsub__(self, other: Any) -> _Element:
        return self._with("sub", other, self)

    def __mul__(self, other: Any) -> _Element:
        return self._with("mul", self, other)

    def __rmul__(self, other: Any) -> _Element:
        return self._with("mul", other, self)

    def __truediv__(self, other: Any) -> _Element:
        return self._with("div", self, other)

    def __rtruediv__(self, other: Any) -> _Element:
        return self._with("div", other, self)

    def __neg__(self) -> _Element:
        return self._with("neg", self)

    def __lt__(self, other: Any) -> _Element:
        return self._with("lt", self, other)

    def __le__(self, other: Any) -> _Element:
        return self._with("le", self, other)

    def __gt__(self, other: Any) -> _Element:
        return self._with("gt", self, other)

    def __ge__(self, other: Any) -> _Element:
        return self._with("ge", self, other)

    def __eq__(self, other: Any) -> _Element:  # type: ignore[override]
        return self._with("eq", self, other)

    def __and__(self, other: Any) -> _Element:
        return self._with("and", self, other)

    def __or__(self, other: Any) -> _Element:
        return self._with("or", self, other)

    def __invert__(self) -> _Element:
        return self._with("not", self)

    __hash__ = None  # type: ignore[assignment]


class _Kernel:
    """The functions of an array module that these computations use, on elements."""

    def __init__(self, k: Any) -> None:
        self.k = k

    def where(self, condition: _Element, x: Any, y: Any) -> _Element:
        x, y = [v.value if isinstance(v, _Element) else self.k.const(v, float64) for v in (x, y)]
        return _Element(self.k, self.k.select(condition.value, x, y))

    def isnan(self, x: _Element) -> _Element:
        return _Element(self.k, self.k.isnan(x.value))

    def __getattr__(self, name: str) -> Callable[..., _Element]:
        function = {"minimum": "min", "maximum": "max", "power": "pow", "rint": "round"}.get(
            name, name
        )

        def apply(*operands: Any) -> _Element:
            values = [x.value if isinstance(x, _Element) else x for x in operands]
            return _Element(self.k, self.k.call(function, *values))

        return apply
