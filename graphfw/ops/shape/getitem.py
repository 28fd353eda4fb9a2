"""`x[key]`: what keys mean, and the functions that pick elements by other means.

A key is translated into steps, each one op. `getitem` takes them forward; `scatter` also takes them
back, to put values where a key points.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import (
    ArgumentError,
    AxisError,
    ConcreteValueError,
    DTypeError,
    GraphfwError,
    ShapeError,
    counted,
)
from graphfw.ir import ambient
from graphfw.ir.build import constant, emit
from graphfw.ir.concrete import describe, is_concrete, value_of
from graphfw.ir.dim import (
    Dim,
    DimLike,
    always_ge,
    always_le,
    dim_max,
    dim_min,
    substitute,
    symbol,
)
from graphfw.ir.dtype import DTypeLike, int64
from graphfw.ir.functions import public
from graphfw.ir.op import Op
from graphfw.ir.shape import Requirement, broadcast, normalize_axis, permuted, shape_text
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, converted, dims_of, dtype_or, is_whole, ruled
from graphfw.ops.composed import demand
from graphfw.ops.creation.constructors import asarray
from graphfw.ops.creation.ranges import positions
from graphfw.ops.data_dependent.measuring_ops import NonZero, measure
from graphfw.ops.dtypes import INDICES_FIX
from graphfw.ops.shape.axes import expand_dims
from graphfw.ops.shape.flip_roll import Flip
from graphfw.ops.shape.gather_scatter import Gather, Slice, out_of_range
from graphfw.ops.shape.movement import PermuteDims, Reshape, reshape

__all__ = ["getitem", "nonzero", "one_hot", "take_along_axis"]


class IndexStep(NamedTuple):
    """One op of what a key means, with its inputs besides x and the shapes before and after."""

    op: Op
    inputs: tuple[Tensor, ...]
    source: Shape
    result: Shape


@public
def getitem(x: TensorLike, key: Any, /) -> Tensor:
    """Return `x[key]`, as NumPy does.

    A key is an int, a slice, None, `...`, an integer or boolean tensor, array or list, or a tuple
    of these; or a 0-d boolean tensor only, for x or nothing along a new first axis. Bounds of
    slices may be symbolic dims: those count from the front and stop at the tensor's ends. Dims of
    the result come out symbolic where x's are: `x[1:]` and `x[:-1]` have equal shapes. How many
    elements a boolean tensor selects is a dim that each run finds out: see `nonzero`.

    Raises:
        AxisError: An index is out of range, or there are more indices than dims.
        DTypeError: An index is no integer.
        ConcreteValueError: A slice's bound is known only when the graph runs; a boolean tensor is
            in the body of a loop, a vmap, ….
        ExecutionError: When run: an index is out of range.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", 8), name="x")
    ...     x[1:, ::2].shape, x[:-1, :4].shape
    ((max(batch - 1, 0), 4), (max(batch - 1, 0), 4))
    """
    tensor = as_tensor(x)
    result = tensor
    for step in key_steps(tensor, key):
        result = emit(step.op, result, *step.inputs)
    return result


def key_steps(x: Tensor, key: Any) -> list[IndexStep]:
    """Return the ops of a key on x, one after the other; those that do nothing are left out."""
    if isinstance(key, Tensor) and key.ndim == 0 and key.dtype.is_bool:
        return _chosen(x, key)
    items = _aligned(x, key if isinstance(key, tuple) else (key,))
    ranges = [_range(x, item) for item in items if item.axis is not None]
    shape = tuple(r.length for r in ranges)
    steps: list[IndexStep] = []
    if any(r.start != 0 or r.step != 1 for r in ranges) or shape != x.shape:
        starts, lengths, strides, _ = zip(*ranges, strict=True)
        steps.append(IndexStep(Slice(starts, lengths, strides), (), x.shape, shape))
    flips = tuple(axis for axis, r in enumerate(ranges) if r.flipped)
    if flips:
        steps.append(IndexStep(Flip(flips), (), shape, shape))

    named: Shape | None = None
    if any(item.is_array for item in items):
        named = ruled("getitem", x, broadcast, *[i.value.shape for i in items if i.is_array])
        steps.extend(_gathering(items, shape, named))
        shape = steps[-1].result
    layout = _layout(items, [r.length for r in ranges], named)
    if layout != shape:
        steps.append(IndexStep(Reshape(layout), (), shape, layout))
    return steps


class _Item(NamedTuple):
    """One entry of a key.

    Attributes:
        value: None, `...`, a slice, an int, a dim, or a tensor of integers.
        axis: The axis of x that it is for, if it is for one.
        mask_dim: The size of the boolean array's dim that the integers were made of.
    """

    value: Any
    axis: int | None = None
    mask_dim: DimLike | None = None

    @property
    def is_array(self) -> bool:
        """Whether it is a tensor of integers."""
        return isinstance(self.value, Tensor)

    @property
    def is_advanced(self) -> bool:
        """Whether NumPy counts it among the indices that arrays belong to: ints do."""
        return self.axis is not None and not isinstance(self.value, slice)


def _aligned(x: Tensor, key: tuple[Any, ...]) -> list[_Item]:
    """Return a key's entries, each with its axis, and after `...` the slices that it means."""
    items = [item for entry in key for item in _items(x, entry)]
    dots = [i for i, item in enumerate(items) if item.value is Ellipsis]
    one_at_most = len(dots) <= 1
    _demand(x, one_at_most, "a key has one `...` at most", AxisError, "write : for single dims")
    taken = sum(1 for item in items if item.value is not None) - len(dots)
    _demand(
        x,
        taken <= x.ndim,
        f"too many indices: {taken} for {counted(x.ndim, 'dim')}",
        AxisError,
        f"give {x.ndim} at most; None adds a dim",
    )
    position = dots[0] + 1 if dots else len(items)
    items[position:position] = [_Item(slice(None))] * (x.ndim - taken)
    axes = iter(range(x.ndim))
    aligned = [
        item if item.value is None or item.value is Ellipsis else item._replace(axis=next(axes))
        for item in items
    ]
    for item in aligned:
        _check_array(x, item)
    return aligned


def _demand(x: Tensor, condition: bool, message: str, error: type[GraphfwError], fix: str) -> None:
    demand(condition, f"getitem: {message}", {"x": x}, fix=fix, error=error)


def _range_fix(dim: DimLike) -> str:
    return f"use -{dim} to {dim - 1}" if isinstance(dim, int) and dim else f"stay below {dim}"


_INDEX_FIX = "use ints, slices, None, ..., or tensors of integers or bools"


def _items(x: Tensor, entry: Any) -> list[_Item]:
    """Return the items of an entry: one, or for a boolean array one for each of its dims."""
    if entry is None or entry is Ellipsis or isinstance(entry, (slice, Dim)):
        return [_Item(entry)]
    is_bool = isinstance(entry, (bool, np.bool_))
    _demand(x, not is_bool, f"{entry} is no index", DTypeError, "use gf.where for a condition")
    if isinstance(entry, (int, np.integer)):
        return [_Item(int(entry))]
    _demand(x, not isinstance(entry, str), f"{entry!r} is no index", DTypeError, _INDEX_FIX)
    empty = isinstance(entry, (list, tuple)) and len(entry) == 0
    index = asarray(entry, dtype=int64 if empty else None)
    if index.dtype.is_bool:
        return _of_mask(x, index)
    what = f"{entry}" if isinstance(entry, (float, complex)) else f"a tensor {index.type}"
    demand(
        index.dtype.is_integer,
        f"getitem: {what} is no index",
        {"x": x, "index": index},
        fix=INDICES_FIX,
        error=DTypeError,
    )
    return [_Item(index)]


def _of_mask(x: Tensor, mask: Tensor) -> list[_Item]:
    _demand(x, mask.ndim > 0, "a 0-d boolean in a tuple is no index", DTypeError, "use gf.where")
    found = zip(nonzero(mask), mask.shape, strict=True)
    return [_Item(index, mask_dim=dim) for index, dim in found]


def _chosen(x: Tensor, mask: Tensor) -> list[IndexStep]:
    """Return the ops of a 0-d boolean only: a new axis, with x or with nothing along it."""
    (index,) = nonzero(reshape(mask, (1,)))
    lifted = (1, *x.shape)
    result = (*index.shape, *x.shape)
    return [
        IndexStep(Reshape(lifted), (), x.shape, lifted),
        IndexStep(Gather(0), (index,), lifted, result),
    ]


def _check_array(x: Tensor, item: _Item) -> None:
    """See that an array fits its axis, as far as that is known."""
    if item.axis is None or not item.is_array:
        return
    dim = x.shape[item.axis]
    if item.mask_dim is not None:
        message = f"a boolean index of size {item.mask_dim} for dim {item.axis} of size {dim}"
        fix = "a boolean index has the sizes of the dims that it is for"
        # As in NumPy, an empty mask selects nothing, of whatever size.
        _demand(x, item.mask_dim in (0, dim), message, AxisError, fix)
    op = item.value.node.op
    if isinstance(op, ConstantOp) and isinstance(dim, int):
        values = op.value.array
        wrong = values[(values < -dim) | (values >= dim)]
        if wrong.size:
            raise AxisError(
                f"getitem: {out_of_range(int(wrong[0]), item.axis, dim)}",
                operands=[describe("x", x)],
                fix=_range_fix(dim),
            )


class _Range(NamedTuple):
    """The elements that an item picks along its axis: `length` from `start` on, or in reverse."""

    start: DimLike
    length: DimLike
    step: int
    flipped: bool


def _range(x: Tensor, item: _Item) -> _Range:
    assert item.axis is not None
    dim = x.shape[item.axis]
    value = item.value
    if isinstance(value, slice):
        return _slice_range(x, value, dim)
    if isinstance(value, Tensor):
        return _Range(0, dim, 1, False)
    if isinstance(value, int) and isinstance(dim, int):
        inside = -dim <= value < dim
        _demand(x, inside, out_of_range(value, item.axis, dim), AxisError, _range_fix(dim))
    from_end = isinstance(value, int) and value < 0
    return _Range(dim + value if from_end else value, 1, 1, False)


_LONGEST = 2**48
"""A step that leads out of every array in memory: such a slice has one element, or none."""


def _slice_range(x: Tensor, key: slice, dim: DimLike) -> _Range:
    """Return the elements of a slice, as Python's `slice.indices` does, for a dim of any kind."""
    start, stop = _bound(x, key.start), _bound(x, key.stop)
    step = 1 if key.step is None else _bound(x, key.step)
    is_formula = isinstance(dim, Dim) and not always_ge(dim, 0)
    if is_formula and not isinstance(start, Dim) and not isinstance(stop, Dim):
        # What there is has a size >= 0, though its formula, such as n - 1, does not show it.
        found = _slice_range(x, key, symbol("size"))
        start, length = (substitute(d, {"size": dim}) for d in (found.start, found.length))
        return found._replace(start=start, length=length)
    is_known = isinstance(step, int) and step != 0
    message = f"step {step} of a slice must be an int other than 0"
    _demand(x, is_known, message, ArgumentError, "for other steps use gf.take with gf.arange")
    # What steps lead over is counted in int64: longer ones than the dim do the same as that.
    longest = max(dim, 1) if isinstance(dim, int) else _LONGEST
    step = max(-longest, min(step, longest))
    if step > 0:
        # The position before which nothing is: one of `lows` is it, the largest.
        lows = (0,) if start is None else _positions(start, dim, 0)
        high = dim if stop is None else dim_min(dim_max(*_positions(stop, dim, 0)), dim)
        length = _count(dim_min(*(high - low for low in lows)), step)
        return _Range(dim_max(*lows), length, 1 if step == _LONGEST else step, False)
    high = dim - 1 if start is None else dim_min(dim_max(*_positions(start, dim, -1)), dim - 1)
    lows = (-1,) if stop is None else _positions(stop, dim, -1)
    length = _count(dim_min(*(high - low for low in lows)), -step)
    step = -1 if step == -_LONGEST else step
    return _Range(high + (length - 1) * step, length, -step, True)


def _count(distance: DimLike, step: int) -> DimLike:
    if step == _LONGEST:
        return dim_max(0, dim_min(1, distance))
    return dim_max(0, (distance + step - 1) // step)


def _positions(bound: DimLike, dim: DimLike, least: int) -> tuple[DimLike, ...]:
    """Return candidates for a bound's position, the largest of which it is."""
    if isinstance(bound, int):
        return (bound,) if bound >= 0 else (dim + bound, least)
    return (bound,) if always_ge(bound, 0) else (bound, 0)


def _bound(x: Tensor, bound: Any) -> Any:
    """Return a bound of a slice as None, an int or a dim."""
    if isinstance(bound, Tensor):
        _demand(
            x,
            is_concrete(bound),
            "the bounds of a slice decide a shape, so they can't be tensors",
            ConcreteValueError,
            "use gf.take(x, start + gf.arange(length), axis=…)",
        )
    if isinstance(bound, Dim):
        # A dim counts from the front. What is never positive must have been meant to count back.
        _demand(
            x,
            not always_le(bound, 0),
            f"the bound {bound} of a slice is never positive",
            ArgumentError,
            f"count from the front: x.shape[i] - {-bound}",
        )
        return bound
    is_index = bound is None or is_whole(bound)
    message = f"the bound {bound!r} of a slice is no int"
    _demand(x, is_index, message, DTypeError, "use ints, or dims such as x.shape[0] // 2")
    return None if bound is None else operator.index(bound)


def _gathering(items: list[_Item], shape: Shape, named: Shape) -> list[IndexStep]:
    """Return the steps that take what arrays name.

    The indexed axes are brought together first: where NumPy puts the named dims.
    """
    indices = tuple([item.value for item in items if item.is_array])
    axes = [item.axis for item in items if item.is_array and item.axis is not None]
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    position = sum(1 for axis in rest if axis < axes[0]) if _are_together(items) else 0
    order = (*rest[:position], *axes, *rest[position:])
    moved = permuted(shape, order)
    result = (*moved[:position], *named, *moved[position + len(axes) :])
    gather = IndexStep(Gather(position), indices, moved, result)
    is_moved = order != tuple(range(len(shape)))
    return [IndexStep(PermuteDims(order), (), shape, moved), gather] if is_moved else [gather]


def _are_together(items: list[_Item]) -> bool:
    """Return whether the ints and arrays of a key stand side by side; any `...` separates them."""
    positions = [i for i, item in enumerate(items) if item.is_advanced]
    return positions[-1] - positions[0] == len(positions) - 1


def _layout(items: list[_Item], lengths: list[DimLike], named: Shape | None) -> Shape:
    """Return the result's shape: new axes in, ints' axes out, arrays' dims where NumPy has them."""
    result: list[DimLike] = []
    position = None if named is None or _are_together(items) else 0
    for item in items:
        if item.value is None:
            result.append(1)
        elif isinstance(item.value, slice) and item.axis is not None:
            result.append(lengths[item.axis])
        elif item.is_advanced and position is None:
            position = len(result)
    if named is not None:
        result[position:position] = named
    return tuple(result)


@public
def take_along_axis(x: TensorLike, indices: TensorLike, /, *, axis: int = -1) -> Tensor:
    """Return along an axis, for each index in the other dims, the elements that its indices name.

    x: [*A, N, *B], indices: [*A, K, *B] -> [*A, K, *B]; the other dims broadcast. Negative indices
    count from the end.

    Raises:
        ShapeError: The numbers of dims differ, or the other dims don't broadcast.
        AxisError: There is no such axis.
        ExecutionError: When run: an index is out of range.

    >>> import graphfw as gf
    >>> gf.take_along_axis(gf.asarray([[1, 2], [3, 4]]), [[1], [0]], axis=1)
    Tensor([[2],
            [3]], dtype=int64)
    """
    tensor, index = as_tensor(x), as_tensor(indices)
    return emit(Gather(0), tensor, *along_axis("take_along_axis", tensor, index, axis))


def along_axis(name: str, x: Tensor, index: Tensor, axis: int) -> list[Tensor]:
    """Return an index for each axis of x: `index` for one, positions for the others."""
    demand(
        x.ndim == index.ndim,
        f"{name}: x has {counted(x.ndim, 'dim')} and indices {index.ndim}: they must be as many",
        {"x": x, "indices": index},
        fix="gf.expand_dims adds a dim; gf.take has indices of any shape",
        error=ShapeError,
    )
    axis_index = ruled(name, x, normalize_axis, axis, x.ndim)
    others = [(*t.shape[:axis_index], *t.shape[axis_index + 1 :]) for t in (x, index)]
    try:
        broadcast(*others)
    except Requirement:
        shapes = f"indices {shape_text(index.shape)} and x {shape_text(x.shape)}"
        raise ShapeError(
            f"{name}: {shapes} don't fit together beside axis {axis_index}",
            operands=[describe("x", x), describe("indices", index)],
            fix="their other dims must be equal, or 1",
        ) from None
    rows = [reshape(positions(d), (d, *[1] * (x.ndim - i - 1))) for i, d in enumerate(x.shape)]
    rows[axis_index] = index
    return rows


@public
def one_hot(
    indices: TensorLike,
    num_classes: DimLike,
    /,
    *,
    dtype: DTypeLike | None = None,
    axis: int = -1,
) -> Tensor:
    """Return ones where the new axis stands at the index, and zeros elsewhere.

    indices: [*A], integers -> [*A with num_classes at axis]. An index that is negative or too large
    gives zeros only.

    Raises:
        DTypeError: The indices are no integers.
        AxisError: There is no such axis in the result.

    >>> import graphfw as gf
    >>> gf.one_hot([1, 0], 3)
    Tensor([[0., 1., 0.],
            [1., 0., 0.]], dtype=float32)
    """
    index = as_tensor(indices)
    demand(
        index.dtype.is_integer,
        f"one_hot: indices must be integers, not {index.dtype.name}",
        {"indices": index},
        fix=INDICES_FIX,
        error=DTypeError,
    )
    axis_index = ruled("one_hot", index, normalize_axis, axis, index.ndim + 1)
    (classes,) = dims_of("one_hot", num_classes)
    numbers = reshape(positions(classes), (classes, *[1] * (index.ndim - axis_index)))
    hot = expand_dims(index, axis=axis_index) == numbers
    return converted(hot, dtype_or(dtype, ambient.get_default_dtype()))


@public
def nonzero(x: TensorLike, /) -> tuple[Tensor, ...]:
    """Return the indices of the K elements that are not 0, for each dim.  x: [*A] -> ndim of [K]

    K is a symbolic dim that each run finds out, or known where x depends on constants only.

    Raises:
        ConcreteValueError: It is in the body of a loop, a vmap, ….
        ShapeError: x is 0-d.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("n", 3), name="x")
    ...     rows, columns = gf.nonzero(x > 0)
    >>> rows.shape
    (_nonzero,)
    """
    tensor = as_tensor(x)
    (found,) = measure(NonZero, ["nonzero"], tensor)
    rows = range(tensor.ndim)
    if is_concrete(found):
        return tuple([constant(value_of(found, "nonzero")[i]) for i in rows])
    return tuple([found[i] for i in rows])
