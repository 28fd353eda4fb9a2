"""Dead-code elimination."""

from __future__ import annotations

from collections import Counter

from graphfw.ir.graph import Graph
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.passes.base import Pass
from graphfw.utils.records import record


@record
class EliminateDeadCode(Pass):
    """Drop the nodes that no output needs."""

    name = "dce"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        dead = len(graph.nodes) - len(live_nodes(graph))
        if not dead:
            return graph
        hits["dropped"] += dead
        return rebuild(graph)
