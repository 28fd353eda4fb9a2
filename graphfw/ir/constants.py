"""Values of tensors that are known before anything runs."""

from __future__ import annotations

from graphfw.ir.literal import Array
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Tensor

_SPREADS = ("broadcast_to", "permute_dims", "reshape")
_SPREAD_STEPS = 8  # bounds the walk, so that a pass stays linear in the graph's size
_FILL_SIZE = 1024


def constant_array(tensor: Tensor) -> Array | None:
    """Return the array of a `constant`, None for anything else."""
    op = tensor.node.op
    return op.value.array if isinstance(op, ConstantOp) else None


def fill_value(tensor: Tensor) -> Array | None:
    """Return, 0-d, the value that all elements have, bit for bit, where that is easily seen.

    Sees through what spreads a constant; looks at no more than 1024 elements.
    """
    for _ in range(_SPREAD_STEPS):
        if tensor.node.op.name not in _SPREADS:
            break
        tensor = tensor.node.inputs[0]
    array = constant_array(tensor)
    if array is None or not 0 < array.size <= _FILL_SIZE:
        return None
    first: Array = array[(0,) * array.ndim].reshape(())
    if array.size > 1 and array.tobytes() != first.tobytes() * array.size:
        return None
    return first
