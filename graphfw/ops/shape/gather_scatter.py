"""Picking elements out and putting them back: the primitives under indexing, each with its adjoint.

A window is a range with a step along each axis. Gathered elements are named by integer tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from graphfw.errors import ArgumentError, AxisError, DTypeError, ExecutionError, counted
from graphfw.ir.affine import Index
from graphfw.ir.build import emit
from graphfw.ir.concrete import describe
from graphfw.ir.dim import Dim, DimLike, always_ge
from graphfw.ir.dim_text import evaluate
from graphfw.ir.dtype import DType, int64
from graphfw.ir.functions import F, public
from graphfw.ir.op import Case, Cost, Op, bad, nested, ok, op
from graphfw.ir.shape import Requirement, broadcast, normalize_axis, require, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape, TensorType
from graphfw.ops.args import TensorLike, as_tensor, ruled
from graphfw.ops.batching import MappedAxis, aligned, changed, lifted
from graphfw.ops.dtypes import compute_dtype, require_indices, require_numeric, require_one_dtype
from graphfw.ops.shape.movement import Movement

if TYPE_CHECKING:
    from graphfw.ir.graph import Graph

__all__ = ["take"]


class StridedSlice(Op):
    """The base of ops on `length` elements of each axis: start, start + step, …"""

    starts: tuple[DimLike, ...]
    lengths: tuple[DimLike, ...]
    steps: tuple[int, ...]

    def dtype(self, x: DType, *others: DType) -> DType:
        require_one_dtype(x, *others)
        return x

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], *xs: Tensor) -> Tensor:
        lengths = (mapped.size, *self.lengths)
        window = type(self)((0, *self.starts), lengths, (1, *self.steps))
        return emit(window, *mapped.all(xs, batched))

    def check(self, x: Shape) -> None:
        """See that the window lies inside x, as far as that is known."""
        fits = len(x) == len(self.lengths)
        message = (
            f"the window has {counted(len(self.lengths), 'dim')}, and {shape_text(x)} {len(x)}"
        )
        require(fits, message, fix="give start, length and step of each dim")
        for axis, (start, length, step) in enumerate(self.axes()):
            message = f"step {step} along axis {axis} is not positive"
            require(step > 0, message, fix="use gf.flip to go backwards")
            last = start + (length - 1) * step
            outside = always_ge(-1, start) or always_ge(last, x[axis])
            require(
                not (always_ge(length, 1) and outside),
                out_of_range(last, axis, x[axis]),
                fix=f"stay below {x[axis]}",
                error=AxisError,
            )

    def axes(self) -> Iterator[tuple[DimLike, DimLike, int]]:
        """Yield start, length and step of each axis."""
        return zip(self.starts, self.lengths, self.steps, strict=True)

    def slices(self, x: Any) -> tuple[slice, ...]:
        """Return the window as an index of an array; all fields are ints here.

        Raises:
            IndexError: It is not inside.
        """
        result = []
        for axis, (start, length, step) in enumerate(self.axes()):
            last = start + (length - 1) * step
            if length and not (0 <= start and last < x.shape[axis]):
                raise IndexError(out_of_range(start if start < 0 else last, axis, x.shape[axis]))
            result.append(slice(start, last + 1, step) if length else slice(0, 0))
        return tuple(result)


def out_of_range(index: DimLike, axis: int, dim: DimLike) -> str:
    """Say that an index lies outside its dim."""
    return f"index {index} is out of range for dim {axis} of size {dim}"


@op("slice")
class Slice(StridedSlice, Movement):
    """The elements in a window.  x: [*A]  ->  lengths"""

    def shape(self, x: Shape) -> Shape:
        self.check(x)
        return self.lengths

    def eval(self, xp: Any, x: Any) -> Any:
        return x[self.slices(x)]

    def source_index(self, index: Index, x: Shape, y: Shape) -> Index | None:
        for (start, length, step), dim in zip(self.axes(), x, strict=True):
            last = start + (length - 1) * step
            if length != 0 and not (always_ge(start, 0) and always_ge(dim - 1, last)):
                return None  # whether it lies inside is checked by eval
        return tuple([i * s + b for i, b, s in zip(index, self.starts, self.steps, strict=True)])

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: emit(SliceSet(*self.values), F.zeros_like(x), ct),)

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return Cost(0, outputs[0].nbytes, outputs[0].nbytes)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[5, 4]", starts=(1, 0), lengths=(2, 3), steps=(2, 1))
        yield ok("int32[5]", starts=(9,), lengths=(0,), steps=(1,))
        yield bad(
            "float32[5]",
            starts=(3,),
            lengths=(2,),
            steps=(2,),
            error=AxisError,
            match="index 5 is out of range for dim 0 of size 5",
        )
        yield bad("float32[5]", starts=(), lengths=(), steps=(), match="the window has 0 dims")


@op("slice_set")
class SliceSet(StridedSlice):
    """x with other values in a window.  x: [*A]  values: lengths  ->  [*A]"""

    linear = "jointly"
    mixed_precision = "follows"

    def shape(self, x: Shape, values: Shape) -> Shape:
        self.check(x)
        message = f"{shape_text(values)} doesn't fill a window {shape_text(self.lengths)}"
        require(values == self.lengths, message, fix="broadcast the values to the window first")
        return x

    def eval(self, xp: Any, x: Any, values: Any) -> Any:
        result = xp.array(x)
        result[self.slices(x)] = values
        return result

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor, values: Tensor) -> tuple[Any, ...]:
        return (
            lambda: emit(SliceSet(*self.values), ct, F.zeros_like(values)),
            lambda: emit(Slice(*self.values), ct),
        )

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        return super().cost(outputs, *inputs)._replace(flops=0)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[5, 4]", "float32[2, 3]", starts=(1, 0), lengths=(2, 3), steps=(2, 1))
        yield ok("bool[n]", "bool[0]", starts=(1,), lengths=(0,), steps=(1,))
        yield bad(
            "float32[5]",
            "float32[3]",
            starts=(0,),
            lengths=(2,),
            steps=(1,),
            match="doesn't fill a window",
        )
        yield bad(
            "float32[5]",
            "int32[2]",
            starts=(0,),
            lengths=(2,),
            steps=(1,),
            match="wants one dtype",
            error=DTypeError,
        )


class Gathering(Op):
    """The base of ops on elements that integer tensors name.

    Each of the `indices` tensors indexes one of as many axes, from `axis` on; they broadcast
    together. Negative indices count from the end, unless there is a `refusal`: the error of a run
    in which an index is negative or too large, with {index} and {size} in it. A second line of it
    is the fix.
    """

    axis: int
    refusal: str = ""
    labels: ClassVar[tuple[str, ...]] = ("x",)

    def batch(self, mapped: MappedAxis, batched: Sequence[bool], *xs: Tensor) -> Tensor:
        count = 2 if isinstance(self, Putting) else 1
        given, indices = xs[:count], aligned(batched[count:], xs[count:])
        shifted = changed(self, axis=self.axis + 1)
        if not any(batched[count:]):
            return emit(shifted, *mapped.all(given, batched[:count]), *indices)
        if not any(batched[:count]) and count == 1:
            return F.moveaxis(emit(self, *given, *indices), self.axis, 0)
        # Each example's indices are for its own slice of x: the example is one index more. The
        # indexed axes stand side by side, so the examples move to before the first of them.
        own = F.positions(mapped.size)
        moved = [F.moveaxis(x, 0, self.axis) for x in mapped.all(given, batched[:count])]
        example = lifted(own, max([i.ndim for i in indices]))
        return F.moveaxis(emit(self, *moved, example, *indices), self.axis, 0)

    def picked(self, x: Shape, indices: Sequence[Shape], first: int) -> Shape:
        """Return the shape of the elements that are named; indices are operands from `first`."""
        end = self.axis + len(indices)
        require(bool(indices), "wants one index or more", fix="without an index use x itself")
        message = f"axes {self.axis} to {end - 1} of a tensor that has {counted(len(x), 'dim')}"
        require(end <= len(x), message, fix="give one index a dim at most", error=AxisError)
        try:
            named = broadcast(*indices)
        except Requirement as failed:
            at = [(operand + first, axis) for operand, axis in failed.at]
            raise Requirement(f"indices: {failed.message}", at, failed.fix) from None
        return (*x[: self.axis], *named, *x[end:])

    def wrapped(self, xp: Any, x: Any, indices: Sequence[Any]) -> list[Any]:
        """Return the indices counted from the front.

        Raises:
            IndexError: One is out of range.
            ExecutionError: The same, where there is a `refusal`.
        """
        result = []
        for axis, index in enumerate(indices, self.axis):
            size = x.shape[axis]
            signed = index.astype(xp.int64)
            # An unsigned index that is too large for int64 has become negative.
            least = 0 if self.refusal or index.dtype.kind == "u" else -size
            wrong = (signed < least) | (signed >= size)
            if wrong.any():
                first = int(index[wrong][0])
                if self.refusal:
                    text, _, fix = self.refusal.format(index=first, size=size).partition("\n")
                    fix = fix or f"use indices from 0 on, below {size}"
                    raise ExecutionError(text, fix=fix)
                raise IndexError(out_of_range(first, axis, size))
            result.append(xp.where(signed < 0, signed + size, signed))
        return result

    def flat(self, xp: Any, x: Any, indices: Sequence[Any]) -> tuple[Any, Any]:
        """Join the indexed axes: x as [before, joined, after], the indices as one, [named]."""
        end = self.axis + len(indices)
        joined: Any = 0
        for axis, index in enumerate(self.wrapped(xp, x, indices), self.axis):
            joined = joined * x.shape[axis] + index
        before, after = math.prod(x.shape[: self.axis]), math.prod(x.shape[end:])
        matrix = x.reshape(before, math.prod(x.shape[self.axis : end]), after)
        return matrix, joined.reshape(-1)


def names_nothing(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Return whether a graph has indices that name elements of size 0 in a run of some sizes.

    Kernels go through the elements, so they look at none of these indices. Bodies of loops and
    branches count, too.
    """
    for node in graph.nodes:
        if not isinstance(node.op, Gathering):
            if any([names_nothing(body.graph, sizes) for body in nested(node.op.values)]):
                return True
            continue
        is_put = isinstance(node.op, Putting)
        moved = node.inputs[1].type if is_put else node.types[0]
        indices = node.inputs[2 if is_put else 1 :]
        if moved.size == 0 or isinstance(moved.size, Dim):
            counts = [evaluate(index.type.size, sizes) for index in indices]
            if 0 not in counts and not evaluate(moved.size, sizes):
                return True
    return False


@op("gather")
class Gather(Gathering):
    """The elements that integers name.  x: [*A, *N, *B]  indices: [*I] …  ->  [*A, *I, *B]"""

    linear = "jointly"
    mixed_precision = "follows"

    def shape(self, x: Shape, *indices: Shape) -> Shape:
        return self.picked(x, indices, 1)

    def dtype(self, x: DType, *indices: DType) -> DType:
        require_indices(*indices)
        return x

    def eval(self, xp: Any, x: Any, *indices: Any) -> Any:
        named = xp.broadcast_shapes(*(i.shape for i in indices))
        # Indices of one dim or more, because 0-d ones make a view.
        positions = [xp.atleast_1d(i) for i in self.wrapped(xp, x, indices)]
        result = x[(slice(None),) * self.axis + tuple(positions)]
        return result.reshape(
            (*x.shape[: self.axis], *named, *x.shape[self.axis + len(positions) :])
        )

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor, *indices: Tensor) -> tuple[Any, ...]:
        return (
            lambda: emit(IndexAdd(*self.values), F.zeros_like(x), ct, *indices),
            *[None] * len(indices),
        )

    def cost(self, outputs: tuple[TensorType, ...], *inputs: TensorType) -> Cost:
        read = outputs[0].nbytes
        for index in inputs[1:]:
            read = read + index.nbytes
        return Cost(0, read, outputs[0].nbytes)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[5, 3]", "int32[2, 2]", axis=0, ints=(-5, 5))
        yield ok("float32[2, 4, 4, 3]", "int64[5]", "int64[2, 1]", axis=1, ints=(-4, 4))
        yield ok("float32[4]", "uint8[]", axis=0)
        yield ok("int32[4, 0]", "int64[0]", axis=0)
        yield ok("float32[4]", "int32[2]", axis=0, refusal="there is no {index}", ints=(0, 4))
        yield bad("float32[4]", "float32[2]", axis=0, match="must be integers", error=DTypeError)
        yield bad("float32[4]", "int32[2]", axis=1, match="axes 1 to 1", error=AxisError)
        yield bad("float32[4, 4]", "int32[2]", "int32[3]", axis=0, match="indices: shapes don't")


@public
def take(x: TensorLike, indices: TensorLike, /, *, axis: int | None = None) -> Tensor:
    """Return the elements at indices along an axis.  x: [*A, N, *B], indices: [*I] -> [*A, *I, *B]

    Negative indices count from the end. The gradient adds up where an index stands twice.

    Args:
        x: What to take from.
        indices: Integers of any shape.
        axis: The axis; it may be left out where x has only one.

    Raises:
        AxisError: There is no such axis.
        ArgumentError: `axis` is left out and x has not one dim.
        DTypeError: The indices are no integers.
        ExecutionError: When run: an index is out of range.

    >>> import graphfw as gf
    >>> gf.take(gf.asarray([10, 20, 30]), [2, 0, -1])
    Tensor([30, 10, 30], dtype=int64)
    """
    tensor = as_tensor(x)
    if axis is None and tensor.ndim != 1:
        raise ArgumentError(
            f"take: axis is missing, and x has {counted(tensor.ndim, 'dim')}",
            operands=[describe("x", tensor)],
            fix="pass axis=…, or flatten x first",
        )
    axis_index = ruled("take", tensor, normalize_axis, axis or 0, tensor.ndim)
    return emit(Gather(axis_index), tensor, as_tensor(indices))


class Putting(Gathering):
    """The base of ops that put values where indices point."""

    labels = ("x", "values")
    linear: ClassVar[Literal["", "jointly", "each"]] = "jointly"

    def shape(self, x: Shape, values: Shape, *indices: Shape) -> Shape:
        indexed = self.picked(x, indices, 2)
        message = (
            f"values {shape_text(values)} don't fill the indexed elements, {shape_text(indexed)}"
        )
        require(values == indexed, message, fix="broadcast the values to the indices first")
        return x

    def dtype(self, x: DType, values: DType, *indices: DType) -> DType:
        require_indices(*indices)
        require_one_dtype(x, values)
        return x

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[5, 3]", "float32[4, 3]", "int32[4]", axis=0, ints=(-5, 5))
        yield ok("float32[2, 4, 4, 3]", "float32[2, 2, 5, 3]", "int64[5]", "int64[2, 1]", axis=1)
        yield ok("float32[n, 0]", "float32[2, 0]", "int64[2]", axis=0, ints=(0, 3))
        yield bad("float32[4]", "float32[3]", "int32[2]", axis=0, match="don't fill")


@op("index_add")
class IndexAdd(Putting):
    """x with values added to the elements that indices name; those named twice get both.

    x: [*A, *N, *B]  values: [*A, *I, *B]  indices: [*I] …  ->  [*A, *N, *B]
    """

    def dtype(self, x: DType, values: DType, *indices: DType) -> DType:
        return require_numeric(super().dtype(x, values, *indices))

    def eval(self, xp: Any, x: Any, values: Any, *indices: Any) -> Any:
        total = xp.array(x, dtype=compute_dtype(xp, x.dtype), order="C")
        matrix, joined = self.flat(xp, total, indices)
        before, size, after = matrix.shape
        # One dim, because only there is ufunc.at fast.
        rows = xp.arange(before)[:, None, None] * size + joined[:, None]
        positions = rows * after + xp.arange(after)
        xp.add.at(matrix.reshape(-1), positions.reshape(-1), values.reshape(-1).astype(total.dtype))
        return total.astype(x.dtype, copy=False)

    def vjp(
        self, ct: Tensor, y: Tensor, x: Tensor, values: Tensor, *indices: Tensor
    ) -> tuple[Any, ...]:
        return (ct, lambda: emit(Gather(*self.values), ct, *indices), *[None] * len(indices))

    @staticmethod
    def cases() -> Iterator[Case]:
        yield from Putting.cases()
        yield ok("int32[4]", "int32[]", "int64[]", axis=0)
        yield bad("bool[4]", "bool[2]", "int32[2]", axis=0, match="numeric", error=DTypeError)


@op("index_set")
class IndexSet(Putting):
    """x with other values at the elements that indices name; of those named twice the last counts.

    x: [*A, *N, *B]  values: [*A, *I, *B]  indices: [*I] …  ->  [*A, *N, *B]
    """

    mixed_precision = "follows"

    def eval(self, xp: Any, x: Any, values: Any, *indices: Any) -> Any:
        result = xp.array(x, order="C")
        matrix, joined = self.flat(xp, result, indices)
        matrix[:, joined] = values.reshape(matrix.shape[0], joined.size, matrix.shape[2])
        return result

    def vjp(
        self, ct: Tensor, y: Tensor, x: Tensor, values: Tensor, *indices: Tensor
    ) -> tuple[Any, ...]:
        return (
            lambda: emit(IndexSet(*self._where), ct, F.zeros_like(values), *indices),
            lambda: self._kept(ct, x, values, indices),
            *[None] * len(indices),
        )

    @property
    def _where(self) -> tuple[int, str]:
        """The fields that say where values are put; subclasses have more."""
        return self.axis, self.refusal

    def _kept(self, ct: Tensor, x: Tensor, values: Tensor, indices: Sequence[Tensor]) -> Tensor:
        """Return the cotangent of the values that were not overwritten by a later one."""
        order = F.reshape(F.positions(values.size), values.shape)
        written = emit(IndexSet(*self._where), F.zeros(x.shape, dtype=int64), order, *indices)
        survived = emit(Gather(*self._where), written, *indices) == order
        named = emit(Gather(*self._where), ct, *indices)
        return F.where(survived, named, F.zeros_like(named))

    @staticmethod
    def cases() -> Iterator[Case]:
        yield from Putting.cases()
        yield ok("bool[4]", "bool[]", "int64[]", axis=0)
        yield bad("float32[4]", "int32[2]", "int32[2]", axis=0, match="one dtype", error=DTypeError)
