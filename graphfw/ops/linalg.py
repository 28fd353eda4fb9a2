"""Linear algebra: products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphfw.errors import DTypeError
from graphfw.ir.build import emit
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.op import Case, Cost, Op, bad, ok, op
from graphfw.ir.shape import broadcast, require
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import TensorLike, promoted

__all__ = ["matmul"]


@op("matmul")
class MatMul(Op):
    """Batched matrix product.  x1: [*B, M, K]  x2: [*B, K, N]  ->  [*B, M, N]"""

    def shape(self, x1: Shape, x2: Shape) -> Shape:
        for operand, x in enumerate((x1, x2)):
            require(len(x) >= 2, f"operand {operand + 1} must have 2 dims or more, not {len(x)}")
        at = [(0, -1), (1, -2)]
        require(x1[-1] == x2[-2], "contracting dims differ", at, _transpose_fix(x1, x2))
        return (*broadcast(x1[:-2], x2[:-2]), x1[-2], x2[-1])

    def dtype(self, x1: DType, x2: DType) -> DType:
        require(x1 is x2, f"wants one dtype, not {x1.name} and {x2.name}", error=DTypeError)
        require(not x1.is_bool, "wants numeric tensors, not bool", error=DTypeError)
        return x1

    def eval(self, xp: Any, x1: Any, x2: Any) -> Any:
        if x1.dtype.itemsize == 2 and x1.dtype.kind not in "iu":
            # Sums of low-precision products are kept in float32.
            wide = xp.matmul(x1.astype(xp.float32), x2.astype(xp.float32))
            return wide.astype(x1.dtype)
        return xp.matmul(x1, x2)

    def vjp(self, ct: Tensor, y: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        return (
            lambda: F.sum_to(ct @ F.conj(x2).mT, x1.shape),
            lambda: F.sum_to(F.conj(x1).mT @ ct, x2.shape),
        )

    def guess(self, *types: TensorType) -> tuple[TensorType, ...]:
        x1, x2 = types
        return (TensorType(x1.dtype, (*x1.shape[:-1], *x2.shape[-1:])),)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        x1, x2 = inputs
        flops = 2 * outputs[0].size * x1.shape[-1]
        return Cost(flops, x1.nbytes + x2.nbytes, outputs[0].nbytes)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 4]", "float32[4, 5]")
        yield ok("float32[n, 3, 4]", "float32[4, 5]")
        yield ok("float32[2, 1, 3, 4]", "float32[5, 4, 1]")
        yield ok("complex64[2, 3]", "complex64[3, 2]")
        yield ok("int32[2, 3]", "int32[3, 2]")
        yield bad("float32[3, 4]", "float32[3, 5]", match="contracting dims differ")
        yield bad("float32[3]", "float32[3, 5]", match="operand 1 must have 2 dims")
        yield bad("bool[2, 2]", "bool[2, 2]", match="numeric", error=DTypeError)


def _transpose_fix(x1: Shape, x2: Shape) -> str:
    if x1[-1] == x2[-1]:
        return "the second operand looks transposed: use x2.mT"
    if x1[-2] == x2[-2]:
        return "the first operand looks transposed: use x1.mT"
    return ""


@public
def matmul(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """Multiply matrices, or a matrix and a vector; leading dims broadcast.

    x1: [*B, M, K] or [K], x2: [*B, K, N] or [K] -> [*B, M, N], without M or N for vectors.
    Numeric dtypes, promoted; float16 and bfloat16 accumulate in float32.

    Raises:
        ShapeError: The contracting dims differ, or the leading dims don't broadcast.

    >>> import graphfw as gf
    >>> gf.matmul(gf.asarray([[1.0, 2.0]]), gf.asarray([3.0, 4.0]))
    Tensor([11.], dtype=float32)
    """
    a, b = promoted("matmul", x1, x2)
    left = F.expand_dims(a, axis=0) if a.ndim == 1 else a
    right = F.expand_dims(b, axis=1) if b.ndim == 1 else b
    shown = (x1, x2) if left is a and right is b else (left, right)
    product = emit(MatMul(), left, right, shown=shown)
    if right is not b:
        product = F.squeeze(product, axis=-1)
    return F.squeeze(product, axis=-1 if right is not b else -2) if left is not a else product
