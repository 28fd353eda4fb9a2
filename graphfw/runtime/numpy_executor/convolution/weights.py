"""`WeightsCode`: the native function that lays out weights as the left operand of a product."""

from __future__ import annotations

from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, RecordCode, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record


class WeightParams(ParamBlock):
    """The integers of a work item; the weight's size and stride of each spatial dim follow."""

    TILE: int
    OUTPUTS: int
    TILES: int
    BLOCKS: int
    DEPTH: int
    CHANNELS: int
    TAPS: int
    OFFSET: int
    OUTPUT: int
    CHANNEL: int


@record
class WeightsCode(RecordCode):
    """A work item: the weights of one tile of outputs, `[k][outputs]`, where k is [*K, C].

    They have the order in which `ConvItemCode` reads them: block by block of outputs, piece by
    piece of k, then tile by tile. A group's last tile may have fewer outputs than it has room.

    Operands: the weight, the tiles.

    Attributes:
        shape: The tiles.
        rank: The number of spatial dims.
        target: The processor.
    """

    shape: TileShape
    rank: int
    target: Processor

    def llvm(self, symbol: str) -> str:
        body, shape = FunctionBody(), self.shape
        item = shape.stored.itemsize
        stored = Elements(body, shape, shape.stored)
        numbers = [body.param(i) for i in range(WeightParams.COUNT + 2 * self.rank)]
        tile, outputs, tiles, blocks, depth, channels, taps, offset, output, channel = numbers[
            : WeightParams.COUNT
        ]
        output, channel = body.mul(output, item), body.mul(channel, item)
        group, number = body.div("%work_item", tiles), body.rem("%work_item", tiles)
        first = body.mul(number, tile)
        rows = body.min(body.sub(outputs, first), tile)
        source = body.at(body.operand(0), body.mul(offset, item))
        source = body.at(source, body.mul(body.add(body.mul(group, outputs), first), output))
        k = body.mul(channels, taps)
        # The begin and the end of the tile's block, in tiles.
        block = body.div(body.sub(body.mul(body.add(number, 1), blocks), 1), tiles)
        begin = body.div(body.mul(tiles, block), blocks)
        end = body.div(body.mul(tiles, body.add(block, 1)), blocks)
        line = body.mul(tile, shape.size)
        before = body.mul(body.mul(body.add(body.mul(group, tiles), begin), k), line)
        to = body.at(body.operand(1), before)
        pieces = body.max(body.ceil(k, depth), "1")
        with body.loop(0, pieces) as piece:
            k_begin = body.div(body.mul(k, piece), pieces)
            k_end = body.div(body.mul(k, body.add(piece, 1)), pieces)
            length = body.mul(body.sub(k_end, k_begin), line)
            there = body.at(to, body.mul(body.mul(k_begin, body.sub(end, begin)), line))
            there = body.at(there, body.mul(body.sub(number, begin), length))
            with body.loop(k_begin, k_end) as position:
                rest, here = body.div(position, channels), source
                here = body.at(here, body.mul(body.rem(position, channels), channel))
                for dim in reversed(range(self.rank)):
                    size, distance = numbers[
                        WeightParams.COUNT + 2 * dim : WeightParams.COUNT + 2 * dim + 2
                    ]
                    index = body.rem(rest, size)
                    rest = body.div(rest, size)
                    here = body.at(here, body.mul(body.mul(index, distance), item))
                last = body.at(there, body.mul(body.sub(position, k_begin), line))
                with body.loop(0, rows) as row:
                    value = stored.load(body.at(here, body.mul(row, output)), 1)
                    one = body.at(last, body.mul(row, shape.size))
                    body.line(f"store {shape.element} {value}, ptr {one}")
        return module([FunctionText(body.work_item(symbol), declarations(shape), ())])
