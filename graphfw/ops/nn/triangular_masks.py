"""Triangular masks: which tensors are one number up to the diagonal, and another one above it."""

from __future__ import annotations

import numpy as np

from graphfw.ir.constants import constant_array, fill_value
from graphfw.ir.literal import Array
from graphfw.ir.op import ELEMENTWISE, RANDOM, Op
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.creation.ranges import Arange

_DEPTH = 8  # bounds the walk, so that it stays short
_FAR = 1 << 60
_ORDERS = ("greater", "greater_equal", "less", "less_equal")


def is_triangle(x: Tensor, dims: Shape, below: float, above: float) -> bool:
    """Return whether x is seen to be `below` at [i, j] where j <= i, and `above` elsewhere.

    Seen are constants, comparisons of `arange(n)[:, None]` with `arange(m)`, and what is made of
    these and of numbers, element by element.

    Args:
        x: The tensor: 1 or none before its last two dims.
        dims: What its last two dims must be.
        below: The number on and below the diagonal; False is 0.
        above: The number above.
    """
    bounds = _below_and_above(x, dims)
    return bounds is not None and bool(bounds[0] == below and bounds[1] == above)


def _below_and_above(x: Tensor, dims: Shape, depth: int = _DEPTH) -> tuple[Array, Array] | None:
    """Return x's number on and below the diagonal and the one above, if it has just two."""
    value = fill_value(x)
    if value is not None:
        return value, value
    if depth == 0 or x.shape[-2:] != dims or any(d != 1 for d in x.shape[:-2]):
        return None
    array = constant_array(x)
    if array is not None:
        return _constant_triangle(array.reshape(array.shape[-2:]))
    op, inputs = x.node.op, x.node.inputs
    if op.name in _ORDERS and (compared := _compared(op, *inputs)) is not None:
        return compared
    if ELEMENTWISE not in op.traits or RANDOM in op.traits or op.multiple:
        return None
    bounds = [_below_and_above(t, dims, depth - 1) for t in inputs]
    known = [bound for bound in bounds if bound is not None]
    if len(known) < len(bounds):
        return None
    with np.errstate(all="ignore"):
        below, above = (op.eval(np, *values) for values in zip(*known, strict=True))
    return below, above


def _constant_triangle(array: Array) -> tuple[Array, Array] | None:
    """array: [Tq, Tk]"""
    if array.size == 0:
        return None
    below, above = array[0, 0], array[0, -1]
    is_triangle = np.array_equal(array, np.where(np.tri(*array.shape) == 1, below, above))
    return (below, above) if is_triangle else None


def _compared(op: Op, left: Tensor, right: Tensor) -> tuple[Array, Array] | None:
    """Return the two numbers of a comparison of rows' numbers with columns', either way round."""
    by_row = left.ndim > 1 and left.shape[-1] == 1
    row, column = (left, right) if by_row else (right, left)
    if row.ndim < 2 or row.shape[-1] != 1 or any(d != 1 for d in column.shape[:-1]):
        return None
    first, second = _counted_from(row), _counted_from(column)
    if first is None or second is None:
        return None

    def at(difference: int) -> Array:
        """The comparison where the row is so much larger than the column."""
        numbers = np.asarray(difference + first), np.asarray(second)
        result: Array = op.eval(np, *(numbers if by_row else numbers[::-1]))
        return result

    # An order that holds at two differences holds between them, too.
    below, above = at(0), at(-1)
    return (below, above) if below == at(_FAR) and above == at(-_FAR) else None


def _counted_from(x: Tensor) -> int | None:
    """Return n where x is n, n + 1, n + 2, ... along its only dim that is not 1."""
    first = 0
    for _ in range(_DEPTH):
        op, inputs = x.node.op, x.node.inputs
        if op.name in ("reshape", "expand_dims"):
            x = inputs[0]
        elif op.name == "add" and (value := fill_value(inputs[1])) is not None:
            first += int(value)
            x = inputs[0]
        else:
            break
    op = x.node.op
    if not isinstance(op, Arange) or not x.dtype.is_integer:
        return None
    return first + op.start if isinstance(op.start, int) and op.step == 1 else None
