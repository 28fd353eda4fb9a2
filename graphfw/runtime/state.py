"""The contents of a session's variables: one immutable snapshot at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from graphfw.ir.variable import Variable


class Snapshot(NamedTuple):
    """All variables' contents at one moment, and the step that random numbers are drawn at."""

    values: Mapping[Variable, Any]
    step: int


class State:
    """Holds the current snapshot.

    Readers take the snapshot and go on undisturbed. Writers queue; a writer's new snapshot takes
    the old one's place in a single assignment, after everything that can fail has run.
    """

    def __init__(self) -> None:
        self.snapshot = Snapshot({}, 0)
        self._writing = threading.RLock()
        self._stepping = threading.Lock()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer."""
        with self._writing:
            yield

    def take_step(self) -> Snapshot:
        """Return the snapshot, and let the next run that draws random numbers have another step."""
        with self._stepping:
            snapshot = self.snapshot
            self.snapshot = snapshot._replace(step=snapshot.step + 1)
            return snapshot

    def give_back(self, step: int) -> None:
        """Undo `take_step` of a run that failed, if no other run has taken a step since."""
        with self._stepping:
            if self.snapshot.step == step + 1:
                self.snapshot = self.snapshot._replace(step=step)

    def commit(self, values: Mapping[Variable, Any], step: int | None = None) -> None:
        """Replace variables' contents, all at once; only while `writing`."""
        with self._stepping:
            current = self.snapshot
            merged = {**current.values, **values}
            self.snapshot = Snapshot(merged, current.step if step is None else step)
