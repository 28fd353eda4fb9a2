"""Attention that users compose themselves: softmax(q kᵀ · scale + mask) v as one op.

The op makes no tensor of queries by keys. It takes the place of a composition only where nothing
else needs such a tensor: not where the weights are fetched, nor where their gradient was wanted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from graphfw.ir.graph import Graph
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.attention_pattern import ComposedAttention, composed_attentions
from graphfw.passes.base import Pass


@dataclass(frozen=True)
class FuseAttention(Pass):
    """Replace compositions that are attention by the op `attention`.

    Where a composition was differentiated the op is there already, for the gradient's sake: see
    `gf.grad`. Before any other rewrite, the pass finds just what that has found, and makes the same
    op once more; `CSE` merges the two.
    """

    name = "fuse-attention"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        found = composed_attentions(live_nodes(graph), {t.node for t in graph.outputs})
        if not found:
            return graph

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            # The same again in the new graph, whose tensors the op is to have.
            one = ComposedAttention.of(node, inputs) if node in found else None
            if one is None:
                return None
            hits["attention"] += 1
            return one.emit()[0]

        return rebuild(graph, rewrite)
