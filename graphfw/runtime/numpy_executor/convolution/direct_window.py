"""`DirectWindowCode`: depthwise convolutions, and copies of windows' elements.

    @work_item(ptr buffers, ptr params, i64 work_item, ptr scratch, ptr calls)

Vectors are positions in a row of the result. Each tap of the window is read as such a vector.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import ClassVar, Literal, NamedTuple, TypeAlias

from graphfw.ir.dim import DimLike, dim_max
from graphfw.runtime.numpy_executor.codegen import FunctionText, module
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.convolution.window_bounds import (
    DenseStride,
    Spatial,
    WindowBounds,
)
from graphfw.runtime.numpy_executor.matmul.call_table import CallTable
from graphfw.runtime.numpy_executor.matmul.elements import declarations
from graphfw.runtime.numpy_executor.matmul.item import GemvPolicy
from graphfw.runtime.numpy_executor.matmul.shared_function import SharedFunction
from graphfw.runtime.numpy_executor.matmul.tile import Ahead, TileShape
from graphfw.utils.records import record

Kind: TypeAlias = Literal["products", "elements"]
"""The terms of the sum over a window: products with weights, or the elements."""


_WORK_ITEM = 1 << 18
"""About the number of elements that a work item reads, counted for each position."""


def rows_together(width: DimLike, window: int) -> DimLike:
    """Return the number of rows of the result that a work item computes.

    Args:
        width: The number of positions of a row.
        window: The number of elements that a position sees.
    """
    return dim_max(1, _WORK_ITEM // dim_max(1, dim_max(width, 16) * window))


_WIDEST = 8
"""Windows of such a width at most are written out along a row."""


def written_width(taps: int) -> int:
    """Return the `width` of a `DirectWindowCode` for a window's width."""
    return taps if taps <= _WIDEST else 0


class DirectWindowParams(ParamBlock):
    """The integers of a work item.

    `Spatial` of each dim follow, the weight's strides, then the epilogue's.
    """

    PLANES: int
    ROWS: int
    TOGETHER: int
    OUTPUTS: int
    MULTIPLE: int
    X: int
    X_BATCH: int
    X_CHANNEL: int
    WEIGHT: int
    WEIGHT_OUTPUT: int


@record
class DirectWindowCode(SharedFunction):
    """A work item: some rows of the result, counted over all images and outputs.

    Operands: x; the weights, for products.

    Attributes:
        shape: The vectors.
        rank: The number of spatial dims.
        step: See `window_bounds`.
        kind: The terms of the sum over a window.
        width: The window's width along the last dim if it is small; else 0.
    """

    shape: TileShape
    rank: int
    step: DenseStride
    kind: Kind
    width: int
    few: ClassVar[GemvPolicy] = "always"
    ahead: ClassVar[Ahead] = ""

    @property
    def inputs(self) -> int:
        """The number of operands before the result."""
        return 2 if self.kind == "products" else 1

    def llvm(self, symbol: str) -> str:
        return module(
            [FunctionText(_DirectWindow(self).text(symbol), declarations(self.shape), ())]
        )


class _Reading(NamedTuple):
    """The way in which a strip is read.

    Attributes:
        vectors: The width in vectors; 0 for one position only.
        masked: Whether it may reach beyond the image, or beyond a row of the result.
    """

    vectors: int
    masked: bool


class _DirectWindow(WindowBounds):
    """Writes the function of a work item."""

    def __init__(self, code: DirectWindowCode) -> None:
        super().__init__(code.shape, code.rank, code.step, DirectWindowParams.COUNT)
        self.code = code
        self.calls = CallTable(self.body)
        self.item = code.shape.stored.itemsize
        gaps = DirectWindowParams.COUNT + Spatial.COUNT * code.rank
        self.gaps = [self.body.param(gaps + dim) for dim in range(code.rank)]

    def text(self, symbol: str) -> str:
        body, rows, positions = (
            self.body,
            self.body.param(DirectWindowParams.ROWS),
            self.dims[-1][Spatial.POSITIONS],
        )
        together = body.param(DirectWindowParams.TOGETHER)
        begin = body.mul("%work_item", together)
        end = body.min(
            body.add(begin, together), body.mul(body.param(DirectWindowParams.PLANES), rows)
        )
        line = body.mul(positions, self.item)
        with body.loop(body.div(begin, rows), body.ceil(end, rows)) as plane:
            before = body.mul(plane, rows)
            first = body.max(body.sub(begin, before), "0")
            last = body.min(body.sub(end, before), rows)
            whole = body.operand(self.code.inputs)
            # Where the result is not kept, the rows of a plane go to scratch memory.
            kept = body.at(whole, body.mul(before, line))
            block = body.at("%scratch", body.sub("0", body.mul(first, line)))
            to = body.select(self.calls.kept, kept, block, "ptr")
            self.plane(self.operands(plane), (first, last), to, line)
            with body.where(self.calls.has_epilogue):
                product = body.select(self.calls.kept, whole, to, "ptr")
                params = DirectWindowParams.COUNT + (Spatial.COUNT + 1) * self.code.rank
                body.line(
                    f"call fastcc void {self.calls.follow}(ptr %buffers, ptr {product}, "
                    f"ptr {body.at('%params', 8 * params)}, i64 {plane}, i64 {body.add(plane, 1)}, "
                    f"i64 {body.mul(first, positions)}, i64 {body.mul(last, positions)}, ptr "
                    "%scratch)"
                )
        return body.function(
            f"define fastcc void @{symbol}(ptr %buffers, ptr %params, i64 %work_item, "
            "ptr %scratch, ptr %calls)"
        )

    def operands(self, plane: str) -> tuple[str, str]:
        """Return the addresses of the channel that a result's plane sees, and of its weights."""
        body, outputs = self.body, self.body.param(DirectWindowParams.OUTPUTS)
        image, output = body.div(plane, outputs), body.rem(plane, outputs)
        channel = body.div(output, body.param(DirectWindowParams.MULTIPLE))
        offset = body.add(
            body.param(DirectWindowParams.X),
            body.mul(image, body.param(DirectWindowParams.X_BATCH)),
        )
        offset = body.add(offset, body.mul(channel, body.param(DirectWindowParams.X_CHANNEL)))
        x = body.at(body.operand(0), body.mul(offset, self.item))
        if self.code.kind != "products":
            return x, ""
        offset = body.mul(output, body.param(DirectWindowParams.WEIGHT_OUTPUT))
        offset = body.add(body.param(DirectWindowParams.WEIGHT), offset)
        return x, body.at(body.operand(1), body.mul(offset, self.item))

    def plane(self, operands: tuple[str, str], rows: tuple[str, str], to: str, line: str) -> None:
        """Compute some rows of a plane, two vectors wide, or one by one if elements lie apart."""
        body, positions = self.body, self.dims[-1][Spatial.POSITIONS]
        if not self.step:
            with body.loop(0, positions) as position:
                there = body.at(to, body.mul(position, self.item))
                self.strip(operands, rows, (position, "1"), (there, line), _Reading(0, False))
            return
        with body.loop(0, positions, self.shape.columns) as position:
            run = body.min(body.sub(positions, position), self.shape.columns)
            there = body.at(to, body.mul(position, self.item))
            few = body.test("sle", run, self.shape.lanes)
            ways = [(_Reading(1, True), few), (_Reading(2, True), body.opposite(few))]
            if self.code.width:
                is_whole = self.is_whole(position, run)
                is_cut = body.let(f"and i1 {ways[1][1]}, {body.opposite(is_whole)}")
                ways[1:] = [(_Reading(2, True), is_cut), (_Reading(2, False), is_whole)]
            for reading, bit in ways:
                with body.where(bit):
                    self.strip(operands, rows, (position, run), (there, line), reading)

    def is_whole(self, position: str, run: str) -> str:
        """Return whether a strip sees elements only, in all lanes of the vectors that it reads."""
        body, dim, width = self.body, self.dims[-1], self.shape.columns
        first, _ = self.index(dim, position, "0")
        last, _ = self.index(dim, position, str(self.code.width - 1))
        end = body.add(last, self.step * width)
        bits = [
            body.test("eq", run, width),
            body.test("sge", first, 0),
            body.test("sle", end, dim[Spatial.SIZE]),
        ]
        both = body.let(f"and i1 {bits[0]}, {bits[1]}")
        return body.let(f"and i1 {both}, {bits[2]}")

    def strip(
        self,
        operands: tuple[str, str],
        rows: tuple[str, str],
        run: tuple[str, str],
        to: tuple[str, str],
        reading: _Reading,
    ) -> None:
        """Compute the same positions of some rows.

        If the window's width is known, the elements along a row are found once for all rows.
        """
        body, (image, weight), vectors = self.body, operands, reading.vectors
        known = [self.along(run, str(k), reading) for k in range(self.code.width)]
        kind = self.shape.vector if vectors else self.shape.element
        with body.loop(*rows) as row:
            totals = [body.slot(kind) for _ in range(vectors or 1)]
            for total in totals:
                body.set(total, "zeroinitializer" if vectors else "0.0", kind)
            position = self.split(row, Spatial.POSITIONS, self.dims[:-1])
            with ExitStack() as loops:
                tap = [
                    loops.enter_context(body.loop(0, dim[Spatial.TAPS])) for dim in self.dims[:-1]
                ]
                here, is_outside = self.row_seen(image, position, tap)
                loops.enter_context(body.where(body.opposite(is_outside)))
                if known:
                    for k, (offset, masks) in enumerate(known):
                        factor = self.factor(weight, [*tap, str(k)], vectors)
                        self.add(totals, body.at(here, offset), masks, factor)
                else:
                    along = loops.enter_context(body.loop(0, self.dims[-1][Spatial.TAPS]))
                    offset, masks = self.along(run, along, reading)
                    factor = self.factor(weight, [*tap, along], vectors)
                    self.add(totals, body.at(here, offset), masks, factor)
            there = body.at(to[0], body.mul(row, to[1]))
            for n, total in enumerate(totals):
                self.store(body.get(total, kind), there, run[1], n, vectors)

    def along(self, run: tuple[str, str], tap: str, reading: _Reading) -> tuple[str, list[str]]:
        """Return the offset of a run's elements along a row, and the mask of its lanes."""
        position, count = run
        offset, low, high = self.seen_along(position, tap)
        if not reading.vectors:
            return offset, [self.is_inside(low, high, count)]
        if not reading.masked:
            return offset, [""] * (self.step * reading.vectors)
        return offset, self.masks(low, self.body.min(high, count), reading.vectors)

    def store(self, value: str, to: str, run: str, n: int, vectors: int) -> None:
        """Write the n-th vector of a run, or one number: under a mask of one lane."""
        shape, body = self.shape, self.body
        if not vectors:
            value = body.let(f"insertelement {shape.vector} poison, {shape.element} {value}, i32 0")
        mask = self.stored.mask(run, n)
        self.stored.store_some(value, body.at(to, n * shape.lanes * self.item), mask)

    def factor(self, weight: str, tap: list[str], vectors: int) -> str:
        """Return a weight in all lanes of a vector; "" if there are no weights."""
        if not weight:
            return ""
        body = self.body
        for k, gap in zip(tap, self.gaps, strict=True):
            weight = body.at(weight, body.mul(body.mul(k, gap), self.item))
        return self.stored.spread(weight) if vectors else self.stored.load(weight, 1)

    def add(self, totals: list[str], here: str, masks: list[str], factor: str) -> None:
        """Add one more tap to the results."""
        if self.step:
            for slot, value in zip(totals, self.read(here, masks), strict=True):
                self.add_one(slot, value, factor, self.shape.vector)
        else:
            with self.body.where(masks[0]):
                self.add_one(totals[0], self.stored.load(here, 1), factor, self.shape.element)

    def add_one(self, slot: str, value: str, factor: str, kind: str) -> None:
        body, shape = self.body, self.shape
        total = body.get(slot, kind)
        if self.code.kind == "elements":
            total = body.let(f"fadd {kind} {total}, {value}")
        elif kind == shape.vector:
            function = f"call {kind} @llvm.fmuladd.{shape.suffix}"
            total = body.let(f"{function}({kind} {factor}, {kind} {value}, {kind} {total})")
        else:
            product = body.let(f"fmul {kind} {factor}, {value}")
            total = body.let(f"fadd {kind} {total}, {product}")
        body.set(slot, total, kind)
