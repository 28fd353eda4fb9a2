"""The gradient of attention from the result itself, as a GPU's library wants it.

Nobody writes it, and nothing differentiates it: the CuPy executor makes it of the ops that a graph
has, after all other passes (`runtime/cupy_executor/attention/pass_result.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphfw.ir.dtype import DType
from graphfw.ir.op import NONDIFF, Case, Cost, Op, bad, ok, op
from graphfw.ir.shape import require
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.dtypes import compute_dtype, require_one_dtype
from graphfw.ops.nn.attention_ops import AttentionGrad


@op("attention_backward")
class AttentionBackward(Op):
    """The gradients of `attention_grad` for operands without a mask, given the result, not delta.

    q: [*B, Tq, D], k: [*B, Tk, D], v: [*B, Tk, E], out: [*B, Tq, E], lse, rest: [*B, Tq],
    d_out: [*B, Tq, E] -> d_q: [*B, Tq, D], d_k: [*B, Tk, D], d_v: [*B, Tk, E], or these two as k
    and v are

    Delta is the sum of out d_out over the last dim, in float32 or wider.

    Attributes:
        sums: Whether gradients of k and v are added up along dims in which these are broadcast.
        causal: Query i sees keys 0 to i only.
        scale: The factor of the scores; None stands for 1 / sqrt(D).
    """

    multiple = True
    vjp = NONDIFF
    sums: bool = False
    causal: bool = False
    scale: float | None = None

    @property
    def by_delta(self) -> AttentionGrad:
        """The op that computes the same from delta."""
        return AttentionGrad(self.causal, self.scale)

    def shape(
        self, q: Shape, k: Shape, v: Shape, out: Shape, lse: Shape, rest: Shape, d_out: Shape
    ) -> tuple[Shape, Shape, Shape]:
        found = self.by_delta.shape(q, k, v, lse, rest, lse, d_out)
        require(out == d_out, "the result and its gradient differ", fix="give `attention`'s result")
        return (found[0], k, v) if self.sums else found

    def dtype(
        self, q: DType, k: DType, v: DType, out: DType, lse: DType, rest: DType, d_out: DType
    ) -> tuple[DType, DType, DType]:
        require_one_dtype(q, out)
        return self.by_delta.dtype(q, k, v, lse, rest, lse, d_out)

    def eval(
        self, xp: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, rest: Any, d_out: Any
    ) -> tuple[Any, Any, Any]:
        dtype = compute_dtype(xp, q.dtype)
        wide = [x.astype(dtype, copy=False) for x in (out, d_out)]
        delta = xp.sum(wide[0] * wide[1], axis=-1)
        d_q, *others = self.by_delta.eval(xp, q, k, v, lse, rest, delta, d_out)
        if self.sums:
            others = [_summed(xp, x, y, dtype) for x, y in zip(others, (k, v), strict=True)]
        return (d_q, *others)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return self.by_delta.cost(outputs, *inputs)

    @staticmethod
    def cases() -> Iterator[Case]:
        rows = ("float32[2, n]",) * 2
        yield ok(
            *("float32[2, n, 4]", "float32[2, m, 4]", "float32[m, 5]", "float32[2, n, 5]"),
            *(*rows, "float32[2, n, 5]"),
        )
        rows = ("float32[5]",) * 2
        yield ok(
            *("float32[5, 4]", "float32[7, 4]", "float32[7, 3]", "float32[5, 3]"),
            *(*rows, "float32[5, 3]"),
            causal=True,
            scale=0.25,
        )
        rows = ("float32[2, 3, 5]",) * 2
        yield ok(
            *("float32[2, 3, 5, 4]", "float32[2, 1, 7, 4]", "float32[7, 3]", "float32[2, 3, 5, 3]"),
            *(*rows, "float32[2, 3, 5, 3]"),
            sums=True,
        )
        rows = ("float32[5]",) * 2
        yield bad(
            *("float32[5, 4]", "float32[7, 4]", "float32[7, 3]", "float32[4, 3]"),
            *(*rows, "float32[5, 3]"),
            match="the result and its gradient differ",
        )


def summed_axes(shape: Shape, like: Shape) -> tuple[int, ...]:
    """Return the axes along which something of one shape is added up to one of another."""
    missing = len(shape) - len(like)
    pairs = zip(shape[missing:], like, strict=True)
    short = [missing + axis for axis, (dim, own) in enumerate(pairs) if own == 1 != dim]
    return (*range(missing), *short)


def _summed(xp: Any, x: Any, like: Any, dtype: Any) -> Any:
    """Return sums of x that have an array's shape."""
    axes = summed_axes(x.shape, like.shape)
    return xp.sum(x.astype(dtype, copy=False), axis=axes).reshape(like.shape).astype(x.dtype)
