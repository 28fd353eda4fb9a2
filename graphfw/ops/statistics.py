"""Means, variances, medians: compositions of sums and sorts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphfw.ir.dim import Dim, DimLike, dim_max
from graphfw.ir.functions import F, public
from graphfw.ir.shape import normalize_axis, permuted, reduced, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import Axes, TensorLike, as_tensor, axes_of, converted, inexact, ruled
from graphfw.ops.composed import demand, floats, safe_root, wide
from graphfw.ops.reduce import require_elements

__all__ = ["mean", "median", "std", "var"]


@public
def mean(x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Average along axes, all by default.  x: [*A] -> [*A without axis]

    Floating-point or complex; integers become the default dtype, float16 and bfloat16 accumulate in
    float32. The mean of nothing is NaN.

    Raises:
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> gf.mean(gf.asarray([[1.0, 2.0], [3.0, 4.0]]), axis=0)
    Tensor([2., 3.], dtype=float32)
    """
    tensor = inexact(x)
    axes = axes_of("mean", tensor, axis)
    total = F.sum(wide(tensor), axis=axes, keepdims=keepdims)
    # Divided before it is narrowed: the sum of many float16s is more than a float16 holds.
    return converted(total / _count(tensor, axes), tensor.dtype)


@public
def var(
    x: TensorLike, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Compute the variance along axes: the mean square distance from the mean.

    x: [*A] -> [*A without axis]. Real floating-point; integers become the default dtype. The mean
    is subtracted before squaring (two passes), so that little is lost where it is large.

    Args:
        x: The samples.
        axis: Along which dims, all by default.
        correction: What to subtract from the number of elements, N, before dividing by it: 1 for
            the unbiased estimate. Where N <= correction the result is NaN, or inf.
        keepdims: Whether to keep the axes, as size 1.

    Raises:
        AxisError: There is no such axis.
        ArgumentError: `correction` is no finite number.
        DTypeError: The tensor is complex.

    >>> import graphfw as gf
    >>> gf.var(gf.asarray([1.0, 2.0, 3.0, 4.0]), correction=1)
    Tensor(1.6666666, dtype=float32)
    """
    tensor = floats("var", x)
    return converted(_variance("var", tensor, axis, correction, keepdims), tensor.dtype)


@public
def std(
    x: TensorLike, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """Compute the standard deviation along axes: the root of `var`, with the same arguments.

    x: [*A] -> [*A without axis]. Where it is 0 the gradient is taken to be 0.

    Raises:
        AxisError: There is no such axis.
        ArgumentError: `correction` is no finite number.
        DTypeError: The tensor is complex.

    >>> import graphfw as gf
    >>> gf.std(gf.asarray([1.0, 3.0]))
    Tensor(1., dtype=float32)
    """
    tensor = floats("std", x)
    variance = _variance("std", tensor, axis, correction, keepdims)
    return converted(safe_root(variance), tensor.dtype)


@public
def median(x: TensorLike, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Take the middle of the sorted elements along an axis; of two, their mean.

    x: [*A] -> [*A without axis]. Without an axis, of all elements. Real floating-point; integers
    become the default dtype. One NaN makes the result NaN.

    Raises:
        AxisError: There is no such axis.
        ShapeError: The size along `axis` is 0.
        DTypeError: The tensor is complex.

    >>> import graphfw as gf
    >>> gf.median(gf.asarray([3.0, 9.0, 1.0, 4.0]))
    Tensor(3.5, dtype=float32)
    """
    tensor = floats("median", x)
    place = 0 if axis is None else ruled("median", tensor, normalize_axis, axis, tensor.ndim)
    flat = F.reshape(tensor, (tensor.size,)) if axis is None else tensor
    count = flat.shape[place]
    ruled("median", flat, require_elements, flat.shape, (place,))
    ordered = F.sort(flat, axis=place)

    def at(index: DimLike) -> Tensor:
        indices = F.reshape(as_tensor(index), (1,))
        return F.take(ordered, indices, axis=place)

    # Halved before they are added: the sum of two large ones may not fit.
    middle = at((count - 1) // 2) * 0.5 + at(count // 2) * 0.5
    last = at(count - 1)
    result = F.where(F.isnan(last), last, middle)
    axes = range(tensor.ndim) if axis is None else (place,)
    return F.reshape(result, reduced(tensor.shape, axes, keepdims))


def _count(x: Tensor, axes: tuple[int, ...]) -> DimLike:
    """Return how many elements are reduced to one."""
    return size_of(permuted(x.shape, axes))


def _variance(name: str, x: Tensor, axis: Axes, correction: Any, keepdims: bool) -> Tensor:
    """Return the variance, in float32 for the floats of two bytes."""
    axes = axes_of(name, x, axis)
    is_number = isinstance(correction, (int, float, np.number)) and math.isfinite(correction)
    fix = "use correction=1 for the unbiased estimate"
    demand(is_number, f"{name}: correction={correction!r} is no finite number", fix=fix)
    values = wide(x)
    distance = values - mean(values, axis=axes, keepdims=True)
    total = F.sum(distance * distance, axis=axes, keepdims=keepdims)
    return total / _degrees(_count(x, axes), correction, total)


def _degrees(count: DimLike, correction: float, like: Tensor) -> float | Dim | Tensor:
    """Return what the squares' sum is divided by: count - correction, or 0 if that is negative."""
    if correction == int(correction):
        return dim_max(count - int(correction), 0)
    if isinstance(count, Dim):
        return F.maximum(as_tensor(count, like.dtype) - correction, 0)
    return max(count - correction, 0.0)
