"""Updates that layers carry along with their results, for the step that trains them."""

from __future__ import annotations

from graphfw.ir.body import rewired
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors


def carried_pairs(loss: Tensor) -> list[tuple[Variable, Tensor]]:
    """Return the new values that come along with a loss: of statistics kept by layers above it.

    A layer that was called several times has several updates of one variable; they follow one
    another in the order of the calls.
    """
    above = set(ancestors([loss]))
    values: dict[Variable, Tensor] = {}
    for update, anchor in loss.graph.carried:
        if anchor.node not in above:
            continue
        for variable, value in update.pairs:
            before = values.get(variable)
            if before is value:  # of a body, several updates have one result
                continue
            here = loss.graph.standing_for(variable)
            if before is not None and here is not None:
                value = rewired(value, here, before)
            values[variable] = value
    return list(values.items())
