"""Distributions on all numbers with a centre and a width, and those of their functions."""

from __future__ import annotations

import abc
import math
from typing import ClassVar

from graphfw.distributions.base import (
    EULER,
    INF,
    NAN,
    POSITIVE,
    Distribution,
    batch_of,
    demand_range,
    parameters,
)
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops import random
from graphfw.ops.args import TensorLike
from graphfw.ops.random.draws import Stream

__all__ = [
    "Cauchy",
    "Gumbel",
    "HalfNormal",
    "Laplace",
    "LogNormal",
    "Logistic",
    "Normal",
    "StudentT",
]

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


class _LocationScale(Distribution):
    """The distributions of loc + scale · z, where z has a standard distribution."""

    _is_reparameterised = True
    _standard_variance: ClassVar[float]

    loc: Tensor
    """The centre."""
    scale: Tensor
    """The width."""

    def __init__(self, loc: TensorLike, scale: TensorLike) -> None:
        self._take(loc=loc, scale=scale)

    def _take(self, **given: TensorLike) -> None:
        """Take the parameters: all but loc are above 0."""
        what = type(self).__name__
        tensors = parameters(what, **given)
        for label, value in given.items():
            if label != "loc":
                demand_range(what, label, value, tensors[label], POSITIVE)
        super().__init__(tensors, batch_of(what, tensors))

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return self.loc + self.scale * self._standard_draw(dims, path)

    def _log_prob(self, x: Tensor) -> Tensor:
        return self._standard_log_prob((x - self.loc) / self.scale) - F.log(self.scale)

    def _cdf(self, x: Tensor) -> Tensor:
        return self._standard_cdf((x - self.loc) / self.scale)

    def _icdf(self, p: Tensor) -> Tensor:
        return self.loc + self.scale * self._standard_icdf(p)

    def _entropy(self) -> Tensor:
        return F.log(self.scale) + self._standard_entropy()

    def _mean(self) -> Tensor:
        return self.loc

    def _mode(self) -> Tensor:
        return self.loc

    def _variance(self) -> Tensor:
        return self._standard_variance * self.scale * self.scale

    def _std(self) -> Tensor:
        return math.sqrt(self._standard_variance) * self.scale

    @abc.abstractmethod
    def _standard_draw(self, dims: Shape, path: Stream) -> Tensor:
        """Return draws of the standard distribution: loc is 0 and scale 1."""

    @abc.abstractmethod
    def _standard_log_prob(self, z: Tensor) -> Tensor:
        """Return the logarithm of the standard density at z."""

    def _standard_cdf(self, z: Tensor) -> Tensor:
        raise self._missing("cdf")

    def _standard_icdf(self, p: Tensor) -> Tensor:
        raise self._missing("icdf")

    @abc.abstractmethod
    def _standard_entropy(self) -> Tensor | float:
        """Return the entropy of the standard distribution."""


class Normal(_LocationScale):
    """The normal distribution: exp(-z² / 2) / (scale √(2π)), where z = (x - loc) / scale.

    Args:
        loc: The mean; a tensor, an array or a number.
        scale: The standard deviation, above 0; the same.

    Raises:
        ArgumentError: scale is known and not above 0.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> d = gf.distributions.Normal(0.0, gf.asarray([1.0, 2.0]))
    >>> d.cdf(0.0)
    Tensor([0.5, 0.5], dtype=float32)
    >>> d.rsample((1000,)).shape
    (1000, 2)
    """

    _standard_variance = 1.0

    def _standard_draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.normal(dims, dtype=self._float, name=path)

    def _standard_log_prob(self, z: Tensor) -> Tensor:
        return -0.5 * z * z - _HALF_LOG_TAU

    def _standard_cdf(self, z: Tensor) -> Tensor:
        return F.ndtr(z)

    def _standard_icdf(self, p: Tensor) -> Tensor:
        return F.ndtri(p)

    def _standard_entropy(self) -> Tensor | float:
        return 0.5 + _HALF_LOG_TAU


class Laplace(_LocationScale):
    """The Laplace distribution: exp(-|x - loc| / scale) / (2 scale).

    Args:
        loc: The mean; a tensor, an array or a number.
        scale: The mean distance from it, above 0; the same.

    Raises:
        ArgumentError: scale is known and not above 0.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> gf.distributions.Laplace(1.0, 2.0).variance
    Tensor(8., dtype=float32)
    """

    _standard_variance = 2.0

    def _standard_draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.laplace(dims, dtype=self._float, name=path)

    def _standard_log_prob(self, z: Tensor) -> Tensor:
        return -F.abs(z) - math.log(2)

    def _standard_cdf(self, z: Tensor) -> Tensor:
        is_left = z < 0
        left = 0.5 * F.exp(F.where(is_left, z, 0.0))
        return F.where(is_left, left, 1 - 0.5 * F.exp(-F.where(is_left, 0.0, z)))

    def _standard_icdf(self, p: Tensor) -> Tensor:
        is_left = p < 0.5
        left = F.log(2 * F.where(is_left, p, 0.5))
        return F.where(is_left, left, -F.log(2 - 2 * F.where(is_left, 0.5, p)))

    def _standard_entropy(self) -> Tensor | float:
        return 1 + math.log(2)


class Cauchy(_LocationScale):
    """The Cauchy distribution: 1 / (π scale (1 + z²)), where z = (x - loc) / scale.

    It has no mean and no variance: both are NaN.

    Args:
        loc: The median; a tensor, an array or a number.
        scale: Half the width at half the height, above 0; the same.

    Raises:
        ArgumentError: scale is known and not above 0.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> gf.distributions.Cauchy(0.0, 1.0).cdf(1.0)
    Tensor(0.75, dtype=float32)
    """

    _standard_variance = NAN

    def _standard_draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.cauchy(dims, dtype=self._float, name=path)

    def _standard_log_prob(self, z: Tensor) -> Tensor:
        return -F.log1p(z * z) - math.log(math.pi)

    def _standard_cdf(self, z: Tensor) -> Tensor:
        return F.atan2(F.ones_like(z), -z) / math.pi  # exact far on the left, too

    def _standard_icdf(self, p: Tensor) -> Tensor:
        return F.tan(math.pi * (p - 0.5))

    def _standard_entropy(self) -> Tensor | float:
        return math.log(4 * math.pi)

    def _mean(self) -> Tensor:
        return F.full_like(self.loc, NAN)


class Gumbel(_LocationScale):
    """The Gumbel distribution: exp(-z - exp(-z)) / scale, where z = (x - loc) / scale.

    Args:
        loc: The mode; a tensor, an array or a number.
        scale: The width, above 0; the same.

    Raises:
        ArgumentError: scale is known and not above 0.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> gf.distributions.Gumbel(1.0, 2.0).mode
    Tensor(1., dtype=float32)
    """

    _standard_variance = math.pi**2 / 6

    def _standard_draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.gumbel(dims, dtype=self._float, name=path)

    def _standard_log_prob(self, z: Tensor) -> Tensor:
        return -z - F.exp(-z)

    def _standard_cdf(self, z: Tensor) -> Tensor:
        return F.exp(-F.exp(-z))

    def _standard_icdf(self, p: Tensor) -> Tensor:
        return -F.log(-F.log(p))

    def _standard_entropy(self) -> Tensor | float:
        return 1 + EULER

    def _mean(self) -> Tensor:
        return self.loc + EULER * self.scale


class Logistic(_LocationScale):
    """The logistic distribution, whose distribution function is the sigmoid of (x - loc) / scale.

    Args:
        loc: The mean; a tensor, an array or a number.
        scale: The width, above 0; the same.

    Raises:
        ArgumentError: scale is known and not above 0.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> gf.distributions.Logistic(3.0, 1.0).cdf(3.0)
    Tensor(0.5, dtype=float32)
    """

    _standard_variance = math.pi**2 / 3

    def _standard_draw(self, dims: Shape, path: Stream) -> Tensor:
        # The difference of two independent Gumbel draws.
        one = random.gumbel(dims, dtype=self._float, name=path.substream("one"))
        return one - random.gumbel(dims, dtype=self._float, name=path.substream("other"))

    def _standard_log_prob(self, z: Tensor) -> Tensor:
        return F.log_sigmoid(z) + F.log_sigmoid(-z)

    def _standard_cdf(self, z: Tensor) -> Tensor:
        return F.sigmoid(z)

    def _standard_icdf(self, p: Tensor) -> Tensor:
        return F.logit(p)

    def _standard_entropy(self) -> Tensor | float:
        return 2.0


class StudentT(_LocationScale):
    """Student's t distribution: (1 + z² / freedom)^(-(freedom + 1) / 2), up to a factor.

    z = (x - loc) / scale. It has a mean for freedom > 1, and a variance for freedom > 2; else they
    are NaN, or infinite.

    Args:
        freedom: The degrees of freedom, above 0; a tensor, an array or a number.
        loc: The median; the same.
        scale: The width, above 0; the same.

    Raises:
        ArgumentError: freedom or scale is known and not above 0.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> gf.distributions.StudentT(4.0).variance
    Tensor(2., dtype=float32)
    """

    freedom: Tensor
    """The degrees of freedom."""

    def __init__(self, freedom: TensorLike, loc: TensorLike = 0.0, scale: TensorLike = 1.0) -> None:
        self._take(freedom=freedom, loc=loc, scale=scale)

    def _standard_draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.student_t(dims, self.freedom, dtype=self._float, name=path)

    def _standard_log_prob(self, z: Tensor) -> Tensor:
        freedom = self.freedom
        # The ratio of two gamma functions by the beta function, which does not cancel.
        log_factor = F.betaln(0.5 * freedom, 0.5) + 0.5 * F.log(freedom)
        return -0.5 * (freedom + 1) * F.log1p(z * z / freedom) - log_factor

    def _standard_entropy(self) -> Tensor | float:
        freedom = self.freedom
        more, half = 0.5 * (freedom + 1), 0.5 * freedom
        log_factor = F.betaln(half, 0.5) + 0.5 * F.log(freedom)
        return more * (F.digamma(more) - F.digamma(half)) + log_factor

    def _mean(self) -> Tensor:
        return F.where(self.freedom > 1, self.loc, NAN)

    def _variance(self) -> Tensor:
        is_finite = self.freedom > 2
        safe = F.where(is_finite, self.freedom, 3.0)
        finite = self.scale * self.scale * safe / (safe - 2)
        return F.where(is_finite, finite, F.where(self.freedom > 1, INF, NAN))

    def _std(self) -> Tensor:
        return F.sqrt(self._variance())


class LogNormal(Distribution):
    """The distribution of exp(y), where y is normal: loc and scale are those of the logarithm.

    Args:
        loc: The mean of the logarithm; a tensor, an array or a number.
        scale: The standard deviation of the logarithm, above 0; the same.

    Raises:
        ArgumentError: scale is known and not above 0.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> gf.distributions.LogNormal(0.0, 1.0).cdf(1.0)
    Tensor(0.5, dtype=float32)
    """

    _is_reparameterised = True

    loc: Tensor
    """The mean of the logarithm."""
    scale: Tensor
    """The standard deviation of the logarithm."""

    def __init__(self, loc: TensorLike, scale: TensorLike) -> None:
        tensors = parameters("LogNormal", loc=loc, scale=scale)
        demand_range("LogNormal", "scale", scale, tensors["scale"], POSITIVE)
        super().__init__(tensors, batch_of("LogNormal", tensors))

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return F.exp(random.normal(dims, self.loc, self.scale, dtype=self._float, name=path))

    def _outside(self, x: Tensor) -> Tensor:
        return x <= 0

    def _log_prob(self, x: Tensor) -> Tensor:
        log = F.log(x)
        z = (log - self.loc) / self.scale
        return -0.5 * z * z - _HALF_LOG_TAU - F.log(self.scale) - log

    def _cdf(self, x: Tensor) -> Tensor:
        is_out = x <= 0
        z = (F.log(F.where(is_out, 1.0, x)) - self.loc) / self.scale
        return F.where(is_out, 0.0, F.ndtr(z))

    def _icdf(self, p: Tensor) -> Tensor:
        return F.exp(self.loc + self.scale * F.ndtri(p))

    def _entropy(self) -> Tensor:
        return self.loc + F.log(self.scale) + (0.5 + _HALF_LOG_TAU)

    def _mean(self) -> Tensor:
        return F.exp(self.loc + 0.5 * self.scale * self.scale)

    def _variance(self) -> Tensor:
        square = self.scale * self.scale
        return F.expm1(square) * F.exp(2 * self.loc + square)

    def _mode(self) -> Tensor:
        return F.exp(self.loc - self.scale * self.scale)


class HalfNormal(Distribution):
    """The distribution of |y|, where y is normal around 0.

    Args:
        scale: The standard deviation of y, above 0; a tensor, an array or a number.

    Raises:
        ArgumentError: scale is known and not above 0.
        DTypeError: scale is complex.

    >>> import graphfw as gf
    >>> gf.distributions.HalfNormal(1.0).log_prob(-1.0)
    Tensor(-inf, dtype=float32)
    """

    _is_reparameterised = True

    scale: Tensor
    """The standard deviation before the sign is dropped."""

    def __init__(self, scale: TensorLike) -> None:
        tensors = parameters("HalfNormal", scale=scale)
        demand_range("HalfNormal", "scale", scale, tensors["scale"], POSITIVE)
        super().__init__(tensors, tensors["scale"].shape)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return F.abs(random.normal(dims, 0.0, self.scale, dtype=self._float, name=path))

    def _outside(self, x: Tensor) -> Tensor:
        return x < 0

    def _log_prob(self, x: Tensor) -> Tensor:
        z = x / self.scale
        return -0.5 * z * z + (math.log(2) - _HALF_LOG_TAU) - F.log(self.scale)

    def _cdf(self, x: Tensor) -> Tensor:
        is_out = x < 0
        return F.where(is_out, 0.0, F.erf(F.where(is_out, 0.0, x) / self.scale * math.sqrt(0.5)))

    def _icdf(self, p: Tensor) -> Tensor:
        return self.scale * (math.sqrt(2) * F.erfinv(p))

    def _entropy(self) -> Tensor:
        return F.log(self.scale) + (0.5 + _HALF_LOG_TAU - math.log(2))

    def _mean(self) -> Tensor:
        return math.sqrt(2 / math.pi) * self.scale

    def _variance(self) -> Tensor:
        return (1 - 2 / math.pi) * self.scale * self.scale

    def _mode(self) -> Tensor:
        return F.zeros_like(self.scale)
