"""Row kernels, sums of narrow columns, and transposed copies."""

from __future__ import annotations

import math

from spikes.tile_ir.indices import Var, axis, ceil, index, least
from spikes.tile_ir.ir import Buffer, Fold, Load, Tile, apply
from spikes.tile_ir.kernel import Kernel
from spikes.tile_ir.target import Target

LOWEST = -3.4028234663852886e38


def softmax(target: Target, rows: int, columns: int, together: int = 4) -> Kernel:
    """Return the softmax of rows: their largest element, exponentials and their sum, quotients."""
    kernel, width = Kernel("softmax"), together * target.lanes
    x = kernel.argument("x", "float32", (columns, 1))
    y = kernel.argument("y", "float32", (columns, 1), readonly=False)
    j = axis("j", width, target.lanes)
    most, total = Tile("most", (j,)), Tile("total", (j,))
    top, scale, value = Tile("top", ()), Tile("scale", ()), Tile("value", (j,))
    with (
        kernel.loop("r0", rows, 16, kind="parallel") as r0,
        kernel.loop("r1", least(16, rows - r0)) as r1,
    ):

        def element(of: Buffer, n: Var, rest: bool, outside: float = 0) -> Load:
            return of[r0 + r1, n + j].where(*[(n + j, columns)] * rest, outside=outside)

        kernel.set(most, LOWEST)
        for rest, n in kernel.parts("n", columns, width):
            kernel.set(most, apply("greater", element(x, n, rest, LOWEST), most))
        kernel.set(top, Fold("greater", most))
        kernel.set(total, 0)
        for rest, n in kernel.parts("n", columns, width):
            kernel.set(value, apply("exp", element(x, n, rest, LOWEST) - top))
            kernel.set(total, total + value)
            kernel.store(element(y, n, rest), value, (j,))
        # Of a row of nothing but -inf the sum is 0, and so are the quotients.
        kernel.set(scale, 1 / apply("greater", Fold("add", total), 1e-38))
        for rest, n in kernel.parts("n", columns, width):
            kernel.store(element(y, n, rest), element(y, n, rest) * scale, (j,))
    return kernel


def column_sums(target: Target, columns: int, together: int = 4) -> tuple[Kernel, Kernel]:
    """Return the sum of the rows of a matrix of few columns: partial sums, and what adds them.

    Registers hold as many rows as begin and end with one; which column a lane is of is the same in
    all of them. The number of rows is a run-time integer; a work item has 16384 of them.
    """
    period = math.lcm(columns, target.lanes)
    width = period * max(12 * target.lanes // period, 1)
    kernel, item = Kernel("column_sums"), 16384 * columns // width * width
    rows = kernel.size("rows")
    x = kernel.argument("x", "float32", (1,))
    parts = kernel.argument("parts", "float32", (period, 1), readonly=False)
    j = axis("j", width, target.lanes)
    total, places = Tile("total", (j,)), index(rows) * columns
    with kernel.loop("e0", places, item, kind="parallel") as e0:
        kernel.set(total, 0)
        count = least(item, places - e0)
        for rest, e1 in kernel.parts("e1", count, width):
            at = e0 + e1 + j
            kernel.set(total, total + x[at].where(*[(at, places)] * rest))
        p = axis("p", period, target.lanes)
        held = kernel.temporary("held", "float32", (width,))
        kernel.store(held[j], total, (j,))
        part = Tile("part", (p,))
        kernel.set(part, 0)
        with kernel.loop("e1", width, period) as e1:
            kernel.set(part, part + held[e1 + p])
        kernel.store(parts[e0 // item, p], part, (p,))
    return kernel, _added(target, columns, period, item)


def _added(target: Target, columns: int, period: int, item: int) -> Kernel:
    """Return what adds partial sums: those of work items, then the rows in a register."""
    kernel = Kernel("added")
    rows = kernel.size("rows")
    parts = kernel.argument("parts", "float32", (period, 1))
    y = kernel.argument("y", "float32", (1,), readonly=False)
    held = kernel.temporary("held", "float32", (period,))
    p, one = axis("p", period, target.lanes), Tile("one", ())
    total = Tile("total", (p,))
    with kernel.loop("only", 1, kind="parallel"):
        kernel.set(total, 0)
        with kernel.loop("i", ceil(index(rows) * columns, item)) as i:
            kernel.set(total, total + parts[i, p])
        kernel.store(held[p], total, (p,))
        with kernel.loop("c", columns) as c:
            kernel.set(one, 0)
            with kernel.loop("r", period // columns) as r:
                kernel.set(one, one + held[r * columns + c])
            kernel.store(y[c], one, ())
    return kernel


def transposed_copy(
    target: Target, rows: int, columns: int, side: int = 16, *, streaming: bool = False
) -> Kernel:
    """Return a matrix with its axes exchanged, square by square in registers."""
    kernel = Kernel("transposed_copy")
    x = kernel.argument("x", "float32", (columns, 1))
    y = kernel.argument("y", "float32", (rows, 1), readonly=False)
    with kernel.loop("j0", columns, side, kind="parallel") as j0:
        i0, i, j = Var("i0", 0), axis("i", side), axis("j", side, target.square)
        source, to = x[i0 + i, j0 + j], y[j0 + j, i0 + i]
        loops = ((i0, rows, side),)
        kernel.pack(to, source, loops, (i, j), i, streaming=streaming)
    return kernel


def panels(target: Target, batch: int, rows: int, length: int, dtype: str = "float32") -> Kernel:
    """Return matrices as panels, [batch][rows / panel][length][panel]: a transpose of each."""
    kernel, width, lanes = Kernel("panels"), 2 * target.lanes, target.square
    x = kernel.argument("x", dtype, (rows * length, length, 1))
    y = kernel.argument("y", dtype, (rows * length, width * length, width, 1), readonly=False)
    with (
        kernel.loop("each", batch, kind="parallel") as each,
        kernel.loop("panel", rows // width, kind="parallel") as panel,
    ):
        i0, k0 = Var("i0", 0), Var("k0", 0)
        i, k = axis("i", lanes), axis("k", lanes, lanes)
        source = x[each, panel * width + i0 + i, k0 + k].where((k0 + k, length))
        to = y[each, panel, k0 + k, i0 + i].where((k0 + k, length))
        kernel.pack(to, source, ((i0, width, lanes), (k0, length, lanes)), (i, k), i)
    return kernel
