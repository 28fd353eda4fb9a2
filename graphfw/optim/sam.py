"""`SAM`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from graphfw.errors import ArgumentError
from graphfw.hints.calls import explained
from graphfw.ir.body import rewired
from graphfw.ir.functions import CALLED as F
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.ops.args import converted
from graphfw.ops.composed import demand, wide
from graphfw.optim.base import Differentiate, Moves, Optimizer
from graphfw.optim.clip import global_norm
from graphfw.optim.parameters import ParameterGroup
from graphfw.optim.wrapper import Wrapper
from graphfw.utils.collecting import without_collection

_LEAST = 1e-12
"""A number added to the norm of the gradients, as in the authors' code."""


@explained
class SAM(Wrapper):
    """An optimiser along the gradients at the worst parameters nearby: sharpness-aware.

    With the gradients g of all parameters p, and the norm |g| of all of them together, the step is
    along the gradients at p + rho g / |g|. Each step computes the loss and its gradients twice;
    updates that layers carry along are those of the first. P. Foret et al., "Sharpness-aware
    minimization for efficiently improving generalization", 2021.

    Args:
        optimizer: The optimiser that makes the steps.
        rho: The distance at which the gradients are taken, above 0.

    Raises:
        ArgumentError: `optimizer` is no optimiser, or rho makes no sense.

    >>> import graphfw as gf
    >>> with gf.Graph() as g:
    ...     w = gf.Variable(4.0, name="w")
    ...     train = gf.optim.SAM(gf.optim.SGD(0.25), rho=1.0).minimize(w * w)
    >>> with gf.Session(g) as session:
    ...     session.run(train)
    ...     float(session[w])
    1.5
    """

    def __init__(self, optimizer: Optimizer | Wrapper, rho: float = 0.05) -> None:
        super().__init__(optimizer)
        demand(rho > 0, f"SAM: rho={rho} must be above 0", fix="use rho=0.05")
        self.rho = rho

    def _minimizing(
        self,
        loss: Tensor,
        parameters: Iterable[Variable] | Iterable[ParameterGroup] | None,
        differentiate: Differentiate,
    ) -> Moves:
        def worst(loss: Tensor, variables: list[Variable]) -> Sequence[Tensor]:
            return self._gradients(loss, variables, differentiate)

        return super()._minimizing(loss, parameters, worst)

    def _gradients(
        self, loss: Tensor, variables: list[Variable], differentiate: Differentiate
    ) -> Sequence[Tensor]:
        """Return the gradients at the worst parameters nearby."""
        found = differentiate(loss, variables)
        with without_collection():
            scale = self.rho / (global_norm(found) + _LEAST)
            moved: dict[Tensor, Tensor] = {}
            for variable, gradient in zip(variables, found, strict=True):
                here = loss.graph.standing_for(variable)
                assert here is not None  # a gradient has reached it
                away = wide(gradient) * converted(scale, wide(gradient).dtype)
                moved[here] = here + F.stop_gradient(converted(away, here.dtype))
            worst = rewired(loss, moved)
        return differentiate(worst, variables)

    def _applying(
        self,
        pairs: Iterable[tuple[Tensor, Variable]],
        loss: Tensor | None,
        changed: Callable[[list[Tensor]], Sequence[Tensor]],
    ) -> NoReturn:
        raise ArgumentError(
            "SAM: apply_gradients() has gradients at the parameters, and none at others nearby",
            fix="write minimize(loss), which takes them itself",
        )
