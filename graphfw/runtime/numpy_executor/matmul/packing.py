"""Packing: columns of `b` copied to panels, `[panel][k][two vectors]`.

    @pack_rows   (ptr b, i64 ks, i64 ns, ptr to, i64 gap, i64 n, i64 columns)
    @pack_columns(the same)
    @pack_other  (the same)

copy n places of k of a number of columns; `ks` and `ns` are the bytes from place to place and from
column to column, `gap` those from panel to panel. Which is used depends on how `b` lies: with its
rows contiguous, its columns, or neither. What follows the last column in its panel is any numbers:
what is computed from them is not stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphfw.runtime.numpy_executor.codegen import Function, Target, module
from graphfw.runtime.numpy_executor.codegen.registers import iota
from graphfw.runtime.numpy_executor.matmul.text import Body
from graphfw.runtime.numpy_executor.matmul.tile import Shape, declarations

Layout: TypeAlias = Literal["rows", "columns", "other", "packed"]
"""What is contiguous in `b`; "packed" is panels of all of its columns, made ahead."""

_AHEAD = 8
"""How many rows ahead memory is asked for: rows lie too far apart for the processor to guess."""


def packing(shape: Shape, layout: Layout) -> str:
    """Return the function that packs a layout."""
    body = Body()
    {"rows": _rows, "columns": _columns, "other": _elements}[layout](body, shape)
    return body.function(
        f"define internal fastcc void @pack_{layout}(ptr %b, i64 %ks, i64 %ns, ptr %to, "
        "i64 %gap, i64 %n, i64 %columns) noinline"
    )


def _rows(body: Body, shape: Shape) -> None:
    """Row by row: whole panels, then the columns that are left, under a mask."""
    width = shape.columns
    panels = body.div("%columns", width)
    rest = body.rem("%columns", width)
    is_rest = body.test("ne", rest, 0)
    kept = [mask(body, shape, rest, n) for n in range(2)]
    rest_from, rest_to = body.mul(panels, width * shape.size), body.mul(panels, "%gap")
    with body.loop(0, "%n") as k:
        row = body.at("%b", body.mul(k, "%ks"))
        ahead = body.at(row, body.mul("%ks", _AHEAD))
        to = body.at("%to", body.mul(k, width * shape.size))
        with body.loop(0, panels) as panel:
            offset = body.mul(panel, width * shape.size)
            for n in range(2):
                step = n * shape.lanes * shape.size
                body.line(
                    "call void @llvm.prefetch.p0(ptr "
                    f"{body.at(ahead, body.add(offset, step))}, i32 0, i32 3, i32 1)"
                )
                value = body.let(
                    f"load {shape.vector}, ptr {body.at(body.at(row, offset), step)}, "
                    f"align {shape.size}"
                )
                place = body.at(body.at(to, body.mul(panel, "%gap")), step)
                body.line(f"store {shape.vector} {value}, ptr {place}, align {shape.size}")
        with body.where(is_rest):
            for n in range(2):
                step = n * shape.lanes * shape.size
                value = body.let(
                    f"call {shape.vector} @llvm.masked.load.{shape.suffix}.p0(ptr "
                    f"{body.at(body.at(row, rest_from), step)}, i32 {shape.size}, "
                    f"<{shape.lanes} x i1> {kept[n]}, {shape.vector} zeroinitializer)"
                )
                place = body.at(body.at(to, rest_to), step)
                body.line(f"store {shape.vector} {value}, ptr {place}, align {shape.size}")


def mask(body: Body, shape: Shape, count: str, n: int) -> str:
    """Which lanes of the n-th vector hold columns, where there are `count`."""
    lanes = f"<{shape.lanes} x i64>"
    one = body.let(f"insertelement {lanes} poison, i64 {count}, i32 0")
    every = body.let(
        f"shufflevector {lanes} {one}, {lanes} poison, <{shape.lanes} x i32> zeroinitializer"
    )
    return body.let(f"icmp slt {lanes} {iota('i64', shape.lanes, n * shape.lanes)}, {every}")


def _columns(body: Body, shape: Shape) -> None:
    """Blocks of as many columns as a vector has lanes.

    A register is put together of pieces of 16 bytes of every q-th column; q of these are transposed
    within each 16 bytes. Where there are no more columns the last one is repeated.
    """
    q, lanes, size = 16 // shape.size, shape.lanes, shape.size
    last = body.sub("%columns", 1)
    places = body.mul(body.div("%n", q), q)
    with body.loop(0, "%columns", lanes) as column:
        numbers = [body.min(body.add(column, c), last) for c in range(lanes)]
        columns = [body.at("%b", body.mul(number, "%ns")) for number in numbers]
        to = _place(body, shape, column)
        with body.loop(0, places, q) as k:
            offset = body.mul(k, size)
            pieces = [
                body.let(f"load <{q} x {shape.element}>, ptr {body.at(c, offset)}, align {size}")
                for c in columns
            ]
            registers = [_joined(body, shape.element, q, pieces[i::q]) for i in range(q)]
            row = body.at(to, body.mul(k, shape.columns * size))
            for place, value in enumerate(_transpose(body, shape, q, registers)):
                address = body.at(row, place * shape.columns * size)
                body.line(f"store {shape.vector} {value}, ptr {address}, align {size}")
        with body.loop(places, "%n") as k:
            row = body.at(to, body.mul(k, shape.columns * size))
            for c, source in enumerate(columns):
                value = body.let(
                    f"load {shape.element}, ptr {body.at(source, body.mul(k, size))}, align {size}"
                )
                body.line(f"store {shape.element} {value}, ptr {body.at(row, c * size)}")


def _joined(body: Body, element: str, length: int, pieces: list[str]) -> str:
    """Concatenate vectors, pair by pair."""
    while len(pieces) > 1:
        kind, order = f"<{length} x {element}>", ", ".join([f"i32 {i}" for i in range(2 * length)])
        pieces = [
            body.let(f"shufflevector {kind} {x}, {kind} {y}, <{2 * length} x i32> <{order}>")
            for x, y in zip(pieces[::2], pieces[1::2], strict=True)
        ]
        length *= 2
    return pieces[0]


def _transpose(body: Body, shape: Shape, q: int, registers: list[str]) -> list[str]:
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


def _place(body: Body, shape: Shape, column: str) -> str:
    """Where the first place of a column goes."""
    panel = body.div(column, shape.columns)
    within = body.mul(body.rem(column, shape.columns), shape.size)
    return body.at(body.at("%to", body.mul(panel, "%gap")), within)


def _elements(body: Body, shape: Shape) -> None:
    """Element by element."""
    size, kind = shape.size, shape.element
    with body.loop(0, "%columns") as column:
        to = _place(body, shape, column)
        start = body.at("%b", body.mul(column, "%ns"))
        with body.loop(0, "%n") as k:
            source = body.at(start, body.mul(k, "%ks"))
            value = body.let(f"load {kind}, ptr {source}, align {size}")
            place = body.at(to, body.mul(k, shape.columns * size))
            body.line(f"store {kind} {value}, ptr {place}, align {size}")


@dataclass(frozen=True)
class PackCode:
    """A cell: some panels of a `b` that is packed ahead, over all of k.

    Operands: b, the panels. Integers: k, n, offset of b, its strides along k and along the columns,
    columns in a cell (a multiple of those of a panel).
    """

    shape: Shape
    target: Target
    layout: Layout

    @property
    def key(self) -> str:
        """All that the code depends on."""
        return f"pack {self.shape.dtype} {self.layout} for {self.target.name}\n"

    def llvm(self, symbol: str) -> str:
        """Return the LLVM module."""
        body, size = Body(), self.shape.size
        k, n, offset, k_stride, n_stride, per_cell = (body.array("%params", i) for i in range(6))
        column = body.mul("%cell", per_cell)
        columns = body.min(body.sub(n, column), per_cell)
        k_bytes, n_bytes = body.mul(k_stride, size), body.mul(n_stride, size)
        b = body.at(body.array("%buffers", 0, "ptr"), body.mul(offset, size))
        gap = body.mul(k, self.shape.columns * size)
        panels = body.mul(body.div(column, self.shape.columns), gap)
        body.line(
            f"call fastcc void @pack_{self.layout}(ptr {body.at(b, body.mul(column, n_bytes))}, "
            f"i64 {k_bytes}, i64 {n_bytes}, "
            f"ptr {body.at(body.array('%buffers', 1, 'ptr'), panels)}, "
            f"i64 {gap}, i64 {k}, i64 {columns})"
        )
        head = f"define i32 @{symbol}(ptr %buffers, ptr %params, i64 %cell, ptr %scratch)"
        text = packing(self.shape, self.layout) + body.function(head, "ret i32 0")
        return module([Function(text, declarations(self.shape), ())])
