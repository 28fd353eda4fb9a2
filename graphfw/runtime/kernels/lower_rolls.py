"""Kernels of narrow rolls, written out along the narrow axis; see `passes.narrow_rolls`."""

from __future__ import annotations

from graphfw.ir.dim import DimLike
from graphfw.passes.fuse import Group
from graphfw.passes.fuse_nodes import FusionFacts
from graphfw.passes.narrow_rolls import NARROW, is_narrow_roll
from graphfw.runtime.kernels.lower_loops import Draft, Statement, Stored
from graphfw.runtime.kernels.lower_values import ExpressionBuilder, loop_variables


def is_written_out(group: Group) -> bool:
    """Whether a group computes the elements of a narrow axis one beside the other."""
    if group.rows is not None or len(group.sizes) < 2 or not any(map(is_narrow_roll, group.nodes)):
        return False
    last = group.sizes[-1]
    return isinstance(last, int) and last <= NARROW


def written_out(group: Group, facts: FusionFacts) -> tuple[Draft, list[DimLike]]:
    """Return the loops of a group over all axes but the last, and sizes that must not be 0."""
    axes, last = loop_variables(group), group.sizes[-1]
    assert isinstance(last, int)
    elements = [ExpressionBuilder(group, facts, place=(axes, n)) for n in range(last)]
    loop: list[Statement] = [bound for values in elements for bound in values.bounds]
    # Neighbours beside one another: they are written together.
    for tensor in group.outputs:
        for values in elements:
            loop += [Stored(*one) for one in values.stores(tensor)]
    nonzero = [size for values in elements for size in values.nonzero]
    return Draft("rows", axes[:-1], None, loops=[loop]), nonzero
