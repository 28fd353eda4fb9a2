"""Arrays that are broadcast against each other, with as few dims as can be."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import broadcast
from graphfw.runtime.kernels.steps import View


def in_common(views: Sequence[View]) -> tuple[list[DimLike], list[list[DimLike]]]:
    """Return the dims that views have in common, and how each view lies along these.

    Dims that are contiguous in all of them are one; strides are 0 where a view is broadcast.
    """
    named = broadcast(*[view.shape for view in views])
    return _merged(named, [_strides(view, len(named)) for view in views])


def _strides(view: View, ndim: int) -> list[DimLike]:
    """Return the strides of a view as one of more dims; 0 where it is broadcast."""
    own = [0 if d == 1 else s for d, s in zip(view.shape, view.strides, strict=True)]
    return [*[0] * (ndim - len(own)), *own]


def _merged(
    dims: Sequence[DimLike], lying: Sequence[Sequence[DimLike]]
) -> tuple[list[DimLike], list[list[DimLike]]]:
    """Join dims that are contiguous in all arrays; return dims, and strides of each array."""
    found: list[tuple[DimLike, list[DimLike]]] = []
    for axis, dim in enumerate(dims):
        strides = [array[axis] for array in lying]
        if dim == 1:
            continue
        if found and all(a == b * dim for a, b in zip(found[-1][1], strides, strict=True)):
            found[-1] = (found[-1][0] * dim, strides)
        else:
            found.append((dim, strides))
    return [dim for dim, _ in found], [
        [strides[number] for _, strides in found] for number in range(len(lying))
    ]
