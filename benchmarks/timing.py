"""Timing that survives a noisy machine: contenders take turns, and the median counts."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Mapping

from benchmarks.devices import HostWatch, Stopwatch

ROUND_S = 0.05
"""The time that one contender runs before the next has its turn."""

STRETCH_S = 0.001
"""The least time of the stretches that the minimum is taken of.

Where others are at work, a stretch this short may go by undisturbed, a whole round hardly ever.
"""

Call = Callable[[], object]


def calls_for(once: float, round_s: float = ROUND_S) -> int:
    """Return how many calls of `once` seconds make a round."""
    return max(1, int(round_s / max(once, 1e-7)))


def warmed(function: Call, watch: Stopwatch, least: int = 3, enough_s: float = 0.3) -> float:
    """Call until it is warm and return what the shorter of the last two calls took, in seconds.

    Caches, thread pools and just-in-time compilers settle in the first calls; slow functions are
    not called more than twice for that. One of the last calls may have compiled something.
    """
    spent, before = 0.0, math.inf
    for done in range(1, 1000):
        watch.start()
        function()
        taken = watch.stop()
        spent += taken
        if (done >= least and spent > enough_s / 10) or (done >= 2 and spent > enough_s):
            break
        before = taken
    return min(taken, before)


def mean_of(function: Call, calls: int, watch: Stopwatch) -> float:
    """Return the mean time of so many calls in a row, in seconds, without garbage collection."""
    return means_of(function, calls, 1, watch)[0]


def means_of(function: Call, calls: int, stretches: int, watch: Stopwatch) -> list[float]:
    """Return the mean times of so many calls in a row in each of some stretches, as `mean_of`."""
    found = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(stretches):
            watch.start()
            for _ in range(calls):
                function()
            found.append(watch.stop() / calls)
        return found
    finally:
        gc.enable()


def compare(contenders: Mapping[str, Call], rounds: int = 15) -> dict[str, float]:
    """Return each contender's median time in seconds, measured in turns in this process.

    In a round each runs for about `ROUND_S`; a round's figure is the mean of its calls, the result
    the median over rounds. For contenders with thread pools of their own see `workers.Pool`.
    """
    watch = HostWatch()
    calls = {name: calls_for(warmed(function, watch)) for name, function in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, function in contenders.items():
            samples[name].append(mean_of(function, calls[name], watch))
    return {name: statistics.median(times) for name, times in samples.items()}


def text(seconds: float) -> str:
    """Say a time with a unit that fits."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
