"""The division of work into work items, the pieces that threads claim.

The division depends on sizes only, never on threads. Small work items keep all threads at work
until the end. But the longer the piece of memory that a thread goes through, the faster it is:
pieces of 16 KB take 1.3 to 1.8 times as long as such of 1 MB. So work items are small only where
there is little work.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from graphfw.ir.dim import DimLike, dim_max, dim_min

_WORK_ITEM = 1 << 16
"""The bytes that a work item reads and writes at least, about: some microseconds of work."""

_LARGE_WORK_ITEM = 1 << 20
"""The bytes that it reads and writes at most: longer pieces are no faster."""

_WORK_ITEMS = 64
"""The number of work items up to which all have the smallest size."""

LONG = 16384
"""Rows of so many elements, and no less, are cut into several items; what goes through more of them
without a cut asks meanwhile if the run should end."""

_LINES = 16
"""A work item that leaves a line of partial sums, or whose rows are transposed together, has no
fewer rows."""

_PASSES = 4
"""An item has no fewer rows of several passes, where there are enough: while one is computed, the
next row of the work item is read."""

TILE = 4096
"""The elements of a work item where something is read across: it is a tile of rows and positions,
so that what lies in a cache line with an element is used while it is in cache."""

_TILE_POSITIONS = (16, 64, 128)
"""The number of positions in the rows of a tile. To begin a row takes as long as some vectors, so
they are many; but no more than there are."""

_BLOCK = 64
"""With "columns", a work item has a multiple of so many of them."""


class WorkDivision(NamedTuple):
    """A division of work: see `ir.Kernel`."""

    per_item: DimLike
    split: DimLike | None
    work_items: DimLike
    asks: bool = False


def is_long(inner: DimLike) -> bool:
    """Return whether rows are known to be so long that they are cut into several work items."""
    return isinstance(inner, int) and inner >= LONG


def _may_be_long(inner: DimLike) -> bool:
    """Return whether a loop over inner positions, which are not cut, may take milliseconds."""
    return not (isinstance(inner, int) and inner <= LONG)


def pieces(rows: DimLike, inner: DimLike, nbytes: int) -> WorkDivision:
    """Cut each row.

    Args:
        rows: How many there are.
        inner: How many positions a row has.
        nbytes: What is read and written at each position.
    """
    piece = _positions(rows * inner, nbytes)
    return WorkDivision(1, piece, rows * up(inner, piece))


def tiles(rows: DimLike, inner: DimLike) -> WorkDivision:
    """Cut rows and positions into tiles."""
    *fewer, most = _TILE_POSITIONS
    positions = next((n for n in fewer if isinstance(inner, int) and inner <= n), most)
    block = TILE // positions
    return WorkDivision(block, positions, up(rows, block) * up(inner, positions))


def whole_rows(
    rows: DimLike, inner: DimLike, nbytes: int, *, passes: int, some_rows: bool
) -> WorkDivision:
    """Put whole rows into a work item.

    Args:
        rows: How many there are.
        inner: How many positions a row has.
        nbytes: What is read and written at each position.
        passes: How often each row is gone through.
        some_rows: Whether each work item leaves a line of partial sums, or reads what is transposed
            some rows at a time.
    """
    least: DimLike = _LINES if some_rows else 1
    if passes > 1:
        few = min(_PASSES, rows // _WORK_ITEMS) if isinstance(rows, int) else _few(rows)
        least = max(least, few) if isinstance(few, int) else dim_max(least, few)
    block = _rows_of(inner, _positions(rows * inner, nbytes), least)
    return WorkDivision(block, None, up(rows, block), _may_be_long(inner))


def columns(others: DimLike, last: DimLike, inner: DimLike, nbytes: int) -> WorkDivision:
    """Cut the last outer axis.

    Args:
        others: The number of combinations of positions along the other outer axes.
        last: The extent of the last outer axis.
        inner: The number of inner positions.
        nbytes: What is read and written at each position.
    """
    block = _block(inner, _positions(others * last * inner, nbytes))
    return WorkDivision(block, None, others * up(last, block), _may_be_long(inner))


@lru_cache(maxsize=4096)
def _positions(total: DimLike, nbytes: int) -> DimLike:
    """Return the positions of a work item: a power of two or a multiple of 1024."""
    least, most = [
        1 << max(8, (x // nbytes).bit_length() - 1) for x in (_WORK_ITEM, _LARGE_WORK_ITEM)
    ]
    if isinstance(total, int):
        return max(least, min(most, total // (_WORK_ITEMS * 1024) * 1024))
    return dim_max(least, dim_min(most, total // (_WORK_ITEMS * 1024) * 1024))


@lru_cache(maxsize=4096)
def _few(rows: DimLike) -> DimLike:
    return dim_min(_PASSES, rows // _WORK_ITEMS)


@lru_cache(maxsize=4096)
def _rows_of(inner: DimLike, positions: DimLike, least: DimLike) -> DimLike:
    """Return the number of rows of a work item."""
    if isinstance(inner, int) and isinstance(positions, int) and isinstance(least, int):
        return max(least, positions // max(inner, 1))
    return dim_max(least, positions // dim_max(inner, 1))


@lru_cache(maxsize=4096)
def _block(inner: DimLike, positions: DimLike) -> DimLike:
    """Return the number of columns of a work item."""
    if isinstance(inner, int) and isinstance(positions, int):
        return _BLOCK * max(1, positions // max(inner, 1) // _BLOCK)
    return _BLOCK * dim_max(1, positions // dim_max(inner, 1) // _BLOCK)


@lru_cache(maxsize=4096)
def up(a: DimLike, b: DimLike) -> DimLike:
    """Return a / b, rounded up."""
    if b == 1:
        return a
    return -(-a // b)
