"""`ModelGraph`: the graph of layers and variables that are made outside any `with graph:`."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from graphfw.errors import ArgumentError, GraphError
from graphfw.hints.calls import explained
from graphfw.ir import ambient
from graphfw.ir.graph import AMBIENT, Graph, current_graph
from graphfw.ir.literal import Array
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.unset import Unset
from graphfw.utils import forks

if TYPE_CHECKING:
    from graphfw.ir.variable import Variable

_joining = forks.renewed_lock()
"""Held while graphs join, and while a session is made."""

_moves: list[tuple[ModelGraph, ModelGraph]] = []
"""The move of one graph into another that is under way, or was cut off."""

_set_graph = vars(Unset)["graph"].__set__


class Origin(NamedTuple):
    """The seed and the key that a variable's initial contents are drawn from.

    Attributes:
        seed: The seed of `set_seed`.
        key: A text that differs for each variable that was made since.
    """

    seed: int
    key: str


class _Seeding:
    """The seed of objects that are made outside of graphs, and a count of them since it was set."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._count = 0
        self._lock = forks.renewed_lock()

    def number(self) -> int:
        """Return the next number, from 0 up."""
        with self._lock:
            self._count += 1
            return self._count - 1


_seeding = _Seeding(0)


@explained
def set_seed(seed: int) -> None:
    """Set the seed of layers, variables and functions that are made outside of graphs from now on.

    A program that makes the same layers in the same order after it gets the same weights, and the
    same random numbers in their runs. The seed is 0 at first. Explicit graphs don't use it: their
    sessions have the seed of `gf.Session(graph, seed=…)`.

    Args:
        seed: An int of 64 bits.

    Raises:
        ArgumentError: The seed is not an int of 64 bits.

    >>> import graphfw as gf
    >>> gf.set_seed(7)
    >>> first = gf.nn.Linear(3, 2).weight.numpy()
    >>> gf.set_seed(7)
    >>> bool((gf.nn.Linear(3, 2).weight.numpy() == first).all())
    True
    """
    global _seeding
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise ArgumentError(f"set_seed: seed={seed!r} is not an int", fix="write set_seed(0)")
    if not -(2**63) <= seed < 2**63:
        raise ArgumentError(
            f"set_seed: {seed} does not fit 64 bits", fix="use one from -2**63 to 2**63 - 1"
        )
    _seeding = _Seeding(int(seed))


def new_origin() -> Origin:
    """Return the origin of a variable that is made now, outside of graphs."""
    seeding = _seeding
    return Origin(seeding.seed, f"made/{seeding.number()}")


class BuiltFunction(Protocol):
    """A function with builds in a graph: a `gf.function`."""

    def _forget_builds(self) -> None:
        """Build anew at the next call."""


class Runtime(Protocol):
    """The interface of `runtime/model_sessions.py`, through which graphs make and use sessions."""

    def session(self, graph: ModelGraph, executor: Any) -> Any:
        """Return a session of a graph."""

    def check_joint(self, first: Any, second: Any) -> None:
        """Raise where two sessions can't become one."""

    def move(self, source: Any, target: Any, seed: int) -> None:
        """Give a session the contents of another one and a seed, and close the other."""

    def writing(self, session: Any) -> Any:
        """Return the lock of runs that write to variables."""

    def discard(self, session: Any, variables: frozenset[Variable]) -> None:
        """Drop the contents of variables."""

    def function(self, fn: Any) -> Any:
        """Return a `gf.function`."""


class ModelGraph(Graph):
    """The graph of variables made outside any `with graph:`, with a session of its own.

    Each such variable begins in a graph of its own. Two of these graphs become one if a module gets
    variables of both, or a function uses both: see `joined`.

    Args:
        name: The name in texts.
        executor: The executor of its session; the default executor when there is none.
        seed: The seed of its session; without one each graph has another.
        options: Further options of its session, as `Session` takes them.

    Attributes:
        functions: The functions that have builds in it.
        moving: The graph that is being moved into it, if there is one.
        released: Weak references to the variables of functions that no longer exist, and to an
            output of each of their other nodes.
        is_joined: Whether it has become a part of another graph, or has taken one in.
    """

    runtime: ClassVar[Runtime]
    elsewhere = (
        "make the layer or variable inside of the same `with graph:`; or open no graph, and write "
        "the computation as a function with @gf.function above it"
    )

    from_outside = "write the computation as a function with @gf.function above it"
    lacking = (
        "a function makes its variables, and its optimisers', in its first call: before loading, "
        "call it, or function.plan(…) with the same arguments"
    )

    def __init__(
        self,
        name: str = "",
        executor: Any = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name)
        self.executor = executor
        self.seed = seed
        self.options = dict(options or {})
        seeding = _seeding
        self.number = seeding.number()
        self.own_seed = (seeding.seed + self.number * 0x9E3779B97F4A7C15) % 2**63
        self.functions: weakref.WeakSet[BuiltFunction] = weakref.WeakSet()
        self.moving: set[ModelGraph] = set()
        self.released: list[weakref.ref[Any]] = []
        self.is_joined = False
        self._successor: ModelGraph | None = None
        self._session: Any = None

    @property
    def current(self) -> ModelGraph:
        """The graph itself, or the one that it has become a part of."""
        graph = self
        while graph._successor is not None:
            graph = graph._successor
        return graph

    @property
    def session_seed(self) -> int:
        """The seed of the session."""
        return self.own_seed if self.seed is None else self.seed

    @property
    def session(self) -> Any:
        """The session of the graph, made when it is first used."""
        if self._session is not None and self._successor is None and not _moves:
            return self._session  # and waits for nobody
        with _joining:
            _finish_moves()
            return self.current._own_session()

    def _own_session(self) -> Any:
        if self._session is None:
            self._session = self.runtime.session(self, self.executor)
        return self._session

    def has_session(self) -> bool:
        """Return whether its session was made."""
        return self._session is not None

    def append(self, node: Node, outputs: tuple[Tensor, ...] | None = None) -> tuple[Tensor, ...]:
        """Add a node, also that of a variable that is made outside of any `with`."""
        if self._depth:
            return super().append(node, outputs)
        with self:
            return super().append(node, outputs)

    def unique(self, name: str) -> str:
        """Return the name, with a number where it has been asked for before.

        Those of variables without a name differ from those of other graphs, which it may join.
        """
        return AMBIENT.unique(name) if name == "variable" else super().unique(name)

    # Contents.

    def drop_released(self) -> None:
        """Drop the nodes, and the optimisers' variables, of functions that no longer exist."""
        released, self.released = self.released, []
        found = [tensor for known in released if (tensor := known()) is not None]
        if not found:
            return
        gone: Any = {tensor for tensor in found if tensor.node.op.name == "variable"}
        nodes = {tensor.node for tensor in found}
        self.nodes = [node for node in self.nodes if node not in nodes]
        ends = {u for u in self.updates if any(value.node in nodes for _, value in u.pairs)}
        self.updates = [update for update in self.updates if update not in ends]
        self._names = {name: t for name, t in self._names.items() if t.node not in nodes}
        self.variables = [v for v in self.variables if v not in gone]
        self._newly_named = [v for v in self._newly_named if v not in gone]
        known = self._variable_names.items()
        self._variable_names = {name: v for name, v in known if v not in gone}
        if self._session is not None:
            self.runtime.discard(self._session, frozenset(gone))

    def contents_of(self, tensor: Tensor) -> Array | None:
        """Return a variable's contents, read-only; None while a graph is built."""
        if tensor.node.op.name != "variable" or not current_graph().is_ambient:
            return None
        contents: Array = self.session[tensor]
        contents.flags.writeable = False
        return contents

    # Copies.

    def _reduced(self, tensor: Tensor) -> tuple[Any, ...]:
        if tensor.node.op.name == "variable":  # which is copied with its contents, by itself
            variable: Any = tensor
            again, arguments = variable._with_contents()
            return again, arguments
        return super()._reduced(tensor)

    @staticmethod
    def _is_one_open() -> bool:
        return True  # a copy of a variable is a new one, here as in a graph that is open


def variable_graph() -> Graph:
    """Return the graph for a variable that is made here: the open one, or a new `ModelGraph`."""
    graph = current_graph().root
    if not graph.is_ambient:
        return graph
    return ModelGraph(executor=ambient.scoped_executor(), options=ambient.session_options.get())


def joined(first: ModelGraph, second: ModelGraph) -> ModelGraph:
    """Make one graph of two that were made outside of `with`, and return it.

    The functions that have builds in either are built again by their next call.

    Raises:
        GraphError: They are run by different executors, or with different options.
    """
    while True:
        first, second = sorted((first.current, second.current), key=lambda graph: graph.number)
        # Before `_joining`: a run that holds one may ask for a session, in a `gf.host_call`.
        with _writing(first), _writing(second), _joining:
            _finish_moves()
            if first is second.current:
                return first
            if first.current is first and second.current is second:
                return _join(first, second)


def _join(first: ModelGraph, second: ModelGraph) -> ModelGraph:
    _check_executors(first, second)
    _check_options(first, second)
    for graph in (first, second):
        if graph._session is not None:
            graph._session.wait()  # before the move: a run that has returned may still fail
    # To the session that has options; else the smaller one moves: a large model that gets layers
    # one by one stays where it is.
    into, other = (first, second) if _size(first) >= _size(second) else (second, first)
    if other._session is not None and into._session is None:  # before the move: it may be refused
        into._session = into.runtime.session(into, other._session.executor)
    _moves.append((other, into))
    _finish_moves()
    return into


def _writing(graph: ModelGraph) -> Any:
    """Return a context in which no run of a graph's session writes to variables."""
    session = graph._session
    return nullcontext() if session is None else graph.runtime.writing(session)


def _size(graph: ModelGraph) -> tuple[bool, bool, int, int]:
    size = len(graph.functions) > 0, len(graph.variables), -graph.number
    return len(graph.options) > 0, *size


def _check_executors(first: ModelGraph, second: ModelGraph) -> None:
    """Check that one session can run both.

    Raises:
        GraphError: They have sessions with different executors, or functions ask for such.
    """
    sessions = [graph._session for graph in (first, second) if graph._session is not None]
    if len(sessions) == 2:
        ModelGraph.runtime.check_joint(*sessions)
    wanted = [graph.executor for graph in (first, second) if graph.executor is not None]
    if len(wanted) == 2 and not _is_one_executor(*wanted):
        raise GraphError(
            f"one is run by the executor {wanted[0]!r}, the other by {wanted[1]!r}",
            fix="give both the same executor",
        )
    held = {
        graph._session.executor.name
        for graph in (first, second)
        if graph._session is not None and graph.executor is None
    }
    if wanted and held and held != {_executor_name(wanted[0])}:
        raise GraphError(
            f"one is to run on {wanted[0]!r}, and the weights of the other are on {held.pop()!r}",
            fix="leave executor= out, or make both inside of one `with gf.default_executor(…)`",
        )


def _is_one_executor(first: Any, second: Any) -> bool:
    """Return whether two executors, or names of such, are one: an object is that of its name."""
    if isinstance(first, str) == isinstance(second, str):
        return bool(first == second)
    return _executor_name(first) == _executor_name(second)


def _executor_name(executor: Any) -> str:
    name: str = getattr(executor, "name", executor)
    return name


def _check_options(first: ModelGraph, second: ModelGraph) -> None:
    """Check that one session can have the options of both: those of one, where one has none.

    Raises:
        GraphError: Both have options, and not the same.
    """
    if first.options and second.options and first.options != second.options:
        raise GraphError(
            f"one has a session with {_shown(first.options)}, the other one with "
            f"{_shown(second.options)}",
            fix="make both inside of the same `with gf.model_session_options(…)`, or one of them "
            "outside of it",
        )


def _shown(options: Mapping[str, Any]) -> str:
    return ", ".join([f"{name}={value!r}" for name, value in options.items()])


def _finish_moves() -> None:
    """Complete a move that was interrupted, as by Ctrl-C, before anybody sees half of it."""
    while _moves:
        _move(*_moves[-1])
        _moves.pop()


def _move(source: ModelGraph, into: ModelGraph) -> None:
    """Move the contents of a graph into another; a second call does what the first has not done."""
    if source._successor is not None:
        return
    if source.layers is not None:
        if into.layers is None:
            source.layers.graph = into
            into.layers = source.layers
        elif into.layers is not source.layers:
            source.layers.move_to(into.layers)
    for node in source.nodes:
        _set_graph(node, into)
    for update in source.updates:
        update.graph = into
    if source not in into.moving:
        lists = ("nodes", "updates", "carried", "evaluations", "effects", "gradients", "released")
        joint: dict[str, Any] = {n: getattr(into, n) + getattr(source, n) for n in lists}
        joint["measured"] = {**source.measured, **into.measured}
        joint["_names"] = {**source._names, **into._names}
        joint["functions"] = into.functions | source.functions
        joint["executor"] = into.executor or source.executor
        joint["options"] = into.options or source.options
        joint["seed"] = source.seed if into.seed is None else into.seed
        first = min(into, source, key=lambda graph: graph.number)
        joint |= {"number": first.number, "own_seed": first.own_seed}
        vars(into).update(joint, moving={*into.moving, source})  # in one step
    known = set(into.variables)
    taken = {variable.name for variable in into.variables}
    for variable in source.variables:
        if variable not in known:
            name = variable.name
            free = free_name(taken, name)
            if free != name:
                variable.rename(free.__str__)
            into.variables.append(variable)
            into._name_variable(variable)
    if source._session is not None:
        ModelGraph.runtime.move(source._session, into._session, into.session_seed)
    for function in [*into.functions]:
        function._forget_builds()
    into.is_joined = source.is_joined = True
    source._successor = into
    into.moving.discard(source)


def free_name(taken: set[str], name: str) -> str:
    """Return a name, numbered where it is taken, and take it."""
    numbers = itertools.count(1)
    free = name
    while free in taken:
        free = f"{name}_{next(numbers)}"
    taken.add(free)
    return free
