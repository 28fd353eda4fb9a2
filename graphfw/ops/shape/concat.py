"""Putting tensors together and taking them apart: concat, stack, split, repeat, tile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from graphfw.errors import ArgumentError, DTypeError, ShapeError, counted
from graphfw.ir.affine import Index
from graphfw.ir.build import emit, emit_all
from graphfw.ir.concrete import describe, is_concrete, value_of
from graphfw.ir.dim import Dim, DimLike, always_ge, always_le, exact_div
from graphfw.ir.dtype import DType, int64
from graphfw.ir.functions import F, public
from graphfw.ir.op import PURE, Case, bad, ok, op
from graphfw.ir.shape import Requirement, broadcast, normalize_axis, require, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, dims_of, promoted, ruled, whole
from graphfw.ops.batching import along_axes
from graphfw.ops.composed import demand, demand_one_of, require_room
from graphfw.ops.data_dependent.measuring_ops import Sizes, measure
from graphfw.ops.dtypes import require_one_dtype
from graphfw.ops.shape.gather_scatter import Slice, take
from graphfw.ops.shape.movement import (
    Movement,
    broadcast_to,
    expand_dims,
    flatten,
    reshape,
    squeeze,
)

__all__ = ["concat", "meshgrid", "repeat", "split", "stack", "tile", "unstack"]


@op("concat")
class Concat(Movement):
    """Tensors one after the other.  [*A, N, *B] [*A, M, *B] …  ->  [*A, N + M + …, *B]"""

    axis: int
    traits = frozenset({PURE})
    batch = along_axes

    def shape(self, *xs: Shape) -> Shape:
        require(bool(xs), "wants one tensor or more", (), "pass a list that is not empty")
        first = xs[0]
        normalize_axis(self.axis, len(first))
        total: DimLike = 0
        for operand, x in enumerate(xs):
            require(
                len(x) == len(first),
                f"x{operand} has {counted(len(x), 'dim')} and x0 {len(first)}",
                (),
                "gf.expand_dims adds a dim of size 1",
            )
            differ = [axis for axis in range(len(x)) if x[axis] != first[axis]]
            other = next((axis for axis in differ if axis != self.axis), None)
            if other is not None:
                fix = "only the dims along which they are joined may differ"
                if len(differ) == 1:
                    fix = f"join them along axis={other}, or make the dims equal"
                message = f"dims beside axis {self.axis} differ"
                raise Requirement(message, [(0, other), (operand, other)], fix)
            total = total + x[self.axis]
        return (*first[: self.axis], total, *first[self.axis + 1 :])

    def dtype(self, *xs: DType) -> DType:
        require_one_dtype(*xs)
        return xs[0]

    def eval(self, xp: Any, *xs: Any) -> Any:
        return xp.concatenate(xs, axis=self.axis)

    def vjp(self, ct: Tensor, y: Tensor, *xs: Tensor) -> tuple[Any, ...]:
        entries = []
        offset: DimLike = 0
        for x in xs:
            starts = tuple(offset if axis == self.axis else 0 for axis in range(x.ndim))
            window = Slice(starts, x.shape, (1,) * x.ndim)
            entries.append(lambda window=window: emit(window, ct))
            offset = offset + x.shape[self.axis]
        return tuple(entries)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[2, 3]", "float32[2, n]", "float32[2, 0]", axis=1)
        yield ok("int32[3]", axis=0)
        yield ok("bool[2]", "bool[1]", axis=0)
        yield bad("float32[2, 3]", "float32[2, 4]", axis=0, match="beside axis 0 differ: x0.1. = 3")
        yield bad("float32[2, 3]", "float32[2]", axis=0, match="x1 has 1 dim and x0 2")
        yield bad("float32[2]", "int32[2]", axis=0, match="wants one dtype", error=DTypeError)
        yield bad("float32[]", axis=0, match="a 0-d tensor|out of range for 0 dims")


@public
def concat(arrays: Sequence[TensorLike], /, *, axis: int | None = 0) -> Tensor:
    """Put tensors one after the other along an axis.  [*A, N, *B], [*A, M, *B] -> [*A, N + M, *B]

    Dtypes promote. With `axis=None` the tensors are flattened first.

    Raises:
        ShapeError: The other dims differ, or there is no tensor.
        AxisError: There is no such axis.

    >>> import graphfw as gf
    >>> gf.concat([gf.asarray([1, 2]), gf.asarray([3])])
    Tensor([1, 2, 3], dtype=int64)
    """
    tensors = _several("concat", arrays)
    if axis is None:
        tensors = [flatten(t) for t in tensors]
    place = ruled("concat", tensors[0], normalize_axis, axis or 0, tensors[0].ndim)
    return tensors[0] if len(tensors) == 1 else emit(Concat(place), *tensors)


def _several(name: str, arrays: Sequence[TensorLike]) -> list[Tensor]:
    """Return a list of tensors of one dtype."""
    is_list = isinstance(arrays, (list, tuple))
    demand(is_list, f"{name}: wants a list of tensors", fix=f"write gf.{name}([a, b])")
    fix = "pass a list that is not empty"
    demand(bool(arrays), f"{name}: wants one tensor or more", fix=fix, error=ShapeError)
    return list(promoted(name, *[as_tensor(x) for x in arrays]))


@public
def stack(arrays: Sequence[TensorLike], /, *, axis: int = 0) -> Tensor:
    """Put K tensors of one shape side by side along a new axis.  [*A] … -> [*A with K at axis]

    Raises:
        ShapeError: The shapes differ, or there is no tensor.
        AxisError: There is no such axis in the result.

    >>> import graphfw as gf
    >>> gf.stack([gf.asarray([1, 2]), gf.asarray([3, 4])], axis=1)
    Tensor([[1, 3],
            [2, 4]], dtype=int64)
    """
    tensors = _several("stack", arrays)
    place = ruled("stack", tensors[0], normalize_axis, axis, tensors[0].ndim + 1)
    for number, tensor in enumerate(tensors):
        demand(
            tensor.shape == tensors[0].shape,
            f"stack: shapes differ: {shape_text(tensors[0].shape)} and {shape_text(tensor.shape)}",
            {"x0": tensors[0], f"x{number}": tensor},
            fix="make them equal, or join them along a dim that they have with gf.concat",
            error=ShapeError,
        )
    return concat([expand_dims(tensor, axis=place) for tensor in tensors], axis=place)


@op("split")
class Split(Movement):
    """The parts of a tensor along an axis.  x: [*A, N, *B]  ->  [*A, length, *B] for each length"""

    lengths: tuple[DimLike, ...]
    axis: int
    multiple = True
    batch = along_axes

    def shape(self, x: Shape) -> tuple[Shape, ...]:
        normalize_axis(self.axis, len(x))
        total: DimLike = 0
        for length in self.lengths:
            total = total + length
        fits = total == x[self.axis]
        message = f"parts of {shape_text(self.lengths)} make {total}"
        require(fits, message, [(0, self.axis)], "the parts must make up the whole dim")
        return tuple([(*x[: self.axis], n, *x[self.axis + 1 :]) for n in self.lengths])

    def dtype(self, x: DType) -> tuple[DType, ...]:  # type: ignore[override]  # several outputs
        return (x,) * len(self.lengths)

    def eval(self, xp: Any, x: Any) -> Any:
        if any(n < 0 for n in self.lengths):  # NumPy would cut off what there is
            raise ValueError(f"a cut of dim {self.axis} lies outside its size {x.shape[self.axis]}")
        ends = list(itertools.accumulate(self.lengths[:-1]))
        return tuple(xp.split(x, ends, axis=self.axis))

    def source_index(self, index: Index, x: Shape, y: Shape, part: int = 0) -> Index | None:
        if not all(always_ge(n, 0) for n in self.lengths):
            return None
        start = [0, *itertools.accumulate(self.lengths)][part]
        return tuple([i + start if a == self.axis else i for a, i in enumerate(index)])

    def vjp(self, ct: Sequence[Tensor], y: Sequence[Tensor], x: Tensor) -> tuple[Any, ...]:
        return (lambda: F.concat(list(ct), axis=self.axis),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[2, 5]", lengths=(2, 0, 3), axis=1)
        yield ok("int32[3]", lengths=(3,), axis=0)
        yield bad("float32[2, 5]", lengths=(2, 2), axis=1, match=r"parts of \[2, 2\] make 4")


@public
def split(x: TensorLike, parts: int | Sequence[DimLike], /, axis: int = 0) -> tuple[Tensor, ...]:
    """Take a tensor apart along an axis.  x: [*A, N, *B] -> [*A, length, *B] for each part

    Args:
        x: What to take apart.
        parts: The number of equal parts, or the places to cut at, as for `np.split`: `(2, 5)` makes
            x[:2], x[2:5] and x[5:]. Places may be symbolic dims.
        axis: The axis.

    Raises:
        ShapeError: The dim does not divide into equal parts, or can't be shown to.
        ArgumentError: The places are not in order, or lie outside.
        ExecutionError: When run: the same, of a symbolic dim.

    >>> import graphfw as gf
    >>> [part.shape for part in gf.split(gf.zeros((2, 6)), 3, axis=1)]
    [(2, 2), (2, 2), (2, 2)]
    """
    tensor = as_tensor(x)
    place = ruled("split", tensor, normalize_axis, axis, tensor.ndim)
    dim = tensor.shape[place]
    if isinstance(parts, Sequence):
        return emit_all(Split(_between(tensor, parts, dim), place), tensor)
    count = whole("split", "the number of parts", parts)
    if not isinstance(count, int) or count < 1:
        raise ArgumentError(
            f"split: can't make {counted(count, 'part')}",
            operands=[describe("x", tensor)],
            fix="pass how many equal parts to make, 1 or more, or the places to cut at",
        )
    each = exact_div(dim, count)
    if each is None:
        raise ShapeError(
            f"split: dim {place} of size {dim} doesn't divide into {count} equal parts",
            operands=[describe("x", tensor)],
            fix=f"pass the places to cut at{_even(dim, count)}",
        )
    return emit_all(Split((each,) * count, place), tensor)


def _even(dim: DimLike, count: int) -> str:
    """Say where to cut a dim into parts that differ by one element at most, as NumPy does."""
    if not isinstance(dim, int) or count > dim:
        return ""
    each, longer = divmod(dim, count)
    return f": {[i * each + min(i, longer) for i in range(1, count)]}"


def _between(x: Tensor, places: Sequence[DimLike], dim: DimLike) -> tuple[DimLike, ...]:
    """Return the lengths between the places to cut at."""
    cuts = [whole("split", "the place", place) for place in places]
    ends = [dim + cut if isinstance(cut, int) and cut < 0 else cut for cut in cuts]
    lengths = tuple(b - a for a, b in zip([0, *ends], [*ends, dim], strict=True))
    in_order = not any(always_le(length, -1) for length in lengths)
    message = f"split: the places {tuple(places)} are not in order between 0 and {dim}"
    demand(in_order, message, {"x": x}, fix=f"write places from 0 to {dim}, the smallest first")
    return lengths


@public
def unstack(x: TensorLike, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the tensors that lie side by side along an axis.  x: [*A with K at axis] -> K of [*A]

    Raises:
        ShapeError: The dim is symbolic: how many tensors there are must be known.
        AxisError: There is no such axis.
    """
    tensor = as_tensor(x)
    place = ruled("unstack", tensor, normalize_axis, axis, tensor.ndim)
    count = tensor.shape[place]
    if isinstance(count, Dim):
        raise ShapeError(
            f"unstack: dim {place} has the symbolic size {count}: how many tensors it makes is "
            "not known",
            operands=[describe("x", tensor)],
            fix="work on the whole tensor at once, or give the dim a number; gf.scan and gf.map go "
            "through its elements",
        )
    slices = emit_all(Split((1,) * count, place), tensor) if count else ()
    return tuple(squeeze(part, axis=place) for part in slices)


@public
def repeat(x: TensorLike, repeats: DimLike | TensorLike, /, *, axis: int | None = None) -> Tensor:
    """Repeat each element along an axis.  x: [*A, N, *B] -> [*A, N * repeats, *B]

    Args:
        x: What to repeat.
        repeats: How often: a number (it may be a symbolic dim), or one for each element along the
            axis. Where they are not known now, each run finds out how many elements there are.
        axis: The axis; without it the tensor is flattened first.

    Raises:
        ConcreteValueError: `repeats` is not known now, in the body of a loop, a vmap, ….
        ShapeError: There are not as many repeats as elements, or the dim is symbolic.
        ExecutionError: When run: a number is negative.
        ArgumentError: A number is negative.

    >>> import graphfw as gf
    >>> gf.repeat(gf.asarray([1, 2, 3]), [2, 0, 1])
    Tensor([1, 1, 3], dtype=int64)
    """
    tensor = as_tensor(x)
    if axis is None:
        return repeat(flatten(tensor), repeats, axis=0)
    place = ruled("repeat", tensor, normalize_axis, axis, tensor.ndim)
    times = repeats if isinstance(repeats, (int, Dim)) else _times(tensor, repeats)
    dim = tensor.shape[place]
    if isinstance(times, Tensor):
        return take(tensor, _repeated(tensor, times, dim), axis=place)
    if isinstance(times, np.ndarray):
        demand(
            dim == len(times),
            f"repeat: {counted(len(times), 'repeat')} for dim {place} of size {dim}",
            {"x": tensor},
            fix="pass one number for all elements, or as many as there are elements",
            error=ShapeError,
        )
        require_room("repeat", sum(times.tolist()))
        return take(tensor, np.repeat(np.arange(len(times)), times), axis=place)
    demand(not always_le(times, -1), f"repeat: repeats={times}", {"x": tensor}, fix=_REPEATS_FIX)
    before, after = tensor.shape[:place], tensor.shape[place + 1 :]
    apart = expand_dims(tensor, axis=place + 1)
    repeated = broadcast_to(apart, (*before, dim, times, *after))
    return reshape(repeated, (*before, dim * times, *after))


_REPEATS_FIX = "repeat each element 0 times or more"


def _times(x: Tensor, repeats: TensorLike) -> int | np.ndarray[Any, Any] | Tensor:
    """Return `repeats` as one number or an array of them; a tensor where runs tell."""
    known = as_tensor(repeats)
    demand(
        known.dtype.is_integer and known.ndim <= 1,
        f"repeat: repeats must be integers in one dim, not {known.type}",
        {"x": x, "repeats": known},
        fix="pass an int, or a list of ints",
        error=DTypeError,
    )
    if not is_concrete(known):
        return known
    numbers = value_of(known, "repeat")
    is_count = bool((numbers >= 0).all())
    demand(is_count, f"repeat: repeats={numbers}", {"x": x}, fix=_REPEATS_FIX)
    return int(numbers.reshape(())) if numbers.size == 1 else numbers


def _repeated(x: Tensor, times: Tensor, dim: DimLike) -> Tensor:
    """Return the places of what is repeated, each as often as a run says.  -> [total]"""
    counts = ruled("repeat", x, broadcast, times.shape, (dim,))
    demand(
        counts == (dim,),
        f"repeat: repeats {shape_text(times.shape)} for a dim of size {dim}",
        {"x": x, "repeats": times},
        fix="pass one number for all elements, or as many as there are elements",
        error=ShapeError,
    )
    times = F.astype(broadcast_to(times, counts), int64)
    total = F.where(F.any(times < 0), -1, F.sum(times))  # sizes are checked
    (made,) = measure(Sizes, ["repeat"], reshape(total, (1,)), what="repeat: the repeats")
    assert isinstance(made.node.op, Sizes)
    places: Tensor = F.arange(*made.node.op.dims)
    return F.searchsorted(F.cumulative_sum(times), places, side="right")


@public
def tile(x: TensorLike, repetitions: DimLike | Sequence[DimLike], /) -> Tensor:
    """Repeat the whole tensor along its axes.  x: [*A] -> [*A * repetitions]

    `repetitions` count from the last axis; the shorter of both is padded with ones. They may be
    symbolic dims.

    Raises:
        ShapeError: A repetition is negative or no size.

    >>> import graphfw as gf
    >>> gf.tile(gf.asarray([1, 2]), (2, 2))
    Tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]], dtype=int64)
    """
    tensor = as_tensor(x)
    times = list(dims_of("tile", repetitions))
    ndim = max(tensor.ndim, len(times))
    dims = [*[1] * (ndim - tensor.ndim), *tensor.shape]
    times = [*[1] * (ndim - len(times)), *times]
    pairs = list(zip(times, dims, strict=True))
    apart = reshape(tensor, tuple(d for dim in dims for d in (1, dim)))
    repeated = broadcast_to(apart, tuple(d for pair in pairs for d in pair))
    return reshape(repeated, tuple(count * dim for count, dim in pairs))


@public
def meshgrid(*arrays: TensorLike, indexing: Literal["xy", "ij"] = "xy") -> list[Tensor]:
    """Return the coordinates of a grid, one tensor for each axis.

    [N], [M], [K], … -> each [N, M, K, …] with "ij"; [M, N, K, …] with "xy".

    Raises:
        ShapeError: A tensor has not one dim.
        ArgumentError: `indexing` is something else.
    """
    demand_one_of("meshgrid", "indexing", indexing, ("xy", "ij"))
    tensors = _several("meshgrid", arrays) if arrays else []
    for tensor in tensors:
        demand(
            tensor.ndim == 1,
            f"meshgrid: wants 1 dim, not {tensor.ndim}",
            {"x": tensor},
            fix="pass the numbers along each axis as a vector",
            error=ShapeError,
        )
    places = list(range(len(tensors)))
    if indexing == "xy" and len(places) > 1:
        places[:2] = [1, 0]
    dims = [tensors[place].shape[0] for place in places]
    alone = [
        reshape(tensor, [dim if axis == place else 1 for axis, dim in enumerate(dims)])
        for tensor, place in zip(tensors, places, strict=True)
    ]
    return [broadcast_to(tensor, dims) for tensor in alone]
