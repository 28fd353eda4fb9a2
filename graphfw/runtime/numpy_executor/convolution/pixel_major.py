"""`PixelMajorCode`: convolutions whose rows are positions and whose columns are outputs.

    @work_item(ptr buffers, ptr params, i64 work_item, ptr scratch, ptr calls)

The left operand of the product is the image itself: the elements that positions in a row of the
result see have one stride, and a list has the offsets of the taps. So nothing is packed, and no
columns are wasted where rows are short. The right operand is panels of weights. The result,
`[positions][outputs]`, is transposed at last.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from graphfw.runtime.numpy_executor.codegen import FunctionText, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.codegen.transpose import transposed
from graphfw.runtime.numpy_executor.convolution.work_item import depth
from graphfw.runtime.numpy_executor.matmul.call_table import CallTable
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.item import GemvPolicy
from graphfw.runtime.numpy_executor.matmul.shared_function import SharedFunction, calling
from graphfw.runtime.numpy_executor.matmul.tile import Ahead, TileShape
from graphfw.utils.records import record


class PixelMajor(ParamBlock):
    """The integers of a work item. `PixelMajorDim` of each dim follow, then the epilogue's."""

    M: int
    K: int
    GROUPS: int
    CHANNELS: int
    IMAGES: int
    ROWS: int
    WIDTH: int
    X: int
    X_BATCH: int
    X_GROUP: int
    X_CHANNEL: int
    ROW_BLOCKS: int
    OUTPUT_BLOCKS: int
    TOGETHER: int


class PixelMajorDim(ParamBlock):
    """The integers of a spatial dim: sizes, and distances of neighbours in memory."""

    POSITIONS: int
    TAPS: int
    POSITION_STRIDE: int
    TAP_STRIDE: int


@record
class TransposeCode(SharedFunction):
    """The function that transposes a block of the result, and rounds it to its dtype.

        @turn(ptr block, ptr to, i64 gap, i64 positions, i64 outputs)

    The block is `[positions][two vectors]`, with room for positions up to a multiple of the lanes;
    `gap` is the distance of outputs at the destination, in bytes.
    """

    shape: TileShape

    @property
    def types(self) -> str:
        return "ptr, ptr, i64, i64, i64"

    def llvm(self, symbol: str) -> str:
        body, shape = FunctionBody(), self.shape
        computed = Elements(body, shape, shape.dtype)
        stored = Elements(body, shape, shape.stored)
        line, lanes, item = shape.columns * shape.size, shape.lanes, shape.stored.itemsize
        with body.loop(0, "%positions", lanes) as position:
            kept = stored.mask(body.sub("%positions", position))
            start = body.at("%block", body.mul(position, line))
            there = body.at("%to", body.mul(position, item))
            with body.loop(0, "%outputs", lanes) as output:
                here = body.at(start, body.mul(output, shape.size))
                rows = [computed.load(body.at(here, n * line)) for n in range(lanes)]
                to = body.at(there, body.mul(output, "%gap"))
                left = body.sub("%outputs", output)
                for n, value in enumerate(transposed(body.let, shape.vector, lanes, rows)):
                    with body.where(body.test("sgt", left, n)):
                        stored.store_some(value, body.at(to, body.mul("%gap", n)), kept)
        head = (
            f"define fastcc void @{symbol}(ptr %block, ptr %to, i64 %gap, i64 %positions, "
            "i64 %outputs)"
        )
        return module([FunctionText(body.function(head), declarations(shape), ())])


@record
class PixelMajorCode(SharedFunction):
    """A work item: some outputs of a group, some rows of positions of all images.

    Operands: x, in the dtype of the computation, with all elements that windows see; the panels of
        weights.

    Attributes:
        shape: The tiles.
        rank: The number of spatial dims.
    """

    shape: TileShape
    rank: int
    few: ClassVar[GemvPolicy] = "never"
    ahead: ClassVar[Ahead] = "list"

    @property
    def inputs(self) -> int:
        """The number of operands before the result."""
        return 2

    @property
    def turn(self) -> TransposeCode:
        """The function that transposes blocks."""
        return TransposeCode(self.shape)

    @property
    def callees(self) -> tuple[TransposeCode]:
        """The functions that it calls by name."""
        return (self.turn,)

    def llvm(self, symbol: str) -> str:
        return calling(PixelMajorWriter(self).text(symbol), self.shape, self.callees)


class Result(NamedTuple):
    """The result of a work item, before it is transposed.

    Attributes:
        rows: The number of an image's rows of positions.
        width: The number of positions of a row.
        block: Its address.
        params: The number of run-time integers before the epilogue's.
    """

    rows: str
    width: str
    block: str
    params: int


class PixelMajorWriter:
    """Writes the function of a work item."""

    def __init__(self, code: PixelMajorCode) -> None:
        self.code = code
        self.shape = code.shape
        self.size = code.shape.size
        self.item = code.shape.stored.itemsize
        self.body = body = FunctionBody()
        self.calls = CallTable(body)
        self.m, self.k, self.rows, self.width = (
            body.param(i) for i in (PixelMajor.M, PixelMajor.K, PixelMajor.ROWS, PixelMajor.WIDTH)
        )
        self.dims = [
            [
                body.param(PixelMajor.COUNT + PixelMajorDim.COUNT * dim + i)
                for i in range(PixelMajorDim.COUNT)
            ]
            for dim in range(code.rank)
        ]
        self.line = code.shape.columns * code.shape.size
        self.together = body.param(PixelMajor.TOGETHER)
        self.list = "%scratch"
        # Lists and blocks begin at multiples of 64 bytes.
        self.block = body.at(self.list, body.mul(body.ceil(self.k, 8), 64))
        self.result = self.result_block()
        room = body.mul(self.together, self.result.width)
        room = body.mul(body.ceil(room, code.shape.lanes), self.line)
        self.transposed = body.at(self.result.block, body.mul(room, code.shape.lanes))

    def result_block(self) -> Result:
        """Return the block that is transposed at last."""
        return Result(
            self.rows,
            self.width,
            self.block,
            PixelMajor.COUNT + PixelMajorDim.COUNT * self.code.rank,
        )

    def text(self, symbol: str) -> str:
        """Find the work item's rows and outputs; go through the rows of each image."""
        body, rows = self.body, self.result.rows
        outputs, row_blocks = (
            body.param(PixelMajor.OUTPUT_BLOCKS),
            body.param(PixelMajor.ROW_BLOCKS),
        )
        panels = body.share(body.ceil(self.m, self.shape.columns), "%work_item", outputs)
        rest = body.div("%work_item", outputs)
        begin, end = body.share(body.mul(body.param(PixelMajor.IMAGES), rows), rest, row_blocks)
        group = body.div(rest, row_blocks)
        self.offsets()
        with body.loop(body.div(begin, rows), body.ceil(end, rows)) as image:
            before = body.mul(image, rows)
            first = body.max(body.sub(begin, before), "0")
            last = body.min(body.sub(end, before), rows)
            offset = body.add(
                body.param(PixelMajor.X), body.mul(image, body.param(PixelMajor.X_BATCH))
            )
            offset = body.add(offset, body.mul(group, body.param(PixelMajor.X_GROUP)))
            x = body.at(body.operand(0), body.mul(offset, self.size))
            self.image(x, image, group, panels, (first, last))
        return body.function(
            f"define fastcc void @{symbol}(ptr %buffers, ptr %params, i64 %work_item, "
            "ptr %scratch, ptr %calls)"
        )

    def image(
        self, x: str, image: str, group: str, panels: tuple[str, str], rows: tuple[str, str]
    ) -> None:
        """Go through some rows of an image in chunks, for each through some panels of outputs."""
        body, last = self.body, rows[1]
        with body.loop(*rows, self.together) as row:
            stop = body.min(body.add(row, self.together), last)
            with body.loop(*panels) as panel:
                self.compute(x, group, panel, (row, stop))
                self.finish(image, group, panel, (row, stop))

    def offsets(self) -> None:
        """List the offsets of the window's elements in bytes: of each channel all taps."""
        body, channels = self.body, self.body.param(PixelMajor.CHANNELS)
        gap = body.mul(body.param(PixelMajor.X_CHANNEL), self.size)
        taps = body.div(self.k, body.max(channels, 1))
        with body.loop(0, taps) as tap:
            begin = self.address_of(tap, PixelMajorDim.TAPS, PixelMajorDim.TAP_STRIDE, self.dims)
            to = body.at(self.list, body.mul(tap, 8))
            with body.loop(0, channels) as channel:
                offset = body.add(begin, body.mul(channel, gap))
                there = body.at(to, body.mul(channel, body.mul(taps, 8)))
                body.line(f"store i64 {offset}, ptr {there}")

    def address_of(self, index: str, size: int, gap: int, dims: list[list[str]]) -> str:
        """Return the offset in bytes of an index along joined dims."""
        body, total = self.body, "0"
        for number, dim in reversed(list(enumerate(dims))):
            along = index if number == 0 else body.rem(index, dim[size])
            index = body.div(index, dim[size]) if number else index
            total = body.add(body.mul(along, dim[gap]), total)
        return body.mul(total, self.size)

    def compute(self, x: str, group: str, panel: str, rows: tuple[str, str]) -> None:
        """Compute a panel of outputs in some rows of positions, piece by piece of k."""
        body, width = self.body, self.shape.columns
        panels = body.mul(group, body.ceil(self.m, width))
        weights = body.mul(body.mul(body.add(panels, panel), self.k), self.line)
        weights = body.at(body.operand(1), weights)
        left = body.min(body.sub(self.m, body.mul(panel, width)), width)
        narrow = body.test("sle", left, self.shape.lanes)
        gap = body.mul(self.dims[-1][PixelMajorDim.POSITION_STRIDE], self.size)
        pieces = body.max(body.ceil(self.k, depth(self.shape)), "1")
        with body.loop(0, pieces) as piece:
            begin = body.div(body.mul(self.k, piece), pieces)
            end = body.div(body.mul(self.k, body.add(piece, 1)), pieces)
            more = body.test("ne", piece, 0)
            b = body.at(weights, body.mul(begin, self.line))
            length = body.sub(end, begin)
            offsets = body.let(f"ptrtoint ptr {body.at(self.list, body.mul(begin, 8))} to i64")
            # The first tiles prefetch the next weights, a line for each position of k; the others
            # prefetch memory that is read already.
            ahead, nbytes = body.slot("ptr"), body.mul(length, self.line)
            body.set(ahead, body.at(b, nbytes), "ptr")
            last = body.at(b, body.mul(nbytes, 2))
            with body.loop(*rows) as row:
                here = body.at(
                    x,
                    self.address_of(
                        row, PixelMajorDim.POSITIONS, PixelMajorDim.POSITION_STRIDE, self.dims[:-1]
                    ),
                )
                to = self.row_block(row, rows[0])
                with self.calls.tiles(self.width, narrow) as (tile, along):
                    asked = body.get(ahead, "ptr")
                    lines = body.let(f"ptrtoint ptr {asked} to i64")
                    body.line(
                        f"call fastcc void {tile}(ptr {body.at(here, body.mul(along, gap))}, "
                        f"i64 {gap}, i64 {offsets}, ptr {b}, i64 {self.line}, "
                        f"ptr {body.at(to, body.mul(along, self.line))}, i64 {self.line}, "
                        f"i64 {length}, i1 {more}, i64 {left}, i64 {lines})"
                    )
                    following = body.at(asked, body.mul(length, 64))
                    is_left = body.let(f"icmp ult ptr {following}, {last}")
                    body.set(ahead, body.select(is_left, following, b, "ptr"), "ptr")

    def row_block(self, row: str, first: str) -> str:
        """Return the address of a row of positions in the block, given the block's first row."""
        before = self.body.mul(self.body.sub(row, first), self.width)
        return self.body.at(self.block, self.body.mul(before, self.line))

    def finish(self, image: str, group: str, panel: str, rows: tuple[str, str]) -> None:
        """Transpose the results; then run the epilogue."""
        body, kept = self.body, self.calls.kept
        height, width, block, params_before = self.result
        member = body.add(body.mul(image, body.param(PixelMajor.GROUPS)), group)
        output = body.mul(panel, self.shape.columns)
        outputs = body.min(body.sub(self.m, output), self.shape.columns)
        column = body.mul(rows[0], width)
        columns = body.mul(body.sub(rows[1], rows[0]), width)
        row = body.add(body.mul(member, self.m), output)
        gap = body.mul(body.mul(height, width), self.item)
        whole = body.at(body.operand(self.code.inputs), body.mul(row, gap))
        whole = body.at(whole, body.mul(column, self.item))
        to = body.select(kept, whole, self.transposed, "ptr")
        transposed_gap = body.mul(body.mul(self.together, width), self.item)
        to_gap = body.select(kept, gap, transposed_gap)
        body.line(
            f"call fastcc void @{self.code.turn.name}(ptr {block}, ptr {to}, i64 {to_gap}, "
            f"i64 {columns}, i64 {outputs})"
        )
        with body.where(self.calls.has_epilogue):
            before = body.add(body.mul(row, to_gap), body.mul(column, self.item))
            begin = body.at(to, body.sub("0", before))
            params = body.at("%params", 8 * params_before)
            body.line(
                f"call fastcc void {self.calls.follow}(ptr %buffers, ptr {begin}, ptr {params}, "
                f"i64 {row}, i64 {body.add(row, outputs)}, i64 {column}, "
                f"i64 {body.add(column, columns)}, ptr %scratch)"
            )
