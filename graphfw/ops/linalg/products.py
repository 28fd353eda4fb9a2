"""The ops of products of matrices, and of diagonals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphfw.errors import AxisError, DTypeError, ShapeError, counted
from graphfw.ir.affine import Index
from graphfw.ir.build import applied, emit
from graphfw.ir.dim import DimLike, dim_max, dim_min
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.op import Case, Cost, bad, ok, op
from graphfw.ir.shape import Requirement, broadcast_batch, normalize_axis, require, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import TensorLike, as_tensor, promoted_two, ruled
from graphfw.ops.batching import MappedAxis, aligned, leading
from graphfw.ops.composed import demand
from graphfw.ops.dtypes import compute_dtype, require_numeric, require_one_dtype
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.fusible import FusibleProduct
from graphfw.ops.shape.movement import Movement

__all__ = ["diagonal", "matmul"]


@op("matmul")
class MatMul(FusibleProduct):
    """Batched matrix product.  x1: [*B, M, K]  x2: [*B, K, N]  ->  [*B, M, N]"""

    linear = "each"
    mixed_precision = "narrow"

    def shape(self, x1: Shape, x2: Shape) -> Shape:
        for operand, x in enumerate((x1, x2)):
            if len(x) < 2:
                message = f"operand {operand + 1} must have 2 dims or more, not {len(x)}"
                raise Requirement(message, fix="gf.expand_dims adds a dim")
        if x1[-1] != x2[-2]:
            at = [(0, -1), (1, -2)]
            raise Requirement("contracting dims differ", at, _transpose_fix(x1, x2))
        return (*broadcast_batch(x1, x2), x1[-2], x2[-1])

    def dtype(self, x1: DType, x2: DType) -> DType:
        require_one_dtype(x1, x2)
        return require_numeric(x1)

    def eval(self, xp: Any, x1: Any, x2: Any) -> Any:
        dtype = compute_dtype(xp, x1.dtype)
        if dtype is x1.dtype:
            return xp.matmul(x1, x2)
        return xp.matmul(x1.astype(dtype), x2.astype(dtype)).astype(x1.dtype)

    def vjp(self, ct: Tensor, y: Tensor, x1: Tensor, x2: Tensor) -> tuple[Any, ...]:
        def of_x2() -> Tensor:
            rows, slopes = F.conj(x1), ct
            if x1.ndim > 2 and x2.ndim == 2:  # with one matrix for all batches it is one product
                rows, slopes = F.flatten(rows, 0, -2), F.flatten(slopes, 0, -2)
            return F.sum_to(F.matmul(F.matrix_transpose(rows), slopes), x2.shape)

        def of_x1() -> Tensor:
            return F.sum_to(F.matmul(ct, F.matrix_transpose(F.conj(x2))), x1.shape)

        return of_x1, of_x2

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], x1: Tensor, x2: Tensor) -> Tensor:
        if not batched[1] and x2.ndim == 2:  # with one matrix for all examples it is one product
            rows = x1.shape[:-1]
            product = emit(self, F.reshape(x1, (size_of(rows), x1.shape[-1])), x2)
            return F.reshape(product, (*rows, x2.shape[-1]))
        if not batched[0] and x1.ndim == 2 and x2.shape[2:] == (1,):
            return F.expand_dims(emit(self, x2[..., 0], x1.mT), axis=-1)
        return emit(self, *aligned(batched, (x1, x2), (2, 2)))

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


_PRODUCT = MatMul()


def _transpose_fix(x1: Shape, x2: Shape) -> str:
    if x1[-1] == x2[-1]:
        return "the second operand looks transposed: use x2.mT"
    if x1[-2] == x2[-2]:
        return "the first operand looks transposed: use x1.mT"
    return (
        f"the dims that meet must be equal: x2 needs {counted(x1[-1], 'row')}, "
        f"or x1 {counted(x2[-2], 'column')}"
    )


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
    a, b = promoted_two("matmul", x1, x2)
    if a.ndim > 1 and b.ndim > 1:
        return applied(_PRODUCT, (a, b), (x1, x2))[0]
    _check_vectors(a, b)
    left = F.expand_dims(a, axis=0) if a.ndim == 1 else a
    right = F.expand_dims(b, axis=1) if b.ndim == 1 else b
    product = emit(_PRODUCT, left, right)
    if right is not b:
        product = F.squeeze(product, axis=-1)
    return F.squeeze(product, axis=-1 if right is not b else -2) if left is not a else product


def _check_vectors(x1: Tensor, x2: Tensor) -> None:
    """Check what the op can't say of the user's own operands, since it sees vectors as matrices."""
    operands = {"x1": x1, "x2": x2}
    message = "matmul: wants 1 dim or more, and one operand is a scalar"
    has_scalar = x1.ndim == 0 or x2.ndim == 0
    demand(not has_scalar, message, operands, fix="multiply by scalars with *", error=ShapeError)
    demand_one_size("matmul", operands, (-1, -1 if x2.ndim == 1 else -2))


def demand_one_size(name: str, operands: dict[str, Tensor], axes: tuple[int, int]) -> None:
    """Demand that two operands have the same size along the axes that are summed over."""
    (first, second), (i, j) = operands.values(), axes
    sizes = f"x1[{i}] = {first.shape[i]}, x2[{j}] = {second.shape[j]}"
    demand(
        first.shape[i] == second.shape[j],
        f"{name}: contracting dims differ: {sizes}",
        operands,
        fix="the dims that are summed over must be equal",
        error=ShapeError,
    )


@op("diagonal")
class Diagonal(Movement):
    """A diagonal of matrices.  x: [*B, M, N]  ->  [*B, min(M, N - offset)], offset >= 0"""

    offset: int = 0
    batch = leading

    def shape(self, x: Shape) -> Shape:
        fix = "to make a matrix of a vector, multiply it by gf.eye"
        require(len(x) >= 2, f"wants 2 dims or more, not {len(x)}", fix=fix)
        return (*x[:-2], _diagonal_length(x[-2], x[-1], self.offset))

    def eval(self, xp: Any, x: Any) -> Any:
        offset = max(min(self.offset, x.shape[-1]), -x.shape[-2])  # NumPy's is an int of C
        return xp.diagonal(x, offset, -2, -1)

    def source_index(self, index: Index, x: Shape, y: Shape) -> Index:
        return (*index[:-1], index[-1] + max(-self.offset, 0), index[-1] + max(self.offset, 0))

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: _on_diagonal(ct, x.shape, self.offset),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, 3]")
        yield ok("float32[2, n, n]")
        yield ok("float32[2, 3, 5]", offset=1)
        yield ok("float32[5, 3]", offset=-1)
        yield ok("float32[n, 4]", offset=-1)
        yield ok("int32[2, 3]", offset=7)
        yield bad("float32[3]", match="wants 2 dims or more, not 1")


def _diagonal_length(rows: DimLike, columns: DimLike, offset: int) -> DimLike:
    if offset >= 0:
        return dim_max(dim_min(rows, columns - offset), 0)
    return dim_max(dim_min(rows + offset, columns), 0)


def _on_diagonal(values: Tensor, dims: Shape, offset: int) -> Tensor:
    """Put values on a diagonal of matrices of 0.  [*B, L] -> dims"""
    rows, columns = dims[-2:]
    length = values.shape[-1]
    before = max(-offset, 0)
    blocks = [values]
    if before:
        blocks.insert(0, F.zeros((*dims[:-2], before), dtype=values.dtype))
    if rows - before - length != 0:
        blocks.append(F.zeros((*dims[:-2], rows - before - length), dtype=values.dtype))
    row_values = F.concat(blocks, axis=-1) if len(blocks) > 1 else values
    here = F.expand_dims(F.positions(rows), axis=1) + offset == F.positions(columns)
    return where(here, F.expand_dims(row_values, axis=-1), 0)


@public
def diagonal(x: TensorLike, /, *, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """A diagonal of matrices.  x: [*B, M, N] -> [*B, L]

    Args:
        x: The matrices.
        offset: Which diagonal: elements [i, i + offset]. L is 0 where it lies outside.
        axis1: The rows' axis; the last but one, where NumPy takes the first.
        axis2: The columns' axis; the last, where NumPy takes the second.

    Raises:
        AxisError: There are no such two axes.

    >>> import graphfw as gf
    >>> gf.diagonal(gf.asarray([[1, 2, 3], [4, 5, 6]]), offset=1)
    Tensor([2, 6], dtype=int64)
    """
    tensor = as_tensor(x)
    rows = ruled("diagonal", tensor, normalize_axis, axis1, tensor.ndim)
    columns = ruled("diagonal", tensor, normalize_axis, axis2, tensor.ndim)
    message = f"diagonal: axis1 and axis2 must differ, and both are {axis1}"
    demand(rows != columns, message, {"x": tensor}, fix="name two axes", error=AxisError)
    batch = [i for i in range(tensor.ndim) if i not in (rows, columns)]
    if (rows, columns) != (tensor.ndim - 2, tensor.ndim - 1):
        tensor = F.permute_dims(tensor, (*batch, rows, columns))
    return emit(Diagonal(offset), tensor)
