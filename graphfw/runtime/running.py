"""Runs of plans on a session's state: what they read is pinned, what they update is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import GraphfwError, MemoryLimitError, SessionError
from graphfw.ir import time_limits
from graphfw.ir.dtype import as_dtype
from graphfw.ir.graph import Graph
from graphfw.ir.op import NO_RNG, Rng
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.passes.base import Pass
from graphfw.runtime.executor import Executable
from graphfw.runtime.hosting import to_numpy
from graphfw.runtime.profile import Profile
from graphfw.runtime.program import Program
from graphfw.runtime.state import State


class RunDescription(NamedTuple):
    """The description of a run.

    Attributes:
        graph: The graph.
        fetches: The tensors that are fetched.
        updates: The updates that are made.
        feeds: The placeholders that are fed.
    """

    graph: Graph
    fetches: Sequence[Tensor]
    updates: Sequence[Update]
    feeds: Sequence[Tensor]


class Runs:
    """The runs of a session.

    Plans have this object and not their session: an object whose unknown attributes answer what to
    write instead looks its attributes up more slowly.

    Attributes:
        state: The session's contents.
        check_finite: Whether outputs that are not finite are errors.
        is_closed: Whether the session is.
        is_joined: Whether another session has its variables since their graphs were joined.
        passes: Passes that come after the session's own.
    """

    passes: Sequence[Pass] = ()

    def __init__(self, state: State, check_finite: bool) -> None:
        self.state = state
        self.check_finite = check_finite
        self.is_closed = False
        self.is_joined = False

    def check_open(self) -> None:
        """Refuse what comes after the session is closed.

        Raises:
            SessionError: It is.
        """
        if self.is_joined:
            raise SessionError(
                "this session's variables belong to another session since their model was used "
                "together with another one",
                fix="take that: model.session, or the session of the function",
            )
        if self.is_closed:
            raise SessionError(
                "this session is closed", fix="use it inside its `with` block, or make another"
            )

    def partitioned(self, whole: RunDescription) -> RunDescription:
        """Return the run of this process, for one that is described for all of them."""
        return whole

    def agree_on(self, program: Program) -> None:
        """See that all processes of a mesh have compiled the same program."""

    def failed(self, program: Program | None, error: BaseException) -> None:
        """Learn that a run has failed before it began, or has no program since compiling failed."""

    def wait(self) -> None:
        """Wait for all runs; see `Session.wait`."""
        self.check_open()
        self.state.unsettled.settle()

    def profile(
        self, program: Program, run: Executable, fed: Sequence[Any], sizes: tuple[int, ...]
    ) -> Profile:
        """Time a run that changes nothing."""
        self.wait()
        with self.state.pinned() as snapshot:
            inputs = [*fed, *[snapshot.values.get(v) for v in program.variables]]
            rng = Rng(snapshot.seed, snapshot.step)
            return run.profile(inputs, sizes, rng, snapshot.version_of(program.kept))

    def execute(
        self, program: Program, run: Executable, fed: Sequence[Any], sizes: tuple[int, ...]
    ) -> list[Any]:
        """Run a loaded program on checked feeds and commit its updates; what plans call."""
        # The state before the check: a session that is closed in between leaves this one whole.
        state = self.state
        if self.is_closed:
            self.check_open()
        try:
            if not program.updated:
                return self._reading(state, program, run, fed, sizes)
            return self._updating(state, program, run, fed, sizes)
        except MemoryError as error:
            if isinstance(error, GraphfwError):
                raise
            raise MemoryLimitError(
                f"the run takes more memory than there is: {error}",
                fix="feed less at once; plan.memory() says what takes it",
            ) from error

    def _reading(
        self,
        state: State,
        program: Program,
        run: Executable,
        fed: Sequence[Any],
        sizes: tuple[int, ...],
    ) -> list[Any]:
        """Run what updates no variables."""
        if state.unsettled.noted:
            state.unsettled.look(updates=False)
        if not program.variables and not program.is_random:
            outputs = run(fed, sizes, NO_RNG, 0, None)
            if self.check_finite:
                _check(outputs, run, fed, sizes, NO_RNG)
            return outputs
        me = object()
        try:
            snapshot = state.pin(me)
            if program.is_random:
                snapshot = state.take_step(me)
            contents = snapshot.values
            inputs = [*fed, *[contents.get(v) for v in program.variables]]
            rng = Rng(snapshot.seed, snapshot.step)
            outputs = run(inputs, sizes, rng, snapshot.version_of(program.kept), None)
            if self.check_finite:
                _check(outputs, run, inputs, sizes, rng)
            return outputs
        except BaseException:
            state.give_back(me)
            raise
        finally:
            state.unpin(me)

    def _looks_before(self, program: Program) -> bool:
        """Return whether something is done between a run's last step and its commit."""
        return self.check_finite

    def _agree(self, program: Program) -> None:
        """Wait until all processes of a mesh have come so far in a run that updates variables."""

    def _updating(
        self,
        state: State,
        program: Program,
        run: Executable,
        fed: Sequence[Any],
        sizes: tuple[int, ...],
    ) -> list[Any]:
        """Run what updates variables, in its turn, and commit."""
        if time_limits.used and time_limits.seconds_left() is not None:
            # Waiting for other runs is part of the time.
            return time_limits.holding(state.writing, self._update, state, program, run, fed, sizes)
        with state.writing:
            return self._update(state, program, run, fed, sizes)

    def _update(
        self,
        state: State,
        program: Program,
        run: Executable,
        fed: Sequence[Any],
        sizes: tuple[int, ...],
    ) -> list[Any]:
        self.check_open()
        if state.unsettled.noted:
            state.unsettled.look(updates=True)
        me = object()
        state.release()
        try:
            snapshot = state.pin(me)
            if program.is_random:
                snapshot = state.take_step(me)
            contents = snapshot.values
            # What is looked at before it is committed can't be written over what it replaces.
            is_early = not self._looks_before(program)
            claim = partial(state.claim, me, contents, program.rewritten) if is_early else None
            inputs = [*fed, *[contents.get(v) for v in program.variables]]
            rng = Rng(snapshot.seed, snapshot.step)
            outputs = run(inputs, sizes, rng, snapshot.version_of(program.kept), claim)
            if self.check_finite:
                _check(outputs, run, inputs, sizes, rng)
            self._agree(program)
            if contents:  # an executor that only looks at shapes has none
                new = outputs[program.fetch_count :]
                values = dict(zip(program.updated, new, strict=True))
                due = partial(_still_due, values, program, contents)
                state.commit(values, variables=program.rewritten, due=due)
        except BaseException:
            state.give_back(me)
            raise
        finally:
            state.unpin(me)
            state.release()
        return outputs[: program.fetch_count]


def _still_due(
    values: dict[Variable, Any],
    program: Program,
    contents: Mapping[Variable, Any],
    now: Mapping[Variable, Any],
) -> dict[Variable, Any]:
    """Return the values to commit, also where this thread has written inside of the run.

    Args:
        values: What the run has computed.
        program: What it runs.
        contents: What it was computed from.
        now: The contents of the session.

    Raises:
        SessionError: It would undo what was written, or mix two states.
    """
    if now is contents:
        return values
    concerned = dict.fromkeys([*program.variables, *values])
    written = [v for v in concerned if now.get(v) is not contents.get(v)]
    if written and not any(array is contents.get(v) for v, array in values.items()):
        names = ", ".join([f'"{v.name}"' for v in written[:3]])
        raise SessionError(
            f"{names} {'was' if len(written) == 1 else 'were'} written while this run, which "
            "updates variables, was under way in the same thread, so it has changed nothing",
            fix="in gf.host_call and signal handlers only read; write before the run or after it",
        )
    # Else the run had happened, in place, before a signal handler went on from there.
    return {v: array for v, array in values.items() if v not in written}


def _check(
    outputs: list[Any], run: Executable, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng
) -> None:
    """See that the outputs of a run are finite.

    Raises:
        ExecutionError: One of them is not; it names the operation that this comes from.
    """
    if not all(map(_is_finite, outputs)):
        raise run.blame(inputs, sizes, rng)


def _is_finite(array: Any) -> bool:
    """Return whether all elements are finite; what is no float is."""
    dtype = as_dtype(array.dtype)
    if not (dtype.is_inexact or dtype.holds_floats):
        return True
    # Of dtypes for storage no library for GPUs can say it.
    return bool(np.isfinite(to_numpy(array) if dtype.is_storage else array).all())
