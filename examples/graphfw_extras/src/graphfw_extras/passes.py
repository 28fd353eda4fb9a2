"""A pass that takes `softcap` apart, for executors that know only graphfw's own ops."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import graphfw as gf
from graphfw.extend import Pass, rebuild


@dataclass(frozen=True)
class SplitSoftcap(Pass):
    """extras.softcap(x) -> tanh(x / cap) * cap"""

    name = "split-softcap"

    def run(self, graph: gf.Graph, hits: Counter[str]) -> gf.Graph:
        """Return the rewritten graph; what is not a softcap stays as it is."""

        def rewrite(node, inputs):
            if node.op.name != "extras.softcap":
                return None
            hits["split"] += 1
            return gf.tanh(inputs[0] / node.op.cap) * node.op.cap

        return rebuild(graph, rewrite)
