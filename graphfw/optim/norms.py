"""Norms of whole parameters, for rules that compare their sizes with those of steps."""

from __future__ import annotations

import math

from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor


def norm(x: Tensor) -> Tensor:
    """Return the root of the sum of squares, a scalar."""
    result: Tensor = F.sqrt(F.sum(x * x))
    return result


def root_mean_square(x: Tensor) -> Tensor:
    """Return the root of the mean of squares, a scalar; 0 where there are no elements."""
    sizes = [dim for dim in x.shape if isinstance(dim, int)]  # all: variables have known shapes
    result: Tensor = F.sqrt(F.sum(x * x) / max(math.prod(sizes), 1))
    return result


def norm_ratio(size: Tensor, of_step: Tensor, factor: float = 1.0) -> Tensor:
    """Return the quotient of two norms times a factor; 1 where one of the norms is 0."""
    fits = F.logical_and(size > 0, of_step > 0)
    quotient = size / F.where(fits, of_step, 1.0)
    result: Tensor = F.where(fits, quotient * factor if factor != 1 else quotient, 1.0)
    return result
