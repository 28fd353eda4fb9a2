"""Pooling moves towards the input: what stands before it is done to fewer elements.

max(relu(x + b)) is relu(max(x) + b), to the last bit: rounding keeps an order, too. So nothing
stands between a convolution and what pools it. A sum moves before a convolution whose kernels have
one element: sum(conv(x, w)) is conv(sum(x), w), as much as numbers that are added in another order
are the same. And a window that sees a whole plane is a reduction like others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from graphfw.ir.build import emit
from graphfw.ir.constants import constant_array
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.records import record
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import users
from graphfw.ops.correlation import Conv
from graphfw.ops.window_reductions import WindowMax, WindowReduction
from graphfw.passes.base import Pass

_RISING = {
    "add": (0, 1),
    "maximum": (0, 1),
    "minimum": (0, 1),
    "relu": (0,),
    "subtract": (0,),
}
"""What keeps the order of an input, and which: the other one is the same in a whole plane."""


@record
class WholeWindows(Pass):
    """Reduce planes that a window sees as a whole: that may be fused with what makes them."""

    name = "whole-windows"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if not _is_whole(node):
                return None
            hits["reduced"] += 1
            (x,), op = inputs, node.op
            assert isinstance(op, WindowReduction)
            reduce = F.sum if op.name == "window_sum" else F.max
            return reduce(x, axis=tuple(range(x.ndim - len(op.window), x.ndim)), keepdims=True)

        return rebuild(graph, rewrite) if any(map(_is_whole, live_nodes(graph))) else graph


@record
class PoolFirst(Pass):
    """Pool convolutions before constants are added to them and they are cut off.

    Attributes:
        is_worth: Whether that pays for a convolution and what pools it.
    """

    is_worth: Callable[[Node, Node], bool]
    name = "pool-first"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        nodes = live_nodes(graph)
        pools = [node for node in nodes if node.op.name == "window_max"]
        if not pools:
            return graph
        readers, kept = users(nodes), {t.node for t in graph.outputs}
        chains: dict[Node, list[int]] = {}
        for pool in pools:
            steps, node = _steps(pool, readers, kept)
            if steps and node.op.name == "conv" and self.is_worth(node, pool):
                chains[pool] = steps
        if not chains:
            return graph

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if node not in chains:
                return None
            hits["moved"] += 1
            x, steps = inputs[0], []
            for side in chains[node]:
                steps.append((x.node, side))
                x = x.node.inputs[side]
            x = emit(node.op, x)
            for step, side in reversed(steps):
                operands = list(step.inputs)
                operands[side] = x
                x = emit(step.op, *operands)
            return x

        return rebuild(rebuild(graph, rewrite))  # twice: what was read before goes


@record
class SumFirst(Pass):
    """Add up what windows see before it is convolved, where kernels have one element.

    Attributes:
        is_worth: Whether that pays for a convolution and what adds up its results.
    """

    is_worth: Callable[[Node, Node], bool]
    name = "sum-first"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        nodes = live_nodes(graph)
        pools = [node for node in nodes if node.op.name == "window_sum"]
        if not pools:
            return graph
        readers, kept = users(nodes), {t.node for t in graph.outputs}
        moved = set()
        for pool in pools:
            conv = pool.inputs[0].node
            is_alone = len(readers[conv]) == 1 and conv not in kept
            if is_alone and _sees_itself(conv, pool) and self.is_worth(conv, pool):
                moved.add(pool)
        if not moved:
            return graph

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if node not in moved:
                return None
            hits["moved"] += 1
            conv = inputs[0].node
            x, weight = conv.inputs
            x = emit(node.op, x)
            return emit(Conv(x.shape[2:], *conv.op.values[1:]), x, weight)

        return rebuild(rebuild(graph, rewrite))  # twice: what was read before goes


def _is_whole(node: Node) -> bool:
    """Whether there is one window, which sees all of a plane of floats and nothing else."""
    op = node.op
    if not isinstance(op, WindowReduction) or not node.types[0].dtype.is_floating:
        return False
    rank = len(op.window)
    is_all = op.window == node.inputs[0].shape[-rank:]
    return is_all and set(op.dilations) == {1} and not op.reaches


def _sees_itself(conv: Node, pool: Node) -> bool:
    """Whether each place of a convolution, all of whose dims are pooled, sees that of the image."""
    op = conv.op
    assert isinstance(pool.op, WindowReduction)
    if not isinstance(op, Conv) or len(op.places) != len(pool.op.window):
        return False
    x, weight = conv.inputs
    steps = {*weight.shape[2:], *op.strides, *op.spreads}
    return steps == {1} and set(op.before) == {0} and op.places == x.shape[2:]


def _steps(pool: Node, readers: dict[Node, list[Node]], kept: set[Node]) -> tuple[list[int], Node]:
    """Return by which input to go from step to step, up from a pool, and where that ends."""
    steps: list[int] = []
    (x,) = pool.inputs
    assert isinstance(pool.op, WindowMax)
    rank, node = len(pool.op.window), x.node
    while len(readers[node]) == 1 and node not in kept:
        sides = _RISING.get(node.op.name, ())
        rising = [side for side in sides if node.inputs[side].type == x.type]
        side = next((side for side in rising if _is_plain(node, side, rank)), None)
        if side is None:
            return steps, node
        steps.append(side)
        x = node.inputs[side]
        node = x.node
    return [], node


def _is_plain(node: Node, side: int, rank: int) -> bool:
    """Whether all inputs but one are constants that are finite, the same in a whole plane.

    Infinite ones may make NaNs of what is not the largest.
    """
    for other, tensor in enumerate(node.inputs):
        if other == side:
            continue
        array = constant_array(tensor)
        if array is None or set(tensor.shape[-rank:]) - {1} or not np.isfinite(array).all():
            return False
    return True
