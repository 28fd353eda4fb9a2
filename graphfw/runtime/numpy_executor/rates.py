"""How fast this machine computes and moves bytes: what nothing takes less time than."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import numpy as np

_CACHED = 1 << 19
"""So many bytes stay in a core's own cache, about, where they move faster than from memory."""

_SECONDS = 0.01
"""For so long each rate is measured, or until the best has come up several times."""

_ENOUGH = 5


class Rates:
    """The best that has been seen: measured once, and raised by whatever was quicker.

    A machine that is busy with other things is slower at times, and never quicker than it is. So
    times that follow from these rates are bounds from below, of a step that is timed alone, too.

    Attributes:
        speed: Floating-point operations a second.
        bandwidth: Bytes a second, read and written, in memory.
        cached: The same in a cache.
    """

    def __init__(self, speed: float, bandwidth: float, cached: float) -> None:
        self.speed = speed
        self.bandwidth = bandwidth
        self.cached = max(cached, bandwidth)

    def seconds(self, flops: float, moved: float) -> float:
        """Return the least time of some work: the larger of computing and moving."""
        rate = self.cached if self._fits(moved) else self.bandwidth
        return max(flops / self.speed, moved / rate)

    def saw(self, flops: float, moved: float, seconds: float) -> None:
        """Learn from what was measured."""
        if seconds <= 0:
            return
        self.speed = max(self.speed, flops / seconds)
        self.cached = max(self.cached, moved / seconds)
        if not self._fits(moved):
            self.bandwidth = max(self.bandwidth, moved / seconds)

    def _fits(self, moved: float) -> bool:
        return moved <= _CACHED


@cache
def rates() -> Rates:
    """Measure the machine, in some tens of milliseconds."""
    source = np.ones(4 << 20, np.float32)
    target = np.empty_like(source)
    few, here = [array[: _CACHED // 16] for array in (source, target)]
    matrix = np.ones((256, 256), np.float32)
    memory = _best(lambda: np.copyto(target, source))
    cached = _best(lambda: np.copyto(here, few))
    multiplied = _best(lambda: matrix @ matrix)
    return Rates(2 * 256**3 / multiplied, 2 * source.nbytes / memory, 2 * few.nbytes / cached)


def _best(call: Callable[[], object]) -> float:
    """Return the least time of many calls; more of them where others keep the machine busy."""
    call()  # the first one starts threads, and finds memory
    best, equal, end = _once(call), 0, time.perf_counter() + _SECONDS
    while equal < _ENOUGH and time.perf_counter() < end:
        took = _once(call)
        if took < 0.95 * best:
            equal = 0
        elif took < 1.05 * best:
            equal += 1
        best = min(best, took)
    return best


def _once(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
