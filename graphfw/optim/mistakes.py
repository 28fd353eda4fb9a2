"""Errors and warnings of steps that train something else than was meant, when described."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphfw.errors import GradientError, a_type
from graphfw.ir import concrete
from graphfw.ir.graph import current_graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors
from graphfw.optim.crosswise import warn_of_crosswise
from graphfw.optim.evaluated import warn_of_evaluated


def warn_of_mistakes(losses: Sequence[Tensor], variables: Sequence[Variable]) -> None:
    """Warn of losses by which a step trains variables otherwise than was meant."""
    above = ancestors(losses)
    warn_of_evaluated(losses, above, variables)
    warn_of_crosswise(above)


def differentiated(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors whose gradients these tensors are made of."""
    above = set(ancestors(gradients))
    known = current_graph().gradients
    return [y for found, ys in known if any(t.node in above for t in found) for y in ys]


def check_loss(loss: Any) -> None:
    """See that a loss can be minimised.

    Raises:
        GradientError: It is no tensor, no scalar, or not of floating-point values.
    """
    if not isinstance(loss, Tensor):
        raise GradientError(
            f"minimize: the loss is {a_type(loss)}, not a tensor",
            fix="minimise a tensor, such as gf.nn.cross_entropy(logits, target)",
        )
    operands = [concrete.describe("loss", loss)]
    if loss.shape != ():
        raise GradientError(
            f"minimize: the loss is {loss.type}, and only a scalar has a smallest value",
            operands=operands,
            fix="reduce it: gf.mean(loss)",
        )
    if not loss.dtype.is_floating:
        raise GradientError(
            f"minimize: the loss is {loss.dtype.name}, which has no gradient",
            operands=operands,
            fix="make the loss of floating-point values",
        )
