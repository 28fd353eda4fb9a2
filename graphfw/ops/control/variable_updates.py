"""Updates of variables in bodies: what a body gives a variable is one more result of its node.

A branch that gives it nothing yields what it has. In a loop its contents go from iteration to
iteration: each iteration reads what the one before has given it. Around the body the update is one
    of the node's result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphfw.errors import GraphError
from graphfw.ir.body import Traced, rewired
from graphfw.ir.build import admitted
from graphfw.ir.concrete import describe
from graphfw.ir.functions import F
from graphfw.ir.graph import current_graph
from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.ir.walk import ancestors


def updated(*traced: Traced) -> list[Variable]:
    """Return the variables that are updated in bodies, in order."""
    found = [v for one in traced for update in one.graph.updates for v, _ in update.pairs]
    return list(dict.fromkeys(found))


def yielding(variables: Sequence[Variable], *traced: Traced) -> tuple[Traced, ...]:
    """Return bodies that also yield the contents of variables, whether they update them or not."""
    found = []
    for one in traced:
        with one.graph:
            before = {v: one.graph.take(v, one.graph.what) for v in variables}
            after = _contents(one, before)
            if _is_outermost(one):
                after = [F.stop_gradient(t) for t in after]
        found.append(one._replace(outputs=(*one.outputs, *after)))
    return tuple(found)


def carrying_on(
    variables: Sequence[Variable], traced: Traced, parameters: int, outputs: int
) -> Traced:
    """Return the body of a loop whose iterations hand on the contents of variables.

    Args:
        variables: The variables.
        traced: The body.
        parameters: How many parameters come before theirs.
        outputs: How many outputs come before theirs; as many as there are, or more.
    """
    taken = taking(variables, traced, parameters)
    own = taken.parameters[parameters : parameters + len(variables)]
    with traced.graph:
        after = _contents(traced, dict(zip(variables, own, strict=True)))
        read = set(ancestors(traced.outputs))
        if _is_outermost(traced) and not any(t.node in read for t in own):
            after = [F.stop_gradient(t) for t in after]
    made = traced.outputs
    return taken._replace(outputs=(*made[:outputs], *after, *made[outputs:]))


def taking(variables: Sequence[Variable], traced: Traced, index: int) -> Traced:
    """Return a body that is given the contents of variables, after `index` other parameters."""
    graph = traced.graph
    own = []
    with graph:
        for v in variables:
            source = admitted(v, graph.outer, graph.what)
            read = graph.captured.pop(source, None)  # what it captured is what it is given now
            own.append(graph.parameter(v.type) if read is None else read)
    parameters = traced.parameters
    return traced._replace(parameters=(*parameters[:index], *own, *parameters[index:]))


def settle(
    variables: Sequence[Variable],
    anchors: Sequence[Tensor],
    results: Sequence[Tensor],
    *traced: Traced,
) -> None:
    """Make the updates of bodies updates of the graph around, by what their node yields.

    Args:
        variables: The variables.
        anchors: Results of the node: a step that they lead to carries along what layers carry.
        results: The contents that the node yields for the variables.
        traced: The bodies.
    """
    graph = current_graph()
    new = dict(zip(variables, results, strict=True))
    for one in traced:
        carried = {update for update, _ in one.graph.carried}
        for update in one.graph.updates:
            update.settle([(v, new[v]) for v, _ in update.pairs], graph)
            if update in carried:
                graph.carried += [(update, anchor) for anchor in anchors]


def _is_outermost(traced: Traced) -> bool:
    """Return whether only later runs read what a body leaves in variables: no loop around it does.

    Then nothing differentiates that.
    """
    outer = traced.graph.outer
    return outer.root is outer


def _contents(traced: Traced, before: Mapping[Variable, Tensor]) -> list[Tensor]:
    """Return the contents of variables after a body, for those before it.

    A layer that is called several times has several updates; they follow one another.
    """
    graph = traced.graph
    carried = {update for update, _ in graph.carried}
    after = dict(before)
    seen: set[tuple[Variable, Tensor]] = set()
    for update in graph.updates:
        pairs = [pair for pair in update.pairs if pair not in seen]
        again = [(v, value) for v, value in pairs if after[v] is not before[v]]
        for v, value in again:
            if update not in carried:
                raise GraphError(
                    f'update: "{v.name}" is updated twice in the body of a {graph.what}',
                    operands=[describe("first", after[v]), describe("second", value)],
                    at=update.loc,
                    fix="compute one new value, and update it once",
                )
        moved = {before[v]: after[v] for v, _ in again}
        seen.update(pairs)
        after |= {v: rewired(value, moved) for v, value in pairs}
    return list(after.values())
