"""Draws from the most used distributions, permutations, categories."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

from graphfw.errors import DTypeError, ShapeError
from graphfw.ir.concrete import value_to_check
from graphfw.ir.dim import Dim
from graphfw.ir.dtype import DType, DTypeLike, as_dtype, int64, uint64
from graphfw.ir.functions import F
from graphfw.ir.modes import interceptable
from graphfw.ir.shape import can_broadcast, normalize_axis, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, converted, dims_of, ruled
from graphfw.ops.composed import demand, floats, wide_dtype
from graphfw.ops.elementwise.where_clip import where
from graphfw.ops.random.draws import (
    ShapeLike,
    below,
    demand_scale,
    deviates,
    float_dtype,
    is_number,
    named,
    parameter,
    random_order,
    refuse_bare_dims,
    refuse_lists,
    unit,
    waits,
)
from graphfw.ops.run_checks import checked


@interceptable
@refuse_bare_dims
def uniform(
    shape: ShapeLike,
    low: TensorLike = 0.0,
    high: TensorLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from [low, high), all values equally likely.  -> shape

    On [0, 1) the values are the multiples of 2^-p, where p is the dtype's precision: 24 bits for
    float32, 53 for float64, 11 for float16, 8 for bfloat16. They are exact, and so are other bounds
    as far as the dtype goes: `high` is never reached by rounding.

    Args:
        shape: Dims, static or symbolic.
        low: The least value; a number or a tensor that broadcasts to `shape`.
        high: What values stay below; the same.
        dtype: A floating-point dtype; by default that of the bounds, or the default dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: low is not below high, which is an ExecutionError where a run tells; or their
            distance does not fit the dtype (checked for numbers); or one is a list or tuple.
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or the bounds don't broadcast to it.

    >>> import graphfw as gf
    >>> x = gf.random.uniform((1000,), low=2.0, high=3.0)
    >>> bool(gf.all((x >= 2) & (x < 3)))
    True
    """
    refuse_lists("uniform", "shape, low, high", low=low, high=high)
    dims = dims_of("random.uniform", shape)
    to = float_dtype("uniform", dtype, low, high)
    if is_number(low) and is_number(high):
        message = f"random.uniform: low={low} must be below high={high}"
        demand(low < high, message, fix="exchange them")
        largest = F.finfo(to).max
        message = f"random.uniform: from {low} to {high} is farther than {to.name} reaches"
        fits = max(abs(low), abs(high), high - low) <= largest
        demand(fits, message, fix=f"keep the distance below {largest:g}, or use a wider dtype")
    fraction = unit("uniform", dims, to, name)
    if is_number(low) and is_number(high) and (low, high) == (0, 1):
        return named(fraction, name)
    bottom = parameter("uniform", "low", low, dims, to)
    top = parameter("uniform", "high", high, dims, to)
    if not (is_number(low) and is_number(high)):
        message = "random.uniform: low must be below high"
        bottom = checked({"low": bottom, "high": top}, operator.lt, message, fix="exchange them")
    spread = bottom + (top - bottom) * fraction
    return named(where(spread < top, spread, bottom), name)


@interceptable
@refuse_bare_dims
def normal(
    shape: ShapeLike,
    mean: TensorLike = 0.0,
    std: TensorLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from the normal distribution.  -> shape

    By the inverse of the distribution function at random midpoints of 2^24 (float64: 2^53) equal
    steps: one word (two) an element, exact on every executor, and |x - mean| < 5.5 std (8.3 std).
    The standard deviates are within 4 (14) ULP of the exact inverse. float16 and bfloat16 are drawn
    in float32. Gradients flow to mean and std.

    Args:
        shape: Dims, static or symbolic.
        mean: The centre; a number or a tensor that broadcasts to `shape`.
        std: The standard deviation; the same.
        dtype: A floating-point dtype; by default that of mean and std, or the default dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: std is negative (checked for a number); mean or std is a list or tuple.
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or mean or std don't broadcast to it.

    >>> import graphfw as gf
    >>> with gf.Graph():
    ...     x = gf.placeholder(("batch", 8), name="x")
    ...     noise = gf.random.normal(x.shape, std=0.1)
    >>> noise.shape
    (batch, 8)
    """
    refuse_lists("normal", "shape, mean, std", mean=mean, std=std)
    dims = dims_of("random.normal", shape)
    to = float_dtype("normal", dtype, mean, std)
    demand_scale("normal", "std", std)
    draw = F.astype(deviates("normal", dims, wide_dtype(to), name), to)
    if not (is_number(std) and std == 1):
        draw = draw * parameter("normal", "std", std, dims, to)
    if not (is_number(mean) and mean == 0):
        draw = draw + parameter("normal", "mean", mean, dims, to)
    return named(draw, name)


@interceptable
@refuse_bare_dims
def truncated_normal(
    shape: ShapeLike,
    low: float = -2.0,
    high: float = 2.0,
    mean: TensorLike = 0.0,
    std: TensorLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from the normal distribution cut off at mean + low std and mean + high std.  -> shape

    Args:
        shape: Dims, static or symbolic.
        low: The lower end, in standard deviations from the mean.
        high: The upper end, in standard deviations from the mean.
        mean: The centre before cutting; a number or a tensor that broadcasts to `shape`.
        std: The standard deviation before cutting; the same.
        dtype: A floating-point dtype; by default that of mean and std, or the default dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: low is not below high, or nearly all mass is outside, or std is negative;
            or a parameter is a list or tuple.
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or mean or std don't broadcast to it.
    """
    what = "truncated_normal"
    refuse_lists(what, "shape, low, high, mean, std", low=low, high=high, mean=mean, std=std)
    dims = dims_of(f"random.{what}", shape)
    to = float_dtype(what, dtype, mean, std)
    fits = -math.inf < low < high < math.inf
    message = f"random.{what}: low={low} must be below high={high}, and both finite"
    demand(fits, message, fix="give them in standard deviations: low=-2.0, high=2.0")
    demand_scale(what, "std", std)
    bottom, top = math.erf(low * math.sqrt(0.5)), math.erf(high * math.sqrt(0.5))
    fine = top - bottom > 1e-3
    message = f"random.{what}: too little of the distribution is between {low} and {high} std"
    demand(fine, message, fix="cut it off elsewhere, or use random.uniform")
    fraction = unit(what, dims, wide_dtype(to), name)
    draw = math.sqrt(2) * F.erfinv(bottom + (top - bottom) * fraction)
    # Rounding may step over an end, by much where the ends are far out.
    draw = F.astype(F.minimum(F.maximum(draw, low), high), to)
    scaled = draw * parameter(what, "std", std, dims, to)
    return named(scaled + parameter(what, "mean", mean, dims, to), name)


@interceptable
@refuse_bare_dims
def exponential(
    shape: ShapeLike,
    scale: TensorLike = 1.0,
    dtype: DTypeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Draw from the exponential distribution with mean `scale`.  -> shape

    Values are in (0, 16.7 scale] for float32, (0, 36.8 scale] for float64; float16 and bfloat16 are
    drawn in float32. Gradients flow to scale.

    Raises:
        ArgumentError: scale is negative (checked for a number), or a list or tuple.
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape, or scale does not broadcast to it.
    """
    refuse_lists("exponential", "shape, scale", scale=scale)
    dims = dims_of("random.exponential", shape)
    to = float_dtype("exponential", dtype, scale)
    demand_scale("exponential", "scale", scale)
    draw = F.astype(waits("exponential", dims, wide_dtype(to), name), to)
    if not (is_number(scale) and scale == 1):
        draw = draw * parameter("exponential", "scale", scale, dims, to)
    return named(draw, name)


@interceptable
@refuse_bare_dims
def gumbel(shape: ShapeLike, dtype: DTypeLike | None = None, name: str | None = None) -> Tensor:
    """Draw from the standard Gumbel distribution, exp(-exp(-x)).  -> shape

    Raises:
        DTypeError: The dtype is not a floating-point one.
        ShapeError: `shape` is no shape.
    """
    to = float_dtype("gumbel", dtype)
    draw = waits("gumbel", dims_of("random.gumbel", shape), wide_dtype(to), name)
    return named(F.astype(-F.log(draw), to), name)


@interceptable
def bernoulli(p: TensorLike, shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Draw True with probability p.  p: [*A] -> bool, [*A] or shape

    The probability is met to within 2^-24 (float64: 2^-53); 0 and 1 are exact.

    Args:
        p: The probability, a number or a tensor.
        shape: What p broadcasts to; p's shape by default.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: p is outside [0, 1], where its value is known.
        ShapeError: `shape` is no shape, or p does not broadcast to it.

    >>> import graphfw as gf
    >>> int(gf.sum(gf.random.bernoulli(1.0, shape=5)))
    5
    """
    chance = floats("random.bernoulli", p)
    values = value_to_check(chance)
    fix = "of a logit take gf.sigmoid"
    if isinstance(p, (list, tuple)):
        fix = "the order is random.bernoulli(p, shape)"
    within = values is None or bool(((values >= 0) & (values <= 1)).all())
    demand(within, f"random.bernoulli: p={p} must be between 0 and 1", fix=fix)
    dims = chance.shape if shape is None else dims_of("random.bernoulli", shape)
    chance = parameter("bernoulli", "p", chance, dims, wide_dtype(chance.dtype))
    return named(unit("bernoulli", dims, chance.dtype, name) < chance, name)


@interceptable
def randint(
    low: TensorLike,
    high: TensorLike,
    shape: ShapeLike,
    dtype: DTypeLike = int64,
    name: str | None = None,
) -> Tensor:
    """Draw integers from low to high - 1, all equally likely.  -> shape

    The chances of two values differ by a factor below 1 + 2^-32. 64 bits are drawn an element, or
    128 where the range may exceed 2^32.

    Args:
        low: The least integer; an int or an integer tensor that broadcasts to `shape`.
        high: One more than the greatest; the same.
        shape: Dims, static or symbolic.
        dtype: An integer dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: low is not below high, or not all values fit the dtype; or one is a list or
            tuple. It is an ExecutionError where a run tells.
        DTypeError: The dtype is not an integer one, or low or high are not integers.
        ShapeError: `shape` is no shape, or low or high don't broadcast to it.

    >>> import graphfw as gf
    >>> dice = gf.random.randint(1, 7, (100,))
    >>> int(gf.min(dice)) >= 1 and int(gf.max(dice)) <= 6
    True
    """
    refuse_lists("randint", "low, high, shape", low=low, high=high)
    dims = dims_of("random.randint", shape)
    to = as_dtype(dtype)
    demand(
        to.is_integer,
        f"random.randint: {to.name} is not an integer dtype",
        fix="use random.uniform for floats, random.bernoulli for bools",
        error=DTypeError,
    )
    if _is_int(low) and _is_int(high):
        span = _static_span(int(low), int(high), to)
        bottom = as_tensor(int(low), to)
        offset = below("randint", span, dims, span > 2**32, name)
    else:
        bottom, top = _bound("low", low, dims, to), _bound("high", high, dims, to)
        bottom = checked(
            {"low": bottom, "high": top},
            functools.partial(_is_range, to),
            f"random.randint: low must be below high, and all integers between them fit {to.name}",
            fix="high is one more than the greatest integer; give a wider dtype for more",
        )
        # The difference is right modulo 2^64 whatever the signs.
        count = F.astype(top, uint64) - F.astype(bottom, uint64)
        offset = below("randint", count, dims, to.itemsize == 8, name)
    # So is this sum modulo the dtype's range: nothing is lost where a cast wraps.
    return named(converted(bottom, to) + converted(offset, to), name)


def _is_int(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _static_span(low: int, high: int, dtype: DType) -> int:
    message = f"random.randint: low={low} must be below high={high}"
    demand(low < high, message, fix="high is one more than the greatest integer")
    limits = np.iinfo(dtype.dtype)
    fits = limits.min <= low and high - 1 <= limits.max
    demand(
        fits,
        f"random.randint: integers from {low} to {high - 1} don't fit {dtype.name}",
        fix="give a wider dtype",
    )
    return high - low


def _is_range(dtype: DType, low: Any, high: Any) -> Any:
    """Return for bounds, as `_bound` gives them, whether integers of a dtype lie between them."""
    if dtype == uint64:
        return low < high
    limits = np.iinfo(dtype.dtype)
    # Of int64, the bound 2^63 has become -2^63, and the greatest integer below it is right.
    last = high - 1
    return (limits.min <= low) & (low <= last) & (last <= limits.max)


def _bound(label: str, value: TensorLike, dims: Shape, dtype: DType) -> Tensor:
    """A bound of `randint`, wide enough to hold it, or modulo 2^64, which does as well."""
    tensor = as_tensor(value)
    message = f"random.randint: {label} must be integers, not {tensor.dtype.name}"
    fix = "convert it: gf.astype(x, gf.int64)"
    demand(tensor.dtype.is_integer, message, {label: tensor}, fix=fix, error=DTypeError)
    return parameter("randint", label, tensor, dims, int64 if dtype.itemsize < 8 else dtype)


@interceptable
def permutation(x: TensorLike, axis: int = 0, name: str | None = None) -> Tensor:
    """Shuffle: a random order of 0 to x - 1, or of a tensor's slices along an axis.

    x: an int or a dim -> int64 [x]; a tensor [*A] -> [*A].

    Raises:
        ArgumentError: x is a negative int.
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> gf.sort(gf.random.permutation(4))
    Tensor([0, 1, 2, 3], dtype=int64)
    """
    is_count = _is_int(x) or isinstance(x, Dim)
    if is_count:
        message = f"random.permutation: x={x} must not be negative"
        demand(isinstance(x, Dim) or x >= 0, message, fix="pass how many numbers to shuffle")
        return named(random_order("permutation", x, name), name)
    tensor = as_tensor(x)
    axis_index = ruled("random.permutation", tensor, normalize_axis, axis, tensor.ndim)
    return named(
        F.take(
            tensor, random_order("permutation", tensor.shape[axis_index], name), axis=axis_index
        ),
        name,
    )


@interceptable
def categorical(
    logits: TensorLike,
    shape: ShapeLike | None = None,
    axis: int = -1,
    name: str | None = None,
) -> Tensor:
    """Draw classes with the probabilities softmax(logits) along an axis.

    logits: [*B, C] -> int64, [*B] or shape.  By the greatest of logits + Gumbel noise. Classes
    whose logit is -inf are never drawn, unless all are. Logits are not checked: where one is NaN,
    or all are -inf, there is a class all the same. `gf.check` refuses such ones.

    Args:
        logits: Floats; unnormalised logarithms of probabilities.
        shape: What [*B] broadcasts to, for several draws of each; [*B] by default.
        axis: Where the classes are.
        name: What to call the result and its stream.

    Raises:
        AxisError: There is no such axis.
        ShapeError: There are no classes, or [*B] does not broadcast to `shape`.
    """
    tensor = floats("random.categorical", logits)
    axis_index = ruled("random.categorical", tensor, normalize_axis, axis, tensor.ndim)
    order = (*(i for i in range(tensor.ndim) if i != axis_index), axis_index)
    tensor = F.permute_dims(tensor, order)
    *batch, classes = tensor.shape
    message = "random.categorical: there are no classes"
    fix = "give one logit or more along the axis"
    demand(classes != 0, message, {"logits": tensor}, fix=fix, error=ShapeError)
    dims = tuple(batch) if shape is None else dims_of("random.categorical", shape)
    message = f"logits for {shape_text(batch)} don't broadcast to {shape_text(dims)}"
    demand(
        can_broadcast(tuple(batch), dims),
        f"random.categorical: {message}",
        {"logits": tensor},
        fix="shape is [*B], or more dims before it",
        error=ShapeError,
    )
    wide = wide_dtype(tensor.dtype)
    noise = -F.log(waits("categorical", (*dims, classes), wide, name))
    return named(F.argmax(F.astype(tensor, wide) + noise, axis=-1), name)
