"""Means, variances and deviations: compositions of sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphfw.errors import ShapeError
from graphfw.ir.dim import Dim, DimLike, dim_max
from graphfw.ir.functions import F, public
from graphfw.ir.shape import permuted, shape_text, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import Axes, TensorLike, as_tensor, axes_of, converted, inexact
from graphfw.ops.composed import demand, floats, safe_root, wide

__all__ = ["average", "mean", "std", "var"]


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
def average(
    x: TensorLike,
    /,
    *,
    axis: Axes = None,
    weights: TensorLike | None = None,
    keepdims: bool = False,
) -> Tensor:
    """Average along axes with weights: the sum of x · weights by the sum of the weights.

    x: [*A] -> [*A without axis]. Floating-point or complex; integers become the default dtype.

    Args:
        x: The samples.
        axis: Along which dims, all by default.
        weights: Of the shape of x, or of its shape along `axis`; bools leave out what is false.
            None stands for equal ones, as for `mean`.
        keepdims: Whether to keep the axes, as size 1.

    Raises:
        AxisError: There is no such axis.
        ShapeError: The weights have another shape.

    >>> import graphfw as gf
    >>> gf.average(gf.asarray([[1.0, 2.0], [3.0, 4.0]]), axis=0, weights=[3, 1])
    Tensor([1.5, 2.5], dtype=float32)
    """
    tensor = inexact(x)
    if weights is None:
        return mean(tensor, axis=axis, keepdims=keepdims)
    axes = axes_of("average", tensor, axis)
    given = as_tensor(weights)
    given = inexact(converted(given, tensor.dtype.real) if given.dtype.is_bool else given)
    along = tuple([tensor.shape[i] for i in axes])
    demand(
        given.shape in (tensor.shape, along),
        f"average: the weights have the shape {shape_text(given.shape)}, which is neither that of "
        f"x nor that along axis {', '.join(map(str, axes))}",
        {"x": tensor, "weights": given},
        fix="give one weight for each element, or for each position along the axis",
        error=ShapeError,
    )
    if given.shape != tensor.shape:
        dims = [size if i in axes else 1 for i, size in enumerate(tensor.shape)]
        given = F.reshape(given, tuple(dims))
    values, shares = wide(tensor), F.broadcast_to(wide(given), tensor.shape)
    total = F.sum(values * shares, axis=axes, keepdims=keepdims)
    result = total / F.sum(shares, axis=axes, keepdims=keepdims)
    return converted(result, F.result_type(tensor, given))


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


def _count(x: Tensor, axes: tuple[int, ...]) -> DimLike:
    """Return how many elements are reduced to one."""
    return size_of(permuted(x.shape, axes))


def _variance(name: str, x: Tensor, axis: Axes, correction: Any, keepdims: bool) -> Tensor:
    """Return the variance, in float32 for the floats of two bytes."""
    axes = axes_of(name, x, axis)
    require_correction(name, correction)
    values = wide(x)
    distance = values - mean(values, axis=axes, keepdims=True)
    total = F.sum(distance * distance, axis=axes, keepdims=keepdims)
    return total / degrees(_count(x, axes), correction, total)


def require_correction(name: str, correction: Any) -> None:
    """Require a number to subtract from that of elements."""
    is_number = isinstance(correction, (int, float, np.number)) and math.isfinite(correction)
    fix = "use correction=1 for the unbiased estimate"
    demand(is_number, f"{name}: correction={correction!r} is no finite number", fix=fix)


def degrees(count: DimLike, correction: float, like: Tensor) -> float | Dim | Tensor:
    """Return the divisor of the squares' sum: count - correction, or 0 if that is negative."""
    if correction == int(correction):
        return dim_max(count - int(correction), 0)
    if isinstance(count, Dim):
        return F.maximum(as_tensor(count, like.dtype) - correction, 0)
    return max(count - correction, 0.0)
