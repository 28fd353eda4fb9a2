"""Products of few rows with a `b` whose columns are contiguous, as dot products along k.

    @dots(ptr a, i64 rs, ptr b, i64 ns, ptr c, i64 cs, i64 n)

computes r rows and c columns of the product, where the rows of `a` and the columns of `b` are
contiguous (`rs` and `ns` bytes apart): nothing is packed, `b` is read once.
"""

from __future__ import annotations

from graphfw.runtime.numpy_executor.matmul.elements import Elements
from graphfw.runtime.numpy_executor.matmul.text import Body
from graphfw.runtime.numpy_executor.matmul.tile import Shape

MOST = 16
"""Up to so many rows it is quicker than packing the columns."""

COLUMNS = 4
"""The columns that are computed at once; what is left of them, one by one."""


def dots(symbol: str, shape: Shape, rows: int, columns: int) -> str:
    """Return the function for a number of rows and columns, under a name."""
    v, lanes, size = shape.vector, shape.lanes, shape.size
    body = Body()
    elements = Elements(body, shape, shape.stored)
    left = [body.at("%a", body.mul("%rs", r)) for r in range(rows)]
    right = [body.at("%b", body.mul("%ns", c)) for c in range(columns)]
    sums = {(r, c): body.slot(v) for r in range(rows) for c in range(columns)}
    for slot in sums.values():
        body.set(slot, "zeroinitializer", v)
    whole = body.mul(body.div("%n", lanes), lanes)

    def multiply(xs: list[str], ys: list[str]) -> None:
        for (r, c), slot in sums.items():
            total = body.let(
                f"call {v} @llvm.fmuladd.{shape.suffix}({v} {xs[r]}, {v} {ys[c]}, "
                f"{v} {body.get(slot, v)})"
            )
            body.set(slot, total, v)

    with body.loop(0, whole, lanes) as k:
        offset = body.mul(k, elements.dtype.itemsize)
        loaded = [elements.load(body.at(p, offset)) for p in left + right]
        multiply(loaded[:rows], loaded[rows:])
    rest = body.sub("%n", whole)
    with body.where(body.test("ne", rest, 0)):
        offset, mask = body.mul(whole, elements.dtype.itemsize), elements.mask(rest)
        loaded = [elements.load_some(body.at(p, offset), mask) for p in left + right]
        multiply(loaded[:rows], loaded[rows:])
    for (r, c), slot in sums.items():
        total = body.let(
            f"call reassoc {shape.element} @llvm.vector.reduce.fadd.{shape.suffix}("
            f"{shape.element} 0.0, {v} {body.get(slot, v)})"
        )
        place = body.at(body.at("%c", body.mul("%cs", r)), c * size)
        body.line(f"store {shape.element} {total}, ptr {place}, align {size}")
    return body.function(
        f"define fastcc void @{symbol}(ptr %a, i64 %rs, ptr %b, i64 %ns, ptr %c, i64 %cs, i64 %n)"
    )
