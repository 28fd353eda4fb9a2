"""Matrix products: float32 and int32, of any sizes, also run-time ones."""

from __future__ import annotations

from collections.abc import Callable

from spikes.tile_ir.ir import (
    Block,
    Expr,
    IndexLike,
    Kernel,
    Pack,
    Prefetch,
    Set,
    Store,
    Tile,
    Var,
    apply,
    axis,
    ceil,
    expr,
    index,
    least,
    quotient,
)
from spikes.tile_ir.schedules.target import Target

DEPTH, PANELS = 256, 4


def matmul(
    target: Target,
    m: int | None,
    n: int | None,
    k: int | None,
    dtype: str = "float32",
    epilogue: bool = False,
) -> Kernel:
    """Return c = a @ b, or max(a @ b + bias, 0); sizes of None are run-time integers.

    A work item has a block of rows and a strip of columns. It goes through k in chunks; of each it
    packs the strip of b, then computes tiles of c.
    """
    kernel = Kernel("matmul")
    rows: IndexLike = kernel.size("m") if m is None else m
    columns: IndexLike = kernel.size("n") if n is None else n
    length: IndexLike = kernel.size("k") if k is None else k
    a = kernel.argument("a", dtype, (length, 1))
    b = kernel.argument("b", dtype, (columns, 1))
    bias = kernel.argument("bias", dtype, (1,)) if epilogue else None
    c = kernel.argument("c", dtype, (columns, 1), readonly=False)
    width = 2 * target.lanes
    heights = target.heights(m, None if k is None else 4 * k)
    block = max(256 // heights[0], 1) * heights[0]
    strip = PANELS * width
    panels = kernel.temporary("panels", dtype, (PANELS, DEPTH, width))
    with (
        kernel.loop("m0", rows, block, kind="parallel") as m0,
        kernel.loop("n0", columns, strip, kind="parallel") as n0,
        kernel.loop("k0", length, DEPTH) as k0,
    ):
        kc = least(DEPTH, index(length) - k0)
        kp, p, j = Var("kp", 0), Var("p", 0), axis("j", width, target.lanes)
        column = p * width + n0 + j.var
        count = ceil(least(strip, index(columns) - n0), width)
        source = b[kp + k0, column].where((column, columns))
        ahead = b[kp + k0 + 8, p * width + n0]
        kernel.add(
            Pack(panels[p, kp, j.var], source, ((kp, kc, 1), (p, count, 1)), (j,), j.var, ahead=ahead)
        )
        with kernel.loop("p", count) as panel:
            left = index(columns) - n0 - panel * width
            for height, m1 in kernel.pieces("m1", least(block, index(rows) - m0), heights):
                i, j = axis("i", height), axis("j", width, target.lanes)
                acc, kk = Tile("acc", (i, j), dtype), Var("k", 0)
                row, column = m0 + m1 + i.var, n0 + panel * width + j.var
                with kernel.when(k0, 1):
                    kernel.add(Set(acc, expr(0)))
                with kernel.otherwise():
                    kernel.add(Set(acc, c[row, column].where((column, columns))))
                kernel.contract(
                    acc,
                    a[row, k0 + kk],
                    panels[panel, kk, j.var],
                    (kk, kc),
                    engine="fma" if dtype == "float32" else "muladd",
                )
                to = c[row, column].where((column, columns))
                kernel.add(Store(to, acc, (i, j)))
    return kernel
