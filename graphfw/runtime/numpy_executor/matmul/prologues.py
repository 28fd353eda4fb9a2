"""Operands that work items compute themselves, some rows or columns at a time."""

from __future__ import annotations

from graphfw.ir.dim import DimLike, dim_max, dim_min
from graphfw.runtime.kernels.steps import Epilogue, Prologue, Storage
from graphfw.runtime.numpy_executor.matmul.code import Operands
from graphfw.runtime.numpy_executor.matmul.epilogue import FusedKernel
from graphfw.runtime.numpy_executor.matmul.item import INLINE_ROWS
from graphfw.runtime.numpy_executor.matmul.plan import ProductCut
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.runtime.numpy_executor.matmul.work_item import FILLED

_MOST_BYTES = 2 * FILLED
"""The most bytes of rows or columns computed at a time: they stay in the L2 cache."""

LEAST_WORK_ITEMS = 8
"""With fewer, threads would wait that could compute elements."""

MANY_WORK_ITEMS = 16
"""The work items that keep threads busy, whatever the time of one."""

_SOON = 256
"""The most rows that are multiplied by some columns soon enough."""

_ROWS = 64, 128
"""The rows of an item where nobody knows how many there are: where they are few, and in general."""

_ELEMENTS, _COLUMNS = 1 << 16, 64
"""The least that a work item computes of a right operand."""


def by_rows(how: ProductCut, m: DimLike) -> ProductCut:
    """Return a cut for work items that compute rows of the left operand.

    If the number of rows is not known, work items have few, so that no thread waits at small sizes.
    """
    if isinstance(m, int) or isinstance(how.row_blocks, int):
        return how
    small, large = [(m + rows - 1) // rows for rows in _ROWS]
    return how._replace(row_blocks=dim_max(1, dim_min(small, dim_max(LEAST_WORK_ITEMS, large))))


def by_columns(
    how: ProductCut, shape: TileShape, sizes: tuple[DimLike, DimLike, DimLike], sections: int
) -> ProductCut:
    """Return a cut for work items that compute columns of the right operand, and have all rows.

    Args:
        how: The cut if the operand is read; the columns and k have known sizes.
        shape: The tiles.
        sizes: Rows, columns, length of the sums.
        sections: See `plan.cut`.
    """
    _, n, k = sizes
    assert isinstance(n, int)
    assert isinstance(k, int)
    width = max(_ELEMENTS // max(k, 1), _COLUMNS)
    panel = max(k, 1) * shape.columns * shape.stored.itemsize * sections
    panels = min(max(FILLED // panel, 1), how.chunk_columns // shape.columns)
    return how._replace(
        row_blocks=1,
        column_blocks=max(n // sections // width, 1),
        splits=1,
        filled=max(panels, 1) * shape.columns,
    )


def for_few_rows(how: ProductCut, m: DimLike, row: ProductCut) -> ProductCut:
    """Return a cut of `by_columns` that becomes the cut of a single row if there are few rows.

    Args:
        how: The cut.
        m: The number of rows.
        row: The cut of a single row.
    """
    if not (isinstance(row.column_blocks, int) and isinstance(how.column_blocks, int)):
        return how
    if row.splits != 1 or row.column_blocks >= how.column_blocks:
        return how
    usual = m // (INLINE_ROWS + 1) * how.column_blocks
    blocks = dim_max(row.column_blocks, dim_min(how.column_blocks, usual))
    return how._replace(column_blocks=blocks)


def pays_by_rows(how: ProductCut, members: DimLike, k: DimLike, itemsize: int) -> bool:
    """Return whether work items should compute the left operand: see `computes_operand`."""
    if how.splits != 1 or how.column_blocks != 1 or not isinstance(k, int):
        return False
    work_items = _work_items(how, members)
    enough = not isinstance(work_items, int) or work_items >= LEAST_WORK_ITEMS
    return enough and how.chunk_rows * k * itemsize <= _MOST_BYTES


def pays_by_columns(
    how: ProductCut, members: DimLike, m: DimLike, k: int, itemsize: int, *, is_across: bool
) -> bool:
    """Return whether work items should compute the right operand: see `computes_operand`.

    Where k does not run along the rows of its tensor, narrow pieces of many rows would be read:
    pieces of cache lines, which are gone before the others are wanted.
    """
    work_items = _work_items(how, members)
    least = LEAST_WORK_ITEMS if isinstance(m, int) and m <= _SOON else MANY_WORK_ITEMS
    enough = not isinstance(work_items, int) or work_items >= least
    if is_across and _COLUMNS * k * itemsize > FILLED:
        return False
    return enough and how.filled * k * itemsize <= _MOST_BYTES


def _work_items(how: ProductCut, members: DimLike) -> DimLike:
    return (members + how.group - 1) // how.group * how.row_blocks * how.column_blocks


def scratch_of(count: DimLike, k: DimLike, itemsize: int) -> DimLike:
    """Return the bytes of the rows or columns that are computed at a time."""
    return (count * k * itemsize + 63) // 64 * 64


def source_of(prologue: Prologue) -> Storage:
    """Return the storage that stands for the operand, which has none: the first that is read."""
    return next(storage for storage in prologue.operands if storage is not None)


def apart(epilogue: Epilogue | None, prologue: Prologue) -> Epilogue | None:
    """Return an epilogue that overwrites no operand of a prologue."""
    if epilogue is None:
        return None
    read = {storage for storage in prologue.operands if storage is not None}
    pairs = [pair for pair in epilogue.in_place if epilogue.operands[pair[1]] not in read]
    return epilogue._replace(in_place=tuple(pairs))


def with_prologue(operands: Operands, prologue: Prologue) -> tuple[Operands, FusedKernel]:
    """Return the operands of a step with those of a prologue, and the prologue for its items."""
    storages, written, region, in_place = operands
    numbers = []
    for storage in prologue.operands:
        numbers.append(-1 if storage is None else len(storages))
        if storage is not None:
            storages, written = (*storages, storage), (*written, False)
    before = FusedKernel(prologue.kernel, tuple(numbers))
    return Operands(storages, written, region, in_place), before
