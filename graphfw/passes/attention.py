"""Attention as one op, or composed: softmax(q kᵀ · scale + mask) v.

The op makes no tensor of queries by keys. It takes the place of a user's composition only where
nothing else needs such a tensor: not where the weights are fetched, nor where their gradient was
wanted. Of few keys such a tensor is small, and making it is faster.
"""

from __future__ import annotations

from collections import Counter

from graphfw.ir.graph import Graph
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.nn.attention_ops import Attention, AttentionGrad
from graphfw.ops.nn.attention_pattern import ComposedAttention, composed_attentions
from graphfw.passes.base import Pass
from graphfw.passes.cse import CSE
from graphfw.utils.records import record


@record
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
            return one.emit()

        return rebuild(graph, rewrite)


_FEW_KEYS = 16
"""Up to how many keys attention is composed.

The op's kernels take keys in whole tiles and fill up the rest of them; measured at widths of 16 to
128, compositions take a third of that time to all of it up to this number, and more after it.
"""

_FEW_KEYS_IN_GRADIENTS = 32
"""The same where attention is differentiated: a gradient's tiles are larger."""


@record
class DecomposeAttention(Pass):
    """Replace the op `attention` and its gradient, where keys are known to be few, by other ops.

    It comes after `FuseAttention`, which would take it back: so all attention has become the op
    before, and forward and backward graphs share their scores, however users wrote them.
    """

    name = "decompose-attention"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        few = {n for n in graph.nodes if isinstance(n.op, Attention) and _has_keys(n, _FEW_KEYS)}
        for node in graph.nodes:
            if isinstance(node.op, AttentionGrad) and _has_keys(node, _FEW_KEYS_IN_GRADIENTS):
                few |= {node, node.inputs[_LSE].node}
        if not few:
            return graph

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            if node not in few or not isinstance(node.op, Attention | AttentionGrad):
                return None
            hits["attention"] += 1
            return node.op.composed(*inputs)

        return CSE().run(rebuild(graph, rewrite), hits)


_LSE = AttentionGrad.labels.index("lse")


def _has_keys(node: Node, most: int) -> bool:
    """Return whether an attention has a known number of keys: 1 to so many."""
    keys = node.inputs[1].shape[-2]
    return isinstance(keys, int) and 1 <= keys <= most
