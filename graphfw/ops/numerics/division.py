"""Whole quotients."""

from __future__ import annotations

from typing import Any


def floor_divide(xp: Any, x: Any, y: Any) -> Any:
    """Return x / y, rounded down; of integers by 0: 0.  x: [*S], y: [*S] -> [*S]

    Of an infinity it is the infinity that x / y is, as the Array API standard says; array modules
    give NaN.
    """
    quotient = xp.floor_divide(x, y)
    return xp.where(xp.isinf(x), x / y, quotient) if x.dtype.kind == "f" else quotient
