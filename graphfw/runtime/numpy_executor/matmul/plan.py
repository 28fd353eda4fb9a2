"""The division of a product into work items, by its sizes and not by the number of threads."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from graphfw.ir.dim import DimLike, dim_max, dim_min
from graphfw.runtime.numpy_executor.matmul.blocks import CHUNK_ROWS, STRIP
from graphfw.runtime.numpy_executor.matmul.tile import TileShape, chains_for

_WORK_ITEM = 4 << 20
"""The multiplications of a work item that is neither too short nor too long: 20 to 40 µs."""

_SMALLEST = 1 << 20
"""The least work for which a work item is worth being claimed."""

_MOST_WORK_ITEMS = 64
"""More are not needed to keep 16 threads busy."""

_LONGEST = 1 << 25
"""The most multiplications of vectors in a work item, some 10 ms: only between work items is a run
interrupted."""


class Costs(NamedTuple):
    """The costs of the kinds of work.

    Attributes:
        speed: The number of multiplications in the time of one of float32 vectors.
        a: Converting `a` takes as long as multiplying it with so many columns, at speed 1.
        b: Packing `b` takes as long as multiplying it with so many rows.
    """

    speed: int
    a: int
    b: int

    def work(self, m: int, n: int, k: int) -> int:
        """Return the time of a product, in multiplications at speed 1."""
        return (m * n // self.speed + self.a * m + self.b * n) * k


PLAIN = Costs(speed=1, a=0, b=6)
CONVERTED = Costs(speed=1, a=4, b=6)
BY_PAIRS = Costs(speed=2, a=0, b=8)
BY_TILES = Costs(speed=2, a=6, b=6)

_SLICE = 1024
"""The least length of a slice, where k is split."""

_LONGEST_SLICE = 1 << 20
"""The greatest length of a slice: with few columns each position takes some 15 ns."""

_SPLIT = 1 << 19
"""The most elements of a product whose partial products are kept: up to 16 of them."""

_CHUNK = 1 << 16
"""The elements of a chunk of a work item, which stays in the L2 cache."""

_WAY, _WAYS = 4096, 8
"""Lines of memory that lie such a multiple of bytes apart have so many positions in the L1 "
"cache."""

_LEAST_TIME = 3.7
"""A tile of few rows takes as long as one of so many: it waits for the right operand."""

_ENOUGH = 10
"""The sums that keep two multipliers busy."""

_MOST_RAGGED = 8
"""The most rows of a tile where the number of all is unknown: each has a distance of its own then,
and x86 has registers for so many."""

_FEW, _PIECE, _FEWEST = 4, 1024, 4
"""The most rows of a block of few rows, its columns, and the fewest of such blocks: long pieces of
the rows of the right operand are read faster."""

_ASSUMED = 512
"""The size that is assumed where it is not known until the graph runs."""


class ProductCut(NamedTuple):
    """The cut of a product into work items.

    Attributes:
        heights: The rows of the tiles, the largest first.
        row_blocks: The number of blocks of rows.
        column_blocks: The number of blocks of columns.
        group: The number of a work item's members of the batch.
        splits: The number of slices that k is cut into.
        chunk_rows: The rows of a work item that are done at a time.
        chunk_columns: The columns of a work item that are done at a time.
        filled: The number of columns of the right operand that are computed at a time, where work
            items compute it.
    """

    heights: tuple[int, ...]
    row_blocks: DimLike
    column_blocks: DimLike
    group: DimLike
    splits: int
    chunk_rows: int
    chunk_columns: int
    filled: int = 0


def cut(
    shape: TileShape,
    costs: Costs,
    sizes: tuple[DimLike, DimLike, DimLike],
    batch: DimLike,
    sections: int = 1,
    *,
    may_split: bool = True,
    gap: DimLike = 0,
) -> ProductCut:
    """Return how a product is cut.

    Args:
        shape: The tiles.
        costs: The costs of the kinds of work.
        sizes: Rows, columns, length of the sums.
        batch: The number of products.
        sections: In how many sections of its columns a work item has the same ones. The cut is that
            of a section; all of them make as much work as one with longer sums.
        may_split: Whether k may be cut.
        gap: See `heights_for`.
    """
    m, n, k = sizes
    if sections > 1:
        assert isinstance(n, int)
        n, k = n // sections, k * sections
    heights = heights_for(shape, m, gap)
    if isinstance(m, int) and isinstance(n, int) and isinstance(k, int) and isinstance(batch, int):
        fixed = _fixed(shape, costs, heights[0], (m, n, k, batch), may_split=may_split)
        blocks: tuple[DimLike, DimLike, DimLike, int] = fixed
    else:
        blocks = _symbolic(costs, m, n, k, batch)
    chunk_rows = _chunk_rows(heights[0], m, blocks[0])
    panels = min(max(_CHUNK // chunk_rows // shape.columns // sections, 1), 128)
    if isinstance(n, int):
        panels = max(min(panels, -(-n // shape.columns)), 1)
    return ProductCut(heights, *blocks, chunk_rows, panels * shape.columns)


def _chunk_rows(height: int, m: DimLike, blocks: DimLike) -> int:
    """Return the rows of a chunk; none of several chunks is much shorter than the others.

    The right operand is packed for each piece.
    """
    most = CHUNK_ROWS // height * height
    if not (isinstance(m, int) and isinstance(blocks, int)):
        return most
    rows = min(m, _ceil(_ceil(m, height), blocks) * height)
    if rows <= CHUNK_ROWS:
        return max(rows, 1)
    units = _ceil(rows, height)
    return _ceil(units, _ceil(rows, most)) * height


def vectors(shape: TileShape, n: DimLike) -> tuple[int, ...]:
    """Return the widths of the tiles in use, in vectors."""
    if not isinstance(n, int):
        return 2, 1
    if 0 < n <= shape.lanes:
        return (1,)
    return (2, 1) if 0 < n % shape.columns <= shape.lanes else (2,)


def heights_for(shape: TileShape, m: DimLike, gap: DimLike = 0) -> tuple[int, ...]:
    """Return one height and the rest where the rows are known, else two for any number.

    Args:
        shape: The tiles.
        m: The number of rows.
        gap: The bytes from row to row of the left operand; 0 where they are not known.
    """
    if not isinstance(m, int):
        tall = min(shape.rows, _MOST_RAGGED)
        return tall, tall // 2
    is_set = isinstance(gap, int) and gap > 0 and gap % _WAY == 0
    tall = min(shape.rows, _WAYS) if is_set else shape.rows
    if m <= tall:
        return (max(m, 1),)

    def time(height: int) -> float:
        rest = m % height
        return m // height * _time(shape, height) + (
            max(_time(shape, rest), _LEAST_TIME) if rest else 0
        )

    best = min(range(tall, tall // 2, -1), key=time)
    return (best, m % best) if m % best else (best,)


def _time(shape: TileShape, height: int) -> float:
    """Return the time of a tile, in rows: a cost of its own, and more if it has few sums."""
    sums = chains_for(shape, height, 2) * height * 2
    return height + 0.2 + (0.3 if sums < _ENOUGH else 0)


# Networks have the same layer many times, and estimates ask again.
@functools.lru_cache(maxsize=1024)
def _fixed(
    shape: TileShape,
    costs: Costs,
    height: int,
    sizes: tuple[int, int, int, int],
    *,
    may_split: bool,
) -> tuple[int, int, int, int]:
    """Return the blocks of rows and columns, the members in a work item, and the slices of k."""
    m, n, k, batch = sizes
    work_items = _work_items(costs.work(m, n, k) * batch)
    if may_split and k >= 4 * _SLICE and -(-m // 64) * -(-n // 128) * batch < min(work_items, 8):
        # Smaller blocks of the product would spend their time on packing.
        return 1, 1, 1, _slices(shape, costs, _SLICE, sizes)
    if may_split and k >= 8 * _SLICE and m * n * batch <= _SPLIT:
        # Panels of a long k leave the cache before they are used again.
        return 1, 1, 1, _slices(shape, costs, 2 * _SLICE, sizes)
    members = min(batch // work_items, _longest(shape) // max(costs.work(m, n, k), 1))
    if members:
        return 1, 1, members, 1
    wanted = -(-work_items // max(batch, 1))
    return *_brief(shape, costs, height, sizes, _blocks(shape, costs, height, sizes, wanted)), 1, 1


def _work_items(work: int) -> int:
    """Return the number of work items for an amount of work."""
    return max(1, min(_MOST_WORK_ITEMS, max(work // _WORK_ITEM, min(8, work // _SMALLEST))))


def _longest(shape: TileShape) -> int:
    """Return the work that takes some 10 ms, in multiplications."""
    return _LONGEST * shape.lanes


def _slices(shape: TileShape, costs: Costs, least: int, sizes: tuple[int, int, int, int]) -> int:
    """Return the number of slices of k: 16, or so many that none is too long."""
    m, n, k, _ = sizes
    longest = max(min(_longest(shape) * k // max(costs.work(m, n, k), 1), _LONGEST_SLICE), least)
    return max(min(k // least, 16), -(-k // longest))


def _blocks(
    shape: TileShape, costs: Costs, height: int, sizes: tuple[int, int, int, int], wanted: int
) -> tuple[int, int]:
    """Return the numbers of blocks of rows and of columns with which 2, 4 or 8 threads end soon."""
    m, n, _, batch = sizes
    units, panels = -(-m // height), -(-n // shape.columns)
    if m <= _FEW:
        wanted = min(wanted, max(n // _PIECE, _FEWEST))
    best, least = (1, 1), math.inf
    for rows in _counts(units, 2 * wanted):
        for columns in _counts(panels, 2 * wanted // rows):
            if rows * columns < wanted // 2:
                continue
            largest = _largest(shape, costs, height, sizes, (rows, columns))
            # 1 << 16: the cost of claiming a work item.
            work_items, largest = rows * columns * batch, largest + (1 << 16)
            time = sum([-(-work_items // threads) * largest * threads for threads in (2, 4, 8)])
            if time < least:
                best, least = (rows, columns), time
    return best


def _brief(
    shape: TileShape,
    costs: Costs,
    height: int,
    sizes: tuple[int, int, int, int],
    blocks: tuple[int, int],
) -> tuple[int, int]:
    """Return as many blocks, or more if one would take too long.

    First blocks of columns become narrower, down to a strip of panels, since all rows of a block
    are multiplied by the same panels; then blocks of rows lower, since rows are read again for each
    block of columns; then blocks of columns again.
    """
    rows, columns = blocks
    units, panels = _ceil(sizes[0], height), _ceil(sizes[1], shape.columns)

    def times() -> int:
        return _ceil(_largest(shape, costs, height, sizes, (rows, columns)), _longest(shape))

    columns = max(columns, min(columns * times(), panels // STRIP))
    rows = min(rows * times(), units)
    columns = min(columns * times(), panels)
    return rows, columns


def _largest(
    shape: TileShape,
    costs: Costs,
    height: int,
    sizes: tuple[int, int, int, int],
    blocks: tuple[int, int],
) -> int:
    """Return the time of the largest of some blocks of rows and of columns."""
    m, n, k, _ = sizes
    rows = _ceil(_ceil(m, height), blocks[0]) * height
    columns = _ceil(_ceil(n, shape.columns), blocks[1]) * shape.columns
    return costs.work(min(rows, m), min(columns, n), k)


def _ceil(number: int, step: int) -> int:
    """Return a quotient rounded up, at least 1."""
    return max(-(-number // step), 1)


def _counts(units: int, most: int) -> list[int]:
    """Return the numbers of blocks that a number of units may be cut into."""
    return [n for n in range(1, min(units, most) + 1) if n <= 8 or n % 4 == 0]


def _symbolic(
    costs: Costs, m: DimLike, n: DimLike, k: DimLike, batch: DimLike
) -> tuple[DimLike, DimLike, DimLike, int]:
    """Return blocks of about the right work for unknown sizes."""
    rows = m if isinstance(m, int) else 128
    columns = n if isinstance(n, int) else _ASSUMED
    length = k if isinstance(k, int) else _ASSUMED
    work = costs.work(rows, columns, length)
    is_large = (isinstance(batch, int) and batch < 8) or work > 2 * _WORK_ITEM
    if not is_large and isinstance(m, int) and isinstance(n, int):
        return 1, 1, max(_WORK_ITEM // max(work, 1), 1), 1
    # About as many columns as make a work item with 128 rows, then as many rows.
    width = max(_WORK_ITEM // costs.work(min(rows, 128), 1, max(length, 1)) // 64 * 64, 64)
    height = max(_WORK_ITEM // costs.work(1, max(min(width, columns), 1), max(length, 1)), 128)
    row_blocks = dim_max(1, (m + height - 1) // height)
    column_blocks = dim_max(1, (n + width - 1) // width)
    # As in `_work_items`: small work items if there are few, several members if there are many.
    all_of_it = (m * n // costs.speed + costs.a * m + costs.b * n) * length * batch
    work_items = dim_max(1, dim_max(all_of_it // _WORK_ITEM, dim_min(8, all_of_it // _SMALLEST)))
    blocks = work_items // dim_max(1, batch * row_blocks)
    if is_large and not isinstance(m, int):
        column_blocks = dim_max(1, dim_min(column_blocks, blocks))
        few = dim_min(column_blocks, dim_max(n // _PIECE, _FEWEST))
        many = dim_min(column_blocks, m // (_FEW + 1) * column_blocks)
        return row_blocks, dim_max(few, many), 1, 1
    column_blocks = dim_max(1, dim_min(dim_max(column_blocks, blocks), (n + 63) // 64))
    return row_blocks, column_blocks, dim_max(1, batch // work_items), 1
