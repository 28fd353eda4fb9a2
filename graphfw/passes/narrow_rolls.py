"""Rolls along a last axis of few elements, such as those of a cross product.

They are functions of elements, computed where they are read. Kernels with them are written out
along that axis, so that each element is known to be another one of its row.
"""

from __future__ import annotations

from graphfw.ir.tensor import Node
from graphfw.ops.shape.flip_roll import Roll

NARROW = 4
"""The most elements of an axis that is rolled in this way."""


def is_narrow_roll(node: Node) -> bool:
    """Return whether a node rolls the last axis only, which is known to have few elements."""
    op = node.op
    if not isinstance(op, Roll) or len(op.axes) != 1 or not isinstance(op.shifts[0], int):
        return False
    shape, (axis,) = node.types[0].shape, op.axes
    is_last = axis % len(shape) == len(shape) - 1
    return is_last and isinstance(shape[-1], int) and 1 < shape[-1] <= NARROW
