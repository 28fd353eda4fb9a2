"""Putting values into a tensor: a new tensor, in which the elements that a key points at differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphfw.errors import DTypeError, ShapeError
from graphfw.ir import ambient
from graphfw.ir.build import emit
from graphfw.ir.concrete import describe
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import promote, promote_scalar
from graphfw.ir.functions import F, public
from graphfw.ir.literal import PYTHON_SCALARS
from graphfw.ir.shape import broadcast, can_broadcast, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, converted, scalar_like
from graphfw.ops.composed import demand
from graphfw.ops.indexing import Step, along_axis, key_steps
from graphfw.ops.movement import Flip, PermuteDims, broadcast_to, permute_dims, reshape
from graphfw.ops.selection import Gather, IndexAdd, IndexSet, Slice, SliceSet

__all__ = ["index_add", "index_set", "scatter_add"]


@public
def index_set(x: TensorLike, key: Any, values: TensorLike, /) -> Tensor:
    """Return x with `x[key]` replaced by values.  x: [*A], values: broadcast to x[key] -> [*A]

    Where a key names an element twice, the last of its values counts, and gets the gradient.

    Raises:
        ShapeError: The values don't broadcast to x[key].
        DTypeError: The values don't fit x's dtype.
        AxisError, ConcreteValueError: As for `x[key]`.

    >>> import graphfw as gf
    >>> gf.index_set(gf.zeros(4), slice(1, 3), [5, 6])
    Tensor([0., 5., 6., 0.], dtype=float32)
    """
    return _put_at("index_set", as_tensor(x), key, values, IndexSet)


@public
def index_add(x: TensorLike, key: Any, values: TensorLike, /) -> Tensor:
    """Return x with values added to `x[key]`.  x: [*A], values: broadcast to x[key] -> [*A]

    Where a key names an element twice, both values are added, in the same order in every run.

    Raises:
        ShapeError: The values don't broadcast to x[key].
        DTypeError: The values don't fit x's dtype.
        AxisError, ConcreteValueError: As for `x[key]`.

    >>> import graphfw as gf
    >>> gf.index_add(gf.zeros(3), [0, 2, 0], 1.0)
    Tensor([2., 0., 1.], dtype=float32)
    """
    return _put_at("index_add", as_tensor(x), key, values, IndexAdd)


@public
def scatter_add(
    x: TensorLike, indices: TensorLike, updates: TensorLike, /, *, axis: int = -1
) -> Tensor:
    """Return x with updates added along an axis, at the places that `take_along_axis` would read.

    x: [*A, N, *B], indices and updates: [*A, K, *B] -> [*A, N, *B]. Updates at one place add up.

    Raises:
        ShapeError: The shapes don't fit.
        DTypeError: The updates don't fit x's dtype, or the indices are no integers.
        AxisError: There is no such axis.
        ExecutionError: When run: an index is out of range.

    >>> import graphfw as gf
    >>> gf.scatter_add(gf.zeros((2, 3)), [[0, 0], [2, 1]], [[1.0, 2.0], [3.0, 4.0]])
    Tensor([[3., 0., 0.],
            [0., 4., 3.]], dtype=float32)
    """
    tensor, index = as_tensor(x), as_tensor(indices)
    rows = along_axis("scatter_add", tensor, index, axis)
    added = _fitting("scatter_add", tensor, updates)
    places = broadcast(*[row.shape for row in rows])
    return emit(IndexAdd(0), tensor, _spread("scatter_add", added, places), *rows)


def _put_at(
    name: str, x: Tensor, key: Any, values: TensorLike, op: type[IndexAdd | IndexSet]
) -> Tensor:
    steps = key_steps(x, key)
    places = steps[-1].result if steps else x.shape
    spread = _spread(name, _fitting(name, x, values), places)
    return _put(lambda: x, steps, spread, op)


def _fitting(name: str, x: Tensor, values: TensorLike) -> Tensor:
    """Return values in x's dtype, which must be able to hold them."""
    if isinstance(values, (*PYTHON_SCALARS, Dim)):
        scalar = 0 if isinstance(values, Dim) else values
        fits = promote_scalar(x.dtype, scalar, ambient.get_default_dtype()) is x.dtype
        given, tensor = repr(values), scalar_like(name, values, x.dtype) if fits else None
    else:
        tensor = F.asarray(values)
        fits, given = promote(x.dtype, tensor.dtype) is x.dtype, str(tensor.type)
    if not fits or tensor is None:
        raise DTypeError(
            f"{name}: {given} does not fit x, which is {x.dtype.name}",
            operands=[describe("x", x)],
            fix="convert one of them with gf.astype",
        )
    return converted(tensor, x.dtype)


def _spread(name: str, values: Tensor, places: Shape) -> Tensor:
    shapes = (
        f"values {shape_text(values.shape)} don't broadcast to the places, {shape_text(places)}"
    )
    demand(
        can_broadcast(values.shape, places),
        f"{name}: {shapes}",
        {"values": values},
        fix="each dim of the values must be that of the places, or 1",
        error=ShapeError,
    )
    return broadcast_to(values, places)


def _put(
    x: Callable[[], Tensor],
    steps: Sequence[Step],
    values: Tensor,
    op: type[IndexAdd | IndexSet],
) -> Tensor:
    """Return x with values where the steps lead, taking the steps back on the way out.

    x is a function because replacing all of it does not need it.
    """
    if not steps:
        return x() + values if op is IndexAdd else values
    step, rest = steps[0], steps[1:]
    if isinstance(step.op, Gather):
        named = reshape(values, step.result)
        return emit(op(step.op.axis), x(), named, *step.inputs)
    part = _put(lambda: emit(step.op, x()), rest, values, op)
    if isinstance(step.op, Slice):
        return emit(SliceSet(*step.op.values), x(), part)
    if isinstance(step.op, Flip):
        return emit(step.op, part)
    if isinstance(step.op, PermuteDims):
        back = sorted(range(part.ndim), key=step.op.axes.__getitem__)
        return permute_dims(part, back)
    return reshape(part, step.source)
