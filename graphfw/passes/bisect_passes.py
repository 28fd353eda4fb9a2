"""The search for the pass, the rule and the node that change a number, on a run's inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from graphfw.errors import PassError
from graphfw.ir import concrete
from graphfw.ir.graph import Graph
from graphfw.ir.literal import Array
from graphfw.ir.rebuild import derive
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import ancestors
from graphfw.loc import Loc
from graphfw.passes.base import Pass, no_ambient
from graphfw.passes.rules import RuleSet
from graphfw.passes.values import (
    SampleInputs,
    Unknown,
    Value,
    evaluated,
    first_rule,
    least_tolerance,
    same_values,
)

_SEEDS = range(4)
_NOISE = 64
"""The most that the error of a fixed order of sums exceeds that of random rounding."""

_LOW_NOISE = 4
"""The same where there are 16-bit floats: sums of these are made in float32, and rounded once."""


class RealRun:
    """The inputs of a run, and how far its values may differ.

    Sums in another order and functions that are a unit in the last place off are no mistakes. They
    mostly hide in the tolerance of `same_values`. Where they do not, because large numbers cancel
    or the last bit decides a comparison, the graph is computed again with every number moved by its
    last bits: what moves then is not determined any better.
    """

    def __init__(self, draw: SampleInputs) -> None:
        self.draw = draw

    def values(self, graph: Graph) -> list[Value]:
        """Return the values of a graph's outputs, node by node."""
        return evaluated(graph, self.draw)

    def first_difference(
        self, graph: Graph, wanted: Sequence[Value], found: Sequence[Value]
    ) -> int | None:
        """Return the first of a graph's outputs whose value is not what was wanted, or None."""
        pairs = zip(wanted, found, strict=True)
        differing = [
            k
            for k, (a, b) in enumerate(pairs)
            if not isinstance(a, Unknown) and not same_values(a, b)
        ]
        if not differing:
            return None
        few = derive(graph, [graph.outputs[k] for k in differing])
        moved = [evaluated(few, replace(self.draw, jitter=seed)) for seed in _SEEDS]
        for number, k in enumerate(differing):
            noise = _LOW_NOISE if least_tolerance(ancestors([graph.outputs[k]])) else _NOISE
            if not explained(wanted[k], found[k], [one[number] for one in moved], noise):
                return k
        return None


def explained(a: Value, b: Value, moved: Sequence[Value], noise: int = _NOISE) -> bool:
    """Return whether b differs from a no more than what moves with the numbers' last bits.

    Args:
        a: A value.
        b: Another one.
        moved: The value with all numbers moved.
        noise: How much farther it may be.
    """
    others = [m for m in moved if not isinstance(m, Unknown)]
    if isinstance(a, Unknown) or len(others) < len(moved):  # the last bits decide when a loop ends
        return True
    if isinstance(b, Unknown):
        return False
    return _moves(a, b, others, noise)


def _moves(a: Array, b: Array, moved: Sequence[Array], farther: int) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if np.iscomplexobj(a):
        return _moves(a.real, b.real, [m.real for m in moved], farther) and _moves(
            a.imag, b.imag, [m.imag for m in moved], farther
        )
    if a.dtype.kind in "biu":
        uncertain = np.any([m != a for m in moved], axis=0)
        return bool(np.all((a == b) | uncertain))
    wide = a.astype(np.float64)
    others = [m.astype(np.float64) for m in moved]
    uncertain = np.any([np.isfinite(m) != np.isfinite(wide) for m in others], axis=0)
    distances = np.abs(np.where(np.isfinite(others) & np.isfinite(wide), others - wide, 0.0))
    noise = farther * float(distances.max(initial=0.0))
    with np.errstate(invalid="ignore"):
        near = np.abs(b.astype(np.float64) - wide) <= noise
    b = np.where(near | uncertain, a, b)
    return same_values(a, b)


def blamed_pass(source: Graph, passes: Sequence[Pass], trial: RealRun) -> PassError | None:
    """Run passes one by one and return an error that names the first which changes a number."""
    with no_ambient():
        before, wanted = source, trial.values(source)
        for one in passes:
            after = one.run(before, Counter())
            found = trial.values(after)
            output = trial.first_difference(before, wanted, found)
            if output is not None:
                return _error(one, before, after, output, trial)
            before, wanted = after, found
    return None


def _error(one: Pass, before: Graph, after: Graph, output: int, trial: RealRun) -> PassError:
    tensor = before.outputs[output]
    rule, found = "", None
    if isinstance(one, RuleSet):
        wanted = trial.values(before)

        def differs(graph: Graph) -> bool:
            return trial.first_difference(before, wanted, trial.values(graph)) is not None

        number = first_rule(one, before, differs)
        if number is not None:
            rule = f" by the rule {one.rules[number].name}"
            found = _first_rewrite(one, number, before, trial)
    node, change = found or _first_node(before, after, trial) or (tensor.node, "")
    return PassError(
        f"the pass {one.name} changes the value of output {output}{rule}",
        operands=[concrete.describe("was", tensor)],
        why=change and f"the first node whose value changes is {node.op.name}: {change}",
        at=node.loc,
        fix="GRAPHFW_DUMP=<folder> shows the graph before and after",
    )


def _first_rewrite(
    one: RuleSet, number: int, before: Graph, trial: RealRun
) -> tuple[Node, str] | None:
    """Return the first node that a rule replaces."""
    made: list[tuple[Node, Sequence[Tensor]]] = []
    rule = one.rules[number]

    def noted(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...] | None:
        replaced = rule.apply(node, inputs)
        if replaced is not None:
            made.append((node, replaced if isinstance(replaced, tuple) else (replaced,)))
        return replaced

    rules = (*one.rules[:number], replace(rule, apply=noted))
    after = replace(one, rules=rules).run(before, Counter())
    for node, tensors in made:
        own = derive(before, node.outputs)
        wanted, found = trial.values(own), trial.values(derive(after, tensors))
        k = trial.first_difference(own, wanted, found)
        if k is not None:
            return node, difference(wanted[k], found[k])
    return None


def _first_node(before: Graph, after: Graph, trial: RealRun) -> tuple[Node, str] | None:
    """Return the first node of a graph of whose value nothing is left."""
    shared = set(after.nodes)
    made = [t for node in before.nodes if node not in shared for t in node.outputs]
    locations: dict[Loc, list[Tensor]] = {}
    for node in after.nodes:
        for tensor in node.outputs:
            for loc in (node.loc, *node.loc.merged):
                locations.setdefault(loc.unmerged(), []).append(tensor)
    old = values_of(before, made, trial.draw)
    new = values_of(after, [t for node in after.nodes for t in node.outputs], trial.draw)
    for tensor in made:
        rivals = [t for t in locations.get(tensor.node.loc.unmerged(), ()) if t.type == tensor.type]
        if not rivals or any(same_values(old[tensor], new[t]) for t in rivals):
            continue
        own = derive(before, [tensor])
        wanted = old[tensor]
        if all(trial.first_difference(own, [wanted], [new[t]]) is not None for t in rivals):
            return tensor.node, difference(wanted, new[rivals[-1]])
    return None


def values_of(
    graph: Graph, tensors: Sequence[Tensor], draw: SampleInputs
) -> Mapping[Tensor, Value]:
    """Return the values of tensors of a derived graph."""
    return dict(zip(tensors, evaluated(derive(graph, tensors), draw), strict=True))


def difference(a: Value, b: Value) -> str:
    """Return where two arrays differ most: `the element [0, 1] was 2.0 and is 3.0`."""
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return str(b if isinstance(b, Unknown) else a)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype.name}{list(a.shape)} became {b.dtype.name}{list(b.shape)}"
    if a.dtype.kind in "biu":
        distance = np.asarray(a != b, np.float64)
    else:
        wide = np.complex128 if np.iscomplexobj(a) else np.float64
        with np.errstate(all="ignore"):
            distance = np.abs(a.astype(wide) - b.astype(wide))
        odd = np.isfinite(a) != np.isfinite(b)
        distance = np.where(odd, np.inf, np.nan_to_num(distance, nan=0.0, posinf=0.0))
    at = np.unravel_index(int(distance.argmax()), a.shape) if a.size else (0,) * a.ndim
    location = f"the element {[int(i) for i in at]}" if a.ndim else "it"
    return f"{location} was {a[at]} and is {b[at]}"
