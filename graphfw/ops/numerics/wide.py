"""Special functions that are computed in float64 and rounded once, on arrays and in kernels.

Such a function is written once, `compute(xp, *xs)`, with operators and few functions of the array
module. `rounded` makes of it the reference evaluation of an op, and `native` what compiled code
computes: for this the module is `_Kernel`, and an array is `_Element`, one expression.

`repeat` and `piecewise` are loops and branches, of which expressions of kernels have none. A
function with these is a primitive of kernels (`library.FUNCTIONS`): those who generate code write a
function of their own of it, by `written`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from graphfw.ir.dtype import float64

__all__ = [
    "full_like",
    "in_pieces",
    "native",
    "of_library",
    "piecewise",
    "polynomial",
    "repeat",
    "rounded",
    "series",
    "written",
]

_PIECE = 4096
"""The number of elements that are computed together: each piece ends when its own have
converged."""

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
    current: Any = coefficients[-1]
    previous: Any = 0.0
    for c in coefficients[-2:0:-1]:
        current, previous = twice * current - previous + c, current
    return t * current - previous + coefficients[0]


def in_pieces(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function, applied to a few thousand elements at a time."""

    def evaluate(xp: Any, *xs: Any) -> Any:
        shape = np.broadcast_shapes(*[x.shape for x in xs])
        flat = [xp.broadcast_to(x, shape).reshape(-1) for x in xs]
        y = xp.empty(flat[0].shape, xp.float64)
        for start in range(0, y.size, _PIECE):
            span = slice(start, start + _PIECE)
            y[span] = compute(xp, *[x[span] for x in flat])
        return y.reshape(shape)

    return evaluate


def full_like(xp: Any, x: Any, value: float) -> Any:
    """A number for each element of x."""
    return xp.constant(value) if isinstance(xp, _Kernel) else xp.full_like(x, value)


def repeat(
    xp: Any,
    values: tuple[Any, ...],
    again: Callable[..., Any],
    step: Callable[..., tuple[Any, ...]],
) -> tuple[Any, ...]:
    """Replace values by `step(*values)` as long as `again(*values)` holds of some element.

    Some elements go on with others: a step must leave them as they are where they have ended.
    """
    if isinstance(xp, _Kernel):
        return xp.repeat(values, again, step)
    while again(*values).any():
        values = step(*values)
    return values


def piecewise(
    xp: Any,
    pieces: Sequence[tuple[Any, Callable[..., Any], tuple[float, ...]]],
    xs: tuple[Any, ...],
) -> Any:
    """The value of the piece whose condition holds, 0 where none does.

    Args:
        xp: The array module.
        pieces: The condition, the function of `xs`, computed only if the condition holds of some
            element, and operands that the function may be given for others.
        xs: The operands.
    """
    y = full_like(xp, xs[0], 0.0)
    for condition, function, others in pieces:
        if isinstance(xp, _Kernel):
            safe = [xp.where(condition, x, other) for x, other in zip(xs, others, strict=True)]
            y = xp.where_rare(condition, partial(function, *safe), y)
        elif condition.any():
            y[condition] = function(*[x[condition] for x in xs])
    return y


def written(compute: Callable[..., Any], k: Any, *xs: Any) -> Any:
    """Return the expression that `k` writes for `compute`, of float64 values that it has.

    Args:
        compute: The function.
        k: Has `call(function, *operands)` of the primitives of kernels, `const`, `select` and
            `isnan` as `Scalars` has them; for loops and branches `repeat` and `where_rare`.
        xs: Values of k.
    """
    return compute(_Kernel(k), *[_Element(k, x) for x in xs]).value


def native(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Return `scalar(k, *xs)`, which computes one element of the result in kernels."""

    def scalar(k: Any, *xs: Any) -> Any:
        wide = [k.cast(x, float64) for x in xs]
        return k.cast(written(compute, k, *wide), xs[0].dtype)

    return scalar


def of_library(k: Any, function: str, *xs: Any) -> Any:
    """Return the call of a function of `library.FUNCTIONS` in kernels."""
    return k.cast(k.call(function, *[k.cast(x, float64) for x in xs]), xs[0].dtype)


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

    def __eq__(self, other: Any) -> _Element:  # type: ignore[override]  # an element, no bool
        return self._with("eq", self, other)

    def __and__(self, other: Any) -> _Element:
        return self._with("and", self, other)

    def __or__(self, other: Any) -> _Element:
        return self._with("or", self, other)

    def __invert__(self) -> _Element:
        return self._with("not", self)

    __hash__ = None  # type: ignore[assignment]  # `==` gives no bool


class _Kernel:
    """The functions of an array module that these computations use, on elements."""

    def __init__(self, k: Any) -> None:
        self.k = k

    def constant(self, value: Any) -> _Element:
        """A number; what is none stays as it is."""
        if isinstance(value, _Element):
            return value
        return _Element(self.k, self.k.const(value, float64))

    def where(self, condition: _Element, x: Any, y: Any) -> _Element:
        x, y = self.constant(x).value, self.constant(y).value
        return _Element(self.k, self.k.select(condition.value, x, y))

    def where_rare(
        self, condition: _Element, other: Callable[[], Any], usual: _Element
    ) -> _Element:
        """The usual value; where the condition holds another one, which is computed only then."""
        chosen = self.k.where_rare(condition.value, lambda: other().value, usual.value)
        return _Element(self.k, chosen)

    def repeat(
        self, values: tuple[Any, ...], again: Callable[..., Any], step: Callable[..., Any]
    ) -> tuple[_Element, ...]:
        """See `repeat`."""

        def elements(current: tuple[Any, ...]) -> list[_Element]:
            return [_Element(self.k, value) for value in current]

        found = self.k.repeat(
            tuple([self.constant(value).value for value in values]),
            lambda *current: again(*elements(current)).value,
            lambda *current: tuple([x.value for x in step(*elements(current))]),
        )
        return tuple(elements(found))

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
