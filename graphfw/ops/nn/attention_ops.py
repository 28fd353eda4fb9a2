"""The ops of attention: forward and gradient, without a tensor of queries by keys in between."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import DTypeError
from graphfw.ir.build import emit, emit_all
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F
from graphfw.ir.op import Case, Cost, Op, bad, ok, op
from graphfw.ir.shape import broadcast_batch, can_broadcast, require, shape_text, size_of
from graphfw.ir.shared_ops import shared
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import as_tensor, converted
from graphfw.ops.batching import MappedAxis, aligned, lifted
from graphfw.ops.composed import wide, wide_dtype
from graphfw.ops.dtypes import compute_dtype, require_one_dtype
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.reduce.reductions import Max

_BLOCK = 1 << 20
"""The most scores that the reference holds at a time."""


class _AttentionOp(Op):
    """The base of the forward op and its gradient.

    The score of query i and key j is scale q[i]·k[j] + mask[i, j]. It is -inf, so that the key has
    no effect on the result, where the mask is False or, with `causal`, where j > i.

    Attributes:
        causal: Query i sees keys 0 to i only.
        scale: The factor of the scores; None stands for 1 / sqrt(D).
    """

    multiple = True
    mixed_precision = "narrow"
    causal: bool = False
    scale: float | None = None

    def _factor(self, width: int) -> float:
        return 1 / math.sqrt(max(width, 1)) if self.scale is None else self.scale

    def _lead(self, q: Shape, k: Shape, v: Shape, mask: Shape | None) -> Shape:
        """Return the leading dims of the outputs, after checking the shapes."""
        for x in (q, k, v):
            fix = "gf.expand_dims adds a dim"
            require(len(x) >= 2, f"operands must have 2 dims or more, not {len(x)}", (), fix)
        fix = "project both to one width: that of a head"
        require(q[-1] == k[-1], "queries and keys differ in width", [(0, -1), (1, -1)], fix)
        fix = "give one value for each key"
        require(k[-2] == v[-2], "there must be one value a key", [(1, -2), (2, -2)], fix)
        lead = broadcast_batch(q, k, v)
        scores = (*lead, q[-2], k[-2])
        require(
            mask is None or can_broadcast(mask, scores),
            f"the mask does not broadcast to the scores, {shape_text(scores)}",
            fix="its last two dims are queries and keys, or 1",
        )
        return lead

    def _check_dtypes(self, q: DType, *others: DType, mask: DType | None) -> None:
        fix = "convert them first, with gf.astype(x, gf.float32)"
        message = f"wants floating-point tensors, not {q.name}"
        require(q.is_floating, message, fix=fix, error=DTypeError)
        require_one_dtype(q, *others)
        if mask is not None and not mask.is_bool:
            require_one_dtype(q, mask)

    def _scores(self, xp: Any, block: _Block, q: Any, k: Any, mask: Any) -> Any:
        """Return the scores of a block's queries and the keys that they may see."""
        rows = slice(block.begin, block.end)
        q = q[..., rows, :] * self._factor(q.shape[-1])
        scores = xp.matmul(q, k[..., : block.seen, :].swapaxes(-1, -2))
        if mask is not None:
            spreads = mask.ndim == 0 or mask.shape[-1] == 1
            seen = mask if spreads else mask[..., : block.seen]
            if mask.ndim > 1 and mask.shape[-2] != 1:
                seen = seen[..., rows, :]
            if mask.dtype == bool:
                scores = xp.where(seen, scores, -math.inf)
            else:
                scores = scores + seen
        if self.causal:
            allowed = xp.arange(block.begin, block.end)[:, None] >= xp.arange(block.seen)
            scores = xp.where(allowed, scores, -math.inf)
        return scores

    def _blocks(self, lse: tuple[int, ...], keys: int) -> Iterator[_Block]:
        """Cut the queries into blocks whose scores are of bounded size.  lse: the shape [*B, Tq]"""
        rows, queries = lse[-1], math.prod(lse)
        if queries * keys == 0:
            return
        step = max(1, _BLOCK * rows // (queries * keys))
        for begin in range(0, rows, step):
            end = min(rows, begin + step)
            # With one block all keys stay: a matrix product of fewer may round differently.
            yield _Block(begin, end, min(keys, end) if self.causal and end < rows else keys)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], *operands: Tensor) -> Any:
        lead = max([x.ndim - flag - 2 for x, flag in zip(operands[:3], batched, strict=False)])
        q = mapped.everywhere(operands[0], batched[0])  # so that the leading dims have the examples
        qkv = aligned((True, *batched[1:3]), (q, *operands[1:3]), (2, 2, 2))
        rows = mapped.all(operands[3:7], batched[3:7]) if isinstance(self, AttentionGrad) else []
        end = 3 + len(rows)
        mask = [
            lifted(x, lead + 3) if flag else x
            for x, flag in zip(operands[end:], batched[end:], strict=True)
        ]
        return emit_all(self, *qkv, *rows, *mask)

    def _cost(
        self,
        outputs: tuple[TensorType, ...],
        inputs: tuple[TensorType, ...],
        over: tuple[int, int],
    ) -> Cost:
        """Count so many matrix products over the width of keys, and so many over that of values."""
        q, k, v = (x.shape for x in inputs[:3])
        pairs = size_of((*broadcast_batch(q, k, v), q[-2], k[-2]))
        flops = 2 * pairs * (over[0] * q[-1] + over[1] * v[-1]) // (2 if self.causal else 1)
        read: DimLike = 0
        for x in inputs:
            read = read + x.nbytes
        written: DimLike = 0
        for x in outputs:
            written = written + x.nbytes
        return Cost(flops, read, written)


class _Block(NamedTuple):
    """Queries from `begin` to below `end`, and the number of keys that they may see."""

    begin: int
    end: int
    seen: int


@op("attention")
class Attention(_AttentionOp):
    """softmax(scale q kᵀ + mask) v, and for each query the log of the sum of exp(score).

    q: [*B, Tq, D], k: [*B, Tk, D], v: [*B, Tk, E] and, if there is one, mask: broadcasts to
    [*B, Tq, Tk], bool or of q's dtype -> out: [*B, Tq, E], lse, rest: [*B, Tq], float32 or wider.

    The log is lse + rest. Where all scores are about -1e9, as a mask that is added makes them, one
    number cannot hold the log of how many keys there are besides: rest is what rounding took from
    lse, and so has no gradient.

    The leading dims broadcast. A query whose keys are all masked gets 0, and the lowest number as
    lse and as rest. What the value of a masked key is does not matter, so long as it is finite.
    """

    remainders = (2,)

    def shape(
        self, q: Shape, k: Shape, v: Shape, mask: Shape | None = None
    ) -> tuple[Shape, Shape, Shape]:
        lead = self._lead(q, k, v, mask)
        rows = (*lead, q[-2])
        return (*rows, v[-1]), rows, rows

    def dtype(
        self, q: DType, k: DType, v: DType, mask: DType | None = None
    ) -> tuple[DType, DType, DType]:
        self._check_dtypes(q, k, v, mask=mask)
        return q, wide_dtype(q), wide_dtype(q)

    def eval(self, xp: Any, q: Any, k: Any, v: Any, mask: Any = None) -> tuple[Any, Any, Any]:
        given, dtype = q.dtype, compute_dtype(xp, q.dtype)
        q, k, v = (x.astype(dtype, copy=False) for x in (q, k, v))
        lead = broadcast_batch(q.shape, k.shape, v.shape)
        lowest = float(xp.finfo(dtype).min)
        out = xp.zeros((*lead, q.shape[-2], v.shape[-1]), dtype)
        lse, rest = (xp.full(out.shape[:-1], lowest, dtype) for _ in range(2))
        for block in self._blocks(lse.shape, k.shape[-2]):
            rows = slice(block.begin, block.end)
            scores = self._scores(xp, block, q, k, mask)
            top = xp.maximum(xp.max(scores, axis=-1, keepdims=True), lowest)
            powers = xp.exp(scores - top)
            total = xp.sum(powers, axis=-1, keepdims=True)
            empty = total == 0
            total = xp.where(empty, total.dtype.type(1), total)
            out[..., rows, :] = xp.matmul(powers / total, v[..., : block.seen, :])
            log = xp.log(total)
            sums = top + log
            lse[..., rows] = sums[..., 0]
            rest[..., rows] = xp.where(empty, lowest, (top - sums) + log)[..., 0]
        return out.astype(given, copy=False), lse, rest

    def vjp(
        self,
        ct: tuple[Tensor, Tensor, Tensor],
        y: tuple[Tensor, Tensor, Tensor],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *mask: Tensor,
    ) -> tuple[Any, ...]:
        (out, lse, rest), (d_out, d_lse, _) = y, ct
        # With P the weights and dP = d_out vᵀ, P has the gradient dP and the score
        # P (dP - Σ P dP); the sum over the keys is that of out d_out over the values' width.
        delta = F.sum(wide(out) * wide(d_out), axis=-1) - d_lse
        operands = (q, k, v, lse, rest, delta, d_out, *mask)
        d_q, d_k, d_v = emit_all(AttentionGrad(self.causal, self.scale), *operands)

        def d_mask() -> Tensor:
            intermediates = _Intermediates.of(self, operands)
            return F.sum_to(intermediates.d_scores, mask[0].shape)

        return (
            lambda: F.sum_to(d_q, q.shape),
            lambda: F.sum_to(d_k, k.shape),
            lambda: F.sum_to(d_v, v.shape),
            *(d_mask if m.dtype.is_floating else None for m in mask),
        )

    def composed(
        self, q: Tensor, k: Tensor, v: Tensor, *mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same made of other ops, with a tensor of queries by keys."""
        scores = _scores(self, q, k, *mask)
        lowest = float(np.finfo(scores.dtype.dtype).min)
        largest = emit(shared(Max, (scores.ndim - 1,), True, True), scores)
        top = F.maximum(largest, lowest)
        powers = F.exp(scores - top)
        total = F.sum(powers, axis=-1, keepdims=True)
        empty = total == 0
        total = where(empty, 1, total)
        out = converted((powers / total) @ wide(v), q.dtype)
        log = F.log(total)
        lse = top + log
        rest = where(empty, lowest, (top - lse) + log)
        lse, rest = (F.broadcast_to(F.squeeze(x, axis=-1), out.shape[:-1]) for x in (lse, rest))
        return out, lse, rest

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return self._cost(outputs, inputs, (1, 1))

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[2, 3, n, 4]", "float32[2, 3, m, 4]", "float32[2, 3, m, 5]")
        yield ok("float32[5, 4]", "float32[7, 4]", "float32[7, 3]", causal=True)
        yield ok("float32[7, 4]", "float32[5, 4]", "float32[5, 3]", "float32[5]", causal=True)
        # A query that no mask lets see a key has the dtype's least number as its lse, which other
        # dtypes have not: so keys are many.
        types = ("float32[2, 1, n, d]", "float32[3, m, d]", "float32[m, 5]", "bool[2, 1, 1, m]")
        yield ok(*types, sizes={"m": 24})
        yield ok("float32[n, 4]", "float32[m, 4]", "float32[m, 4]", "float32[n, m]", scale=0.25)
        yield ok("float32[2, 3, 4]", "float32[2, 5, 4]", "float32[2, 5, 4]", "float32[3, 1]")
        yield bad("float32[3, 4]", "float32[5, 3]", "float32[5, 3]", match="differ in width")
        yield bad("float32[3, 4]", "float32[5, 4]", "float32[6, 4]", match="one value a key")
        yield bad("float32[4]", "float32[5, 4]", "float32[5, 4]", match="must have 2 dims or more")
        yield bad(
            "float32[3, 4]",
            "float32[5, 4]",
            "float32[5, 4]",
            "bool[5, 3]",
            match=r"does not broadcast to the scores, \[3, 5\]",
        )
        yield bad("int32[3, 4]", "int32[5, 4]", "int32[5, 4]", match="floating", error=DTypeError)


@op("attention_grad")
class AttentionGrad(_AttentionOp):
    """The gradients of `attention` with respect to q, k and v, from those of its result.

    q: [*B, Tq, D], k: [*B, Tk, D], v: [*B, Tk, E], lse, rest, delta: [*B, Tq], d_out: [*B, Tq, E]
    and, if there is one, mask, as for `attention`
    -> d_q: [*B, Tq, D], d_k: [*B, Tk, D], d_v: [*B, Tk, E], with all leading dims.

    With P = exp((scores - lse) - rest) and dP = d_out vᵀ the gradient of the scores is
    dS = P (dP - delta), where delta is the sum of out d_out over the last dim. From it come
    d_q = scale dS k and d_k = scale dSᵀ q; d_v is Pᵀ d_out.  T. Dao, "FlashAttention-2", 2023.
    """

    wide_operands = frozenset({"lse", "rest", "delta"})

    def shape(
        self,
        q: Shape,
        k: Shape,
        v: Shape,
        lse: Shape,
        rest: Shape,
        delta: Shape,
        d_out: Shape,
        mask: Shape | None = None,
    ) -> tuple[Shape, Shape, Shape]:
        lead = self._lead(q, k, v, mask)
        rows = (*lead, q[-2])
        fix = "take what `attention` gave"
        for label, found in (("lse", lse), ("rest", rest), ("delta", delta)):
            require(found == rows, f"{label} must have the shape {shape_text(rows)}", fix=fix)
        full = (*rows, v[-1])
        require(d_out == full, f"d_out must have the shape {shape_text(full)}", fix=fix)
        return (*rows, q[-1]), (*lead, *k[-2:]), (*lead, *v[-2:])

    def dtype(
        self,
        q: DType,
        k: DType,
        v: DType,
        lse: DType,
        rest: DType,
        delta: DType,
        d_out: DType,
        mask: DType | None = None,
    ) -> tuple[DType, DType, DType]:
        self._check_dtypes(q, k, v, d_out, mask=mask)
        require_one_dtype(wide_dtype(q), lse, rest, delta)
        return q, q, q

    def eval(
        self,
        xp: Any,
        q: Any,
        k: Any,
        v: Any,
        lse: Any,
        rest: Any,
        delta: Any,
        d_out: Any,
        mask: Any = None,
    ) -> tuple[Any, Any, Any]:
        given, dtype = q.dtype, compute_dtype(xp, q.dtype)
        q, k, v, d_out = (x.astype(dtype, copy=False) for x in (q, k, v, d_out))
        lead, factor = lse.shape[:-1], self._factor(q.shape[-1])
        d_q = xp.zeros((*lead, *q.shape[-2:]), dtype)
        d_k = xp.zeros((*lead, *k.shape[-2:]), dtype)
        d_v = xp.zeros((*lead, *v.shape[-2:]), dtype)
        for block in self._blocks(lse.shape, k.shape[-2]):
            rows, seen = slice(block.begin, block.end), slice(0, block.seen)
            scores = self._scores(xp, block, q, k, mask)
            weights = xp.exp((scores - lse[..., rows, None]) - rest[..., rows, None])
            d_weights = xp.matmul(d_out[..., rows, :], v[..., seen, :].swapaxes(-1, -2))
            d_scores = weights * (d_weights - delta[..., rows, None]) * factor
            d_q[..., rows, :] = xp.matmul(d_scores, k[..., seen, :])
            d_k[..., seen, :] += xp.matmul(d_scores.swapaxes(-1, -2), q[..., rows, :])
            d_v[..., seen, :] += xp.matmul(weights.swapaxes(-1, -2), d_out[..., rows, :])
        return tuple(x.astype(given, copy=False) for x in (d_q, d_k, d_v))

    def vjp(
        self,
        ct: tuple[Tensor, Tensor, Tensor],
        y: tuple[Tensor, Tensor, Tensor],
        *operands: Tensor,
    ) -> tuple[Any, ...]:
        intermediates = _Intermediates.of(self, operands)
        q, k, v, _, _, _, d_out = (wide(x) for x in operands[:7])
        a, b, c = (wide(x) for x in ct)
        factor = intermediates.factor
        # Cotangents of d_scores, of the weights, of the scores and of d_weights.
        of_d_scores = (a @ k.mT + q @ b.mT) * factor
        of_weights = d_out @ c.mT + of_d_scores * intermediates.centred
        of_scores = intermediates.weights * of_weights
        of_d_weights = intermediates.weights * of_d_scores
        entries = (
            lambda: (of_scores @ k + intermediates.d_scores @ b) * factor,
            lambda: (of_scores.mT @ q + intermediates.d_scores.mT @ a) * factor,
            lambda: of_d_weights.mT @ d_out,
            lambda: -F.sum(of_scores, axis=-1),
            lambda: -F.sum(of_scores, axis=-1),
            lambda: -F.sum(of_d_weights, axis=-1),
            lambda: intermediates.weights @ c + of_d_weights @ v,
            lambda: of_scores,
        )

        def summed(make: Any, x: Tensor) -> Any:
            return lambda: F.sum_to(make(), x.shape)

        return tuple(
            summed(make, x) if x.dtype.is_floating else None
            for make, x in zip(entries, operands, strict=False)
        )

    def composed(self, *operands: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same made of other ops, with tensors of queries by keys."""
        intermediates = _Intermediates.of(self, operands)
        q, k, d_out = (wide(operands[i]) for i in (0, 1, 6))
        d_scores = intermediates.d_scores * intermediates.factor
        found = (d_scores @ k, d_scores.mT @ q, intermediates.weights.mT @ d_out)
        d_q, d_k, d_v = (converted(x, operands[0].dtype) for x in found)
        return d_q, d_k, d_v

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return self._cost(outputs, inputs, (3, 2))

    @staticmethod
    def cases() -> Iterator[Case]:
        rows = ("float32[2, n]",) * 3
        yield ok("float32[2, n, 4]", "float32[2, m, 4]", "float32[m, 5]", *rows, "float32[2, n, 5]")
        rows = ("float32[5]",) * 3
        yield ok(
            *("float32[5, 4]", "float32[7, 4]", "float32[7, 3]", *rows, "float32[5, 3]"),
            causal=True,
        )
        yield ok(
            *("float32[5, 4]", "float32[4, 4]", "float32[4, 3]", *rows, "float32[5, 3]"),
            *("bool[4]",),
            causal=True,
        )
        yield ok(
            *("float32[5, 4]", "float32[7, 4]", "float32[7, 3]", *rows, "float32[5, 3]"),
            *("float32[5, 1]",),
            scale=0.25,
        )
        yield bad(
            *("float32[5, 4]", "float32[7, 4]", "float32[7, 3]", *rows, "float32[4, 3]"),
            match="d_out must have",
        )
        yield bad(
            *("float32[5, 4]", "float32[7, 4]", "float32[7, 3]", "float32[4]", *rows[:2]),
            *("float32[5, 3]",),
            match="lse must have the shape",
        )
        yield bad(
            *("float32[5, 4]", "float32[7, 4]", "float32[7, 3]", "float32[5]", "float32[4]"),
            *("float32[5]", "float32[5, 3]"),
            match="rest must have the shape",
        )


class _Intermediates(NamedTuple):
    """Tensors of queries by keys that higher derivatives are made from.

    Attributes:
        factor: That of the scores.
        weights: exp((scores - lse) - rest).
        centred: The weights' gradient minus delta.
        d_scores: The scores' gradient.
    """

    factor: float | Tensor
    weights: Tensor
    centred: Tensor
    d_scores: Tensor

    @classmethod
    def of(cls, op: _AttentionOp, operands: tuple[Tensor, ...]) -> _Intermediates:
        """Compose them from the operands of `attention_grad`."""
        q, k, v, lse, rest, delta, d_out = (wide(x) for x in operands[:7])
        factor = score_factor(q) if op.scale is None else op.scale
        scores = _scores(op, q, k, *operands[7:])
        less = scores - F.expand_dims(lse, axis=-1)
        weights = F.exp(less - F.expand_dims(rest, axis=-1))
        centred = d_out @ v.mT - F.expand_dims(delta, axis=-1)
        return cls(factor, weights, centred, weights * centred)


def _scores(op: _AttentionOp, q: Tensor, k: Tensor, *mask: Tensor) -> Tensor:
    """Compose the scores."""
    query = wide(q)
    factor = score_factor(query) if op.scale is None else op.scale
    scaled = query * factor if isinstance(factor, Tensor) or factor != 1 else query
    return masked_scores(scaled @ wide(k).mT, *mask, causal=op.causal)


def score_factor(q: Tensor) -> float | Tensor:
    """Return 1 / sqrt(D), the usual factor of the scores.  q: [*B, Tq, D]"""
    width = q.shape[-1]
    if isinstance(width, int):
        return 1 / math.sqrt(max(width, 1))
    return F.rsqrt(as_tensor(width, q.dtype))


def masked_scores(scores: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
    """Apply a mask, and the causal one, to scores.  scores: [*B, Tq, Tk] -> [*B, Tq, Tk]"""
    if mask is not None and mask.dtype.is_bool:
        scores = where(mask, scores, -math.inf)
    elif mask is not None:
        scores = scores + F.astype(mask, scores.dtype)
    if causal:
        row = F.expand_dims(F.positions(scores.shape[-2]), axis=1)
        scores = where(row >= F.positions(scores.shape[-1]), scores, -math.inf)
    return scores
