"""Attention that users compose themselves: the subgraph that is softmax(scale q kᵀ + mask) v.

Differentiation and the compiler look for the same compositions, so that what one of them turns
into the op `attention`, the other does too, and there is one of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from graphfw.ir.build import emit_all
from graphfw.ir.constants import fill_value
from graphfw.ir.dtype import float32, float64
from graphfw.ir.functions import F
from graphfw.ir.shape import can_broadcast
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import users
from graphfw.ops.nn.attention_mask_fill import can_fill, filled
from graphfw.ops.nn.attention_ops import Attention
from graphfw.ops.nn.triangular_masks import is_triangle
from graphfw.ops.reduce.reductions import Reduction
from graphfw.ops.shape.movement import PermuteDims


@dataclass
class ComposedAttention:
    """A composition that was found.

    Found are a matrix product with `gf.softmax` or `exp(gf.log_softmax)` along the last axis as its
    left factor, and as the scores a matrix product, after that, in this order, where they are
    there: times, or divided by, a number or what broadcasts to the queries only; `+ mask`, or
    `where(mask, ., fill)`, or the same the other way round; `where(causal, ., fill)`, either way
    round, with the same fill: -inf or a finite number. Causal is what `is_triangle` sees to be so.
    No mask that is added: infinite scores would stay. float32 and float64: the op computes narrower
    floats in float32 throughout, which changes their values.

    Attributes:
        q, k, v: What is attended with; k as [*B, D, Tk], transposed.
        mask: What decides which keys are seen, or is added to the scores.
        inverted: The mask is True where a key is not seen.
        causal: Query i sees keys 0 to i only.
        fill: The score of a key that is not seen.
        scale: The factor of the scores.
        temper: One more: what the scores are multiplied with (True) or divided by (False).
        inside: The nodes between these tensors and the result.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    inverted: bool
    causal: bool
    fill: float
    scale: float
    temper: tuple[bool, Tensor] | None
    inside: set[Node]

    @classmethod
    def of(cls, node: Node, inputs: tuple[Tensor, ...]) -> ComposedAttention | None:
        """Return the attention that a node computes from these inputs, if it is one."""
        if node.op.name != "matmul" or node.types[0].dtype not in (float32, float64):
            return None
        weights, v = inputs
        inside: set[Node] = set()
        x = _softmax_of(weights, inside)
        if x is None:
            return None
        mask: Tensor | None = None
        causal = inverted = added = False
        fills: set[float] = set()
        while not added and (masked := _masked(x)) is not None:
            added, is_seen = masked.is_added, not masked.is_inverted
            if not added:
                fills.add(masked.fill)
            if not added and is_triangle(masked.mask, x.shape[-2:], is_seen, not is_seen):
                causal = True
            elif mask is None:
                mask, inverted = masked.mask, masked.is_inverted
            else:
                return None
            inside.add(x.node)
            x = masked.scores
        scale, factor, times = 1.0, None, _is(x, "multiply")
        if times or _is(x, "divide"):
            inside.add(x.node)
            left, right = x.node.inputs
            x, factor = (right, left) if times and _is(right, "matmul") else (left, right)
            value = _fill(factor)
            if value is not None and (not math.isfinite(value) or value == 0):
                return None
            if value is not None:
                scale, factor = value if times else 1 / value, None
        if not _is(x, "matmul") or (mask is not None and not can_broadcast(mask.shape, x.shape)):
            return None
        inside.add(x.node)
        q, k = x.node.inputs
        fill = fills.pop() if fills else -math.inf
        bools = None if added else mask
        if fills or (fill != -math.inf and not can_fill(q, v, bools, causal=causal)):
            return None
        if factor is None:
            return cls(q, k, v, mask, inverted, causal, fill, scale, None, inside)
        if factor.shape[-1:] not in ((), (1,)) or not can_broadcast(factor.shape, q.shape):
            return None
        return cls(q, k, v, mask, inverted, causal, fill, scale, (times, factor), inside)

    def emit(self) -> Tensor:
        """Make the op, and return its result."""
        query = self.q
        if self.temper is not None:
            times, factor = self.temper
            query = query * factor if times else query / factor
        masks = () if self.mask is None else (~self.mask if self.inverted else self.mask,)
        op, keys = Attention(self.causal, self.scale), _untransposed(self.k)
        if self.fill == -math.inf:
            return emit_all(op, query, keys, self.v, *masks)[0]
        return filled(op, query, keys, self.v, *masks, fill=self.fill)


def composed_attentions(
    nodes: Sequence[Node], kept: Collection[Node]
) -> dict[Node, ComposedAttention]:
    """Return by their last nodes the compositions whose insides nobody else among the nodes uses.

    Args:
        nodes: Where to look, and who may use what is inside.
        kept: Nodes that must not be inside.
    """
    below: dict[Node, list[Node]] = {}
    result: dict[Node, ComposedAttention] = {}
    for last in nodes:
        found = ComposedAttention.of(last, last.inputs)
        if found is None or not found.inside.isdisjoint(kept):
            continue
        below = below or users(nodes)
        allowed = {*found.inside, last}
        if all(user in allowed for node in found.inside for user in below[node]):
            result[last] = found
    return result


def _untransposed(k: Tensor) -> Tensor:
    """Return the keys as [*B, Tk, D]: those that were transposed, where k was made so."""
    op, swapped = k.node.op, (*range(k.ndim - 2), k.ndim - 1, k.ndim - 2)
    if isinstance(op, PermuteDims) and op.axes == swapped:
        return k.node.inputs[0]
    return F.matrix_transpose(k)


def _is(x: Tensor, name: str) -> bool:
    return x.node.op.name == name


def _takes(x: Tensor, name: str, inside: set[Node]) -> tuple[Tensor, ...]:
    """Return the inputs of the op of that name which made x, () if another did."""
    if not _is(x, name):
        return ()
    inside.add(x.node)
    return x.node.inputs


def _softmax_of(x: Tensor, inside: set[Node]) -> Tensor | None:
    """Return the operand of a softmax along the last axis, composed as `gf.softmax` does."""
    if operands := _takes(x, "divide", inside):
        powers, total = operands
        shifted = _takes(powers, "exp", inside)
    elif operands := _takes(x, "exp", inside):
        operands = _takes(operands[0], "subtract", inside)
        if not operands or not (logs := _takes(operands[1], "log", inside)):
            return None
        shifted, total = operands[:1], logs[0]
    else:
        return None
    if not shifted or not (chosen := _takes(total, "where", inside)):
        return None
    empty, one, total = chosen
    zero = _takes(empty, "equal", inside)
    if not zero or zero[0] is not total or _fill(zero[1]) != 0 or _fill(one) != 1:
        return None
    if not _reduces_last(total, "sum"):
        return None
    (powers,) = _takes(total, "sum", inside)
    summed = _takes(powers, "exp", inside)
    if not summed or summed[0] is not shifted[0]:
        return None
    if not (operands := _takes(shifted[0], "subtract", inside)):
        return None
    scores, top = operands
    if not (operands := _takes(top, "maximum", inside)):
        return None
    largest, lowest = operands
    if not _reduces_last(largest, "max") or _fill(lowest) != np.finfo(x.dtype.dtype).min:
        return None
    (topped,) = _takes(largest, "max", inside)
    # The compiler's rules drop the `stop_gradient`.
    topped = next(iter(_takes(topped, "stop_gradient", inside)), topped)
    return scores if topped is scores else None


def _reduces_last(x: Tensor, name: str) -> bool:
    op = x.node.op
    if not isinstance(op, Reduction) or op.name != name:
        return False
    return op.axes == (x.ndim - 1,) and op.keepdims


def _fill(x: Tensor) -> float | None:
    value = fill_value(x)
    return None if value is None else float(value)


class _Masked(NamedTuple):
    """A mask, and what it is applied to.

    Attributes:
        is_added: The mask is numbers, not bools.
        is_inverted: It is True where a key is not seen.
        fill: The score there.
    """

    scores: Tensor
    mask: Tensor
    is_added: bool
    is_inverted: bool = False
    fill: float = -math.inf


def _masked(x: Tensor) -> _Masked | None:
    """Return the scores and the mask of masked scores, if x is such."""
    if _is(x, "add"):
        left, right = x.node.inputs
        scores, mask = (left, right) if _leads_to_product(left) else (right, left)
        return _Masked(scores, mask, True)
    if not _is(x, "where"):
        return None
    condition, yes, no = x.node.inputs
    inverted = _fill(yes) is not None
    scores, other = (no, yes) if inverted else (yes, no)
    fill = _fill(other)
    if fill is None or not fill < math.inf or scores.shape != x.shape:
        return None
    return _Masked(scores, condition, False, inverted, fill)


def _leads_to_product(x: Tensor) -> bool:
    """Return whether x is a product of matrices, perhaps times something, and with a mask."""
    todo = [(x, 0)]
    while todo:
        x, depth = todo.pop()
        if _is(x, "matmul"):
            return True
        if depth < 3 and x.node.op.name in ("multiply", "divide", "where", "add"):
            todo += [(t, depth + 1) for t in x.node.inputs]
    return False
