"""The effects that happen in a run: `gf.print` and its like, whose results nothing uses."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.graph import Graph
from graphfw.ir.op import SOURCE
from graphfw.ir.sources import Placeholder
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import ancestors
from graphfw.ops.control.checkpoint_ops import Barrier
from graphfw.ops.control.effects import Effect


def effects_in(graph: Graph, outputs: Sequence[Tensor], feeds: Sequence[Tensor]) -> list[Tensor]:
    """Return the tokens of the effects that happen in a run.

    An effect happens where the run computes all that it is made of; what nothing but effects uses
    counts as part of the effect, and is computed for it. A run that computes a gradient counts as
    computing what it is the gradient of. No gradient and no loop is computed for an effect's sake.

    Args:
        graph: The graph.
        outputs: What the run computes: fetches and new contents of variables.
        feeds: What it is fed.
    """
    if not graph.effects:
        return []
    covered = _covered(graph, outputs)
    allowed = covered | _only_for_effects(graph) | {t.node for t in feeds}

    def is_there(node: Node) -> bool:
        if isinstance(node.op, Placeholder):
            return node in fed
        return node in allowed or SOURCE in node.op.traits

    fed = {t.node for t in feeds}
    return [token for token in graph.effects if all(map(is_there, ancestors([token])))]


def _covered(graph: Graph, outputs: Sequence[Tensor]) -> set[Node]:
    """Return the outputs' ancestors, and those of the results whose gradients are among them."""
    covered = set(ancestors(outputs))
    # Gradients of gradients come later in the list than what they are of.
    for found, ys in reversed(graph.gradients):
        if any(t.node in covered for t in found):
            covered.update(ancestors(ys, stop=covered.__contains__))
    return covered


def _only_for_effects(graph: Graph) -> set[Node]:
    """Return the nodes that effects need and nothing else uses."""
    above = set(ancestors(graph.effects))
    used = {value.node for update in graph.updates for _, value in update.pairs}
    own: set[Node] = set()
    for node in reversed(graph.nodes):
        is_free = node not in used and node.loc.grad_of is None
        is_loop = node.op.multiple and len(node.types) > 1
        if isinstance(node.op, Barrier) and node not in used:
            continue  # the result of `gf.check`, which nobody takes
        if isinstance(node.op, Effect) or (node in above and is_free and not is_loop):
            own.add(node)  # where a token is used, too, as by what is after a check
        else:
            used.update([t.node for t in node.inputs])
    return own
