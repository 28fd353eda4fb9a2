"""`FUNCTIONS`: the functions with loops, which are primitives of kernels.

They are of float64; `wide.written` writes what one computes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from graphfw.ops.numerics.incomplete_beta import betainc
from graphfw.ops.numerics.incomplete_gamma import gammainc

__all__ = ["FUNCTIONS", "LibraryFunction"]


class LibraryFunction(NamedTuple):
    """A function of so many operands: `compute(xp, *xs)`."""

    arity: int
    compute: Callable[..., Any]


FUNCTIONS = {
    "gammainc": LibraryFunction(2, partial(gammainc, upper=False, order=0)),
    "gammaincc": LibraryFunction(2, partial(gammainc, upper=True, order=0)),
    "gammainc_by_a": LibraryFunction(2, partial(gammainc, upper=False, order=1)),
    "betainc": LibraryFunction(3, partial(betainc, order=(0, 0))),
    "betainc_by_a": LibraryFunction(3, partial(betainc, order=(1, 0))),
    "betainc_by_b": LibraryFunction(3, partial(betainc, order=(0, 1))),
}
