"""A warning for runs that train layers and leave the statistics that these keep as they are."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from graphfw.ir.graph import Graph
from graphfw.ir.op import nested
from graphfw.ir.tensor import Node
from graphfw.ir.variable import Update
from graphfw.ir.walk import ancestors
from graphfw.loc import capture

_SHOWN = 4


def warn_of_frozen_statistics(graph: Graph, updates: Iterable[Update]) -> None:
    """Warn of variables that layers update along with a step, where no step of the graph does.

    The run certainly trains: what it commits is made of a gradient through these layers, or else it
    changes what the graph has such gradients of, which were fetched or summed before. Gradients
    that are fetched alone, or moments of a gradient beside a step of `minimize`, are no reason.

    Args:
        graph: The graph.
        updates: The updates that the run makes.
    """
    if not graph.carried:
        return
    own = [*updates]
    carried = {update for update, _ in graph.carried}.difference(own)
    moved = {v for update in graph.updates if update not in carried for v, _ in update.pairs}
    waiting = [(u, t.node) for u, t in graph.carried if moved.isdisjoint([v for v, _ in u.pairs])]
    if not waiting:
        return
    committed = set(ancestors([value for update in own for _, value in update.pairs]))
    made = [ys for found, ys in graph.gradients if any(t.node in committed for t in found)]
    trained: set[Node] = set()
    if made:
        trained = {node for ys in made for node in ancestors(ys)}
    else:
        updated = {v.node for update in own for v, _ in update.pairs if v.trainable}
        for _, ys in graph.gradients:
            above = set(ancestors(ys))
            trained |= set() if updated.isdisjoint(above) else above
    names = [
        v.name
        for update, node in waiting
        if node in trained or (node in committed and _has_gradients(node))
        for v, _ in update.pairs
    ]
    names = list(dict.fromkeys(names))
    if not names:
        return
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    here = capture()
    warnings.warn_explicit(
        f"this run trains layers whose statistics no step moves: {', '.join(names[:_SHOWN])}{more}."
        " Pass the loss, apply_gradients(pairs, loss=loss); or, where gradients of several batches "
        "are summed, fetch gf.optim.layer_updates(loss) with each of them",
        UserWarning,
        here.file,
        here.line,
    )


def _has_gradients(node: Node) -> bool:
    """Return whether a gradient is computed in a body of a node."""
    inner = [n for body in nested(node.op.values) for n in body.nodes]
    return any(n.loc.grad_of is not None or _has_gradients(n) for n in inner)
