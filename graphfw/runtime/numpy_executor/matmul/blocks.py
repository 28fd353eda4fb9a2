"""The ways to compute a chunk of a matrix product: as dot products, row by row, or in blocks."""

from __future__ import annotations

from typing import NamedTuple

from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.matmul import amx, dots, streams
from graphfw.runtime.numpy_executor.matmul.call_table import CallTable
from graphfw.runtime.numpy_executor.matmul.dots import Way
from graphfw.runtime.numpy_executor.matmul.item import MatMulItem
from graphfw.runtime.numpy_executor.matmul.tile import LINE, TileShape

_IN_PLACE, _IN_PLACE_NARROW = 256, 24
"""The most rows of the product for which a `b` with contiguous rows is not packed; and the most
with panels of one cache line, which are used up before the next line has come."""

STRIP = 4
"""The panels that are packed at a time."""

CHUNK_ROWS = 256
"""The most rows of a chunk."""


def depth(shape: TileShape) -> int:
    """Return the number of positions of k for which a strip fits into the L2 cache."""
    return 1024 // shape.size * shape.k_pack


def slice_of(
    body: FunctionBody, shape: TileShape, length: str, number: str, splits: str
) -> tuple[str, str]:
    """Return the begin and the end of one of several equal slices of k; they cut no pair."""
    pairs = body.ceil(length, shape.k_pack) if shape.k_pack > 1 else length
    begin = body.div(body.mul(pairs, number), splits)
    end = body.div(body.mul(pairs, body.add(number, 1)), splits)
    if shape.k_pack == 1:
        return begin, end
    return body.mul(begin, shape.k_pack), body.min(body.mul(end, shape.k_pack), length)


class Scratch(NamedTuple):
    """The offsets of the areas of a work item's scratch memory, in bytes.

    Attributes:
        strip: Packed panels of b.
        left: A piece of a, converted.
        left_components: Its components, as tiles.
        right_components: The components of the panels.
        square: The result of `@tiles`.
        block: A chunk of the product, where it goes nowhere else yet.
    """

    strip: int
    left: int
    left_components: int
    right_components: int
    square: int
    block: int

    @staticmethod
    def of(code: MatMulItem) -> Scratch:
        """Return the scratch memory of a work item."""
        if code.few == "always":
            return Scratch(0, 0, 0, 0, 0, 0)
        shape, length = code.shape, depth(code.shape)
        split = 2 * code.tiles.components * length if code.tiles else 0
        nbytes = length // shape.k_pack * shape.size
        sizes = (
            STRIP * shape.columns * nbytes,
            CHUNK_ROWS * nbytes if shape.converts else 0,
            CHUNK_ROWS * split,
            STRIP * shape.columns * split,
            4 * amx.TILE if split else 0,
        )
        return Scratch(0, *[sum(sizes[: i + 1]) for i in range(len(sizes))])


class Matrix(NamedTuple):
    """A matrix in memory: its address, and its strides in bytes."""

    address: str
    row: str
    step: str


_MATRIX = ("ptr", "i64", "i64")
"""The types of these."""


class Chunk(NamedTuple):
    """A block of a product.

    Attributes:
        a: Its rows of the left operand.
        b: The right operand, all of its columns.
        rows: The number of rows.
        column: The first column.
        columns: The number of columns.
        length: The length of the sums.
        c: The address of the results.
        c_row: The bytes from row to row there.
        computed_from: Where the right operand begins in its tensor, if it is computed in
            registers: a row, and a position in it; None if it is read.
    """

    a: Matrix
    b: Matrix
    rows: str
    column: str
    columns: str
    length: str
    c: str
    c_row: str
    computed_from: tuple[str, str] | None = None


class Chunks:
    """Writes the code that computes a chunk, in one of several ways.

    Args:
        code: The code of the work item.
        body: The work item's function.
        calls: Its arguments for the product.
        m: The rows of the product.
        k: The length of the sums.
    """

    def __init__(
        self, code: MatMulItem, body: FunctionBody, calls: CallTable, m: str, k: str
    ) -> None:
        self.code = code
        self.shape = code.shape
        self.body = body
        self.calls = calls
        self.m = m
        self.k = k
        self.scratch = Scratch.of(code)

    def area(self, offset: int) -> str:
        """Return the address of a piece of the scratch memory."""
        return self.body.at("%scratch", offset)

    def dots(self, chunk: Chunk) -> None:
        """Compute a chunk as dot products, a few columns at a time: fewer with more rows."""
        body, (way, *others) = self.body, dots.ways(self.shape, self.code.few_heights)
        if not others:
            self._dots(chunk, way)
            return
        is_tall = body.test("sge", chunk.rows, way.heights[0])
        with body.where(is_tall):
            self._dots(chunk, way)
        with body.where(body.opposite(is_tall)):
            self._dots(chunk, *others)

    def _dots(self, chunk: Chunk, way: Way) -> None:
        body, (a, b) = self.body, chunk[:2]
        is_computed = chunk.computed_from is not None
        for step, column in body.pieces((way.columns, 1), chunk.columns):
            first = body.add(chunk.column, column)
            right = f"ptr {body.at(b.address, body.mul(first, b.step))}, i64 {b.step}"
            if chunk.computed_from is not None:
                row, offset = chunk.computed_from
                right = self.computed(body.add(first, row), offset)
            to = body.at(chunk.c, body.mul(column, self.shape.size))
            for height, row in body.pieces(way.heights, chunk.rows):
                body.line(
                    f"call fastcc void @{self.code.dots(height, step, is_computed).name}("
                    f"ptr {body.at(a.address, body.mul(row, a.row))}, i64 {a.row}, "
                    f"{right}, "
                    f"ptr {body.at(to, body.mul(row, chunk.c_row))}, i64 {chunk.c_row}, "
                    f"i64 {chunk.length})"
                )

    def computed(self, row: str, column: str) -> str:
        """Return a function's arguments for a right operand that it computes."""
        return f"ptr {self.calls.operands}, ptr {self.calls.params}, i64 {row}, i64 {column}"

    def streams(self, chunk: Chunk) -> None:
        """Compute a chunk by adding a few rows of b at a time to its few rows."""
        body, (a, b) = self.body, chunk[:2]
        is_computed = chunk.computed_from is not None
        start = body.at(b.address, body.mul(chunk.column, b.step))
        for height, row in body.pieces(self.code.few_heights, chunk.rows):
            a_here = body.at(a.address, body.mul(row, a.row))
            to = body.at(chunk.c, body.mul(row, chunk.c_row))
            for k_steps, k in body.pieces((streams.K_STEPS[height], 1), chunk.length):
                right = f"ptr {body.at(start, body.mul(k, b.row))}, i64 {b.row}"
                if chunk.computed_from is not None:
                    first, offset = chunk.computed_from
                    right = self.computed(body.add(k, first), body.add(chunk.column, offset))
                body.line(
                    f"call fastcc void @{self.code.stream(height, k_steps, is_computed).name}("
                    f"ptr {body.at(a_here, body.mul(k, a.step))}, i64 {a.row}, i64 {a.step}, "
                    f"{right}, "
                    f"ptr {to}, i64 {chunk.c_row}, i64 {k}, i64 {chunk.columns})"
                )

    def blocks(self, chunk: Chunk) -> None:
        """Compute a chunk block by block of k, strip by strip of panels."""
        body, width = self.body, self.shape.columns
        most = str(depth(self.shape))
        in_place = "false"
        if self.code.may_be_in_place:
            in_place = body.test("sle", self.m, self._most_in_place)
            most = body.select(in_place, str(depth(self.shape) // 2), most)
        pieces = body.max(body.ceil(chunk.length, most), "1")
        with body.loop(0, pieces) as piece:
            begin, end = slice_of(body, self.shape, chunk.length, piece, pieces)
            length = body.sub(end, begin)
            more = body.test("ne", piece, 0)
            here = chunk._replace(a=self.from_k(chunk.a, begin), length=length)
            if self.code.tiles is None:
                left = self.widened if self.shape.k_pack == 1 else self.paired
                here = here._replace(a=left(here))
                fits = ""
            else:
                fits = self.split_left(here)
            with body.loop(0, chunk.columns, STRIP * width) as column:
                strip = here._replace(
                    b=chunk.b._replace(address=self.from_row(chunk, begin, column)),
                    column=body.add(chunk.column, column),
                    columns=body.min(body.sub(chunk.columns, column), STRIP * width),
                    c=body.at(chunk.c, body.mul(column, self.shape.size)),
                )
                if self.code.tiles is None:
                    self.by_vectors(strip, in_place, more)
                else:
                    by_tiles = self.split_right(strip, fits)
                    with body.where(by_tiles):
                        self.by_tiles(strip, more)
                    with body.where(body.opposite(by_tiles)):
                        self.by_vectors(strip._replace(a=self.widened(strip)), in_place, more)

    @property
    def _most_in_place(self) -> int:
        """Return the number of rows up to which panels are not packed."""
        is_narrow = self.shape.columns * self.shape.size <= LINE
        return _IN_PLACE_NARROW if is_narrow else _IN_PLACE

    def from_k(self, a: Matrix, begin: str) -> Matrix:
        """Return the left operand from a position of k on."""
        return a._replace(address=self.body.at(a.address, self.body.mul(begin, a.step)))

    def widened(self, chunk: Chunk) -> Matrix:
        """Return a piece of a, in the dtype of the computation."""
        body, (address, row, step) = self.body, chunk.a
        if not self.shape.converts:
            return chunk.a
        # In the order of memory, as far as it is known.
        along = body.test("eq", step, self.shape.stored.itemsize)
        outer = body.select(along, chunk.rows, chunk.length)
        inner = body.select(along, chunk.length, chunk.rows)
        to = self.area(self.scratch.left)
        body.line(
            f"call fastcc void @{self.code.left.name}(ptr {address}, "
            f"i64 {body.select(along, row, step)}, i64 {body.select(along, step, row)}, "
            f"ptr {to}, i64 {outer}, i64 {inner})"
        )
        gap, size = body.mul(inner, self.shape.size), str(self.shape.size)
        return Matrix(to, body.select(along, gap, size), body.select(along, size, gap))

    def paired(self, chunk: Chunk) -> Matrix:
        """Return a piece of a as pairs: a itself if it has them."""
        body, (address, row, step) = self.body, chunk.a
        dense = body.test("eq", step, self.shape.stored.itemsize)
        even = body.test("eq", body.rem(chunk.length, 2), 0)
        in_place = body.let(f"and i1 {dense}, {even}")
        to, size = self.area(self.scratch.left), str(self.shape.size)
        with body.where(body.opposite(in_place)):
            body.line(
                f"call fastcc void @{self.code.left.name}(ptr {address}, i64 {row}, i64 {step}, "
                f"ptr {to}, i64 {chunk.rows}, i64 {chunk.length})"
            )
        row_gap = body.mul(body.ceil(chunk.length, 2), size)
        row_gap = body.select(dense, row_gap, size)
        return Matrix(
            body.select(in_place, address, to, "ptr"),
            body.select(in_place, row, row_gap),
            body.select(dense, size, body.mul(chunk.rows, size)),
        )

    def from_row(self, chunk: Chunk, begin: str, column: str) -> str:
        """Return the right operand from a position of k and a column on, or its panel."""
        body, b, column = self.body, chunk.b, self.body.add(chunk.column, column)
        if self.code.layout == "packed":
            panel = body.mul(body.div(column, self.shape.columns), self.gap(self.k))
            return body.at(body.at(b.address, panel), body.mul(begin, b.row))
        return body.at(body.at(b.address, body.mul(begin, b.row)), body.mul(column, b.step))

    def gap(self, length: str) -> str:
        """Return the bytes from panel to panel."""
        return self.body.mul(self.steps(length), self.shape.columns * self.shape.size)

    def steps(self, length: str) -> str:
        """Return the number of steps in which a tile goes through positions of k."""
        return length if self.shape.k_pack == 1 else self.body.ceil(length, self.shape.k_pack)

    def by_vectors(self, strip: Chunk, in_place: str, more: str) -> None:
        """Compute a strip of panels, packed unless they are used in place, panel by panel."""
        body, width = self.body, self.shape.columns
        panels = self.packed(strip, in_place)
        with body.loop(0, strip.columns, width) as within:
            left = body.min(body.sub(strip.columns, within), width)
            here = body.at(panels[0], body.mul(body.div(within, width), panels[1]))
            panel = self.panel(strip, here, left, in_place)
            to = body.at(strip.c, body.mul(within, self.shape.size))
            self.rows(strip._replace(c=to, columns=left), panel, more)

    def packed(self, strip: Chunk, in_place: str) -> tuple[str, str]:
        """Return the panels of a strip: the first, and the bytes from one to the next."""
        body, source = self.body, strip.b.address
        if self.code.layout == "packed":
            return source, self.gap(self.k)
        gap, to = self.gap(strip.length), self.area(self.scratch.strip)
        with body.where(body.opposite(in_place)):
            self.pack(strip.b, source, to, gap, strip.length, strip.columns)
        first = body.select(in_place, source, to, "ptr")
        packed_row = str(self.shape.columns * self.shape.size)
        return first, body.select(in_place, packed_row, gap)

    def pack(self, b: Matrix, source: str, to: str, gap: str, length: str, columns: str) -> None:
        """Call the packing function."""
        self.body.line(
            f"call fastcc void @{self.code.pack.name}(ptr {source}, i64 {b.row}, "
            f"i64 {b.step}, ptr {to}, i64 {gap}, i64 {length}, i64 {columns})"
        )

    def panel(self, chunk: Chunk, here: str, left: str, in_place: str) -> tuple[str, str]:
        """Return a panel of a strip and the bytes between its rows; a narrow one is packed."""
        body, width = self.body, self.shape.columns
        packed_row = str(width * self.shape.size)
        if not self.code.may_be_in_place:
            return here, packed_row
        panel, between = body.slot("ptr"), body.slot()
        body.set(panel, here, "ptr")
        body.set(between, body.select(in_place, chunk.b.row, packed_row))
        narrow = body.let(f"and i1 {in_place}, {body.test('slt', left, width)}")
        with body.where(narrow):
            strip = self.area(self.scratch.strip)
            self.pack(chunk.b, here, strip, "0", chunk.length, left)
            body.set(panel, strip, "ptr")
            body.set(between, packed_row)
        return body.get(panel, "ptr"), body.get(between)

    def rows(self, chunk: Chunk, panel: tuple[str, str], more: str) -> None:
        """Compute the columns of a panel, tile by tile."""
        body, a = self.body, chunk.a
        narrow, steps = body.test("sle", chunk.columns, self.shape.lanes), self.steps(chunk.length)
        with self.calls.tiles(chunk.rows, narrow) as (tile, row):
            body.line(
                f"call fastcc void {tile}(ptr {body.at(a.address, body.mul(row, a.row))}, "
                f"i64 {a.row}, i64 {a.step}, ptr {panel[0]}, i64 {panel[1]}, "
                f"ptr {body.at(chunk.c, body.mul(row, chunk.c_row))}, i64 {chunk.c_row}, "
                f"i64 {steps}, i1 {more}, i64 {chunk.columns}, "
                f"i64 {body.sub(chunk.rows, row)})"
            )

    # Matrix tiles.

    def split_left(self, chunk: Chunk) -> str:
        """Split a piece of a into components; return whether its numbers are in range."""
        body, a = self.body, chunk.a
        dense = body.test("eq", a.step, self.shape.stored.itemsize)
        slots = [body.slot(kind) for kind in _MATRIX]
        for slot, value, kind in zip(slots, a, _MATRIX, strict=True):
            body.set(slot, value, kind)
        with body.where(body.opposite(dense)):
            for slot, value, kind in zip(slots, self.widened(chunk), _MATRIX, strict=True):
                body.set(slot, value, kind)
        address, row, step = (
            body.get(slot, kind) for slot, kind in zip(slots, _MATRIX, strict=True)
        )
        return body.let(
            f"call fastcc i1 @split_a(ptr {address}, i64 {row}, i64 {step}, "
            f"ptr {self.area(self.scratch.left_components)}, i64 {chunk.rows}, i64 {chunk.length}, "
            f"i1 {dense})"
        )

    def split_right(self, strip: Chunk, can_split: str) -> str:
        """Split the panels of a strip into components; return whether both operands fit."""
        body, fits, b = self.body, self.body.slot("i1"), strip.b
        body.set(fits, can_split, "i1")
        to = self.area(self.scratch.right_components)
        with body.where(can_split):
            if self.code.layout == "rows":
                first, row, gap = b.address, b.row, str(amx.SIDE * self.shape.stored.itemsize)
            else:
                first, gap = self.packed(strip, "false")
                row = str(self.shape.columns * self.shape.size)
            with body.loop(0, strip.columns, amx.SIDE) as within:
                number = body.div(within, amx.SIDE)
                one = body.let(
                    f"call fastcc i1 @split_b(ptr {body.at(first, body.mul(number, gap))}, "
                    f"i64 {row}, "
                    f"ptr {body.at(to, body.mul(within, self.side_bytes(strip.length)))}, "
                    f"i64 {strip.length}, i64 {body.sub(strip.columns, within)})"
                )
                body.set(fits, body.let(f"and i1 {body.get(fits, 'i1')}, {one}"), "i1")
        return body.get(fits, "i1")

    def side_bytes(self, length: str) -> str:
        """Return the bytes of the components of one row of a, or column of b."""
        assert self.code.tiles is not None
        blocks = self.body.ceil(length, amx.SIDE)
        return self.body.mul(blocks, 2 * amx.SIDE * self.code.tiles.components)

    def by_tiles(self, chunk: Chunk, more: str) -> None:
        """Compute a strip from components, 32 rows and columns at a time."""
        body, side = self.body, amx.SIDE
        square, gap = self.area(self.scratch.square), self.side_bytes(chunk.length)
        with body.loop(0, chunk.columns, side) as column, body.loop(0, chunk.rows, side) as row:
            left = body.at(self.area(self.scratch.left_components), body.mul(row, gap))
            right = body.at(self.area(self.scratch.right_components), body.mul(column, gap))
            body.line(
                f"call fastcc void @tiles(ptr {left}, ptr {right}, "
                f"i64 {body.ceil(chunk.length, side)}, ptr {square})"
            )
            to = body.at(chunk.c, body.mul(row, chunk.c_row))
            rows = body.min(body.sub(chunk.rows, row), side)
            body.line(
                f"call fastcc void @unload(ptr {square}, "
                f"ptr {body.at(to, body.mul(column, self.shape.size))}, i64 {chunk.c_row}, "
                f"i64 {rows}, i64 {body.sub(chunk.columns, column)}, i1 {more})"
            )
