"""Attention whose masked scores are a number, such as -1e9, rather than -inf.

The keys that a query does not see then have a weight all the same, one as large as the other. So
the result is that of attention to the seen keys, joined with the mean of the values of the others
by the logs of their sums of exp(score): as exact as the composition, whatever the number is, and a
query that sees no key gets the mean. No gradient reaches masked scores, as none passes `where`.
An infinite value may make NaN of infinity where both kinds of keys have a weight.
"""

from __future__ import annotations

import math

import numpy as np

from graphfw.ir.build import emit_all
from graphfw.ir.functions import F
from graphfw.ir.tensor import Tensor
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.nn.attention_ops import Attention

_FEW = 64
"""The number of queries or keys up to which compositions are as fast, or faster, as scores are few;
measured with 32 heads of width 64."""


def can_fill(q: Tensor, v: Tensor, mask: Tensor | None, *, causal: bool) -> bool:
    """Return whether `filled` can replace the composition, and is better than that.

    Args:
        q: The queries.
        v: The values.
        mask: The mask of bools, if there is one.
        causal: Query i sees keys 0 to i only.
    """
    sizes = (q.shape[-2], v.shape[-2])
    if any(isinstance(size, int) and size <= _FEW for size in sizes):
        return False
    return not causal or (sizes[0] == sizes[1] and (mask is None or not _has_rows(mask)))


def filled(op: Attention, q: Tensor, k: Tensor, v: Tensor, *mask: Tensor, fill: float) -> Tensor:
    """Return attention whose masked scores are `fill`, without a tensor of queries by keys.

    Operands are those of the op, float32 or float64, for which `can_fill` holds.
    """
    seen, lse, rest = emit_all(op, q, k, v, *mask)
    bools = next((m for m in mask if m.dtype.is_bool), None)
    others, others_lse = _unseen_after(v, bools) if op.causal else _unseen(v, bools)
    lowest = float(np.finfo(lse.dtype.dtype).min)  # that of no keys
    lse, rest = (F.expand_dims(x, axis=-1) for x in (lse, rest))
    ahead = where(others_lse == lowest, math.inf, (lse - fill) + rest - others_lse)
    ahead = where(rest == lowest, -math.inf, ahead)
    weight, others_weight = F.sigmoid(ahead), F.sigmoid(-ahead)
    both = weight * seen + others_weight * others
    # What has no weight may be NaN all the same: 0 times an infinite value.
    return where(weight == 0, others, where(others_weight == 0, seen, both))


def _unseen(v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the mean of the values where the mask is False, and the log of their number.

    v: [*B, Tk, E] -> [*B, Tq, E], [*B, Tq, 1], where Tq is 1 if the mask is the same for all.
    That is attention whose scores are all 0.
    """
    assert mask is not None
    rows = mask.shape[:-1] if mask.ndim > 1 else (1,)
    q, k = F.zeros((*rows, 1), dtype=v.dtype), F.zeros((v.shape[-2], 1), dtype=v.dtype)
    mean, lse, _ = emit_all(Attention(), q, k, v, ~mask)
    return mean, F.expand_dims(lse, axis=-1)


def _unseen_after(v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the same for query i of the keys after i, and those before where the mask is False.

    v: [*B, T, E], mask: [*B, 1, T] -> [*B, T, E], [*B, T, 1].
    """
    one = F.ones((v.shape[-2], 1), dtype=v.dtype)
    total, count = _sums_after(v), _sums_after(one)
    if mask is not None:
        unseen = ~(mask.mT if mask.ndim > 1 else F.expand_dims(mask, axis=-1))
        total = total + F.cumulative_sum(where(unseen, v, 0), axis=-2)
        count = count + F.cumulative_sum(where(unseen, one, 0), axis=-2)
    lowest = float(np.finfo(v.dtype.dtype).min)
    some = F.maximum(count, 1)
    return total / some, where(count == 0, lowest, F.log(some))


def _sums_after(x: Tensor) -> Tensor:
    """Return for each row the sum of those after it.  x: [*B, T, E] -> [*B, T, E]"""
    from_the_end = F.cumulative_sum(F.flip(x, axis=-2), axis=-2, include_initial=True)
    return F.flip(from_the_end, axis=-2)[..., 1:, :]


def _has_rows(mask: Tensor) -> bool:
    return mask.ndim > 1 and mask.shape[-2] != 1
