"""The rates at which this machine computes and moves bytes: lower bounds of times."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import numpy as np

from graphfw.runtime.numpy_executor.pool import default_threads

_CACHED = 1 << 19
"""The bytes that stay in a core's own cache, about, where they move faster than from memory."""

_SECONDS = 0.01
"""The seconds for which each rate is measured, unless the best one comes up several times."""

_ENOUGH = 5

_MOVED = 1 << 25
"""The number of bytes that are copied: more than caches hold."""

_MATRICES, _SIDE = 8, 64
"""The number and the rows of the square matrices that are multiplied: a library has no use for a
second core there."""


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
    """Measure the machine, in some tens of milliseconds.

    One core computes, and is taken as often as there are cores: where others keep some of them
    busy, a product on all waits for the slowest. The cores move bytes at once, for they share the
    memory.
    """
    cores = default_threads()
    pieces = [np.ones(_MOVED // 4 // cores, np.float32) for _ in range(cores)]
    targets = [np.empty_like(piece) for piece in pieces]
    few, here = [np.ones(_CACHED // 64, np.float32) for _ in range(2)]
    matrices = np.ones((_MATRICES, _SIDE, _SIDE), np.float32)
    products = np.empty_like(matrices)
    multiplied = _best(lambda: np.matmul(matrices, matrices, out=products))
    cached = _best(lambda: np.copyto(here, few))
    with ThreadPoolExecutor(cores) as pool:
        copies = [partial(np.copyto, *pair) for pair in zip(targets, pieces, strict=True)]
        memory = [*pool.map(_best, copies)]
    bandwidth = sum(
        2 * piece.nbytes / seconds for piece, seconds in zip(pieces, memory, strict=True)
    )
    speed = cores * 2 * _MATRICES * _SIDE**3 / multiplied
    return Rates(speed, bandwidth, cores * 2 * few.nbytes / cached)


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
