"""`Scalars`: an op says what one element of its result is with the primitive functions of kernels.

That is `Op.scalar(k, *xs)`, where `k` is a `Scalars` and the `xs` are expressions, one element of
each input.

>>> from graphfw.ir.dtype import float32
>>> k = Scalars()
>>> one = k.const(1, float32)
>>> k.div(1, k.sqrt(one)).function
'div'

A Python number as an operand takes the dtype of the other operands.

Floats of 16 bits exist in memory only. Who lowers an op casts what it loads of such a dtype to
float32, calls `scalar`, and casts the result back: `k.cast(k.cast(op.scalar(k, *xs), float16),
float32)` is an op's result in a kernel, rounded once, as NumPy and ml_dtypes round it. So `scalar`
never sees float16 or bfloat16, and within one op float32 is kept. What numbers are only kept in has
"bits", "cast" and "select"; what compares them compares the numbers that they stand for.
"""

from __future__ import annotations

from graphfw.ir.dtype import DType
from graphfw.runtime.kernels import stored
from graphfw.runtime.kernels.ir import Expr
from graphfw.runtime.kernels.primitives import Operand, PrimitiveCalls


class Scalars(PrimitiveCalls):
    """Makes expressions of the primitives: what `Op.scalar` is given as `k`.

    Every primitive is a method: `k.add(x, 1)`; `and`, `or`, `not` have an underscore after them.
    """

    def cast(self, x: Expr, dtype: DType) -> Expr:
        """The value in another dtype, as `astype` makes it."""
        if x.dtype is not dtype:
            if x.dtype.is_storage:
                return self.cast(stored.decoded(self, x), dtype)
            if dtype.is_storage:
                return stored.encoded(self, x, dtype)
        return super().cast(x, dtype)

    def _operands(self, *operands: Operand) -> tuple[Expr, ...]:
        args = super()._operands(*operands)
        if args[0].dtype.is_storage:
            return tuple([stored.decoded(self, x) for x in args])
        return args
