"""Builds of a function: each in a graph of its own, copied to the graph of the session."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, cast

from graphfw.errors import GraphError
from graphfw.ir import ambient, concrete
from graphfw.ir.graph import Graph
from graphfw.ir.model_graph import ModelGraph, free_name, joined
from graphfw.ir.op import EFFECT, PURE, nested
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.training_modes import TrainingModes
from graphfw.ir.variable import Update, Variable


class MadeVariables:
    """The variables in the session's graph that a function has made, by their names in builds.

    Attributes:
        references: Weak references to them.
    """

    def __init__(self) -> None:
        self.references: list[weakref.ref[Variable]] = []
        self._named: dict[str, Variable] = {}
        self._pairs: list[tuple[Variable, Variable]] = []

    def add(self, variable: Variable, twin: Variable) -> None:
        """Note the variable that stands for one of a build."""
        self._named[variable.name] = twin
        self._pairs.append((variable, twin))
        self.references.append(weakref.ref(twin))

    def get(self, name: str) -> Variable | None:
        """Return the variable that stands for one of a name, or None."""
        return self._named.get(name)

    def all(self) -> set[Variable]:
        """Return the variables."""
        return set(self._named.values())

    def renamed(self) -> None:
        """Take note that layers, after which optimisers' variables are named, have other names."""
        self._named = {variable.name: twin for variable, twin in self._pairs}


def close_or_release(
    own: weakref.ref[ModelGraph],
    made: list[weakref.ref[Variable]],
    copied: list[weakref.ref[Tensor]],
) -> None:
    """Close the session of a graph that only one function has used, or release its variables.

    The collector may call this at any moment, so it waits for nothing.
    """
    graph = own()
    if graph is None:
        return
    if graph.is_joined:
        graph.current.released += made
        graph.current.released += copied
    elif graph.has_session():
        graph.session.close()


class FunctionGraph(Graph):
    """A build of a function while it is made.

    Each build has a graph of its own, so that names of layers, variables and draws are the same in
    all. It may use tensors of its session's graph, and variables of the function's earlier builds.
    It has the opset of the session's graph.

    Attributes:
        modes: Whether the modules that are called are for training.
        twins: The variables of the session's graph that stand for variables of this one.
    """

    elsewhere = (
        "a tensor lasts for one build of a function: return it and pass it to the next call, or "
        "keep it in a gf.Variable, by gf.update(variable, value)"
    )
    from_outside = "return it from the function, whose calls return arrays"

    def __init__(self, owner: object, name: str, main: Graph, made: MadeVariables) -> None:
        super().__init__(name, opset=main.opset)
        self.modes: TrainingModes = TrainingModes()
        self._owner = owner
        self._main = main
        self._made = made
        own = made.all()
        self.variables = [v for v in main.variables if v not in own]
        self._listed = set(self.variables)
        self.twins: dict[Variable, Variable] = {}

    def own_updates(self) -> list[Update]:
        """Return the updates that each call makes.

        Those that layers carry along belong to the step that trains the layers.
        """
        carried = {update for update, _ in self.carried}
        return [update for update in self.updates if update not in carried]

    def reads(self, tensor: Tensor) -> bool:
        if tensor.graph is self._main or self._joins(tensor):
            return True
        if not (isinstance(tensor, Variable) and self.succeeds(tensor.graph)):
            return False
        if tensor not in self._listed:
            self._listed.add(tensor)
            self.variables.append(tensor)
        return True

    def _joins(self, tensor: Tensor) -> bool:
        """Return whether a tensor is one of layers that were made outside, and join their graph."""
        if not isinstance(self._main, ModelGraph) or not isinstance(tensor.graph, ModelGraph):
            return False
        self._main = joined(self._main, tensor.graph)
        known = self._listed | self._made.all()
        new = [v for v in self._main.variables if v not in known]
        self._listed.update(new)
        self.variables += new
        return True

    def takes_over(self, other: Graph) -> Callable[[Variable], Variable | None] | None:
        """Return a function to the variables here that stand for those of another build.

        If another function of the same session has made them, as its optimiser's state, they stay
        as long as the session from now on: either function may live longer.
        """
        if not isinstance(other, FunctionGraph):
            return None

        def twin(variable: Variable) -> Variable | None:
            is_lost = variable.graph is other  # in a build that failed
            return other.twins.get(variable, None if is_lost else variable)

        if other._owner is self._owner:
            return twin
        if isinstance(self._main, ModelGraph) and isinstance(other._main, ModelGraph):
            self._main = joined(self._main, other._main)
        elif self._main is not other._main:
            return None
        other._made.references.clear()
        return twin

    def succeeds(self, other: Graph) -> bool:
        if not isinstance(other, FunctionGraph) or other is self:
            return False
        return other._owner is self._owner


class Copies:
    """The nodes of a build, made again in the graph of the session that runs it.

    Args:
        build: The build's graph.
        main: The session's graph.
        made: The variables there that the function has made; is added to.
    """

    def __init__(self, build: FunctionGraph, main: Graph, made: MadeVariables) -> None:
        self._build = build
        self._main = main
        self._made = made
        self._tensors: dict[Node, tuple[Tensor, ...]] = {}
        self._updates: dict[Update, Update] = {}
        with main, ambient.override(ambient.current_scope, ""):
            for node in build.nodes:
                self._tensors[node] = self._copied(node)
            for update in build.updates:
                pairs = [(self._twin(v), self.tensor(value)) for v, value in update.pairs]
                self._updates[update] = Update(pairs, main, update.loc)

    def of(self, leaf: Tensor | Update) -> Tensor | Update:
        """Return this graph's tensor or update for one of the build."""
        return self._updates[leaf] if isinstance(leaf, Update) else self.tensor(leaf)

    def references(self) -> list[weakref.ref[Tensor]]:
        """Return weak references to an output of each node, but for variables."""
        first = [outputs[0] for outputs in self._tensors.values()]
        return [weakref.ref(tensor) for tensor in first if not isinstance(tensor, Variable)]

    def happening(self) -> list[Tensor | Update]:
        """Return the effects and updates of each call, whether or not they are returned."""
        effects = {
            self._tensors[node][0]: None
            for node in self._build.nodes
            if EFFECT in node.op.traits
            and PURE not in node.op.traits
            and not any(nested(node.op.values))  # what is in a body happens as the body says
        }
        effects.update(dict.fromkeys(map(self.tensor, self._build.effects)))
        return [*effects, *[self._updates[update] for update in self._build.own_updates()]]

    def tensor(self, tensor: Tensor) -> Tensor:
        """Return this graph's tensor for one of the build."""
        if isinstance(tensor, Variable):
            return self._twin(tensor)
        made = self._tensors.get(tensor.node)
        return tensor if made is None else made[tensor.index]

    def _copied(self, node: Node) -> tuple[Tensor, ...]:
        (first, *_) = node.outputs
        if isinstance(first, Variable):
            return (self._twin(first),)
        inputs = tuple([self.tensor(t) for t in node.inputs])
        # Builds have the same names; the first one keeps them.
        name = "" if node.name in self._main._names else node.name
        return self._main.append(Node(node.op, inputs, node.types, node.loc, name, self._main))

    def _twin(self, variable: Variable) -> Variable:
        """Return the variable of the session's graph, which is made if there is none."""
        graph = variable.graph
        if not isinstance(graph, FunctionGraph):
            return variable
        twin = graph.twins.get(variable, self._made.get(variable.name))
        if twin is None:
            twin = self._new(variable)
            self._made.add(variable, twin)
        elif twin.type != variable.type:
            raise GraphError(
                f'the function makes a variable "{variable.name}" that is {twin.type} in one build '
                f"and {variable.type} in another",
                operands=[concrete.describe("first", twin), concrete.describe("now", variable)],
                at=variable.node.loc,
                fix="a variable has one shape: make it not depend on the arguments, or name it "
                "differently",
            )
        graph.twins[variable] = twin
        return twin

    def _new(self, variable: Variable) -> Variable:
        initial: Any = variable.initial
        dtype = None if isinstance(initial, Tensor) else variable.dtype
        shape = cast("tuple[int, ...]", variable.shape)  # those of variables are static
        name = variable.name
        if not variable.is_named:  # as those of an optimiser, which other functions may have, too
            # Not by the graph's index: layers that were made parts of others have other names.
            name = free_name({v.name for v in self._main.variables}, name)
        with self._main.located(variable.node.loc):
            made = Variable(initial, name, variable.trainable, shape=shape, dtype=dtype)
        if name == variable.name and not variable.is_named:
            made.rename(lambda: variable.name)
        made.is_transposed = variable.is_transposed
        return made
