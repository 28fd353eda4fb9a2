"""Reductions of few elements each, which are written out: `a[0] + a[1] + a[2]` in place of a loop.

Where the elements are computed from tensors of fewer axes, as are the coordinates' differences of
all pairs of points, no tensor of all of them is made: they are computed where they are reduced,
and the result is a function of elements like that of an elementwise node. So it may be in one group
with a reduction of its own: the sum over all points of a function of the distances.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from graphfw.ir.affine import Index, LoopVariable, broadcast_index
from graphfw.ir.dim import static
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor

_FEW = 16
"""The most elements of a reduction that is written out."""

_CALLS = 128
"""The most elements of nodes, all in all: the code grows with them."""


class Short(NamedTuple):
    """A reduction that is written out.

    Attributes:
        inside: The nodes that are computed where it is computed.
        reads: What these read, and which element of it; None where that depends on which of the
            elements is computed.
    """

    inside: tuple[Node, ...]
    reads: tuple[tuple[Tensor, Index | None], ...]


def is_short(x: Tensor, gone: Iterable[int]) -> bool:
    """Return whether a reduction of a tensor over these axes has few elements, but several."""
    count = size_of([x.shape[axis] for axis in gone])
    return isinstance(count, int) and 1 < count <= _FEW


def written_out(
    x: Tensor,
    index: Index,
    gone: frozenset[LoopVariable],
    follow: Callable[[Tensor, Index], tuple[Tensor, Index | None]],
    can_repeat: Callable[[Node, Collection[Node]], bool],
) -> Short | None:
    """Return how a reduction is written out, or None where that is not worth it.

    Args:
        x: What is reduced.
        index: Of its elements.
        gone: The variables that the reduction is over.
        follow: Goes beneath views.
        can_repeat: Whether a node may be computed here too, given those that are.
    """
    width = sum([bool(position.terms) for position in index])
    count = static(size_of([variable.extent for variable in gone]))
    inside: dict[Node, None] = {}
    reads: dict[tuple[Tensor, Index | None], None] = {}
    seen: set[tuple[Tensor, Index]] = set()
    todo = [(x, index)]
    while todo:
        root, at = follow(*todo.pop())
        if at is None:
            return None
        if (root, at) in seen:
            continue
        seen.add((root, at))
        variables = {variable for position in at for variable in position.terms}
        if not variables & gone:
            reads[root, at] = None
        elif can_repeat(root.node, inside):
            inside[root.node] = None
            if count * len(inside) > _CALLS:
                return None
            todo.extend([(t, broadcast_index(at, t.shape)) for t in root.node.inputs])
        elif len(variables) < width:
            reads[root, None] = None
        else:
            return None
    return Short(tuple(inside), tuple(reads)) if inside else None
