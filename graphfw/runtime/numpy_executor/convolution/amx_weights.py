"""Weights of convolutions that matrix tiles compute: their components, and themselves in rows.

A block has 32 outputs: a head of 64 bytes, of which the first 8 are 0 if a number is out of the
range that can be split, else 1; then the components, as `matmul.components` lays them out. k is
[*K, C], with channels padded with zeros to whole tiles.
"""

from __future__ import annotations

from graphfw.runtime.numpy_executor.codegen import FunctionText, RecordCode, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.convolution.amx_image import END
from graphfw.runtime.numpy_executor.matmul import components
from graphfw.runtime.numpy_executor.matmul.amx import SIDE, TILE, Tiles
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.shared_function import SharedFunction
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record

DEPTH = 256
"""The positions of k that are split, or multiplied by vectors, at a time; whole tiles."""

HEAD = 64
"""The bytes of a block before its components."""

ROWS = SIDE * DEPTH * 4
"""The most bytes that `RowsCode` writes for a block."""


class AmxWeightParams(ParamBlock):
    """The integers of a weight; its size and its stride along each spatial dim follow."""

    OFFSET: int
    OUTPUT: int
    CHANNEL: int
    CHANNELS: int

    @staticmethod
    def count(rank: int) -> int:
        """Return the number of integers, those of the spatial dims included."""
        return AmxWeightParams.COUNT + 2 * rank


@record
class RowsCode(SharedFunction):
    """The function that writes weights as rows, in the dtype of the computation.

        @rows(ptr from, ptr numbers, i64 rows, i64 k, i64 n, ptr to)

    writes n positions of k of some outputs, the first of which is at `from`. Rows are `DEPTH`
    elements apart. `numbers` are those of `AmxWeightParams`.

    Attributes:
        shape: The vectors.
        rank: The number of the weights' spatial dims.
    """

    shape: TileShape
    rank: int

    @property
    def types(self) -> str:
        return "ptr, ptr, i64, i64, i64, ptr"

    def llvm(self, symbol: str) -> str:
        body, shape = FunctionBody(), self.shape
        stored, item = Elements(body, shape, shape.stored), shape.stored.itemsize
        numbers = [body.array("%numbers", i) for i in range(AmxWeightParams.count(self.rank))]
        output, channel = (
            body.mul(numbers[i], item) for i in (AmxWeightParams.OUTPUT, AmxWeightParams.CHANNEL)
        )
        channels, last = body.max(numbers[AmxWeightParams.CHANNELS], 1), body.add("%k", "%n")
        with body.loop(body.div("%k", channels), body.ceil(last, channels)) as tap:
            before = body.mul(tap, channels)
            begin, end = body.max(before, "%k"), body.min(body.add(before, channels), last)
            rest, first = tap, "%from"
            for dim in reversed(range(self.rank)):
                size, distance = numbers[
                    AmxWeightParams.COUNT + 2 * dim : AmxWeightParams.COUNT + 2 * dim + 2
                ]
                along = body.mul(body.rem(rest, size), body.mul(distance, item))
                rest, first = body.div(rest, size), body.at(first, along)
            with body.loop(0, "%rows") as row:
                source = body.at(first, body.mul(row, output))
                to = body.at("%to", body.mul(row, DEPTH * shape.size))
                with body.loop(begin, end) as position:
                    here = body.at(source, body.mul(body.sub(position, before), channel))
                    there = body.at(to, body.mul(body.sub(position, "%k"), shape.size))
                    body.line(f"store {shape.element} {stored.load(here, 1)}, ptr {there}")
        head = f"define fastcc void @{symbol}(ptr %from, ptr %numbers, i64 %rows, i64 %k, i64 %n, "
        return module([FunctionText(body.function(f"{head}ptr %to)"), declarations(shape), ())])


@record
class WeightComponentsCode(RecordCode):
    """A work item: one block of outputs of a group.

    Operands: the weight, the blocks. Integers: the outputs of a group, the elements of the window,
    then those of `AmxWeightParams`.

    Attributes:
        shape: The vectors.
        rank: The number of the weights' spatial dims.
        tiles: The tiles that read the components.
    """

    shape: TileShape
    rank: int
    tiles: Tiles

    @property
    def rows(self) -> RowsCode:
        """The function that writes weights as rows."""
        return RowsCode(self.shape, self.rank)

    @property
    def callees(self) -> tuple[RowsCode]:
        """The functions that it calls by name."""
        return (self.rows,)

    def llvm(self, symbol: str) -> str:
        # The rows are split into components.
        body, split = FunctionBody(), self.shape._replace(stored=self.shape.dtype)
        outputs, taps = (body.param(i) for i in range(2))
        numbers = body.at("%params", 16)
        channels = body.array(numbers, AmxWeightParams.CHANNELS)
        blocks, side = body.ceil(outputs, SIDE), 2 * TILE * self.tiles.components
        group, first = (
            body.div("%work_item", blocks),
            body.mul(body.rem("%work_item", blocks), SIDE),
        )
        output = body.add(body.mul(group, outputs), first)
        source = weights_at(body, self.shape, numbers, output, 0)
        count = body.min(body.sub(outputs, first), SIDE)
        tap_bytes = body.mul(body.ceil(channels, SIDE), side)
        step = body.add(body.mul(tap_bytes, taps), HEAD)
        block = body.at(body.operand(1), body.mul(step, "%work_item"))
        sound = body.slot("i1")
        body.set(sound, "true", "i1")
        with body.loop(0, taps) as tap, body.loop(0, channels, DEPTH) as channel:
            length = body.min(body.sub(channels, channel), DEPTH)
            body.line(
                f"call fastcc void @{self.rows.name}(ptr {source}, ptr {numbers}, i64 {count}, "
                f"i64 {body.add(body.mul(tap, channels), channel)}, i64 {length}, ptr %scratch)"
            )
            to = body.at(body.at(block, HEAD), body.mul(tap, tap_bytes))
            fits = body.let(
                f"call fastcc i1 @split_a(ptr %scratch, i64 {DEPTH * self.shape.size}, "
                f"i64 {self.shape.size}, ptr {body.at(to, body.mul(channel, side // SIDE))}, "
                f"i64 {count}, i64 {length}, i1 true)"
            )
            body.set(sound, body.let(f"and i1 {body.get(sound, 'i1')}, {fits}"), "i1")
        flag = body.let(f"zext i1 {body.get(sound, 'i1')} to i64")
        body.line(f"store i64 {flag}, ptr {block}")
        text = components.split_a(split, self.tiles, END) + body.work_item(symbol)
        known = declarations(self.shape) | components.splitting(split) | self.rows.declaration
        return module([FunctionText(text, known, ())])


def weights_at(
    body: FunctionBody, shape: TileShape, numbers: str, output: str, operand: int
) -> str:
    """Return the address of the weights of an output, counted over all groups."""
    offset = body.mul(output, body.array(numbers, AmxWeightParams.OUTPUT))
    offset = body.mul(
        body.add(offset, body.array(numbers, AmxWeightParams.OFFSET)), shape.stored.itemsize
    )
    return body.at(body.operand(operand), offset)
