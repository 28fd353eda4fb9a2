"""Distributions of yes or no, and of counts: Bernoulli, geometric, binomial, Poisson."""

from __future__ import annotations

from typing import Any

from graphfw.distributions.base import (
    INF,
    NOT_NEGATIVE,
    PROBABILITY,
    Distribution,
    Range,
    demand_range,
    one_of,
    parameters,
    times_log,
)
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import DType, bool_, int64
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops import random
from graphfw.ops.args import TensorLike, as_tensor, whole
from graphfw.ops.composed import demand
from graphfw.ops.random.draws import Stream

__all__ = ["Bernoulli", "Binomial", "Geometric", "Poisson"]

_SOME = Range(
    "above 0 and at most 1",
    lambda v: (v > 0) & (v <= 1),
    "pass any numbers by their name: logits=…",
)


class _OfChance(Distribution):
    """Distributions with the chance of one event, as a probability or a logit."""

    _chance: Tensor
    _has_logits: bool

    def __init__(
        self, probs: TensorLike, logits: TensorLike, dtype: DType, wanted: Range = PROBABILITY
    ) -> None:
        what = type(self).__name__
        label, given = one_of(what, probs=probs, logits=logits)
        (tensor,) = parameters(what, **{label: given}).values()
        if label == "probs":
            demand_range(what, label, given, tensor, wanted)
        self._has_logits = label == "logits"
        super().__init__({"_chance": tensor}, tensor.shape, dtype=dtype)

    @property
    def probs(self) -> Tensor:
        """The probability of the event."""
        return F.sigmoid(self._chance) if self._has_logits else self._chance

    @property
    def logits(self) -> Tensor:
        """The logarithm of the odds of the event."""
        return self._chance if self._has_logits else F.logit(self._chance)

    @property
    def _log_yes(self) -> Tensor:
        """The logarithm of the probability."""
        return F.log_sigmoid(self._chance) if self._has_logits else F.log(self._chance)

    @property
    def _log_no(self) -> Tensor:
        """The logarithm of the probability of the opposite."""
        return F.log_sigmoid(-self._chance) if self._has_logits else F.log1p(-self._chance)

    @property
    def _no(self) -> Tensor:
        """The probability of the opposite."""
        return F.sigmoid(-self._chance) if self._has_logits else 1 - self._chance

    def _log_chance(self, yes: Tensor, no: Tensor) -> Tensor:
        """Return the logarithm of the chance of so many events and so many opposites."""
        if self._has_logits:
            return times_log(yes, self._log_yes) + times_log(no, self._log_no)
        return F.xlogy(yes, self._chance) + F.xlog1py(no, -self._chance)


def _is_no_count(x: Tensor) -> Tensor:
    return (x < 0) | (x > F.floor(x)) | (x == INF)


class Bernoulli(_OfChance):
    """The Bernoulli distribution: True with a probability, else False.

    Args:
        probs: The probability of True; a tensor, an array or a number from 0 to 1.
        logits: Its logit, the logarithm of the odds, instead.

    Raises:
        ArgumentError: probs is known and not from 0 to 1; none of both is given, or both.
        DTypeError: The parameter is complex.

    >>> import graphfw as gf
    >>> gf.distributions.Bernoulli(logits=0.0).mean
    Tensor(0.5, dtype=float32)
    """

    def __init__(self, *, probs: TensorLike = None, logits: TensorLike = None) -> None:
        super().__init__(probs, logits, bool_)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.bernoulli(self._wide().probs, dims, name=path)

    def _outside(self, x: Tensor) -> Tensor:
        return (x != 0) & (x != 1)

    def _log_prob(self, x: Tensor) -> Tensor:
        return self._log_chance(x, 1 - x)

    def _cdf(self, x: Tensor) -> Tensor:
        return F.where(x < 0, 0.0, F.where(x < 1, self._no, 1.0))

    def _entropy(self) -> Tensor:
        return -self._log_chance(self.probs, self._no)

    def _mean(self) -> Tensor:
        return self.probs

    def _variance(self) -> Tensor:
        return self.probs * self._no

    def _mode(self) -> Tensor:
        return self._chance > (0.0 if self._has_logits else 0.5)


class Geometric(_OfChance):
    """The geometric distribution: the number of failures before the first success, 0, 1, 2, …

    The probability of k is p (1 - p)^k. SciPy counts the success, too.

    Args:
        probs: The probability of success; a tensor, an array or a number above 0, up to 1.
        logits: Its logit, the logarithm of the odds, instead.

    Raises:
        ArgumentError: probs is known and out of range; none of both is given, or both.
        DTypeError: The parameter is complex.

    >>> import graphfw as gf
    >>> gf.distributions.Geometric(probs=0.25).mean
    Tensor(3., dtype=float32)
    """

    def __init__(self, *, probs: TensorLike = None, logits: TensorLike = None) -> None:
        super().__init__(probs, logits, int64, _SOME)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        wide = self._wide()
        wait = random.exponential(dims, dtype=wide._float, name=path)
        return F.astype(F.floor(F.minimum(wait / -wide._log_no, 2.0**62)), int64)

    def _outside(self, x: Tensor) -> Tensor:
        return _is_no_count(x)

    def _log_prob(self, x: Tensor) -> Tensor:
        return self._log_chance(F.ones_like(x), x)

    def _cdf(self, x: Tensor) -> Tensor:
        is_out = x < 0
        count = F.where(is_out, 0.0, F.floor(x)) + 1
        return F.where(is_out, 0.0, -F.expm1(count * self._log_no))

    def _entropy(self) -> Tensor:
        return -self._log_chance(F.ones_like(self._chance), self._no / self.probs)

    def _mean(self) -> Tensor:
        return F.exp(-self._chance) if self._has_logits else self._no / self._chance

    def _variance(self) -> Tensor:
        return self._mean() / self.probs

    def _mode(self) -> Tensor:
        return F.zeros_like(self._chance)


def checked_count(what: str, count: Any) -> DimLike:
    """Return the number of draws, as an int or a dim.

    Raises:
        ArgumentError: It is neither, or negative.
    """
    number = whole(what, "count", count)
    message = f"{what}: count={count} must not be negative"
    demand(isinstance(number, Dim) or number >= 0, message, fix="pass how many draws there are")
    return number


def log_choices(count: Tensor, chosen: Tensor) -> Tensor:
    """Return the logarithm of the number of ways to choose some of a count."""
    return -F.log(count + 1) - F.betaln(count - chosen + 1, chosen + 1)


class Binomial(_OfChance):
    """The binomial distribution: the number of independent tries in which an event occurs.

    Args:
        count: The number of tries: an int or a dim.
        probs: The probability of the event; a tensor, an array or a number from 0 to 1.
        logits: Its logit, the logarithm of the odds, instead.

    Raises:
        ArgumentError: count is no int or negative; probs is known and not from 0 to 1; none of
            both is given, or both.
        DTypeError: The parameter is complex.

    >>> import graphfw as gf
    >>> gf.distributions.Binomial(10, probs=0.25).mean
    Tensor(2.5, dtype=float32)
    """

    _cancels = True

    def __init__(self, count: Any, *, probs: TensorLike = None, logits: TensorLike = None) -> None:
        self.count = checked_count("Binomial", count)
        super().__init__(probs, logits, int64)

    @property
    def _tries(self) -> Tensor:
        return as_tensor(self.count, self._float)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        wide = self._wide()
        both = F.stack([wide.probs, wide._no], axis=-1)
        return random.multinomial(self.count, both, dims, name=path)[..., 0]

    def _outside(self, x: Tensor) -> Tensor:
        return _is_no_count(x) | (x > self._tries)

    def _inner(self) -> TensorLike:
        return 0.0

    def _log_prob(self, x: Tensor) -> Tensor:
        tries = self._tries
        return log_choices(tries, x) + self._log_chance(x, tries - x)

    def _cdf(self, x: Tensor) -> Tensor:
        tries = self._tries
        is_inside = (x >= 0) & (x < tries)
        count = F.where(is_inside, F.floor(x), 0.0)
        left = F.where(is_inside, tries - count, 1.0)
        return F.where(is_inside, F.betainc(left, count + 1, self._no), F.where(x < 0, 0.0, 1.0))

    def _entropy(self) -> Tensor:
        log = self._log_prob(self._support())
        return -F.sum(F.exp(log) * F.where(log == -INF, 0.0, log), axis=0)

    def _support(self) -> Tensor:
        """Return all values, with dims of 1 for the batch.  -> [count + 1, 1, …]"""
        values = F.arange(self.count + 1, dtype=self._float)
        return F.reshape(values, (self.count + 1, *[1] * len(self.batch_shape)))

    def _mean(self) -> Tensor:
        return self._tries * self.probs

    def _variance(self) -> Tensor:
        return self._tries * self.probs * self._no

    def _mode(self) -> Tensor:
        return F.minimum(F.floor((self._tries + 1) * self.probs), self._tries)


class Poisson(Distribution):
    """The Poisson distribution of counts: the probability of k is rate^k exp(-rate) / k!.

    Args:
        rate: The mean; a tensor, an array or a number from 0 to 2^53.

    Raises:
        ArgumentError: rate is known and negative.
        DTypeError: It is complex.

    >>> import graphfw as gf
    >>> gf.distributions.Poisson(2.5).variance
    Tensor(2.5, dtype=float32)
    """

    _cancels = True

    rate: Tensor
    """The mean."""

    def __init__(self, rate: TensorLike) -> None:
        tensors = parameters("Poisson", rate=rate)
        demand_range("Poisson", "rate", rate, tensors["rate"], NOT_NEGATIVE)
        super().__init__(tensors, tensors["rate"].shape, dtype=int64)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.poisson(self.rate, dims, name=path)

    def _outside(self, x: Tensor) -> Tensor:
        return _is_no_count(x)

    def _log_prob(self, x: Tensor) -> Tensor:
        return F.xlogy(x, self.rate) - self.rate - F.lgamma(x + 1)

    def _cdf(self, x: Tensor) -> Tensor:
        is_out = x < 0
        count = F.where(is_out, 0.0, F.floor(x))
        return F.where(is_out, 0.0, F.gammaincc(count + 1, self.rate))

    def _mean(self) -> Tensor:
        return self.rate

    def _variance(self) -> Tensor:
        return self.rate

    def _mode(self) -> Tensor:
        return F.floor(self.rate)
