"""Gradients of weights: products of two panels, and the step that adds partial sums."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dim import DimLike, static
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import Step, Storage
from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, RecordCode, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.pieces import Piece
from graphfw.runtime.numpy_executor.matmul.plan import heights_for
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record

_WORK_ITEM = 1 << 12
"""The elements of a work item."""


def tiles_of(shape: TileShape, rows: int) -> list[tuple[Piece, int]]:
    """Return the micro-kernels for some rows, each with its first row."""
    height, *rest = heights_for(shape, rows)
    heights = [*[height] * (rows // height), *rest]
    return [
        (Piece("tile", shape, (height, 2, "a", False)), sum(heights[:number]))
        for number, height in enumerate(heights)
    ]


def panel_tiles(shape: TileShape, rows: int) -> tuple[Piece, ...]:
    """Return the micro-kernels, each once."""
    return tuple(dict.fromkeys([tile for tile, _ in tiles_of(shape, rows)]))


@record
class PartialSumsCode(RecordCode):
    """A work item: some elements of the sum of partial sums.

    Operands: arrays of partial sums, one after the other; the result. Integers: how many each array
    has, their elements.

    Attributes:
        shape: The vectors, and the dtype of the sum; the partial sums are of the one that is
            computed in.
        arrays: The number of arrays.
        target: The processor.
    """

    shape: TileShape
    arrays: int
    target: Processor

    def llvm(self, symbol: str) -> str:
        body, shape = FunctionBody(), self.shape
        computed, stored = (Elements(body, shape, dtype) for dtype in (shape.dtype, shape.stored))
        partials, size = (body.param(i) for i in range(2))
        *arrays, to = (body.operand(i) for i in range(self.arrays + 1))
        begin = body.mul("%work_item", _WORK_ITEM)
        end = body.min(body.add(begin, _WORK_ITEM), size)
        total = body.slot(shape.vector)
        with body.loop(begin, end, shape.lanes) as position:
            mask = stored.mask(body.sub(end, position))
            body.set(total, "zeroinitializer", shape.vector)
            for source in arrays:
                with body.loop(0, partials) as partial:
                    number = body.add(body.mul(partial, size), position)
                    value = computed.load_some(body.at(source, body.mul(number, shape.size)), mask)
                    before = body.get(total, shape.vector)
                    body.set(
                        total, body.let(f"fadd {shape.vector} {before}, {value}"), shape.vector
                    )
            there = body.at(to, body.mul(position, shape.stored.itemsize))
            stored.store_some(body.get(total, shape.vector), there, mask)
        return module([FunctionText(body.work_item(symbol), declarations(shape), ())])


def added(
    node: Node,
    shape: TileShape,
    target: Processor,
    arrays: Sequence[Storage],
    partials: DimLike,
    result: Storage,
) -> Step:
    """Return the step that adds the partial sums in arrays, so many in each, to a result."""
    size = static(result.size)
    code = PartialSumsCode(shape, len(arrays), target)
    written = (*[False] * len(arrays), True)
    return Step((node,), code, (*arrays, result), written, (partials, size), -(-size // _WORK_ITEM))
