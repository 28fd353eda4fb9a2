"""`find_learning_rate`: a range test of learning rates."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphfw.data.feeds import Feeds
from graphfw.data.feeds import feeds as feeds_of
from graphfw.errors import ArgumentError, a_type
from graphfw.hints.calls import explained
from graphfw.ir.sources import Placeholder, VariableOp
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.ir.walk import ancestors
from graphfw.runtime.functions import Function
from graphfw.runtime.session import Session
from graphfw.train.computations import LOSS, Computation, computation
from graphfw.utils.records import record

_SKIPPED = 10
"""The fraction 1 / 10 of losses, at the beginning, is not suggested: their mean has few terms."""


_ROUNDING = 1e-9
"""The fraction of the loss by which rounding may change the smoothed loss."""

_FIX = (
    'write rate = gf.Variable(1e-3, name="rate", trainable=False), and gf.optim.Adam(rate); of a '
    "schedule it is a factor: gf.optim.Adam(lambda count: rate * schedule(count))"
)


@record
class LearningRates:
    """The result of a range test; print it for a table.

    Attributes:
        rates: The learning rates that were tried, each larger than the one before.
        losses: The smoothed loss before the step with each.
        suggestion: The rate at which the loss fell most steeply; None if it never fell.
        diverged: Whether the test ended before the highest rate, because the loss grew.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    suggestion: float | None
    diverged: bool

    def __str__(self) -> str:
        shown = sorted({*range(0, len(self.rates), max(len(self.rates) // 20, 1)), *self._marked()})
        rows = [
            f"{self.rates[i]:>10.3g}  {self.losses[i]:<10.4g}"
            + ("  <- the steepest fall" if i in self._marked() else "")
            for i in shown
        ]
        end = "ended where the loss grew" if self.diverged else "went through all rates"
        return "\n".join([f"{'rate':>10}  loss", *[row.rstrip() for row in rows], end])

    def _marked(self) -> list[int]:
        return [] if self.suggestion is None else [self.rates.index(self.suggestion)]


@explained
def find_learning_rate(
    session: Session | Function,
    step: Update | None = None,
    loss: Tensor | None = None,
    data: Any = None,
    *,
    feeds: Sequence[Tensor | str] | None = None,
    rate: Variable | Tensor,
    lowest: float = 1e-6,
    highest: float = 1.0,
    steps: int = 100,
    smoothing: float = 0.8,
    divergence: float = 4.0,
) -> LearningRates:
    """Try learning rates from a low to a high one, a step with each, and suggest one.

    The rates grow by the same factor from step to step. The losses are smoothed by an exponential
    moving average whose bias is corrected. The test ends at the highest rate, at the end of the
    data, or when the smoothed loss is not finite or above m + (divergence - 1) |m|, where m is the
    least so far. The suggestion is the rate at which the smoothed loss falls most steeply over the
    logarithm of the rate. Afterwards, and after an error, the variables, the step and the seed of
    the session are as before, bit for bit. A generator for data is used up.

    This is the range test of L. N. Smith, "Cyclical learning rates for training neural networks",
    2017, with a ramp that is exponential.

    Args:
        session: The session; or the training step as a `gf.function`, which returns the loss, or a
            dict with "loss".
        step: The update of a step: `optimizer.minimize(loss)`. Not with a function.
        loss: A tensor without dims, computed in each step. Not with a function.
        data: Batches, as `gf.data.feeds` takes them.
        feeds: The placeholders of the data, in the order of tuples in it. Not with a function.
        rate: The learning rate: a variable, or a placeholder of a graph, without dims. The
            optimiser has it as `lr`, or as a factor of a schedule:
            `lr=lambda count: rate * schedule(count)`; then rates of the result are that factor.
        lowest: The first rate.
        highest: The last one.
        steps: The number of rates.
        smoothing: The fraction of the average that is kept in each step, in [0, 1).
        divergence: The limit of the loss's growth, as above.

    Raises:
        ArgumentError: An argument makes no sense, or the step does not depend on the rate, as where
            the optimiser was given a number.
        FeedError: A batch does not fit the placeholders.

    >>> import numpy as np
    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("batch", 3), name="x")
    ...     loss = gf.mean((gf.nn.Linear(3, 1)(x) - gf.sum(x, axis=1, keepdims=True)) ** 2)
    ...     rate = gf.Variable(1e-3, name="rate", trainable=False)
    ...     step = gf.optim.SGD(rate).minimize(loss)
    >>> batches = gf.data.batches({"x": np.eye(3, dtype=np.float32)}, 3, epochs=None)
    >>> with gf.Session(g) as session:
    ...     found = gf.train.find_learning_rate(
    ...         session, step, loss, batches, feeds=[x], rate=rate, highest=100.0
    ...     )
    ...     session[rate] = found.suggestion
    >>> found.diverged, 1e-2 < found.suggestion < 10
    (True, True)
    """
    _check_rate(rate)
    tried = _ramp(lowest, highest, steps)
    _check_within("smoothing", smoothing, 0 <= smoothing < 1, "in [0, 1)", 0.8)
    _check_within("divergence", divergence, divergence > 1, "above 1", 4.0)
    is_fed = isinstance(rate.node.op, Placeholder)
    losses: list[float] = []
    average, diverged = 0.0, False
    trials, batches = _trials(session, step, loss, data, feeds, rate)
    with batches, _kept(trials.session):
        at = trials.names.index(LOSS)
        for number, (feed, value) in enumerate(zip(batches, tried, strict=False), 1):
            if not is_fed:
                trials.session[rate] = value  # type: ignore[index]  # a variable
            found = trials.metrics({**feed, rate: value} if is_fed else feed)[at]
            average = smoothing * average + (1 - smoothing) * float(found)
            smooth = average / (1 - smoothing**number)
            diverged = not smooth <= _limit(losses, divergence)
            if math.isfinite(smooth):
                losses.append(smooth)
            if diverged:
                break
    if not losses and not diverged:
        raise ArgumentError(
            "find_learning_rate: the data has no batches", fix="pass data with examples"
        )
    rates = tried[: len(losses)]
    return LearningRates(tuple(rates), tuple(losses), _steepest(rates, losses), diverged)


def _trials(
    session: Any,
    step: Any,
    loss: Any,
    data: Any,
    feeds: Sequence[Tensor | str] | None,
    rate: Variable | Tensor,
) -> tuple[Computation, Feeds]:
    """Return steps that have a loss and depend on a rate, and their batches.

    Raises:
        ArgumentError: There are none.
    """
    what = "find_learning_rate"
    if isinstance(session, Function):
        metrics = None if loss is None else {LOSS: loss}
        called = computation(what, session, metrics, feeds, step, trains=True)
        batches = called.feeds(data)
        program = called.plan.program
        try:
            _check_loss(called.names)
            _check_depends(program.source.outputs[program.fetch_count :], rate)
        except ArgumentError:
            batches.close()
            raise
        return called, batches
    own = [] if feeds is None else [*feeds]
    fed = [*own, rate] if isinstance(rate.node.op, Placeholder) else own
    trials = computation(what, session, {LOSS: loss}, fed, step, trains=True)
    _check_depends([value for _, value in step.pairs], rate)
    # The data has no column of rates: its batches are checked by a plan of the placeholders.
    return trials, feeds_of(data, trials.session.compile(own, own))


@contextmanager
def _kept(session: Session) -> Iterator[None]:
    """Restore a session at the end of a block."""
    before = session.state_dict()
    try:
        yield
    finally:
        session.load_state_dict(before)


def _limit(losses: Sequence[float], divergence: float) -> float:
    """Return the loss above which a test ends; NaN and infinity always end it."""
    if not losses:
        return sys.float_info.max
    least = min(losses)
    return least + (divergence - 1) * abs(least)


def _steepest(rates: Sequence[float], losses: Sequence[float]) -> float | None:
    """Return the rate where the losses fall most steeply, if they do."""
    first = len(losses) // _SKIPPED
    if len(losses) - first < 2:
        return None
    slopes = np.gradient(losses[first:], np.log(rates[first:]))
    lowest = int(np.argmin(slopes))
    rounding = _ROUNDING * max(map(abs, losses))
    return rates[first + lowest] if slopes[lowest] < -rounding else None


def _ramp(lowest: float, highest: float, steps: int) -> list[float]:
    """Return the rates.

    Raises:
        ArgumentError: They make no sense.
    """
    _check_within("lowest", lowest, 0 < lowest < math.inf, "above 0", 1e-6)
    _check_within("highest", highest, lowest < highest < math.inf, "above lowest", 1.0)
    if type(steps) is not int or steps < 2:
        raise ArgumentError(
            f"find_learning_rate: steps={steps!r} is no number of rates", fix="write steps=100"
        )
    ramp: list[float] = np.geomspace(lowest, highest, steps).tolist()
    return ramp


def _check_within(option: str, value: float, fits: bool, wanted: str, default: float) -> None:
    if not fits:
        raise ArgumentError(
            f"find_learning_rate: {option}={value!r} must be {wanted}",
            fix=f"write {option}={default:g}",
        )


def _check_rate(rate: Any) -> None:
    """See that a rate can be changed.

    Raises:
        ArgumentError: It can't.
    """
    is_input = isinstance(rate, Tensor) and isinstance(rate.node.op, (Placeholder, VariableOp))
    if not is_input or rate.shape != () or not rate.dtype.is_floating:
        shown = rate.type if isinstance(rate, Tensor) else a_type(rate)
        raise ArgumentError(
            f"find_learning_rate: the rate is {shown}, no real variable or placeholder without "
            "dims, so it can't be changed from step to step",
            fix=_FIX,
        )


def _check_depends(updates: Sequence[Tensor], rate: Tensor) -> None:
    """See that a step depends on a rate.

    Raises:
        ArgumentError: It does not.
    """
    if rate.node not in ancestors(updates):
        raise ArgumentError(
            f'find_learning_rate: the step does not depend on "{rate.name}": its optimiser has '
            "another rate, which is part of the step",
            fix=_FIX,
        )


def _check_loss(names: Sequence[str]) -> None:
    """See that a function returns a loss.

    Raises:
        ArgumentError: It does not.
    """
    if LOSS not in names:
        raise ArgumentError(
            f"find_learning_rate: the function returns {', '.join(names)}, and no loss",
            fix='return the loss by that name: return {"loss": loss}',
        )
