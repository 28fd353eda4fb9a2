"""`Evaluation`: a call of a model that was not for training, for training steps to ask about."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from graphfw.loc import Loc

if TYPE_CHECKING:
    from graphfw.ir.tensor import Tensor
    from graphfw.ir.variable import Variable


class Evaluation(NamedTuple):
    """A call of a model for evaluation that did not say so itself.

    Attributes:
        path: The model's path.
        loc: The line of the call.
        layers: The layers that would have computed something else in training, as text.
        parameters: The variables of the model, and of its hooks, that are trained.
        results: The tensors that the call made and returned.
    """

    path: str
    loc: Loc
    layers: tuple[str, ...]
    parameters: tuple[Variable, ...]
    results: tuple[Tensor, ...]
