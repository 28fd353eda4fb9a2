"""The frame of optimisers around another, which may be around a third."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from graphfw.errors import ArgumentError, a_type
from graphfw.hints.calls import explained
from graphfw.hints.names import Answering, raise_unset
from graphfw.ir.graph import open_graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.optim.base import Differentiate, Moves, Optimizer
from graphfw.optim.parameters import ParameterGroup, gradients_of
from graphfw.optim.slots import State, Stateful


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

    if not TYPE_CHECKING:

        def __setattr__(self, name, value):
            if name in ("lr", "learning_rate"):  # which others' optimisers let one set
                raise_unset(self, "Optimizer", name)
            object.__setattr__(self, name, value)

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
            loss: The loss, if updates that its layers carry along are to be part of this one.

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


class StatefulWrapper(Wrapper, Stateful[State]):
    """A wrapper with variables of its own, in the first graph that it is used in."""

    def __init__(self, optimizer: Optimizer | Wrapper, name: str) -> None:
        Wrapper.__init__(self, optimizer)
        Stateful.__init__(self, name)

    @property
    def variables(self) -> list[Variable]:
        return [*self._own_variables, *super().variables]
