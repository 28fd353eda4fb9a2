"""Distributions on intervals: uniform, beta."""

from __future__ import annotations

from graphfw.distributions.base import (
    NAN,
    POSITIVE,
    Distribution,
    batch_of,
    demand_range,
    parameters,
)
from graphfw.ir import concrete
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops import random
from graphfw.ops.args import TensorLike
from graphfw.ops.composed import demand
from graphfw.ops.random.draws import Stream

__all__ = ["Beta", "Uniform"]


class Uniform(Distribution):
    """The uniform distribution: all values from low to high, equally likely.

    Args:
        low: The least value; a tensor, an array or a number.
        high: The upper end; the same.

    Raises:
        ArgumentError: low and high are known, and low is not below high.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> d = gf.distributions.Uniform(0.0, gf.asarray([1.0, 2.0]))
    >>> d.mean
    Tensor([0.5, 1. ], dtype=float32)
    """

    _is_reparameterised = True

    low: Tensor
    """The least value."""
    high: Tensor
    """The upper end."""

    def __init__(self, low: TensorLike = 0.0, high: TensorLike = 1.0) -> None:
        tensors = parameters("Uniform", low=low, high=high)
        batch = batch_of("Uniform", tensors)
        bottom, top = map(concrete.value_to_check, tensors.values())
        is_right = bottom is None or top is None or bool((bottom < top).all())
        demand(is_right, "Uniform: low must be below high", tensors, fix="exchange them")
        super().__init__(tensors, batch)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.uniform(dims, self.low, self.high, dtype=self._float, name=path)

    def _outside(self, x: Tensor) -> Tensor:
        return (x < self.low) | (x > self.high)

    def _inner(self) -> TensorLike:
        return self.low

    def _log_prob(self, x: Tensor) -> Tensor:
        return F.where(F.isnan(x), x, -F.log(self.high - self.low))  # gradients find their way to x

    def _cdf(self, x: Tensor) -> Tensor:
        return F.clip((x - self.low) / (self.high - self.low), 0.0, 1.0)

    def _icdf(self, p: Tensor) -> Tensor:
        return self.low + (self.high - self.low) * p

    def _entropy(self) -> Tensor:
        return F.log(self.high - self.low)

    def _mean(self) -> Tensor:
        return 0.5 * self.low + 0.5 * self.high

    def _variance(self) -> Tensor:
        width = self.high - self.low
        return width * width / 12


class Beta(Distribution):
    """The beta distribution on [0, 1]: x^(a-1) (1-x)^(b-1), up to a factor.

    Args:
        a: The weight of 1, above 0; a tensor, an array or a number.
        b: The weight of 0; the same.

    Raises:
        ArgumentError: a or b is known and not above 0.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> gf.distributions.Beta(1.0, 3.0).mean
    Tensor(0.25, dtype=float32)
    """

    _is_reparameterised = True
    _cancels = True

    a: Tensor
    """The weight of 1."""
    b: Tensor
    """The weight of 0."""

    def __init__(self, a: TensorLike, b: TensorLike) -> None:
        tensors = parameters("Beta", a=a, b=b)
        for label, given in (("a", a), ("b", b)):
            demand_range("Beta", label, given, tensors[label], POSITIVE)
        super().__init__(tensors, batch_of("Beta", tensors))

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.beta(dims, self.a, self.b, dtype=self._float, name=path)

    def _outside(self, x: Tensor) -> Tensor:
        return (x < 0) | (x > 1)

    def _inner(self) -> TensorLike:
        return 0.5

    def _log_prob(self, x: Tensor) -> Tensor:
        a, b = self.a, self.b
        return F.xlogy(a - 1, x) + F.xlog1py(b - 1, -x) - F.betaln(a, b)

    def _cdf(self, x: Tensor) -> Tensor:
        return F.betainc(self.a, self.b, F.clip(x, 0.0, 1.0))

    def _entropy(self) -> Tensor:
        a, b = self.a, self.b
        both = (a + b - 2) * F.digamma(a + b)
        return F.betaln(a, b) - (a - 1) * F.digamma(a) - (b - 1) * F.digamma(b) + both

    def _mean(self) -> Tensor:
        return self.a / (self.a + self.b)

    def _variance(self) -> Tensor:
        whole = self.a + self.b
        return self.a / whole * (self.b / whole) / (whole + 1)

    def _mode(self) -> Tensor:
        a, b = self.a, self.b
        is_inside = (a > 1) & (b > 1)
        inside = (a - 1) / F.where(is_inside, a + b - 2, 1.0)
        end = F.where((a > 1) & (b <= 1), 1.0, F.where((b > 1) & (a <= 1), 0.0, NAN))
        return F.where(is_inside, inside, end)
