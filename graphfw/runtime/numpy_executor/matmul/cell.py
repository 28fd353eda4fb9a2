"""`MatmulCode`: the native function that computes one cell of a matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.printer import show
from graphfw.runtime.numpy_executor.codegen import Function, Target, module, region
from graphfw.runtime.numpy_executor.matmul import dots, parts, streams
from graphfw.runtime.numpy_executor.matmul.blocks import Chunk, Chunks, Matrix, Scratch
from graphfw.runtime.numpy_executor.matmul.elements import declarations
from graphfw.runtime.numpy_executor.matmul.packing import Layout, packing, rounding, widening
from graphfw.runtime.numpy_executor.matmul.text import Body
from graphfw.runtime.numpy_executor.matmul.tile import Shape, tile
from graphfw.runtime.numpy_executor.matmul.tiles import Tiles, is_configured, micro_kernel

Few: TypeAlias = Literal["never", "maybe", "always"]

FEW_HEIGHTS = (4, 2, 1)
"""The heights of `dots` and `streams`."""


class P:
    """The places of a cell's run-time integers; lengths are in elements."""

    M, N, K, A, A_ROW, A_K, B, B_K, B_COLUMN = range(9)
    ROW_BLOCKS, COLUMN_BLOCKS, GROUP, BATCH, SPLITS, CHUNK_ROWS, CHUNK_COLUMNS = range(9, 16)
    DIMS = 16
    """From here on: extent, stride in a, stride in b of each batch dim; then the epilogue's."""


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
        rounds: Whether the product is of another dtype than the one that is computed in.
        tiles: How blocks are computed by matrix tiles; None where they are not.
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
    rounds: bool
    turned: bool
    tiles: Tiles | None
    region: Region | None

    @property
    def may_be_in_place(self) -> bool:
        """Whether panels of b may be used where they lie."""
        return self.layout == "rows" and not self.shape.converts and not self.tiles

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
            f"matmul {self.shape.stored} {self.layout} {self.heights} {self.vectors} {self.few} "
            f"{self.batch_dims} {self.kept} {self.rounds} {self.turned} {self.tiles} "
            f"for {self.target.name}\n"
        )
        if self.region is not None:
            text += f"then {self.region.operands}\n{show(self.region.kernel)}"
        return text

    def llvm(self, symbol: str) -> str:
        """Return the LLVM module."""
        texts, declared = [], declarations(self.shape)
        if self.few != "always":
            ahead = self.may_be_in_place
            texts += [tile(self.shape, h, v, ahead) for h in self.heights for v in self.vectors]
            if self.layout != "packed":
                texts.append(packing(self.shape, self.layout))
            if self.shape.converts:
                texts.append(widening(self.shape))
            if self.tiles is not None:
                dense_rows = self.layout == "rows"
                for text, its in (
                    micro_kernel(self.tiles),
                    parts.splitting(self.shape, self.tiles, rows=dense_rows),
                ):
                    texts.append(text)
                    declared |= its
                texts.append(parts.unload(self.shape))
        if self.rounds:
            texts.append(rounding(self.shape))
        for rows in self.few_heights:
            if self.layout == "columns":
                texts += [dots.dots(self.shape, rows, c) for c in (dots.COLUMNS, 1)]
            else:
                texts += [streams.stream(self.shape, rows, p) for p in (streams.PLACES[rows], 1)]
        cell = _Cell(self).text(symbol)
        functions = [Function("\n".join([*texts, cell]), declared, ())]
        if self.region is not None:
            functions.append(region(self.region.kernel, "epilogue", self.target))
        return module(functions)


class _Cell:
    """Writes the function of a cell."""

    def __init__(self, code: MatmulCode) -> None:
        self.code = code
        self.shape = code.shape
        self.size = code.shape.size
        self.out_size = code.shape.stored.itemsize if code.rounds else self.size
        self.body = body = Body()
        self.m, self.n, self.k = (self.param(i) for i in (P.M, P.N, P.K))
        a_size = code.shape.stored.itemsize
        b_size = self.size if code.layout == "packed" else a_size
        self.a = self.matrix(0, P.A, a_size)
        self.b = self.matrix(1, P.B, b_size)
        if code.layout == "packed":
            self.b = self.b._replace(row=str(code.shape.columns * self.size))
        self.sizes = a_size, b_size
        self.block = body.at("%scratch", Scratch.of(code).block)
        self.chunks = Chunks(code, body, self.m, self.k)

    def param(self, place: int) -> str:
        """Read a run-time integer."""
        return self.body.array("%params", place)

    def matrix(self, operand: int, place: int, size: int) -> Matrix:
        """Where an operand lies whose offset and strides are three run-time integers."""
        body = self.body
        offset, row, step = (body.mul(self.param(place + i), size) for i in range(3))
        return Matrix(body.at(body.array("%buffers", operand, "ptr"), offset), row, step)

    def text(self, symbol: str) -> str:
        """Find the cell's part of the product; go through it in chunks that L2 holds."""
        body, width, height = self.body, self.shape.columns, self.code.heights[0]
        if is_configured(self.code.tiles):
            body.line("call void @llvm.x86.ldtilecfg(ptr @tile_config)")
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
                a_here = a._replace(address=body.at(a.address, body.mul(row, a.row)))
                with body.loop(*columns, self.param(P.CHUNK_COLUMNS)) as column:
                    width_here = body.min(body.sub(columns[1], column), self.param(P.CHUNK_COLUMNS))
                    chunk = Chunk(a_here, b, height_here, column, width_here, count, "", "")
                    self.chunk(member, row, chunk)
        if is_configured(self.code.tiles):
            body.line("call void @llvm.x86.tilerelease()")
        head = f"define i32 @{symbol}(ptr %buffers, ptr %params, i64 %cell, ptr %scratch)"
        return body.function(head, "ret i32 0")

    def share(self, units: str, number: str, blocks: str) -> tuple[str, str]:
        """The units of the `number % blocks`-th of some blocks, which are as equal as can be."""
        body = self.body
        block = body.rem(number, blocks)
        first = body.div(body.mul(units, block), blocks)
        return first, body.div(body.mul(units, body.add(block, 1)), blocks)

    def operands(self, member: str, batch: str) -> tuple[Matrix, Matrix, str]:
        """Where a and b begin for one member of the batch and one part of k, and k's length."""
        body = self.body
        part, rest = body.div(member, batch), body.rem(member, batch)
        splits = self.param(P.SPLITS)
        begin = body.div(body.mul(self.k, part), splits)
        end = body.div(body.mul(self.k, body.add(part, 1)), splits)
        # Of `a` the places of k are its columns, of `b` its rows.
        a_offset, b_offset = body.mul(begin, self.a.step), body.mul(begin, self.b.row)
        for dim in reversed(range(self.code.batch_dims)):
            place = P.DIMS + 3 * dim
            extent = self.param(place)
            index = body.rem(rest, extent)
            rest = body.div(rest, extent)
            a_stride = body.mul(self.param(place + 1), self.sizes[0])
            b_stride = body.mul(self.param(place + 2), self.sizes[1])
            a_offset = body.add(a_offset, body.mul(index, a_stride))
            b_offset = body.add(b_offset, body.mul(index, b_stride))
        a = self.a._replace(address=body.at(self.a.address, a_offset))
        b = self.b._replace(address=body.at(self.b.address, b_offset))
        return a, b, body.sub(end, begin)

    def chunk(self, member: str, first: str, chunk: Chunk) -> None:
        """Compute a chunk, then what is done to its elements."""
        body, code = self.body, self.code
        # The row of the product with the batch joined.
        row = body.add(body.mul(member, self.m), first)
        block_row = body.mul(self.param(P.CHUNK_COLUMNS), self.size)
        if code.kept:
            c_row = body.mul(self.n, self.out_size)
            c = body.at(body.array("%buffers", 2, "ptr"), body.mul(row, c_row))
            c = body.at(c, body.mul(chunk.column, self.out_size))
        else:
            c_row, c = body.mul(self.param(P.CHUNK_COLUMNS), self.out_size), self.block
        if code.rounds:
            self.compute(chunk._replace(c=self.block, c_row=block_row))
            body.line(
                f"call fastcc void @round(ptr {self.block}, i64 {block_row}, ptr {c}, i64 {c_row}, "
                f"i64 {chunk.rows}, i64 {chunk.columns})"
            )
        else:
            self.compute(chunk._replace(c=c, c_row=c_row))
        if code.region is not None:
            self.epilogue(code.region, member, c, (row, chunk.rows), (chunk.column, chunk.columns))

    def compute(self, chunk: Chunk) -> None:
        """Compute a chunk in the way that suits its sizes."""
        body, code = self.body, self.code
        few = self.chunks.dots if code.layout == "columns" else self.chunks.streams
        if code.few == "always":
            few(chunk)
        elif code.few == "never":
            self.chunks.blocks(chunk)
        else:
            most, least = few_rows(self.shape, code.layout)
            is_few = body.test("sle", chunk.rows, most)
            is_few = body.let(f"and i1 {is_few}, {body.test('sge', chunk.length, least)}")
            with body.where(is_few):
                few(chunk)
            with body.where(body.opposite(is_few)):
                self.chunks.blocks(chunk)

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
            before = body.mul(first, self.out_size)
        else:
            stride = self.param(P.CHUNK_COLUMNS)
            before = body.mul(body.add(body.mul(rows[0], stride), columns[0]), self.out_size)
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
            f"i64 {body.add(columns[0], columns[1])}, ptr %scratch)"
        )
