"""What is done to each element before windows take the largest: it is done to that afterwards.

max(relu(x + b)) is relu(max(x) + b), to the last bit: rounding keeps an order, too. There are fewer
elements then, and nothing stands between a convolution and what pools it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np

from graphfw.ir.build import emit
from graphfw.ir.constants import constant_array
from graphfw.ir.graph import Graph
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.records import record
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import users
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


def _steps(pool: Node, readers: dict[Node, list[Node]], kept: set[Node]) -> tuple[list[int], Node]:
    """Return by which input to go from step to step, up from a pool, and where that ends."""
    steps: list[int] = []
    (x,) = pool.inputs
    rank, node = len(pool.op.window), x.node  # type: ignore[attr-defined]
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
