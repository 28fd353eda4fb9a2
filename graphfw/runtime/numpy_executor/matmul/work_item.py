"""`MatMulItemCode`: the function that computes work items, the same for many products.

    @work_item(ptr buffers, ptr params, i64 work_item, ptr scratch, ptr calls)

computes one work item. `calls` is the address of what differs between the products that share it:
see `CallTable`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from graphfw.runtime.numpy_executor.codegen import FunctionText, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.matmul import components
from graphfw.runtime.numpy_executor.matmul.amx import is_configured, micro_kernel
from graphfw.runtime.numpy_executor.matmul.blocks import Chunk, Chunks, Matrix, Scratch, slice_of
from graphfw.runtime.numpy_executor.matmul.call_table import CallTable
from graphfw.runtime.numpy_executor.matmul.elements import declarations
from graphfw.runtime.numpy_executor.matmul.epilogue import own_buffers
from graphfw.runtime.numpy_executor.matmul.item import (
    FEW_HEIGHTS,
    INLINE_ROWS,
    MatMulItem,
    few_rows,
)
from graphfw.runtime.numpy_executor.matmul.params import MatMulParams
from graphfw.runtime.numpy_executor.matmul.tile import LINE
from graphfw.utils.records import record

LONG_ROW = 4096
"""Columns of a single row that are done at a time: long pieces are read faster. An item's scratch
memory has room for them, as for chunks of `blocks.CHUNK_ROWS` rows of a panel."""

FILLED = 1 << 19
"""The bytes of columns of b that are computed at a time, so that they stay in the L2 cache. Where
few rows are multiplied by what is computed inline, more columns are done at a time."""


@record
class MatMulItemCode(MatMulItem):
    """The function of a work item."""

    def llvm(self, symbol: str) -> str:
        texts, declared = [], declarations(self.shape)
        if self.few != "always" and self.tiles is not None:
            kernel, its = micro_kernel(self.tiles)
            texts += [
                kernel,
                components.split_a(self.shape, self.tiles),
                components.split_b(self.shape, self.tiles, rows=self.layout == "rows"),
                components.unload(self.shape),
            ]
            declared |= its | components.splitting(self.shape)
        for piece in self.callees:
            declared |= piece.declaration
        texts.append(_ItemText(self).text(symbol))
        return module([FunctionText("\n".join(texts), declared, ())])


class _ItemText:
    """Writes the function of a work item."""

    def __init__(self, code: MatMulItemCode) -> None:
        self.code = code
        self.shape = code.shape
        self.size = code.shape.size
        self.out_size = code.shape.stored.itemsize if code.rounds else self.size
        self.body = body = FunctionBody()
        self.calls = CallTable(body)
        self.m, self.n, self.k = (
            body.param(i) for i in (MatMulParams.M, MatMulParams.N, MatMulParams.K)
        )
        self.sections = body.param(MatMulParams.SECTIONS)
        self.section = body.div(self.n, self.sections)
        a_size = code.shape.stored.itemsize
        b_size = self.size if code.layout == "packed" else a_size
        self.a = self.matrix(0, MatMulParams.A, a_size)
        self.b = self.matrix(1, MatMulParams.B, b_size)
        if code.layout == "packed":
            self.b = self.b._replace(row=str(code.shape.columns * self.size // code.shape.k_pack))
        self.sizes = a_size, b_size
        # Computed rows or columns of an operand come before the chunk of the product.
        self.begin = self.block = body.at("%scratch", Scratch.of(code).block)
        if code.computed != "no":
            most = body.param(MatMulParams.CHUNK_ROWS) if code.computed == "a" else self.filled
            self.area = body.mul(body.mul(most, self.k), a_size)
            nbytes = self.area if code.computed == "a" else body.mul(self.area, self.sections)
            self.block = body.at(self.begin, body.mul(body.ceil(nbytes, LINE), LINE))
        if code.inline is not None:
            self.calls.params = body.at("%params", 8 * (MatMulParams.COUNT + 3 * code.batch_dims))
            self.calls.operands = own_buffers(body, code.inline.operands, "null")
        self.chunks = Chunks(code, body, self.calls, self.m, self.k)

    @cached_property
    def filled(self) -> str:
        """The number of columns of b that are computed at a time: see `FILLED`."""
        usual = self.body.param(MatMulParams.CHUNK_COLUMNS)
        if self.code.inline is None:
            return usual
        body, width = self.body, self.shape.columns
        panel = body.mul(body.mul(body.max(self.k, 1), self.sections), width * self.sizes[0])
        panels = body.max(body.div(str(FILLED), panel), 1)
        return body.min(body.mul(panels, width), usual)

    def matrix(self, operand: int, index: int, size: int) -> Matrix:
        """Return an operand whose offset and strides are three run-time integers."""
        body = self.body
        offset, row, step = (body.mul(body.param(index + i), size) for i in range(3))
        return Matrix(body.at(body.operand(operand), offset), row, step)

    def text(self, symbol: str) -> str:
        """Find the work item's block of the product; go through it in chunks that L2 holds."""
        body, width, height = self.body, self.shape.columns, self.calls.unit
        if is_configured(self.code.tiles):
            body.line("call void @llvm.x86.ldtilecfg(ptr @tile_config)")
        rows, columns, number = body.block(
            "%work_item",
            (self.m, height, body.param(MatMulParams.ROW_BLOCKS)),
            (self.section, width, body.param(MatMulParams.COLUMN_BLOCKS)),
        )
        batch = body.param(MatMulParams.BATCH)
        group = body.param(MatMulParams.GROUP)
        begin = body.mul(number, group)
        end = body.min(body.add(begin, group), body.mul(batch, body.param(MatMulParams.SPLITS)))
        with body.loop(begin, end) as member:
            a, b, count, computed_from = self.operands(member, batch)
            one = Chunk(a, b, "", "", "", count, "", "")
            if self.code.inline is not None:
                one = one._replace(computed_from=computed_from)
            if self.code.computed not in ("b", "b across"):
                self.by_rows(member, rows, columns, one, self.columns_at_once())
            elif self.code.inline is None:
                self.by_columns(member, rows, columns, one)
            else:
                is_few = body.test("sle", self.m, INLINE_ROWS)
                with body.where(is_few):
                    self.by_rows(member, rows, columns, one, self.columns_at_once())
                with body.where(body.opposite(is_few)):
                    self.by_columns(member, rows, columns, one._replace(computed_from=None))
        if is_configured(self.code.tiles):
            body.line("call void @llvm.x86.tilerelease()")
        return body.function(
            f"define fastcc void @{symbol}(ptr %buffers, ptr %params, i64 %work_item, "
            "ptr %scratch, ptr %calls)"
        )

    def operands(self, member: str, batch: str) -> tuple[Matrix, Matrix, str, tuple[str, str]]:
        """Return a and b for one member of the batch and one slice of k, and the slice's length.

        At the end `Chunk.position`.
        """
        body = self.body
        split, rest = body.div(member, batch), body.rem(member, batch)
        splits = body.param(MatMulParams.SPLITS)
        begin, end = slice_of(body, self.shape, self.k, split, splits)
        # Positions of k are columns of `a` and rows of `b`.
        a_offset, b_offset = body.mul(begin, self.a.step), body.mul(begin, self.b.row)
        start = body.mul(rest, self.n), begin
        if self.code.layout != "columns":
            start = body.add(body.mul(rest, self.k), begin), "0"
        for dim in reversed(range(self.code.batch_dims)):
            position = MatMulParams.COUNT + 3 * dim
            extent = body.param(position)
            index = body.rem(rest, extent)
            rest = body.div(rest, extent)
            a_stride = body.mul(body.param(position + 1), self.sizes[0])
            b_stride = body.mul(body.param(position + 2), self.sizes[1])
            a_offset = body.add(a_offset, body.mul(index, a_stride))
            b_offset = body.add(b_offset, body.mul(index, b_stride))
        a = self.a._replace(address=body.at(self.a.address, a_offset))
        b = self.b._replace(address=body.at(self.b.address, b_offset))
        return a, b, body.sub(end, begin), start

    def by_rows(
        self,
        member: str,
        rows: tuple[str, str],
        columns: tuple[str, str],
        one: Chunk,
        width: str,
    ) -> None:
        """Go through the work item's rows, and for some of them its columns, `width` at a time."""
        body, a = self.body, one.a
        with self.pieces(rows, body.param(MatMulParams.CHUNK_ROWS)) as (row, height):
            if self.code.computed == "a":
                a_here = self.computed_a(member, row, height)
            else:
                a_here = a._replace(address=body.at(a.address, body.mul(row, a.row)))
            with self.pieces(columns, width) as (column, width_here):
                here = one._replace(a=a_here, rows=height, column=column, columns=width_here)
                self.chunk(member, row, here)

    def by_columns(
        self, member: str, rows: tuple[str, str], columns: tuple[str, str], one: Chunk
    ) -> None:
        """Compute some of the work item's columns of b at a time, and multiply all rows by them."""
        body, a = self.body, one.a
        with self.pieces(columns, self.filled) as (column, width):
            b = self.computed_b(member, column, width)
            with self.pieces(rows, body.param(MatMulParams.CHUNK_ROWS)) as (row, height):
                a_here = a._replace(address=body.at(a.address, body.mul(row, a.row)))
                here = one._replace(a=a_here, b=b, rows=height, column=column, columns=width)
                self.chunk(member, row, here)

    def columns_at_once(self) -> str:
        """Return the number of columns of a chunk: many of one row, which has no gaps.

        Likewise of few rows that only the product itself holds.
        """
        body, usual = self.body, self.body.param(MatMulParams.CHUNK_COLUMNS)
        if self.code.few != "maybe" and self.code.inline is None:
            return usual
        is_few = body.test("eq", self.m, 1)
        if not self.code.rounds:
            is_low = body.test("sle", self.m, FEW_HEIGHTS[0])
            is_kept = body.let(f"and i1 {self.calls.kept}, {is_low}")
            is_few = body.let(f"or i1 {is_few}, {is_kept}")
        is_few = body.let(f"and i1 {is_few}, {body.test('eq', self.sections, 1)}")
        return body.select(is_few, str(LONG_ROW), usual)

    @contextmanager
    def pieces(self, whole: tuple[str, str], step: str) -> Iterator[tuple[str, str]]:
        """Go through rows or columns in chunks; yield the first of each, and the number.

        Args:
            whole: The work item's first, and the one after its last.
            step: The most that a chunk has.
        """
        body = self.body
        with body.loop(*whole, step) as first:
            yield first, body.min(body.sub(whole[1], first), step)

    def computed_a(self, member: str, first: str, rows: str) -> Matrix:
        """Compute some rows of a."""
        first = self.body.add(self.body.mul(member, self.m), first)
        row = self.body.mul(self.k, self.sizes[0])
        self.compute_lines(self.begin, row, (first, rows), ("0", self.k))
        return Matrix(self.begin, row, str(self.sizes[0]))

    def computed_b(self, member: str, column: str, columns: str) -> Matrix:
        """Compute some columns of b, and of all sections; return it as from its first column on."""
        body, size = self.body, str(self.sizes[0])
        if self.code.computed == "b":
            row, step = size, body.mul(self.k, size)
        else:
            row, step = body.mul(self.filled, size), size
        with body.loop(0, self.sections) as section:
            first = body.add(column, body.mul(section, self.section))
            to = body.at(self.begin, body.mul(section, self.area))
            if self.code.computed == "b":
                first = body.add(body.mul(member, self.n), first)
                self.compute_lines(to, step, (first, columns), ("0", self.k))
            else:
                self.compute_lines(to, row, (body.mul(member, self.k), self.k), (first, columns))
        return Matrix(body.at(self.begin, body.sub("0", body.mul(column, step))), row, step)

    def compute_lines(
        self, to: str, row_bytes: str, rows: tuple[str, str], columns: tuple[str, str]
    ) -> None:
        """Have the prologue write a piece of its tensor.

        Args:
            to: The address of the piece.
            row_bytes: The bytes from row to row there.
            rows: The first, and how many.
            columns: The first, and how many.
        """
        body = self.body
        before = body.mul(columns[0], self.sizes[0])
        before = body.add(body.mul(rows[0], row_bytes), before)
        begin = body.at(to, body.sub("0", before))
        params = body.at("%params", 8 * (MatMulParams.COUNT + 3 * self.code.batch_dims))
        body.line(
            f"call fastcc void {self.calls.before}(ptr %buffers, ptr {begin}, ptr {params}, "
            f"i64 {rows[0]}, i64 {body.add(*rows)}, i64 {columns[0]}, i64 {body.add(*columns)}, "
            "ptr %scratch)"
        )

    def chunk(self, member: str, first: str, chunk: Chunk) -> None:
        """Compute a chunk, and its epilogue."""
        body, code, kept = self.body, self.code, self.calls.kept
        # The row in the product with the batch joined.
        row = body.add(body.mul(member, self.m), first)
        block_gap = body.mul(body.param(MatMulParams.CHUNK_COLUMNS), self.size)
        block_row = body.mul(block_gap, self.sections)
        # Results that are rounded in the block stay there.
        gap = body.select(kept, body.mul(self.section, self.out_size), block_gap)
        c_row = body.select(kept, body.mul(self.n, self.out_size), block_row)
        c = body.at(body.operand(2), body.mul(row, c_row))
        c = body.at(c, body.mul(chunk.column, self.out_size))
        c = body.select(kept, c, self.block, "ptr")
        with body.loop(0, self.sections) as section:
            column = body.add(chunk.column, body.mul(section, self.section))
            to = body.at(c, body.mul(section, gap))
            here = chunk._replace(column=column, c=to, c_row=c_row)
            if code.computed in ("b", "b across") and chunk.computed_from is None:
                here = here._replace(b=self.b_of(section, chunk.b))
            if code.rounds:
                block = body.at(self.block, body.mul(section, block_gap))
                self.compute(here._replace(c=block, c_row=block_row))
                body.line(
                    f"call fastcc void @{code.round.name}(ptr {block}, i64 {block_row}, "
                    f"ptr {to}, i64 {c_row}, i64 {chunk.rows}, i64 {chunk.columns})"
                )
            else:
                self.compute(here)
        with body.where(self.calls.has_epilogue):
            self.follow(member, (c, c_row), (row, chunk.rows), (chunk.column, chunk.columns))

    def b_of(self, section: str, b: Matrix) -> Matrix:
        """Return b as if from a section's first column on; some columns of it are computed."""
        body = self.body
        before = body.mul(body.mul(section, self.section), b.step)
        away = body.sub(body.mul(section, self.area), before)
        return b._replace(address=body.at(b.address, away))

    def compute(self, chunk: Chunk) -> None:
        """Compute a chunk in the way that suits its sizes."""
        body, code = self.body, self.code
        few = self.chunks.dots if code.layout == "columns" else self.chunks.streams
        if code.few == "always" or chunk.computed_from is not None:
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

    def follow(
        self,
        member: str,
        c: tuple[str, str],
        rows: tuple[str, str],
        columns: tuple[str, str],
    ) -> None:
        """Run the epilogue on a chunk, with the address that row 0 and column 0 would have."""
        body = self.body
        if self.code.transposed:
            # The product is one row here; there it is one column, its batch all the rows.
            first = body.add(body.mul(member, self.n), columns[0])
            rows, columns = (first, columns[1]), ("0", "1")
            before = body.mul(first, self.out_size)
        else:
            before = body.mul(columns[0], self.out_size)
            before = body.add(body.mul(rows[0], c[1]), before)
        begin = body.at(c[0], body.sub("0", before))
        product = body.select(self.calls.kept, body.operand(2), begin, "ptr")
        params = body.at("%params", 8 * (MatMulParams.COUNT + 3 * self.code.batch_dims))
        if self.code.computed != "no" or self.code.inline is not None:
            params = body.at(params, body.mul(self.calls.before_params, 8))
        body.line(
            f"call fastcc void {self.calls.follow}(ptr %buffers, ptr {product}, ptr {params}, "
            f"i64 {rows[0]}, i64 {body.add(rows[0], rows[1])}, i64 {columns[0]}, "
            f"i64 {body.add(columns[0], columns[1])}, ptr %scratch)"
        )
