"""`Strategy`: one of several ways to compute a node, of which one is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from graphfw.runtime.kernels.steps import Choice, Step

CLOCK = 4e9
"""Cycles a second of the core that estimates are for; in each it multiplies and adds two vectors.
"""


class Strategy(NamedTuple):
    """A way to compute a node.

    Attributes:
        name: What reports call it, and choices that are kept on disk.
        seconds: How long one core takes for it, about. It depends on nothing but sizes, the dtype
            and the processor: never on the number of threads, so that results don't either.
        make: Returns its steps.
    """

    name: str
    seconds: float
    make: Callable[[], list[Step]]


Choose: TypeAlias = "Callable[[Sequence[Strategy]], list[Step]]"
"""Returns the steps of one of some strategies."""


def by_estimate(strategies: Sequence[Strategy]) -> list[Step]:
    """Return the steps of the strategy that should take least; of equal ones the first."""
    return estimated(strategies, "by estimate")


def estimated(strategies: Sequence[Strategy], how: str) -> list[Step]:
    """Return the steps of the strategy that should be the fastest, with a reason."""
    best = min(strategies, key=lambda one: one.seconds)
    estimates = {one.name: one.seconds for one in strategies}
    return chosen(best.make(), Choice(best.name, how, estimates, {}))


def chosen(steps: Sequence[Step], choice: Choice) -> list[Step]:
    """Return steps of which the last one says why it is these."""
    return [*steps[:-1], replace(steps[-1], choice=choice)]
