"""Tensors side by side, by NumPy's names for it; diagonals of matrices; quarter turns."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from graphfw.errors import ShapeError
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike
from graphfw.ir.functions import F, public
from graphfw.ir.shape import broadcast
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, axes_in_order, dims_of, is_whole, ruled
from graphfw.ops.composed import demand
from graphfw.ops.creation.ranges import positions
from graphfw.ops.shape.concat import concat
from graphfw.ops.shape.flip_roll import flip
from graphfw.ops.shape.gather_scatter import IndexSet
from graphfw.ops.shape.movement import reshape, swapaxes

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_shapes",
    "column_stack",
    "diag",
    "dstack",
    "hstack",
    "rot90",
    "vstack",
]


@public
def broadcast_shapes(*shapes: Sequence[DimLike]) -> Shape:
    """Return the shape that all shapes broadcast to; () of none.

    Raises:
        ShapeError: They don't broadcast.

    >>> import graphfw as gf
    >>> gf.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    dims = [dims_of("broadcast_shapes", shape) for shape in shapes]
    return ruled("broadcast_shapes", None, broadcast, *dims)


@public
def atleast_1d(x: TensorLike, /) -> Tensor:
    """Give a scalar one dim.  x: [] -> [1]; others stay as they are

    >>> import graphfw as gf
    >>> gf.atleast_1d(3.0).shape
    (1,)
    """
    tensor = as_tensor(x)
    return tensor if tensor.ndim else reshape(tensor, (1,))


@public
def atleast_2d(x: TensorLike, /) -> Tensor:
    """Make a tensor of two dims or more.  x: [] -> [1, 1], [N] -> [1, N]; others stay

    >>> import graphfw as gf
    >>> gf.atleast_2d(gf.zeros(3)).shape
    (1, 3)
    """
    tensor = as_tensor(x)
    return tensor if tensor.ndim > 1 else reshape(tensor, (1, tensor.size))


@public
def atleast_3d(x: TensorLike, /) -> Tensor:
    """Make a tensor of three dims or more.  [] -> [1, 1, 1], [N] -> [1, N, 1], [M, N] -> [M, N, 1]

    >>> import graphfw as gf
    >>> gf.atleast_3d(gf.zeros(3)).shape
    (1, 3, 1)
    """
    tensor = as_tensor(x)
    return tensor if tensor.ndim > 2 else reshape(tensor, (*atleast_2d(tensor).shape, 1))


@public
def vstack(arrays: Sequence[TensorLike], /) -> Tensor:
    """Put tensors one below the other: along axis 0, vectors as rows.  [N], [M, N] -> [1 + M, N]

    Dtypes promote.

    Raises:
        ShapeError: The other dims differ, or there is no tensor.

    >>> import graphfw as gf
    >>> gf.vstack([gf.asarray([1, 2]), gf.asarray([3, 4])])
    Tensor([[1, 2],
            [3, 4]], dtype=int64)
    """
    return concat(_several("vstack", arrays, atleast_2d), axis=0)


@public
def hstack(arrays: Sequence[TensorLike], /) -> Tensor:
    """Put tensors beside one another: along axis 1, vectors one behind the other.

    [M, N], [M, K] -> [M, N + K]; [N], [K] -> [N + K]. Dtypes promote.

    Raises:
        ShapeError: The other dims differ, or there is no tensor.

    >>> import graphfw as gf
    >>> gf.hstack([gf.asarray([1, 2]), gf.asarray([3])])
    Tensor([1, 2, 3], dtype=int64)
    """
    tensors = _several("hstack", arrays, atleast_1d)
    return concat(tensors, axis=0 if tensors[0].ndim == 1 else 1)


@public
def dstack(arrays: Sequence[TensorLike], /) -> Tensor:
    """Put tensors behind one another: along axis 2, see `atleast_3d`.  [M, N], [M, N] -> [M, N, 2]

    Dtypes promote.

    Raises:
        ShapeError: The other dims differ, or there is no tensor.

    >>> import graphfw as gf
    >>> gf.dstack([gf.asarray([1, 2]), gf.asarray([3, 4])])
    Tensor([[[1, 3],
             [2, 4]]], dtype=int64)
    """
    return concat(_several("dstack", arrays, atleast_3d), axis=2)


@public
def column_stack(arrays: Sequence[TensorLike], /) -> Tensor:
    """Put tensors beside one another, vectors as columns.  [M], [M, N] -> [M, 1 + N]

    Dtypes promote.

    Raises:
        ShapeError: The other dims differ, or there is no tensor.

    >>> import graphfw as gf
    >>> gf.column_stack([gf.asarray([1, 2]), gf.asarray([3, 4])])
    Tensor([[1, 3],
            [2, 4]], dtype=int64)
    """
    return concat(_several("column_stack", arrays, _column), axis=1)


def _column(x: TensorLike) -> Tensor:
    tensor = as_tensor(x)
    return tensor if tensor.ndim > 1 else reshape(tensor, (tensor.size, 1))


def _several(
    name: str, arrays: Sequence[TensorLike], form: Callable[[TensorLike], Tensor]
) -> list[Tensor]:
    """Return the tensors of a list, each in the form in which they are put together."""
    is_list = isinstance(arrays, (list, tuple))
    demand(is_list, f"{name}: wants a list of tensors", fix=f"write gf.{name}([a, b])")
    fix = "pass a list that is not empty"
    demand(bool(arrays), f"{name}: wants one tensor or more", fix=fix, error=ShapeError)
    return [form(x) for x in arrays]


@public
def diag(x: TensorLike, /, *, k: int = 0) -> Tensor:
    """Make a matrix with a vector on its k-th diagonal, or take that diagonal of a matrix.

    [N] -> [N + |k|, N + |k|]; [M, N] -> [length of the diagonal]. Of tensors with more dims,
    `diagonal` takes diagonals.

    Args:
        x: The vector or the matrix.
        k: The diagonal: 0 is the main one, positive ones lie above it.

    Raises:
        ShapeError: x has neither one dim nor two.

    >>> import graphfw as gf
    >>> gf.diag(gf.asarray([1, 2]))
    Tensor([[1, 0],
            [0, 2]], dtype=int64)
    """
    tensor = as_tensor(x)
    message = f"diag: wants 1 or 2 dims, not {tensor.ndim}"
    fix = "use gf.diagonal(x), or gf.vmap(gf.diag) for a batch of vectors"
    demand(tensor.ndim in (1, 2), message, {"x": tensor}, fix=fix, error=ShapeError)
    if tensor.ndim == 2:
        return F.diagonal(tensor, offset=k)
    size = tensor.shape[0] + abs(k)
    row, column = (positions(tensor.shape[0]) + max(shift, 0) for shift in (-k, k))
    return emit(IndexSet(0), F.zeros((size, size), dtype=tensor.dtype), tensor, row, column)


@public
def rot90(x: TensorLike, /, *, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """Turn a tensor by k quarters in the plane of two axes, from the first to the second.

    x: [*A] -> [*A], for odd k with the two dims exchanged.

    Raises:
        AxisError: There is no such axis, or both are the same.
        ArgumentError: There are not two axes; k is no int.

    >>> import graphfw as gf
    >>> gf.rot90(gf.asarray([[1, 2], [3, 4]]))
    Tensor([[2, 4],
            [1, 3]], dtype=int64)
    """
    tensor = as_tensor(x)
    places = axes_in_order("rot90", tensor, axes)
    demand(len(places) == 2, f"rot90: axes={axes} are not two", {"x": tensor}, fix="use (0, 1)")
    is_int = is_whole(k) and not isinstance(k, Tensor)
    demand(is_int, f"rot90: k={k!r} is no int", {"x": tensor}, fix="write how many quarters: k=1")
    first, second = places
    turns = operator.index(k) % 4
    if turns == 2:
        return flip(tensor, axis=places)
    if turns == 1:
        return swapaxes(flip(tensor, axis=second), first, second)
    return flip(swapaxes(tensor, first, second), axis=second) if turns else tensor
