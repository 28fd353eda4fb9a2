"""Functions with inverses, and the distributions of what they make of draws."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from typing import Any

from graphfw.distributions.base import INF, Distribution, Range, batch_of, demand_range, parameters
from graphfw.errors import ShapeError, a_type
from graphfw.hints.calls import ExplainedType, explained
from graphfw.ir.dtype import DType, promote_all
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import Requirement, broadcast, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike
from graphfw.ops.composed import demand
from graphfw.ops.random.draws import Stream

__all__ = [
    "AffineTransform",
    "ExpTransform",
    "SigmoidTransform",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
]

_NOT_ZERO = Range("other than 0", lambda v: v != 0, "a factor of 0 has no inverse")


@explained
class Transform(metaclass=ExplainedType):
    """The base of functions of single numbers that rise, or fall, everywhere.

    A subclass defines `forward`, `inverse` and `log_abs_det`; and the results' `low` and `high`,
    where not all numbers are results.

    >>> import graphfw as gf
    >>> class Cube(gf.distributions.Transform):
    ...     def forward(self, x):
    ...         return x**3
    ...
    ...     def inverse(self, y):
    ...         return gf.sign(y) * gf.abs(y) ** (1 / 3)
    ...
    ...     def log_abs_det(self, x):
    ...         return gf.log(3 * x**2)
    >>> d = gf.distributions.TransformedDistribution(gf.distributions.Normal(0.0, 1.0), Cube())
    >>> d.cdf(0.0)
    Tensor(0.5, dtype=float32)
    """

    low: float = -INF
    """The end that all results are above."""
    high: float = INF
    """The end that all results are below."""
    shape: Shape = ()
    """The shape that the parameters broadcast to."""
    dtype: DType | None = None
    """The dtype of the parameters."""

    def __init__(self) -> None:
        pass

    @abc.abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Return the function of x, element by element."""

    @abc.abstractmethod
    def inverse(self, y: Tensor) -> Tensor:
        """Return the x whose function is y."""

    @abc.abstractmethod
    def log_abs_det(self, x: Tensor) -> Tensor:
        """Return the logarithm of the absolute value of the slope at x, element by element."""

    def is_falling(self) -> Tensor | bool:
        """Return whether it falls; it rises by default."""
        return False


@explained
class AffineTransform(Transform):
    """loc + scale x.

    Args:
        loc: The offset; a tensor, an array or a number.
        scale: The factor, not 0; the same.

    Raises:
        ArgumentError: scale is known and 0.
        DTypeError: A parameter is complex.
        ShapeError: The parameters don't broadcast.

    >>> import graphfw as gf
    >>> gf.distributions.AffineTransform(1.0, 2.0).forward(gf.asarray(3.0))
    Tensor(7., dtype=float32)
    """

    def __init__(self, loc: TensorLike, scale: TensorLike) -> None:
        tensors = parameters("AffineTransform", loc=loc, scale=scale)
        self.loc, self.scale = tensors.values()
        demand_range("AffineTransform", "scale", scale, self.scale, _NOT_ZERO)
        self.shape = batch_of("AffineTransform", tensors)
        self.dtype = self.loc.dtype

    def forward(self, x: Tensor) -> Tensor:
        """Return loc + scale x."""
        return self.loc + self.scale * x

    def inverse(self, y: Tensor) -> Tensor:
        """Return (y - loc) / scale."""
        return (y - self.loc) / self.scale

    def log_abs_det(self, x: Tensor) -> Tensor:
        """Return log |scale|, in the shape of the result."""
        return F.log(F.abs(self.scale)) + F.zeros_like(x)

    def is_falling(self) -> Tensor | bool:
        """Return whether scale is below 0."""
        return self.scale < 0


@explained
class ExpTransform(Transform):
    """exp(x).

    >>> import graphfw as gf
    >>> gf.distributions.ExpTransform().inverse(gf.asarray(1.0))
    Tensor(0., dtype=float32)
    """

    low = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Return exp(x)."""
        return F.exp(x)

    def inverse(self, y: Tensor) -> Tensor:
        """Return log(y)."""
        return F.log(y)

    def log_abs_det(self, x: Tensor) -> Tensor:
        """Return x."""
        return x


@explained
class SigmoidTransform(Transform):
    """The sigmoid, 1 / (1 + exp(-x)).

    >>> import graphfw as gf
    >>> gf.distributions.SigmoidTransform().inverse(gf.asarray(0.5))
    Tensor(0., dtype=float32)
    """

    low, high = 0.0, 1.0

    def forward(self, x: Tensor) -> Tensor:
        """Return the sigmoid of x."""
        return F.sigmoid(x)

    def inverse(self, y: Tensor) -> Tensor:
        """Return log(y / (1 - y))."""
        return F.logit(y)

    def log_abs_det(self, x: Tensor) -> Tensor:
        """Return the logarithm of the product of the sigmoids of x and -x."""
        return F.log_sigmoid(x) + F.log_sigmoid(-x)


@explained
class TanhTransform(Transform):
    """tanh(x).

    Draws that round to 1 or -1 have a log_prob of -inf: where draws are far out, add up the base's
    log_prob and `log_abs_det` of its draws, as docs/distributions.md shows.

    >>> import graphfw as gf
    >>> gf.distributions.TanhTransform().inverse(gf.asarray(0.0))
    Tensor(0., dtype=float32)
    """

    low, high = -1.0, 1.0

    def forward(self, x: Tensor) -> Tensor:
        """Return tanh(x)."""
        return F.tanh(x)

    def inverse(self, y: Tensor) -> Tensor:
        """Return atanh(y)."""
        return F.atanh(y)

    def log_abs_det(self, x: Tensor) -> Tensor:
        """Return log(1 - tanh(x)²), from the sigmoids of 2x and -2x, which do not cancel."""
        return 2 * math.log(2) + F.log_sigmoid(2 * x) + F.log_sigmoid(-2 * x)


class TransformedDistribution(Distribution):
    """The distribution of a function of draws.

    Args:
        base: The distribution of what the function is applied to.
        transforms: The function; or several, the first of which is applied first.

    Raises:
        ArgumentError: base is no distribution of floats, or a transform is none.
        ShapeError: The parameters of a transform don't broadcast with the base's shape.

    >>> import graphfw as gf
    >>> normal = gf.distributions.Normal(0.0, 1.0)
    >>> squashed = gf.distributions.TransformedDistribution(
    ...     normal, [gf.distributions.AffineTransform(0.0, 2.0), gf.distributions.TanhTransform()]
    ... )
    >>> squashed.cdf(0.0), squashed.log_prob(2.0)
    (Tensor(0.5, dtype=float32), Tensor(-inf, dtype=float32))
    """

    def __init__(self, base: Distribution, transforms: Transform | Sequence[Transform]) -> None:
        what = "TransformedDistribution"
        given: Any = (transforms,) if isinstance(transforms, Transform) else tuple(transforms)
        for each in given:
            message = f"{what}: {a_type(each)} is no transform"
            demand(isinstance(each, Transform), message, fix="pass gf.distributions.ExpTransform()")
        message = f"{what}: draws of the base are of {base.dtype.name}"
        fix = "transform a distribution of floats"
        demand(base.dtype.is_floating, message, fix=fix)
        event = base.event_shape
        whole = (*base.batch_shape, *event)
        try:
            shape = broadcast(whole, *[each.shape for each in given])
        except Requirement as failed:
            shape, fix = (), failed.fix
        batch = shape[: len(shape) - len(event)]
        shapes = " and ".join([shape_text(each.shape) for each in given])
        demand(
            len(shape) >= len(whole) and shape[len(batch) :] == event,
            f"{what}: parameters of shape {shapes} don't broadcast with draws of {base}",
            fix=fix,
            error=ShapeError,
        )
        dtypes = [each.dtype for each in given if each.dtype is not None]
        floating = promote_all((base.dtype, *dtypes))
        super().__init__({}, batch, event, floating, floating)
        self.base = base
        self.transforms: tuple[Transform, ...] = given

    @property
    def has_rsample(self) -> bool:
        """Whether the base has `rsample`."""
        return self.base.has_rsample

    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        return self._forward(self.base._draw(dims, path))

    def _forward(self, x: Tensor) -> Tensor:
        for each in self.transforms:
            x = each.forward(x)
        return x

    def _log_prob(self, x: Tensor) -> Tensor:
        count = len(self.event_shape)
        axes = tuple(range(-count, 0))
        total: TensorLike = 0.0
        is_out: Tensor | None = None
        for each in reversed(self.transforms):
            if each.low > -INF or each.high < INF:
                wrong = (x <= each.low) | (x >= each.high)
                x = F.where(wrong, _between(each.low, each.high), x)
                wrong = F.any(wrong, axis=axes) if count else wrong
                is_out = wrong if is_out is None else is_out | wrong
            x = each.inverse(x)
            slope = each.log_abs_det(x)
            total = total + (F.sum(slope, axis=axes) if count else slope)
        log = self.base.log_prob(x) - total
        return log if is_out is None else F.where(is_out, -INF, log)

    def _cdf(self, x: Tensor) -> Tensor:
        for each in reversed(self.transforms):
            x = each.inverse(F.clip(x, each.low, each.high))
        return self._from_below(self.base.cdf(x))

    def _icdf(self, p: Tensor) -> Tensor:
        return self._forward(self.base.icdf(self._from_below(p)))

    def _from_below(self, p: Tensor) -> Tensor:
        """Return the probability of the base's draws below what a probability is that of."""
        is_falling: Tensor | bool = False
        for each in self.transforms:
            falls = each.is_falling()
            is_falling = falls if is_falling is False else is_falling ^ falls
        return p if is_falling is False else F.where(is_falling, 1 - p, p)


def _between(low: float, high: float) -> float:
    """Return a number between two ends, one of which may be infinite."""
    if low == -INF:
        return high - 1
    return low + 1 if high == INF else 0.5 * (low + high)
