"""Updates that layers carry along with their results, for the step that trains them."""

from __future__ import annotations

from graphfw.ir.build import emit_all
from graphfw.ir.tensor import Node, Tensor
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
            values[variable] = value if before is None else _after(value, variable, before)
    return list(values.items())


def _after(value: Tensor, variable: Variable, before: Tensor) -> Tensor:
    """Return `value` as it is computed where the variable has the contents `before`."""
    new: dict[Node, tuple[Tensor, ...]] = {variable.node: (before,)}
    for node in ancestors([value], stop=lambda n: n is variable.node):
        if any(t.node in new for t in node.inputs):
            inputs = [new[t.node][t.index] if t.node in new else t for t in node.inputs]
            new[node] = emit_all(node.op, *inputs)
    return new[value.node][value.index] if value.node in new else value
