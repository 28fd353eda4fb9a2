"""Updates that layers carry along with their results, for the step that trains them."""

from __future__ import annotations

from graphfw.ir.body import rewired
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors


def carried_pairs(loss: Tensor) -> list[tuple[Variable, Tensor]]:
    """Return the new values that come along with a loss: of statistics kept by layers above it.

    A layer that was called several times has several updates of its variables; they follow one
    another in the order of the calls.
    """
    above = set(ancestors([loss]))
    values: dict[Variable, Tensor] = {}
    for update, anchor in loss.graph.carried:
        if anchor.node not in above:
            continue
        # Of a body, several updates have one result.
        pairs = [(v, value) for v, value in update.pairs if values.get(v) is not value]
        read = [(loss.graph.standing_for(v), values[v]) for v, _ in pairs if v in values]
        before = {here: new for here, new in read if here is not None}
        values |= {v: rewired(value, before) for v, value in pairs}
    return list(values.items())
