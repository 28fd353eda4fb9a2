"""Indices of a tensor as one number, that of the flattened tensor, and as one for each dim."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.errors import DTypeError, ShapeError, counted
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import int64
from graphfw.ir.functions import public
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, dims_of
from graphfw.ops.composed import demand
from graphfw.ops.creation.ranges import positions
from graphfw.ops.shape.gather_scatter import Gather

__all__ = ["ravel_multi_index", "unravel_index"]


@public
def unravel_index(indices: TensorLike, /, shape: DimLike | Sequence[DimLike]) -> tuple[Tensor, ...]:
    """Turn flat indices into an index for each dim.  [*A] -> for each dim [*A] int64

    Args:
        indices: The indices, such as `argmax` finds without an axis: integers from 0 on.
        shape: The tensor's shape; dims may be symbolic.

    Raises:
        DTypeError: The indices are no integers.
        ExecutionError: When run: an index is negative, or after the last.

    >>> import graphfw as gf
    >>> x = gf.asarray([[1, 9, 2], [3, 4, 5]])
    >>> [int(i) for i in gf.unravel_index(gf.argmax(x), x.shape)]
    [0, 1]
    """
    dims = dims_of("unravel_index", shape)
    rest = _checked("unravel_index", indices, size_of(dims))
    found = []
    for dim in reversed(dims):
        found.append(rest % dim)
        rest = rest // dim
    return tuple(reversed(found))


@public
def ravel_multi_index(
    indices: Sequence[TensorLike], /, shape: DimLike | Sequence[DimLike]
) -> Tensor:
    """Turn indices of dims into indices of the flattened tensor.  For each dim [*A] -> [*A] int64

    The indices broadcast together.

    Args:
        indices: For each dim integers from 0 on.
        shape: The tensor's shape; dims may be symbolic.

    Raises:
        ShapeError: There are not as many indices as dims, or they don't broadcast.
        DTypeError: The indices are no integers.
        ExecutionError: When run: an index is negative, or not below its dim.

    >>> import graphfw as gf
    >>> gf.ravel_multi_index(([0, 1], [1, 2]), (2, 3))
    Tensor([1, 5], dtype=int64)
    """
    dims = dims_of("ravel_multi_index", shape)
    demand(
        len(indices) == len(dims),
        (
            f"ravel_multi_index: {counted(len(indices), 'index', 'indices')} for "
            f"{counted(len(dims), 'dim')}"
        ),
        fix="give one tensor of indices for each dim",
        error=ShapeError,
    )
    position = as_tensor(0, int64)
    for index, dim in zip(indices, dims, strict=True):
        position = position * dim + _checked("ravel_multi_index", index, dim)
    return position


def _checked(name: str, indices: TensorLike, size: DimLike) -> Tensor:
    """Return indices that a run sees to lie from 0 on below a size."""
    tensor = as_tensor(indices)
    demand(
        tensor.dtype.is_integer,
        f"{name}: indices must be integers, not {tensor.dtype.name}",
        {"indices": tensor},
        fix="convert them: gf.astype(indices, gf.int64)",
        error=DTypeError,
    )
    refusal = f"{name}: an index is {{index}}, and the size {{size}}"
    return emit(Gather(0, refusal), positions(size), tensor)
