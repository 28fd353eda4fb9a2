"""Scalarised stacks: `stack`, elementwise functions, then `x[0]`, `x[1]`, … need no stack."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TypeAlias

from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike
from graphfw.ir.graph import Graph
from graphfw.ir.op import ELEMENTWISE, RANDOM
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.shape.concat import Concat
from graphfw.ops.shape.gather_scatter import Slice
from graphfw.passes.base import Pass
from graphfw.utils.records import record

Window: TypeAlias = tuple[int, DimLike, DimLike | None]
"""A slice's axis, where it begins, and how much it takes in a row; None with other steps."""


@record
class ScalariseStacks(Pass):
    """Compute the inputs of a concatenation each by itself, where slices take them out again.

    f(concat([a, b]))[0] becomes f(a): nothing is written to memory and read again in pieces, so all
    of it may be fused. Systems of equations written with `stack` are of this kind.

    Attributes:
        most_inputs: How many inputs a concatenation may have; each makes nodes of its own.
    """

    most_inputs: int = 8
    name = "scalarise-stacks"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        if not any(isinstance(node.op, Concat) for node in graph.nodes):
            return graph
        apart = self._taken_apart(graph)
        if not apart:
            return graph

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if isinstance(node.op, Slice) and inputs[0].node in apart:
                return _operand_slice(node, inputs[0].node, hits)
            # Nodes that are kept are the same ones in the new graph, or are copied with new inputs.
            if node in apart:
                made = emit(node.op, *inputs)
                apart.add(made.node)
                return made
            if ELEMENTWISE not in node.op.traits or RANDOM in node.op.traits or node.op.multiple:
                return None
            whole = next((t.node for t in inputs if t.node in apart), None)
            if whole is None or whole.types[0].shape != node.types[0].shape:
                return None
            hits["split"] += 1
            axis, sizes = _cuts(whole)
            columns = [_divided(t, axis, sizes, len(node.types[0].shape)) for t in inputs]
            made = emit(whole.op, *[emit(node.op, *row) for row in zip(*columns, strict=True)])
            apart.add(made.node)
            return made

        return rebuild(graph, rewrite)

    def _taken_apart(self, graph: Graph) -> set[Node]:
        """Return the concatenations of which slices take inputs, with what comes between."""
        found: set[Node] = set()
        windows: dict[Node, set[Window]] = {}
        for node in reversed(live_nodes(graph)):
            if isinstance(node.op, Slice):
                windows.setdefault(node.inputs[0].node, set()).update(_windows(node))
            own = windows.get(node)
            if not own:
                continue
            if ELEMENTWISE in node.op.traits:
                for t in node.inputs:
                    if t.shape == node.types[0].shape:
                        windows.setdefault(t.node, set()).update(own)
            elif isinstance(node.op, Concat) and self._fits(node, own):
                found.add(node)
        return found

    def _fits(self, concat: Node, windows: set[Window]) -> bool:
        """Return whether each slice along the axis is in one input, and there is one."""
        axis, sizes = _cuts(concat)
        if not 0 < len(sizes) <= self.most_inputs:
            return False
        taken = [(start, length) for along, start, length in windows if along == axis]
        return bool(taken) and all(_operand_of(sizes, *window) for window in taken)


def _windows(node: Node) -> list[Window]:
    """Return where a slice takes less than an axis."""
    assert isinstance(node.op, Slice)
    every = zip(node.op.axes(), node.inputs[0].shape, strict=True)
    return [
        (axis, start, length if step == 1 else None)
        for axis, ((start, length, step), whole) in enumerate(every)
        if length != whole or step != 1
    ]


def _operand_of(sizes: list[int], start: DimLike, length: DimLike | None) -> tuple[int, int] | None:
    """Return in which input a window lies, and where it begins there; None if it is in several."""
    if not isinstance(start, int) or not isinstance(length, int):
        return None
    for number, (size, end) in enumerate(zip(sizes, accumulate(sizes), strict=True)):
        first = start - (end - size)
        if first >= 0 and start + length <= end:
            return number, first
    return None


def _cuts(concat: Node) -> tuple[int, list[int]]:
    """Return the axis of a concatenation, and its inputs' sizes; none if one is not known."""
    assert isinstance(concat.op, Concat)
    axis = concat.op.axis
    sizes = [size for t in concat.inputs if isinstance(size := t.shape[axis], int)]
    return axis, sizes if len(sizes) == len(concat.inputs) else []


def _divided(x: Tensor, axis: int, sizes: list[int], rank: int) -> list[Tensor]:
    """Return the sections of an operand that belong to the concatenation's inputs."""
    own = axis - (rank - len(x.shape))
    if own < 0 or (x.shape[own] == 1 and sum(sizes) != 1):  # it is broadcast along the axis
        return [x] * len(sizes)
    if isinstance(x.node.op, Concat) and _cuts(x.node) == (own, sizes):
        return [*x.node.inputs]
    ends = [*accumulate(sizes)]
    before = (slice(None),) * own
    return [x[*before, end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _operand_slice(node: Node, concat: Node, hits: Counter[str]) -> Tensor | None:
    """Return a slice that is in one input of a concatenation, made of that input."""
    axis, sizes = _cuts(concat)
    starts, lengths, steps = node.op.values
    position = _operand_of(sizes, starts[axis], lengths[axis]) if steps[axis] == 1 else None
    if position is None:
        return None
    hits["taken"] += 1
    number, first = position
    x = concat.inputs[number]
    if lengths == x.shape and set(steps) == {1}:
        return x
    return emit(type(node.op)((*starts[:axis], first, *starts[axis + 1 :]), lengths, steps), x)
