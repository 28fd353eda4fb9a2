"""`TilesCode`: transformed tiles of images and of positions, for gradients of 3 x 3 weights."""

from __future__ import annotations

from typing import Literal, TypeAlias

from graphfw.ir.dim import DimLike
from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, RecordCode, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import F4, Matrix
from graphfw.runtime.numpy_executor.convolution.winograd.vectors import mapped, transposed
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record

GAP = 16
"""Elements between matrices, so that equal positions of all don't fall into one set of a cache."""

Side: TypeAlias = Literal["image", "cotangent"]
"""The operand that is transformed."""


def matrix_transpose(matrix: Matrix) -> Matrix:
    """Return the transpose."""
    return tuple(zip(*matrix, strict=True))


class TransformParams(ParamBlock):
    """The integers of a work item that transforms."""

    CHANNELS: int
    OFFSET: int
    BATCH: int
    CHANNEL: int
    ROW: int
    HEIGHT: int
    WIDTH: int
    PADDING_DOWN: int
    PADDING_ACROSS: int
    DOWN: int
    ACROSS: int
    STRIPS: int
    TOGETHER: int
    TILES: int
    """Tiles along both dims of an image; of all images the rows of tiles, those of a work item,
    and the tiles."""


@record
class TilesCode(RecordCode):
    """A work item: some rows of tiles of a panel of channels, transformed.

    Operands: an image, the result: for each element of a transformed tile and each panel of
    channels a matrix [tiles][channels], padded with any numbers.

    Attributes:
        shape: The vectors and panels.
        side: The operand that is transformed.
        target: The processor.
    """

    shape: TileShape
    side: Side
    target: Processor

    @property
    def matrix(self) -> Matrix:
        """The matrix for columns, and for rows."""
        return F4.of_image if self.side == "image" else matrix_transpose(F4.of_result)

    def scratch(self, across: DimLike) -> DimLike:
        """Return the bytes of a strip of tiles, and of the strip with columns transformed."""
        lanes, seen = self.shape.lanes, len(self.matrix[0])
        columns = (across * F4.positions + 2 + lanes - 1) // lanes * lanes
        return columns * (seen + F4.size) * lanes * self.shape.size

    def llvm(self, symbol: str) -> str:
        text = _Tiles(self).text(symbol)
        return module([FunctionText(text, declarations(self.shape), ())])


class _Tiles:
    """Writes the function."""

    def __init__(self, code: TilesCode) -> None:
        self.shape = code.shape
        self.matrix = code.matrix
        self.seen = len(code.matrix[0])
        self.body = body = FunctionBody()
        self.elements = Elements(body, self.shape, self.shape.dtype)
        self.stored = Elements(body, self.shape, self.shape.stored)
        self.line = self.shape.lanes * self.shape.size
        columns = body.add(body.mul(body.param(TransformParams.ACROSS), F4.positions), 2)
        self.room = body.mul(body.ceil(columns, self.shape.lanes), self.shape.lanes)

    def distance(self, index: int) -> str:
        """Read a distance, in bytes."""
        return self.body.mul(self.body.param(index), self.shape.stored.itemsize)

    def text(self, symbol: str) -> str:
        body, shape, down = self.body, self.shape, self.body.param(TransformParams.DOWN)
        channels, tiles = body.param(TransformParams.CHANNELS), body.param(TransformParams.TILES)
        panels = body.ceil(channels, shape.columns)
        panel, number = body.rem("%work_item", panels), body.div("%work_item", panels)
        begin = body.mul(number, body.param(TransformParams.TOGETHER))
        end = body.min(
            body.add(begin, body.param(TransformParams.TOGETHER)),
            body.param(TransformParams.STRIPS),
        )
        first = body.mul(panel, shape.columns)
        whole = body.mul(panels, body.mul(tiles, shape.columns))
        plane = body.mul(body.add(whole, GAP), shape.size)
        x = body.at(body.operand(0), self.distance(TransformParams.OFFSET))
        to = body.operand(1)
        to = body.at(to, body.mul(body.mul(panel, tiles), shape.columns * shape.size))
        last = body.min(body.add(first, shape.columns), channels)
        with body.loop(begin, end) as strip, body.loop(first, last, shape.lanes) as channel:
            image, row = body.div(strip, down), body.rem(strip, down)
            source = body.at(x, body.mul(image, self.distance(TransformParams.BATCH)))
            self.strip(source, channel, row)
            self.columns()
            tile = body.mul(strip, body.param(TransformParams.ACROSS))
            here = body.at(to, body.mul(tile, shape.columns * shape.size))
            here = body.at(here, body.mul(body.sub(channel, first), shape.size))
            self.rows(here, plane)
        return body.work_item(symbol)

    def strip(self, image: str, channel: str, row: str) -> None:
        """Pack a row of tiles of a group of channels: `[line][column][channel]`."""
        body, lanes, item = self.body, self.shape.lanes, self.shape.stored.itemsize
        left = body.sub(body.sub(body.param(TransformParams.CHANNELS), channel), 1)
        sources = [
            body.at(
                image,
                body.mul(
                    body.add(channel, body.min(str(n), left)),
                    self.distance(TransformParams.CHANNEL),
                ),
            )
            for n in range(lanes)
        ]
        top = body.sub(body.mul(row, F4.positions), body.param(TransformParams.PADDING_DOWN))
        before = body.param(TransformParams.PADDING_ACROSS)
        with body.loop(0, str(self.seen)) as line:
            y = body.add(top, line)
            # A negative number is large as an unsigned one.
            is_inside = body.test("ult", y, body.param(TransformParams.HEIGHT))
            width = body.select(is_inside, body.param(TransformParams.WIDTH), "0")
            here = body.mul(y, self.distance(TransformParams.ROW))
            to = body.at("%scratch", body.mul(body.mul(line, self.room), self.line))
            with body.loop(0, self.room, lanes) as column:
                x = body.sub(column, before)
                outside = self.stored.mask(body.sub("0", x))
                inside = self.stored.mask(body.sub(width, x))
                mask = body.let(f"icmp ugt <{lanes} x i1> {inside}, {outside}")
                offset = body.add(here, body.mul(x, item))
                vectors = [self.stored.load_some(body.at(s, offset), mask) for s in sources]
                there = body.at(to, body.mul(column, self.line))
                for n, vector in enumerate(transposed(body, self.shape, vectors)):
                    self.elements.store(vector, body.at(there, n * self.line))

    def columns(self) -> None:
        """Transform all columns, after the strip."""
        body, gap = self.body, self.body.mul(self.room, self.line)
        to = body.at("%scratch", body.mul(gap, self.seen))
        with body.loop(0, self.room) as column:
            offset = body.mul(column, self.line)
            here, there = body.at("%scratch", offset), body.at(to, offset)
            values = [self.elements.load(body.at(here, body.mul(gap, i))) for i in range(self.seen)]
            for i, value in enumerate(mapped(body, self.shape, self.matrix, values)):
                self.elements.store(value, body.at(there, body.mul(gap, i)))

    def rows(self, to: str, plane: str) -> None:
        """Transform the rows of each tile."""
        body, gap = self.body, self.body.mul(self.room, self.line)
        source = body.at("%scratch", body.mul(gap, self.seen))
        with body.loop(0, body.param(TransformParams.ACROSS)) as tile:
            first = body.at(source, body.mul(tile, F4.positions * self.line))
            there = body.at(to, body.mul(tile, self.shape.columns * self.shape.size))
            for i in range(F4.size):
                here = body.at(first, body.mul(gap, i))
                values = [
                    self.elements.load(body.at(here, n * self.line)) for n in range(self.seen)
                ]
                for j, value in enumerate(mapped(body, self.shape, self.matrix, values)):
                    product = i * F4.size + j
                    self.elements.store(value, body.at(there, body.mul(plane, product)))
