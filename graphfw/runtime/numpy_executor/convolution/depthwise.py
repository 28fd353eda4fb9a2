"""`DepthwiseCode`: the gradient of weights that see one channel each, row by row of the image."""

from __future__ import annotations

import itertools

from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, RecordCode, module
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.convolution.window_bounds import (
    DenseStride,
    Spatial,
    WindowBounds,
)
from graphfw.runtime.numpy_executor.matmul.elements import declarations
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record

MOST = 32
"""The most taps: each has a vector of sums."""


class DepthwiseParams(ParamBlock):
    """The integers of a work item. `Spatial` of each dim follow."""

    IMAGES: int
    ROWS: int
    MULTIPLE: int
    X: int
    X_BATCH: int
    X_CHANNEL: int
    Y: int
    Y_BATCH: int
    Y_OUTPUT: int


@record
class DepthwiseCode(RecordCode):
    """A work item: the gradient of one output's weights, a sum over all positions of all images.

    Operands: x, y, the gradient. In y a plane is contiguous.

    Attributes:
        shape: The vectors.
        step: See `window_bounds`; not 0.
        window: The window's size along each spatial dim.
        target: The processor.
    """

    shape: TileShape
    step: DenseStride
    window: tuple[int, ...]
    target: Processor

    def llvm(self, symbol: str) -> str:
        return module([FunctionText(_Depthwise(self).text(symbol), declarations(self.shape), ())])


class _Depthwise(WindowBounds):
    """Writes the function."""

    def __init__(self, code: DepthwiseCode) -> None:
        super().__init__(code.shape, len(code.window), code.step, DepthwiseParams.COUNT)
        self.code = code
        self.item = code.shape.stored.itemsize

    def bytes_of(self, index: int) -> str:
        """Read a distance, in bytes."""
        return self.body.mul(self.body.param(index), self.item)

    def text(self, symbol: str) -> str:
        body, shape = self.body, self.shape
        images, rows, multiple = (
            body.param(i)
            for i in (DepthwiseParams.IMAGES, DepthwiseParams.ROWS, DepthwiseParams.MULTIPLE)
        )
        x, y, result = (body.operand(i) for i in range(3))
        channel = body.mul(
            body.div("%work_item", multiple), self.bytes_of(DepthwiseParams.X_CHANNEL)
        )
        x = body.at(body.at(x, self.bytes_of(DepthwiseParams.X)), channel)
        y = body.at(
            body.at(y, self.bytes_of(DepthwiseParams.Y)),
            body.mul("%work_item", self.bytes_of(DepthwiseParams.Y_OUTPUT)),
        )
        taps = list(itertools.product(*map(range, self.code.window)))
        totals = {tap: body.slot(shape.vector) for tap in taps}
        for total in totals.values():
            body.set(total, "zeroinitializer", shape.vector)
        positions = self.dims[-1][Spatial.POSITIONS]
        with body.loop(0, images) as image:
            source = body.at(x, body.mul(image, self.bytes_of(DepthwiseParams.X_BATCH)))
            plane = body.at(y, body.mul(image, self.bytes_of(DepthwiseParams.Y_BATCH)))
            with body.loop(0, positions, shape.lanes) as position:
                run = body.min(body.sub(positions, position), shape.lanes)
                along = []
                for k in range(self.code.window[-1]):
                    offset, low, high = self.seen_along(position, str(k))
                    along.append((offset, self.masks(low, body.min(high, run), 1)))
                kept = self.stored.mask(run)
                with body.loop(0, rows) as row:
                    offset = body.mul(body.add(body.mul(row, positions), position), self.item)
                    factor = self.stored.load_some(body.at(plane, offset), kept)
                    self.row(source, row, factor, along, totals)
        gap = len(taps) * self.item
        to = body.at(result, body.mul("%work_item", gap))
        for number, total in enumerate(totals.values()):
            self.store(body.get(total, shape.vector), body.at(to, number * self.item))
        return body.work_item(symbol)

    def row(
        self,
        source: str,
        row: str,
        factor: str,
        along: list[tuple[str, list[str]]],
        totals: dict[tuple[int, ...], str],
    ) -> None:
        """Add the elements that a vector of positions in a row sees, times `factor`."""
        body, vector = self.body, self.shape.vector
        outer = self.split(row, Spatial.POSITIONS, self.dims[:-1])
        for tap in itertools.product(*map(range, self.code.window[:-1])):
            here, is_outside = self.row_seen(source, outer, [str(k) for k in tap])
            with body.where(body.opposite(is_outside)):
                for k, (offset, masks) in enumerate(along):
                    (value,) = self.read(body.at(here, offset), masks)
                    slot = totals[*tap, k]
                    total = body.let(
                        f"call {vector} @llvm.fmuladd.{self.shape.suffix}({vector} {factor}, "
                        f"{vector} {value}, {vector} {body.get(slot, vector)})"
                    )
                    body.set(slot, total, vector)

    def store(self, total: str, to: str) -> None:
        """Write the sum of a vector."""
        body, shape = self.body, self.shape
        zero = f"{shape.element} 0.0"
        one = body.let(
            f"call {shape.element} @llvm.vector.reduce.fadd.{shape.suffix}({zero}, "
            f"{shape.vector} {total})"
        )
        value = body.let(f"insertelement {shape.vector} poison, {shape.element} {one}, i32 0")
        self.stored.store_first(value, to)
