"""`Distribution`: the frame of all distributions, and checks of their parameters."""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from graphfw.errors import ArgumentError, GradientError, ShapeError
from graphfw.hints.calls import ExplainedType, explained
from graphfw.hints.names import Answering
from graphfw.ir import concrete
from graphfw.ir.dtype import DType, float64, promote_all
from graphfw.ir.functions import CALLED as F
from graphfw.ir.shape import Requirement, broadcast, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, converted, dims_of, promoted
from graphfw.ops.composed import demand, floats, wide_dtype
from graphfw.ops.random.draws import ShapeLike, Stream, is_number, named, stream

INF = float("inf")
NAN = float("nan")
EULER = 0.5772156649015329
"""The Euler-Mascheroni constant."""


class Distribution(Answering, metaclass=ExplainedType):
    """The base of all distributions: described by tensors, and computed by the graph.

    A distribution has parameters of a batch shape, which they broadcast to, and draws of an event
    shape for each element of the batch: () for numbers. Results have the dtype of the parameters;
    16-bit floats are computed in float32 and rounded once.

    Parameters are tensors, arrays or numbers. Where their values are known, they are checked when
    the distribution is made; where not, results for parameters that make no sense are undefined.

    Attributes:
        batch_shape: The shape that the parameters broadcast to.
        event_shape: The shape of one draw for one element of the batch.
        dtype: The dtype of draws.

    >>> import graphfw as gf
    >>> d = gf.distributions.Normal(gf.zeros((3, 1)), gf.ones(4))
    >>> d.batch_shape, d.event_shape
    ((3, 4), ())
    >>> d.sample((2,)).shape, d.log_prob(0.5).shape
    ((2, 3, 4), (3, 4))
    """

    _answers_as = "Distribution"
    _is_reparameterised: ClassVar[bool] = False
    """Whether gradients flow through draws to all parameters."""
    _cancels: ClassVar[bool] = False
    """Whether formulas subtract large numbers that are near each other, so they need float64."""

    batch_shape: Shape
    event_shape: Shape
    dtype: DType
    _float: DType
    """The dtype of the parameters, and of all results but draws."""
    _parameters: tuple[str, ...]
    """The attributes that are converted for computations in another dtype."""

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        batch_shape: Shape,
        event_shape: Shape = (),
        dtype: DType | None = None,
        floating: DType | None = None,
    ) -> None:
        """Note what subclasses have checked.

        Args:
            parameters: Tensors of one floating-point dtype, by the names of their attributes.
            batch_shape: The shape of the batch.
            event_shape: The shape of one draw.
            dtype: The dtype of draws; by default that of the parameters.
            floating: The dtype of results, where there are no parameters.
        """
        self._parameters = tuple(parameters)
        for name, tensor in parameters.items():
            setattr(self, name, tensor)
        self._float = floating or next(iter(parameters.values())).dtype
        self.batch_shape = batch_shape
        self.event_shape = event_shape
        self.dtype = dtype or self._float

    def __repr__(self) -> str:
        """Return the class with the shapes and the dtype."""
        shapes = f"batch_shape={self.batch_shape}, event_shape={self.event_shape}"
        return f"{type(self).__name__}({shapes}, dtype={self.dtype.name})"

    @property
    def has_rsample(self) -> bool:
        """Whether `rsample` works: gradients flow through draws to the parameters."""
        return self._is_reparameterised

    @explained
    def sample(self, shape: ShapeLike = (), *, name: str | None = None) -> Tensor:
        """Draw. No gradient flows to the parameters.  -> [*shape, *batch_shape, *event_shape]

        Args:
            shape: The shape of so many draws: dims, static or symbolic.
            name: The name of the result and of its stream of random numbers; see `gf.random`.

        Raises:
            ArgumentError: The name is no name for a draw.
            ShapeError: `shape` is no shape.
        """
        return F.stop_gradient(self._drawn("sample", shape, name))

    @explained
    def rsample(self, shape: ShapeLike = (), *, name: str | None = None) -> Tensor:
        """Draw the same as `sample`, with gradients that flow to the parameters.

        -> [*shape, *batch_shape, *event_shape]

        Args:
            shape: The shape of so many draws: dims, static or symbolic.
            name: The name of the result and of its stream of random numbers; see `gf.random`.

        Raises:
            ArgumentError: The name is no name for a draw.
            GradientError: Draws have no such gradients.
            ShapeError: `shape` is no shape.
        """
        if not self.has_rsample:
            others = ", ".join(sorted(_reparameterised(Distribution.__subclasses__())))
            raise GradientError(
                f"{type(self).__name__}.rsample: no gradient flows through draws to the parameters",
                fix="use sample, and the gradient of gf.stop_gradient(reward) * d.log_prob(x); "
                f"rsample is a method of {others}",
            )
        return self._drawn("rsample", shape, name)

    @explained
    def log_prob(self, value: TensorLike) -> Tensor:
        """Return the logarithm of the density, or of the probability of discrete values.

        value: [*V, *event_shape] -> [*B], where V and the batch shape broadcast to B. It is -inf
        for values that are never drawn.

        Args:
            value: A tensor or a number; its dtype and that of the parameters promote.

        Raises:
            DTypeError: The value is complex.
            ShapeError: It is not of the event shape, or does not broadcast with the batch shape.
        """
        x, to = self._checked("log_prob", value, self.event_shape)
        return converted(self._in(self._wide_dtype(to))._log_prob_everywhere(x), to)

    @explained
    def cdf(self, value: TensorLike) -> Tensor:
        """Return the probability of draws up to a value.

        value: [*V] -> [*B], where V and the batch shape broadcast to B.

        Raises:
            ArgumentError: The distribution has no closed form of it.
            DTypeError: The value is complex.
            ShapeError: The value does not broadcast with the batch shape.
        """
        if self.event_shape:
            raise self._missing("cdf")
        x, to = self._checked("cdf", value, ())
        return converted(self._in(self._wide_dtype(to))._cdf(x), to)

    @explained
    def icdf(self, probability: TensorLike) -> Tensor:
        """Return the value up to which draws are of a probability: the inverse of `cdf`.

        probability: [*V] -> [*B], where V and the batch shape broadcast to B.

        Raises:
            ArgumentError: The distribution has no closed form of it.
            DTypeError: The probability is complex.
            ShapeError: The probability does not broadcast with the batch shape.
        """
        if self.event_shape:
            raise self._missing("icdf")
        p, to = self._checked("icdf", probability, ())
        return converted(self._in(self._wide_dtype(to))._icdf(p), to)

    @explained
    def entropy(self) -> Tensor:
        """Return the entropy, in natural units: the mean of -log_prob.  -> batch_shape

        Raises:
            ArgumentError: The distribution has no closed form of it.
        """
        return self._spread(self._wide()._entropy(), self.batch_shape)

    @property
    def mean(self) -> Tensor:
        """The mean, or NaN where there is none.  -> [*batch_shape, *event_shape]"""
        return self._spread(self._wide()._mean(), (*self.batch_shape, *self.event_shape))

    @property
    def variance(self) -> Tensor:
        """The variance of each element, or NaN.  -> [*batch_shape, *event_shape]"""
        return self._spread(self._wide()._variance(), (*self.batch_shape, *self.event_shape))

    @property
    def std(self) -> Tensor:
        """The standard deviation of each element.  -> [*batch_shape, *event_shape]"""
        return self._spread(self._wide()._std(), (*self.batch_shape, *self.event_shape))

    @property
    def mode(self) -> Tensor:
        """The value of the highest probability or density.  -> [*batch_shape, *event_shape]"""
        shape = (*self.batch_shape, *self.event_shape)
        return converted(F.broadcast_to(self._wide()._mode(), shape), self.dtype)

    # Formulas of subclasses, for checked shapes, in a dtype of 32 bits or more.

    @abc.abstractmethod
    def _draw(self, dims: Shape, path: Stream) -> Tensor:
        """Return draws of the shape [*dims, *event_shape]; dims end in the batch shape."""

    @abc.abstractmethod
    def _log_prob(self, x: Tensor) -> Tensor:
        """Return the logarithm of the density or probability of values that are drawn."""

    def _outside(self, x: Tensor) -> Tensor | None:
        """Return where values are never drawn; None where all numbers are."""
        return None

    def _inner(self) -> TensorLike:
        """Return a value for which the formula is finite; it stands for those that are outside."""
        return 1.0

    def _cdf(self, x: Tensor) -> Tensor:
        raise self._missing("cdf")

    def _icdf(self, p: Tensor) -> Tensor:
        raise self._missing("icdf")

    def _entropy(self) -> Tensor:
        raise self._missing("entropy")

    def _mean(self) -> Tensor:
        raise self._missing("mean")

    def _variance(self) -> Tensor:
        raise self._missing("variance")

    def _std(self) -> Tensor:
        return F.sqrt(self._variance())

    def _mode(self) -> Tensor:
        raise self._missing("mode")

    def _as_value(self, what: str, value: TensorLike) -> Tensor:
        """Return a value as a tensor; a number takes the dtype of the parameters."""
        tensor = as_tensor(value, self._float)
        return floats(what, tensor if tensor.dtype.is_inexact else converted(tensor, self._float))

    def _in(self, dtype: DType) -> Self:
        """Return the distribution with parameters of another dtype."""
        if dtype is self._float:
            return self
        made = copy.copy(self)
        made._float = dtype
        for name in self._parameters:
            setattr(made, name, converted(getattr(self, name), dtype))
        return made

    # Checks and conversions around them.

    def _wide_dtype(self, dtype: DType) -> DType:
        """Return the dtype to compute results of a dtype in."""
        return float64 if self._cancels else wide_dtype(dtype)

    def _wide(self) -> Self:
        return self._in(self._wide_dtype(self._float))

    def _spread(self, result: Tensor, shape: Shape) -> Tensor:
        return converted(F.broadcast_to(result, shape), self._float)

    def _drawn(self, what: str, shape: ShapeLike, name: str | None) -> Tensor:
        dims = dims_of(f"{type(self).__name__}.{what}", shape)
        return named(self._draw((*dims, *self.batch_shape), stream(what, name)), name)

    def _log_prob_everywhere(self, x: Tensor) -> Tensor:
        is_out = self._outside(x)
        if is_out is None:
            return self._log_prob(x)
        # The formula never sees such values: its gradient there could be NaN, which a factor of 0
        # does not remove.
        is_wrong = is_out
        for _ in self.event_shape:
            is_wrong = F.expand_dims(is_wrong, axis=-1)
        return F.where(is_out, -INF, self._log_prob(F.where(is_wrong, self._inner(), x)))

    def _checked(self, what: str, value: TensorLike, event: Shape) -> tuple[Tensor, DType]:
        """Return a value in the dtype to compute in, and the dtype of the result."""
        what = f"{type(self).__name__}.{what}"
        tensor = self._as_value(what, value)
        count = len(event)
        at = tensor.ndim - count
        demand(
            at >= 0 and tensor.shape[at:] == event,
            f"{what}: the value's shape {shape_text(tensor.shape)} does not end in the event shape "
            f"{shape_text(event)}",
            {"value": tensor},
            fix="the last dims are those of one draw, as in d.sample()",
            error=ShapeError,
        )
        try:
            broadcast(tensor.shape[:at], self.batch_shape)
        except Requirement as failed:
            shapes = f"{shape_text(tensor.shape[:at])} and {shape_text(self.batch_shape)}"
            raise ShapeError(
                f"{what}: the value's dims and the batch shape, {shapes}, don't broadcast",
                operands=[concrete.describe("value", tensor)],
                fix=failed.fix,
            ) from None
        if not tensor.dtype.is_floating:
            return tensor, self._float
        to = promote_all((self._float, tensor.dtype))
        return converted(tensor, self._wide_dtype(to)), to

    def _missing(self, what: str) -> ArgumentError:
        """Return the error of a result that has no closed form."""
        message = f"{type(self).__name__}.{what}: there is none in closed form"
        is_of_vectors = what in ("cdf", "icdf") and self.event_shape
        return ArgumentError(message, fix=_OF_VECTORS if is_of_vectors else _FIXES[what])


_FIXES = {
    "entropy": "estimate it from draws: -gf.mean(d.log_prob(d.sample((1000,))), axis=0)",
    "mean": "estimate it from draws: gf.mean(d.sample((1000,)), axis=0)",
    "variance": "estimate it from draws: gf.var(d.sample((1000,)), axis=0)",
    "mode": "look for the greatest d.log_prob(x), by its gradient",
    "cdf": "estimate it from draws: gf.mean(gf.astype(d.sample((1000,)) <= value, gf.float32), "
    "axis=0)",
    "icdf": "estimate it from draws: gf.quantile(d.sample((1000,)), p, axis=0)",
}
_OF_VECTORS = "distributions of numbers have it: take that of one element"


def _reparameterised(kinds: Iterable[type[Distribution]]) -> Iterator[str]:
    """Yield the names of the classes, and of their subclasses, whose draws have gradients."""
    for kind in kinds:
        if kind._is_reparameterised and not kind.__name__.startswith("_"):
            yield kind.__name__
        yield from _reparameterised(kind.__subclasses__())


class Range(NamedTuple):
    """A condition on a parameter's values.

    Attributes:
        text: The words of an error: "above 0".
        holds: Given a NumPy array, returns where it holds.
        fix: The way to make any number fulfil it.
    """

    text: str
    holds: Callable[[Any], Any]
    fix: str


POSITIVE = Range("above 0", lambda v: v > 0, "gf.softplus and gf.exp make any number positive")
NOT_NEGATIVE = Range("0 or more", lambda v: v >= 0, "gf.softplus makes any number positive")
PROBABILITY = Range(
    "from 0 to 1", lambda v: (v >= 0) & (v <= 1), "pass any numbers by their name: logits=…"
)


def parameters(what: str, **given: TensorLike) -> dict[str, Tensor]:
    """Return parameters as tensors of their common floating-point dtype.

    Raises:
        DTypeError: One is complex.
    """
    tensors = promoted(what, *given.values())
    return {label: floats(what, t) for label, t in zip(given, tensors, strict=True)}


def batch_of(what: str, operands: Mapping[str, Tensor]) -> Shape:
    """Return the shape that parameters broadcast to.

    Args:
        what: The distribution.
        operands: The parameters by their labels.

    Raises:
        ShapeError: They don't broadcast.
    """
    shapes = [tensor.shape for tensor in operands.values()]
    try:
        return broadcast(*shapes)
    except Requirement as failed:
        shown = " and ".join([f"dim {axis} of {shape_text(shapes[i])}" for i, axis in failed.at])
        raise failed.error(
            f"{what}: {failed.message}: {shown}",
            operands=[concrete.describe(label, tensor) for label, tensor in operands.items()],
            fix=failed.fix,
        ) from None


def demand_range(what: str, label: str, given: TensorLike, tensor: Tensor, wanted: Range) -> None:
    """Demand that the values of a parameter are in a range, where they are known.

    Args:
        what: The distribution.
        label: The parameter.
        given: The parameter as the user gave it.
        tensor: The same as a tensor.
        wanted: The range.

    Raises:
        ArgumentError: They are not.
    """
    known = concrete.value_to_check(tensor)
    if known is None:
        return
    is_in = np.asarray(wanted.holds(known))
    if is_in.all():
        return
    is_one = is_number(given)
    found = f"{label}={given}" if is_one else f"{label} has {float(known[~is_in].flat[0]):g}, and"
    message = f"{what}: {found} must be {wanted.text}"
    demand(False, message, {} if is_one else {label: tensor}, fix=wanted.fix)


def one_of(what: str, **given: TensorLike | None) -> tuple[str, TensorLike]:
    """Return the one of several parameters that is given, with its name.

    Raises:
        ArgumentError: None is given, or more than one.
    """
    some = {label: value for label, value in given.items() if value is not None}
    names = " or ".join([f"{label}=…" for label in given])
    message = f"{what}: {'both' if len(some) > 1 else 'none'} of {' and '.join(given)} are given"
    demand(len(some) == 1, message, fix=f"pass {names}")
    return next(iter(some.items()))


def log_of_chance(p: Tensor) -> Tensor:
    """Return the logarithm of probabilities: -inf of 0, with a gradient of 0."""
    is_none = p == 0
    return F.where(is_none, -INF, F.log(F.where(is_none, 1.0, p)))


def times_log(weight: Tensor, log: Tensor) -> Tensor:
    """Return the product of a weight and a logarithm, 0 where the weight is 0.

    There the logarithm, which may be -inf, takes no part in gradients either.
    """
    return weight * F.where(weight == 0, 0.0, log)
