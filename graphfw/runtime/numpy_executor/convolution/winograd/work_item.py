"""`WinogradItemCode`: the work items of convolutions by Winograd's algorithms.

    @work_item(ptr buffers, ptr params, i64 work_item, ptr scratch, ptr calls)

A work item is a block of tiles and a block of outputs. It transforms its tiles, unless they are
prepacked. Then for each product of a tile the micro-kernels multiply a matrix of tiles and channels
with one of channels and outputs. The sums are transformed to positions, and the epilogue follows.
`calls` is the address of what differs between the convolutions that share a work item: see
`matmul.call_table.CallTable`.
"""

from __future__ import annotations

from typing import ClassVar

from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import Algorithm
from graphfw.runtime.numpy_executor.convolution.winograd.blocks import (
    TileBlock,
    block_count,
    block_of,
    seen_planes,
    transform,
)
from graphfw.runtime.numpy_executor.convolution.winograd.images import ImagesCode
from graphfw.runtime.numpy_executor.convolution.winograd.layout import (
    Planes,
    WinogradParams,
    planes,
)
from graphfw.runtime.numpy_executor.convolution.winograd.results import WinogradResultsCode
from graphfw.runtime.numpy_executor.matmul.call_table import CallTable
from graphfw.runtime.numpy_executor.matmul.code import MatmulCode
from graphfw.runtime.numpy_executor.matmul.item import GemvPolicy
from graphfw.runtime.numpy_executor.matmul.pieces import Piece
from graphfw.runtime.numpy_executor.matmul.shared_function import SharedFunction, calling
from graphfw.runtime.numpy_executor.matmul.tile import Ahead, TileShape
from graphfw.utils.records import record

_PANEL = 64 << 10
"""The most bytes of a panel that are multiplied with all tiles of a block, from the L2 cache. With
smaller pieces, sums over many channels would be read and written more often."""


class WinogradCode(MatmulCode):
    """Code whose tiles have all rows: if a block has fewer, there is memory for the others."""

    def tile(self, height: int, vectors: int) -> Piece:
        """Return the micro-kernel of a number of rows and vectors."""
        return Piece("tile", self.work_item.shape, (height, vectors, self.work_item.ahead, False))


@record
class WinogradItemCode(SharedFunction):
    """The function of a work item.

    Operands: x, or the transformed tiles of `prepack.PrepackCode`; the weights, see
        `weights.WinogradWeightsCode`.

    Attributes:
        shape: The micro-kernels' tiles.
        algorithm: Winograd's algorithm.
    """

    shape: TileShape
    algorithm: Algorithm
    few: ClassVar[GemvPolicy] = "never"
    ahead: ClassVar[Ahead] = "b"

    @property
    def images(self) -> ImagesCode:
        """The function that transforms tiles of images."""
        return ImagesCode(self.shape, self.algorithm)

    @property
    def results(self) -> WinogradResultsCode:
        """The function that transforms products of tiles."""
        return WinogradResultsCode(self.shape, self.algorithm)

    @property
    def callees(self) -> tuple[SharedFunction, ...]:
        """The functions that it calls by name."""
        return self.images, self.results

    def llvm(self, symbol: str) -> str:
        return calling(_WinogradItem(self).text(symbol), self.shape, self.callees)


class _WinogradItem:
    """Writes the function of a work item."""

    def __init__(self, code: WinogradItemCode) -> None:
        self.code = code
        self.shape = code.shape
        self.size = code.shape.size
        self.body = body = FunctionBody()
        self.calls = CallTable(body)
        self.channels, self.outputs, self.room, self.chunk = (
            body.param(i)
            for i in (
                WinogradParams.CHANNELS,
                WinogradParams.OUTPUTS,
                WinogradParams.ROOM,
                WinogradParams.CHUNK,
            )
        )
        self.panel = body.mul(self.channels, self.shape.columns * self.size)
        width = body.mul(self.chunk, self.shape.columns)
        address = self.scratch(WinogradParams.PRODUCTS)
        self.products = planes(body, self.shape, address, width, self.room)

    def scratch(self, index: int) -> str:
        """A range of scratch memory."""
        return self.body.at("%scratch", self.body.param(index))

    def text(self, symbol: str) -> str:
        """Find the work item's tiles and outputs; go through the outputs chunk by chunk."""
        body, code = self.body, self.code
        output_blocks = body.param(WinogradParams.OUTPUT_BLOCKS)
        panels = body.ceil(self.outputs, self.shape.columns)
        # Neighbouring work items differ in their tiles: they read the same weights.
        blocks = block_count(body, code.algorithm)
        number, rest = body.rem("%work_item", blocks), body.div("%work_item", blocks)
        block = block_of(body, code.algorithm, number)
        first, last = body.share(body.ceil(panels, self.chunk), rest, output_blocks)
        is_ahead = body.test("ne", body.param(WinogradParams.IS_AHEAD), 0)
        seen = self.seen(number, is_ahead)
        with body.where(body.opposite(is_ahead)):
            transform(body, code.images, block, ("0", self.channels), seen)
        with body.loop(first, last) as chunk:
            begin = body.mul(chunk, self.chunk)
            count = body.min(self.chunk, body.sub(panels, begin))
            self.multiply(seen, block, begin, count)
            self.transform(block, body.mul(begin, self.shape.columns), count)
        return body.function(
            f"define fastcc void @{symbol}(ptr %buffers, ptr %params, i64 %work_item, "
            "ptr %scratch, ptr %calls)"
        )

    def seen(self, number: str, is_ahead: str) -> Planes:
        """Return the transformed tiles of a block."""
        body = self.body
        found = seen_planes(body, self.shape, self.scratch(WinogradParams.SEEN))
        before = body.mul(body.mul(number, found.plane), self.code.algorithm.products)
        there = body.at(body.operand(0), before)
        return found._replace(address=body.select(is_ahead, there, found.address, "ptr"))

    def multiply(self, seen: Planes, block: TileBlock, begin: str, count: str) -> None:
        """Multiply a block of tiles with a chunk of panels, product by product."""
        body, shape = self.body, self.shape
        products = self.code.algorithm.products
        weights = body.mul(body.mul(begin, products), self.panel)
        weights = body.at(body.operand(1), weights)
        tiles = "1"
        for low, high in block:
            tiles = body.mul(body.sub(high, low), tiles)
        depth = _PANEL // (shape.columns * self.size)
        pieces = body.max(body.ceil(self.channels, depth), "1")
        with body.loop(0, str(products)) as product, body.loop(0, count) as number:
            column = body.mul(body.add(begin, number), shape.columns)
            narrow = body.test("sle", body.sub(self.outputs, column), shape.lanes)
            panel = body.mul(body.add(body.mul(product, count), number), self.panel)
            panel = body.at(weights, panel)
            left = body.at(seen.address, body.mul(product, seen.plane))
            to = body.at(self.products.address, body.mul(product, self.products.plane))
            to = body.at(to, body.mul(number, shape.columns * self.size))
            with body.loop(0, pieces) as piece:
                first = body.div(body.mul(self.channels, piece), pieces)
                last = body.div(body.mul(self.channels, body.add(piece, 1)), pieces)
                here = body.at(left, body.mul(first, self.size))
                right = body.at(panel, body.mul(first, shape.columns * self.size))
                more = body.test("ne", piece, 0)
                with self.calls.tiles(tiles, narrow) as (tile, row):
                    body.line(
                        f"call fastcc void {tile}(ptr {body.at(here, body.mul(row, seen.gap))}, "
                        f"i64 {seen.gap}, i64 {self.size}, "
                        f"ptr {right}, i64 {shape.columns * self.size}, "
                        f"ptr {body.at(to, body.mul(row, self.products.gap))}, "
                        f"i64 {self.products.gap}, i64 {body.sub(last, first)}, i1 {more}, "
                        f"i64 {shape.columns}, i64 0)"
                    )

    def transform(self, block: TileBlock, begin: str, count: str) -> None:
        """Transform the products of a chunk to positions, and run the epilogue."""
        body, m, lanes = self.body, self.code.algorithm.positions, self.shape.lanes
        across, down = (body.param(param) for param in (WinogradParams.ACROSS, WinogradParams.DOWN))
        rows, columns = (body.sub(high, low) for low, high in (block.down, block.across))
        top, left = (body.mul(low, m) for low, _ in (block.down, block.across))
        height = body.sub(body.min(body.mul(block.down[1], m), down), top)
        width = body.sub(body.min(body.mul(block.across[1], m), across), left)
        tiles = body.mul(rows, columns)
        end = body.min(body.add(begin, body.mul(count, self.shape.columns)), self.outputs)
        kept, size = self.calls.kept, self.size
        positions = body.mul(across, down)
        first = body.add(body.mul(top, across), left)
        line = body.mul(body.select(kept, positions, body.param(WinogradParams.LINE)), size)
        row = body.mul(body.select(kept, across, width), size)
        # Rows of positions lie one after the other where the block has all columns of an image.
        is_whole = body.test("eq", width, across)
        runs = body.select(is_whole, "1", height)
        length = body.select(is_whole, body.mul(height, width), width)
        with body.loop(*block.images) as image, body.loop(begin, end, lanes) as output:
            number = body.mul(body.sub(image, block.images[0]), tiles)
            source = body.at(self.products.address, body.mul(number, self.products.gap))
            source = body.at(source, body.mul(body.sub(output, begin), size))
            outputs = body.min(body.sub(end, output), lanes)
            member = body.add(body.mul(image, self.outputs), output)
            before = body.mul(body.add(body.mul(member, positions), first), size)
            whole = body.at(body.operand(2), before)
            to = body.select(kept, whole, self.scratch(WinogradParams.ROWS), "ptr")
            body.line(
                f"call fastcc void @{self.code.results.name}(ptr {source}, "
                f"i64 {self.products.gap}, i64 {self.products.plane}, i64 {rows}, i64 {columns}, "
                f"i64 {height}, i64 {width}, i64 {outputs}, ptr %scratch, ptr {to}, i64 {row}, "
                f"i64 {line})"
            )
            with body.where(self.calls.has_epilogue), body.loop(0, runs) as run:
                param = body.add(first, body.mul(run, across))
                here = body.at(to, body.mul(run, row))
                before = body.add(body.mul(member, line), body.mul(param, size))
                body.line(
                    f"call fastcc void {self.calls.follow}(ptr %buffers, "
                    f"ptr {body.at(here, body.sub('0', before))}, "
                    f"ptr {body.at('%params', 8 * WinogradParams.COUNT)}, "
                    f"i64 {member}, i64 {body.add(member, outputs)}, "
                    f"i64 {param}, i64 {body.add(param, length)}, ptr %scratch)"
                )
