"""Order: sort, argsort, the largest k, and search in what is sorted.

One total order for all: NaN is larger than any number (as in NumPy), and equal elements stand in
the order of their indices, in descending order too.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import DTypeError, ExecutionError
from graphfw.ir.build import emit
from graphfw.ir.dim import Dim, DimLike, always_ge
from graphfw.ir.dtype import DType, int64
from graphfw.ir.functions import F, public
from graphfw.ir.op import NONDIFF, Case, Op, bad, ok, op
from graphfw.ir.shape import normalize_axis, require, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, is_whole, promoted, ruled
from graphfw.ops.batching import MappedAxis, along_axes
from graphfw.ops.composed import demand, demand_one_of
from graphfw.ops.dtypes import compute_dtype, require_one_dtype, require_ordered
from graphfw.ops.shape.gather_scatter import Slice
from graphfw.ops.sorting import keys, selection, values

__all__ = ["TopK", "argsort", "searchsorted", "sort", "topk"]


class Sorting(Op):
    """The base of sort and argsort.  x: [*A]  ->  [*A]"""

    axis: int
    descending: bool = False
    stable: bool = True
    batch = along_axes
    mixed_precision = "follows"

    def shape(self, x: Shape) -> Shape:
        normalize_axis(self.axis, len(x))
        return x

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, n]", axis=1)
        yield ok("float32[4, 2]", axis=0, descending=True)
        yield ok("float32[4, 5]", axis=1, stable=False)
        yield ok("float32[2, 0]", axis=1)
        yield ok("uint8[7]", axis=0, descending=True)
        yield bad("float32[3]", axis=1, match="axis 1 is out of range for 1 dim")
        yield bad("bool[3]", axis=0, match="wants real tensors, not bool", error=DTypeError)
        yield bad("complex64[3]", axis=0, match="not complex64", error=DTypeError)


def _argsort(xp: Any, x: Any, axis: int, descending: bool, kind: str | None = "stable") -> Any:
    """Return the indices in sorted order.

    Descending is not ascending read backwards, which would turn equal elements around: it is the
    backwards input sorted, read backwards.
    """
    if xp is np:
        return keys.argsort(x, axis, descending=descending)
    values = x.astype(compute_dtype(xp, x.dtype), copy=False)
    if not descending:
        return xp.argsort(values, axis=axis, kind=kind)
    backwards = xp.argsort(xp.flip(values, axis), axis=axis, kind=kind)
    return x.shape[axis] - 1 - xp.flip(backwards, axis)


@op("sort")
class Sort(Sorting):
    """The elements in order along an axis."""

    def dtype(self, x: DType) -> DType:
        return require_ordered(x)

    def eval(self, xp: Any, x: Any) -> Any:
        if xp is np:
            return values.sort(x, self.axis, descending=self.descending, stable=self.stable)
        # bfloat16's own order does not know NaN.
        wide = x.astype(compute_dtype(xp, x.dtype), copy=False)
        kind = "stable" if self.stable else None
        if self.descending:
            backwards = xp.sort(xp.flip(wide, self.axis), axis=self.axis, kind=kind)
            wide = xp.flip(backwards, self.axis)
        else:
            wide = xp.sort(wide, axis=self.axis, kind=kind)
        return wide.astype(x.dtype, copy=False)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        def gradient() -> Tensor:
            # Sorting the indices gives where each element went: its gradient is there.
            indices = emit(ArgSort(self.axis, self.descending), x)
            went = emit(ArgSort(self.axis), indices)
            return F.take_along_axis(ct, went, axis=self.axis)

        return (gradient,)


@op("argsort")
class ArgSort(Sorting):
    """The indices of the elements in order along an axis."""

    vjp = NONDIFF

    def dtype(self, x: DType) -> DType:
        require_ordered(x)
        return int64

    def eval(self, xp: Any, x: Any) -> Any:
        kind = "stable" if self.stable else None
        return _argsort(xp, x, self.axis, self.descending, kind).astype(xp.int64, copy=False)


@public
def sort(
    x: TensorLike, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """Put the elements along an axis in order.  x: [*A] real -> [*A]

    NaN counts as the largest: it stands last, in descending order first.

    Args:
        x: What to sort.
        axis: Along which dim.
        descending: Whether to begin with the largest.
        stable: Whether equal elements (0.0 and -0.0) keep their order; without is faster.

    Raises:
        AxisError: There is no such axis.
        DTypeError: The tensor is bool or complex.

    >>> import graphfw as gf
    >>> gf.sort(gf.asarray([3, 1, 2]), descending=True)
    Tensor([3, 2, 1], dtype=int64)
    """
    tensor = as_tensor(x)
    axis_index = ruled("sort", tensor, normalize_axis, axis, tensor.ndim)
    return emit(Sort(axis_index, descending, stable), tensor)


@public
def argsort(
    x: TensorLike, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Tensor:
    """Find the indices of the elements along an axis in order.  x: [*A] real -> [*A] int64

    Takes the arguments of `sort`: `take_along_axis(x, argsort(x))` is `sort(x)`.

    Raises:
        AxisError: There is no such axis.
        DTypeError: The tensor is bool or complex.

    >>> import graphfw as gf
    >>> gf.argsort(gf.asarray([2, 1, 2]), descending=True)
    Tensor([0, 2, 1], dtype=int64)
    """
    tensor = as_tensor(x)
    axis_index = ruled("argsort", tensor, normalize_axis, axis, tensor.ndim)
    return emit(ArgSort(axis_index, descending, stable), tensor)


@op("topk")
class ArgTopK(Op):
    """The indices of the k largest or smallest along an axis.  x: [*A]  ->  [*A with k at axis]"""

    k: DimLike
    axis: int
    largest: bool = True
    vjp = NONDIFF
    batch = along_axes
    mixed_precision = "follows"

    def shape(self, x: Shape) -> Shape:
        axis = normalize_axis(self.axis, len(x))
        size = x[axis]
        fits = not always_ge(self.k, size + 1)
        require(
            fits,
            f"k={self.k} is more than there are",
            [(0, axis)],
            f"use k={size} or less",
        )
        return (*x[:axis], self.k, *x[axis + 1 :])

    def dtype(self, x: DType) -> DType:
        require_ordered(x)
        return int64

    def eval(self, xp: Any, x: Any) -> Any:
        size = x.shape[self.axis]
        if size < self.k:  # NumPy would take the fewer that there are
            raise ExecutionError(
                f"{self.name}: k={self.k} is more than there are along axis {self.axis}: {size}",
                fix=f"use k={size} or less",
            )
        k = int(self.k)
        if xp is np:
            return selection.first(x, k, self.axis, largest=self.largest)
        indices = _argsort(xp, x, self.axis, self.largest)
        chosen = indices[(slice(None),) * self.axis + (slice(None, k),)]
        return chosen.astype(xp.int64)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[3, n]", k=2, axis=1)
        yield ok("float32[4, 2]", k=4, axis=0, largest=False)
        yield ok("float32[2, 0]", k=0, axis=1)
        yield ok("int32[5]", k=1, axis=0)
        yield bad("float32[3]", k=4, axis=0, match="k=4 is more than there are: x\\[0\\] = 3")
        yield bad("float32[3]", k=1, axis=1, match="axis 1 is out of range for 1 dim")
        yield bad("bool[3]", k=1, axis=0, match="wants real tensors, not bool", error=DTypeError)
        yield bad("complex64[3]", k=1, axis=0, match="not complex64", error=DTypeError)


class TopK(NamedTuple):
    """The result of `topk`: the elements, and their indices along the axis."""

    values: Tensor
    indices: Tensor


@public
def topk(
    x: TensorLike, k: DimLike, /, *, axis: int = -1, largest: bool = True, sorted: bool = True
) -> TopK:
    """Take the k largest elements along an axis and their indices, the largest first.

    x: [*A] real -> values: [*A with k at axis], indices: the same, int64. Of equal elements those
    at the lowest indices are taken, in that order. NaN counts as the largest.

    Args:
        x: What to choose from.
        k: How many, at most the size of the axis.
        axis: Along which dim.
        largest: False takes the k smallest, the smallest first.
        sorted: False allows any order; at present they are sorted all the same.

    Raises:
        AxisError: There is no such axis.
        ArgumentError: `k` is negative or no int.
        ShapeError: There are fewer than k elements.
        DTypeError: The tensor is bool or complex.

    >>> import graphfw as gf
    >>> gf.topk(gf.asarray([5, 7, 7, 1]), 2).indices
    Tensor([1, 2], dtype=int64)
    """
    tensor = as_tensor(x)
    axis_index = ruled("topk", tensor, normalize_axis, axis, tensor.ndim)
    count = _count(tensor, k)
    indices = emit(ArgTopK(count, axis_index, largest), tensor)
    return TopK(F.take_along_axis(tensor, indices, axis=axis_index), indices)


def _count(x: Tensor, k: DimLike) -> DimLike:
    if isinstance(k, Dim):
        return k
    fits = is_whole(k) and not isinstance(k, Tensor)
    message = f"topk: k is {k!r}, and must be an int"
    demand(fits, message, {"x": x}, fix="pass an int, or a dim: x.shape[0]")
    count = operator.index(k)
    message = f"topk: k is {count}, and must be 0 or more"
    demand(count >= 0, message, {"x": x}, fix="for the smallest use largest=False")
    return count


@op("searchsorted")
class SearchSorted(Op):
    """The indices at which elements fit into sorted ones.  x1: [N]  x2: [*A]  ->  [*A]"""

    side: str = "left"
    vjp = NONDIFF

    def shape(self, x1: Shape, x2: Shape) -> Shape:
        require(self.side in ("left", "right"), f"side={self.side!r} is none", fix="use left")
        message = f"x1, the sorted elements, must have 1 dim, not {len(x1)}"
        require(len(x1) == 1, message, fix="search in one vector at a time, or use gf.flatten")
        return x2

    def dtype(self, x1: DType, x2: DType) -> DType:
        require_one_dtype(x1, x2)
        require_ordered(x1)
        return int64

    def eval(self, xp: Any, x1: Any, x2: Any) -> Any:
        dtype = compute_dtype(xp, x1.dtype)
        indices = xp.searchsorted(x1.astype(dtype), x2.astype(dtype), side=self.side)
        return xp.asarray(indices, dtype=xp.int64)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], x1: Tensor, x2: Tensor) -> Tensor:
        if not batched[0]:
            return emit(self, x1, x2)
        # How many of x1 stand before an element of x2 when both are sorted together.
        found = mapped.everywhere(x2, batched[1])
        wanted = F.reshape(found, (mapped.size, size_of(found.shape[1:])))
        is_left = self.side == "left"
        both = F.concat([wanted, x1] if is_left else [x1, wanted], axis=1)
        start = 0 if is_left else x1.shape[1]
        window = Slice((0, start), wanted.shape, (1, 1))
        indices = emit(window, _ranks(both)) - _ranks(wanted)
        return F.reshape(indices, found.shape)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[n]", "float32[2, 3]")
        yield ok("float32[4]", "float32[]", side="right")
        yield ok("int32[0]", "int32[3]")
        yield bad("float32[2, 3]", "float32[3]", match="must have 1 dim, not 2")
        yield bad("float32[3]", "float64[3]", match="wants one dtype", error=DTypeError)
        yield bad("bool[3]", "bool[3]", match="wants real tensors, not bool", error=DTypeError)


def _ranks(x: Tensor) -> Tensor:
    """Return how many elements stand before each when rows are sorted.  x: [M, N] -> [M, N]"""
    return emit(ArgSort(1), emit(ArgSort(1), x))


@public
def searchsorted(
    x1: TensorLike, x2: TensorLike, /, *, side: str = "left", sorter: TensorLike | None = None
) -> Tensor:
    """Find where in sorted x1 the elements of x2 would have to be inserted to keep it sorted.

    x1: [N], x2: [*A] -> [*A] int64, from 0 to N. Real dtypes, promoted.

    Args:
        x1: The sorted elements. That they are is not checked.
        x2: What to look for.
        side: "left" gives the first index among equal elements, "right" the one after the last.
        sorter: Where x1 is not sorted, the indices that sort it: `argsort(x1)`.

    Raises:
        ShapeError: x1 has not 1 dim.
        ArgumentError: `side` is something else.
        DTypeError: The tensors are bool or complex.

    >>> import graphfw as gf
    >>> gf.searchsorted(gf.asarray([1, 3, 3, 5]), gf.asarray([3, 9]))
    Tensor([1, 4], dtype=int64)
    """
    demand_one_of("searchsorted", "side", side, ("left", "right"))
    haystack, needles = promoted("searchsorted", x1, x2)
    if sorter is not None:
        haystack = F.take(haystack, as_tensor(sorter), axis=0)
    return emit(SearchSorted(side), haystack, needles, shown=(x1, x2))
