"""Packing: columns of `b` copied to panels, `[panel][k][two vectors]`.

    @pack(ptr b, i64 ks, i64 ns, ptr to, i64 gap, i64 n, i64 columns)

copies n positions of k of a number of columns; `ks` and `ns` are the bytes from position to
position and from column to column, `gap` those from panel to panel. There is one function for each
layout of `b`: with contiguous rows, contiguous columns, or neither. The last panel is padded with
any numbers, since results of them are not stored.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.matmul.elements import Elements
from graphfw.runtime.numpy_executor.matmul.tile import TileShape

Layout: TypeAlias = Literal["rows", "columns", "other", "packed"]
"""The order of `b` in memory; "packed" is panels of all of its columns, made in advance."""

_AHEAD = 8
"""The distance in rows of prefetched memory: rows are too far apart for the processor to guess."""


def packing(symbol: str, shape: TileShape, layout: Layout) -> str:
    """Return the function that packs a layout, under a name."""
    body = FunctionBody()
    if layout == "columns":
        columns(body, shape, Elements(body, shape, shape.stored), "%n")
    else:
        (_rows if layout == "rows" else _elements)(body, shape)
    return body.function(
        f"define fastcc void @{symbol}(ptr %b, i64 %ks, i64 %ns, ptr %to, i64 %gap, i64 %n, "
        "i64 %columns)"
    )


def _rows(body: FunctionBody, shape: TileShape) -> None:
    """Row by row: whole panels, then the columns that are left, under a mask."""
    stored, computed = Elements(body, shape, shape.stored), Elements(body, shape, shape.dtype)
    width, old, new = shape.columns, shape.stored.itemsize, shape.size
    panels = body.div("%columns", width)
    rest = body.rem("%columns", width)
    is_rest = body.test("ne", rest, 0)
    kept = [stored.mask(rest, n) for n in range(2)]
    rest_from, rest_to = body.mul(panels, width * old), body.mul(panels, "%gap")
    with body.loop(0, "%n") as k:
        row = body.at("%b", body.mul(k, "%ks"))
        to = body.at("%to", body.mul(k, width * new))
        with body.loop(0, panels) as panel:
            offset = body.mul(panel, width * old)
            address = body.at(to, body.mul(panel, "%gap"))
            for n in range(2):
                lane = n * shape.lanes
                here = body.at(body.at(row, offset), lane * old)
                ahead(body, here, "%ks")
                value = stored.load(here)
                computed.store(value, body.at(address, lane * new))
        with body.where(is_rest):
            for n in range(2):
                lane = n * shape.lanes
                value = stored.load_some(body.at(body.at(row, rest_from), lane * old), kept[n])
                computed.store(value, body.at(body.at(to, rest_to), lane * new))


def ahead(body: FunctionBody, position: str, gap: str) -> None:
    """Prefetch memory some rows after a position."""
    there = body.at(position, body.mul(gap, _AHEAD))
    body.line(f"call void @llvm.prefetch.p0(ptr {there}, i32 0, i32 3, i32 1)")


def columns(body: FunctionBody, shape: TileShape, stored: Elements, n: str) -> None:
    """Pack n contiguous elements of each column, of as many columns at a time as there are lanes.

    A register is put together of pieces of 16 bytes of every q-th column; q of these are transposed
    within each 16 bytes. Where there are no more columns the last one is repeated.
    """
    q, lanes, size = 16 // shape.size, shape.lanes, shape.size
    computed, item = Elements(body, shape, shape.dtype), stored.dtype.itemsize
    last = body.sub("%columns", 1)
    whole = body.mul(body.div(n, q), q)
    with body.loop(0, "%columns", lanes) as column:
        numbers = [body.min(body.add(column, c), last) for c in range(lanes)]
        starts = [body.at("%b", body.mul(number, "%ns")) for number in numbers]
        to = address_of_column(body, shape, column)
        with body.loop(0, whole, q) as k:
            offset = body.mul(k, item)
            pieces = [stored.load(body.at(c, offset), q) for c in starts]
            registers = [_joined(body, shape.element, q, pieces[i::q]) for i in range(q)]
            row = body.at(to, body.mul(k, shape.columns * size))
            for index, value in enumerate(transposed_pieces(body, shape, q, registers)):
                computed.store(value, body.at(row, index * shape.columns * size))
        with body.loop(whole, n) as k:
            row = body.at(to, body.mul(k, shape.columns * size))
            offset = body.mul(k, item)
            for c, source in enumerate(starts):
                value = stored.load(body.at(source, offset), 1)
                body.line(f"store {shape.element} {value}, ptr {body.at(row, c * size)}")


def _joined(body: FunctionBody, element: str, length: int, pieces: list[str]) -> str:
    """Concatenate vectors, pair by pair."""
    while len(pieces) > 1:
        kind, order = f"<{length} x {element}>", ", ".join([f"i32 {i}" for i in range(2 * length)])
        pieces = [
            body.let(f"shufflevector {kind} {x}, {kind} {y}, <{2 * length} x i32> <{order}>")
            for x, y in zip(pieces[::2], pieces[1::2], strict=True)
        ]
        length *= 2
    return pieces[0]


def transposed_pieces(
    body: FunctionBody, shape: TileShape, q: int, registers: list[str]
) -> list[str]:
    """Transpose the q registers as q-by-q matrices, one in each 16 bytes."""
    v, lanes, half = shape.vector, shape.lanes, q // 2
    for _ in range(q.bit_length() - 1):
        mixed = []
        for x, y in zip(registers[:half], registers[half:], strict=True):
            for side in (0, half):
                # Within 16 bytes: x0 y0 x1 y1 ..., of the lower or of the upper half.
                order = [
                    piece + side + i + other
                    for piece in range(0, lanes, q)
                    for i in range(half)
                    for other in (0, lanes)
                ]
                text = ", ".join([f"i32 {i}" for i in order])
                mixed.append(body.let(f"shufflevector {v} {x}, {v} {y}, <{lanes} x i32> <{text}>"))
        registers = mixed
    return registers


def address_of_column(body: FunctionBody, shape: TileShape, column: str) -> str:
    """Return the address of a column's first element in its panel."""
    panel = body.div(column, shape.columns)
    within = body.mul(body.rem(column, shape.columns), shape.size)
    return body.at(body.at("%to", body.mul(panel, "%gap")), within)


def _elements(body: FunctionBody, shape: TileShape) -> None:
    """Element by element."""
    stored = Elements(body, shape, shape.stored)
    with body.loop(0, "%columns") as column:
        to = address_of_column(body, shape, column)
        start = body.at("%b", body.mul(column, "%ns"))
        with body.loop(0, "%n") as k:
            value = stored.load(body.at(start, body.mul(k, "%ks")), 1)
            address = body.at(to, body.mul(k, shape.columns * shape.size))
            body.line(f"store {shape.element} {value}, ptr {address}")


def widening(symbol: str, shape: TileShape) -> str:
    """Return the function, under a name, that converts a matrix to the dtype that is computed in.

        @widen(ptr from, i64 os, i64 is, ptr to, i64 outer, i64 inner)

    `os` and `is` are the bytes between outer and between inner elements. The result is contiguous,
    in the same order.
    """
    body = FunctionBody()
    stored, computed = Elements(body, shape, shape.stored), Elements(body, shape, shape.dtype)
    row_bytes = body.mul("%inner", shape.size)
    dense = body.test("eq", "%is", shape.stored.itemsize)
    whole = body.mul(body.div("%inner", shape.lanes), shape.lanes)
    whole = body.select(dense, whole, "0")
    with body.loop(0, "%outer") as row:
        source, to = (
            body.at("%from", body.mul(row, "%os")),
            body.at("%to", body.mul(row, row_bytes)),
        )
        with body.loop(0, whole, shape.lanes) as i:
            value = stored.load(body.at(source, body.mul(i, shape.stored.itemsize)))
            computed.store(value, body.at(to, body.mul(i, shape.size)))
        with body.loop(whole, "%inner") as i:
            value = stored.load(body.at(source, body.mul(i, "%is")), 1)
            body.line(f"store {shape.element} {value}, ptr {body.at(to, body.mul(i, shape.size))}")
    return body.function(
        f"define fastcc void @{symbol}(ptr %from, i64 %os, i64 %is, ptr %to, i64 %outer, "
        "i64 %inner)"
    )


def rounding(symbol: str, shape: TileShape) -> str:
    """Return the function, under a name, that rounds a block to the dtype that it is stored as.

        @round(ptr from, i64 fs, ptr to, i64 ts, i64 rows, i64 columns)

    `fs` and `ts` are the bytes from row to row. `to` may be `from`, with ts <= fs.
    """
    body = FunctionBody()
    stored, computed = Elements(body, shape, shape.stored), Elements(body, shape, shape.dtype)
    with body.loop(0, "%rows") as row:
        source, to = body.at("%from", body.mul(row, "%fs")), body.at("%to", body.mul(row, "%ts"))
        with body.loop(0, "%columns", shape.lanes) as column:
            mask = computed.mask(body.sub("%columns", column))
            value = computed.load_some(body.at(source, body.mul(column, shape.size)), mask)
            address = body.at(to, body.mul(column, shape.stored.itemsize))
            stored.store_some(value, address, mask)
    return body.function(
        f"define fastcc void @{symbol}(ptr %from, i64 %fs, ptr %to, i64 %ts, i64 %rows, "
        "i64 %columns)"
    )
