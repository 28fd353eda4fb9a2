"""Conditions on values: demanded at once where the values are known, else checked by each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from graphfw.ir import concrete
from graphfw.ir.build import emit
from graphfw.ir.dtype import int64
from graphfw.ir.functions import F
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import converted
from graphfw.ops.composed import demand
from graphfw.ops.shape.gather_scatter import Gather


def checked(
    operands: Mapping[str, Tensor], condition: Callable[..., Any], message: str, *, fix: str
) -> Tensor:
    """Return the first operand, which is there only where a condition holds.

    Args:
        operands: Numeric tensors by their labels.
        condition: Given the operands, or NumPy arrays with their values, returns the bools that
            must all be true.
        message: The error's text, without braces.
        fix: What to do instead.

    Raises:
        ArgumentError: All values are known, and the condition does not hold. A run raises an
            ExecutionError.
    """
    tensors = list(operands.values())
    known = [concrete.value_to_check(tensor) for tensor in tensors]
    if all([value is not None for value in known]):
        demand(bool(np.all(condition(*known))), message, operands, fix=fix)
        return tensors[0]
    # One element is there to be gathered: an index of 1 fails, as any that is out of range.
    index = converted(~F.all(condition(*tensors)), int64)
    zero = emit(Gather(0, f"{message}\n{fix}"), F.positions(1), index)
    return tensors[0] + converted(zero, tensors[0].dtype)
