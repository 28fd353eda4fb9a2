"""Distributions made of others: several as one, mixtures."""

from __future__ import annotations

from graphfw.distributions.base import Distribution
from graphfw.distributions.classes import Categorical
from graphfw.errors import ShapeError, a_type
from graphfw.ir.dtype import promote_all
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import Requirement, broadcast, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops import random
from graphfw.ops.args import TensorLike, is_whole
from graphfw.ops.composed import demand
from graphfw.ops.random.draws import Stream

__all__ = ["Independent", "MixtureSameFamily"]


class Independent(Distribution):
    """A batch of distributions as one: the last batch dims become dims of the event.

    `log_prob` and `entropy` add up over them.

    Args:
        base: The distribution.
        ndims: The number of its last batch dims that are of one event, 0 or more.

    Raises:
        ArgumentError: base is no distribution, or ndims is no number of its batch dims.

    >>> import graphfw as gf
    >>> d = gf.distributions.Independent(gf.distributions.Normal(gf.zeros((5, 3)), 1.0), 1)
    >>> d.batch_shape, d.event_shape, d.log_prob(gf.zeros(3)).shape
    ((5,), (3,), (5,))
    """

    def __init__(self, base: Distribution, ndims: int = 1) -> None:
        message = f"Independent: base is {a_type(base)}, not a distribution"
        demand(isinstance(base, Distribution), message, fix="pass gf.distributions.Normal(…)")
        batch = base.batch_shape
        demand(
            is_whole(ndims) and 0 <= ndims <= len(batch),
            f"Independent: ndims={ndims!r} is no number of dims of the batch {shape_text(batch)}",
            fix="it is how many of the last ones are of one event",
        )
        at = len(batch) - ndims
        event = (*batch[at:], *base.event_shape)
        super().__init__({}, batch[:at], event, base.dtype, base._float)
        self.base = base
        self.ndims = ndims

    @property
    def has_rsample(self) -> bool:
        """Whether the base has `rsample`."""
        return self.base.has_rsample

    def _as_value(self, what: str, value: TensorLike) -> Tensor:
        return self.base._as_value(what, value)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return self.base._draw((*dims, *self.event_shape[: self.ndims]), path)

    def _sum(self, x: Tensor) -> Tensor:
        return F.sum(x, axis=tuple(range(-self.ndims, 0)))

    def _log_prob(self, x: Tensor) -> Tensor:
        return self._sum(self.base.log_prob(x))

    def _entropy(self) -> Tensor:
        return self._sum(self.base.entropy())

    def _mean(self) -> Tensor:
        return self.base.mean

    def _variance(self) -> Tensor:
        return self.base.variance

    def _std(self) -> Tensor:
        return self.base.std

    def _mode(self) -> Tensor:
        return self.base.mode


class MixtureSameFamily(Distribution):
    """Draws from one of K distributions, which is drawn by a probability each.

    The K distributions are one with K as its last batch dim.

    Args:
        mixture: The probability of each: a `Categorical` of K classes.
        components: A distribution of the batch shape [*B, K].

    Raises:
        ArgumentError: mixture is no `Categorical`, or components are no distribution.
        ShapeError: The components have no batch dim, or not K of it; or the other batch dims don't
            broadcast.

    >>> import graphfw as gf
    >>> D = gf.distributions
    >>> d = D.MixtureSameFamily(D.Categorical(probs=[0.5, 0.5]), D.Normal([-1.0, 1.0], 0.1))
    >>> d.cdf(0.0)
    Tensor(0.5, dtype=float32)
    """

    def __init__(self, mixture: Categorical, components: Distribution) -> None:
        what = "MixtureSameFamily"
        message = f"{what}: mixture is {a_type(mixture)}, not a Categorical"
        fix = "pass gf.distributions.Categorical(logits=…), and the components"
        demand(isinstance(mixture, Categorical), message, fix=fix)
        message = f"{what}: components are {a_type(components)}, not a distribution"
        demand(isinstance(components, Distribution), message, fix=fix)
        classes = mixture._weights.shape[-1]
        batch = components.batch_shape
        fix = "the components' last batch dim counts them"
        message = f"{what}: {classes} classes, and components of the batch {shape_text(batch)}"
        demand(batch[-1:] == (classes,), message, fix=fix, error=ShapeError)
        try:
            shape = broadcast(mixture.batch_shape, batch[:-1])
        except Requirement as failed:
            shapes = f"{shape_text(mixture.batch_shape)} and {shape_text(batch[:-1])}"
            message = f"{what}: the batches of mixture and components, {shapes}, don't broadcast"
            raise ShapeError(message, fix=failed.fix) from None
        floating = promote_all((mixture._float, components._float))
        super().__init__({}, shape, components.event_shape, components.dtype, floating)
        self.mixture = mixture
        self.components = components

    def _as_value(self, what: str, value: TensorLike) -> Tensor:
        return self.components._as_value(what, value)

    @property
    def _axis(self) -> int:
        """The axis of the components in their values."""
        return -1 - len(self.event_shape)

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        classes = self.components.batch_shape[-1]
        each = self.components._draw((*dims, classes), path.substream("components"))
        index = random.categorical(self.mixture.logits, dims, name=path.substream("mixture"))
        for _ in range(1 + len(self.event_shape)):
            index = F.expand_dims(index, axis=-1)
        index = F.broadcast_to(index, (*dims, 1, *self.event_shape))
        return F.squeeze(F.take_along_axis(each, index, axis=self._axis), axis=self._axis)

    def _log_prob(self, x: Tensor) -> Tensor:
        each = self.components.log_prob(F.expand_dims(x, axis=self._axis))
        return F.logsumexp(each + self.mixture.logits, axis=-1)

    def _cdf(self, x: Tensor) -> Tensor:
        each = self.components.cdf(F.expand_dims(x, axis=-1))
        return F.sum(each * self.mixture.probs, axis=-1)

    def _average(self, x: Tensor) -> Tensor:
        """Return the mean over the components.  x: [*B, K, *event_shape]"""
        probs = self.mixture.probs
        for _ in self.event_shape:
            probs = F.expand_dims(probs, axis=-1)
        return F.sum(probs * x, axis=self._axis)

    def _mean(self) -> Tensor:
        return self._average(self.components.mean)

    def _variance(self) -> Tensor:
        mean = F.expand_dims(self._mean(), axis=self._axis)
        off = self.components.mean - mean
        return self._average(self.components.variance + off * off)
