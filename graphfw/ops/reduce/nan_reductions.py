"""Reductions that leave out NaN, as if the elements that are NaN were not there."""

from __future__ import annotations

import math
from collections.abc import Callable

from graphfw.ir.dtype import DTypeLike, uint8
from graphfw.ir.functions import F, public
from graphfw.ir.shape import normalize_axis
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import Axes, TensorLike, as_tensor, axes_of, converted, inexact, ruled
from graphfw.ops.composed import floats, safe_root, wide
from graphfw.ops.dtypes import require_ordered
from graphfw.ops.reduce.reductions import argmax, argmin, prod, require_elements
from graphfw.ops.reduce.reductions import max as largest
from graphfw.ops.reduce.reductions import min as smallest
from graphfw.ops.reduce.reductions import sum as total_of
from graphfw.ops.reduce.statistics import require_correction

__all__ = [
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
]


@public
def nansum(
    x: TensorLike, /, *, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Tensor:
    """Add up the elements along axes that are not NaN; 0 where there is none: see `sum`.

    x: [*A] -> [*A without axis]

    Raises:
        AxisError: There is no such axis.
        DTypeError: `dtype` is bool.

    >>> import graphfw as gf
    >>> gf.nansum(gf.asarray([1.0, gf.nan, 2.0]))
    Tensor(3., dtype=float32)
    """
    return total_of(_filled(as_tensor(x), 0), axis=axis, dtype=dtype, keepdims=keepdims)


@public
def nanprod(
    x: TensorLike, /, *, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Tensor:
    """Multiply the elements along axes that are not NaN; 1 where there is none: see `prod`.

    x: [*A] -> [*A without axis]

    Raises:
        AxisError: There is no such axis.
        DTypeError: `dtype` is bool.

    >>> import graphfw as gf
    >>> gf.nanprod(gf.asarray([3.0, gf.nan, 2.0]))
    Tensor(6., dtype=float32)
    """
    return prod(_filled(as_tensor(x), 1), axis=axis, dtype=dtype, keepdims=keepdims)


@public
def nanmean(x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Average the elements along axes that are not NaN: see `mean`.

    x: [*A] -> [*A without axis]. Where all elements are NaN, so is the result.

    Raises:
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> gf.nanmean(gf.asarray([1.0, gf.nan, 2.0]))
    Tensor(1.5, dtype=float32)
    """
    tensor = inexact(x)
    axes = axes_of("nanmean", tensor, axis)
    return converted(_mean(wide(tensor), axes, keepdims), tensor.dtype)


@public
def nanvar(
    x: TensorLike, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Compute the variance of the elements along axes that are not NaN: see `var`.

    x: [*A] -> [*A without axis]. Where there are not more of them than `correction`, it is NaN.

    Raises:
        AxisError: There is no such axis.
        ArgumentError: `correction` is no finite number.
        DTypeError: The tensor is complex.

    >>> import graphfw as gf
    >>> gf.nanvar(gf.asarray([1.0, gf.nan, 3.0]))
    Tensor(1., dtype=float32)
    """
    tensor = floats("nanvar", x)
    return converted(_variance("nanvar", tensor, axis, correction, keepdims), tensor.dtype)


@public
def nanstd(
    x: TensorLike, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Compute the root of `nanvar`, with the same arguments.  x: [*A] -> [*A without axis]

    Where it is 0 the gradient is taken to be 0.

    Raises:
        AxisError, ArgumentError, DTypeError: As `nanvar`.

    >>> import graphfw as gf
    >>> gf.nanstd(gf.asarray([1.0, gf.nan, 3.0]))
    Tensor(1., dtype=float32)
    """
    tensor = floats("nanstd", x)
    variance = _variance("nanstd", tensor, axis, correction, keepdims)
    return converted(safe_root(variance), tensor.dtype)


@public
def nanmax(x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Take the largest of the elements along axes that are not NaN: see `max`.

    x: [*A] real -> [*A without axis]. Where all elements are NaN, so is the result.

    Raises:
        AxisError: There is no such axis.
        ShapeError: A size along `axis` is 0.
        DTypeError: The tensor is bool or complex.

    >>> import graphfw as gf
    >>> gf.nanmax(gf.asarray([1.0, gf.nan, 3.0]))
    Tensor(3., dtype=float32)
    """
    return _extreme("nanmax", largest, -math.inf, x, axis, keepdims)


@public
def nanmin(x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Take the smallest of the elements along axes that are not NaN: see `nanmax`.

    x: [*A] real -> [*A without axis]

    Raises:
        AxisError, ShapeError, DTypeError: As `nanmax`.

    >>> import graphfw as gf
    >>> gf.nanmin(gf.asarray([1.0, gf.nan, 3.0]))
    Tensor(1., dtype=float32)
    """
    return _extreme("nanmin", smallest, math.inf, x, axis, keepdims)


@public
def nanargmax(x: TensorLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Find the index of the largest element along an axis that is not NaN: see `argmax`.

    x: [*A] real -> [*A without axis] int64. Where all elements are NaN it is -1; NumPy raises.

    Raises:
        AxisError: There is no such axis.
        ShapeError: The size along `axis` is 0.
        DTypeError: The tensor is bool or complex.

    >>> import graphfw as gf
    >>> gf.nanargmax(gf.asarray([1.0, gf.nan, 3.0]))
    Tensor(2, dtype=int64)
    """
    return _index_of_extreme("nanargmax", argmax, -math.inf, x, axis, keepdims)


@public
def nanargmin(x: TensorLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Find the index of the smallest element along an axis that is not NaN: see `nanargmax`.

    x: [*A] real -> [*A without axis] int64

    Raises:
        AxisError, ShapeError, DTypeError: As `nanargmax`.

    >>> import graphfw as gf
    >>> gf.nanargmin(gf.asarray([gf.nan, 1.0, 3.0]))
    Tensor(1, dtype=int64)
    """
    return _index_of_extreme("nanargmin", argmin, math.inf, x, axis, keepdims)


def _filled(x: Tensor, value: float) -> Tensor:
    """Put a number in the place of NaN, which integers don't have."""
    filled: Tensor = F.where(F.isnan(x), value, x) if x.dtype.is_inexact else x
    return filled


def _present(x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    """Count the elements that are no NaN, in the dtype of x's components."""
    counts = total_of(~F.isnan(x), axis=axis, keepdims=keepdims)
    return converted(counts, x.dtype.real)


def _mean(x: Tensor, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    mean: Tensor = total_of(_filled(x, 0), axis=axes, keepdims=keepdims) / _present(
        x, axes, keepdims
    )
    return mean


def _variance(name: str, x: Tensor, axis: Axes, correction: float, keepdims: bool) -> Tensor:
    """Return the variance, in float32 for the floats of two bytes."""
    axes = axes_of(name, x, axis)
    require_correction(name, correction)
    values = wide(x)
    # Between infinities the distance is NaN, too, and that is no element to skip.
    distance = F.where(F.isnan(values), 0, values - _mean(values, axes, True))
    total = total_of(distance * distance, axis=axes, keepdims=keepdims)
    degrees = _present(values, axes, keepdims) - correction
    return F.where(degrees > 0, total / F.where(degrees > 0, degrees, 1), math.nan)


def _extreme(
    name: str,
    reduce: Callable[..., Tensor],
    worst: float,
    x: TensorLike,
    axis: Axes,
    keepdims: bool,
) -> Tensor:
    tensor = as_tensor(x)
    ruled(name, tensor, require_ordered, tensor.dtype)
    axes = axes_of(name, tensor, axis)
    ruled(name, tensor, require_elements, tensor.shape, axes)
    result = reduce(_filled(tensor, worst), axis=axes, keepdims=keepdims)
    if not tensor.dtype.is_floating:
        return result
    is_none = F.all(F.isnan(tensor), axis=axes, keepdims=keepdims)
    return F.where(is_none, math.nan, result)


def _index_of_extreme(
    name: str,
    find: Callable[..., Tensor],
    worst: float,
    x: TensorLike,
    axis: int | None,
    keepdims: bool,
) -> Tensor:
    tensor = as_tensor(x)
    ruled(name, tensor, require_ordered, tensor.dtype)
    if not tensor.dtype.is_floating:
        return find(tensor, axis=axis, keepdims=keepdims)
    axis_index = 0 if axis is None else ruled(name, tensor, normalize_axis, axis, tensor.ndim)
    lines = F.reshape(tensor, (tensor.size,)) if axis is None else tensor
    is_nan = F.isnan(lines)
    found = find(F.where(is_nan, worst, lines), axis=axis_index, keepdims=True)
    # Of a NaN and of an element that is the worst number itself the latter counts.
    first = argmax(converted(~is_nan, uint8), axis=axis_index, keepdims=True)
    found = F.where(F.take_along_axis(is_nan, found, axis=axis_index), first, found)
    found = F.where(F.all(is_nan, axis=axis_index, keepdims=True), -1, found)
    if axis is None:
        return F.reshape(found, (1,) * tensor.ndim if keepdims else ())
    return found if keepdims else F.squeeze(found, axis=axis_index)
