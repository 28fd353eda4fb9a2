"""Compositions of movements: flattening, swapped and moved axes, axes of size 1."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.errors import AxisError, ShapeError, counted
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike
from graphfw.ir.functions import F, public
from graphfw.ir.shape import broadcast, normalize_axes, normalize_axis, size_of
from graphfw.ir.shared_ops import shared
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, axes_in_order, axes_of, ruled
from graphfw.ops.composed import demand
from graphfw.ops.shape.movement import PermuteDims, Reshape, broadcast_to, permute_dims, reshape

__all__ = [
    "broadcast_arrays",
    "expand_dims",
    "flatten",
    "matrix_transpose",
    "moveaxis",
    "squeeze",
    "swapaxes",
]


@public
def flatten(x: TensorLike, /, start: int = 0, end: int = -1) -> Tensor:
    """Join the dims from `start` to `end`, both included.  x: [*A] -> [*A with one dim for those]

    A 0-d tensor becomes [1].

    Raises:
        AxisError: There is no such axis, or `end` lies before `start`.

    >>> import graphfw as gf
    >>> gf.flatten(gf.zeros((2, 3, 4)), 1).shape
    (2, 12)
    """
    tensor = as_tensor(x)
    ndim = max(tensor.ndim, 1)
    first = ruled("flatten", tensor, normalize_axis, start, ndim)
    last = ruled("flatten", tensor, normalize_axis, end, ndim)
    demand(
        first <= last,
        f"flatten: end={end} lies before start={start}",
        {"x": tensor},
        fix="name the first and the last of the dims to join",
        error=AxisError,
    )
    dims = tensor.shape
    if first == last and dims:
        return tensor
    return reshape(tensor, (*dims[:first], size_of(dims[first : last + 1]), *dims[last + 1 :]))


@public
def matrix_transpose(x: TensorLike, /) -> Tensor:
    """Exchange the last two dims.  x: [*B, M, N] -> [*B, N, M]

    Raises:
        AxisError: There are fewer than two.
    """
    tensor = as_tensor(x)
    last = tensor.ndim - 1
    if last < 1:
        return swapaxes(tensor, -2, -1)  # refuses it
    return emit(shared(PermuteDims, (*range(last - 1), last, last - 1)), tensor)


@public
def transpose_2d(x: Tensor) -> Tensor:
    """Exchange the dims of a matrix: what `x.T` means.  x: [M, N] -> [N, M]

    Raises:
        ShapeError: x has not two dims; other libraries disagree on what `.T` is then.
    """
    demand(
        x.ndim == 2,
        f"x.T: wants 2 dims, and {x.type} has {x.ndim}",
        {"x": x},
        fix="use x.mT for the last two dims, or gf.permute_dims",
        error=ShapeError,
    )
    return permute_dims(x, (1, 0))


@public
def swapaxes(x: TensorLike, /, axis1: int, axis2: int) -> Tensor:
    """Exchange two dims.  x: [*A, M, *B, N, *C] -> [*A, N, *B, M, *C]

    Raises:
        AxisError: There is no such axis.
    """
    tensor = as_tensor(x)
    first = ruled("swapaxes", tensor, normalize_axis, axis1, tensor.ndim)
    second = ruled("swapaxes", tensor, normalize_axis, axis2, tensor.ndim)
    order = list(range(tensor.ndim))
    order[first], order[second] = second, first
    return permute_dims(tensor, order)


@public
def moveaxis(
    x: TensorLike, source: int | Sequence[int], destination: int | Sequence[int], /
) -> Tensor:
    """Move dims to other positions; the rest keep their order.  x: [*A] -> [*A in another order]

    Raises:
        AxisError: There is no such axis, or one stands twice.
        ShapeError: There are not as many sources as destinations.

    >>> import graphfw as gf
    >>> gf.moveaxis(gf.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    tensor = as_tensor(x)
    sources = axes_in_order("moveaxis", tensor, source)
    axis_indices = axes_in_order("moveaxis", tensor, destination)
    demand(
        len(sources) == len(axis_indices),
        f"moveaxis: {counted(len(sources), 'source')} for "
        f"{counted(len(axis_indices), 'destination')}",
        {"x": tensor},
        fix="give each dim that moves one position to go to",
        error=ShapeError,
    )
    order = [axis for axis in range(tensor.ndim) if axis not in sources]
    for axis_index, axis in sorted(zip(axis_indices, sources, strict=True)):
        order.insert(axis_index, axis)
    return permute_dims(tensor, order)


@public
def broadcast_arrays(*arrays: TensorLike) -> list[Tensor]:
    """Repeat each tensor to the shape that all broadcast to.  each [*A] -> [*B]

    Raises:
        ShapeError: The shapes don't broadcast.
    """
    tensors = [as_tensor(x) for x in arrays]
    shapes = [t.shape for t in tensors]
    dims = ruled("broadcast_arrays", tensors[0] if tensors else None, broadcast, *shapes)
    return [broadcast_to(t, dims) for t in tensors]


@public
def sum_to(x: Tensor, shape: Sequence[DimLike]) -> Tensor:
    """Sum over the dims that broadcasting `shape` to x's shape adds: its gradient.  x -> shape"""
    wanted = tuple(shape)
    if x.shape == wanted:
        return x
    extra = x.ndim - len(shape)
    stretched = [extra + i for i, dim in enumerate(shape) if dim == 1 and x.shape[extra + i] != 1]
    total = F.sum(x, axis=(*range(extra), *stretched), keepdims=True)
    return emit(shared(Reshape, wanted), total) if extra else total


@public
def expand_dims(x: TensorLike, /, axis: int | Sequence[int] = 0) -> Tensor:
    """Add dims of size 1 at `axis` of the result.  x: [*A] -> [*A with 1]

    Raises:
        AxisError: `axis` is out of range, or one stands twice.
    """
    tensor = as_tensor(x)
    rank = tensor.ndim + (len(axis) if isinstance(axis, (tuple, list)) else 1)
    dims = list(tensor.shape)
    for axis_index in ruled("expand_dims", tensor, normalize_axes, axis, rank):
        dims.insert(axis_index, 1)
    return reshape(tensor, tuple(dims))


@public
def squeeze(x: TensorLike, /, axis: int | Sequence[int]) -> Tensor:
    """Remove dims of size 1.  x: [*A] -> [*A without those at axis]

    Raises:
        ShapeError: A dim there is not 1.
    """
    tensor = as_tensor(x)
    axes = axes_of("squeeze", tensor, axis)
    for axis_index in axes:
        size = tensor.shape[axis_index]
        demand(
            size == 1,
            f"squeeze: dim {axis_index} has size {size}, not 1",
            {"x": tensor},
            fix="only dims of size 1 go away: take one index of it, or reduce over it",
            error=ShapeError,
        )
    return reshape(tensor, tuple(d for i, d in enumerate(tensor.shape) if i not in axes))
