"""Reductions of segments: the elements with one number, of which there may be any number.

Sums and extremes are put where the ids point; products are a scan over the elements, sorted by
segment, so that they have gradients where elements are 0.
"""

from __future__ import annotations

from graphfw.errors import DTypeError, ShapeError
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike
from graphfw.ir.functions import F, public
from graphfw.ir.shape import shape_text
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, converted, dims_of, inexact, ruled
from graphfw.ops.composed import demand, wide
from graphfw.ops.control.associative_scan import associative_scan
from graphfw.ops.creation.ranges import positions
from graphfw.ops.dtypes import least, most, require_ordered
from graphfw.ops.reduce.reductions import accumulated
from graphfw.ops.shape.gather_scatter import Gather, IndexAdd
from graphfw.ops.shape.scatter_extremes import IndexExtreme, IndexMax, IndexMin
from graphfw.ops.sorting.sort_search import argsort, searchsorted

__all__ = ["segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum"]


@public
def segment_sum(x: TensorLike, segment_ids: TensorLike, /, num_segments: DimLike) -> Tensor:
    """Add up the rows of each segment.  x: [N, *A], segment_ids: [N] -> [num_segments, *A]

    A segment is the rows of x with one number; these may stand in any order. Dtypes are those of
    `sum`, and so is the sum of a segment without rows: 0.

    Args:
        x: The rows. Numeric or bool.
        segment_ids: The segment of each row: integers from 0 on.
        num_segments: How many segments there are; it may be a symbolic dim. Rows to be left out go
            to one segment more, which is cut off.

    Raises:
        ShapeError: There is not one id for each row.
        DTypeError: The ids are no integers.
        ExecutionError: When run: an id is negative, or `num_segments` or more.

    >>> import graphfw as gf
    >>> gf.segment_sum(gf.asarray([1.0, 2.0, 4.0]), [0, 2, 0], 3)
    Tensor([5., 0., 2.], dtype=float32)
    """
    rows, ids, count = _segments("segment_sum", x, segment_ids, num_segments)
    return _sums("segment_sum", accumulated(rows, None), ids, count)


@public
def segment_mean(x: TensorLike, segment_ids: TensorLike, /, num_segments: DimLike) -> Tensor:
    """Average the rows of each segment: see `segment_sum`.

    x: [N, *A], segment_ids: [N] -> [num_segments, *A]. Floating-point or complex; integers become
    the default dtype. The mean of a segment without rows is NaN.

    Raises:
        ShapeError, DTypeError, ExecutionError: As `segment_sum`.

    >>> import graphfw as gf
    >>> gf.segment_mean(gf.asarray([1.0, 2.0, 4.0]), [0, 1, 0], 2)
    Tensor([2.5, 2. ], dtype=float32)
    """
    given, ids, count = _segments("segment_mean", inexact(x), segment_ids, num_segments)
    rows = wide(given)
    ones = F.broadcast_to(as_tensor(1, rows.dtype.real), ids.shape)
    sizes = _sums("segment_mean", ones, ids, count)
    total = _sums("segment_mean", rows, ids, count)
    mean = total / F.reshape(sizes, (count, *[1] * (rows.ndim - 1)))
    return converted(mean, given.dtype)


@public
def segment_max(x: TensorLike, segment_ids: TensorLike, /, num_segments: DimLike) -> Tensor:
    """Take the largest of each segment, column by column: see `segment_sum`.

    x: [N, *A] real, segment_ids: [N] -> [num_segments, *A]. A segment without rows gives -inf, or
    the smallest integer. One NaN makes the result NaN. Those that tie share the gradient equally.

    Raises:
        DTypeError: x is bool or complex, or the ids are no integers.
        ShapeError, ExecutionError: As `segment_sum`.

    >>> import graphfw as gf
    >>> gf.segment_max(gf.asarray([1.0, 2.0, 4.0]), [0, 1, 0], 2)
    Tensor([4., 2.], dtype=float32)
    """
    return _extreme("segment_max", IndexMax, x, segment_ids, num_segments)


@public
def segment_min(x: TensorLike, segment_ids: TensorLike, /, num_segments: DimLike) -> Tensor:
    """Take the smallest of each segment, column by column: see `segment_max`.

    x: [N, *A] real, segment_ids: [N] -> [num_segments, *A]. A segment without rows gives inf, or
    the largest integer.

    Raises:
        DTypeError, ShapeError, ExecutionError: As `segment_max`.

    >>> import graphfw as gf
    >>> gf.segment_min(gf.asarray([1.0, 2.0, 4.0]), [0, 1, 0], 2)
    Tensor([1., 2.], dtype=float32)
    """
    return _extreme("segment_min", IndexMin, x, segment_ids, num_segments)


@public
def segment_prod(x: TensorLike, segment_ids: TensorLike, /, num_segments: DimLike) -> Tensor:
    """Multiply the rows of each segment: see `segment_sum`.

    x: [N, *A], segment_ids: [N] -> [num_segments, *A]. Dtypes are those of `prod`; the product of
    a segment without rows is 1. Gradients are right where elements are 0, too.

    Raises:
        ShapeError, DTypeError, ExecutionError: As `segment_sum`.

    >>> import graphfw as gf
    >>> gf.segment_prod(gf.asarray([3.0, 2.0, 4.0]), [0, 1, 0], 2)
    Tensor([12.,  2.], dtype=float32)
    """
    given, ids, count = _segments("segment_prod", x, segment_ids, num_segments)
    rows = accumulated(given, None)
    numbers = positions(count)
    ids = emit(Gather(0, _refusal("segment_prod")), numbers, ids)  # which checks them
    order = argsort(ids)
    ids, ordered = F.take(ids, order, axis=0), wide(F.take(rows, order, axis=0))
    at = positions(ids.shape[0])
    is_first = (at == 0) | (ids != F.take(ids, F.maximum(at - 1, 0), axis=0))
    begins = F.reshape(is_first, (*ids.shape, *[1] * (rows.ndim - 1)))

    def combine(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return a[0] | b[0], F.where(b[0], 1, a[1]) * b[1]

    _, products = associative_scan(combine, (begins, ordered))
    one = F.ones((1, *rows.shape[1:]), dtype=ordered.dtype)
    first, end = (searchsorted(ids, numbers, side=side) for side in ("left", "right"))
    last = F.where(first < end, end, 0)  # 0 is the one in front of all products
    return converted(F.take(F.concat([one, products]), last, axis=0), rows.dtype)


def _segments(
    name: str, x: TensorLike, segment_ids: TensorLike, num_segments: DimLike
) -> tuple[Tensor, Tensor, DimLike]:
    rows, ids = as_tensor(x), as_tensor(segment_ids)
    (count,) = dims_of(name, num_segments)
    demand(
        ids.dtype.is_integer,
        f"{name}: segment_ids must be integers, not {ids.dtype.name}",
        {"segment_ids": ids},
        fix="convert them: gf.astype(segment_ids, gf.int64)",
        error=DTypeError,
    )
    demand(
        rows.ndim > 0 and ids.shape == rows.shape[:1],
        f"{name}: segment_ids {shape_text(ids.shape)} for rows {shape_text(rows.shape)}",
        {"x": rows, "segment_ids": ids},
        fix="give one id for each row of x, in one dim",
        error=ShapeError,
    )
    return rows, ids, count


def _refusal(name: str) -> str:
    return f"{name}: a segment id is {{index}}, and there are {{size}} segments"


def _sums(name: str, rows: Tensor, ids: Tensor, count: DimLike) -> Tensor:
    start = F.zeros((count, *rows.shape[1:]), dtype=rows.dtype)
    return emit(IndexAdd(0, _refusal(name)), start, rows, ids)


def _extreme(
    name: str, op: type[IndexExtreme], x: TensorLike, segment_ids: TensorLike, num_segments: DimLike
) -> Tensor:
    rows, ids, count = _segments(name, x, segment_ids, num_segments)
    ruled(name, rows, require_ordered, rows.dtype)
    start = least(rows.dtype) if op is IndexMax else most(rows.dtype)
    shape = (count, *rows.shape[1:])
    return emit(op(0, _refusal(name)), F.full(shape, start, dtype=rows.dtype), rows, ids)
