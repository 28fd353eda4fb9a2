"""Putting tensors together and taking them apart: the ops concat and split, and unstack."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from graphfw.errors import ArgumentError, DTypeError, ShapeError, counted
from graphfw.ir.affine import Index
from graphfw.ir.build import emit, emit_all
from graphfw.ir.concrete import describe
from graphfw.ir.dim import Dim, DimLike, always_ge, always_le, exact_div
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.op import PURE, Case, bad, ok, op
from graphfw.ir.shape import Requirement, normalize_axis, require, shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, promoted, ruled, whole
from graphfw.ops.batching import along_axes
from graphfw.ops.composed import demand
from graphfw.ops.dtypes import require_one_dtype
from graphfw.ops.shape.axes import flatten, squeeze
from graphfw.ops.shape.gather_scatter import Slice
from graphfw.ops.shape.movement import Movement

__all__ = ["concat", "split", "unstack"]


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
    tensors = tensor_list("concat", arrays)
    if axis is None:
        tensors = [flatten(t) for t in tensors]
    axis_index = ruled("concat", tensors[0], normalize_axis, axis or 0, tensors[0].ndim)
    return tensors[0] if len(tensors) == 1 else emit(Concat(axis_index), *tensors)


def tensor_list(name: str, arrays: Sequence[TensorLike]) -> list[Tensor]:
    """Return a list of tensors of one dtype."""
    is_list = isinstance(arrays, (list, tuple))
    demand(is_list, f"{name}: wants a list of tensors", fix=f"write gf.{name}([a, b])")
    fix = "pass a list that is not empty"
    demand(bool(arrays), f"{name}: wants one tensor or more", fix=fix, error=ShapeError)
    return list(promoted(name, *[as_tensor(x) for x in arrays]))


@op("split")
class Split(Movement):
    """Sections of a tensor along an axis.  x: [*A, N, *B]  ->  [*A, length, *B] for each length"""

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
        message = f"sections of {shape_text(self.lengths)} make {total}"
        require(fits, message, [(0, self.axis)], "the sections must make up the whole dim")
        return tuple([(*x[: self.axis], n, *x[self.axis + 1 :]) for n in self.lengths])

    def dtype(self, x: DType) -> tuple[DType, ...]:  # type: ignore[override]  # several outputs
        return (x,) * len(self.lengths)

    def eval(self, xp: Any, x: Any) -> Any:
        if any(n < 0 for n in self.lengths):  # NumPy would cut off what there is
            raise ValueError(f"a cut of dim {self.axis} lies outside its size {x.shape[self.axis]}")
        ends = list(itertools.accumulate(self.lengths[:-1]))
        return tuple(xp.split(x, ends, axis=self.axis))

    def source_index(self, index: Index, x: Shape, y: Shape, section: int = 0) -> Index | None:
        if not all(always_ge(n, 0) for n in self.lengths):
            return None
        start = [0, *itertools.accumulate(self.lengths)][section]
        return tuple([i + start if a == self.axis else i for a, i in enumerate(index)])

    def vjp(self, ct: Sequence[Tensor], y: Sequence[Tensor], x: Tensor) -> tuple[Any, ...]:
        return (lambda: F.concat(list(ct), axis=self.axis),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[2, 5]", lengths=(2, 0, 3), axis=1)
        yield ok("int32[3]", lengths=(3,), axis=0)
        yield bad("float32[2, 5]", lengths=(2, 2), axis=1, match=r"sections of \[2, 2\] make 4")


@public
def split(x: TensorLike, sections: int | Sequence[DimLike], /, axis: int = 0) -> tuple[Tensor, ...]:
    """Take a tensor apart along an axis.  x: [*A, N, *B] -> [*A, length, *B] for each section

    Args:
        x: What to take apart.
        sections: The number of equal sections, or the positions to cut at, as for `np.split`:
            `(2, 5)` makes x[:2], x[2:5] and x[5:]. Positions may be symbolic dims.
        axis: The axis.

    Raises:
        ShapeError: The dim does not divide into equal sections, or can't be shown to.
        ArgumentError: The positions are not in order, or lie outside.
        ExecutionError: When run: the same, of a symbolic dim.

    >>> import graphfw as gf
    >>> [section.shape for section in gf.split(gf.zeros((2, 6)), 3, axis=1)]
    [(2, 2), (2, 2), (2, 2)]
    """
    tensor = as_tensor(x)
    axis_index = ruled("split", tensor, normalize_axis, axis, tensor.ndim)
    dim = tensor.shape[axis_index]
    if isinstance(sections, Sequence):
        return emit_all(Split(_between(tensor, sections, dim), axis_index), tensor)
    count = whole("split", "the number of sections", sections)
    if not isinstance(count, int) or count < 1:
        raise ArgumentError(
            f"split: can't make {counted(count, 'section')}",
            operands=[describe("x", tensor)],
            fix="pass how many equal sections to make, 1 or more, or the positions to cut at",
        )
    each = exact_div(dim, count)
    if each is None:
        raise ShapeError(
            f"split: dim {axis_index} of size {dim} doesn't divide into {count} equal sections",
            operands=[describe("x", tensor)],
            fix=f"pass the positions to cut at{_even(dim, count)}",
        )
    return emit_all(Split((each,) * count, axis_index), tensor)


def _even(dim: DimLike, count: int) -> str:
    """Return where to cut a dim into sections that differ by one element at most, as NumPy does."""
    if not isinstance(dim, int) or count > dim:
        return ""
    each, longer = divmod(dim, count)
    return f": {[i * each + min(i, longer) for i in range(1, count)]}"


def _between(x: Tensor, positions: Sequence[DimLike], dim: DimLike) -> tuple[DimLike, ...]:
    """Return the lengths between the positions to cut at."""
    cuts = [whole("split", "the position", position) for position in positions]
    ends = [dim + cut if isinstance(cut, int) and cut < 0 else cut for cut in cuts]
    lengths = tuple(b - a for a, b in zip([0, *ends], [*ends, dim], strict=True))
    in_order = not any(always_le(length, -1) for length in lengths)
    message = f"split: the positions {tuple(positions)} are not in order between 0 and {dim}"
    demand(in_order, message, {"x": x}, fix=f"write positions from 0 to {dim}, the smallest first")
    return lengths


@public
def unstack(x: TensorLike, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the tensors that lie side by side along an axis.  x: [*A with K at axis] -> K of [*A]

    Raises:
        ShapeError: The dim is symbolic: how many tensors there are must be known.
        AxisError: There is no such axis.
    """
    tensor = as_tensor(x)
    axis_index = ruled("unstack", tensor, normalize_axis, axis, tensor.ndim)
    count = tensor.shape[axis_index]
    if isinstance(count, Dim):
        raise ShapeError(
            f"unstack: dim {axis_index} has the symbolic size {count}: how many tensors it makes "
            "is "
            "not known",
            operands=[describe("x", tensor)],
            fix="work on the whole tensor at once, or give the dim a number; gf.scan and gf.map go "
            "through its elements",
        )
    slices = emit_all(Split((1,) * count, axis_index), tensor) if count else ()
    return tuple(squeeze(section, axis=axis_index) for section in slices)
