"""The sessions of graphs that were made outside of any `with graph:`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphfw.errors import GraphError
from graphfw.ir.model_graph import ModelGraph
from graphfw.ir.variable import Variable
from graphfw.runtime.executor import Executor
from graphfw.runtime.functions import Function
from graphfw.runtime.session import Session


class ModelSessions:
    """Makes the sessions of these graphs, and joins two: see `ir/model_graph.py`."""

    def session(self, graph: ModelGraph, executor: str | Executor | None) -> Session:
        """Return a session of a graph."""
        return Session(graph, executor, graph.session_seed, **graph.options)

    def check_joint(self, first: Session, second: Session) -> None:
        """Check that two sessions can become one.

        Raises:
            GraphError: Their executors differ.
        """
        names = first.executor.name, second.executor.name
        if names[0] != names[1]:
            raise GraphError(
                f"one model's weights are on {names[0]!r}, the other's on {names[1]!r}",
                fix="make both inside of one `with gf.default_executor(…)`",
            )

    def move(self, source: Session, target: Session, seed: int) -> None:
        """Give a session the contents of another one and a seed, and close the other.

        All runs of the other must have ended. A second call does the same again.
        """
        # One after the other: a run holds the one lock and may want the other, in a host_call.
        with source._state.writing:
            moved = source._state.snapshot
            source._runs.is_joined = source._runs.is_closed = True
        with target._state.writing:
            step = max(moved.step, target._state.snapshot.step)
            target._state.commit(moved.values, step, seed)

    def writing(self, session: Session) -> Any:
        """Return the lock of runs that write to variables."""
        return session._state.writing

    def discard(self, session: Session, variables: frozenset[Variable]) -> None:
        """Drop the contents of variables."""
        session._state.discard(variables)

    def function(self, fn: Callable[..., Any]) -> Function:
        """Return a function of arrays, with the executor and the options of its layers."""
        return Function(fn, None, None, None, {})


ModelGraph.runtime = ModelSessions()
