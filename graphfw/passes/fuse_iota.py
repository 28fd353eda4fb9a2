"""Iota: tensors whose elements count, 0, 1, 2, …"""

from __future__ import annotations

import numpy as np

from graphfw.ir.affine import Affine, Index
from graphfw.ir.constants import constant_array
from graphfw.ir.tensor import Tensor
from graphfw.ops.creation.ranges import Arange

_RANGE = 4096
"""Constants of so many elements at most are looked at to see whether they are 0, 1, 2, …"""


def iota_value(root: Tensor, at: Index) -> Affine | None:
    """Return the value of a range's element by its index; None for other tensors."""
    op = root.node.op
    if isinstance(op, Arange) and root.dtype.is_integer:
        return at[0] * op.step + op.start
    array = constant_array(root)
    if array is None or not root.dtype.is_integer or not 1 < array.size <= _RANGE:
        return None
    if array.size != max(array.shape) or not np.array_equal(array.ravel(), np.arange(array.size)):
        return None
    along: int = array.shape.index(array.size)
    return at[along]
