"""Warnings of steps that train something else than was meant, when they are described."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.graph import current_graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors
from graphfw.optim.crosswise import warn_of_crosswise
from graphfw.optim.evaluated import warn_of_evaluated


def warn_of_mistakes(losses: Sequence[Tensor], variables: Sequence[Variable]) -> None:
    """Warn of losses by which a step trains variables otherwise than was meant."""
    warn_of_evaluated(losses, variables)
    warn_of_crosswise(losses)


def differentiated(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return what was differentiated to compute gradients, as far as they are made of that."""
    above = set(ancestors(gradients))
    known = current_graph().gradients
    return [y for found, ys in known if any(t.node in above for t in found) for y in ys]
