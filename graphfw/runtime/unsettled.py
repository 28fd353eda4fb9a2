"""Runs that have returned before anyone knows whether they fail: a GPU is still at work on them.

An executor adds such a run to its session's `Unsettled`. A run that fails, and each later one of
the session, leaves the variables as they are, until the session has learned of it and raises the
error: in the thread that made the run, at its next use of the session, or with its results.
Where there is no such use, as the session is dropped or Python ends, a warning tells of it.
"""

from __future__ import annotations

import abc
import atexit
import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from graphfw.errors import ExecutionError
from graphfw.utils import forks

AHEAD = 8
"""The most runs that may be under way besides the next one: more would not keep a GPU any
busier."""

_ALL: weakref.WeakSet[Unsettled] = weakref.WeakSet()


class Outcome(abc.ABC):
    """The outcome of a run that has returned."""

    @abc.abstractmethod
    def is_known(self) -> bool:
        """Return whether asking for the error waits for nothing."""

    @abc.abstractmethod
    def has_failed(self) -> bool:
        """Wait for the run, and say whether it has failed; needs no lock of Python's."""

    @abc.abstractmethod
    def error(self) -> ExecutionError | None:
        """Wait for the run, and return why it fails; None where it does not."""

    @abc.abstractmethod
    def resume(self) -> None:
        """Let variables change again, once everything is done that was begun after it."""


class _Entry(NamedTuple):
    """A run that has returned.

    Attributes:
        outcome: What becomes of it.
        updates: Whether it writes variables, which no later run does then if it fails.
        thread: Who made it.
        results: What it has returned.
        step: The step that it has taken, if it draws random numbers.
    """

    outcome: Outcome
    updates: bool
    thread: threading.Thread
    results: tuple[weakref.ref[Any], ...]
    step: int | None


class Unsettled:
    """The runs of a session that have returned, and whose outcome is not known yet.

    Args:
        rewind: A method, whose owner is not kept. Given a step, and how many were taken from it
            on, it takes them back if nobody has taken others since.

    Attributes:
        noted: Whether there has ever been one: what short runs ask, as it takes no call.
    """

    def __init__(self, rewind: Callable[[int, int], None]) -> None:
        self.noted = False
        self._rewind = weakref.WeakMethod(rewind)  # its owner has this: no cycle
        self._lock = forks.renewed_lock()
        self._entries: deque[_Entry] = deque()
        self._errors: list[tuple[threading.Thread, ExecutionError]] = []
        self._process = os.getpid()
        _ALL.add(self)

    def __bool__(self) -> bool:
        return bool(self._entries or self._errors)

    def add(
        self, outcome: Outcome, results: Sequence[Any], *, updates: bool, step: int | None
    ) -> None:
        """Note a run of this thread, before anything is launched that depends on its outcome."""
        if not _exits:
            _exits.append(atexit.register(_tell_at_exit))
        refs = tuple([weakref.ref(result) for result in results])
        self.noted = True
        self._entries.append(_Entry(outcome, updates, threading.current_thread(), refs, step))

    def look(self, *, updates: bool) -> None:
        """Raise what has become known, before this thread makes another run.

        It waits where too many runs are under way. A run that writes variables waits for whatever
        would have kept this thread from making it, and for the updates of other threads, so that
        their failure is none of its own.

        Raises:
            ExecutionError: An earlier run has failed.
        """
        if not self:
            return
        me = threading.current_thread()
        with self._lock:
            while self._entries:
                is_due = self._entries[0].outcome.is_known() or len(self._entries) > AHEAD
                if not is_due and not (updates and self._keeps_from_updating(me)):
                    break
                self._take()
        self._raise(me)

    def settle(self) -> None:
        """Wait for all runs, so that variables are what they will be.

        Raises:
            ExecutionError: One that this thread has made has failed, or one of a thread that has
                ended.
        """
        if not self:
            return
        with self._lock:
            while self._entries:
                self._take()
        self._raise(threading.current_thread())

    def __del__(self) -> None:
        self.tell_unraised()

    def tell_unraised(self) -> None:
        """Warn where a run has failed and nobody has learned of it, and forget the runs."""
        if os.getpid() != self._process:
            return  # in a forked child: they are runs of its parent
        entries, errors = [*self._entries], [error for _, error in self._errors]
        self._entries.clear()
        self._errors.clear()
        if errors or any([entry.outcome.has_failed() for entry in entries]):
            why = f": {errors[0].summary}" if errors else ""
            message = (
                f"a run has failed, and its session raised no error before it was dropped{why}; "
                "use the session in a `with` block, or call session.wait() at the end"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def returned(self, array: Any) -> bool:
        """Return whether an array is a result of one of these runs."""
        return any([ref() is array for entry in [*self._entries] for ref in entry.results])

    def _keeps_from_updating(self, me: threading.Thread) -> bool:
        return any([(entry.thread is me) != entry.updates for entry in self._entries])

    def _take(self) -> None:
        """Wait for the first run. An interrupt leaves all as it was: it is asked for again."""
        first = self._entries[0]
        error = _error_of(first.outcome)
        void = [first]
        if error is not None:
            if first.updates:
                void += [entry for entry in [*self._entries][1:] if entry.updates]
            for entry in void[1:]:
                _error_of(entry.outcome)  # waits; it has changed nothing, whatever it says
            if first.updates:
                first.outcome.resume()
            steps = [entry.step for entry in void if entry.step is not None]
            rewind = self._rewind()
            if steps and rewind is not None:
                rewind(steps[0], len(steps))
            self._errors.append((first.thread, error))
        self._entries = deque([e for e in self._entries if not any(e is one for one in void)])

    def _raise(self, me: threading.Thread) -> None:
        """Raise the first error of this thread's runs, or of those of threads that have ended."""
        if not self._errors:
            return
        with self._lock:
            for index, (thread, error) in enumerate(self._errors):
                if thread is me or not thread.is_alive():
                    del self._errors[index]
                    raise error


def settle_result(array: Any) -> None:
    """Wait for the run that an array comes from, if its outcome is not known yet.

    Raises:
        ExecutionError: This run has failed, so the array holds nothing.
    """
    for unsettled in [one for one in [*_ALL] if one and one.returned(array)]:
        unsettled.settle()


_exits: list[object] = []
"""Functions that run as Python ends: registered with the first run, so run before CuPy's own."""


def _tell_at_exit() -> None:
    for unsettled in [*_ALL]:
        unsettled.tell_unraised()


def _error_of(outcome: Outcome) -> ExecutionError | None:
    try:
        return outcome.error()
    except ExecutionError as error:  # of the device
        return error
