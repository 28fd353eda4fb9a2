"""Compositions of products: contractions over chosen axes, outer and cross products, traces."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

from graphfw.errors import AxisError, ShapeError, counted
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.functions import F, public
from graphfw.ir.shape import permuted, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, axes_in_order, converted, promoted
from graphfw.ops.composed import demand, wide, wide_dtype
from graphfw.ops.linalg.products import demand_one_size, diagonal, matmul

__all__ = ["cross", "outer", "tensordot", "trace", "vecdot"]


@public
def tensordot(
    x1: TensorLike, x2: TensorLike, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Sum the products of elements over pairs of axes.

    x1: [*A, *K], x2: [*K, *B] -> [*A, *B], with K anywhere if `axes` says where.
    Numeric dtypes, promoted; float16 and bfloat16 accumulate in float32.

    Args:
        x1: The one factor.
        x2: The other.
        axes: How many axes at the end of x1 and the beginning of x2, or the axes of each in turn.

    Raises:
        ShapeError: The dims of a pair differ.
        AxisError: There is no such axis, or one stands twice.

    >>> import graphfw as gf
    >>> gf.tensordot(gf.ones((2, 3, 4)), gf.ones((4, 3, 5)), axes=((1, 2), (1, 0))).shape
    (2, 5)
    """
    a, b = promoted("tensordot", x1, x2)
    shown = {"x1": a, "x2": b}
    fix = "name the axes: axes=((…), (…))"
    if isinstance(axes, SupportsIndex):
        count = operator.index(axes)
        message = (
            f"tensordot: can't sum over {counted(count, 'axis', 'axes')} of "
            f"{a.ndim} and {counted(b.ndim, 'dim')}"
        )
        demand(0 <= count <= min(a.ndim, b.ndim), message, shown, fix=fix, error=ShapeError)
        axes = (range(a.ndim - count, a.ndim), range(count))
    is_pair = hasattr(axes, "__len__") and len(axes) == 2
    demand(is_pair, f"tensordot: axes={axes!r} is no int and no pair", fix=fix, error=AxisError)
    left, right = (
        axes_in_order("tensordot", x, of_x) for x, of_x in zip((a, b), axes, strict=True)
    )
    message = (
        f"tensordot: {counted(len(left), 'axis', 'axes')} of x1 can't pair with {len(right)} of x2"
    )
    fix = "give each axis of x1 one of x2"
    demand(len(left) == len(right), message, shown, fix=fix, error=ShapeError)
    for pair in zip(left, right, strict=True):
        demand_one_size("tensordot", shown, pair)
    rows = [i for i in range(a.ndim) if i not in left]
    columns = [j for j in range(b.ndim) if j not in right]
    row_dims, column_dims = permuted(a.shape, rows), permuted(b.shape, columns)
    depth = size_of(permuted(a.shape, left))
    product = matmul(
        F.reshape(F.permute_dims(a, (*rows, *left)), (size_of(row_dims), depth)),
        F.reshape(F.permute_dims(b, (*right, *columns)), (depth, size_of(column_dims))),
    )
    return F.reshape(product, (*row_dims, *column_dims))


@public
def vecdot(x1: TensorLike, x2: TensorLike, /, *, axis: int = -1) -> Tensor:
    """The inner product of vectors along an axis, the first one conjugated.

    x1, x2: [*B, K] broadcast -> [*B].  float16 and bfloat16 are computed in float32.

    Args:
        x1: The one vector, which is conjugated.
        x2: The other.
        axis: Where the vectors are, counted from the end: -1 is the last dim.

    Raises:
        ShapeError: The dims at `axis` differ, or the others don't broadcast.
        AxisError: There is no such axis, or it is not negative.

    >>> import graphfw as gf
    >>> gf.vecdot([1j, 2.0], [1j, 3.0])
    Tensor(7.+0.j, dtype=complex64)
    """
    a, b = promoted("vecdot", x1, x2)
    operands = {"x1": a, "x2": b}
    ndim = min(a.ndim, b.ndim)
    demand(
        -ndim <= axis < 0,
        f"vecdot: axis {axis} is out of range for vectors in {counted(ndim, 'dim')}",
        operands,
        fix=f"count it from the end: use {-ndim} to -1" if ndim else "multiply by scalars with *",
        error=AxisError,
    )
    demand_one_size("vecdot", operands, (axis, axis))
    total = F.sum(wide(F.conj(a)) * wide(b), axis=axis, dtype=wide_dtype(a.dtype))
    return converted(total, a.dtype)


@public
def outer(x1: TensorLike, x2: TensorLike, /) -> Tensor:
    """All products of an element of x1 and one of x2.  x1: [M], x2: [N] -> [M, N]

    Raises:
        ShapeError: One is not a vector.
    """
    a, b = promoted("outer", x1, x2)
    demand(
        a.ndim == 1 and b.ndim == 1,
        f"outer: wants two vectors, not {a.ndim} and {counted(b.ndim, 'dim')}",
        {"x1": a, "x2": b},
        fix="for more dims multiply x1[..., :, None] by x2[..., None, :]",
        error=ShapeError,
    )
    product = F.expand_dims(a, axis=1) * b
    return product


@public
def trace(
    x: TensorLike,
    /,
    *,
    offset: int = 0,
    axis1: int = -2,
    axis2: int = -1,
    dtype: DTypeLike | None = None,
) -> Tensor:
    """The sum of a diagonal of matrices.  x: [*B, M, N] -> [*B]

    Arguments as for `diagonal`; dtypes as for `sum`.

    Raises:
        AxisError: There are no such two axes.
    """
    elements = diagonal(x, offset=offset, axis1=axis1, axis2=axis2)
    return F.sum(elements, axis=-1, dtype=dtype)


@public
def cross(x1: TensorLike, x2: TensorLike, /, *, axis: int = -1) -> Tensor:
    """The vector product in space.  x1, x2: [*B, 3] broadcast -> [*B, 3], with the 3 at `axis`

    Numeric dtypes, promoted.

    Args:
        x1: The one vector.
        x2: The other.
        axis: Where the vectors are, counted from the end: -1 is the last dim.

    Raises:
        ShapeError: A vector has not 3 elements, or the other dims don't broadcast.
        AxisError: There is no such axis, or it is not negative.

    >>> import graphfw as gf
    >>> gf.linalg.cross([1, 0, 0], [0, 1, 0])
    Tensor([0, 0, 1], dtype=int64)
    """
    a, b = promoted("cross", x1, x2)
    operands = {"x1": a, "x2": b}
    ndim = min(a.ndim, b.ndim)
    message = f"cross: axis {axis} is out of range for vectors in {counted(ndim, 'dim')}"
    fix = f"count it from the end: use {-ndim} to -1" if ndim else "give it vectors of 3 elements"
    demand(-ndim <= axis < 0, message, operands, fix=fix, error=AxisError)
    sizes = a.shape[axis], b.shape[axis]
    message = f"cross: wants vectors of 3 elements, not {sizes[0]} and {sizes[1]}"
    demand(sizes == (3, 3), message, operands, fix="pad them with a 0", error=ShapeError)

    def rolled(x: Tensor, by: int) -> Tensor:
        return F.roll(x, by, axis=axis)

    return rolled(a, -1) * rolled(b, -2) - rolled(a, -2) * rolled(b, -1)
