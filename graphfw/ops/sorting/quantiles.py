"""Quantiles and medians: what stands at a position when the elements are sorted."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from graphfw.ir import concrete
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import float64, int64
from graphfw.ir.functions import F, public
from graphfw.ir.shape import permuted, reduced, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import Axes, TensorLike, as_tensor, axes_of, converted, ruled
from graphfw.ops.composed import demand, demand_one_of, floats
from graphfw.ops.reduce.reductions import NO_ELEMENTS, ONE_ELEMENT, require_elements
from graphfw.ops.shape.gather_scatter import Gather

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]

Method: TypeAlias = Literal["linear", "lower", "higher", "midpoint", "nearest"]


@public
def quantile(
    x: TensorLike,
    q: TensorLike,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    method: Method = "linear",
) -> Tensor:
    """Find quantiles: the numbers that fractions q of the elements along axes are below.

    x: [*A], q: [*Q] -> [*Q, *A without axis]. Of N sorted elements, q stands at position q * (N -
    1). Real floating-point; integers become the default dtype. One NaN makes the result NaN.

    Args:
        x: The samples.
        q: The fraction that is below, from 0 to 1: a number, or a tensor of any shape. Beyond that
            range the result is NaN where q is not known before a run.
        axis: Along which dims, all by default.
        keepdims: Whether to keep the axes, as size 1.
        method: What to take between two elements: a mean weighted by distance ("linear"), the
            smaller, the larger, the mean of both ("midpoint"), or the one that is nearer (halfway
            the one at an even position).

    Raises:
        AxisError: There is no such axis.
        ShapeError: A size along `axis` is 0; it is an ExecutionError where a run tells.
        ArgumentError: A q is below 0 or above 1; there is no such method.
        DTypeError: A tensor is complex.

    >>> import graphfw as gf
    >>> gf.quantile(gf.asarray([4.0, 1.0, 3.0, 2.0]), [0.5, 1.0])
    Tensor([2.5, 4. ], dtype=float32)
    """
    return _quantile("quantile", x, q, axis, keepdims, method)


@public
def nanquantile(
    x: TensorLike,
    q: TensorLike,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    method: Method = "linear",
) -> Tensor:
    """Find quantiles of the elements that are not NaN: see `quantile`.

    x: [*A], q: [*Q] -> [*Q, *A without axis]. Where all elements are NaN, so is the result.

    Raises:
        AxisError, ShapeError, ArgumentError, DTypeError: As `quantile`.

    >>> import graphfw as gf
    >>> gf.nanquantile(gf.asarray([4.0, gf.nan, 1.0]), 0.5)
    Tensor(2.5, dtype=float32)
    """
    return _quantile("nanquantile", x, q, axis, keepdims, method)


@public
def percentile(
    x: TensorLike,
    q: TensorLike,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    method: Method = "linear",
) -> Tensor:
    """Find percentiles: see `quantile`, with q from 0 to 100.

    x: [*A], q: [*Q] -> [*Q, *A without axis]

    Raises:
        AxisError, ShapeError, ArgumentError, DTypeError: As `quantile`.

    >>> import graphfw as gf
    >>> gf.percentile(gf.asarray([4.0, 1.0, 3.0, 2.0]), 50)
    Tensor(2.5, dtype=float32)
    """
    return _quantile("percentile", x, q, axis, keepdims, method, whole=100)


@public
def nanpercentile(
    x: TensorLike,
    q: TensorLike,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    method: Method = "linear",
) -> Tensor:
    """Find percentiles of the elements that are not NaN: see `nanquantile`, with q up to 100.

    x: [*A], q: [*Q] -> [*Q, *A without axis]

    Raises:
        AxisError, ShapeError, ArgumentError, DTypeError: As `quantile`.

    >>> import graphfw as gf
    >>> gf.nanpercentile(gf.asarray([4.0, gf.nan, 1.0]), 50)
    Tensor(2.5, dtype=float32)
    """
    return _quantile("nanpercentile", x, q, axis, keepdims, method, whole=100)


@public
def median(x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Take the middle of the sorted elements along axes; of two, their mean.

    x: [*A] -> [*A without axis]. Of all elements by default. Real floating-point; integers become
    the default dtype. One NaN makes the result NaN.

    Raises:
        AxisError: There is no such axis.
        ShapeError: A size along `axis` is 0; it is an ExecutionError where a run tells.
        DTypeError: The tensor is complex.

    >>> import graphfw as gf
    >>> gf.median(gf.asarray([3.0, 9.0, 1.0, 4.0]))
    Tensor(3.5, dtype=float32)
    """
    return _quantile("median", x, 0.5, axis, keepdims, "linear")


@public
def nanmedian(x: TensorLike, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Take the median of the elements that are not NaN: see `median`.

    x: [*A] -> [*A without axis]. Where all elements are NaN, so is the result.

    Raises:
        AxisError, ShapeError, DTypeError: As `median`.

    >>> import graphfw as gf
    >>> gf.nanmedian(gf.asarray([3.0, gf.nan, 1.0, 4.0]))
    Tensor(3., dtype=float32)
    """
    return _quantile("nanmedian", x, 0.5, axis, keepdims, "linear")


def _quantile(
    name: str,
    x: TensorLike,
    q: TensorLike,
    axis: Axes,
    keepdims: bool,
    method: Method,
    whole: int = 1,
) -> Tensor:
    tensor = floats(name, x)
    axes = axes_of(name, tensor, axis)
    demand_one_of(name, "method", method, get_args(Method))
    ruled(name, tensor, require_elements, tensor.shape, axes)
    fractions = _fractions(name, q, whole)
    ordered = F.sort(_lines(tensor, axes), axis=-1, stable=False)
    flat = F.reshape(fractions, (fractions.size,))
    found = _between(name, ordered, flat, method)
    kept = reduced(tensor.shape, axes, keepdims)
    return F.reshape(F.moveaxis(found, -1, 0), (*fractions.shape, *kept))


def _fractions(name: str, q: TensorLike, whole: int) -> Tensor:
    """Return q as fractions in float64, in which a position among many elements is exact."""
    is_python = isinstance(q, (int, float, list, tuple))
    tensor = F.asarray(q, dtype=float64) if is_python else floats(name, q)
    values = concrete.value_to_check(tensor)
    if values is not None:
        fits = bool(np.all((values >= 0) & (values <= whole)))
        fix = "write the fraction that is below: 0.95 is the 95th percentile"
        if whole != 1:
            fix = "write how many of 100 are below: 95, and not 0.95"
        demand(fits, f"{name}: q={values} is not between 0 and {whole}", fix=fix)
    fractions = converted(tensor, float64)
    return fractions if whole == 1 else fractions / whole


def _lines(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Lay axes side by side as the last one.  x: [*A] -> [*A without axes, N]"""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    count = size_of(permuted(x.shape, axes))
    lines: Tensor = F.reshape(F.permute_dims(x, (*kept, *axes)), (*permuted(x.shape, kept), count))
    return lines


def _between(name: str, ordered: Tensor, fractions: Tensor, method: Method) -> Tensor:
    """Return the quantiles of sorted lines.  ordered: [*B, N], fractions: [Q] -> [*B, Q]"""
    count: DimLike = ordered.shape[-1]
    is_nan = F.isnan(ordered)
    skips_nan = name.startswith("nan")
    positions: Any
    if skips_nan:
        last = F.sum(~is_nan, axis=-1, keepdims=True) - 1
        positions = fractions * converted(F.maximum(last, 0), float64)
    else:
        positions = fractions * as_tensor(count - 1, float64)
    # NaN is sorted after all others: if the first element is NaN, all are.
    telling = as_tensor(0 if skips_nan else count - 1, int64)
    refusal = f"{name}: the axis {NO_ELEMENTS}\n{ONE_ELEMENT}"
    result_is_nan = emit(Gather(ordered.ndim - 1, refusal), is_nan, telling)
    bad = F.expand_dims(result_is_nan, axis=-1) | ~((fractions >= 0) & (fractions <= 1))
    positions = F.where((fractions >= 0) & (fractions <= 1), positions, 0)
    before = F.floor(positions)

    def at(position: Tensor) -> Tensor:
        index = converted(position, int64)
        if skips_nan:
            return F.take_along_axis(ordered, index, axis=-1)
        return F.take(ordered, index, axis=-1)

    if method == "lower":
        found = at(before)
    elif method == "higher":
        found = at(F.ceil(positions))
    elif method == "nearest":
        found = at(F.round(positions))
    else:
        low, high = at(before), at(F.ceil(positions))
        weight = converted(positions - before, ordered.dtype) if method == "linear" else 0.5
        # Both are weighed, since the difference of two large ones may not fit; equal ones stay.
        found = F.where(low == high, low, low * (1 - weight) + high * weight)
    return F.where(bad, np.nan, found)
