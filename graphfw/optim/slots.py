"""The state of an optimiser in a graph: variables beside those that it trains."""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Mapping
from typing import Any, Generic, Self, TypeAlias, TypeVar

from graphfw.errors import GraphError, a_type
from graphfw.ir import ambient
from graphfw.ir.dtype import DType, int64
from graphfw.ir.graph import Graph, current_graph, open_graph
from graphfw.ir.owners import owners
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ir.variable import Filled, Variable
from graphfw.ops.composed import demand

Initial: TypeAlias = float | tuple[float, Shape]
"""The number that a slot begins with; with a shape, where that is not the parameter's."""


class OptimizerState(abc.ABC):
    """The variables that an optimiser keeps in a graph, named after it."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph = graph
        self.name = graph.unique(ambient.join_scope(ambient.current_scope.get(), name))

    @property
    @abc.abstractmethod
    def variables(self) -> list[Variable]:
        """All of them."""

    def taken_over(self, graph: Graph) -> Self | None:
        """Return the state for another function's graph, where it is of the same session.

        Returns:
            The state; None where the graph can't have it, or makes it anew under the same names.
        """
        if graph.succeeds(self.graph) and self.variables[0].graph is self.graph:
            return None
        twin = graph.takes_over(self.graph)
        if twin is None or twin(self.variables[0]) is None:
            return None
        taken = copy.copy(self)
        vars(taken).update(_replaced(vars(self), twin), graph=graph)
        return taken

    def _variable(self, name: str, value: float, shape: Any, dtype: DType) -> Variable:
        made = Variable(Filled(value), shape=shape, dtype=dtype, trainable=False)
        made.rename(lambda: f"{self.name}.{name}")
        return made


State = TypeVar("State", bound=OptimizerState)


class Stateful(abc.ABC, Generic[State]):
    """The frame of what has variables in the first graph that it is used in."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._state: State | None = None

    @property
    def _own_variables(self) -> list[Variable]:
        return [] if self._state is None else self._state.variables

    @abc.abstractmethod
    def _made(self, graph: Graph) -> State:
        """Return new state in a graph."""

    def _open(self) -> State:
        this = type(self).__name__
        graph = open_graph(f"the state of {this}")
        self._state = state_in(graph, self._state, lambda: self._made(graph))
        if self._state.graph is not graph:
            raise GraphError(
                f"this {this} belongs to another graph",
                why=owners(self._state.graph, graph),
                fix="it belongs to the graph it is first used in: make another",
            )
        return self._state


class OptimizerSlots(OptimizerState):
    """The number of updates made, and slots for variables."""

    def __init__(self, graph: Graph, name: str) -> None:
        super().__init__(graph, name)
        self.slots: dict[Variable, dict[str, Variable]] = {}
        self.step = self._variable("step", 0, (), int64)
        self._next_steps: dict[Graph, Tensor] = {}

    def taken_over(self, graph: Graph) -> Self | None:
        taken = super().taken_over(graph)
        if taken is not None:
            taken._next_steps = {}
        return taken

    @property
    def variables(self) -> list[Variable]:
        return [self.step, *[slot for slots in self.slots.values() for slot in slots.values()]]

    @property
    def next_step(self) -> Tensor:
        """The number of updates after this one, in the graph or body that is open.

        It is one tensor, so that several updates of one optimiser agree on the step's new value.
        """
        graph = current_graph()
        if graph not in self._next_steps:
            self._next_steps[graph] = self.step + 1
        return self._next_steps[graph]

    def slots_of(
        self, variable: Variable, initial: Mapping[str, Initial], dtype: DType, prefix: str = ""
    ) -> dict[str, Variable]:
        """Return a variable's slots, made when they are first asked for, by their names.

        Those with a prefix are others than those without, though their names are the same.
        """
        slots = self.slots.setdefault(variable, {})
        for name, given in initial.items():
            slot = prefix + name
            if slot not in slots:
                value, shape = given if isinstance(given, tuple) else (given, variable.shape)
                slots[slot] = self._variable(slot, value, shape, dtype)
                self._name_after(slots[slot], slot, variable)
        return {name: slots[prefix + name] for name in initial}

    def _name_after(self, slot: Variable, kind: str, variable: Variable) -> None:
        # By a function: a variable may get its name when its layer becomes part of another.
        slot.rename(lambda: f"{self.name}.{kind}.{variable.name}")


def _replaced(value: Any, twin: Callable[[Variable], Variable | None]) -> Any:
    """Return variables, and those in dicts, replaced by others; where one is None, without it."""
    if isinstance(value, Variable):
        return twin(value)
    if not isinstance(value, dict):
        return value
    made = {_replaced(k, twin): _replaced(v, twin) for k, v in value.items()}
    lost = [k for k, v in value.items() if isinstance(v, Variable) and twin(v) is None]
    return made if not lost else {}


def state_in(graph: Graph, state: State | None, make: Callable[[], State]) -> State:
    """Return an optimiser's state in a graph: the one that it has, or new state.

    Where it has state in a graph that this is not, and can't take it from, that is returned.
    """
    if state is None:
        return make()
    if state.graph is graph:
        return state
    taken = state.taken_over(graph)
    if taken is not None:
        return taken
    return make() if graph.succeeds(state.graph) else state


def checked_slots(optimizer: str, slots: Any) -> Mapping[str, Initial]:
    """Check the slots that an optimiser's class declares, and return them.

    Raises:
        ArgumentError: It is something else than names with numbers, or with numbers and shapes.
    """
    what = f"{optimizer}: slots() returns"
    message = f"{what} {a_type(slots)}, not a dict"
    demand(isinstance(slots, Mapping), message, fix='return {"m": 0.0}, or {} for none')
    for name, given in slots.items():
        is_pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], tuple)
        value = given[0] if is_pair else given
        fix = f'return the number it begins with: {{"{name}": 0.0}}; or {{"{name}": (0.0, shape)}}'
        message = f"{what} {a_type(given)} for {name!r}"
        demand(isinstance(value, (int, float)), message, fix=fix)
    checked: Mapping[str, Initial] = slots
    return checked
