"""Learning rates that change with the number of updates made.

Each function returns a `Schedule`, which an optimiser calls with that number, a float64 scalar that
is 0 before the first update; the rate is computed in the graph. Any function from such a tensor to
a scalar tensor, or to a number, will do.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias

from graphfw.errors import counted
from graphfw.hints.calls import explained
from graphfw.hints.names import Answering, hints_for_module
from graphfw.ir.dtype import float64
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import as_tensor, converted
from graphfw.ops.composed import demand

__all__ = [
    "constant",
    "cosine",
    "cosine_restarts",
    "cyclic",
    "exponential",
    "inverse_sqrt",
    "join",
    "linear",
    "one_cycle",
    "piecewise",
    "polynomial",
    "step_decay",
    "warmup",
    "warmup_stable_decay",
]

if not TYPE_CHECKING:  # which would take a module with `__getattr__` to have every name
    __getattr__, __dir__ = hints_for_module("gf.optim.schedules", __name__, __all__)

P = ParamSpec("P")

Schedule: TypeAlias = Callable[[Tensor], Tensor | float]


class _Formula(Answering):
    """A schedule that knows what it is."""

    _answers_as = "Schedule"

    def __init__(self, text: str, rate: Callable[[Tensor], Any]) -> None:
        self._text = text
        self._rate = rate
        self.call: tuple[str, tuple[Any, ...], dict[str, Any]]
        """The function of this module that has returned it, and the arguments."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _called, self.call

    def __call__(self, step: Tensor) -> Tensor:
        return as_tensor(self._rate(converted(as_tensor(step), float64)), float64)

    def __repr__(self) -> str:
        return self._text


def _called(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Schedule:
    made: Schedule = globals()[name](*args, **kwargs)
    return made


def _schedule(function: Callable[P, _Formula]) -> Callable[P, Schedule]:
    """Have a function's schedules pickled as calls of it."""

    @explained
    @functools.wraps(function)
    def make(*args: P.args, **kwargs: P.kwargs) -> Schedule:
        made = function(*args, **kwargs)
        made.call = function.__name__, args, kwargs
        return made

    return make


@_schedule
def constant(lr: float) -> _Formula:
    """The same rate always.

    Raises:
        ArgumentError: lr is not positive.
    """
    _check("constant", lr=lr)
    return _Formula(f"constant({lr})", lambda t: lr)


@_schedule
def step_decay(lr: float, every: int, factor: float = 0.1) -> _Formula:
    """Multiply the rate by `factor` after `every` updates, again and again.

    Raises:
        ArgumentError: A number is not positive.
    """
    _check("step_decay", lr=lr, every=every, factor=factor)
    text = f"step_decay({lr}, every={every}, factor={factor})"
    return _Formula(text, lambda t: lr * F.pow(float(factor), F.floor(t / every)))


@_schedule
def exponential(lr: float, factor: float, every: float = 1) -> _Formula:
    """Multiply the rate by `factor` every so many updates, smoothly: lr factor^(t / every).

    Raises:
        ArgumentError: A number is not positive.
    """
    _check("exponential", lr=lr, factor=factor, every=every)
    text = f"exponential({lr}, factor={factor}, every={every})"
    return _Formula(text, lambda t: lr * F.pow(float(factor), t / every))


@_schedule
def linear(lr: float, steps: int, final: float = 0.0) -> _Formula:
    """Go from lr to `final` in a straight line of so many updates, and stay there.

    Raises:
        ArgumentError: lr or steps is not positive, or final is negative.
    """
    return _between("linear", lr, steps, final, lambda progress: 1 - progress)


@_schedule
def polynomial(lr: float, steps: int, power: float = 1.0, final: float = 0.0) -> _Formula:
    """Go from lr to `final` within so many updates, by (1 - t / steps)^power, and stay there.

    Raises:
        ArgumentError: lr, steps or power is not positive, or final is negative.
    """
    _check("polynomial", power=power)
    return _between(
        "polynomial",
        lr,
        steps,
        final,
        lambda progress: F.pow(1 - progress, float(power)),
        f", power={power}",
    )


@_schedule
def cosine(lr: float, steps: int, final: float = 0.0, warmup: int = 0) -> _Formula:
    """Go from lr to `final` by half a cosine of so many updates, and stay there.

    With `warmup`, the first so many of the steps go from lr / warmup to lr in a straight line.
    I. Loshchilov, F. Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017.

    Raises:
        ArgumentError: lr or steps is not positive, final is negative, or warmup is not below steps.
    """
    if isinstance(steps, int):  # other kinds are refused below
        _check("cosine", steps=steps)
    fits = 0 <= warmup < steps
    message = f"cosine: warmup={warmup} must be at least 0 and below steps={steps}"
    demand(fits, message, fix="the warmup is among the steps: give more of these")

    fall = _between("cosine", lr, steps - warmup, final, _half_wave)
    return _warmed(fall, warmup) if warmup else fall


@_schedule
def cosine_restarts(
    lr: float, steps: int, final: float = 0.0, growth: int = 1, factor: float = 1.0
) -> _Formula:
    """Go from lr to `final` by half a cosine, and begin again, as often as there are updates.

    I. Loshchilov, F. Hutter, "SGDR: stochastic gradient descent with warm restarts", 2017.

    Args:
        lr: The largest rate.
        steps: The number of updates of the first cosine.
        final: The rate that each cosine goes to.
        growth: The length of a cosine, as a multiple of the one before.
        factor: The factor of lr from each cosine to the next.

    Raises:
        ArgumentError: lr, steps or factor is not positive, growth is below 1, or final is negative.

    >>> import graphfw as gf
    >>> schedule = gf.optim.schedules.cosine_restarts(1.0, 2, growth=2)
    >>> [round(float(schedule(gf.asarray(t))), 3) for t in range(7)]
    [1.0, 0.5, 1.0, 0.854, 0.5, 0.146, 1.0]
    """
    _check("cosine_restarts", lr=lr, steps=steps, factor=factor)
    _check_final("cosine_restarts", final)
    message = f"cosine_restarts: growth={growth} must be at least 1"
    demand(growth >= 1, message, fix="use growth=2 for cosines that get longer")

    def start(cycle: Tensor) -> Tensor:
        """Return the number of updates before a cosine."""
        if growth == 1:
            return cycle * steps
        before: Tensor = steps * (F.pow(float(growth), cycle) - 1) / (growth - 1)
        return before

    def rate(t: Tensor) -> Any:
        cycle = F.floor(t / steps)
        if growth > 1:
            cycle = F.floor(F.log(t / steps * (growth - 1) + 1) / math.log(growth))
            # The logarithm of a power may be rounded down.
            cycle = cycle + converted(start(cycle + 1) <= t, float64)
        begin = start(cycle)
        weight = _half_wave((t - begin) / (start(cycle + 1) - begin))
        top = lr if factor == 1 else lr * F.pow(float(factor), cycle)
        return final + (top - final) * weight

    text = f"cosine_restarts({lr}, {steps}, final={final}, growth={growth}, factor={factor})"
    return _Formula(text, rate)


@_schedule
def cyclic(
    low: float, lr: float, rise: int, fall: int | None = None, factor: float = 1.0
) -> _Formula:
    """Go from low to lr and back, in straight lines, again and again.

    L. N. Smith, "Cyclical learning rates for training neural networks", 2017.

    Args:
        low: The smallest rate.
        lr: The largest rate.
        rise: The number of updates of each way up.
        fall: The number of updates of each way down; as many as up where it is left out.
        factor: The factor of lr - low from each cycle to the next: 0.5 for "triangular2".

    Raises:
        ArgumentError: A number is not positive, or low is negative.
    """
    down = rise if fall is None else fall
    _check("cyclic", lr=lr, rise=rise, fall=down, factor=factor)
    demand(low >= 0, f"cyclic: low={low} must not be negative", fix="use low=0.0")
    length = rise + down

    def rate(t: Tensor) -> Any:
        cycle = F.floor(t / length)
        done = t - cycle * length
        height = F.where(done <= rise, done / rise, (length - done) / down)
        return low + (lr - low) * height * (1 if factor == 1 else F.pow(float(factor), cycle))

    return _Formula(f"cyclic({low}, {lr}, {rise}, fall={down}, factor={factor})", rate)


@_schedule
def inverse_sqrt(lr: float, warmup: int = 1) -> _Formula:
    """Rise to lr in a straight line of so many updates, then fall as the root of their number.

    The t-th update has lr min(t / warmup, sqrt(warmup / t)). A. Vaswani et al., "Attention is all
    you need", 2017, where lr is 1 / sqrt(warmup d_model).

    Raises:
        ArgumentError: lr or warmup is not positive.
    """
    _check("inverse_sqrt", lr=lr, warmup=warmup)

    def rate(t: Tensor) -> Any:
        number = (t + 1) / warmup
        return lr * F.minimum(number, F.rsqrt(number))

    return _Formula(f"inverse_sqrt({lr}, warmup={warmup})", rate)


@_schedule
def warmup_stable_decay(
    lr: float,
    steps: int,
    warmup: int,
    decay: int,
    final: float = 0.0,
    shape: Literal["linear", "cosine", "sqrt"] = "linear",
) -> _Formula:
    """Rise to lr in a straight line, stay there, and fall to `final` in the last updates.

    S. Hu et al., "MiniCPM: unveiling the potential of small language models", 2024.

    Args:
        lr: The largest rate.
        steps: The number of updates.
        warmup: The number of updates of the rise; the first is at lr / warmup.
        decay: The number of updates of the fall, at the end.
        final: The rate to end with, and to stay at.
        shape: The way down: a straight line, half a cosine, or by 1 - sqrt(x), as in A. Hägele et
            al., "Scaling laws and compute-optimal training beyond fixed training durations", 2024.

    Raises:
        ArgumentError: A number is not positive, final is negative, or warmup and decay are more
            than steps.

    >>> import graphfw as gf
    >>> schedule = gf.optim.schedules.warmup_stable_decay(1.0, 8, warmup=2, decay=4)
    >>> [float(schedule(gf.asarray(t))) for t in range(9)]
    [0.5, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    name = "warmup_stable_decay"
    _check(name, warmup=warmup, decay=decay)
    message = f"{name}: warmup={warmup} and decay={decay} are more than steps={steps}"
    demand(warmup + decay <= steps, message, fix="these updates are among the steps: give more")
    weights = {"linear": lambda x: 1 - x, "cosine": _half_wave, "sqrt": lambda x: 1 - F.sqrt(x)}
    fall = _between(name, lr, decay, final, weights[shape])

    def rate(t: Tensor) -> Any:
        return fall(F.maximum(t - (steps - decay), 0)) * F.minimum((t + 1) / warmup, 1)

    text = f"{name}({lr}, {steps}, {warmup}, {decay}, final={final}, shape={shape!r})"
    return _Formula(text, rate)


@_schedule
def join(schedules: Sequence[float | Schedule], boundaries: Sequence[int]) -> _Formula:
    """Use one schedule after the other: schedules[i] until boundaries[i] updates are made.

    Each counts the updates from where it begins.

    Raises:
        ArgumentError: There is not one schedule more than boundaries, boundaries don't rise, or a
            number is not positive.

    >>> import graphfw as gf
    >>> from graphfw.optim import schedules
    >>> schedule = schedules.join([0.5, schedules.linear(1.0, 4)], [2])
    >>> [float(schedule(gf.asarray(t))) for t in range(6)]
    [0.5, 0.5, 1.0, 0.75, 0.5, 0.25]
    """
    edges = _checked_boundaries("join", boundaries, schedules, "schedule")
    found = [s if callable(s) else constant(s) for s in schedules]

    def rate(t: Tensor) -> Any:
        starts = [0, *edges]
        rates = [f(F.maximum(t - n, 0)) for f, n in zip(found, starts, strict=True)]
        return _in_turn(t, edges, rates)

    return _Formula(f"join({found}, {edges})", rate)


@_schedule
def warmup(schedule: float | Schedule, steps: int) -> _Formula:
    """Begin another schedule by so many updates in a straight line, the first at 1 / steps.

    Raises:
        ArgumentError: steps or the rate is not positive.
    """
    _check("warmup", steps=steps)
    return _warmed(schedule if callable(schedule) else constant(schedule), steps)


@_schedule
def piecewise(boundaries: Sequence[int], rates: Sequence[float]) -> _Formula:
    """Use one rate after the other: rates[i] until boundaries[i] updates are made.

    Raises:
        ArgumentError: There is not one rate more than boundaries, boundaries don't rise, or a
            number is not positive.

    >>> import graphfw as gf
    >>> schedule = gf.optim.schedules.piecewise([2, 4], [0.1, 0.01, 0.001])
    >>> [float(schedule(gf.asarray(t))) for t in range(6)]
    [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    """
    edges, values = _checked_boundaries("piecewise", boundaries, rates, "rate"), list(rates)
    _check("piecewise", **{f"rates[{i}]": value for i, value in enumerate(values)})
    return _Formula(f"piecewise({edges}, {values})", lambda t: _in_turn(t, edges, values))


@_schedule
def one_cycle(
    lr: float, steps: int, rise: float = 0.3, start: float = 1 / 25, final: float = 1 / 250_000
) -> _Formula:
    """Rise from lr start to lr, and fall to lr final, both by half a cosine; then stay there.

    L. N. Smith, N. Topin, "Super-convergence", 2018.

    Args:
        lr: The largest rate.
        steps: The number of updates.
        rise: The share of them that rise.
        start: The rate to begin with, as a fraction of lr.
        final: The rate to end with, as a fraction of lr.

    Raises:
        ArgumentError: A number is not positive, or rise is not below 1, or there are too few steps.
    """
    _check("one_cycle", lr=lr, steps=steps, rise=rise, start=start, final=final)
    fix = "rise is a fraction of the steps, such as 0.3"
    demand(rise < 1, f"one_cycle: rise={rise} must be below 1", fix=fix)
    top = rise * steps - 1
    message = f"one_cycle: steps={steps} with rise={rise} leaves no update to rise in"
    demand(top > 0, message, fix="give more steps")

    def between(low: float, high: float, progress: Any) -> Any:
        return low + (high - low) * (1 - F.cos(math.pi * progress)) / 2

    def rate(t: Tensor) -> Any:
        falling = F.minimum((t - top) / (steps - 1 - top), 1)
        return F.where(t <= top, between(lr * start, lr, t / top), between(lr, lr * final, falling))

    return _Formula(f"one_cycle({lr}, {steps}, rise={rise}, start={start}, final={final})", rate)


def _half_wave(progress: Tensor) -> Tensor:
    """Return half a cosine's fall from 1 to 0."""
    fall: Tensor = (1 + F.cos(math.pi * progress)) / 2
    return fall


def _in_turn(t: Tensor, edges: Sequence[int], values: Sequence[Any]) -> Any:
    """Return values[i] until edges[i] updates are made."""
    result: Any = values[-1]
    for boundary, value in reversed(list(zip(edges, values, strict=False))):
        result = F.where(t < boundary, value, as_tensor(result, float64))
    return result


def _checked_boundaries(
    name: str, boundaries: Sequence[int], values: Sequence[Any], what: str
) -> list[int]:
    """Return the numbers of updates that divide values.

    Raises:
        ArgumentError: There is not one value more, or the numbers don't rise from above 0.
    """
    edges = list(boundaries)
    demand(
        len(values) == len(edges) + 1,
        f"{name}: {counted(len(edges), 'boundary', 'boundaries')} divide "
        f"{len(edges) + 1} {what}s, not {len(values)}",
        fix=f"give one {what} more than boundaries",
    )
    rising = all(a < b for a, b in pairwise(edges))
    demand(rising, f"{name}: the boundaries {edges} must rise", fix="sort them, each once")
    _check(name, **{f"boundaries[{i}]": boundary for i, boundary in enumerate(edges)})
    return edges


def _between(
    name: str,
    lr: float,
    steps: int,
    final: float,
    weight: Callable[[Tensor], Tensor],
    more: str = "",
) -> _Formula:
    """Mix lr and final: `weight` gives lr's share for the fraction of the steps that is done."""
    _check(name, lr=lr, steps=steps)
    _check_final(name, final)
    text = f"{name}({lr}, {steps}, final={final}{more})"
    return _Formula(text, lambda t: final + (lr - final) * weight(F.minimum(t / steps, 1)))


def _warmed(schedule: Schedule, steps: int) -> _Formula:
    def rate(t: Tensor) -> Any:
        # What follows begins with its own step 0 when the line has ended.
        later = schedule(F.maximum(t - steps, 0))
        return later * F.minimum((t + 1) / steps, 1)

    return _Formula(f"warmup({schedule!r}, {steps})", rate)


def _check_final(name: str, final: float) -> None:
    demand(final >= 0, f"{name}: final={final} must not be negative", fix="use final=0.0")


def _check(name: str, **numbers: Any) -> None:
    """See that numbers are positive.

    Raises:
        ArgumentError: One is not.
    """
    for label, value in numbers.items():
        is_number = hasattr(value, "__float__") and not isinstance(value, (bool, Tensor))
        fix = f"give {label} as a number above 0"
        demand(is_number, f"{name}: {label}={value!r} is no number", fix=fix)
        demand(value > 0, f"{name}: {label}={value} must be above 0", fix=fix)
