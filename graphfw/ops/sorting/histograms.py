"""Counting: how often each integer occurs, and how many elements lie in each bin."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import DTypeError, ShapeError
from graphfw.ir import concrete
from graphfw.ir.build import emit
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import int64
from graphfw.ir.functions import F, public
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, converted, dims_of, inexact, promoted
from graphfw.ops.composed import demand, floats, wide
from graphfw.ops.data_dependent.measuring_ops import Sizes, measure
from graphfw.ops.reduce.reductions import Max, Min
from graphfw.ops.run_checks import checked
from graphfw.ops.shape.axes import flatten
from graphfw.ops.shape.gather_scatter import IndexAdd
from graphfw.ops.sorting.sort_search import searchsorted

__all__ = ["Histogram", "bincount", "digitize", "histogram"]


class Histogram(NamedTuple):
    """The result of `histogram`.

    Attributes:
        counts: How many elements are in each of the K bins.  [K]
        edges: Where the bins begin, and the last one ends.  [K + 1]
    """

    counts: Tensor
    edges: Tensor


@public
def bincount(
    x: TensorLike,
    /,
    weights: TensorLike | None = None,
    *,
    minlength: DimLike = 0,
    length: DimLike | None = None,
) -> Tensor:
    """Count how often each of the integers 0, 1, 2, … occurs.  x: [N] -> [length] int64

    Args:
        x: Integers from 0 on.
        weights: What to add up for each element instead of 1.  [N]
        minlength: How many counts there are at least, where `length` is not given.
        length: How many counts there are. Without it, up to the largest element: if that is not
            known now, each run finds out how many.

    Raises:
        ShapeError: x has not one dim, or the weights have another shape.
        DTypeError: x is not of integers.
        ConcreteValueError: Without `length`, in the body of a loop, a vmap, ….
        ExecutionError: When run: an element is negative, or `length` or more.

    >>> import graphfw as gf
    >>> gf.bincount(gf.asarray([1, 3, 1]))
    Tensor([0, 2, 0, 1], dtype=int64)
    """
    tensor = as_tensor(x)
    demand(
        tensor.dtype.is_integer,
        f"bincount: wants integers, not {tensor.dtype.name}",
        {"x": tensor},
        fix="use gf.digitize(x, edges) to find the bins of floats, or gf.astype(x, gf.int64)",
        error=DTypeError,
    )
    demand(
        tensor.ndim == 1,
        f"bincount: wants 1 dim, not {tensor.ndim}",
        {"x": tensor},
        fix="write gf.bincount(gf.flatten(x)), or use gf.vmap with length=…",
        error=ShapeError,
    )
    size = _length(tensor, minlength) if length is None else dims_of("bincount", length)[0]
    return _added_up("bincount", tensor, _weights("bincount", tensor, weights), size)


def _length(x: Tensor, minlength: DimLike) -> DimLike:
    """Return how many counts the largest element makes."""
    (least,) = dims_of("bincount", minlength)
    floor = as_tensor(least, int64)
    # An element more, because of no elements there is no largest.
    most = F.max(F.concat([converted(x, int64), F.reshape(floor - 1, (1,))])) + 1
    if concrete.is_concrete(most):
        return int(concrete.value_of(most, "bincount"))
    (made,) = measure(Sizes, ["length"], F.reshape(most, (1,)), what="bincount: the length")
    assert isinstance(made.node.op, Sizes)
    (dim,) = made.node.op.dims
    return dim


def _added_up(name: str, positions: Tensor, added: Tensor, size: DimLike) -> Tensor:
    """Add up weights at positions, which must be 0 or more and below the size.  -> [size]"""
    refusal = (
        f"{name}: an element is {{index}}, and there are {{size}} counts\n"
        "elements count from 0: give a length above the largest one"
    )
    return emit(IndexAdd(0, refusal), F.zeros((size,), dtype=added.dtype), added, positions)


def _weights(name: str, x: Tensor, weights: TensorLike | None) -> Tensor:
    if weights is None:
        return F.broadcast_to(as_tensor(1, int64), x.shape)
    tensor = inexact(weights)
    shapes = f"{shape_text(tensor.shape)} for elements {shape_text(x.shape)}"
    demand(
        tensor.shape == x.shape,
        f"{name}: weights {shapes}",
        {"x": x, "weights": tensor},
        fix="give one weight for each element",
        error=ShapeError,
    )
    return tensor


@public
def histogram(
    x: TensorLike,
    /,
    bins: DimLike | TensorLike = 10,
    *,
    range: tuple[float | Tensor, float | Tensor] | None = None,
    weights: TensorLike | None = None,
    density: bool = False,
) -> Histogram:
    """Count how many elements lie in each of K bins.  x: [*A] -> counts: [K], edges: [K + 1]

    A bin has its first edge in it; the last bin has both. What lies outside, and NaN, is not
    counted. Real dtypes; integers become the default dtype. The gradient is that of the weights.

    Args:
        x: What to count.
        bins: How many bins of equal width, or their edges in order, as a list or a tensor.
        range: The first and the last edge of equal bins: the smallest and the largest element by
            default, or half below and above where these are equal.
        weights: What to add up for each element instead of 1.  [*A]
        density: Whether to divide by the sum and by the widths, so that the integral is 1.

    Raises:
        ArgumentError: The edges are not in order, or the range is not, or is not finite; without
            a range, an element is not. It is an ExecutionError where a run tells.
        ShapeError: The edges have not one dim, or there is no bin; the weights have another shape.
        DTypeError: A tensor is complex.

    >>> import graphfw as gf
    >>> gf.histogram(gf.asarray([0.0, 1.0, 1.5, 4.0]), bins=2).counts
    Tensor([3, 1], dtype=int64)
    """
    tensor = floats("histogram", x)
    added = flatten(_weights("histogram", tensor, weights))
    samples = flatten(tensor)
    are_given = isinstance(bins, (Sequence, np.ndarray, Tensor))
    if are_given:
        samples, edges = promoted("histogram", samples, _edges(bins))
    else:
        edges = _equal_edges(samples, bins, range)
    count = edges.shape[0] - 1
    first, last = edges[0], edges[-1]
    is_inside = (samples >= first) & (samples <= last)
    if are_given:
        position = searchsorted(edges, samples, side="right") - 1
    else:
        position = _guessed(F.where(is_inside, samples, first), edges)
    position = F.where(samples == last, count - 1, position)
    # What lies outside is counted after the last bin, and cut off.
    position = F.where(is_inside, position, count)
    counts = _added_up("histogram", position, added, count + 1)[:-1]
    if density:
        weights = counts if counts.dtype.is_inexact else converted(counts, samples.dtype)
        counts = weights / F.sum(weights) / F.diff(edges)
    return Histogram(counts, edges)


def _edges(bins: TensorLike) -> Tensor:
    """Return the edges of bins, which stand in order."""
    edges = floats("histogram", bins)
    demand(
        edges.ndim == 1 and edges.shape[0] not in (0, 1),
        f"histogram: edges {shape_text(edges.shape)} make no bin",
        {"bins": edges},
        fix="give the number of bins as an int, or two edges or more in one dim",
        error=ShapeError,
    )
    message = "histogram: the edges of the bins are not in order"
    return checked({"bins": edges}, _rises, message, fix="sort them: gf.sort(bins)")


def _rises(edges: Any) -> Any:
    """Return for each edge but the first whether it is not below the one before it."""
    return edges[1:] >= edges[:-1]


def _equal_edges(x: Tensor, bins: DimLike, range: tuple[TensorLike, TensorLike] | None) -> Tensor:
    """Return the edges of bins of equal width."""
    (count,) = dims_of("histogram", bins)
    message = "histogram: there are 0 bins"
    demand(count != 0, message, {"x": x}, fix="use bins=10", error=ShapeError)
    if range is not None:
        is_pair = len(range) == 2
        message = f"histogram: range={range!r} is no pair"
        demand(is_pair, message, fix="write range=(first, last)")
        low, high = (as_tensor(end, x.dtype) for end in range)
        ends = [concrete.value_to_check(end) for end in (low, high)]
        are_known = all([end is not None for end in ends])
        shown = f"range=({ends[0]}, {ends[1]})" if are_known else "the range"
        fix = "write range=(smaller, larger), with finite numbers"
        low = checked(
            {"low": low, "high": high}, _finite, f"histogram: {shown} is not finite", fix=fix
        )
        message = f"histogram: {shown} is not in order"
        low = checked({"low": low, "high": high}, operator.le, message, fix=fix)
    elif x.shape == (0,):
        low, high = as_tensor(0.0, x.dtype), as_tensor(1.0, x.dtype)
    else:
        low, high = _ends(x)
        message = "histogram: an element is NaN or infinite, so that there is no range for the bins"
        fix = "write range=(first, last): what lies outside of it, and NaN, is not counted"
        low = checked({"min": low, "max": high}, _finite, message, fix=fix)
    half = converted(low == high, x.dtype) * 0.5
    edges: Tensor = F.linspace(F.stop_gradient(low - half), F.stop_gradient(high + half), count + 1)
    return converted(edges, x.dtype)


def _ends(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the smallest and the largest element; where a run has none, 0 and 1 as NumPy."""
    if not isinstance(x.size, Dim):
        return F.min(x), F.max(x)
    is_empty = as_tensor(x.size, int64) == 0
    low, high = (emit(kind((0,), keepdims=False, identity=True), x) for kind in (Min, Max))
    return F.where(is_empty, 0.0, low), F.where(is_empty, 1.0, high)


def _finite(low: Any, high: Any) -> Any:
    """Return whether both ends are finite."""
    return (abs(low) < np.inf) & (abs(high) < np.inf)


def _guessed(x: Tensor, edges: Tensor) -> Tensor:
    """Find the bins of elements by the bins' width; edges decide where rounding led beside them."""
    count = edges.shape[0] - 1
    scaled = (wide(x) - wide(edges[0])) * (count / wide(edges[-1] - edges[0]))
    guess = F.minimum(F.maximum(converted(scaled, int64), 0), count - 1)
    below = converted(x < F.take(edges, guess), int64)
    above = converted(x >= F.take(edges, guess + 1), int64)
    return guess - below + above


@public
def digitize(x: TensorLike, bins: TensorLike, /, *, right: bool = False) -> Tensor:
    """Find the bin of each element.  x: [*A], bins: [K] -> [*A] int64, from 0 to K

    With edges that rise, i means bins[i - 1] <= x < bins[i]; 0 is below all, K above. With edges
    that fall it means bins[i - 1] > x >= bins[i]. NaN is above all. Real dtypes, promoted.

    Args:
        x: What to put into bins.
        bins: The edges, in rising or falling order.
        right: Whether a bin has its upper edge in it instead of its lower one.

    Raises:
        ArgumentError: The edges are in no order; it is an ExecutionError where a run tells.
        ShapeError: The edges have not one dim.
        DTypeError: The tensors are bool or complex.

    >>> import graphfw as gf
    >>> gf.digitize(gf.asarray([0.2, 6.4, 3.0]), [0.0, 1.0, 2.5, 4.0])
    Tensor([1, 4, 3], dtype=int64)
    """
    samples, edges = promoted("digitize", x, bins)
    demand(
        edges.ndim == 1,
        f"digitize: wants edges in 1 dim, not {edges.ndim}",
        {"bins": edges},
        fix="digitize with one vector of edges at a time, or use gf.vmap",
        error=ShapeError,
    )
    falls = F.any(edges[1:] < edges[:-1])
    rising = F.where(falls, F.flip(edges), edges)
    message = "digitize: the edges of the bins are not in order"
    rising = checked({"bins": rising}, _rises, message, fix="sort them: gf.sort(bins)")
    position = searchsorted(rising, samples, side="left" if right else "right")
    return F.where(falls, edges.shape[0] - position, position)
