"""Time limits of runs: a limit of a thread holds for everything that the thread calls.

    limited(2.5, call, *args)     call it; it ends after 2.5 s, with an error
    check()                       between two nodes, or iterations: end here if the time is over

Native code reads the same limits while it runs without Python's lock: so they are a table, with a
row for each thread.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable
from operator import methodcaller
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from graphfw.errors import ArgumentError, ExecutionError, RunTimeoutError
from graphfw.utils import forks
from graphfw.utils.locks import RLock

if TYPE_CHECKING:
    from graphfw.ir.tensor import Node
    from graphfw.loc import Loc

T = TypeVar("T")

_THREADS = 4096
_LONGEST = 2.0**32
"""Seconds; some hundred years."""

table = np.zeros((_THREADS + 1, 2), np.int64)
"""In row 0 how many rows have been in use; in a thread's row its identity, or 0, and when its run
has to end."""

_free: list[int] = []
used: list[int] = []
"""The rows that have been in use: none, in most processes."""
_adding = forks.renewed_lock()
_release = methodcaller("release")


class TimeOverError(BaseException):
    """The time of a run is over. The session makes a `RunTimeoutError` of it.

    It is no `Exception`, so that nothing on the way takes it for an error of an operation.

    Attributes:
        op: The name of the operation that was being computed, as far as it is known.
        at: The line that it was made on, likewise.
    """

    op: str = ""
    at: Loc | None = None


class _Row:
    """A row of the table, which is free again when its thread has ended."""

    def __init__(self) -> None:
        with _adding:
            if not _free:
                if table[0, 0] == _THREADS:
                    raise ExecutionError(
                        f"{_THREADS} threads are running with a timeout already",
                        fix="leave the timeout out, or use fewer threads",
                    )
                table[0, 0] += 1
                used.append(int(table[0, 0]))
                _free.append(used[-1])
            self._number = _free.pop()
        self.words = table[self._number]

    def __del__(self, give_back: Callable[[int], None] = _free.append) -> None:
        self.words[0] = 0
        give_back(self._number)


class _Mine(threading.local):
    """The data of a thread: its row, from its first time limit on."""

    row: _Row | None = None


_mine = _Mine()


def now() -> int:
    """Return the time in ns, by the clock that native code reads."""
    if sys.platform == "win32":
        return time.perf_counter_ns()
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def checked_timeout(timeout: object) -> float | None:
    """Return a time limit in seconds, where it is one, or None.

    Raises:
        ArgumentError: It is no positive number of seconds.
    """
    if timeout is None:
        return None
    if isinstance(timeout, (int, float, np.integer, np.floating)) and not isinstance(timeout, bool):
        if 0 < timeout < math.inf:
            return min(float(timeout), _LONGEST)
    raise ArgumentError(
        f"timeout={timeout!r} is no positive number of seconds",
        fix="write how many seconds a run may take, such as 2.5; None for no limit",
    )


def limited(seconds: float, call: Callable[..., T], *args: Any) -> T:
    """Return the result of a function that may take some time; an outer limit holds, too.

    Raises:
        RunTimeoutError: It takes longer.
    """
    if _mine.row is None:
        _mine.row = _Row()
    words = _mine.row.words
    before = words.copy()
    own = now() + int(seconds * 1e9)
    end = min(own, int(before[1])) if before[0] else own
    try:
        words[:] = threading.get_ident(), end
        return call(*args)
    except TimeOverError as error:
        if now() < own:
            raise  # another run's limit, inside of which this one was
        raise _timeout(seconds, error) from None
    finally:
        words[:] = before  # one statement: no interrupt comes before it


def check(node: Node | None = None) -> None:
    """End here if this thread has a time limit that is over.

    Args:
        node: What would be computed next.

    Raises:
        TimeOverError: It is.
    """
    if seconds_left() == 0:
        error = TimeOverError()
        if node is not None:
            error.op, error.at = node.op.title, node.loc
        raise error


def seconds_left() -> float | None:
    """Return how long this thread's run may still take; None where it has no limit."""
    if not used:
        return None
    row = _mine.row
    if row is None or not row.words[0]:
        return None
    return max(0, int(row.words[1]) - now()) / 1e9


def holding(lock: RLock, call: Callable[..., T], *args: Any) -> T:
    """Return the result of a function called with a lock, for a run that has a limit.

    Raises:
        TimeOverError: The lock is not free in time.
    """
    seconds = seconds_left()
    assert seconds is not None
    taken: list[RLock] = []
    try:
        # One call of functions that are no Python: no interrupt between the lock and its note.
        taken.extend(
            filter(methodcaller("acquire", True, min(seconds, threading.TIMEOUT_MAX)), (lock,))
        )
        if not taken:
            raise TimeOverError
        return call(*args)
    finally:
        any(map(_release, taken))  # likewise


def each(steps: Iterable[T], node_of: Callable[[T], Node]) -> Iterable[T]:
    """Return steps, between which the time is looked at if this thread has a limit."""
    return steps if seconds_left() is None else _checked(steps, node_of)


def _checked(steps: Iterable[T], node_of: Callable[[T], Node]) -> Iterable[T]:
    for step in steps:
        check(node_of(step))
        yield step


def _timeout(seconds: float, error: TimeOverError) -> RunTimeoutError:
    what = f"; it was computing {error.op}" if error.op else ""
    return RunTimeoutError(
        f"the run has taken more than its timeout of {seconds:g} s{what}",
        at=error.at,
        fix="feed less, or pass a longer timeout; the variables are as they were before",
    )


def _after_fork() -> None:
    """Forget the limits of threads that are not there in a forked child."""
    others = table[1:, 0] != threading.get_ident()
    table[1:, 0][others] = 0


forks.in_child(_after_fork)
