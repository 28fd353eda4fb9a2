"""Distributions of classes, and of counts of classes: categorical, one-hot, multinomial."""

from __future__ import annotations

from typing import Any

from graphfw.distributions.base import (
    Distribution,
    Range,
    demand_range,
    log_of_chance,
    one_of,
    parameters,
    times_log,
)
from graphfw.distributions.counts import checked_count, log_choices
from graphfw.errors import ArgumentError, DTypeError, ShapeError
from graphfw.ir.dtype import int64
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops import random
from graphfw.ops.args import TensorLike, as_tensor
from graphfw.ops.composed import demand
from graphfw.ops.random.draws import Stream

__all__ = ["Categorical", "Multinomial", "OneHotCategorical"]

_WEIGHTS = Range(
    "0 or more, and not all 0",
    lambda v: (v >= 0) & (v.sum(axis=-1, keepdims=True) > 0),
    "pass logarithms by their name: logits=…",
)


class _OfClasses(Distribution):
    """Distributions with a probability for each class, from weights or from logits."""

    _weights: Tensor
    _has_logits: bool

    def __init__(self, probs: TensorLike, logits: TensorLike, is_vector: bool) -> None:
        what = type(self).__name__
        label, given = one_of(what, probs=probs, logits=logits)
        (tensor,) = parameters(what, **{label: given}).values()
        demand(
            tensor.ndim > 0 and tensor.shape[-1] != 0,
            f"{what}: {label} has no classes",
            {label: tensor},
            fix="give one number for each class along the last axis",
            error=ShapeError,
        )
        self._has_logits = label == "logits"
        if label == "probs":
            demand_range(what, label, given, tensor, _WEIGHTS)
        event = tensor.shape[-1:] if is_vector else ()
        super().__init__({"_weights": tensor}, tensor.shape[:-1], event, int64)

    @property
    def probs(self) -> Tensor:
        """The probabilities of the classes, which add up to 1.  -> [*batch_shape, K]"""
        if self._has_logits:
            return F.softmax(self._weights, axis=-1)
        return self._weights / F.sum(self._weights, axis=-1, keepdims=True)

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities.  -> [*batch_shape, K]"""
        if self._has_logits:
            return F.log_softmax(self._weights, axis=-1)
        return log_of_chance(self.probs)

    def _entropy(self) -> Tensor:
        return -F.sum(times_log(self.probs, self.logits), axis=-1)


class Categorical(_OfClasses):
    """The categorical distribution: the classes 0, 1, 2, … with a probability each.

    Args:
        probs: The probabilities, [*batch_shape, K], or numbers that are proportional to them.
        logits: Their logarithms, up to a constant that is added, instead.

    Raises:
        ArgumentError: probs are known, and one is negative or all are 0; none of both is given, or
            both.
        DTypeError: The parameter is complex.
        ShapeError: There are no classes.

    >>> import graphfw as gf
    >>> d = gf.distributions.Categorical(probs=[0.25, 0.75])
    >>> gf.exp(d.log_prob([0, 1]))
    Tensor([0.25, 0.75], dtype=float32)
    """

    def __init__(self, *, probs: TensorLike = None, logits: TensorLike = None) -> None:
        super().__init__(probs, logits, is_vector=False)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.categorical(self.logits, dims, name=path)

    def _as_value(self, what: str, value: TensorLike) -> Tensor:
        tensor = as_tensor(value)
        message = f"{what}: classes are integers, not {tensor.dtype.name}"
        fix = "convert them: gf.astype(value, gf.int64)"
        demand(tensor.dtype.is_integer, message, {"value": tensor}, fix=fix, error=DTypeError)
        return tensor

    def _outside(self, x: Tensor) -> Tensor:
        return (x < 0) | (x >= self._weights.shape[-1])

    def _inner(self) -> TensorLike:
        return 0

    def _log_prob(self, x: Tensor) -> Tensor:
        value, log = F.broadcast_arrays(F.expand_dims(x, axis=-1), self.logits)
        return F.take_along_axis(log, value[..., :1], axis=-1)[..., 0]

    def _mean(self) -> Tensor:
        raise self._no_number("mean")

    def _variance(self) -> Tensor:
        raise self._no_number("variance")

    def _no_number(self, what: str) -> ArgumentError:
        fix = f"take that of their vectors: gf.distributions.OneHotCategorical(logits=…).{what}"
        return ArgumentError(f"Categorical.{what}: classes are no numbers", fix=fix)

    def _mode(self) -> Tensor:
        return F.argmax(self._weights, axis=-1)


class OneHotCategorical(_OfClasses):
    """The one-hot categorical distribution: vectors that are 1 for a class and 0 for the others.

    Args:
        probs: The probabilities, [*batch_shape, K], or numbers that are proportional to them.
        logits: Their logarithms, up to a constant that is added, instead.

    Raises:
        ArgumentError: probs are known, and one is negative or all are 0; none of both is given, or
            both.
        DTypeError: The parameter is complex.
        ShapeError: There are no classes.

    >>> import graphfw as gf
    >>> gf.distributions.OneHotCategorical(probs=[0.0, 1.0]).sample()
    Tensor([0, 1], dtype=int64)
    """

    def __init__(self, *, probs: TensorLike = None, logits: TensorLike = None) -> None:
        super().__init__(probs, logits, is_vector=True)

    def _one_hot(self, index: Tensor) -> Tensor:
        return F.one_hot(index, self._weights.shape[-1], dtype=int64)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return self._one_hot(random.categorical(self.logits, dims, name=path))

    def _outside(self, x: Tensor) -> Tensor:
        is_vertex = F.all((x == 0) | (x == 1), axis=-1) & (F.sum(x, axis=-1) == 1)
        return ~is_vertex

    def _inner(self) -> TensorLike:
        return 0.0

    def _log_prob(self, x: Tensor) -> Tensor:
        return F.sum(F.where(x == 1, self.logits, 0.0), axis=-1)

    def _mean(self) -> Tensor:
        return self.probs

    def _variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def _mode(self) -> Tensor:
        return self._one_hot(F.argmax(self._weights, axis=-1))


class Multinomial(_OfClasses):
    """The multinomial distribution: counts of each class in a number of independent draws.

    Args:
        count: The number of draws: an int or a dim.
        probs: The probabilities, [*batch_shape, K], or numbers that are proportional to them.
        logits: Their logarithms, up to a constant that is added, instead.

    Raises:
        ArgumentError: count is no int or negative; probs are known, and one is negative or all are
            0; none of both is given, or both.
        DTypeError: The parameter is complex.
        ShapeError: There are no classes.

    >>> import graphfw as gf
    >>> gf.distributions.Multinomial(8, probs=[0.25, 0.75]).mean
    Tensor([2., 6.], dtype=float32)
    """

    _cancels = True

    def __init__(self, count: Any, *, probs: TensorLike = None, logits: TensorLike = None) -> None:
        self.count = checked_count("Multinomial", count)
        super().__init__(probs, logits, is_vector=True)

    @property
    def _draws(self) -> Tensor:
        return as_tensor(self.count, self._float)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return random.multinomial(self.count, self._wide().probs, dims, name=path)

    def _outside(self, x: Tensor) -> Tensor:
        is_count = F.all((x >= 0) & (x == F.floor(x)), axis=-1)
        return ~(is_count & (F.sum(x, axis=-1) == self._draws))

    def _inner(self) -> TensorLike:
        return 0.0

    def _log_prob(self, x: Tensor) -> Tensor:
        ways = F.lgamma(self._draws + 1) - F.sum(F.lgamma(x + 1), axis=-1)
        return ways + F.sum(times_log(x, self.logits), axis=-1)

    def _entropy(self) -> Tensor:
        # -log n! + n H(classes) + the mean of log k! for each class, whose count k is binomial.
        count, probs = self._draws, self.probs
        values = F.arange(self.count + 1, dtype=self._float)
        shape = (self.count + 1, *[1] * probs.ndim)
        k = F.reshape(values, shape)
        log = log_choices(count, k) + F.xlogy(k, probs) + F.xlog1py(count - k, -probs)
        mean = F.sum(F.exp(log) * F.lgamma(k + 1), axis=0)
        return count * super()._entropy() + F.sum(mean, axis=-1) - F.lgamma(count + 1)

    def _mean(self) -> Tensor:
        return self._draws * self.probs

    def _variance(self) -> Tensor:
        return self._draws * self.probs * (1 - self.probs)
