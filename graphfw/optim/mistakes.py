"""Errors and warnings of steps that train something else than was meant, when described."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphfw.errors import ArgumentError, GradientError, a_type
from graphfw.ir import concrete
from graphfw.ir.graph import current_graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors
from graphfw.ops.composed import demand
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


def checked_pair(pair: Any) -> tuple[Tensor, Variable]:
    """Return a gradient with its variable.

    Raises:
        ArgumentError: They are something else, or of different shapes.
    """
    is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
    demand(
        is_pair,
        f"apply_gradients: {pair!r} is no pair of a gradient and a variable",
        fix="pass zip(gradients, parameters)",
    )
    gradient, variable = pair
    is_swapped = isinstance(gradient, Variable) and not isinstance(variable, Variable)
    demand(
        not is_swapped,
        "apply_gradients: the pairs are the wrong way round",
        fix="the gradient comes first: zip(gradients, parameters)",
    )
    message = f"apply_gradients: the gradient {gradient!r} is no tensor"
    demand(isinstance(gradient, Tensor), message, fix="get gradients with gf.grad")
    if isinstance(variable, Variable) and gradient.shape != variable.shape:
        raise ArgumentError(
            f'apply_gradients: a gradient {gradient.type} for "{variable.name}", {variable.type}',
            operands=[
                concrete.describe("gradient", gradient),
                concrete.describe("parameter", variable),
            ],
            fix="zip the gradients with the variables that they were taken by, in one order",
        )
    return gradient, variable


def returned_pair(what: str, made: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return the pair that a rule has returned.

    Raises:
        ArgumentError: It is none of something and a dict.
    """
    is_pair = isinstance(made, (tuple, list)) and len(made) == 2 and isinstance(made[1], Mapping)
    message = f"{what} returns {a_type(made)}, not a pair of a tensor and a dict"
    demand(is_pair, message, fix='return p - rate * g, {"m": m}; the dict is {} without slots')
    return made[0], made[1]
