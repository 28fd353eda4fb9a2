"""Kernels that bring rows side by side, as the columns of a group, and back.

Rows are read and written as they lie, and transposed in registers: see `codegen.across`.
"""

from __future__ import annotations

from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType
from graphfw.runtime.kernels.ir import (
    Access,
    Axis,
    Buffer,
    InnerLoop,
    Kernel,
    Load,
    Store,
)
from graphfw.runtime.kernels.lower_work_items import TILE
from graphfw.runtime.numpy_executor.fourier.stages import StageKernel, StageParams
from graphfw.runtime.planning.work import ceil

_VECTOR = 16
"""A number of elements that is a multiple of any vector's."""


class CrossingSizes(NamedTuple):
    """The rows that become columns, or were.

    Attributes:
        batch: How many arrays there are; where several, of a multiple of `width` rows each.
        apart: How far apart they lie.
        rows: How many rows each has.
        row: How far apart they lie.
        length: How many elements each has.
        width: How many columns a group has.
    """

    batch: DimLike
    apart: DimLike
    rows: DimLike
    row: DimLike
    length: int
    width: int


class Crossing(NamedTuple):
    """A kernel, and its work items of a group: `group * per_group + number * apart`.

    Attributes:
        kernel: The kernel: it reads the first buffer and writes the second one.
        items: How many there are of a group.
        per_group: See above.
        apart: Likewise.
    """

    kernel: StageKernel
    items: int
    per_group: DimLike
    apart: DimLike


def inwards(dtype: DType, sizes: CrossingSizes) -> Crossing:
    """Return the kernel that reads rows of one array: it has a row for each of their elements."""
    block = _block(sizes.width)
    kernel = _kernel(
        dtype,
        (1, sizes.length, sizes.rows),
        (block, sizes.width),
        reads=(0, 1, sizes.row),
        writes=(0, sizes.width, 1),
    )
    return Crossing(kernel, -(-sizes.length // block), 1, ceil(sizes.rows, sizes.width))


def outwards(dtype: DType, sizes: CrossingSizes) -> Crossing:
    """Return the kernel that writes rows."""
    block = _block(sizes.width)
    kernel = _kernel(
        dtype,
        (sizes.batch, sizes.rows, sizes.length),
        (sizes.width, block),
        reads=(0, 1, sizes.width),
        writes=(sizes.apart, sizes.row, 1),
    )
    items = -(-sizes.length // block)
    return Crossing(kernel, items, items, 1)


def _block(width: int) -> int:
    """Return how many elements of so many rows make a tile, which has whole vectors."""
    return TILE // width // _VECTOR * _VECTOR


def _kernel(
    dtype: DType,
    extents: tuple[DimLike, DimLike, DimLike],
    tile: tuple[int, int],
    *,
    reads: tuple[DimLike, int, DimLike],
    writes: tuple[DimLike, DimLike, int],
) -> StageKernel:
    params = StageParams()
    batch, rows, positions = [params(f"extent {n}", extent) for n, extent in enumerate(extents)]
    read = Access(0, (("p", reads[1]), ("q", params("read position", reads[2]))))
    rows_at = ("b", params("write batch", writes[0])), ("p", params("write row", writes[1]))
    write = Access(0, (*rows_at, ("q", writes[2])))
    kernel = Kernel(
        form="rows",
        outer=(Axis("b", batch), Axis("p", rows)),
        inner=(Axis("q", positions),),
        per_item=params("per_item", tile[0]),
        split=params("split", tile[1]),
        buffers=(Buffer(dtype, False), Buffer(dtype, True)),
        params=8,
        body=(InnerLoop((Store(1, write, Load(dtype, 0, read)),)),),
    )
    assert len(params.values) == kernel.params
    return StageKernel(kernel, tuple(params.values.values()))
