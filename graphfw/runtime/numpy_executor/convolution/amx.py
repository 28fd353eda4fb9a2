"""`AmxConvCode`: convolutions by products of AMX tiles, of components: see `matmul.amx`.

The left operand is the components of the weights, the right one those of the image, see
`amx_image`: columns are consecutive words, from the first of some rows of positions to the last.
Words of no position are computed for nothing. If a number of the image, or of a block of weights,
is out of the range that can be split, vectors multiply the numbers themselves.
"""

from __future__ import annotations

from typing import ClassVar

from graphfw.runtime.numpy_executor.codegen import FunctionText, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.convolution.amx_image import (
    PAIRS,
    AmxImageLayout,
    AmxImageParams,
)
from graphfw.runtime.numpy_executor.convolution.amx_weights import (
    DEPTH,
    HEAD,
    ROWS,
    AmxWeightParams,
    RowsCode,
    weights_at,
)
from graphfw.runtime.numpy_executor.convolution.window_bounds import Spatial
from graphfw.runtime.numpy_executor.convolution.windows import ConvParams
from graphfw.runtime.numpy_executor.convolution.work_item import WindowsCode, WithWindows, image_at
from graphfw.runtime.numpy_executor.matmul.amx import (
    SIDE,
    TILE,
    Tiles,
    is_configured,
    micro_kernel_of,
)
from graphfw.runtime.numpy_executor.matmul.call_table import CallTable
from graphfw.runtime.numpy_executor.matmul.components import unscaling
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.item import GemvPolicy
from graphfw.runtime.numpy_executor.matmul.shared_function import SharedFunction
from graphfw.runtime.numpy_executor.matmul.tile import Ahead
from graphfw.utils.records import record

HEIGHT = 8
"""The rows of the micro-kernels that replace tiles; a block may have only some rows of the last."""

AT_ONCE = 8
"""The number of tiles of k of a block of weights that stay in a cache, for all columns."""

PANEL = SIDE * DEPTH * 4
"""The bytes of a panel of windows' elements, for vectors."""

GAP = 64
"""The bytes between rows of the result, besides: so that they are not of one set of L1."""


@record
class AmxConvCode(WithWindows, SharedFunction):
    """A work item: some outputs and rows of positions, of images and groups.

    Operands: x; the blocks of weights, see `amx_weights`; the weight; the words of x and for each
    work item of `ImageComponentsCode` a flag of whether it could split. Integers: `ConvParams`, of
    which `ROW_BLOCKS` and `COLUMN_BLOCKS` cut outputs and rows of positions, of the dims,
    `AmxImageParams` and `AmxWeightParams`.

    Attributes:
        tiles: The tiles that multiply, and the components of a number.
    """

    tiles: Tiles
    few: ClassVar[GemvPolicy] = "never"
    ahead: ClassVar[Ahead] = ""

    @property
    def weight_rows(self) -> RowsCode:
        """The function that writes weights as rows, for vectors."""
        return RowsCode(self.shape, self.rank)

    @property
    def callees(self) -> tuple[WindowsCode, RowsCode]:
        """The functions that it calls by name."""
        return self.windows, self.weight_rows

    def llvm(self, symbol: str) -> str:
        kernel, known = micro_kernel_of(self.tiles)
        known |= declarations(self.shape)
        for callee in self.callees:
            known |= callee.declaration
        return module([FunctionText(f"{kernel}\n{_AmxConv(self).text(symbol)}", known, ())])


class _Rows:
    """Some rows of positions, of a group of an image.

    Attributes:
        first: The first of them.
        count: The number of rows.
        start: The first word that the first row sees.
        columns: The number of words from there to the first word that the last position sees.
    """

    def __init__(self, layout: AmxImageLayout, width: str, first: str, end: str) -> None:
        body = layout.body
        self.first, self.count = first, body.sub(end, first)
        self.start = layout.row(first)
        last = layout.row(body.sub(end, 1))
        self.columns = body.add(body.sub(last, self.start), width)


class _AmxConv:
    """Writes the function of a work item."""

    def __init__(self, code: AmxConvCode) -> None:
        self.code = code
        self.shape = code.shape
        self.size, self.item = code.shape.size, code.shape.stored.itemsize
        self.body = body = FunctionBody()
        self.calls = CallTable(body)
        self.layout = layout = AmxImageLayout(body, code.rank, code.tiles)
        self.m, self.k, self.channels = (
            body.param(i) for i in (ConvParams.M, ConvParams.K, ConvParams.CHANNELS)
        )
        self.width = layout.dims[-1][Spatial.POSITIONS]
        self.weight = body.at("%params", 8 * AmxImageParams.end(code.rank))
        # The tiles of k: for each tap the tiles of all channels.
        self.taps = body.div(self.k, body.max(self.channels, 1))
        self.deep = body.ceil(self.channels, SIDE)
        self.length = body.mul(self.taps, self.deep)
        self.side = 2 * TILE * code.tiles.components
        self.block_bytes = body.add(body.mul(self.length, self.side), HEAD)
        # Scratch memory: a panel, rows of weights, offsets of words, results, rounded results.
        self.left, self.list = body.at("%scratch", PANEL), body.at("%scratch", PANEL + ROWS)
        self.square = body.at(self.list, body.mul(body.ceil(self.length, 8), 64))
        self.gap = body.add(body.mul(layout.columns, 4), GAP)
        self.block = body.at(self.square, body.mul(self.gap, SIDE))

    def text(self, symbol: str) -> str:
        """Find the work item's rows, outputs and images; go through them in this order."""
        body = self.body
        row_cuts, output_cuts = (
            body.param(ConvParams.COLUMN_BLOCKS),
            body.param(ConvParams.ROW_BLOCKS),
        )
        total = "1"
        for dim in self.layout.dims[:-1]:
            total = body.mul(total, dim[Spatial.POSITIONS])
        rows = body.share(total, "%work_item", row_cuts)
        rest = body.div("%work_item", row_cuts)
        blocks = body.share(body.ceil(self.m, SIDE), rest, output_cuts)
        group = body.param(ConvParams.TOGETHER)
        first = body.mul(body.div(rest, output_cuts), group)
        last = body.min(body.add(first, group), body.param(ConvParams.MEMBERS))
        self.offsets()
        if is_configured(self.code.tiles):
            body.line("call void @llvm.x86.ldtilecfg(ptr @tile_config)")
        with body.loop(first, last) as member:
            fits = self.fits(member)
            with body.loop(*rows, self.layout.rows) as row:
                end = body.min(body.add(row, self.layout.rows), rows[1])
                some = _Rows(self.layout, self.width, row, end)
                with body.loop(*blocks) as block:
                    self.compute(member, block, some, fits)
        if is_configured(self.code.tiles):
            body.line("call void @llvm.x86.tilerelease()")
        return body.function(
            f"define fastcc void @{symbol}(ptr %buffers, ptr %params, i64 %work_item, "
            "ptr %scratch, ptr %calls)"
        )

    def offsets(self) -> None:
        """List the offsets in bytes of the words that are multiplied with each tile of k."""
        body = self.body
        step = body.mul(self.layout.pitch, PAIRS * 4)
        with body.loop(0, self.taps) as tap:
            begin = self.layout.tap(tap)
            to = body.at(self.list, body.mul(body.mul(tap, self.deep), 8))
            with body.loop(0, self.deep) as number:
                offset = body.add(begin, body.mul(number, step))
                body.line(f"store i64 {offset}, ptr {body.at(to, body.mul(number, 8))}")

    def fits(self, member: str) -> str:
        """Return whether all numbers of a group of an image could be split."""
        body, found = self.body, self.body.slot()
        sets = body.div(self.layout.pairs, self.layout.together)
        flags = body.at(body.operand(4), body.mul(body.mul(member, sets), 8))
        body.set(found, 1)
        with body.loop(0, sets) as number:
            one = body.array(flags, number)
            body.set(found, body.let(f"and i64 {body.get(found)}, {one}"))
        return body.get(found)

    def compute(self, member: str, block: str, rows: _Rows, fits: str) -> None:
        """Compute a block of outputs in some rows of positions, then its epilogue."""
        body, groups = self.body, self.body.param(ConvParams.GROUPS)
        group, first = body.rem(member, groups), body.mul(block, SIDE)
        count = body.min(body.sub(self.m, first), SIDE)
        number = body.add(body.mul(group, body.ceil(self.m, SIDE)), block)
        weights = body.at(body.operand(1), body.mul(number, self.block_bytes))
        both = body.let(f"and i64 {fits}, {body.get(weights)}")
        by_tiles = body.test("ne", both, 0)
        with body.where(by_tiles):
            self.by_tiles(member, weights, rows)
        with body.where(body.opposite(by_tiles)):
            output = body.add(body.mul(group, self.m), first)
            self.by_vectors(member, output, count, rows)
        self.finish(body.add(body.mul(member, self.m), first), count, rows, by_tiles)

    def by_tiles(self, member: str, weights: str, rows: _Rows) -> None:
        """Multiply a block, some tiles of k at a time, with the words of some rows."""
        body, layout = self.body, self.layout
        words = body.at(body.operand(3), body.mul(member, layout.group))
        words = body.at(words, body.mul(rows.start, 4))
        gap = body.mul(layout.pitch, 4)
        with body.loop(0, body.max(self.length, "1"), AT_ONCE) as k:
            count = body.min(body.sub(self.length, k), AT_ONCE)
            more = body.test("ne", k, 0)
            a = body.at(weights, body.add(body.mul(k, self.side), HEAD))
            offsets = body.at(self.list, body.mul(k, 8))
            with body.loop(0, rows.columns, SIDE) as column:
                before = body.mul(column, 4)
                body.line(
                    f"call fastcc void @tiles_of(ptr {a}, ptr {body.at(words, before)}, "
                    f"ptr {offsets}, i64 {count}, i64 {gap}, i64 {layout.component}, "
                    f"ptr {body.at(self.square, before)}, i64 {self.gap}, i1 {more})"
                )

    def by_vectors(self, member: str, output: str, count: str, rows: _Rows) -> None:
        """Multiply unsplit numbers, some positions of k at a time, which are laid out now."""
        body, line, gap = self.body, SIDE * self.size, DEPTH * self.size
        image = image_at(body, self.shape, body.param(ConvParams.GROUPS), member)
        weights = weights_at(body, self.shape, self.weight, output, 2)
        first, columns = (body.mul(n, self.width) for n in (rows.first, rows.count))
        with body.loop(0, body.max(self.k, "1"), DEPTH) as begin:
            length = body.min(body.sub(self.k, begin), DEPTH)
            more = body.test("ne", begin, 0)
            body.line(
                f"call fastcc void @{self.code.weight_rows.name}(ptr {weights}, ptr {self.weight}, "
                f"i64 {count}, i64 {begin}, i64 {length}, ptr {self.left})"
            )
            with body.loop(0, columns, SIDE) as column:
                some = body.min(body.sub(columns, column), SIDE)
                body.line(
                    f"call fastcc void @{self.code.windows.name}(ptr {image}, ptr %params, "
                    f"i64 {begin}, i64 {length}, i64 {body.add(first, column)}, i64 {some}, "
                    "ptr %scratch)"
                )
                to = body.at(self.square, body.mul(column, self.size))
                narrow = body.test("sle", some, self.shape.lanes)
                with self.calls.tiles(count, narrow) as (tile, row):
                    body.line(
                        f"call fastcc void {tile}(ptr {body.at(self.left, body.mul(row, gap))}, "
                        f"i64 {gap}, i64 {self.size}, ptr %scratch, i64 {line}, "
                        f"ptr {body.at(to, body.mul(row, self.gap))}, i64 {self.gap}, "
                        f"i64 {length}, i1 {more}, i64 {some}, i64 {body.sub(count, row)})"
                    )

    def finish(self, row: str, outputs: str, rows: _Rows, by_tiles: str) -> None:
        """Write the results to their addresses; then run the epilogue."""
        body, kept = self.body, self.calls.kept
        column, columns = (body.mul(n, self.width) for n in (rows.first, rows.count))
        positions = body.param(ConvParams.POSITIONS)
        gap = body.mul(
            body.select(kept, positions, body.mul(self.layout.rows, self.width)), self.item
        )
        before = body.add(body.mul(row, gap), body.mul(column, self.item))
        whole = body.at(body.operand(5), before)
        to = body.select(kept, whole, self.block, "ptr")
        self.put(to, gap, outputs, rows, by_tiles)
        with body.where(self.calls.has_epilogue):
            begin = body.at(to, body.sub("0", before))
            params = body.at(
                "%params",
                8 * (AmxImageParams.end(self.code.rank) + AmxWeightParams.count(self.code.rank)),
            )
            body.line(
                f"call fastcc void {self.calls.follow}(ptr %buffers, ptr {begin}, ptr {params}, "
                f"i64 {row}, i64 {body.add(row, outputs)}, i64 {column}, "
                f"i64 {body.add(column, columns)}, ptr %scratch)"
            )

    def put(self, to: str, gap: str, outputs: str, rows: _Rows, by_tiles: str) -> None:
        """Take rows of positions out of the words; scale the results of tiles; round them."""
        body, v, shape = self.body, self.shape.vector, self.shape
        computed, stored = (Elements(body, shape, dtype) for dtype in (shape.dtype, shape.stored))
        factor = body.let(f"select i1 {by_tiles}, {v} {unscaling(shape)}, {v} splat (float 1.0)")
        with body.loop(0, rows.count) as row:
            done = body.mul(row, self.width)
            word = body.sub(self.layout.row(body.add(rows.first, row)), rows.start)
            source = body.at(self.square, body.mul(body.select(by_tiles, word, done), 4))
            there = body.at(to, body.mul(done, self.item))
            with body.loop(0, self.width, shape.lanes) as position:
                kept = stored.mask(body.sub(self.width, position))
                here = body.at(source, body.mul(position, 4))
                goal = body.at(there, body.mul(position, self.item))
                with body.loop(0, outputs) as output:
                    value = computed.load(body.at(here, body.mul(output, self.gap)))
                    value = body.let(f"fmul {v} {value}, {factor}")
                    stored.store_some(value, body.at(goal, body.mul(output, gap)), kept)
