"""Distributions on numbers above 0: exponential, gamma, chi-squared, Weibull, Pareto."""

from __future__ import annotations

from graphfw.distributions.base import (
    EULER,
    INF,
    POSITIVE,
    Distribution,
    batch_of,
    demand_range,
    one_of,
    parameters,
)
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops import random
from graphfw.ops.args import TensorLike
from graphfw.ops.random.draws import Stream

__all__ = ["Chi2", "Exponential", "Gamma", "Pareto", "Weibull"]


class _Scaled(Distribution):
    """Distributions on numbers above 0 with a scale, which a rate is the inverse of."""

    _is_reparameterised = True

    scale: Tensor
    """The factor of the standard distribution."""

    def __init__(self, scale: tuple[str, TensorLike], **others: TensorLike) -> None:
        what = type(self).__name__
        label, value = scale
        given = {**others, label: value}
        tensors = parameters(what, **given)
        for name in given:
            demand_range(what, name, given[name], tensors[name], POSITIVE)
        batch = batch_of(what, tensors)
        if label == "rate":
            tensors["scale"] = 1 / tensors.pop("rate")
        super().__init__(tensors, batch)

    @property
    def rate(self) -> Tensor:
        """The inverse of the scale."""
        return 1 / self.scale

    def _outside(self, x: Tensor) -> Tensor:
        return x < 0


class Exponential(_Scaled):
    """The exponential distribution: rate exp(-rate x), where rate = 1 / scale.

    `gf.random.exponential` takes the scale, and other libraries' classes the rate; so one of both
    is named.

    Args:
        rate: The number of events in a unit of time, above 0; a tensor, an array or a number.
        scale: The mean, instead of the rate.

    Raises:
        ArgumentError: The parameter is known and not above 0; none is given, or both.
        DTypeError: It is complex.

    >>> import graphfw as gf
    >>> gf.distributions.Exponential(rate=4.0).mean
    Tensor(0.25, dtype=float32)
    """

    def __init__(self, *, rate: TensorLike = None, scale: TensorLike = None) -> None:
        super().__init__(one_of("Exponential", rate=rate, scale=scale))

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.exponential(dims, self.scale, dtype=self._float, name=path)

    def _log_prob(self, x: Tensor) -> Tensor:
        return -x / self.scale - F.log(self.scale)

    def _cdf(self, x: Tensor) -> Tensor:
        is_out = x < 0
        return F.where(is_out, 0.0, -F.expm1(-F.where(is_out, 0.0, x) / self.scale))

    def _icdf(self, p: Tensor) -> Tensor:
        return -self.scale * F.log1p(-p)

    def _entropy(self) -> Tensor:
        return 1 + F.log(self.scale)

    def _mean(self) -> Tensor:
        return self.scale

    def _variance(self) -> Tensor:
        return self.scale * self.scale

    def _mode(self) -> Tensor:
        return F.zeros_like(self.scale)


class Gamma(_Scaled):
    """The gamma distribution: x^(a-1) exp(-x / scale) for a concentration a, up to a factor.

    Args:
        concentration: The distribution's shape parameter, above 0; a tensor, an array or a number.
        rate: The inverse of the scale, above 0; the same.
        scale: The factor of standard draws, instead of the rate; 1 by default.

    Raises:
        ArgumentError: A parameter is known and not above 0; rate and scale are given.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> gf.distributions.Gamma(2.0, scale=3.0).mean
    Tensor(6., dtype=float32)
    """

    _cancels = True

    concentration: Tensor
    """The shape parameter."""

    def __init__(
        self, concentration: TensorLike, *, rate: TensorLike = None, scale: TensorLike = None
    ) -> None:
        if rate is None and scale is None:
            scale = 1.0
        super().__init__(one_of("Gamma", rate=rate, scale=scale), concentration=concentration)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        a = self.concentration
        return random.gamma(dims, a, self.scale, dtype=self._float, name=path)

    def _log_prob(self, x: Tensor) -> Tensor:
        a, z = self.concentration, x / self.scale
        return F.xlogy(a - 1, z) - z - F.lgamma(a) - F.log(self.scale)

    def _cdf(self, x: Tensor) -> Tensor:
        return F.gammainc(self.concentration, F.maximum(x, 0.0) / self.scale)

    def _entropy(self) -> Tensor:
        a = self.concentration
        return a + F.log(self.scale) + F.lgamma(a) + (1 - a) * F.digamma(a)

    def _mean(self) -> Tensor:
        return self.concentration * self.scale

    def _variance(self) -> Tensor:
        return self.concentration * self.scale * self.scale

    def _mode(self) -> Tensor:
        return F.maximum(self.concentration - 1, 0.0) * self.scale


class Chi2(Gamma):
    """The chi-squared distribution: the sum of squares of independent standard normal numbers.

    It is `Gamma(freedom / 2, scale=2)`.

    Args:
        freedom: The number of these numbers, above 0; a tensor, an array or a number.

    Raises:
        ArgumentError: It is known and not above 0.
        DTypeError: It is complex.

    >>> import graphfw as gf
    >>> gf.distributions.Chi2(3.0).mean
    Tensor(3., dtype=float32)
    """

    def __init__(self, freedom: TensorLike) -> None:
        (tensor,) = parameters("Chi2", freedom=freedom).values()
        demand_range("Chi2", "freedom", freedom, tensor, POSITIVE)
        super().__init__(0.5 * tensor, scale=2.0)

    @property
    def freedom(self) -> Tensor:
        """The degrees of freedom."""
        return 2 * self.concentration


class Weibull(_Scaled):
    """The Weibull distribution: exp(-(x / scale)^concentration) is the probability to exceed x.

    Args:
        concentration: The distribution's shape parameter, above 0; a tensor, an array or a number.
        scale: The factor of standard draws, above 0; the same.

    Raises:
        ArgumentError: A parameter is known and not above 0.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> gf.distributions.Weibull(concentration=1.0, scale=3.0).mean
    Tensor(3., dtype=float32)
    """

    concentration: Tensor
    """The shape parameter."""

    def __init__(self, *, concentration: TensorLike, scale: TensorLike = 1.0) -> None:
        super().__init__(("scale", scale), concentration=concentration)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        wait = random.exponential(dims, dtype=self._float, name=path)
        return self.scale * wait ** (1 / self.concentration)

    def _log_prob(self, x: Tensor) -> Tensor:
        k, z = self.concentration, x / self.scale
        return F.log(k / self.scale) + F.xlogy(k - 1, z) - z**k

    def _cdf(self, x: Tensor) -> Tensor:
        is_out = x < 0
        z = F.where(is_out, 0.0, x) / self.scale
        return F.where(is_out, 0.0, -F.expm1(-(z**self.concentration)))

    def _icdf(self, p: Tensor) -> Tensor:
        return self.scale * (-F.log1p(-p)) ** (1 / self.concentration)

    def _entropy(self) -> Tensor:
        k = self.concentration
        return EULER * (1 - 1 / k) + F.log(self.scale / k) + 1

    def _mean(self) -> Tensor:
        return self.scale * F.exp(F.lgamma(1 + 1 / self.concentration))

    def _variance(self) -> Tensor:
        inverse = 1 / self.concentration
        once, twice = F.lgamma(1 + inverse), F.lgamma(1 + 2 * inverse)
        # The difference of both moments, which are near each other for a high concentration.
        square = self.scale * self.scale
        return square * F.exp(2 * once) * F.expm1(twice - 2 * once)

    def _mode(self) -> Tensor:
        is_inside = self.concentration > 1
        k = F.where(is_inside, self.concentration, 2.0)
        return F.where(is_inside, self.scale * ((k - 1) / k) ** (1 / k), 0.0)


class Pareto(_Scaled):
    """The Pareto distribution: (scale / x)^concentration is the probability to exceed x.

    Args:
        concentration: The exponent of the tail, above 0; a tensor, an array or a number.
        scale: The least value, above 0; the same.

    Raises:
        ArgumentError: A parameter is known and not above 0.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> gf.distributions.Pareto(concentration=2.0, scale=3.0).mean
    Tensor(6., dtype=float32)
    """

    concentration: Tensor
    """The exponent of the tail."""

    def __init__(self, *, concentration: TensorLike, scale: TensorLike = 1.0) -> None:
        super().__init__(("scale", scale), concentration=concentration)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        wait = random.exponential(dims, dtype=self._float, name=path)
        return self.scale * F.exp(wait / self.concentration)

    def _outside(self, x: Tensor) -> Tensor:
        return x < self.scale

    def _inner(self) -> TensorLike:
        return self.scale

    def _log_prob(self, x: Tensor) -> Tensor:
        k = self.concentration
        return F.log(k / self.scale) - (k + 1) * F.log(x / self.scale)

    def _cdf(self, x: Tensor) -> Tensor:
        z = F.log(F.maximum(x, self.scale) / self.scale)
        return -F.expm1(-self.concentration * z)

    def _icdf(self, p: Tensor) -> Tensor:
        return self.scale * F.exp(-F.log1p(-p) / self.concentration)

    def _entropy(self) -> Tensor:
        k = self.concentration
        return F.log(self.scale / k) + 1 + 1 / k

    def _mean(self) -> Tensor:
        k = self.concentration
        is_finite = k > 1
        safe = F.where(is_finite, k, 2.0)
        return F.where(is_finite, self.scale * safe / (safe - 1), INF)

    def _variance(self) -> Tensor:
        k = self.concentration
        is_finite = k > 2
        safe = F.where(is_finite, k, 3.0)
        less = self.scale / (safe - 1)
        return F.where(is_finite, less * less * safe / (safe - 2), INF)

    def _mode(self) -> Tensor:
        return self.scale
