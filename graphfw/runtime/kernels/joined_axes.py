"""Adjacent axes of a kernel that become one loop."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from graphfw.ir.affine import LoopVariable
from graphfw.ir.dim import DimLike


class Joined(NamedTuple):
    """Adjacent axes that are run through as one: all accesses take them in the same order.

    Attributes:
        last: The fastest of them, by whose stride accesses go on.
        extent: The product of their extents.
    """

    last: LoopVariable
    extent: DimLike


def joined(
    axes: Sequence[LoopVariable],
    fixed: Collection[LoopVariable],
    strides: Sequence[Mapping[LoopVariable, DimLike]],
) -> list[Joined]:
    """Return axes, adjacent ones as one wherever all accesses allow it.

    Args:
        axes: The axes, the slowest first.
        fixed: Those that stay by themselves.
        strides: Of each access.
    """
    result: list[Joined] = []
    for axis in reversed(axes):
        if result and axis not in fixed and result[0].last not in fixed:
            last, extent = result[0]
            if all(s.get(axis, 0) == s.get(last, 0) * extent for s in strides):
                result[0] = Joined(last, axis.extent * extent)
                continue
        result.insert(0, Joined(axis, axis.extent))
    return result
