"""Compositions of concat and indexing: stack, repeat, tile, NumPy's vstack and its like."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from graphfw.errors import DTypeError, ShapeError, counted
from graphfw.ir.build import emit
from graphfw.ir.concrete import is_concrete, value_of
from graphfw.ir.dim import Dim, DimLike, always_le
from graphfw.ir.dtype import int64
from graphfw.ir.functions import F, public
from graphfw.ir.shape import broadcast, normalize_axis, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, axes_in_order, dims_of, is_whole, ruled
from graphfw.ops.composed import demand, demand_one_of, require_room
from graphfw.ops.creation.ranges import positions
from graphfw.ops.data_dependent.measuring_ops import Sizes, measure
from graphfw.ops.shape.axes import expand_dims, flatten, swapaxes
from graphfw.ops.shape.concat import concat, tensor_list
from graphfw.ops.shape.flip_roll import flip
from graphfw.ops.shape.gather_scatter import IndexSet, take
from graphfw.ops.shape.movement import broadcast_to, reshape

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_shapes",
    "column_stack",
    "diag",
    "dstack",
    "hstack",
    "meshgrid",
    "repeat",
    "rot90",
    "stack",
    "tile",
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
    """Put tensors beside one another: along axis 1, vectors one after the other.

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
    """Put tensors after one another: along axis 2, see `atleast_3d`.  [M, N], [M, N] -> [M, N, 2]

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
    axis_indices = axes_in_order("rot90", tensor, axes)
    demand(
        len(axis_indices) == 2, f"rot90: axes={axes} are not two", {"x": tensor}, fix="use (0, 1)"
    )
    is_int = is_whole(k) and not isinstance(k, Tensor)
    demand(is_int, f"rot90: k={k!r} is no int", {"x": tensor}, fix="write how many quarters: k=1")
    first, second = axis_indices
    turns = operator.index(k) % 4
    if turns == 2:
        return flip(tensor, axis=axis_indices)
    if turns == 1:
        return swapaxes(flip(tensor, axis=second), first, second)
    return flip(swapaxes(tensor, first, second), axis=second) if turns else tensor


@public
def stack(arrays: Sequence[TensorLike], /, *, axis: int = 0) -> Tensor:
    """Put K tensors of one shape side by side along a new axis.  [*A] … -> [*A with K at axis]

    Raises:
        ShapeError: The shapes differ, or there is no tensor.
        AxisError: There is no such axis in the result.

    >>> import graphfw as gf
    >>> gf.stack([gf.asarray([1, 2]), gf.asarray([3, 4])], axis=1)
    Tensor([[1, 3],
            [2, 4]], dtype=int64)
    """
    tensors = tensor_list("stack", arrays)
    axis_index = ruled("stack", tensors[0], normalize_axis, axis, tensors[0].ndim + 1)
    for number, tensor in enumerate(tensors):
        demand(
            tensor.shape == tensors[0].shape,
            f"stack: shapes differ: {shape_text(tensors[0].shape)} and {shape_text(tensor.shape)}",
            {"x0": tensors[0], f"x{number}": tensor},
            fix="make them equal, or join them along a dim that they have with gf.concat",
            error=ShapeError,
        )
    return concat([expand_dims(tensor, axis=axis_index) for tensor in tensors], axis=axis_index)


@public
def repeat(x: TensorLike, repeats: DimLike | TensorLike, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element along an axis.  x: [*A, N, *B] -> [*A, N * repeats, *B]

    Args:
        x: What to repeat.
        repeats: How often: a number (it may be a symbolic dim), or one for each element along the
            axis. Where they are not known now, each run finds out how many elements there are.
        axis: The axis; without it the tensor is flattened first.

    Raises:
        ConcreteValueError: `repeats` is not known now, in the body of a loop, a vmap, ….
        ShapeError: There are not as many repeats as elements, or the dim is symbolic.
        ExecutionError: When run: a number is negative.
        ArgumentError: A number is negative.

    >>> import graphfw as gf
    >>> gf.repeat(gf.asarray([1, 2, 3]), [2, 0, 1])
    Tensor([1, 1, 3], dtype=int64)
    """
    tensor = as_tensor(x)
    if axis is None:
        return repeat(flatten(tensor), repeats, axis=0)
    axis_index = ruled("repeat", tensor, normalize_axis, axis, tensor.ndim)
    times = repeats if isinstance(repeats, (int, Dim)) else _times(tensor, repeats)
    dim = tensor.shape[axis_index]
    if isinstance(times, Tensor):
        return take(tensor, _repeated(tensor, times, dim), axis=axis_index)
    if isinstance(times, np.ndarray):
        demand(
            dim == len(times),
            f"repeat: {counted(len(times), 'repeat')} for dim {axis_index} of size {dim}",
            {"x": tensor},
            fix="pass one number for all elements, or as many as there are elements",
            error=ShapeError,
        )
        require_room("repeat", sum(times.tolist()))
        return take(tensor, np.repeat(np.arange(len(times)), times), axis=axis_index)
    demand(not always_le(times, -1), f"repeat: repeats={times}", {"x": tensor}, fix=_REPEATS_FIX)
    before, after = tensor.shape[:axis_index], tensor.shape[axis_index + 1 :]
    apart = expand_dims(tensor, axis=axis_index + 1)
    repeated = broadcast_to(apart, (*before, dim, times, *after))
    return reshape(repeated, (*before, dim * times, *after))


_REPEATS_FIX = "repeat each element 0 times or more"


def _times(x: Tensor, repeats: TensorLike) -> int | np.ndarray[Any, Any] | Tensor:
    """Return `repeats` as one number or an array of them; a tensor where runs tell."""
    known = as_tensor(repeats)
    demand(
        known.dtype.is_integer and known.ndim <= 1,
        f"repeat: repeats must be integers in one dim, not {known.type}",
        {"x": x, "repeats": known},
        fix="pass an int, or a list of ints",
        error=DTypeError,
    )
    if not is_concrete(known):
        return known
    numbers = value_of(known, "repeat")
    is_count = bool((numbers >= 0).all())
    demand(is_count, f"repeat: repeats={numbers}", {"x": x}, fix=_REPEATS_FIX)
    return int(numbers.reshape(())) if numbers.size == 1 else numbers


def _repeated(x: Tensor, times: Tensor, dim: DimLike) -> Tensor:
    """Return the positions of what is repeated, each as often as a run says.  -> [total]"""
    counts = ruled("repeat", x, broadcast, times.shape, (dim,))
    demand(
        counts == (dim,),
        f"repeat: repeats {shape_text(times.shape)} for a dim of size {dim}",
        {"x": x, "repeats": times},
        fix="pass one number for all elements, or as many as there are elements",
        error=ShapeError,
    )
    times = F.astype(broadcast_to(times, counts), int64)
    total = F.where(F.any(times < 0), -1, F.sum(times))  # sizes are checked
    (made,) = measure(Sizes, ["repeat"], reshape(total, (1,)), what="repeat: the repeats")
    assert isinstance(made.node.op, Sizes)
    positions: Tensor = F.arange(*made.node.op.dims)
    return F.searchsorted(F.cumulative_sum(times), positions, side="right")


@public
def tile(x: TensorLike, repetitions: DimLike | Sequence[DimLike], /) -> Tensor:
    """Repeat the whole tensor along its axes.  x: [*A] -> [*A * repetitions]

    `repetitions` count from the last axis; the shorter of both is padded with ones. They may be
    symbolic dims.

    Raises:
        ShapeError: A repetition is negative or no size.

    >>> import graphfw as gf
    >>> gf.tile(gf.asarray([1, 2]), (2, 2))
    Tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]], dtype=int64)
    """
    tensor = as_tensor(x)
    times = list(dims_of("tile", repetitions))
    ndim = max(tensor.ndim, len(times))
    dims = [*[1] * (ndim - tensor.ndim), *tensor.shape]
    times = [*[1] * (ndim - len(times)), *times]
    pairs = list(zip(times, dims, strict=True))
    apart = reshape(tensor, tuple(d for dim in dims for d in (1, dim)))
    repeated = broadcast_to(apart, tuple(d for pair in pairs for d in pair))
    return reshape(repeated, tuple(count * dim for count, dim in pairs))


@public
def meshgrid(*arrays: TensorLike, indexing: Literal["xy", "ij"] = "xy") -> list[Tensor]:
    """Return the coordinates of a grid, one tensor for each axis.

    [N], [M], [K], … -> each [N, M, K, …] with "ij"; [M, N, K, …] with "xy".

    Raises:
        ShapeError: A tensor has not one dim.
        ArgumentError: `indexing` is something else.
    """
    demand_one_of("meshgrid", "indexing", indexing, ("xy", "ij"))
    tensors = tensor_list("meshgrid", arrays) if arrays else []
    for tensor in tensors:
        demand(
            tensor.ndim == 1,
            f"meshgrid: wants 1 dim, not {tensor.ndim}",
            {"x": tensor},
            fix="pass the numbers along each axis as a vector",
            error=ShapeError,
        )
    positions = list(range(len(tensors)))
    if indexing == "xy" and len(positions) > 1:
        positions[:2] = [1, 0]
    dims = [tensors[position].shape[0] for position in positions]
    separate = [
        reshape(tensor, [dim if axis == position else 1 for axis, dim in enumerate(dims)])
        for tensor, position in zip(tensors, positions, strict=True)
    ]
    return [broadcast_to(tensor, dims) for tensor in separate]
