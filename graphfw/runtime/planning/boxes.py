"""The boxes of ops that copy: ranges of the output that have one regular source each."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from graphfw.ir.dim import DimLike, always_ge, dim_max, dim_min
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.shape.concat import Concat
from graphfw.ops.shape.flip_roll import Roll
from graphfw.ops.shape.gather_scatter import Slice, StridedSlice
from graphfw.runtime.kernels.steps import Storage, View
from graphfw.runtime.kernels.views import is_whole, misplaced

_ROLLED = 4
"""The most axes that may be rolled at once: each makes twice as many boxes."""


class Box(NamedTuple):
    """A range of the output.

    Attributes:
        source: Its elements; its shape is that of the range.
        offset: Where its first element goes, in elements.
        strides: How far apart elements lie in the output, one stride a dim.
    """

    source: View
    offset: DimLike
    strides: tuple[DimLike, ...]


class Moves(NamedTuple):
    """The copies that make an output.

    Attributes:
        boxes: They don't overlap, and leave nothing out, but what lies where it belongs.
        wrong: Not 0 at run time where the run must fail.
        over: A storage that the output may be written over.
    """

    boxes: list[Box]
    wrong: DimLike = 0
    over: Storage | None = None


def moves_of(node: Node, inputs: Sequence[View], output: View) -> Moves | None:
    """Return the copies of a `concat`, `roll`, `slice` or `slice_set`; None if too many."""
    if isinstance(node.op, Concat):
        views = misplaced(node, inputs, output)
        return Moves([Box(x, view.offset, view.strides) for x, view in views])
    if isinstance(node.op, Roll):
        return _rolled(node, inputs[0], output)
    window = _Window.of(node, inputs[0])
    if isinstance(node.op, Slice):  # of which it is not known whether it lies inside of x
        box = Box(window.of_view(inputs[0]), output.offset, output.strides)
        return Moves([box], window.wrong)
    x, values = inputs
    inside = window.of_view(output)
    values = values._replace(shape=inside.shape)
    boxes = [Box(values, inside.offset, inside.strides)]
    for old, new in zip(window.around(x), window.around(output), strict=True):
        boxes.append(Box(old, new.offset, new.strides))
    # Who writes over x must not read it once more.
    free = isinstance(x.storage, Tensor) and x.storage is not values.storage and is_whole(x)
    return Moves(_with_elements(boxes), window.wrong, x.storage if free else None)


def _rolled(node: Node, x: View, output: View) -> Moves | None:
    op = node.op
    assert isinstance(op, Roll)
    if len(op.axes) > _ROLLED:
        return None
    moves = []
    for shift, axis in zip(op.shifts, op.axes, strict=True):
        dim = x.shape[axis]
        ahead = shift % dim_max(1, dim)
        # In x from where, how many, to where.
        moves.append([(axis, 0, dim - ahead, ahead), (axis, dim - ahead, ahead, 0)])
    boxes = []
    for chosen in itertools.product(*moves):
        source, offset = x, output.offset
        for axis, start, length, to in chosen:
            source = _window(source, axis, start, length)
            offset = offset + to * output.strides[axis]
        boxes.append(Box(source, offset, output.strides))
    return Moves(_with_elements(boxes))


def _with_elements(boxes: Sequence[Box]) -> list[Box]:
    return [box for box in boxes if 0 not in box.source.shape]


def merged(box: Box) -> tuple[tuple[DimLike, ...], tuple[DimLike, ...], tuple[DimLike, ...]]:
    """Return dims and strides of a box, with dims that are contiguous on both sides as one."""
    found: list[tuple[DimLike, DimLike, DimLike]] = []
    for dim, s, t in zip(box.source.shape, box.source.strides, box.strides, strict=True):
        if dim == 1:
            continue
        if found and found[-1][1] == s * dim and found[-1][2] == t * dim:
            found[-1] = (found[-1][0] * dim, s, t)
        else:
            found.append((dim, s, t))
    if not found:
        return (), (), ()
    dims, source, target = zip(*found, strict=True)
    return dims, source, target


class _Window:
    """Some elements of each axis of an array.

    Attributes:
        axes: Start, length and step of each axis, such that they lie inside.
        wrong: Greater than 0 where those that were wanted don't.
    """

    def __init__(self, axes: Sequence[tuple[DimLike, DimLike, int]], wrong: DimLike) -> None:
        self.axes = axes
        self.wrong = wrong

    @classmethod
    def of(cls, node: Node, x: View) -> _Window:
        """Return the window of a node."""
        axes: list[tuple[DimLike, DimLike, int]] = []
        wrong: DimLike = 0
        assert isinstance(node.op, StridedSlice)
        for (start, length, step), dim in zip(node.op.axes(), x.shape, strict=True):
            last = start + (length - 1) * step
            if length != 0 and not (always_ge(start, 0) and always_ge(dim - 1, last)):
                excess = dim_max(0, -start) + dim_max(0, last - dim + 1)
                wrong = wrong + dim_min(1, length) * excess
            # A window that has no elements may begin anywhere.
            begin = start
            if not always_ge(length, 1):
                begin = dim_max(0, dim_min(start, dim))
            axes.append((begin, length, step))
        return cls(axes, wrong)

    def of_view(self, x: View) -> View:
        """Return the elements of an array that the window shows."""
        for axis, (start, length, step) in enumerate(self.axes):
            x = _window(x, axis, start, length, step)
        return x

    def around(self, x: View) -> Iterator[View]:
        """Yield the boxes of an array that are outside of the window."""
        for axis, (start, length, step) in enumerate(self.axes):
            span = dim_max(0, (length - 1) * step + 1)
            end = start + span
            yield _window(x, axis, 0, start)
            yield _window(x, axis, end, x.shape[axis] - end)
            if step > 1:
                yield _gaps(x, axis, start, dim_max(0, length - 1), step)
            x = _window(x, axis, start, length, step)


def _window(x: View, axis: int, start: DimLike, length: DimLike, step: int = 1) -> View:
    """Return a window of a view along one axis."""
    stride = x.strides[axis]
    return x._replace(
        offset=x.offset + start * stride,
        shape=(*x.shape[:axis], length, *x.shape[axis + 1 :]),
        strides=(*x.strides[:axis], stride * step, *x.strides[axis + 1 :]),
    )


def _gaps(x: View, axis: int, start: DimLike, count: DimLike, step: int) -> View:
    """Return the elements between those of a window along one axis: an axis more."""
    stride = x.strides[axis]
    return x._replace(
        offset=x.offset + (start + 1) * stride,
        shape=(*x.shape[:axis], count, step - 1, *x.shape[axis + 1 :]),
        strides=(*x.strides[:axis], stride * step, stride, *x.strides[axis + 1 :]),
    )
