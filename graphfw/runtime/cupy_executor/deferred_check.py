"""Checks whose outcome the host reads later, so that it runs ahead of the GPU.

A run's kernels raise its flag where a check fails. Before anything writes variables, `gf_settle`
passes that on to the session's own word, and from there to the flags of all later runs: kernels
that write variables do nothing where the flag is up. So variables stay as the run that failed found
them, until the session has raised its error and takes the word down again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import ExecutionError
from graphfw.runtime.cupy_executor.device import Device
from graphfw.runtime.cupy_executor.staging import PendingCopy
from graphfw.runtime.unsettled import Outcome, Unsettled

SETTLE = "gf_settle"
"""The name of the function that passes a flag on; each module has it."""

_BLOCK = (32, 1)


class SessionFlags:
    """The words that keep the runs of sessions from writing variables, one for each session.

    Args:
        device: Where it is.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._words: weakref.WeakKeyDictionary[Unsettled, Any] = weakref.WeakKeyDictionary()

    def word(self, unsettled: Unsettled) -> Any:
        """Return the word of a session, an array of one int32."""
        found = self._words.get(unsettled)
        if found is None:
            found = self._device.cupy.zeros(1, np.int32)
            self._device.cupy.cuda.get_current_stream().synchronize()  # others may read it, too
            found = self._words.setdefault(unsettled, found)
        return found


class DeferredOutcome(Outcome):
    """The outcome of a run whose flag is read later.

    Args:
        device: Where it runs.
        word: The session's word, if the run writes variables.
        refusal: Says what is wrong with what the run was given.
    """

    def __init__(self, device: Device, word: Any, refusal: Callable[[], ExecutionError]) -> None:
        self._device = device
        self._word = word
        self._refusal = refusal
        self._coming: PendingCopy | None = None

    def begin(self, function: Any, flags: int) -> None:
        """Pass a run's flag on, and have it copied to the host.

        Args:
            function: What passes it on.
            flags: Its address.
        """
        stream = self._device.cupy.cuda.get_current_stream()
        if self._word is not None:
            pass_on(function, flags, self._word)
        self._coming = self._device.staging.coming(flags, stream)

    def is_known(self) -> bool:
        coming = self._coming
        if coming is None or self._device.lost:
            return True
        with self._device.current():
            return bool(coming.event.done)

    def has_failed(self) -> bool:
        if self._device.lost:
            return True
        with self._device.current(), self._device.translated():
            return self._flag_is_up()

    def error(self) -> ExecutionError | None:
        with (
            self._device.current(),
            self._device.translated(),
            np.errstate(all="ignore"),
        ):
            return self._refusal() if self._flag_is_up() else None

    def resume(self) -> None:
        if self._word is None or self._device.lost:
            return
        with self._device.current(), self._device.translated():
            runtime = self._device.cupy.cuda.runtime
            runtime.deviceSynchronize()
            stream = self._device.cupy.cuda.get_current_stream()
            runtime.memsetAsync(self._word.data.ptr, 0, self._word.nbytes, stream.ptr)
            stream.synchronize()

    def _flag_is_up(self) -> bool:
        if self._coming is not None:
            self._coming.event.synchronize()
            return bool(self._coming.room.view(np.int32)[0])
        # It was interrupted before the copy: what it has passed on counts, if anything.
        self._device.cupy.cuda.runtime.deviceSynchronize()
        return self._word is not None and bool(self._device.cupy.asnumpy(self._word)[0])


class RunFeeds(NamedTuple):
    """The feeds of a run.

    Attributes:
        kept: For each feed an array of the host, or a reference to one on the GPU that others may
            write to or let go.
    """

    kept: list[Any]

    def arrays(self) -> list[Any] | None:
        """Return the arrays; None where some are gone."""
        found = [one() if isinstance(one, weakref.ref) else one for one in self.kept]
        return None if any([one is None for one in found]) else found


def pass_on(function: Any, flags: int, word: Any) -> None:
    """Launch what joins a run's flag and its session's word, on the current stream."""
    function((1, 1), _BLOCK, [np.uint64(flags), np.uint64(word.data.ptr)], shared_mem=0)


def changed(error: ExecutionError | None) -> ExecutionError:
    """Return the error of a run that was found out late.

    Args:
        error: What the operations themselves say; None where they accept what is there now.
    """
    if error is None:
        return ExecutionError(
            "an index, or another value that is checked, was out of range in a run before",
            why="what it was fed is no longer there to be looked at; neither it nor a later run "
            "has changed a variable",
            fix="call session.wait() behind each run, or run it with host=True: it names the "
            "operation then",
        )
    note = "a run before failed, and neither it nor a later one has changed a variable"
    error.why = f"{error.why}; {note}" if error.why else note
    return error
