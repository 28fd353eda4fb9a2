"""The contents of a session's variables: one immutable snapshot at a time."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from graphfw.errors import ArgumentError, CheckpointError
from graphfw.ir.literal import Array
from graphfw.ir.types import TensorType
from graphfw.ir.variable import Variable
from graphfw.runtime.unsettled import Unsettled
from graphfw.utils import forks

_TOGETHER = 32 << 20

_RUNS = 16
"""The number of programs whose runs are distinguished: each reader looks at all of them."""


_Runs: TypeAlias = "Mapping[frozenset[Variable], int]"
_Versions: TypeAlias = "tuple[int, _Runs, int]"


class Snapshot(NamedTuple):
    """All variables' contents at one moment, and what random numbers are drawn from.

    Attributes:
        values: The contents.
        step: The step of the next run that draws random numbers.
        seed: The session's seed.
        version: Another number whenever the contents may be others.
        taker: The run that took the last step, while it may still give it back.
        runs: Sets of variables that runs write, and at which version they have, or may have.
        others: The version at which contents were written otherwise, perhaps all.
    """

    values: Mapping[Variable, Any]
    step: int
    seed: int
    version: int = 0
    taker: object = None
    runs: _Runs = MappingProxyType({})
    others: int = 0

    def version_of(self, variables: frozenset[Variable]) -> int:
        """Return another number whenever the contents of one of these may be others."""
        if not variables:
            return 0
        found = [n for written, n in self.runs.items() if not variables.isdisjoint(written)]
        return max(self.others, *found) if found else self.others

    def written(self, variables: frozenset[Variable] | None) -> _Versions:
        """Return `version`, `runs` and `others` of who writes variables next; None: perhaps all."""
        version = self.version + 1
        if variables is None or (len(self.runs) == _RUNS and variables not in self.runs):
            return version, {}, version
        return version, {**self.runs, variables: version}, self.others


class State:
    """Holds the current snapshot.

    Readers pin the snapshot and go on undisturbed. Writers queue for `writing`; a writer's new
    snapshot takes the old one's position in a single assignment, after everything that can fail has
    run: a signal at any moment finds the old one or the new one. What its handler writes is not
    lost: that the old one is still there is asked right before, and no signal comes between.

    A writer may `claim` the arrays of the snapshot while nobody has it pinned, and write the new
    contents over the old ones, all in one native call; readers that come meanwhile wait for it.
    So does a fork, which keeps later writers from it, as a reader does.

    Attributes:
        snapshot: The contents now.
        unsettled: Runs that have returned, and may still fail.
        writing: Held by those who commit what they have computed from a snapshot. The lock itself
            and no context manager around it, which a signal could leave before it gives it back.
    """

    def __init__(self, seed: int) -> None:
        self.snapshot = Snapshot({}, 0, seed)
        self.unsettled = Unsettled(self.rewind)
        self.writing = forks.renewed_lock()
        # Reentrant: a signal handler may use the session while its thread is in here.
        self._swapping = forks.renewed_lock()
        self._readers: dict[object, int] = {}
        """The runs that have it pinned, and the thread of each."""
        self._writer: int | None = None
        self._claimer: object = None
        self._done = np.zeros(1, np.int64)
        forks.register(self)

    def pin(self, reader: object) -> Snapshot:
        """Return the snapshot; its arrays stay as they are until `unpin`."""
        me = get_ident()
        self._readers[reader] = me
        # A writer says that it is there before it looks for readers: one of the two sees the other.
        if self._writer is not None and self._writer != me:
            with self.writing:  # which it holds
                pass
        return self.snapshot

    def unpin(self, reader: object) -> None:
        """End `pin`, or do nothing where it has not begun."""
        self._readers.pop(reader, None)

    @contextmanager
    def pinned(self) -> Iterator[Snapshot]:
        """Give the contents, which nobody overwrites meanwhile."""
        me = object()
        try:
            yield self.pin(me)
        finally:
            self.unpin(me)

    def keep(self, holder: object) -> None:
        """Let no run that begins from now on write over the arrays, until `unpin`."""
        self._readers[holder] = get_ident()

    def is_written(self) -> bool:
        """Return whether a run of another thread is writing over the arrays."""
        return self._writer not in (None, get_ident()) and not self._done[0]

    def after_fork(self) -> None:
        """Forget the runs of threads that are not there in a forked child.

        One may have written everything, and not have committed yet: the run has happened.
        """
        me = get_ident()
        self._readers = {reader: thread for reader, thread in self._readers.items() if thread == me}
        if self._writer != me:
            self._writer = None

    def claim(
        self, writer: object, contents: Mapping[Variable, Any], variables: frozenset[Variable]
    ) -> Array | None:
        """Let the thread that holds `writing` overwrite arrays, where nobody else reads any.

        The writer has them pinned itself, so that a run in a signal handler leaves them as they
        are.

        Args:
            writer: The run.
            contents: What it has pinned; that may no longer be the session's.
            variables: Whose arrays.

        Returns:
            Where the native call that does it writes a 1 at its end, or None.
        """
        self._done[0] = 0
        self._claimer = writer
        with self._swapping:  # and not later: a fork waits for `_writer`, and may hold it
            self._writer = get_ident()
            now = self.snapshot
            version, runs, others = now.written(variables)
            new = Snapshot(now.values, now.step, now.seed, version, now.taker, runs, others)
            if len(self._readers) <= 1 and now.values is contents and self.snapshot is now:
                self.snapshot = new
                return self._done
            self._writer = None
            return None

    def release(self) -> None:
        """End `claim`; to be called before another, too, because a signal may have come between."""
        self._writer = None

    def take_step(self, taker: object) -> Snapshot:
        """Return the snapshot, and let the next run that draws random numbers have another step."""
        with self._swapping:
            while True:
                current = self.snapshot
                new = current._replace(step=current.step + 1, taker=taker)
                if self.snapshot is current:
                    self.snapshot = new
                    return current

    def give_back(self, taker: object) -> None:
        """Undo `take_step` for a run that failed, if nothing has happened since it was called.

        Where it was interrupted after the native call that has overwritten the contents, the run
        has happened.
        """
        with self._swapping:
            current = self.snapshot
            overwritten = self._claimer is taker and self._done[0]
            new = current._replace(step=current.step - 1, taker=None)
            if current.taker is taker and not overwritten and self.snapshot is current:
                self.snapshot = new

    def rewind(self, step: int, count: int) -> None:
        """Undo `take_step` for runs that failed after they had returned.

        Args:
            step: The first one's.
            count: How many there were; where others have taken steps, too, nothing is undone.
        """
        with self._swapping:
            current = self.snapshot
            new = current._replace(step=step, taker=None)
            if current.step == step + count and self.snapshot is current:
                self.snapshot = new

    def commit(
        self,
        values: Mapping[Variable, Any],
        step: int | None = None,
        seed: int | None = None,
        variables: frozenset[Variable] | None = None,
        due: Callable[[Mapping[Variable, Any]], Mapping[Variable, Any]] | None = None,
    ) -> None:
        """Replace variables' contents, all at once, and the step and the seed where given.

        Args:
            values: The new contents.
            step: The new step.
            seed: The new seed.
            variables: Which these are, of a run, as for `claim`.
            due: Says of the contents now what of `values` is still to be committed, or raises.
        """
        with self._swapping:
            while True:
                current = self.snapshot
                version, runs, others = current.written(variables)
                new = Snapshot(
                    {**current.values, **(values if due is None else due(current.values))},
                    current.step if step is None else step,
                    current.seed if seed is None else seed,
                    version,
                    None,
                    runs,
                    others,
                )
                if self.snapshot is current:
                    self.snapshot = new
                    return

    def discard(self, variables: frozenset[Variable]) -> None:
        """Drop the contents of variables that no plan has any more."""
        with self._swapping:
            while True:
                current = self.snapshot
                left = {v: array for v, array in current.values.items() if v not in variables}
                new = current._replace(values=left)
                if self.snapshot is current:
                    self.snapshot = new
                    return


def batches(
    variables: Sequence[Variable], kept_type: Callable[[Variable], TensorType]
) -> Iterator[dict[Variable, int]]:
    """Cut variables into pieces of some 32 MiB, whose contents lie together; yield their bytes."""
    some: dict[Variable, int] = {}
    nbytes = 0
    for variable in variables:
        size = kept_type(variable).nbytes
        assert isinstance(size, int)  # variables have static shapes
        if some and nbytes + size > _TOGETHER:
            yield some
            some, nbytes = {}, 0
        some[variable] = size
        nbytes += size
    yield some


def checked_seed(seed: int) -> int:
    """Return a session's seed.

    Raises:
        ArgumentError: It is no int of 64 bits.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ArgumentError(f"Session: seed={seed!r} is not an int", fix="pass an int: seed=0")
    if not -(2**63) <= seed < 2**63:
        raise ArgumentError(
            f"Session: the seed {seed} does not fit 64 bits", fix="use one from -2**63 to 2**63 - 1"
        )
    return int(seed)


def number_in(state: Mapping[str, Any], name: str, low: int, source: str) -> int | None:
    """Return the step or the seed that a state holds, or None.

    Raises:
        CheckpointError: It is no number from `low` on.
    """
    if name not in state:
        return None
    try:
        number = int(state[name])
    except (TypeError, ValueError, OverflowError):
        number = low - 1
    if not low <= number < 2**63:
        raise CheckpointError(
            f'"{name}" in {source} is {reprlib.repr(state[name])}, which is no number from {low} '
            "to 2**63 - 1",
            fix="use another copy of it, or leave that entry out: the session keeps its own",
        )
    return number
