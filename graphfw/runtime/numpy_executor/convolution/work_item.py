"""`ConvItemCode`: the work items of convolutions, the same for many of them.

    @work_item(ptr buffers, ptr params, i64 work_item, ptr scratch, ptr calls)

A convolution is a matrix product: rows are outputs, columns are output positions, and k counts the
elements of a window. The right operand exists nowhere as a whole: its panels are packed in scratch
memory when they are needed. `calls` is the address of what differs between the convolutions that
share a work item: see `matmul.call_table.CallTable`.
"""

from __future__ import annotations

from typing import ClassVar

from graphfw.runtime.numpy_executor.codegen import FunctionText, RecordCode, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.convolution.window_bounds import DenseStride, Spatial
from graphfw.runtime.numpy_executor.convolution.windows import ConvParams, windows
from graphfw.runtime.numpy_executor.matmul.call_table import CallTable
from graphfw.runtime.numpy_executor.matmul.elements import declarations
from graphfw.runtime.numpy_executor.matmul.item import GemvPolicy
from graphfw.runtime.numpy_executor.matmul.pieces import Piece
from graphfw.runtime.numpy_executor.matmul.shared_function import SharedFunction, calling
from graphfw.runtime.numpy_executor.matmul.tile import Ahead, TileShape
from graphfw.utils.records import record

PANEL = 32 << 10
"""The bytes of a panel, which the L1 cache holds beside a tile of weights."""


def depth(shape: TileShape) -> int:
    """Return the number of positions of k that are done at a time."""
    return PANEL // (shape.columns * shape.size)


@record
class WindowsCode(SharedFunction):
    """The function that lays out panels, compiled once for all work items; see `windows`."""

    shape: TileShape
    rank: int
    step: DenseStride

    @property
    def types(self) -> str:
        return "ptr, ptr, i64, i64, i64, i64, ptr"

    def llvm(self, symbol: str) -> str:
        text = windows(symbol, self.shape, self.rank, self.step)
        return module([FunctionText(text, declarations(self.shape), ())])


AT_ONCE = 1024
"""The number of positions of k that a work item of `PanelsCode` packs."""


@record
class WithWindows:
    """The base of work items that call the function that packs panels.

    Attributes:
        shape: The tiles.
        rank: The number of spatial dims.
        step: See `windows`.
    """

    shape: TileShape
    rank: int
    step: DenseStride

    @property
    def windows(self) -> WindowsCode:
        """The function that lays out panels."""
        return WindowsCode(self.shape, self.rank, self.step)


@record
class PanelsCode(WithWindows, RecordCode):
    """A work item: some positions of k of a panel, of one group of one image.

    Operands: x, the panels [images, groups, panels, k, columns]. Integers: see `ConvParams`.
    """

    @property
    def callees(self) -> tuple[WindowsCode]:
        """The functions that it calls by name."""
        return (self.windows,)

    def llvm(self, symbol: str) -> str:
        body, width = FunctionBody(), self.shape.columns
        n, k, groups = (body.param(i) for i in (ConvParams.N, ConvParams.K, ConvParams.GROUPS))
        pieces, panels = body.ceil(k, AT_ONCE), body.ceil(n, width)
        begin = body.mul(body.rem("%work_item", pieces), AT_ONCE)
        rest = body.div("%work_item", pieces)
        column, member = body.mul(body.rem(rest, panels), width), body.div(rest, panels)
        line = body.add(body.mul(rest, k), begin)
        to = body.at(body.operand(1), body.mul(line, width * self.shape.size))
        x = image_at(body, self.shape, groups, member)
        body.line(
            f"call fastcc void @{self.windows.name}(ptr {x}, ptr %params, i64 {begin}, "
            f"i64 {body.min(body.sub(k, begin), AT_ONCE)}, i64 {column}, "
            f"i64 {body.min(body.sub(n, column), width)}, ptr {to})"
        )
        return calling(body.work_item(symbol), self.shape, self.callees)


def image_at(body: FunctionBody, shape: TileShape, groups: str, member: str) -> str:
    """Return the address of the channels of one group of one image."""
    image, group = body.div(member, groups), body.rem(member, groups)
    offset, image_gap, group_gap = (
        body.param(i) for i in (ConvParams.X, ConvParams.X_BATCH, ConvParams.X_GROUP)
    )
    offset = body.add(offset, body.mul(image, image_gap))
    offset = body.add(offset, body.mul(group, group_gap))
    return body.at(body.operand(0), body.mul(offset, shape.stored.itemsize))


@record
class ConvItemCode(WithWindows, SharedFunction):
    """A work item: some outputs and positions, of images and groups.

    Operands: x, or the panels of `PanelsCode`; the tiles of weights, see `weights`.

    Attributes:
        is_ahead: Whether panels are prepacked.
        is_joined: Whether the images are the first spatial dim, so that positions of several of
            them are columns side by side.
    """

    is_ahead: bool
    is_joined: bool
    few: ClassVar[GemvPolicy] = "never"
    ahead: ClassVar[Ahead] = "a"

    @property
    def rounds(self) -> bool:
        """Whether the result has another dtype than the computation."""
        return self.shape.converts

    @property
    def round(self) -> Piece:
        """The function that rounds a chunk of the result."""
        return Piece("round", self.shape, ())

    @property
    def callees(self) -> tuple[Piece | WindowsCode, ...]:
        """The functions that it calls by name."""
        windows = () if self.is_ahead else (self.windows,)
        return (*windows, self.round) if self.rounds or self.is_joined else windows

    @property
    def panel_bytes(self) -> int:
        """The bytes of a panel in scratch memory; a chunk of the result follows."""
        return 0 if self.is_ahead else self.shape.columns * self.shape.size * depth(self.shape)

    def llvm(self, symbol: str) -> str:
        return calling(_ConvItem(self).text(symbol), self.shape, self.callees)


class _ConvItem:
    """Writes the function of a work item."""

    def __init__(self, code: ConvItemCode) -> None:
        self.code = code
        self.shape = code.shape
        self.size = code.shape.size
        self.out_size = code.shape.stored.itemsize
        self.body = body = FunctionBody()
        self.calls = CallTable(body)
        self.m, self.n, self.k = (body.param(i) for i in (ConvParams.M, ConvParams.N, ConvParams.K))
        self.block = body.at("%scratch", code.panel_bytes)
        self.line = code.shape.columns * code.shape.size
        self.panel = body.mul(self.k, self.line)

    def text(self, symbol: str) -> str:
        """Find the work item's block of the result; go through it in chunks of columns."""
        body, width, height = self.body, self.shape.columns, self.calls.unit
        # Neighbouring work items differ in their columns: they read the same weights.
        rows, columns, group = body.block(
            "%work_item",
            (self.m, height, body.param(ConvParams.ROW_BLOCKS)),
            (self.n, width, body.param(ConvParams.COLUMN_BLOCKS)),
        )
        together = body.param(ConvParams.TOGETHER)
        begin = body.mul(group, together)
        end = body.min(body.add(begin, together), body.param(ConvParams.MEMBERS))
        with body.loop(begin, end) as member:
            image, weights = self.operands(member)
            weights = body.at(weights, body.mul(body.mul(rows[0], self.k), self.size))
            row = body.add(body.mul(member, self.m), rows[0])
            with body.loop(*columns, body.param(ConvParams.CHUNK_COLUMNS)) as column:
                most = body.param(ConvParams.CHUNK_COLUMNS)
                count = body.min(body.sub(columns[1], column), most)
                self.chunk(row, body.sub(rows[1], rows[0]), column, count, (image, weights))
        return body.function(
            f"define fastcc void @{symbol}(ptr %buffers, ptr %params, i64 %work_item, "
            "ptr %scratch, ptr %calls)"
        )

    def operands(self, member: str) -> tuple[str, str]:
        """Return the addresses of the channels of one group of one image, and of its weights."""
        body, groups = self.body, self.body.param(ConvParams.GROUPS)
        if self.code.is_ahead:
            panels = body.mul(member, body.ceil(self.n, self.shape.columns))
            x = body.at(body.operand(0), body.mul(panels, self.panel))
        else:
            x = image_at(body, self.shape, groups, member)
        group = body.rem(member, groups)
        room = body.mul(body.ceil(self.m, self.calls.unit), self.calls.unit)
        before = body.mul(body.mul(group, room), body.mul(self.k, self.size))
        return x, body.at(body.operand(1), before)

    def chunk(
        self, row: str, rows: str, column: str, columns: str, operands: tuple[str, str]
    ) -> None:
        """Compute a chunk and its epilogue; `row` counts over all members."""
        body, code = self.body, self.code
        block_row = body.mul(body.param(ConvParams.CHUNK_COLUMNS), self.size)
        if code.is_joined:
            self.compute(operands, rows, column, columns, (self.block, block_row))
            self.images(block_row, row, rows, column, columns)
            return
        to = self.address_of(block_row, row, column, self.block)
        if code.rounds:
            self.compute(operands, rows, column, columns, (self.block, block_row))
            self.copy((self.block, block_row), to, rows, columns)
        else:
            self.compute(operands, rows, column, columns, to)
        with body.where(self.calls.has_epilogue):
            self.follow(to, row, rows, column, columns)

    def images(self, block_row: str, row: str, rows: str, column: str, columns: str) -> None:
        """Split a chunk with positions of several images by image; `row` counts over one image."""
        body, positions = self.body, self.body.param(ConvParams.POSITIONS)
        end = body.add(column, columns)
        with body.loop(body.div(column, positions), body.ceil(end, positions)) as image:
            before = body.mul(image, positions)
            begin = body.max(before, column)
            count = body.sub(body.min(body.add(before, positions), end), begin)
            start = body.at(self.block, body.mul(body.sub(begin, column), self.size))
            here = body.add(body.mul(image, self.m), row)
            first = body.sub(begin, before)
            to = self.address_of(block_row, here, first, start)
            is_moved = body.let(
                f"or i1 {self.calls.kept}, {'true' if self.code.rounds else 'false'}"
            )
            with body.where(is_moved):
                self.copy((start, block_row), to, rows, count)
            with body.where(self.calls.has_epilogue):
                self.follow(to, here, rows, first, count)

    def address_of(self, block_row: str, row: str, column: str, block: str) -> tuple[str, str]:
        """Return the address of a chunk of the result, a block if not kept, and its row stride."""
        body, kept = self.body, self.calls.kept
        gap = body.mul(body.param(ConvParams.POSITIONS), self.out_size)
        whole = body.at(body.operand(2), body.mul(row, gap))
        whole = body.at(whole, body.mul(column, self.out_size))
        return body.select(kept, whole, block, "ptr"), body.select(kept, gap, block_row)

    def copy(self, block: tuple[str, str], to: tuple[str, str], rows: str, columns: str) -> None:
        """Copy a chunk of the result from a block, rounded to its dtype."""
        self.body.line(
            f"call fastcc void @{self.code.round.name}(ptr {block[0]}, i64 {block[1]}, "
            f"ptr {to[0]}, i64 {to[1]}, i64 {rows}, i64 {columns})"
        )

    def follow(self, to: tuple[str, str], row: str, rows: str, column: str, columns: str) -> None:
        """Run the epilogue, with an address from which it finds this chunk of the result."""
        body, (c, c_row) = self.body, to
        before = body.add(body.mul(row, c_row), body.mul(column, self.out_size))
        begin = body.at(c, body.sub("0", before))
        params = body.at("%params", 8 * (ConvParams.COUNT + Spatial.COUNT * self.code.rank))
        body.line(
            f"call fastcc void {self.calls.follow}(ptr %buffers, ptr {begin}, ptr {params}, "
            f"i64 {row}, i64 {body.add(row, rows)}, i64 {column}, "
            f"i64 {body.add(column, columns)}, ptr %scratch)"
        )

    def compute(
        self,
        operands: tuple[str, str],
        rows: str,
        column: str,
        columns: str,
        to: tuple[str, str],
    ) -> None:
        """Compute a chunk piece by piece of k, panel by panel."""
        body, (image, weights), (c, c_row) = self.body, operands, to
        unit = self.calls.unit
        line = body.mul(unit, self.size)
        # All tiles of a piece of k lie one after the other.
        room = body.mul(body.mul(body.ceil(rows, unit), unit), self.size)
        pieces = body.max(body.ceil(self.k, depth(self.shape)), "1")
        with body.loop(0, pieces) as piece:
            begin = body.div(body.mul(self.k, piece), pieces)
            end = body.div(body.mul(self.k, body.add(piece, 1)), pieces)
            length = body.sub(end, begin)
            more = body.test("ne", piece, 0)
            weights_here = body.at(weights, body.mul(begin, room))
            with body.loop(0, columns, self.shape.columns) as within:
                left = body.min(body.sub(columns, within), self.shape.columns)
                panel = "%scratch"
                if self.code.is_ahead:
                    number = body.div(body.add(column, within), self.shape.columns)
                    panel = body.at(image, body.mul(number, self.panel))
                    panel = body.at(panel, body.mul(begin, self.line))
                else:
                    body.line(
                        f"call fastcc void @{self.code.windows.name}(ptr {image}, ptr %params, "
                        f"i64 {begin}, i64 {length}, i64 {body.add(column, within)}, i64 {left}, "
                        "ptr %scratch)"
                    )
                there = body.at(c, body.mul(within, self.size))
                narrow = body.test("sle", left, self.shape.lanes)
                with self.calls.tiles(rows, narrow) as (tile, row):
                    offset = body.mul(body.mul(row, length), self.size)
                    tile_begin = body.at(weights_here, offset)
                    body.line(
                        f"call fastcc void {tile}(ptr {tile_begin}, i64 {self.size}, i64 {line}, "
                        f"ptr {panel}, i64 {self.line}, "
                        f"ptr {body.at(there, body.mul(row, c_row))}, i64 {c_row}, i64 {length}, "
                        f"i1 {more}, i64 {left}, i64 {body.sub(rows, row)})"
                    )
