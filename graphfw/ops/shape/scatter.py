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
from graphfw.ops.args import TensorLike, as_tensor, converted, ruled, scalar_like
from graphfw.ops.composed import demand
from graphfw.ops.creation.ranges import positions
from graphfw.ops.dtypes import require_numeric, require_ordered
from graphfw.ops.shape.axes import flatten
from graphfw.ops.shape.flip_roll import Flip
from graphfw.ops.shape.gather_scatter import Gather, IndexAdd, IndexSet, Putting, Slice, SliceSet
from graphfw.ops.shape.getitem import IndexStep, along_axis, key_steps
from graphfw.ops.shape.movement import PermuteDims, broadcast_to, permute_dims, reshape
from graphfw.ops.shape.scatter_extremes import IndexExtreme, IndexMax, IndexMin

__all__ = [
    "index_add",
    "index_max",
    "index_min",
    "index_multiply",
    "index_set",
    "put_along_axis",
    "scatter_add",
]


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
def index_multiply(x: TensorLike, key: Any, values: TensorLike, /) -> Tensor:
    """Return x with `x[key]` multiplied by values.  x: [*A], values: broadcast to x[key] -> [*A]

    Where a key names an element twice, it is multiplied by both values.

    Raises:
        ShapeError: The values don't broadcast to x[key].
        DTypeError: The values don't fit x's dtype, or that is bool.
        AxisError, ConcreteValueError: As for `x[key]`.

    >>> import graphfw as gf
    >>> gf.index_multiply(gf.ones(3), [0, 2, 0], 2.0)
    Tensor([4., 1., 2.], dtype=float32)
    """
    tensor = as_tensor(x)
    ruled("index_multiply", tensor, require_numeric, tensor.dtype)
    spread, steps = _fitted("index_multiply", tensor, key, values)
    if not any(isinstance(step.op, Gather) for step in steps):  # no element is named twice
        return _put(lambda: tensor, steps, tensor[key] * spread, IndexSet)
    indices = reshape(positions(tensor.size), tensor.shape)[key]
    factors = F.segment_prod(flatten(spread), flatten(indices), tensor.size)
    return tensor * reshape(converted(factors, tensor.dtype), tensor.shape)


@public
def index_max(x: TensorLike, key: Any, values: TensorLike, /) -> Tensor:
    """Return x with the larger of `x[key]` and values.  x: [*A], values: broadcast -> [*A]

    Where a key names an element twice, the largest counts. Real dtypes; NaN counts as larger. Those
    that tie share the gradient.

    Raises:
        ShapeError: The values don't broadcast to x[key].
        DTypeError: The values don't fit x's dtype, or that is bool or complex.
        AxisError, ConcreteValueError: As for `x[key]`.

    >>> import graphfw as gf
    >>> gf.index_max(gf.ones(3), [0, 2, 0], [3.0, 0.0, 2.0])
    Tensor([3., 1., 1.], dtype=float32)
    """
    return _put_at("index_max", as_tensor(x), key, values, IndexMax)


@public
def index_min(x: TensorLike, key: Any, values: TensorLike, /) -> Tensor:
    """Return x with the smaller of `x[key]` and values.  x: [*A], values: broadcast -> [*A]

    Otherwise as `index_max`; NaN counts as smaller here.

    Raises:
        ShapeError, DTypeError, AxisError, ConcreteValueError: As for `index_max`.

    >>> import graphfw as gf
    >>> gf.index_min(gf.ones(3), [0, 2, 0], [3.0, 0.0, 2.0])
    Tensor([1., 1., 0.], dtype=float32)
    """
    return _put_at("index_min", as_tensor(x), key, values, IndexMin)


@public
def scatter_add(
    x: TensorLike, indices: TensorLike, updates: TensorLike, /, *, axis: int = -1
) -> Tensor:
    """Return x with updates added along an axis, at the indices that `take_along_axis` would read.

    x: [*A, N, *B], indices and updates: [*A, K, *B] -> [*A, N, *B]. Updates at one index add up.

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
    return _put_along("scatter_add", IndexAdd, x, indices, updates, axis)


@public
def put_along_axis(
    x: TensorLike, indices: TensorLike, values: TensorLike, /, *, axis: int = -1
) -> Tensor:
    """Return x with other values along an axis, at the indices that `take_along_axis` would read.

    x: [*A, N, *B], indices and values: [*A, K, *B] -> [*A, N, *B]. Of values at one index the last
    counts, and gets the gradient.

    Raises:
        ShapeError: The shapes don't fit.
        DTypeError: The values don't fit x's dtype, or the indices are no integers.
        AxisError: There is no such axis.
        ExecutionError: When run: an index is out of range.

    >>> import graphfw as gf
    >>> gf.put_along_axis(gf.zeros((2, 3)), [[0], [2]], 1.0)
    Tensor([[1., 0., 0.],
            [0., 0., 1.]], dtype=float32)
    """
    return _put_along("put_along_axis", IndexSet, x, indices, values, axis)


def _put_along(
    name: str,
    op: type[IndexAdd | IndexSet],
    x: TensorLike,
    indices: TensorLike,
    values: TensorLike,
    axis: int,
) -> Tensor:
    tensor, index = as_tensor(x), as_tensor(indices)
    rows = along_axis(name, tensor, index, axis)
    put = _fitting(name, tensor, values)
    indexed = broadcast(*[row.shape for row in rows])
    return emit(op(0), tensor, _spread(name, put, indexed), *rows)


def _put_at(name: str, x: Tensor, key: Any, values: TensorLike, op: type[Putting]) -> Tensor:
    if issubclass(op, IndexExtreme):
        ruled(name, x, require_ordered, x.dtype)
    spread, steps = _fitted(name, x, key, values)
    return _put(lambda: x, steps, spread, op)


def _fitted(name: str, x: Tensor, key: Any, values: TensorLike) -> tuple[Tensor, list[IndexStep]]:
    """Return values as x[key] is, and what the key does to x."""
    steps = key_steps(x, key)
    indexed = steps[-1].result if steps else x.shape
    return _spread(name, _fitting(name, x, values), indexed), steps


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


def _spread(name: str, values: Tensor, indexed: Shape) -> Tensor:
    shapes = (
        f"values {shape_text(values.shape)} don't broadcast to the indexed elements, "
        f"{shape_text(indexed)}"
    )
    demand(
        can_broadcast(values.shape, indexed),
        f"{name}: {shapes}",
        {"values": values},
        fix="each dim of the values must be that of the indexed elements, or 1",
        error=ShapeError,
    )
    return broadcast_to(values, indexed)


def _put(
    x: Callable[[], Tensor],
    steps: Sequence[IndexStep],
    values: Tensor,
    op: type[Putting],
) -> Tensor:
    """Return x with values where the steps lead, taking the steps back on the way out.

    x is a function because replacing all of it does not need it.
    """
    if not steps:
        return values if op is IndexSet else _WHOLE[op](x(), values)
    step, rest = steps[0], steps[1:]
    if isinstance(step.op, Gather):
        named = reshape(values, step.result)
        return emit(op(step.op.axis), x(), named, *step.inputs)
    inner = _put(lambda: emit(step.op, x()), rest, values, op)
    if isinstance(step.op, Slice):
        return emit(SliceSet(*step.op.values), x(), inner)
    if isinstance(step.op, Flip):
        return emit(step.op, inner)
    if isinstance(step.op, PermuteDims):
        back = sorted(range(inner.ndim), key=step.op.axes.__getitem__)
        return permute_dims(inner, back)
    return reshape(inner, step.source)


_WHOLE: dict[type[Putting], Callable[[Tensor, Tensor], Tensor]] = {
    IndexAdd: lambda x, values: x + values,
    IndexMax: lambda x, values: F.maximum(x, values),
    IndexMin: lambda x, values: F.minimum(x, values),
}
"""The same as each op, on all of x at once."""
