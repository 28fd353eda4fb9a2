"""Functions that are known at points: values between them, slopes, integrals, steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphfw.errors import ShapeError, counted
from graphfw.ir import concrete
from graphfw.ir.dim import DimLike, always_le
from graphfw.ir.dtype import int64
from graphfw.ir.functions import F, public
from graphfw.ir.shape import normalize_axis, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import (
    Axes,
    TensorLike,
    as_tensor,
    axes_in_order,
    axes_of,
    converted,
    inexact,
    promoted,
    ruled,
)
from graphfw.ops.composed import demand, floats, wide
from graphfw.ops.creation.ranges import positions
from graphfw.ops.sorting.sort_search import argsort, searchsorted

__all__ = ["ediff1d", "gradient", "interp", "sinc", "trapezoid", "unwrap"]


@public
def sinc(x: TensorLike, /) -> Tensor:
    """sin(π x) / (π x), elementwise, and 1 at 0.  x: [*A] -> [*A]

    Floating-point or complex; integers become the default dtype.

    >>> import graphfw as gf
    >>> gf.sinc(gf.asarray([0.0, 0.5, 2.5]))
    Tensor([1.        , 0.63661975, 0.12732396], dtype=float32)
    """
    tensor = inexact(x)
    angle = wide(tensor) * math.pi
    square = angle * angle
    is_small = F.abs(angle) < 0.5
    # The series: near 0 the quotient has no gradient, of the second order a wrong one.
    near: Tensor = F.ones((), dtype=square.dtype)
    for n in range(7, 0, -1):
        near = 1 - square / (2 * n * (2 * n + 1)) * near
    apart = F.where(is_small, 1, angle)
    return converted(F.where(is_small, near, F.sin(apart) / apart), tensor.dtype)


@public
def interp(
    x: TensorLike,
    xp: TensorLike,
    fp: TensorLike,
    /,
    *,
    left: TensorLike | None = None,
    right: TensorLike | None = None,
    period: float | None = None,
) -> Tensor:
    """Interpolate linearly between points.  x: [*A], xp: [N], fp: [N] -> [*A]

    Floating-point, fp also complex; integers become the default dtype. It has gradients with
    respect to x, xp and fp.

    Args:
        x: Where values are wanted.
        xp: Where the points are, in rising order; in any order if there is a `period`.
        fp: The values there.
        left: The value below the first point, by default that of the first point.
        right: The value above the last point, by default that of the last point.
        period: The period of the function, in which case there is no left and no right.

    Raises:
        ShapeError: xp and fp are not vectors of one length, or they are empty.
        ArgumentError: xp is known and not in rising order; the period is 0.
        DTypeError: x or xp is complex.

    >>> import graphfw as gf
    >>> gf.interp([0.5, 1.5, 9.0], [0.0, 1.0, 2.0], [0.0, 10.0, 0.0])
    Tensor([5., 5., 0.], dtype=float32)
    """
    positions, points = promoted("interp", floats("interp", x), floats("interp", xp))
    values = inexact(fp)
    demand(
        points.ndim == 1 and points.shape == values.shape and points.shape != (0,),
        f"interp: xp {shape_text(points.shape)} and fp {shape_text(values.shape)} are no points",
        {"xp": points, "fp": values},
        fix="give xp and fp as vectors of one length, with one point or more",
        error=ShapeError,
    )
    if period is not None:
        positions, points, values = _over_a_period(positions, points, values, period)
        left = right = None
    elif (known := concrete.value_to_check(points)) is not None:
        in_order = not bool((np.diff(known) < 0).any())
        message = "interp: xp is not in rising order"
        fix = "sort the points: order = gf.argsort(xp), then xp[order] and fp[order]"
        demand(in_order, message, {"xp": points}, fix=fix)
    count = points.shape[0]
    position = searchsorted(points, positions, side="right")
    before = F.maximum(F.minimum(position - 1, count - 2), 0)
    after = F.minimum(before + 1, count - 1)
    x0, x1, f0, f1 = (F.take(t, i) for t in (points, values) for i in (before, after))
    width = x1 - x0
    # The gradient must not see a division by 0.
    fraction = F.where(width == 0, 0, (positions - x0) / F.where(width == 0, 1, width))
    result = f0 + fraction * (f1 - f0)
    low, high = (values[end] if given is None else given for end, given in ((0, left), (-1, right)))
    result = F.where(positions < points[0], low, result)
    result = F.where(positions == points[-1], values[-1], result)
    return F.where(positions > points[-1], high, result)


def _over_a_period(
    x: Tensor, points: Tensor, values: Tensor, period: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Bring everything into one period, with a point more on either side."""
    message = f"interp: period={period!r}"
    demand(period != 0, message, fix="use the length after which the function repeats")
    length = abs(period)
    points = points % length
    order = argsort(points)
    points, values = F.take(points, order), F.take(values, order)
    around = F.concat([points[-1:] - length, points, points[:1] + length])
    return x % length, around, F.concat([values[-1:], values, values[:1]])


@public
def gradient(
    x: TensorLike, /, *spacing: TensorLike, axis: Axes = None, edge_order: int = 1
) -> Tensor | tuple[Tensor, ...]:
    """Estimate the slopes of a sampled function by central differences: NumPy's, not `gf.grad`.

    x: [*A] -> [*A] for each axis: a tensor where there is one axis, or else a tuple. Inside the
    error is of second order, also where the samples are not evenly spaced. Floating-point or
    complex; integers become the default dtype.

    Args:
        x: The samples.
        spacing: Nothing, for samples at distance 1; a number for all axes; or for each axis a
            number or the positions of its samples.  [N]
        axis: Along which dims, all by default.
        edge_order: 1 for a difference of two samples at the ends; 2 for one of three.

    Raises:
        AxisError: There is no such axis.
        ArgumentError: There are not as many spacings as axes; `edge_order` is something else.
        ShapeError: There are too few samples, or not as many positions as samples.

    >>> import graphfw as gf
    >>> gf.gradient(gf.asarray([1.0, 4.0, 9.0, 16.0]))
    Tensor([3., 4., 6., 7.], dtype=float32)
    """
    tensor = inexact(x)
    is_several = axis is None or not isinstance(axis, int)
    axes = axes_of("gradient", tensor, None) if axis is None else _listed(tensor, axis)
    message = f"gradient: edge_order={edge_order!r}"
    demand(edge_order in (1, 2), message, {"x": tensor}, fix="use 1 or 2")
    steps = spacing or (1.0,)
    steps = steps * len(axes) if len(steps) == 1 and as_tensor(steps[0]).ndim == 0 else steps
    demand(
        len(steps) == len(axes),
        f"gradient: {counted(len(steps), 'spacing')} for {counted(len(axes), 'axis', 'axes')}",
        {"x": tensor},
        fix="give one number for all axes, or a spacing for each",
    )
    slopes = [_slope(tensor, i, h, edge_order) for i, h in zip(axes, steps, strict=True)]
    return tuple(slopes) if is_several and len(slopes) != 1 else slopes[0]


def _listed(x: Tensor, axis: Any) -> tuple[int, ...]:
    return axes_in_order("gradient", x, axis)


def _slope(x: Tensor, axis: int, spacing: TensorLike, edge_order: int) -> Tensor:
    """Return the slopes along one axis."""
    count = x.shape[axis]
    demand(
        not always_le(count, edge_order),
        f"gradient: {counted(count, 'sample')} along axis {axis}, and {edge_order + 1} are needed",
        {"x": x},
        fix="leave the axis out: axis=…",
        error=ShapeError,
    )
    step = converted(floats("gradient", spacing), x.dtype.real)
    at = positions(count)
    if step.ndim == 0:
        indices = converted(at, x.dtype.real)
    else:
        demand(
            step.shape == (count,),
            f"gradient: positions {shape_text(step.shape)} for {counted(count, 'sample')} along "
            f"axis {axis}",
            {"x": x, "spacing": step},
            fix="give one position for each sample, or the distance as a number",
            error=ShapeError,
        )
        indices = step
    slope = (
        _by_edges(x, axis, indices, at) if edge_order == 1 else _by_parabola(x, axis, indices, at)
    )
    return slope / step if step.ndim == 0 else slope


def _along(values: Tensor, x: Tensor, axis: int) -> Tensor:
    """Lay a vector along an axis of x, to broadcast with it."""
    shape: tuple[DimLike, ...] = (*[1] * axis, values.size, *[1] * (x.ndim - axis - 1))
    laid: Tensor = F.reshape(values, shape)
    return laid


def _by_edges(x: Tensor, axis: int, positions: Tensor, at: Tensor) -> Tensor:
    """Return slopes through the neighbours, of which there is one at the ends."""
    count = x.shape[axis]
    up, down = F.minimum(at + 1, count - 1), F.maximum(at - 1, 0)
    here, over, under = (F.take(positions, i) for i in (at, up, down))
    after, before = over - here, here - under
    is_inside = (up - down) == 2
    # At the ends one distance is 0, and the slope is the other difference's.
    a = F.where(is_inside, before / F.where(up > at, after, 1), up > at)
    b = F.where(is_inside, after / F.where(at > down, before, 1), at > down)
    f0, f1, f2 = (F.take(x, i, axis=axis) for i in (down, at, up))
    rise = (f2 - f1) * _along(a, x, axis) + (f1 - f0) * _along(b, x, axis)
    return rise / _along(after + before, x, axis)


def _by_parabola(x: Tensor, axis: int, positions: Tensor, at: Tensor) -> Tensor:
    """Return the slopes of parabolas through three samples: at their middle, or at an end."""
    first = F.maximum(F.minimum(at - 1, x.shape[axis] - 3), 0)
    here = F.take(positions, at)
    x0, x1, x2 = (F.take(positions, first + i) for i in range(3))
    f0, f1, f2 = (F.take(x, first + i, axis=axis) for i in range(3))
    a = (2 * here - x1 - x2) / ((x0 - x1) * (x0 - x2))
    b = (2 * here - x0 - x2) / ((x1 - x0) * (x1 - x2))
    c = (2 * here - x0 - x1) / ((x2 - x0) * (x2 - x1))
    laid = [_along(weight, x, axis) for weight in (a, b, c)]
    slope: Tensor = f0 * laid[0] + f1 * laid[1] + f2 * laid[2]
    return slope


@public
def trapezoid(
    y: TensorLike, x: TensorLike | None = None, /, *, dx: TensorLike = 1.0, axis: int = -1
) -> Tensor:
    """Integrate samples along an axis by the trapezoidal rule.  y: [*B, N, *C] -> [*B, *C]

    Floating-point or complex; integers become the default dtype. Of fewer than two samples it is 0.

    Args:
        y: The samples.
        x: Where they are: [N], or a shape that broadcasts with y's.
        dx: How far they are apart, where there is no x.
        axis: Along which dim.

    Raises:
        AxisError: There is no such axis.
        ShapeError: The shapes don't fit.

    >>> import graphfw as gf
    >>> gf.trapezoid(gf.asarray([1.0, 2.0, 3.0]), gf.asarray([4.0, 6.0, 8.0]))
    Tensor(8., dtype=float32)
    """
    tensor = inexact(y)
    axis_index = ruled("trapezoid", tensor, normalize_axis, axis, tensor.ndim)
    width: Any = dx
    if x is not None:
        points = inexact(x)
        is_vector = points.ndim == 1 and tensor.ndim > 1
        steps = F.diff(points, axis=-1 if points.ndim == 1 else axis)
        width = _along(steps, tensor, axis_index) if is_vector else steps
    before = (slice(None),) * axis_index
    sides = tensor[(*before, slice(1, None))] + tensor[(*before, slice(None, -1))]
    return F.sum(sides * width * 0.5, axis=axis_index)


@public
def ediff1d(
    x: TensorLike,
    /,
    *,
    to_end: TensorLike | None = None,
    to_begin: TensorLike | None = None,
) -> Tensor:
    """Subtract from each element of the flattened tensor the one before it.  x: [*A] -> [N - 1]

    Args:
        x: What to take differences of.
        to_end: What to put after the differences.
        to_begin: What to put in front of them.

    Raises:
        DTypeError: The tensor is bool.

    >>> import graphfw as gf
    >>> gf.ediff1d(gf.asarray([1, 2, 4, 7]), to_begin=-9)
    Tensor([-9,  1,  2,  3], dtype=int64)
    """
    steps = F.diff(F.flatten(as_tensor(x)))
    pieces = [x for x in (to_begin, steps, to_end) if x is not None]
    if len(pieces) == 1:
        return steps
    return F.concat([F.flatten(x) for x in promoted("ediff1d", *pieces)])


@public
def unwrap(
    x: TensorLike,
    /,
    *,
    discont: float | None = None,
    axis: int = -1,
    period: float = 2 * math.pi,
) -> Tensor:
    """Undo jumps of angles: add whole periods, so that neighbours are at most half of one apart.

    x: [*A] -> [*A]. Real floating-point; integers stay integers if the period is an int (unsigned
    ones become int64), and become the default dtype otherwise.

    Args:
        x: The angles.
        discont: The smallest difference that counts as a jump: half a period by default, and not
            less than that.
        axis: Along which dim.
        period: After how much an angle is the same.

    Raises:
        AxisError: There is no such axis.
        DTypeError: The tensor is complex.

    >>> import graphfw as gf
    >>> gf.unwrap(gf.asarray([1, 2, 3, 0, 1]), period=4)
    Tensor([1, 2, 3, 4, 5], dtype=int64)
    """
    tensor = as_tensor(x)
    stays = tensor.dtype.is_integer and isinstance(period, int)
    if not stays:
        tensor = floats("unwrap", tensor)
    elif tensor.dtype.kind == "uint":  # whose differences have no sign
        tensor = converted(tensor, int64)
    axis_index = ruled("unwrap", tensor, normalize_axis, axis, tensor.ndim)
    at = positions(tensor.shape[axis_index])
    steps = tensor - F.take(tensor, F.maximum(at - 1, 0), axis=axis_index)  # the first is 0
    half = period // 2 if stays else period / 2
    short = (steps + half) % period - half
    if not stays or period % 2 == 0:  # half a period up is not half a period down
        short = F.where((short == -half) & (steps > 0), half, short)
    least = period / 2 if discont is None else discont
    turns = F.where(F.abs(steps) < least, 0, short - steps)
    return tensor + F.cumulative_sum(turns, axis=axis_index, dtype=tensor.dtype)
