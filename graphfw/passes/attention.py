"""Attention that users compose themselves: softmax(q kᵀ · scale + mask) v as one op.

The op makes no tensor of queries by keys. It takes the place of a composition only where nothing
else needs such a tensor: not where the composition was differentiated, for its gradient reads the
weights. `gf.scaled_dot_product_attention` is the op from the start, and so is its gradient.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from graphfw.ir.build import emit_all
from graphfw.ir.dtype import float32, float64
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph
from graphfw.ir.op import lookup
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.shape import can_broadcast
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import users
from graphfw.passes.base import Pass, constant_array, fill_value


@dataclass(frozen=True)
class FuseAttention(Pass):
    """Replace compositions that are attention by the op `attention`.

    Found are a matrix product with `gf.softmax` or `exp(gf.log_softmax)` along the last axis as its
    left factor, and as the scores a matrix product, after that, in this order, where they are
    there: times a constant; `+ mask` or `where(mask, ., -inf)`; `where(causal, ., -inf)`, with the
    causal mask as a constant or as `arange(n)[:, None] >= arange(m)`. float32 and float64: the op
    computes narrower floats in float32 throughout, which changes their values.
    """

    name = "fuse-attention"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        live = live_nodes(graph)
        if not any(_is(t, "exp") for node in live for t in node.outputs):
            return graph
        below = users(live)
        kept = {t.node for t in graph.outputs}

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if node.op.name != "matmul" or node.types[0].dtype not in (float32, float64):
                return None
            found = _Attention.of(node.inputs)
            if found is None or not _is_private(found.inside, {node}, below, kept):
                return None
            # The same again in the new graph, whose tensors the op is to have.
            again = _Attention.of(inputs)
            if again is None:
                return None
            made = again.emit()
            if made.type != node.types[0]:
                return None
            hits["attention"] += 1
            return made

        result = rebuild(graph, rewrite)
        return result if hits else graph


def _is_private(
    inside: set[Node], ends: set[Node], below: Mapping[Node, list[Node]], kept: set[Node]
) -> bool:
    """Say whether nobody but the pattern itself uses what lies inside of it."""
    allowed = inside | ends
    return not inside & kept and all(user in allowed for node in inside for user in below[node])


@dataclass
class _Attention:
    """A composition that was found.

    Attributes:
        q, k, v: What is attended with; `k` as [*B, D, Tk], transposed.
        inside: The nodes whose results would not be needed any more.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None = None
    causal: bool = False
    scale: float = 1.0
    inside: set[Node] = field(default_factory=set)

    @classmethod
    def of(cls, factors: tuple[Tensor, ...]) -> _Attention | None:
        """Return what the product of two matrices is, if it is attention."""
        weights, v = factors
        inside: set[Node] = set()
        x = _softmax_of(weights, inside)
        if x is None:
            return None
        mask: Tensor | None = None
        causal, scale = False, 1.0
        if (seen := _unless_seen(x)) is not None and _is_causal(seen[0], x):
            inside.add(x.node)
            causal, x = True, seen[1]
        if (seen := _unless_seen(x)) is not None:
            inside.add(x.node)
            mask, x = seen
        elif _is(x, "add"):
            inside.add(x.node)
            left, right = x.node.inputs
            x, mask = (left, right) if _leads_to_product(left) else (right, left)
        if _is(x, "multiply"):
            inside.add(x.node)
            left, right = x.node.inputs
            x, factor = (left, right) if _leads_to_product(left) else (right, left)
            value = fill_value(factor)
            if value is None or not math.isfinite(value):
                return None
            scale = float(value)
        if not _is(x, "matmul") or (mask is not None and not can_broadcast(mask.shape, x.shape)):
            return None
        inside.add(x.node)
        q, k = x.node.inputs
        return cls(q, k, v, mask, causal, scale, inside)

    def emit(self) -> Tensor:
        """Make the op."""
        keys: Tensor = F.matrix_transpose(self.k)
        before = self.k.node
        if before.op.name == "permute_dims" and before.inputs[0].shape == keys.shape:
            axes = before.op.axes  # type: ignore[attr-defined]
            if axes[:-2] == tuple(range(len(axes) - 2)) and axes[-2] > axes[-1]:
                keys = before.inputs[0]
        op = lookup("attention")(self.causal, self.scale)
        masks = () if self.mask is None else (self.mask,)
        return emit_all(op, self.q, keys, self.v, *masks)[0]


def _is(x: Tensor, name: str) -> bool:
    return x.node.op.name == name


def _takes(x: Tensor, name: str, inside: set[Node]) -> tuple[Tensor, ...]:
    """Return the inputs of the op of that name which made x, () if another did."""
    if not _is(x, name):
        return ()
    inside.add(x.node)
    return x.node.inputs


def _softmax_of(x: Tensor, inside: set[Node]) -> Tensor | None:
    """Return what x is the softmax of, along the last axis, as `gf.softmax` composes it."""
    if parts := _takes(x, "divide", inside):
        powers, total = parts
        shifted = _takes(powers, "exp", inside)
    elif parts := _takes(x, "exp", inside):
        parts = _takes(parts[0], "subtract", inside)
        if not parts or not (logs := _takes(parts[1], "log", inside)):
            return None
        shifted, total = parts[:1], logs[0]
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
    if not (parts := _takes(shifted[0], "subtract", inside)):
        return None
    scores, top = parts
    if not (parts := _takes(top, "maximum", inside)):
        return None
    largest, lowest = parts
    if not _reduces_last(largest, "max") or _fill(lowest) != np.finfo(x.dtype.dtype).min:
        return None
    return scores if _takes(largest, "max", inside)[0] is scores else None


def _reduces_last(x: Tensor, name: str) -> bool:
    if not _is(x, name):
        return False
    op = x.node.op
    return bool(op.axes == (x.ndim - 1,) and op.keepdims)  # type: ignore[attr-defined]


def _fill(x: Tensor) -> float | None:
    value = fill_value(x)
    return None if value is None else float(value)


def _unless_seen(x: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return condition and scores of `where(condition, scores, -inf)`."""
    if not _is(x, "where"):
        return None
    condition, scores, other = x.node.inputs
    return (condition, scores) if _fill(other) == -math.inf and scores.shape == x.shape else None


def _leads_to_product(x: Tensor) -> bool:
    """Say whether x is a product of matrices, perhaps times something."""
    return _is(x, "matmul") or (_is(x, "multiply") and any(_is(t, "matmul") for t in x.node.inputs))


def _is_causal(condition: Tensor, scores: Tensor) -> bool:
    """Say whether a condition holds at [i, j] just where j <= i."""
    if condition.shape[-2:] != scores.shape[-2:] or any(d != 1 for d in condition.shape[:-2]):
        return False
    array = constant_array(condition)
    if array is not None:
        last = array.reshape(array.shape[-2:])
        return bool(np.array_equal(last, np.tri(*last.shape) == 1))
    name = condition.node.op.name
    if name not in ("greater_equal", "less_equal"):
        return False
    row, column = condition.node.inputs[:: 1 if name == "greater_equal" else -1]
    if row.shape[-1] != 1 or row.shape[-2:-1] != condition.shape[-2:-1]:
        return False
    return _counts(row) and column.shape[-1:] == condition.shape[-1:] and _counts(column)


def _counts(x: Tensor) -> bool:
    """Say whether x is 0, 1, 2, ... along its only dim that is not 1."""
    while x.node.op.name in ("reshape", "expand_dims"):
        x = x.node.inputs[0]
    if x.ndim != 1 or not _is(x, "arange"):
        return False
    op = x.node.op
    return bool(op.start == 0 and op.step == 1)  # type: ignore[attr-defined]
