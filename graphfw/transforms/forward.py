"""Forward-mode differentiation: tangents are pushed along nodes that are there already.

Hardly any op needs a rule for it. An op that is linear is applied to the tangents. The gradient
rule of an elementwise op multiplies by a slope, which is also that of the tangent. Any other
gradient rule is linear in the cotangent, and its gradient with respect to that is the product of
the derivative and a tangent (J. Townsend, "A new trick for calculating Jacobian vector products",
2017).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from graphfw.errors import GradientError
from graphfw.ir.body import BodyGraph, copied
from graphfw.ir.build import admitted, emit_all
from graphfw.ir.functions import F, public
from graphfw.ir.graph import current_graph
from graphfw.ir.modes import unintercepted
from graphfw.ir.op import ELEMENTWISE, Op
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import ancestors
from graphfw.ops.control.region_op import Region
from graphfw.ops.control.scan_op import Scan
from graphfw.transforms.grad import fitted

Tangents = Sequence[Tensor | None]
"""None stands for zeros, so that nothing is computed for what does not move."""


@public
@unintercepted
def tangents(
    ys: Sequence[Tensor], xs: Sequence[Tensor], seeds: Tangents, keeps: bool = False
) -> tuple[list[Tensor], list[Tensor | None]]:
    """Return the ys and their tangents for those of the xs; None for a y that none reaches.

    What a loop computes and its tangents come from one loop: the ys are made again after it.

    For the rules of ops that own bodies; users have `jvp`.

    Args:
        ys: What is differentiated.
        xs: With respect to what.
        seeds: The tangents of the xs.
        keeps: Let loops stack what a linear loop of the tangents needs, where they can: for several
            tangents of the same ys.
    """
    moved = {(x.node, x.index): s for x, s in zip(xs, seeds, strict=True) if s is not None}
    if not moved:
        return list(ys), [None] * len(ys)
    first = min(node.serial for node, _ in moved)  # no node from before it depends on an x
    anew: dict[tuple[Node, int], Tensor] = {}
    graph = current_graph()
    before = graph.provenance
    try:
        for node in ancestors(ys, stop=lambda node: node.serial <= first):
            incoming = [moved.get((t.node, t.index)) for t in node.inputs]
            inputs = [anew.get((t.node, t.index), t) for t in node.inputs]
            is_changed = any(a is not b for a, b in zip(inputs, node.inputs, strict=True))
            if not is_changed and _none(incoming):
                continue
            outputs: Sequence[Tensor] = node.outputs
            if is_changed:
                graph.provenance = node.loc
                outputs = emit_all(node.op, *inputs)
            graph.provenance = node.loc.as_gradient()
            made, found = _through(node, outputs, inputs, incoming, keeps)
            for index, (old, new, tangent) in enumerate(
                zip(node.outputs, made, found, strict=True)
            ):
                if new is not old:
                    anew[node, index] = new
                if tangent is not None:
                    moved[node, index] = tangent
    finally:
        graph.provenance = before
    # What happens in a loop happens in the one made anew; the other then computes nothing.
    if graph.effects:
        graph.effects = [anew.get((token.node, token.index), token) for token in graph.effects]
    return (
        [anew.get((y.node, y.index), y) for y in ys],
        [moved.get((y.node, y.index)) for y in ys],
    )


def _none(values: Iterable[Tensor | None]) -> bool:
    return all(value is None for value in values)


def _through(
    node: Node, outputs: Sequence[Tensor], inputs: Sequence[Tensor], incoming: Tangents, keeps: bool
) -> tuple[Sequence[Tensor], Tangents]:
    """Return a node's outputs, and their tangents for those of its inputs."""
    op = node.op
    floats = [t.dtype.is_inexact for t in outputs]
    if op.vjp is None or _none(incoming) or not any(floats):
        return outputs, [None] * len(outputs)
    if keeps and isinstance(op, Scan) and _can_keep(op):
        return op.tangents_apart(incoming, outputs, *inputs)
    if op.jvp is not None:
        made, found = op.jvp(incoming, outputs, *inputs)
        return made, found
    if op.linear == "jointly":
        results: Tangents = emit_all(
            op, *[_moved(x, t) for x, t in zip(inputs, incoming, strict=True)]
        )
    elif op.linear == "each":
        results = [_sum(emit_all(op, *xs)[0] for xs in _one_at_a_time(inputs, incoming))]
    elif ELEMENTWISE in op.traits:
        results = [_elementwise(node, outputs[0], inputs, incoming)]
    else:
        results = _transposed(node, outputs, inputs, incoming)
    return outputs, [t if flag else None for t, flag in zip(results, floats, strict=True)]


def _can_keep(op: Op) -> bool:
    """Return whether an op can stack what its tangents need: loops of unknown length can not."""
    return isinstance(op, Scan) and all(
        _can_keep(node.op) for node in op.body.nodes if isinstance(node.op, Region)
    )


def _moved(x: Tensor, tangent: Tensor | None) -> Tensor:
    """Return the operand that takes an input's position where an op is applied to the tangents."""
    if tangent is not None or not x.dtype.is_inexact:
        return x if tangent is None else tangent
    return F.zeros(x.shape, dtype=x.dtype)


def _one_at_a_time(inputs: Sequence[Tensor], incoming: Tangents) -> Iterable[list[Tensor]]:
    for index, tangent in enumerate(incoming):
        if tangent is not None:
            yield [*inputs[:index], tangent, *inputs[index + 1 :]]


def _sum(values: Iterable[Tensor]) -> Tensor | None:
    total: Tensor | None = None
    for value in values:
        total = value if total is None else total + value
    return total


def _elementwise(
    node: Node, y: Tensor, inputs: Sequence[Tensor], incoming: Tangents
) -> Tensor | None:
    """Take the gradient rule as it is: the derivative is diagonal, its own transpose.

    The rule multiplies by the conjugate of the slope, so its conjugate is taken.
    """
    # A rule sums over the dims that an input is repeated along: so it is repeated before.
    whole = [
        x if t is None else F.broadcast_to(x, y.shape)
        for x, t in zip(inputs, incoming, strict=True)
    ]

    def terms() -> Iterable[Tensor]:
        for index, tangent in enumerate(incoming):
            if tangent is None:
                continue
            entry = _entries(node, F.broadcast_to(F.conj(tangent), y.shape), y, whole)[index]
            if entry is not None:
                value = entry if isinstance(entry, Tensor) else entry()
                value = F.conj(fitted(value, whole[index].type, node))
                yield value if y.dtype.is_complex else F.real(value)

    return _sum(terms())


def _entries(node: Node, ct: Any, y: Any, inputs: Sequence[Tensor]) -> Sequence[Any]:
    rule = node.op.vjp
    assert rule is not None
    entries: Sequence[Any] = rule(ct, y, *inputs)
    return entries


def _transposed(
    node: Node, outputs: Sequence[Tensor], inputs: Sequence[Tensor], incoming: Tangents
) -> list[Tensor | None]:
    """Differentiate the gradient rule with respect to its cotangent.

    That is done in a graph of its own, of which only what the result needs is kept.
    """
    outside = current_graph()
    graph = BodyGraph("jvp")
    with graph, graph.located(outside.provenance):
        seeds = [graph.parameter(t.type) if t.dtype.is_inexact else None for t in outputs]
        ct = tuple(seeds) if node.op.multiple else seeds[0]
        y = tuple(outputs) if node.op.multiple else outputs[0]
        gradients, moved = [], []
        entries = _entries(node, ct, y, inputs)
        for x, entry, tangent in zip(inputs, entries, incoming, strict=True):
            if entry is not None and tangent is not None:
                value = entry if isinstance(entry, Tensor) else entry()
                gradients.append(admitted(fitted(value, x.type, node), graph, "jvp"))
                moved.append(admitted(tangent, graph, "jvp"))
        floats = [seed for seed in seeds if seed is not None]
        found = iter(F.cotangents(gradients, floats, moved))
        results = [None if seed is None else next(found) for seed in seeds]
        results = [None if t is None else admitted(t, graph, "jvp") for t in results]
    wanted = [t for t in results if t is not None]
    _check_linear(node, wanted, floats)
    around = {parameter: source for source, parameter in graph.captured.items()}
    made = iter(copied(wanted, around))
    return [None if t is None else next(made) for t in results]


def _check_linear(node: Node, results: Sequence[Tensor], seeds: Sequence[Tensor]) -> None:
    needed = set(ancestors(results))
    if any(seed.node in needed for seed in seeds):
        raise GradientError(
            f"jvp: the gradient rule of {node.op.name} is not linear in the cotangent, so there is "
            "no forward mode through it",
            at=node.loc,
            fix="use gf.grad or gf.vjp, or make the rule products of the cotangent with factors",
        )
