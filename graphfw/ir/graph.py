"""`Graph`: an append-only list of nodes, with its variables and updates."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfw.errors import (
    GraphError,
    GraphErrors,
    GraphfwError,
    counted,
    did_you_mean,
)
from graphfw.hints.calls import explained
from graphfw.hints.names import Answering
from graphfw.ir import ambient, concrete, pickled, printer, unknown, views
from graphfw.ir.dim import Dim, symbol
from graphfw.ir.evaluation import Evaluation
from graphfw.ir.functions import F
from graphfw.ir.literal import Array
from graphfw.ir.mesh import AbstractMesh, checked_mesh
from graphfw.ir.op import Op
from graphfw.ir.opset import OPSET, checked_opset
from graphfw.ir.scopes import Scoped
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import TensorType
from graphfw.loc import Loc, capture, name_fix, trim_traceback
from graphfw.utils import forks

if TYPE_CHECKING:
    import networkx

    from graphfw.ir.training_modes import TrainingModes
    from graphfw.ir.variable import Update, Variable

innermost_graph: Scoped[Graph | None] = Scoped("graph", None)
"""The graph of the innermost `with` block that is open here, or None."""

_opening = forks.renewed_lock()
_open: set[Graph] = set()
"""The graphs that are being built."""


class Graph(Answering):
    """A description of a computation; make nodes inside `with graph:`.

    Graphs nest, can be entered again to be extended, and are built by one thread at a time. They
    can be pickled and copied; a copy has nodes, variables and updates of its own.

    Args:
        name: What to call it in texts.
        opset: The version of what the public functions mean in it, 1 or 2, the default: see
            `docs/graphs.md`.
        collect_errors: Go on after a mistake, and raise one error with all independent ones at the
            end of the `with` block.
        mesh: The mesh of processes for `gf.distributed`: what runs the graph has the same axes.

    Attributes:
        outputs: What the graph is for, where that is known: the outputs of a model that was read.
        metadata: What is said about it, by keys of whoever says it.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder(("batch", 3), name="x")
    ...     y = gf.sum(x * x, axis=1)
    >>> y.shape
    (batch,)
    """

    _answers_as = "Graph"
    is_ambient = False
    what = "graph"
    """The name of the construct it is the body of, as errors name it."""
    elsewhere = "build both in one graph, or feed the value of one to a placeholder of the other"
    """The fix where a tensor of it is used in another graph."""
    from_outside = (
        "describe inside `with graph:`; outside, get values with session.run and use NumPy"
    )
    """The fix where a tensor of it is used outside of any graph."""
    lacking = ""
    """The advice where a checkpoint has variables that it lacks; empty where there is none."""
    modes: TrainingModes | None = None
    """The record of the modules that are called, in a graph that a function is built into."""

    @explained
    def __init__(
        self,
        name: str = "",
        *,
        opset: int | None = None,
        collect_errors: bool = False,
        mesh: AbstractMesh | None = None,
    ) -> None:
        self.name = name
        self.mesh = checked_mesh("Graph", mesh)
        self.opset = OPSET if opset is None else checked_opset(opset)
        self.nodes: list[Node] = []
        self.outputs: tuple[Tensor, ...] = ()
        self.metadata: dict[str, str] = {}
        self.variables: list[Variable] = []
        self.updates: list[Update] = []
        self.carried: list[tuple[Update, Tensor]] = []
        self.evaluations: list[Evaluation] = []
        self.effects: list[Tensor] = []
        self.calls = 0  # those that have effects
        self.gradients: list[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]] = []
        self.measured: dict[Any, tuple[Tensor, ...]] = {}
        self.layers: Any = None  # the names of `nn`'s modules
        self.is_derived = False
        self.provenance: Loc | None = None
        self.collect_errors = collect_errors
        self.errors: list[GraphfwError] = []
        self._poisoned: set[Node] = set()
        self._alive: list[Tensor] = []  # their nodes refer to them weakly
        self._names: dict[str, Tensor] = {}
        self._variable_names: dict[str, Variable] = {}
        self._newly_named: list[Variable] = []
        self._counts: dict[str, int] = {}
        self._builder: int | None = None
        self._depth = 0

    # Building.

    def __enter__(self) -> Graph:
        me = threading.get_ident()
        with _opening:
            if self._depth and self._builder != me:
                raise GraphError(
                    "this graph is being built by another thread",
                    fix="build it in one thread, or give each thread a graph of its own; "
                    "sessions may be run by many threads",
                )
            _open.add(self)
            self._builder = me
            self._depth += 1
        try:
            innermost_graph.enter(self, self)
            return self
        except BaseException:  # an interrupt
            self._close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        innermost_graph.leave(self)
        self._close()
        if isinstance(error, GraphfwError):
            if self.errors:
                follows = any(operand.follows for operand in error.operands)
                raise GraphErrors(self.errors if follows else [*self.errors, error]) from None
            trim_traceback(traceback)
        elif error is not None and self.errors:
            error.add_note(str(GraphErrors(self.errors)))
        elif error is None and self._depth == 0:
            self.check()

    def _close(self) -> None:
        with _opening:
            self._depth -= 1
            if not self._depth:
                _open.discard(self)

    @explained
    def check(self) -> None:
        """Raise what `collect_errors` has collected, if anything.

        Raises:
            GraphErrors: Mistakes were made.
        """
        if self.errors:
            raise GraphErrors(self.errors)

    def append(self, node: Node, outputs: tuple[Tensor, ...] | None = None) -> tuple[Tensor, ...]:
        """Add a node that `emit` made, and return its outputs."""
        if threading.get_ident() != self._builder:
            raise GraphError(
                "this graph is being built by another thread",
                fix="enter the graph in the thread that builds it",
            )
        if outputs is None:
            outputs = node.make_outputs()
        if node.name:
            self._claim(node.name, outputs[0])
        self.nodes.append(node)
        return outputs

    def share(self, node: Node) -> tuple[Tensor, ...]:
        """Add a node of the graph that this one is derived from, as it is."""
        outputs = node.outputs
        self.nodes.append(node)
        if node.graph.is_ambient:
            self._alive.extend(outputs)
        return outputs

    def _name_variable(self, variable: Variable) -> None:
        """Take note that a variable has a new name; what it is may be known only later."""
        self._newly_named.append(variable)

    def _variable_named(self, name: str) -> Variable | None:
        """Return the variable that was given a name and still has it.

        Names that variables got when layers became submodules of others are not looked for: that
        would compute all names. `check_names` does it, once for all.
        """
        while self._newly_named:
            variable = self._newly_named.pop()
            self._variable_names[variable.name] = variable
        known = self._variable_names.get(name)
        return known if known is not None and known.name == name else None

    def _claim(self, name: str, tensor: Tensor) -> None:
        other = self._names.get(name)
        if other is not None and not self.is_derived:
            raise GraphError(
                f'the name "{name}" is taken',
                operands=[concrete.describe("first", other)],
                at=tensor.node.loc,
                fix=name_fix(other.node.loc, tensor.node.loc),
            )
        self._names[name] = tensor

    def fail(self, error: GraphfwError, op: Op, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Raise an error of a type rule, or collect it and return stand-ins to go on with."""
        explain = ambient.explainer.get()
        if explain is not None:
            explain(error)
        error.layer = error.layer or ambient.current_scope.get()
        if not self.collect_errors:
            raise error from None  # the failed requirement is graphfw's own business
        if not any(t.node in self._poisoned for t in inputs):
            self.errors.append(error)
        types: tuple[TensorType, ...] = op.guess(*[t.type for t in inputs])
        node = Node(op, inputs, types, capture(), "", self)
        self.poison(node)
        return self.append(node)

    def poison(self, node: Node) -> None:
        """Remember that a node is a stand-in for what failed, so that it starts no second error."""
        self._poisoned.add(node)

    def spread_poison(self, node: Node) -> None:
        """Poison a node that depends on one that failed."""
        if any(t.node in self._poisoned for t in node.inputs):
            self.poison(node)

    def is_poisoned(self, node: Node) -> bool:
        """Return whether a node is a stand-in for what failed, or depends on one."""
        return node in self._poisoned

    def unique(self, name: str) -> str:
        """Return the name, with a number where it has been asked for before."""
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        return f"{name}_{count}" if count else name

    @property
    def root(self) -> Graph:
        """The graph itself, or the one that it is inside of, as a loop's body."""
        return self

    def location(self) -> Loc:
        """Return the location that a node made now has."""
        return self.provenance or capture(ambient.current_scope.get())

    def take(self, tensor: Tensor, what: str) -> Tensor:
        """Return a tensor of another graph as one of this, where that can be."""
        del what
        return tensor

    def check_update(self, variable: Variable, loc: Loc) -> None:
        """See that variables may be updated here.

        Raises:
            GraphError: They may not.
        """
        del variable, loc

    def standing_for(self, tensor: Tensor) -> Tensor | None:
        """Return this graph's tensor for one of the graph around all bodies, or None."""
        return tensor

    def reads(self, tensor: Tensor) -> bool:
        """Return whether a tensor of another graph may be an operand here as it is."""
        del tensor
        return False

    def succeeds(self, other: Graph) -> bool:
        """Return whether this is built to do the same as another graph, and in its place."""
        del other
        return False

    def takes_over(self, other: Graph) -> Callable[[Variable], Variable | None] | None:
        """Return a function from variables of another graph to those for them here, or None."""
        del other
        return None

    def contents_of(self, tensor: Tensor) -> Array | None:
        """Return the contents of a variable that has some outside of sessions, read-only."""
        del tensor
        return None

    def fresh_symbol(self, hint: str) -> Dim:
        """Return a symbolic dim that no other placeholder has."""
        return symbol(self.unique(f"_{hint}"))

    @contextmanager
    def located(self, loc: Loc | None) -> Iterator[None]:
        """Give the nodes made inside a location other than the caller's line."""
        before = self.provenance
        self.provenance = loc
        try:
            yield
        finally:
            self.provenance = before

    # Copies.

    def __reduce__(self) -> str | tuple[Any, ...]:
        return Graph, (), pickled.state_of(self)

    def __setstate__(self, state: pickled.GraphState) -> None:
        pickled.fill(self, state)

    def __copy__(self) -> Graph:
        return self.__deepcopy__({})  # a node belongs to one graph: nothing can be shared

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        state = pickled.state_of(self)
        copied = memo[id(self)] = Graph(mesh=self.mesh)
        pickled.fill(copied, state)
        return copied

    def _reduced(self, tensor: Tensor) -> tuple[Any, ...]:
        """Return how `pickle` makes a tensor of this graph again."""
        return pickled.tensor_of, (self, pickled.number_of(tensor.node), tensor.index)

    def _counterpart(self, tensor: Tensor, copied: Graph) -> Tensor:
        """Return the tensor of a copy of this graph that one of this graph has become."""
        return pickled.tensor_of(copied, pickled.number_of(tensor.node), tensor.index)

    @staticmethod
    def _is_one_open() -> bool:
        """Return whether any graph is being built here."""
        return not current_graph().is_ambient

    # Looking.

    @explained
    def find(self, name: str) -> Tensor:
        """Return the tensor or variable of a name.

        Raises:
            GraphError: There is none.
        """
        if name in self._names:
            return self._names[name]
        variables = {variable.name: variable for variable in self.variables}
        if name in variables:
            return variables[name]
        known = [*self._names, *variables]
        raise GraphError(
            f'nothing in this graph is named "{name}"',
            fix=did_you_mean(name, known) or f"it has: {', '.join(known) or 'no names'}",
        )

    @property
    def placeholders(self) -> list[Tensor]:
        """The placeholders, in the order in which they were made."""
        return [node.outputs[0] for node in self.nodes if node.op.name == "placeholder"]

    def check_names(self) -> None:
        """See that no variable has the name of another, or of a tensor.

        Raises:
            GraphError: One has.
        """
        seen = dict(self._names)
        for variable in self.variables:
            other = seen.setdefault(variable.name, variable)
            if other is not variable:
                both = other.node.op.name == "variable"
                pairs = ("first", other), ("second", variable)
                who = "two variables" if both else "a tensor and a variable"
                raise GraphError(
                    f'{who} are named "{variable.name}"',
                    operands=[concrete.describe(*pair) for pair in pairs],
                    fix="give each its own name, or use gf.name_scope",
                )

    def symbol_origin(self, name: str) -> str:
        """Return where a symbolic dim comes from: `batch` is dim 0 of "x" (model.py:3)."""
        return views.symbol_origin(self, name)

    @explained
    def constants(self) -> dict[str, Any]:
        """Return the arrays of the graph's large constants by the digest that `print(g)` shows."""
        return printer.large_constants(self)

    @explained
    def summary(self) -> str:
        """Return a table of placeholders, variables, ops and their cost."""
        return views.summary(self)

    @explained
    def to_networkx(self) -> networkx.MultiDiGraph:
        """Return it as a networkx graph: nodes are `Node`s, edges go from producer to user."""
        return views.to_networkx(self)

    def __str__(self) -> str:
        return printer.graph_text(self)

    def __repr__(self) -> str:
        title = f' "{self.name}"' if self.name else ""
        size = f"{counted(len(self.nodes), 'node')}, {counted(len(self.variables), 'variable')}"
        return f"<Graph{title}: {size}>"


class _AmbientGraph(Graph):
    """The graph of tensors outside any `with`. It keeps no list, so dropped tensors are freed."""

    is_ambient = True

    def append(self, node: Node, outputs: tuple[Tensor, ...] | None = None) -> tuple[Tensor, ...]:
        return node.make_outputs() if outputs is None else outputs

    def unique(self, name: str) -> str:
        with _opening:
            return super().unique(name)

    def __reduce__(self) -> str:
        return "AMBIENT"  # as a global of this module: there is one

    def _reduced(self, tensor: Tensor) -> tuple[Any, ...]:
        return _constant_of, (concrete.value_of(tensor, "pickle"),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        return self


AMBIENT = _AmbientGraph("ambient")


def _constant_of(array: np.ndarray[Any, Any]) -> Tensor:
    """Return a constant outside of any graph."""
    with ambient.override(innermost_graph, None):
        return F.asarray(array)


def _after_fork() -> None:
    for graph in [*_open]:
        if graph._builder != threading.get_ident():  # by a thread that the child does not have
            graph._depth = 0
            _open.discard(graph)


forks.in_child(_after_fork)


def current_graph() -> Graph:
    """Return the innermost open graph, or the ambient one."""
    return innermost_graph.get() or AMBIENT


def _symbol_origin(name: str) -> str:
    """Return where a symbolic dim comes from; "" where no graph that is open knows it."""
    graphs = filter(None, innermost_graph.values())
    return next((text for graph in graphs if (text := graph.symbol_origin(name))), "")


unknown.ORIGINS.append(_symbol_origin)


def open_graph(what: str) -> Graph:
    """Return the innermost open graph for something that can't live outside one.

    Raises:
        GraphError: No graph is open.
    """
    graph = current_graph().root
    if graph.is_ambient:
        raise GraphError(
            f"{what} belongs to a graph, and none is open here",
            fix=f"make it inside `with graphfw.Graph() as g:` ({what} outlives the block), or in a "
            "function with @graphfw.function above it",
        )
    return graph
