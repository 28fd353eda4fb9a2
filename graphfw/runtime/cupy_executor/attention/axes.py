"""The dims of attention: operands' strides along them, and as few leading dims as possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import View

_Size = TypeVar("_Size", int, DimLike)


def strides_of(view: View, ndim: int) -> tuple[DimLike, ...]:
    """Return a stride for each of some dims; 0 where the view is broadcast."""
    missing = ndim - len(view.shape)
    pairs = zip(view.shape, view.strides, strict=True)
    return (*[0] * missing, *[0 if dim == 1 else stride for dim, stride in pairs])


def joined(
    lead: Sequence[_Size], strides: Sequence[Sequence[_Size]]
) -> tuple[list[_Size], list[list[_Size]]]:
    """Return leading dims, joined as far as possible, and each operand's strides along them."""
    dims: list[_Size] = []
    along: list[list[_Size]] = [[] for _ in strides]
    for axis, dim in enumerate(lead):
        if dim == 1:
            continue
        own = [one[axis] for one in strides]
        if dims and all([s[-1] == step * dim for s, step in zip(along, own, strict=True)]):
            dims[-1] = dims[-1] * dim
            for s, step in zip(along, own, strict=True):
                s[-1] = step
            continue
        dims.append(dim)
        for s, step in zip(along, own, strict=True):
            s.append(step)
    return dims, along


def knows_lengths(node: Node) -> bool:
    """Return whether the numbers of queries and of keys are known before a run."""
    return all([isinstance(x.shape[-2], int) for x in node.inputs[:2]])
