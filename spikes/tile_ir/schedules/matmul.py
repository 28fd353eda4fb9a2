"""Matrix products: float32 and int32, of any sizes, also run-time ones."""

from __future__ import annotations

import functools

from spikes.tile_ir.indices import Index, IndexLike, Var, axis, ceil, index, least
from spikes.tile_ir.ir import Buffer, Engine, Tile, apply
from spikes.tile_ir.kernel import Kernel
from spikes.tile_ir.target import Target

PANELS = 4
"""How many panels of columns are packed at a time."""

FIRST = 32768
"""The bytes of a packed panel: it stays in the L1 cache while tiles go down the rows."""


@functools.lru_cache
def matmul(
    target: Target,
    m: int | None,
    n: int | None,
    k: int | None,
    dtype: str = "float32",
    epilogue: bool = False,
    packed: bool = False,
    engine: Engine = "fma",
) -> Kernel:
    """Return c = a @ b, or max(a @ b + bias, 0); sizes of None are run-time integers.

    A work item has a block of rows and a strip of columns. It goes through k in chunks; of each it
    packs the strip of b, unless `packed_columns` has done so, then computes tiles of c.
    """
    kernel = Kernel("matmul")
    rows: IndexLike = kernel.size("m") if m is None else m
    columns: IndexLike = kernel.size("n") if n is None else n
    length: IndexLike = kernel.size("k") if k is None else k
    a = kernel.argument("a", dtype, (length, 1))
    width = 2 * target.lanes
    b = kernel.argument("b", dtype, (length if packed else columns, 1))
    bias = kernel.argument("bias", dtype, (1,)) if epilogue else None
    c = kernel.argument("c", dtype, (columns, 1), readonly=False)
    heights = target.heights(m, None if k is None else 4 * k)
    block = row_block(m, heights[0])
    strip, depth = PANELS * width, FIRST // 4 // width
    panels = b if packed else kernel.temporary("panels", dtype, (strip, depth))
    with (
        kernel.loop("m0", rows, block, kind="parallel") as m0,
        kernel.loop("n0", columns, strip, kind="parallel") as n0,
        kernel.loop("k0", length, depth) as k0,
    ):
        kc = least(depth, index(length) - k0)
        count = ceil(least(strip, index(columns) - n0), width)
        if not packed:
            _pack(kernel, target, b, panels, (k0, n0), (0, 0), (kc, count), columns)

        def tiles(vectors: int, panel: Var) -> None:
            for height, m1 in kernel.pieces("m1", least(block, index(rows) - m0), heights):
                i, j = (axis("i", height), axis("j", vectors * target.lanes, target.lanes))
                acc, kk = Tile("acc", (i, j), dtype), Var("k", 0)
                row, column = m0 + m1 + i, n0 + panel * width + j
                place = c[row, column].where((column, columns))
                kernel.set(acc, 0)
                first, line = (n0, k0 + kk) if packed else (0, kk)
                right = panels[first + panel * width, line * width + j]
                kernel.contract(acc, a[row, k0 + kk], right, (kk, kc), engine=engine)
                # Added at the end: a tile that began with what is there would wait for it.
                if k is None or k > depth:
                    with kernel.when(0, k0):
                        kernel.set(acc, acc + place)
                if bias is not None:
                    with kernel.when(index(length) - kc, k0 + 1):
                        rest = bias[column].where((column, columns))
                        kernel.set(acc, apply("max", acc + rest, 0.0))
                kernel.store(place, acc, (i, j))

        with kernel.loop("p", count) as panel:
            if n is not None and not 0 < n % width <= target.lanes:
                tiles(2, panel)
            else:
                with kernel.when(target.lanes, index(columns) - n0 - panel * width):
                    tiles(2, panel)
                with kernel.otherwise():
                    tiles(1, panel)
    return kernel


def packed_columns(target: Target, n: int, k: int, dtype: str = "float32") -> Kernel:
    """Return b as panels, [columns / panel][k][panel]: worth it where rows have many blocks."""
    kernel, strip, depth = Kernel("packed_columns"), PANELS * 2 * target.lanes, 256
    b = kernel.argument("b", dtype, (n, 1))
    panels = kernel.argument("panels", dtype, (k, 1), readonly=False)
    with (
        kernel.loop("k0", k, depth, kind="parallel") as k0,
        kernel.loop("n0", n, strip, kind="parallel") as n0,
    ):
        counts = least(depth, index(k) - k0), ceil(least(strip, index(n) - n0), strip // PANELS)
        _pack(kernel, target, b, panels, (k0, n0), (k0, n0), counts, n)
    return kernel


def _pack(
    kernel: Kernel,
    target: Target,
    b: Buffer,
    panels: Buffer,
    begin: tuple[IndexLike, IndexLike],
    to: tuple[IndexLike, IndexLike],
    counts: tuple[Index, Index],
    columns: IndexLike,
) -> None:
    """Pack some rows and panels of b; begin and to are the first row and column here and there."""
    k, p, j = Var("kp", 0), Var("p", 0), axis("j", 2 * target.lanes, target.lanes)
    row, first = begin[0] + k, p * j.size + begin[1]
    source = b[row, first + j].where((first + j, columns))
    place = panels[p * j.size + to[1], (k + to[0]) * j.size + j]
    loops = (k, counts[0], 1), (p, counts[1], 1)
    kernel.pack(place, source, loops, (j,), j, ahead=b[row + 8, first])


def row_block(m: int | None, height: int) -> int:
    """Return how many rows a work item has: about 256, and no block is much smaller."""
    units = max(256 // height, 1)
    if m is not None:
        whole = -(-m // height)
        units = -(-whole // max(round(whole / units), 1))
    return units * height


def row(target: Target, n: int, k: int, weights: str, together: int = 8) -> Kernel:
    """Return y = x @ w of one row: some rows of w at a time are added to a piece of y."""
    kernel = Kernel("row")
    x = kernel.argument("x", "float32", (1,))
    w = kernel.argument("w", weights, (n, 1))
    y = kernel.argument("y", "float32", (1,), readonly=False)
    piece, width = 1024, 4 * target.lanes
    with kernel.loop("n0", n, piece, kind="parallel") as n0:
        with kernel.loop("n1", piece, width) as n1:
            j = axis("j", width, target.lanes)
            kernel.store(y[n0 + n1 + j], 0, (j,))
        with kernel.loop("k0", k, together) as k0, kernel.loop("n1", piece, width) as n1:
            j, kk = axis("j", width, target.lanes), Var("k", 0)
            acc, column = Tile("acc", (j,)), n0 + n1 + j
            kernel.set(acc, y[column])
            right = w[k0 + kk, column]
            wide = right if weights == "float32" else apply("f32", right)
            kernel.contract(acc, x[k0 + kk], wide, (kk, together), unroll=together)
            kernel.store(y[column], acc, (j,))
    return kernel
