"""The frame of optimisers around another, which may be around a third."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from graphfw.errors import ArgumentError, GraphError, a_type
from graphfw.hints.calls import explained
from graphfw.hints.names import Answering
from graphfw.ir.graph import Graph, open_graph
from graphfw.ir.owners import owners
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.optim.base import Differentiate, Moves, Optimizer
from graphfw.optim.parameters import ParameterGroup, gradients_of
from graphfw.optim.slots import OptimizerState

State = TypeVar("State", bound=OptimizerState)


@explained
class Wrapper(Answering):
    """An optimiser whose steps are another's, from other gradients or to other values.

    Subclasses change the gradients (`_minimizing`), or the new values of the step (`_changed`).
    """

    _answers_as = "Optimizer"

    def __init__(self, optimizer: Optimizer | Wrapper) -> None:
        if not isinstance(optimizer, (Optimizer, Wrapper)):
            this = type(self).__name__
            raise ArgumentError(
                f"{this}: optimizer is {a_type(optimizer)}, no optimiser",
                fix=f"write gf.optim.{this}(gf.optim.AdamW(1e-3))",
            )
        self.optimizer = optimizer

    def minimize(
        self,
        loss: Tensor,
        parameters: Iterable[Variable] | Iterable[ParameterGroup] | None = None,
    ) -> Update:
        """Return the update of one step, as the optimiser's `minimize` does.

        Raises:
            GradientError, ArgumentError, GraphError: As the optimiser's.
        """
        open_graph("a training step")
        return self._update(self._minimizing(loss, parameters, gradients_of))

    def apply_gradients(
        self, pairs: Iterable[tuple[Tensor, Variable]], *, loss: Tensor | None = None
    ) -> Update:
        """Return the update of one step along gradients that were computed elsewhere.

        Args:
            pairs: Gradients with their variables: `zip(gradients, parameters)`.
            loss: Where given, what its layers carry along is part of the update.

        Raises:
            ArgumentError, GraphError: As the optimiser's.
        """
        open_graph("a training step")
        return self._update(self._applying(pairs, loss, lambda gradients: gradients))

    def learning_rate(self) -> Tensor:
        """Return the rate that the next update will use, a 0-d float64 tensor."""
        return self.optimizer.learning_rate()

    @property
    def variables(self) -> list[Variable]:
        """The variables it keeps in its graph, and those of its optimiser."""
        return self.optimizer.variables

    def _changed(self, moves: Moves) -> Moves:
        """Return the new values of a step, and of this one's own state, from the optimiser's."""
        return moves

    def _minimizing(
        self,
        loss: Tensor,
        parameters: Iterable[Variable] | Iterable[ParameterGroup] | None,
        differentiate: Differentiate,
    ) -> Moves:
        """Return the new values of a step towards a smaller loss."""
        return self._changed(self.optimizer._minimizing(loss, parameters, differentiate))

    def _applying(
        self,
        pairs: Iterable[tuple[Tensor, Variable]],
        loss: Tensor | None,
        changed: Callable[[list[Tensor]], Sequence[Tensor]],
    ) -> Moves:
        """Return the new values of a step along given gradients, which `changed` may change."""
        return self._changed(self.optimizer._applying(pairs, loss, changed))

    def _update(self, moves: Moves) -> Update:
        return self.optimizer._update(moves)


class StatefulWrapper(Wrapper, abc.ABC, Generic[State]):
    """A wrapper with variables of its own, in the first graph that it is used in."""

    def __init__(self, optimizer: Optimizer | Wrapper, name: str) -> None:
        super().__init__(optimizer)
        self._name = name
        self._state: State | None = None

    @property
    def variables(self) -> list[Variable]:
        own = [] if self._state is None else self._state.variables
        return [*own, *super().variables]

    @abc.abstractmethod
    def _made(self, graph: Graph) -> State:
        """Return new state in a graph."""

    def _open(self) -> State:
        this = type(self).__name__
        graph = open_graph(f"the state of {this}")
        if self._state is None or graph.succeeds(self._state.graph):
            self._state = self._made(graph)
        if self._state.graph is not graph:
            raise GraphError(
                f"this {this} belongs to another graph",
                why=owners(self._state.graph, graph),
                fix="it belongs to the graph it is first used in: make another",
            )
        return self._state
