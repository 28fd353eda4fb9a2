"""The orders in which the elements of feeds that are not C-contiguous lie in memory.

A program is compiled once for each order, for all sizes: small strides are part of an order, others
are run-time integers, which a run measures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from graphfw.ir.dim import DimLike, symbol
from graphfw.ir.types import Shape
from graphfw.utils.records import record

SMALL = 8
"""Strides of so many elements are part of an order."""


@record
class StrideAround:
    """The stride of an axis around another one: that one's stride times its size."""

    axis: int


@record
class RunTimeStride:
    """A stride that each run measures.

    Attributes:
        sign: 1 or -1.
    """

    sign: int


Stride: TypeAlias = "int | StrideAround | RunTimeStride"


class FeedLayout(NamedTuple):
    """An order of a feed's elements in memory.

    Attributes:
        strides: Of each axis, in elements.
        is_copied: Whether a step of the program makes a C-contiguous copy, which others read.
    """

    strides: tuple[Stride, ...]
    is_copied: bool = False


def layout_of(
    shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> tuple[FeedLayout, list[int]] | None:
    """Return the layout of an array and its measured strides, without their signs.

    Args:
        shape: The array's.
        strides: In bytes.
        itemsize: Bytes of an element.

    Returns:
        None where elements do not lie a multiple of their size apart.
    """
    if any([stride % itemsize for stride in strides]):
        return None
    found: list[Stride] = [0] * len(shape)
    inner: int | None = None
    axes = [axis for axis, size in enumerate(shape) if size != 1]
    for axis in sorted(axes, key=lambda axis: (abs(strides[axis]), -axis)):
        stride = strides[axis] // itemsize
        if inner is not None and strides[axis] == strides[inner] * shape[inner]:
            found[axis] = StrideAround(inner)
        elif abs(stride) <= SMALL:
            found[axis] = stride
        else:
            found[axis] = RunTimeStride(1 if stride > 0 else -1)
        inner = axis if stride else inner
    measured = [
        abs(nbytes) // itemsize
        for stride, nbytes in zip(found, strides, strict=True)
        if isinstance(stride, RunTimeStride)
    ]
    return FeedLayout(tuple(found)), measured


def strides_at(layout: FeedLayout, shape: Shape, names: Sequence[str]) -> tuple[DimLike, ...]:
    """Return the strides of a feed, in elements.

    Args:
        layout: Its layout.
        shape: Its shape.
        names: The symbols of its measured strides.
    """
    left = iter(names)
    known: list[DimLike | None] = []
    for stride in layout.strides:
        if isinstance(stride, RunTimeStride):
            known.append(stride.sign * symbol(next(left)))
        else:
            known.append(None if isinstance(stride, StrideAround) else stride)

    def at(axis: int) -> DimLike:
        stride, size = layout.strides[axis], known[axis]
        if size is None:
            assert isinstance(stride, StrideAround)
            size = known[axis] = at(stride.axis) * shape[stride.axis]
        return size

    return tuple(map(at, range(len(shape))))
