"""Gradients of attention that read attention's result, to compute delta themselves.

cuDNN computes delta itself, so the graph's nodes for it would be computed in vain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from graphfw.ir.build import emit_all
from graphfw.ir.dtype import bfloat16, float32
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph
from graphfw.ir.op import ALIAS
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.args import converted
from graphfw.ops.elementwise.arithmetic import Multiply
from graphfw.ops.elementwise.cast import AsType
from graphfw.ops.nn.attention_backward import AttentionBackward, summed_axes
from graphfw.ops.nn.attention_ops import AttentionGrad
from graphfw.ops.reduce.reductions import Sum
from graphfw.passes.base import Pass
from graphfw.runtime.cupy_executor.attention.axes import knows_lengths


@dataclass(frozen=True)
class PassAttentionResult(Pass):
    """Replace `attention_grad` by `attention_backward` where cuDNN may be asked for that.

    These are gradients of 16-bit floats without a mask, of lengths that are known. Where the logs
    of the sums have a gradient, that is a summand of delta, and nothing is replaced. Gradients of
    keys and values that heads share are added up by it, if nothing else is done with them.
    """

    name = "pass-attention-result"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        found = [node for node in graph.nodes if _result(node, node.inputs) is not None]
        if not found:
            return graph
        adding, sums = _sums(graph, found)
        added: dict[Tensor, Tensor] = {}

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            if node in sums:
                (to,) = node.types
                return (F.reshape(converted(added[sums[node]], to.dtype), to.shape),)
            out = _result(node, inputs)
            if out is None:
                return None
            hits["attention_backward"] += 1
            assert isinstance(node.op, AttentionGrad)
            q, k, v, lse, rest, _, d_out = inputs
            op = AttentionBackward(node in adding, node.op.causal, node.op.scale)
            made = emit_all(op, q, k, v, out, lse, rest, d_out)
            added.update(zip(node.outputs, made, strict=True))
            # Gradients that are summed already are read only by the nodes in `sums`, which vanish.
            pairs = zip(made, node.types, strict=True)
            return tuple([F.broadcast_to(x, wanted.shape) for x, wanted in pairs])

        return rebuild(rebuild(graph, rewrite))


def _sums(graph: Graph, gradients: Sequence[Node]) -> tuple[set[Node], dict[Node, Tensor]]:
    """Return the gradients of which only sums are read, in the shapes of keys and values.

    Returns:
        These gradients, and of each node that adds up one's result that result.
    """
    readers: dict[Tensor, list[Node]] = {}
    for node in live_nodes(graph):
        for tensor in node.inputs:
            readers.setdefault(tensor, []).append(node)
    demanded = {*graph.outputs}
    adding: set[Node] = set()
    found: dict[Node, Tensor] = {}
    for gradient in gradients:
        own: dict[Node, Tensor] = {}
        for made, x in zip(gradient.outputs[1:], gradient.inputs[1:3], strict=True):
            axes = summed_axes(made.shape, x.shape)
            wide = {t for node in readers.get(made, ()) for t in node.outputs if _is_cast(t)}
            every = [node for t in (made, *wide) for node in readers.get(t, ())]
            ends = [node for node in every if node.outputs[0] not in wide]
            are_sums = [isinstance(n.op, Sum) and {*n.op.axes} == {*axes} for n in ends]
            # A sum that was made in float32 may be more than float16 holds.
            are_narrow = [n.types[0].dtype is made.dtype for n in ends]
            has_range = made.dtype is bfloat16 or all(are_narrow)
            if axes and not (all(are_sums) and has_range and demanded.isdisjoint((made, *wide))):
                break
            own |= {node: made for node in ends if axes}
        else:
            adding.add(gradient)
            found |= own
    return adding, found


def _result(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
    """Return the result of attention from which a gradient's delta was made."""
    if not isinstance(node.op, AttentionGrad) or len(inputs) != 7 or not knows_lengths(node):
        return None
    delta, d_out = inputs[5:]
    if not d_out.dtype.is_low_precision or delta.node.op != Sum((delta.ndim,), False):
        return None
    product = delta.node.inputs[0].node
    if not isinstance(product.op, Multiply):
        return None
    for one, other in (product.inputs, product.inputs[::-1]):
        out = other.node.inputs[0] if _is_cast(other) else other
        if out.type == d_out.type and _is_same(d_out, one):
            return out
    return None


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors differ by rounding to 16 bits at most, before or after moves.

    With mixed precision delta is made of what has not been rounded, and the rest of what has.
    """
    if a is b:
        return True
    if _is_cast(a):
        return _is_same(a.node.inputs[0], b)
    if _is_cast(b):
        return _is_same(a, b.node.inputs[0])
    is_move = ALIAS in a.node.op.traits and len(a.node.inputs) == 1
    is_alike = is_move and a.node.op == b.node.op and a.index == b.index
    return is_alike and _is_same(a.node.inputs[0], b.node.inputs[0])


def _is_cast(tensor: Tensor) -> bool:
    """Return whether a tensor is another one, rounded to 16 bits or with more of them."""
    node = tensor.node
    return isinstance(node.op, AsType) and all(
        [x.dtype is float32 or x.dtype.is_low_precision for x in (tensor, node.inputs[0])]
    )
