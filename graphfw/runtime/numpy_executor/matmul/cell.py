"""`MatmulCode`: the native function that computes one cell of a matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.printer import show
from graphfw.runtime.numpy_executor.codegen import Function, Target, module, region
from graphfw.runtime.numpy_executor.matmul import dots, streams
from graphfw.runtime.numpy_executor.matmul.packing import Layout, packing
from graphfw.runtime.numpy_executor.matmul.text import Body
from graphfw.runtime.numpy_executor.matmul.tile import Shape, declarations, tile

_IN_PLACE = 256
"""Up to so many rows of the product, a `b` whose rows are contiguous is not packed."""

Few: TypeAlias = Literal["never", "maybe", "always"]

FEW_HEIGHTS = (4, 2, 1)
"""The heights of `dots` and `streams`."""

STRIP = 4
"""How many panels are packed at a time."""


class P:
    """The places of a cell's run-time integers; lengths are in elements."""

    M, N, K, A, A_ROW, A_K, B, B_K, B_COLUMN = range(9)
    ROW_BLOCKS, COLUMN_BLOCKS, GROUP, BATCH, SPLITS, CHUNK_ROWS, CHUNK_COLUMNS = range(9, 16)
    DIMS = 16
    """From here on: extent, stride in a, stride in b of each batch dim; then the epilogue's."""


def depth(shape: Shape) -> int:
    """Return how many places of k are done at a time: a strip fits into the L2 cache."""
    return 1024 // shape.size


def strip_bytes(shape: Shape) -> int:
    """Return the scratch memory for a packed strip."""
    return STRIP * shape.columns * depth(shape) * shape.size


def few_rows(shape: Shape, layout: Layout) -> tuple[int, int]:
    """Return up to how many rows, and from which length of k on, `dots` or `streams` serve."""
    # Short columns are quicker transposed.
    return (dots.MOST, 2 * shape.lanes) if layout == "columns" else (streams.MOST, 1)


def few_heights(rows: int) -> tuple[int, ...]:
    """Return which of the heights of `dots` and `streams` make up a number of rows."""
    largest = FEW_HEIGHTS[0]
    return tuple([h for h in FEW_HEIGHTS if (rows >= h if h == largest else rows % (2 * h) >= h)])


@dataclass(frozen=True)
class Region:
    """The epilogue inside of a cell.

    Attributes:
        kernel: See `steps.Epilogue`.
        operands: For each of its buffers which operand of the step it is; -1 for the product.
    """

    kernel: Kernel
    operands: tuple[int, ...]


@dataclass(frozen=True)
class MatmulCode:
    """A cell: some rows and columns of the product, of one or several members of the batch.

    Operands: a, b (or its panels), then the product where it is kept, then the epilogue's.

    Attributes:
        shape: The tiles.
        target: The processor.
        layout: What is contiguous in b.
        heights: The rows of the tiles in use, the largest first; they make up all rows. Those of
            `dots` or `streams` where these always serve.
        vectors: The widths of the tiles in use, in vectors.
        few: Whether there are few rows, for which `dots` or `streams` serve.
        batch_dims: How many batch dims there are.
        kept: Whether the product is an operand.
        turned: Whether this is the transposed product: a row of it is a column of the epilogue's.
        region: The epilogue.
    """

    shape: Shape
    target: Target
    layout: Layout
    heights: tuple[int, ...]
    vectors: tuple[int, ...]
    few: Few
    batch_dims: int
    kept: bool
    turned: bool
    region: Region | None

    @property
    def few_heights(self) -> tuple[int, ...]:
        """The heights that `dots` or `streams` are needed for."""
        if self.few == "never":
            return ()
        return self.heights if self.few == "always" else FEW_HEIGHTS

    @property
    def key(self) -> str:
        """All that the code depends on."""
        text = (
            f"matmul {self.shape.dtype} {self.layout} {self.heights} {self.vectors} {self.few} "
            f"{self.batch_dims} {self.kept} {self.turned} for {self.target.name}\n"
        )
        if self.region is not None:
            text += f"then {self.region.operands}\n{show(self.region.kernel)}"
        return text

    def llvm(self, symbol: str) -> str:
        """Return the LLVM module."""
        parts = []
        if self.few != "always":
            ahead = self.layout == "rows"
            parts += [tile(self.shape, h, v, ahead) for h in self.heights for v in self.vectors]
            if self.layout != "packed":
                parts.append(packing(self.shape, self.layout))
        for rows in self.few_heights:
            if self.layout == "columns":
                parts += [dots.dots(self.shape, rows, c) for c in (dots.COLUMNS, 1)]
            else:
                parts += [streams.stream(self.shape, rows, p) for p in (streams.PLACES[rows], 1)]
        cell = _Cell(self).text(symbol)
        functions = [Function("\n".join([*parts, cell]), declarations(self.shape), ())]
        if self.region is not None:
            functions.append(region(self.region.kernel, "epilogue", self.target))
        return module(functions)


class _Cell:
    """Writes the function of a cell."""

    def __init__(self, code: MatmulCode) -> None:
        self.code = code
        self.shape = code.shape
        self.size = code.shape.size
        self.body = body = Body()
        self.m, self.n, self.k = (self.param(i) for i in (P.M, P.N, P.K))
        self.a_row, self.a_k = self.bytes(P.A_ROW), self.bytes(P.A_K)
        self.b_k, self.b_column = self.bytes(P.B_K), self.bytes(P.B_COLUMN)
        self.a = body.array("%buffers", 0, "ptr")
        self.b = body.array("%buffers", 1, "ptr")
        self.strip = "%scratch"
        self.block = body.at("%scratch", strip_bytes(self.shape))

    def param(self, place: int) -> str:
        """Read a run-time integer."""
        return self.body.array("%params", place)

    def bytes(self, place: int) -> str:
        """Read a run-time integer that counts elements, as bytes."""
        return self.body.mul(self.param(place), self.size)

    def text(self, symbol: str) -> str:
        """Find the cell's part of the product; go through it in chunks that L2 holds."""
        body, width, height = self.body, self.shape.columns, self.code.heights[0]
        row_blocks, column_blocks = self.param(P.ROW_BLOCKS), self.param(P.COLUMN_BLOCKS)
        first, last = self.share(body.ceil(self.n, width), "%cell", column_blocks)
        columns = body.mul(first, width), body.min(body.mul(last, width), self.n)
        rest = body.div("%cell", column_blocks)
        first, last = self.share(body.ceil(self.m, height), rest, row_blocks)
        rows = body.mul(first, height), body.min(body.mul(last, height), self.m)
        batch = self.param(P.BATCH)
        group = self.param(P.GROUP)
        begin = body.mul(body.div(rest, row_blocks), group)
        end = body.min(body.add(begin, group), body.mul(batch, self.param(P.SPLITS)))
        with body.loop(begin, end) as member:
            a, b, count = self.operands(member, batch)
            with body.loop(*rows, self.param(P.CHUNK_ROWS)) as row:
                height_here = body.min(body.sub(rows[1], row), self.param(P.CHUNK_ROWS))
                a_here = body.at(a, body.mul(row, self.a_row))
                with body.loop(*columns, self.param(P.CHUNK_COLUMNS)) as column:
                    width_here = body.min(body.sub(columns[1], column), self.param(P.CHUNK_COLUMNS))
                    self.chunk(member, a_here, b, (row, height_here), (column, width_here), count)
        head = f"define i32 @{symbol}(ptr %buffers, ptr %params, i64 %cell, ptr %scratch)"
        return body.function(head, "ret i32 0")

    def share(self, units: str, number: str, blocks: str) -> tuple[str, str]:
        """The units of the `number % blocks`-th of some blocks, which are as equal as can be."""
        body = self.body
        block = body.rem(number, blocks)
        first = body.div(body.mul(units, block), blocks)
        return first, body.div(body.mul(units, body.add(block, 1)), blocks)

    def operands(self, member: str, batch: str) -> tuple[str, str, str]:
        """Where a and b begin for one member of the batch and one part of k, and k's length."""
        body = self.body
        part, rest = body.div(member, batch), body.rem(member, batch)
        a_offset, b_offset = self.param(P.A), self.param(P.B)
        for dim in reversed(range(self.code.batch_dims)):
            place = P.DIMS + 3 * dim
            extent = self.param(place)
            index = body.rem(rest, extent)
            rest = body.div(rest, extent)
            a_offset = body.add(a_offset, body.mul(index, self.param(place + 1)))
            b_offset = body.add(b_offset, body.mul(index, self.param(place + 2)))
        splits = self.param(P.SPLITS)
        begin = body.div(body.mul(self.k, part), splits)
        end = body.div(body.mul(self.k, body.add(part, 1)), splits)
        a = body.at(body.at(self.a, body.mul(a_offset, self.size)), body.mul(begin, self.a_k))
        b = body.at(self.b, body.mul(b_offset, self.size))
        if self.code.layout == "packed":
            b = body.at(b, body.mul(begin, self.shape.columns * self.size))
        else:
            b = body.at(b, body.mul(begin, self.b_k))
        return a, b, body.sub(end, begin)

    def chunk(
        self,
        member: str,
        a: str,
        b: str,
        rows: tuple[str, str],
        columns: tuple[str, str],
        count: str,
    ) -> None:
        """Compute a chunk, then what is done to its elements."""
        body, code = self.body, self.code
        # The row of the product with the batch joined.
        row = body.add(body.mul(member, self.m), rows[0])
        c_row = body.mul(self.n, self.size)
        c = self.block
        if code.kept:
            product = body.array("%buffers", 2, "ptr")
            c = body.at(body.at(product, body.mul(row, c_row)), body.mul(columns[0], self.size))
        elif code.region is not None:
            c_row = body.mul(self.param(P.CHUNK_COLUMNS), self.size)
        few = self.dots if code.layout == "columns" else self.streams
        if code.few == "always":
            few(a, b, rows[1], columns, count, (c, c_row))
        elif code.few == "never":
            self.blocks(a, b, rows[1], columns, count, (c, c_row))
        else:
            most, least = few_rows(self.shape, code.layout)
            is_few = body.test("sle", rows[1], most)
            is_few = body.let(f"and i1 {is_few}, {body.test('sge', count, least)}")
            with body.where(is_few):
                few(a, b, rows[1], columns, count, (c, c_row))
            with body.where(body.let(f"xor i1 {is_few}, true")):
                self.blocks(a, b, rows[1], columns, count, (c, c_row))
        if code.region is not None:
            self.epilogue(code.region, member, c, (row, rows[1]), columns)

    def dots(
        self,
        a: str,
        b: str,
        rows: str,
        columns: tuple[str, str],
        count: str,
        c: tuple[str, str],
    ) -> None:
        """Compute a chunk as dot products, a few columns at a time."""
        body = self.body
        whole = body.mul(body.div(columns[1], dots.COLUMNS), dots.COLUMNS)
        start = body.at(b, body.mul(columns[0], self.b_column))
        for begin, end, step in (("0", whole, dots.COLUMNS), (whole, columns[1], 1)):
            with body.loop(begin, end, step) as column:
                here = body.at(start, body.mul(column, self.b_column))
                to = body.at(c[0], body.mul(column, self.size))
                row = body.slot()
                body.set(row, 0)
                for height in self.code.few_heights:
                    with body.whole(row, rows, height) as index:
                        body.line(
                            f"call fastcc void @dots_{height}_{step}("
                            f"ptr {body.at(a, body.mul(index, self.a_row))}, i64 {self.a_row}, "
                            f"ptr {here}, i64 {self.b_column}, "
                            f"ptr {body.at(to, body.mul(index, c[1]))}, i64 {c[1]}, i64 {count})"
                        )

    def streams(
        self,
        a: str,
        b: str,
        rows: str,
        columns: tuple[str, str],
        count: str,
        c: tuple[str, str],
    ) -> None:
        """Compute a chunk by adding a few rows of b at a time to its few rows."""
        body = self.body
        start = body.at(b, body.mul(columns[0], self.b_column))
        row = body.slot()
        body.set(row, 0)
        for height in self.code.few_heights:
            with body.whole(row, rows, height) as index:
                a_here = body.at(a, body.mul(index, self.a_row))
                to = body.at(c[0], body.mul(index, c[1]))
                place = body.slot()
                body.set(place, 0)
                for places in (streams.PLACES[height], 1):
                    with body.whole(place, count, places) as k:
                        body.line(
                            f"call fastcc void @stream_{height}_{places}("
                            f"ptr {body.at(a_here, body.mul(k, self.a_k))}, i64 {self.a_row}, "
                            f"i64 {self.a_k}, ptr {body.at(start, body.mul(k, self.b_k))}, "
                            f"i64 {self.b_k}, ptr {to}, i64 {c[1]}, i64 {k}, i64 {columns[1]})"
                        )

    def blocks(
        self,
        a: str,
        b: str,
        rows: str,
        columns: tuple[str, str],
        count: str,
        c: tuple[str, str],
    ) -> None:
        """Compute a chunk block by block of k, strip by strip of panels."""
        body, code, width = self.body, self.code, self.shape.columns
        most = str(depth(self.shape))
        in_place = "false"
        if code.layout == "rows":
            in_place = body.test("sle", self.m, _IN_PLACE)
            most = body.select(in_place, str(depth(self.shape) // 2), most)
        pieces = body.max(body.ceil(count, most), "1")
        with body.loop(0, pieces) as piece:
            begin = body.div(body.mul(count, piece), pieces)
            end = body.div(body.mul(count, body.add(piece, 1)), pieces)
            length = body.sub(end, begin)
            more = body.test("ne", piece, 0)
            a_here = body.at(a, body.mul(begin, self.a_k))
            with body.loop(0, columns[1], STRIP * width) as column:
                wide = body.min(body.sub(columns[1], column), STRIP * width)
                to = body.at(c[0], body.mul(column, self.size))
                absolute = body.add(columns[0], column)
                panels = self.packed(b, begin, length, absolute, wide, in_place)
                with body.loop(0, wide, width) as within:
                    left = body.min(body.sub(wide, within), width)
                    panel = self.panel(panels, within, left, length, in_place)
                    target = body.at(to, body.mul(within, self.size))
                    self.rows(a_here, panel, (target, c[1]), rows, left, length, more)

    def packed(
        self, b: str, begin: str, length: str, column: str, wide: str, in_place: str
    ) -> tuple[str, str]:
        """The panels of a strip, packed unless they are used in place: the first, and their gap."""
        body, width = self.body, self.shape.columns
        if self.code.layout == "packed":
            gap = body.mul(self.k, width * self.size)
            first = body.at(b, body.mul(body.div(column, width), gap))
            return body.at(first, body.mul(begin, width * self.size)), gap
        source = body.at(body.at(b, body.mul(begin, self.b_k)), body.mul(column, self.b_column))
        gap = body.mul(length, width * self.size)
        with body.where(body.let(f"xor i1 {in_place}, true")):
            self.pack(source, self.strip, gap, length, wide)
        first = body.select(in_place, source, self.strip, "ptr")
        return first, body.select(in_place, str(width * self.size), gap)

    def pack(self, source: str, to: str, gap: str, length: str, columns: str) -> None:
        """Call the packing function."""
        self.body.line(
            f"call fastcc void @pack_{self.code.layout}(ptr {source}, i64 {self.b_k}, "
            f"i64 {self.b_column}, ptr {to}, i64 {gap}, i64 {length}, i64 {columns})"
        )

    def panel(
        self, panels: tuple[str, str], within: str, left: str, length: str, in_place: str
    ) -> tuple[str, str]:
        """One panel of a strip and the bytes between its rows; a narrow one is packed."""
        body, width = self.body, self.shape.columns
        here = body.at(panels[0], body.mul(body.div(within, width), panels[1]))
        packed_step = str(width * self.size)
        if self.code.layout != "rows":
            return here, packed_step
        step = body.select(in_place, self.b_k, packed_step)
        panel, between = body.slot("ptr"), body.slot()
        body.set(panel, here, "ptr")
        body.set(between, step)
        narrow = body.let(f"and i1 {in_place}, {body.test('slt', left, width)}")
        with body.where(narrow):
            self.pack(here, self.strip, "0", length, left)
            body.set(panel, self.strip, "ptr")
            body.set(between, packed_step)
        return body.get(panel, "ptr"), body.get(between)

    def rows(
        self,
        a: str,
        panel: tuple[str, str],
        c: tuple[str, str],
        rows: str,
        columns: str,
        length: str,
        more: str,
    ) -> None:
        """Compute the columns of a panel, tile by tile."""
        body, code = self.body, self.code
        narrow = body.test("sle", columns, self.shape.lanes)
        for vectors in code.vectors:
            use = narrow if vectors == 1 else body.let(f"xor i1 {narrow}, true")
            with body.where("true" if len(code.vectors) == 1 else use):
                row = body.slot()
                body.set(row, 0)
                for height in code.heights:
                    with body.whole(row, rows, height) as index:
                        body.line(
                            f"call fastcc void @tile_{height}_{vectors}("
                            f"ptr {body.at(a, body.mul(index, self.a_row))}, i64 {self.a_row}, "
                            f"i64 {self.a_k}, ptr {panel[0]}, i64 {panel[1]}, "
                            f"ptr {body.at(c[0], body.mul(index, c[1]))}, i64 {c[1]}, "
                            f"i64 {length}, i1 {more}, i64 {columns})"
                        )

    def epilogue(
        self,
        epilogue: Region,
        member: str,
        c: str,
        rows: tuple[str, str],
        columns: tuple[str, str],
    ) -> None:
        """Run the epilogue on a chunk, with the product's address such that it finds the chunk."""
        body, count = self.body, len(epilogue.operands)
        if self.code.turned:
            # The product is one row here; there it is one column, its batch all the rows.
            first = body.add(body.mul(member, self.n), columns[0])
            rows, columns = (first, columns[1]), ("0", "1")
            before = body.mul(first, self.size)
        else:
            stride = self.param(P.CHUNK_COLUMNS)
            before = body.mul(body.add(body.mul(rows[0], stride), columns[0]), self.size)
        buffers = body.slot(f"[{count} x ptr]")
        for number, operand in enumerate(epilogue.operands):
            if operand < 0 and self.code.kept:
                value = body.array("%buffers", 2, "ptr")
            elif operand < 0:
                value = body.at(c, body.sub("0", before))
            else:
                value = body.array("%buffers", operand, "ptr")
            place = body.let(f"getelementptr ptr, ptr {buffers}, i64 {number}")
            body.set(place, value, "ptr")
        params = body.at("%params", 8 * (P.DIMS + 3 * self.code.batch_dims))
        # It cannot fail: see `matmul_steps`.
        body.line(
            f"call i32 @epilogue(ptr {buffers}, ptr {params}, i64 {rows[0]}, "
            f"i64 {body.add(rows[0], rows[1])}, i64 {columns[0]}, "
            f"i64 {body.add(columns[0], columns[1])}, ptr {self.strip})"
        )
