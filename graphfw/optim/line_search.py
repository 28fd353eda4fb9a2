"""Line searches in a graph: loops that compute a loss and its gradients along a direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from graphfw.ir.dtype import int64
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import as_tensor

Objective = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A function that returns a loss and its gradient at a vector of parameters."""

_DECREASE, _CURVATURE = 1e-4, 0.9
"""Wolfe's numbers: the least decrease and the largest slope, as fractions of the first slope."""

_LIMIT = 25
"""The number of evaluations after which a line search ends."""


class Point(NamedTuple):
    """A point on a line: its distance t, the loss there, its slope, and its gradient."""

    t: Tensor
    value: Tensor
    slope: Tensor
    gradient: Tensor


class _End(NamedTuple):
    """The far end of a bracket; its gradient is never used."""

    t: Tensor
    value: Tensor
    slope: Tensor


End = TypeVar("End", Point, _End)


class _Search(NamedTuple):
    """The state of a line search.

    Attributes:
        number: The number of evaluations so far.
        ends: Whether it has found a fitting point, or can't.
        brackets: Whether a fitting point is known to be between `low` and `high`.
        stalls: Whether the last guess was too near to an end of the bracket.
        t: The next guess.
        low: The lowest point so far; before there is a bracket, the last one.
        high: The other end of the bracket.
    """

    number: Tensor
    ends: Tensor
    brackets: Tensor
    stalls: Tensor
    t: Tensor
    low: Point
    high: _End


def fixed_step(
    objective: Objective, x: Tensor, direction: Tensor, start: Point, first: Tensor
) -> Point:
    """Return the point at a distance; the start where the loss is not finite there."""
    value, gradient = objective(x + direction * first)
    fits = F.isfinite(value)
    moved = Point(first, value, F.sum(gradient * direction), gradient)
    return _choose(fits, moved, start)


def strong_wolfe(
    objective: Objective,
    x: Tensor,
    direction: Tensor,
    start: Point,
    first: Tensor,
    skips: Tensor,
    tolerance: float,
) -> Point:
    """Return a point where the loss has fallen enough, and its slope has become small enough.

    First it goes farther until such a point is in between, then it narrows this bracket by cubic
    interpolation. J. Nocedal, S. J. Wright, "Numerical optimization", 2006,
    algorithms 3.5 and 3.6; the safeguards are those of PyTorch's. A loss that is not finite counts
    as infinite.

    Args:
        objective: The loss and its gradient at parameters.
        x: The parameters.
        direction: The direction of the search, a vector like x.
        start: The point at x.
        first: The first distance to try.
        skips: Whether to return the start at once.
        tolerance: The length of a bracket at which the search ends.
    """
    longest = F.max(F.abs(direction))
    no = as_tensor(False)

    def goes_on(state: _Search) -> Tensor:
        running: Tensor = F.logical_and(F.logical_not(state.ends), state.number < _LIMIT)
        return running

    def advanced(state: _Search) -> _Search:
        value, gradient = objective(x + direction * state.t)
        value = F.where(F.isfinite(value), value, float("inf"))
        new = Point(state.t, value, F.sum(gradient * direction), gradient)
        low, high = state.low, state.high
        is_lower = new.value < low.value
        is_too_high = new.value > start.value + start.slope * (state.t * _DECREASE)
        is_flat = F.abs(new.slope) <= -start.slope * _CURVATURE
        rises = F.logical_and(F.logical_not(is_flat), new.slope >= 0)
        # Where it is worse, a fitting point is between the two.
        is_first = F.logical_and(F.logical_not(state.brackets), state.number == 0)
        is_no_lower = F.logical_and(F.logical_not(is_lower), F.logical_not(is_first))
        is_bad = F.logical_or(is_too_high, is_no_lower)
        is_worse = F.where(state.brackets, is_bad, F.logical_or(is_bad, rises))
        fits = F.logical_and(F.logical_not(is_worse), is_flat)
        takes = F.logical_or(is_lower, F.logical_not(is_worse))
        turns = F.logical_or(is_worse, new.slope * (high.t - low.t) >= 0)
        other = _choose(takes, _choose(turns, _End(*low[:3]), high), _End(*new[:3]))
        best = _choose(takes, new, low)
        brackets = F.logical_or(state.brackets, is_worse)
        inside, stalls = _within(best, other, state.stalls)
        farther = _cubic(low, new, new.t + (new.t - low.t) * 0.01, new.t * 10)
        is_small = F.abs(other.t - best.t) * longest < tolerance
        ends = F.logical_or(fits, F.logical_and(brackets, is_small))
        return _Search(
            state.number + 1,
            ends,
            brackets,
            F.logical_and(brackets, stalls),
            F.where(brackets, inside, farther),
            best,
            other,
        )

    begun = _Search(as_tensor(0, int64), skips, no, no, first, start, _End(*start[:3]))
    found: _Search = F.while_loop(goes_on, advanced, begun)
    return found.low


def _choose(condition: Tensor, a: End, b: End) -> End:
    """Return one of two points."""
    return type(a)(*[F.where(condition, x, y) for x, y in zip(a, b, strict=True)])


def _cubic(a: Point | _End, b: Point | _End, least: Tensor, most: Tensor) -> Tensor:
    """Return the minimum of the cubic through two points with their slopes, within bounds.

    Where it has no minimum, or is not finite, that is the middle of the bounds.
    """
    apart = b.t - a.t
    c = a.slope + b.slope - (b.value - a.value) / apart * 3
    square = c * c - a.slope * b.slope
    root = F.sqrt(F.maximum(square, 0)) * F.sign(apart)
    t = b.t - apart * ((b.slope + root - c) / (b.slope - a.slope + root * 2))
    fits = F.logical_and(square >= 0, F.isfinite(t))
    found: Tensor = F.where(fits, F.minimum(F.maximum(t, least), most), (least + most) / 2)
    return found


def _within(low: Point, high: _End, stalls: Tensor) -> tuple[Tensor, Tensor]:
    """Return a guess within a bracket, and whether it is near to one of the ends.

    After one that was, or at the end itself, it goes away from the end by a tenth of the bracket.
    """
    least, most = F.minimum(low.t, high.t), F.maximum(low.t, high.t)
    t = _cubic(low, high, least, most)
    margin = (most - least) * 0.1
    is_near = F.minimum(most - t, t - least) < margin
    at_end = F.logical_or(t >= most, t <= least)
    moves = F.logical_and(is_near, F.logical_or(stalls, at_end))
    away = F.where(most - t < t - least, most - margin, least + margin)
    return F.where(moves, away, t), F.logical_and(is_near, F.logical_not(moves))
