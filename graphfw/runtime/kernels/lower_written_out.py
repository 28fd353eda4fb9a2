"""Kernels that are written out along a last axis of few elements.

Vectors run along the other axes. So they are full, where those along rows of 3 elements would be
empty in most lanes; what differs from element to element of a row only, as a channel's mean, is the
same in all lanes; and each element is known to be another one of its row, where rows are rolled.
"""

from __future__ import annotations

from graphfw.ir.dim import DimLike, static
from graphfw.ops.random.draws import RandomBits
from graphfw.ops.shape.gather_scatter import Gather
from graphfw.passes.fuse import Group
from graphfw.passes.fuse_nodes import FusionFacts, Role
from graphfw.passes.narrow_rolls import NARROW, is_narrow_roll
from graphfw.runtime.kernels.lower_loops import Draft, Statement, Stored
from graphfw.runtime.kernels.lower_narrow import are_many
from graphfw.runtime.kernels.lower_steps import joined_axes
from graphfw.runtime.kernels.lower_values import ExpressionBuilder


def is_written_out(group: Group, draft: Draft, facts: FusionFacts) -> bool:
    """Return whether a group computes the elements of a narrow axis one beside the other.

    Args:
        group: The group.
        draft: Its loops otherwise.
        facts: Of its graph.
    """
    if group.rows is not None or len(group.sizes) < 2 or len(draft.outer) < 2:
        return False
    last = group.sizes[-1]
    if not isinstance(last, int) or not 0 < last <= NARROW:
        return False
    if any([facts.role[node] is Role.REDUCE for node in group.nodes]):
        return False
    if any(map(is_narrow_roll, group.nodes)):
        return True
    # Random bits are drawn, and rows gathered, where they lie beside one another.
    if any([isinstance(node.op, RandomBits | Gather) for node in group.nodes]):
        return False
    outer, inner = joined_axes(draft)
    return bool(outer) and inner[-1].extent == last and are_many(outer[-1].extent)


def written_out(group: Group, facts: FusionFacts) -> tuple[Draft, list[DimLike]]:
    """Return the loops of a group over all axes but the last, and sizes that must not be 0."""
    last = static(group.sizes[-1])
    first = ExpressionBuilder(group, facts, number=0)
    # What is the same in all of a row is computed once.
    others = [ExpressionBuilder(group, facts, beside=first, number=n) for n in range(1, last)]
    elements = (first, *others)
    loop: list[Statement] = [bound for values in elements for bound in values.bounds]
    # Neighbours beside one another: they are written together.
    for tensor in group.outputs:
        for values in elements:
            loop += [Stored(*one) for one in values.stores(tensor)]
    nonzero = [size for values in elements for size in values.nonzero]
    return Draft("rows", first.axes[:-1], None, loops=[loop]), nonzero
