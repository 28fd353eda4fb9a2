"""Updates that layers carry along with their results, for the step that trains them."""

from __future__ import annotations

from graphfw.errors import ArgumentError, GraphError, a_type
from graphfw.hints.calls import explained
from graphfw.ir import concrete
from graphfw.ir.body import rewired
from graphfw.ir.graph import current_graph, open_graph
from graphfw.ir.owners import owners
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Update, Variable
from graphfw.ir.walk import ancestors
from graphfw.loc import capture


@explained
def layer_updates(loss: Tensor) -> Update:
    """Return the update of what layers keep of each batch, such as `BatchNorm`'s statistics.

    It is part of what `minimize(loss)` and `apply_gradients(pairs, loss=loss)` return. Fetch it by
    itself in runs that compute gradients and make no step, as when those of several batches are
    summed. Without such layers it changes nothing. In a graph it includes what the `forward` of
    other modules updates by `gf.update`.

    Args:
        loss: A tensor: the layers are those that it depends on, where they were called for
            training.

    Raises:
        ArgumentError: The loss is no tensor.
        GraphError: No graph is open, or it is another than the loss's.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", 3), name="x")
    ...     moves = gf.optim.layer_updates(gf.sum(gf.nn.BatchNorm(3)(x)))
    >>> [variable.name for variable, _ in moves.pairs]
    ['batch_norm.running_mean', 'batch_norm.running_var']
    """
    open_graph("an Update")
    graph = current_graph()
    if not isinstance(loss, Tensor):
        raise ArgumentError(
            f"layer_updates: the loss is {a_type(loss)}, no tensor",
            fix="pass the loss, or another tensor that depends on the layers",
        )
    if loss.graph is not graph:
        raise GraphError(
            "layer_updates: the loss belongs to another graph than the one that is open",
            operands=[concrete.describe("loss", loss)],
            why=owners(loss.graph, graph),
            fix="call it inside `with` of the loss's graph",
        )
    loc = graph.provenance or capture()
    pairs = carried_pairs(loss)
    for variable, _ in pairs:
        graph.check_update(variable, loc)
    return Update(pairs, graph, loc)


def carried_pairs(loss: Tensor) -> list[tuple[Variable, Tensor]]:
    """Return the new values that come along with a loss: of statistics kept by layers above it.

    A layer that was called several times has several updates of its variables; they follow one
    another in the order of the calls.
    """
    values: dict[Variable, Tensor] = {}
    carried = loss.graph.carried
    above = set(ancestors([loss])) if carried else set()
    for update in dict.fromkeys([update for update, anchor in carried if anchor.node in above]):
        # Of a body, several updates have one result.
        pairs = [(v, value) for v, value in update.pairs if values.get(v) is not value]
        read = [(loss.graph.standing_for(v), values[v]) for v, _ in pairs if v in values]
        before = {here: new for here, new in read if here is not None}
        values |= {v: rewired(value, before) for v, value in pairs}
    return list(values.items())
