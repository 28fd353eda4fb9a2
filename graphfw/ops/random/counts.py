"""Draws of counts and of elements: Poisson, multinomial, choice. Public in `gf.random`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphfw.errors import DTypeError, ShapeError
from graphfw.ir import concrete
from graphfw.ir.dim import Dim, always_ge
from graphfw.ir.dtype import DTypeLike, as_dtype, float64, int64
from graphfw.ir.functions import F
from graphfw.ir.modes import interceptable
from graphfw.ir.shape import can_broadcast, normalize_axis, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import TensorLike, as_tensor, converted, dims_of, ruled, whole
from graphfw.ops.composed import demand, floats
from graphfw.ops.random.draws import (
    ShapeLike,
    Stream,
    below,
    is_number,
    named,
    parameter,
    random_order,
    stream,
    unit,
    waits,
)

__all__ = ["choice", "multinomial", "poisson"]

_EDGE = 10.0
"""Rates from here on are drawn by rejection."""
_TERMS = 60
"""Below the edge, more than so many events have a chance below 2^-53."""


@interceptable
def poisson(
    rate: TensorLike,
    shape: ShapeLike | None = None,
    dtype: DTypeLike = int64,
    name: str | None = None,
) -> Tensor:
    """Draw how many events there are, where `rate` are expected.  rate: [*A] -> [*A] or shape

    Rates below 10 by the inverse of the distribution function, others by rejection (W. Hörmann,
    "The transformed rejection method for generating Poisson random variables", 1993), in float64.
    No gradient.

    Args:
        rate: The mean, up to 2^53; a number or a tensor. Of a tensor's elements that are negative,
            larger or NaN the draw is -1.
        shape: What rate broadcasts to; its shape by default.
        dtype: An integer dtype.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: rate is negative or too large (checked for a number).
        DTypeError: The dtype is not an integer one.
        ShapeError: `shape` is no shape, or rate does not broadcast to it.

    >>> import graphfw as gf
    >>> gf.random.poisson(0.0, shape=3)
    Tensor([0, 0, 0], dtype=int64)
    """
    to = as_dtype(dtype)
    message = f"random.poisson: {to.name} is not an integer dtype"
    demand(to.is_integer, message, fix="convert the result: gf.astype", error=DTypeError)
    if is_number(rate):
        message = f"random.poisson: rate={rate} must not be negative"
        demand(rate >= 0, message, fix="of a logarithm take gf.exp")
        message = f"random.poisson: rate={rate} is above 2^53"
        demand(rate <= 2**53, message, fix="draw rate + gf.sqrt(rate) * gf.random.normal(shape)")
    given = floats("random.poisson", np.float64(rate) if is_number(rate) else rate)
    dims = given.shape if shape is None else dims_of("random.poisson", shape)
    mean = F.stop_gradient(parameter("poisson", "rate", given, dims, float64))
    path = stream("poisson", name)
    if is_number(rate):
        drawn = (_few if rate < _EDGE else _many)(F.broadcast_to(mean, dims), path)
    else:
        mean = F.broadcast_to(mean, dims)
        is_few = mean < _EDGE
        few = _few(F.where(is_few, mean, 0.0), path)
        drawn = F.where(is_few, few, _many(F.where(is_few, _EDGE, mean), path, is_few))
        drawn = F.where((mean >= 0) & (mean <= 2**53), drawn, -1.0)
    return named(F.astype(drawn, to), name)


def _few(rate: Tensor, path: Stream) -> Tensor:
    """Count how many sums of probabilities a uniform draw reaches."""
    draw = unit("poisson", rate.shape, float64, path.substream("few"))
    chance = F.exp(-rate)

    def iteration(n: Tensor, carry: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        chance, total, count = carry
        count = count + F.where(draw >= total, 1.0, 0.0)
        chance = chance * rate / F.astype(n, float64)
        return chance, total + chance, count

    start = (chance, chance, F.zeros_like(rate))
    count: Tensor = F.fori_loop(1, _TERMS, iteration, start)[2]
    return count


def _many(rate: Tensor, path: Stream, is_done: Tensor | None = None) -> Tensor:
    """Draw by transformed rejection: the algorithm PTRS."""
    dims = rate.shape
    log_rate = F.log(rate)
    b = 0.931 + 2.53 * F.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    sure = 0.9277 - 3.6224 / (b - 2)

    def iteration(carry: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        found, is_done = carry
        u = unit("poisson", dims, float64, path.substream("u")) - 0.5
        v = 1 - unit("poisson", dims, float64, path.substream("v"))
        side = F.maximum(0.5 - F.abs(u), 2.0**-54)
        count = F.floor((2 * a / side + b) * u + rate + 0.43)
        squeezed = (side >= 0.07) & (v <= sure)
        possible = (count >= 0) & ~((side < 0.013) & (v > side))
        left = F.log(v * inverse / (a / (side * side) + b))
        safe = F.maximum(count, 0.0)
        fits = squeezed | (possible & (left <= safe * log_rate - rate - F.lgamma(safe + 1)))
        return F.where(is_done | ~fits, found, count), is_done | fits

    unusual = ~((rate >= 0) & (rate < math.inf))
    start = (rate, unusual if is_done is None else is_done | unusual)
    drawn: Tensor = F.while_loop(lambda carry: ~F.all(carry[1]), iteration, start)[0]
    return drawn


@interceptable
def multinomial(
    count: Any, p: TensorLike, shape: ShapeLike | None = None, name: str | None = None
) -> Tensor:
    """Draw how often each class occurs in `count` draws.  p: [*B, K] -> int64, [*B, K], [*shape, K]

    Args:
        count: How many draws; an int or a dim.
        p: The probabilities of the classes, or what is proportional to them.
        shape: What [*B] broadcasts to, for several results of each; [*B] by default.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: count is negative, or no int; p is known and no probabilities.
        ShapeError: There are no classes, or [*B] does not broadcast to `shape`.

    >>> import graphfw as gf
    >>> gf.sum(gf.random.multinomial(100, gf.asarray([0.2, 0.3, 0.5])))
    Tensor(100, dtype=int64)
    """
    refused = isinstance(count, (list, tuple)) or getattr(count, "ndim", 0) > 0
    message = "random.multinomial: count is how many draws to make, not their probabilities"
    demand(not refused, message, fix="the order is random.multinomial(count, p, shape)")
    number = whole("random.multinomial", "count", count)
    message = f"random.multinomial: count={count} must not be negative"
    demand(isinstance(number, Dim) or number >= 0, message, fix="pass how many draws to make")
    chances = converted(floats("random.multinomial", p), float64)
    message = "random.multinomial: there are no classes"
    some = chances.ndim > 0 and chances.shape[-1] != 0
    demand(some, message, {"p": chances}, fix="give a probability or more", error=ShapeError)
    _demand_chances("multinomial", chances)
    batch = chances.shape[:-1]
    dims = batch if shape is None else dims_of("random.multinomial", shape)
    message = f"p for {shape_text(batch)} don't broadcast to {shape_text(dims)}"
    demand(
        can_broadcast(batch, dims),
        f"random.multinomial: {message}",
        {"p": chances},
        fix="shape is [*B], or more dims before it",
        error=ShapeError,
    )
    draws = unit("multinomial", (*dims, number), float64, stream("multinomial", name))
    edges = F.cumulative_sum(chances, axis=-1)
    edges = edges / F.expand_dims(edges[..., -1], axis=-1)
    # How many draws are below each edge; all are below the last one, which is 1.
    is_below = F.expand_dims(draws, axis=-1) < F.expand_dims(edges, axis=-2)
    counted = F.sum(F.astype(is_below, int64), axis=-2)
    start = F.zeros((*dims, 1), dtype=int64)
    return named(F.diff(F.concat([start, counted], axis=-1), axis=-1), name)


@interceptable
def choice(
    x: TensorLike,
    shape: ShapeLike = (),
    replace: bool = True,
    p: TensorLike | None = None,
    axis: int = 0,
    name: str | None = None,
) -> Tensor:
    """Draw from 0 to x - 1, or slices of a tensor along an axis.

    x: an int or a dim -> int64, shape; a tensor [*A, N, *B] -> [*A, *shape, *B].

    Args:
        x: What to choose from.
        shape: How many: dims, static or symbolic.
        replace: Whether the same may be drawn again.
        p: How likely each is, [N], or what is proportional to that; equally by default.
        axis: Of a tensor: along which dim.
        name: What to call the result and its stream.

    Raises:
        ArgumentError: Without `replace`, more are wanted than there are, or than p is not 0 for; p
            is known and no probabilities.
        AxisError: There is no such axis.
        ShapeError: `shape` is no shape, there is nothing to choose from, or p is not [N].

    >>> import graphfw as gf
    >>> gf.sort(gf.random.choice(gf.asarray([2, 4, 6]), 3, replace=False))
    Tensor([2, 4, 6], dtype=int64)
    """
    is_count = isinstance(x, (int, np.integer, Dim)) and not isinstance(x, bool)
    dims = dims_of("random.choice", shape)
    if is_count:
        source, axis_index, size = None, 0, whole("random.choice", "x", x)
    else:
        source = as_tensor(x)
        axis_index = ruled("random.choice", source, normalize_axis, axis, source.ndim)
        size = source.shape[axis_index]
    message = f"random.choice: there is nothing to choose from: x={x}"
    demand(isinstance(size, Dim) or size > 0, message, fix="pass 1 or more", error=ShapeError)
    chances = None if p is None else floats("random.choice", p)
    if chances is not None:
        message = f"random.choice: p has the shape {shape_text(chances.shape)}, not [{size}]"
        fix = "give one probability for each"
        demand(chances.shape == (size,), message, {"p": chances}, fix=fix, error=ShapeError)
        wanted = TensorType(int64, dims).size
        _demand_chances("choice", chances, 1 if replace or isinstance(wanted, Dim) else wanted)
    chosen = _chosen(size, dims, replace, chances, stream("choice", name))
    return named(chosen if source is None else F.take(source, chosen, axis=axis_index), name)


def _demand_chances(what: str, p: Tensor, wanted: int = 1) -> None:
    """Demand that probabilities are some, where they are known.

    Args:
        what: The public function.
        p: What is proportional to them.
        wanted: How many are not 0 at least.
    """
    known = concrete.value_to_check(p)
    if known is None:
        return
    message = f"random.{what}: p has an element that is negative, infinite or NaN"
    fix = "of logarithms take gf.softmax(p, axis=-1)"
    demand(bool((np.isfinite(known) & (known >= 0)).all()), message, {"p": p}, fix=fix)
    count = int((known > 0).sum(axis=-1).min(initial=wanted))
    few = f"are 0 but for {count}, and {wanted} different ones are wanted"
    message = f"random.{what}: the probabilities {few if count else 'are all 0'}"
    demand(count >= wanted, message, {"p": p}, fix="give others a probability, too")


def _chosen(size: Any, dims: Shape, replace: bool, chances: Tensor | None, path: Stream) -> Tensor:
    if replace and chances is None:
        if isinstance(size, Dim):
            count: Any = converted(as_tensor(size), as_dtype("uint64"))
            return F.astype(below("choice", count, dims, True, path), int64)
        return F.astype(below("choice", size, dims, size > 2**32, path), int64)
    if replace and chances is not None:
        edges = F.cumulative_sum(converted(chances, float64))
        draws = unit("choice", dims, float64, path) * edges[-1]
        return F.minimum(F.searchsorted(edges, draws, side="right"), size - 1)
    wanted = TensorType(int64, dims).size
    message = f"random.choice: {wanted} of {size} can't all be different"
    if isinstance(wanted, Dim) or isinstance(size, Dim):
        message = f"random.choice: whether there are {wanted} different ones of {size} is not known"
    fix = "write replace=True, or take some of gf.random.permutation(x)"
    demand(always_ge(size, wanted), message, fix=fix)
    if chances is None:
        return F.reshape(random_order("choice", size, path)[:wanted], dims)
    # The first of exponential waiting times (P. S. Efraimidis and P. G. Spirakis, 2006).
    wait = waits("choice", (size,), float64, path) / converted(chances, float64)
    return F.reshape(F.argsort(wait)[:wanted], dims)
