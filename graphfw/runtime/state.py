"""The contents of a session's variables: one immutable snapshot at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from graphfw.ir.variable import Variable


class Snapshot(NamedTuple):
    """All variables' contents at one moment, and what random numbers are drawn from.

    Attributes:
        values: The contents.
        step: The step of the next run that draws random numbers.
        seed: The session's seed.
        taker: The run that took the last step, while it may still give it back.
    """

    values: Mapping[Variable, Any]
    step: int
    seed: int
    taker: object = None


class State:
    """Holds the current snapshot.

    Readers take the snapshot and go on undisturbed. Writers queue for `writing`; a writer's new
    snapshot takes the old one's place in a single assignment, after everything that can fail has
    run: a signal at any moment finds the old one or the new one.

    Attributes:
        snapshot: The contents now.
        writing: Held by those who commit what they have computed from a snapshot. The lock itself
            and no context manager around it: a signal can't come between taking it and the `with`.
    """

    def __init__(self, seed: int) -> None:
        self.snapshot = Snapshot({}, 0, seed)
        self.writing = threading.RLock()
        # Reentrant: a signal handler may use the session while its thread is in here.
        self._swapping = threading.RLock()

    def take_step(self, taker: object) -> Snapshot:
        """Return the snapshot, and let the next run that draws random numbers have another step."""
        with self._swapping:
            current = self.snapshot
            self.snapshot = current._replace(step=current.step + 1, taker=taker)
            return current

    def give_back(self, taker: object) -> None:
        """Undo `take_step` for a run that failed, if nothing has happened since it was called."""
        with self._swapping:
            current = self.snapshot
            if current.taker is taker:
                self.snapshot = current._replace(step=current.step - 1, taker=None)

    def commit(
        self, values: Mapping[Variable, Any], step: int | None = None, seed: int | None = None
    ) -> None:
        """Replace variables' contents, all at once, and the step and the seed where given."""
        with self._swapping:
            current = self.snapshot
            self.snapshot = Snapshot(
                {**current.values, **values},
                current.step if step is None else step,
                current.seed if seed is None else seed,
            )
