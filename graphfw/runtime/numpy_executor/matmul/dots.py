"""Products of few rows with a `b` whose columns are contiguous, as dot products along k.

    @dots(ptr a, i64 rs, ptr b, i64 ns, ptr c, i64 cs, i64 n)

computes r rows and c columns of the product, where the rows of `a` and the columns of `b` are
contiguous (`rs` and `ns` bytes apart): nothing is packed, `b` is read once. Where a prologue
computes `b`, `ptr operands, ptr params_of_b, i64 row, i64 column` stand for `b` and `ns`: see
`sources.ComputedRows`, whose rows are the columns of `b`.
"""

from __future__ import annotations

from typing import NamedTuple

from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.numpy_executor.codegen import FunctionText
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.matmul.elements import Elements
from graphfw.runtime.numpy_executor.matmul.sources import (
    COMPUTED,
    ComputedRows,
    InMemory,
    RowSource,
)
from graphfw.runtime.numpy_executor.matmul.tile import TileShape

MOST = 16
"""The most rows for which it is faster than packing the columns."""

_COLUMNS = 4
"""The most columns that are computed at once; what is left of them, one by one."""


class Way(NamedTuple):
    """The heights that make up the rows of a product, and the number of columns at once.

    The first of several ways is for as many rows as its first height or more.
    """

    heights: tuple[int, ...]
    columns: int


def ways(shape: TileShape, heights: tuple[int, ...]) -> tuple[Way, ...]:
    """Return the ways to make up rows of these heights: two where columns fit fewer rows only."""
    tall, *rest = [min(_COLUMNS, shape.sums // height) for height in heights]
    short = max(rest, default=tall)
    return (Way(heights, tall), *([Way(heights[1:], short)] if short > tall else []))


def dots(
    symbol: str, shape: TileShape, rows: int, columns: int, operand: Kernel | None = None
) -> FunctionText:
    """Return the function for a number of rows and columns, under a name.

    Args:
        symbol: The name.
        shape: The shape of tiles, for its vectors.
        rows: The number of rows of the product.
        columns: The number of its columns.
        operand: The prologue that computes `b`; None if it is read.
    """
    v, lanes, size = shape.vector, shape.lanes, shape.size
    body = FunctionBody()
    elements = Elements(body, shape, shape.stored)
    left = InMemory(elements, [body.at("%a", body.mul("%rs", r)) for r in range(rows)])
    right: RowSource
    if operand is None:
        right = InMemory(elements, [body.at("%b", body.mul("%ns", c)) for c in range(columns)])
    else:
        right = ComputedRows(body, shape, operand, columns, ahead=True)
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

    for _ in right.forms():
        with body.loop(0, whole, lanes) as k:
            multiply(left.load(k), right.load(k))
    rest = body.sub("%n", whole)
    with body.where(body.test("ne", rest, 0)):
        mask = elements.mask(rest)
        multiply(left.load(whole, mask), right.load(whole, mask))
    for (r, c), slot in sums.items():
        total = body.let(
            f"call reassoc {shape.element} @llvm.vector.reduce.fadd.{shape.suffix}("
            f"{shape.element} 0.0, {v} {body.get(slot, v)})"
        )
        address = body.at(body.at("%c", body.mul("%cs", r)), c * size)
        body.line(f"store {shape.element} {total}, ptr {address}, align {size}")
    its = "ptr %b, i64 %ns" if operand is None else COMPUTED
    text = body.function(
        f"define fastcc void @{symbol}(ptr %a, i64 %rs, {its}, ptr %c, i64 %cs, i64 %n)"
    )
    return FunctionText(text, body.declarations, ())
