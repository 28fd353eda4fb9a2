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
never sees float16 or bfloat16, and within one op float32 is kept. Complex numbers are pairs of
floats: see `complex_numbers`. What numbers are only kept in has "bits", "cast" and "select"; what
compares them compares the numbers that they stand for.
"""

from __future__ import annotations

from graphfw.ir.dtype import DType, bool_
from graphfw.runtime.kernels import complex_numbers, stored
from graphfw.runtime.kernels.ir import Expr
from graphfw.runtime.kernels.primitives import Operand, PrimitiveCalls


class Scalars(PrimitiveCalls):
    """Makes expressions of the primitives: what `Op.scalar` is given as `k`.

    Every primitive is a method: `k.add(x, 1)`; `and`, `or`, `not` have an underscore after them.
    """

    def const(self, value: bool | complex, dtype: DType) -> Expr:
        """A literal: a value that the dtype holds."""
        if dtype.is_complex:
            return complex_numbers.literal(value, dtype)
        assert not isinstance(value, complex)
        return super().const(value, dtype)

    def complex(self, real: Expr, imag: Expr, dtype: DType) -> Expr:
        """A complex number of its components."""
        return complex_numbers.Pair(dtype, real, imag)

    def real(self, x: Expr) -> Expr:
        """The real part of a complex number."""
        return complex_numbers.components_of(x).real

    def imag(self, x: Expr) -> Expr:
        """The imaginary part of a complex number."""
        return complex_numbers.components_of(x).imag

    def cast(self, x: Expr, dtype: DType) -> Expr:
        """The value in another dtype, as `astype` makes it."""
        if x.dtype is not dtype:
            if x.dtype.is_complex or dtype.is_complex:
                return complex_numbers.cast(self, x, dtype)
            if x.dtype.is_storage:
                return self.cast(stored.decoded(self, x), dtype)
            if dtype.is_storage:
                return stored.encoded(self, x, dtype)
        return super().cast(x, dtype)

    def select(self, condition: Operand, x: Operand, y: Operand) -> Expr:
        """The value of x where the condition holds, else y's."""
        chosen = self._typed(x, y)
        if chosen[0].dtype.is_complex:
            holds = condition if isinstance(condition, Expr) else self.const(condition, bool_)
            return complex_numbers.select(self, holds, *chosen)
        return super().select(condition, *chosen)

    def call(self, function: str, *operands: Operand) -> Expr:
        """A call of a primitive whose operands have one dtype."""
        args = self._typed(*operands)
        if args[0].dtype.is_complex:
            return complex_numbers.called(self, function, args)
        if args[0].dtype.is_storage:
            args = tuple([stored.decoded(self, x) for x in args])
        return super().call(function, *args)

    def _typed(self, *operands: Operand) -> tuple[Expr, ...]:
        """Return operands as expressions, Python numbers in the dtype of the first expression."""
        dtype = next(x.dtype for x in operands if isinstance(x, Expr))
        return tuple([x if isinstance(x, Expr) else self.const(x, dtype) for x in operands])
