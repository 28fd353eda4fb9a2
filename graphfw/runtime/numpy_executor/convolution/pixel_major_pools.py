"""`PixelMajorPoolCode`: pixel-major convolutions with a pooling of their results.

Positions of the convolution are rows of a block in cache, and neighbouring outputs are vectors. A
pooling window is reduced vector by vector, and only its result is transposed and leaves the work
item. The block holds as many rows of positions as the windows of a chunk see. If the next chunk's
windows see some of them again, they are still there.
"""

from __future__ import annotations

import itertools

from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.codegen.registers import literal, splat
from graphfw.runtime.numpy_executor.convolution.pixel_major import (
    PixelMajor,
    PixelMajorCode,
    PixelMajorDim,
    PixelMajorWriter,
    Result,
)
from graphfw.runtime.numpy_executor.matmul.elements import Elements
from graphfw.runtime.numpy_executor.matmul.shared_function import calling
from graphfw.utils.records import record


class PoolWindow(ParamBlock):
    """The integers of a pooling window along a dim; they follow those of the spatial dims."""

    POSITIONS: int
    STRIDE: int
    PADDING: int


@record
class PixelMajorPoolCode(PixelMajorCode):
    """A work item: some outputs of a group, some rows of pooled positions.

    Attributes:
        window: The rows of positions of a window, and the positions of each row.
        is_sum: Whether the result is the sum over windows of ReLUs, of results to which a third
            operand, with a number for each output, was added; else the maximum over windows.
    """

    window: tuple[int, int]
    is_sum: bool

    @property
    def inputs(self) -> int:
        return 3 if self.is_sum else 2

    def llvm(self, symbol: str) -> str:
        code = _PixelMajorPool(self, self.window, self.is_sum)
        return calling(code.text(symbol), self.shape, self.callees)


class _PixelMajorPool(PixelMajorWriter):
    """Writes the function of a work item; `together` counts rows of positions of windows."""

    def __init__(self, code: PixelMajorCode, window: tuple[int, int], is_sum: bool) -> None:
        self.window, self.is_sum = window, is_sum
        super().__init__(code)
        self.computed = Elements(self.body, self.shape, self.shape.dtype)

    def window_param(self, axis: int, which: int) -> str:
        """Read a run-time integer of the windows."""
        first = PixelMajor.COUNT + PixelMajorDim.COUNT * self.code.rank
        return self.body.param(first + PoolWindow.COUNT * axis + which)

    def result_block(self) -> Result:
        body = self.body
        rows, width = (self.window_param(axis, PoolWindow.POSITIONS) for axis in range(2))
        # The number of rows of positions that the windows of a chunk see.
        more = body.mul(body.sub(self.together, 1), self.window_param(0, PoolWindow.STRIDE))
        self.depth = body.add(more, self.window[0])
        nbytes = body.mul(body.mul(self.depth, self.width), self.line)
        params = PixelMajor.COUNT + PixelMajorDim.COUNT * self.code.rank + 2 * PoolWindow.COUNT
        return Result(rows, width, body.at(self.block, nbytes), params)

    def image(
        self, x: str, image: str, group: str, panels: tuple[str, str], rows: tuple[str, str]
    ) -> None:
        body, done = self.body, self.body.slot()
        stride, before = (
            self.window_param(0, which) for which in (PoolWindow.STRIDE, PoolWindow.PADDING)
        )
        with body.loop(*panels) as panel:
            body.set(done, 0)
            added = self.added(group, panel) if self.is_sum else []
            with body.loop(*rows, self.together) as row:
                stop = body.min(body.add(row, self.together), rows[1])
                first = body.sub(body.mul(row, stride), before)
                begin = body.max(first, body.get(done))
                last = body.sub(body.mul(body.sub(stop, 1), stride), before)
                end = body.min(body.add(last, self.window[0]), self.rows)
                self.compute(x, group, panel, (begin, end))
                body.set(done, end)
                self.pool((row, stop), added)
                self.finish(image, group, panel, (row, stop))

    def row_block(self, row: str, first: str) -> str:
        """Return the address of a row of positions in the block, which is a ring."""
        before = self.body.mul(self.body.rem(row, self.depth), self.width)
        return self.body.at(self.block, self.body.mul(before, self.line))

    def added(self, group: str, panel: str) -> list[str]:
        """Read the numbers that are added to a panel of outputs."""
        body, lanes, columns = self.body, self.shape.lanes, self.shape.columns
        first = body.mul(panel, columns)
        left = body.sub(self.m, first)
        here = body.mul(body.add(body.mul(group, self.m), first), self.size)
        here = body.at(body.operand(2), here)
        return [
            self.computed.load_some(
                body.at(here, n * lanes * self.size), self.computed.mask(left, n)
            )
            for n in range(columns // lanes)
        ]

    def pool(self, rows: tuple[str, str], added: list[str]) -> None:
        """Reduce the windows of some rows of pooled positions."""
        body, lanes = self.body, self.shape.lanes
        with body.loop(*rows) as row:
            seen = [self.row_block(index, "0") for index in self.seen(0, row, self.rows)]
            before = body.mul(body.sub(row, rows[0]), self.result.width)
            to = body.at(self.result.block, body.mul(before, self.line))
            with body.loop(0, self.result.width) as position:
                columns = [body.mul(c, self.line) for c in self.seen(1, position, self.width)]
                taps = [body.at(*tap) for tap in itertools.product(seen, columns)]
                there = body.at(to, body.mul(position, self.line))
                for vector in range(self.shape.columns // lanes):
                    offset = vector * lanes * self.size
                    values = [self.computed.load(body.at(tap, offset)) for tap in taps]
                    made = self.total(values, added[vector]) if added else self.largest(values)
                    self.computed.store(made, body.at(there, offset))

    def seen(self, axis: int, position: str, size: str) -> list[str]:
        """Return the elements that a window sees along an axis.

        Beyond the positions of the convolution it sees nothing. There the last position is taken
        again, which changes no maximum.
        """
        body = self.body
        stride, before = (
            self.window_param(axis, which) for which in (PoolWindow.STRIDE, PoolWindow.PADDING)
        )
        first, last = body.sub(body.mul(position, stride), before), body.sub(size, 1)
        indices = [body.add(first, tap) for tap in range(self.window[axis])]
        return [body.min(body.max(index, "0"), last) for index in indices]

    def total(self, values: list[str], added: str) -> str:
        """Return the sum of vectors' ReLUs, after something was added."""
        body, v, bits = self.body, self.shape.vector, f"<{self.shape.lanes} x i1>"
        result = ""
        for value in values:
            shifted = body.let(f"fadd {v} {value}, {added}")
            is_less = body.let(f"fcmp olt {v} {shifted}, zeroinitializer")
            cut = body.let(f"select {bits} {is_less}, {v} zeroinitializer, {v} {shifted}")
            result = body.let(f"fadd {v} {result}, {cut}") if result else cut
        return result

    def largest(self, values: list[str]) -> str:
        """Return the largest of vectors; NaN where one is."""
        body, shape = self.body, self.shape
        v, bits = shape.vector, f"<{shape.lanes} x i1>"
        result = values[0]
        for value in values[1:]:
            larger = body.let(f"fcmp ogt {v} {result}, {value}")
            result = body.let(f"select {bits} {larger}, {v} {result}, {v} {value}")
        # The maximum loses NaN; one comparison finds it in two values.
        ordered = ""
        for first, second in zip(values[::2], [*values[1::2], values[-1]], strict=False):
            both = body.let(f"fcmp ord {v} {first}, {second}")
            ordered = body.let(f"and {bits} {ordered}, {both}") if ordered else both
        nan = splat(shape.element, literal(float("nan"), shape.dtype), shape.lanes)
        return body.let(f"select {bits} {ordered}, {v} {result}, {v} {nan}")
