"""`PoolCode`: sums and maxima over windows, row by row of the result.

Rows, or segments of long ones, are made in two passes. The first reduces
the rows of the image that they see to one row in scratch memory, padded with the identity element;
the second reduces windows along that row. So no element is read more often than rows of windows
overlap, and only the first pass needs masks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from contextlib import ExitStack
from typing import Literal, NamedTuple, TypeAlias

from graphfw.ir.dim import DimLike, dim_max, dim_min
from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, RecordCode, module
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.codegen.registers import literal, splat
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim
from graphfw.runtime.numpy_executor.convolution.window_bounds import (
    DenseStride,
    Spatial,
    WindowBounds,
)
from graphfw.runtime.numpy_executor.matmul.elements import declarations
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record

Kind: TypeAlias = Literal["sums", "maxima"]

_WORK_ITEM = 1 << 16
"""About the number of elements of the image that a work item reads, counted each time."""


SEGMENT = 2048
"""The most positions of a row that are done at a time: whole vectors that caches hold."""

MOST_ROWS = 9
"""The most rows of a window for which the code has no loop."""

_DEEP = 8
"""The most rows that are done at a time: a vector across recent stores can't be read at once."""


def segments_together(dims: list[SpatialDim]) -> DimLike:
    """Return the number of segments of the result's rows that a work item computes."""
    rows = math.prod([dim.taps for dim in dims[:-1]])
    size = dim_min(dims[-1].size, SEGMENT * dims[-1].stride)
    return dim_max(1, _WORK_ITEM // dim_max(1, dim_max(size, 64) * rows))


def segments_of_row(dim: SpatialDim) -> DimLike:
    """Return the number of segments of a row."""
    return dim_max((dim.output_size + SEGMENT - 1) // SEGMENT, 1)


def vectors_of_segment(dim: SpatialDim, shape: TileShape) -> DimLike:
    """Return the number of vectors of a row that whole vectors of positions see.

    They are scratch memory, `scratch_bytes` in all.
    """
    positions = dim_min(dim.output_size, SEGMENT) + shape.columns
    return (positions * dim.stride + dim.taps * dim.dilation + shape.columns) // shape.lanes + 1


def deep(segments: DimLike) -> DimLike:
    """Return the number of segments of a plane's rows that are done at a time."""
    return dim_min(_DEEP, dim_max(segments, 1))


def scratch_bytes(segments: DimLike, vectors: DimLike, shape: TileShape) -> DimLike:
    """Return the bytes of a thread's scratch memory, for some segments and one of the identity."""
    return (segments + 1) * vectors * (shape.lanes * shape.size)


class PoolParams(ParamBlock):
    """The integers of a work item. `Spatial` of each dim follow."""

    PLANES: int
    ROWS: int
    SEGMENTS: int
    TOGETHER: int
    EACH: int
    """All planes, the rows of one, the segments of a row, those of a work item; the planes of an
    image."""
    X: int
    X_BATCH: int
    X_CHANNEL: int
    Y: int
    Y_BATCH: int
    Y_CHANNEL: int
    DEEP: int
    ROOM: int
    """See `deep`; how many vectors of workspace a segment has."""


@record
class PoolCode(RecordCode):
    """A work item: some segments of rows of the result, counted over all planes.

    Operands: x, the result.

    Attributes:
        shape: The vectors.
        rank: The number of spatial dims.
        stride: The stride along a row: 1, 2, or 0 for all others.
        dense: Whether rows of the image are contiguous in memory.
        rows: The window's size along all dims but the last, where these rows are few and
            contiguous; else None.
        segment: The number of positions of a row that are done at a time; 0 for all.
        kind: The reduction.
        width: The window's width if it is small; else 0.
        is_long: Whether the window is long, see `window_bounds`.
        target: The processor.
    """

    shape: TileShape
    rank: int
    stride: DenseStride
    dense: bool
    rows: tuple[int, ...] | None
    segment: int
    kind: Kind
    width: int
    is_long: bool
    target: Processor

    def llvm(self, symbol: str) -> str:
        return module([FunctionText(_Pool(self).text(symbol), declarations(self.shape), ())])


class _Total(NamedTuple):
    """Variables: results, and whether no NaN has been seen; their LLVM types."""

    kind: str
    bits: str
    value: str
    ordered: str


class _Pool(WindowBounds):
    """Writes the function."""

    def __init__(self, code: PoolCode) -> None:
        super().__init__(code.shape, code.rank, code.stride, PoolParams.COUNT, is_long=code.is_long)
        self.code = code
        self.item = code.shape.stored.itemsize
        self.size = code.shape.size
        self.neutral = -math.inf if code.kind == "maxima" else 0.0
        self.neutral_vector = splat(code.shape.element, self.number(self.neutral), code.shape.lanes)
        self.room = self.body.mul(self.body.param(PoolParams.ROOM), code.shape.lanes * self.size)
        self.deep = self.body.param(PoolParams.DEEP)
        self.nothing = self.body.at("%scratch", self.body.mul(self.room, self.deep))

    def text(self, symbol: str) -> str:
        body, count = self.body, self.body.param(PoolParams.SEGMENTS)
        together, each = body.param(PoolParams.TOGETHER), body.param(PoolParams.EACH)
        segments = body.mul(body.param(PoolParams.ROWS), count)
        begin = body.mul("%work_item", together)
        end = body.min(body.add(begin, together), body.mul(body.param(PoolParams.PLANES), segments))
        line = body.mul(self.dims[-1][Spatial.POSITIONS], self.item)
        x, y = (body.operand(i) for i in range(2))
        with body.loop(0, body.param(PoolParams.ROOM)) as n:
            offset = body.mul(n, self.shape.lanes * self.item)
            self.stored.store(self.neutral_vector, body.at(self.nothing, offset))
        with body.loop(body.div(begin, segments), body.ceil(end, segments)) as plane:
            before = body.mul(plane, segments)
            at = body.div(plane, each), body.rem(plane, each)
            image = self.plane(x, (PoolParams.X, PoolParams.X_BATCH, PoolParams.X_CHANNEL), at)
            result = self.plane(y, (PoolParams.Y, PoolParams.Y_BATCH, PoolParams.Y_CHANNEL), at)
            first = body.max(body.sub(begin, before), "0")
            last = body.min(body.sub(end, before), segments)
            with body.loop(first, last, self.deep) as begun:
                stop = body.min(body.add(begun, self.deep), last)
                for is_second in (False, True):
                    with body.loop(begun, stop) as segment:
                        row, offset = segment, "0"
                        if self.code.segment:
                            row = body.div(segment, count)
                            offset = body.mul(body.rem(segment, count), self.code.segment)
                        here = body.mul(body.sub(segment, begun), self.room)
                        here = body.at("%scratch", here)
                        run = self.dims[-1][Spatial.POSITIONS]
                        if self.code.segment:
                            run = body.min(body.sub(run, offset), self.code.segment)
                        if is_second:
                            there = body.at(result, body.mul(row, line))
                            there = body.at(there, body.mul(offset, self.item))
                            self.windows(here, there, run)
                        else:
                            positions = [
                                *self.split(row, Spatial.POSITIONS, self.dims[:-1]),
                                offset,
                            ]
                            self.rows(image, positions, run, here)
        return body.work_item(symbol)

    def plane(self, operand: str, positions: tuple[int, int, int], at: tuple[str, str]) -> str:
        """Return the address of a plane of an image."""
        offset, *gaps = map(self.body.param, positions)
        for index, gap in zip(at, gaps, strict=True):
            offset = self.body.add(offset, self.body.mul(index, gap))
        return self.body.at(operand, self.body.mul(offset, self.item))

    def number(self, value: float) -> str:
        """Return a constant."""
        return literal(value, self.shape.dtype)

    def rows(self, image: str, position: list[str], run: str, to: str) -> None:
        """Reduce the rows of the image that a run of positions sees to one."""
        body, dim = self.body, self.dims[-1]
        start, _ = self.index(dim, position[-1], "0")
        last = body.add(position[-1], body.sub(run, 1))
        end, _ = self.index(dim, last, body.sub(dim[Spatial.TAPS], 1))
        end = body.add(end, 1)
        begin = body.max(start, "0")
        count = body.max(body.sub(body.min(end, dim[Spatial.SIZE]), begin), "0")
        before = body.sub(body.min(begin, end), start)
        # The padding first: its vectors may reach into elements that are written afterwards.
        for first, stop in (("0", before), (body.add(before, count), body.sub(end, start))):
            with body.loop(first, stop, self.shape.lanes) as n:
                self.computed.store(self.neutral_vector, body.at(to, body.mul(n, self.size)))
        to = body.at(to, body.mul(before, self.size))
        gap = body.mul(dim[Spatial.ELEMENT_STRIDE], self.item)
        image = body.at(image, body.mul(begin, gap))
        seen: list[str] = []
        if self.code.rows is not None:
            for tap in itertools.product(*[map(str, range(size)) for size in self.code.rows]):
                row, is_outside = self.row_seen(image, position[:-1], list(tap))
                seen.append(body.select(is_outside, self.nothing, row, "ptr"))

        def column(number: str, mask: str) -> None:
            offset, total = body.mul(number, gap), self.start(lanes)
            if seen:
                rows = [body.at(row, offset) for row in seen]
                self.add(total, [self.element(row, mask, lanes) for row in rows])
            else:
                with ExitStack() as loops:
                    tap = [
                        loops.enter_context(self.taps(one, (at, at)))
                        for one, at in zip(self.dims, position[:-1], strict=False)
                    ]
                    row, is_outside = self.row_seen(image, position[:-1], tap)
                    loops.enter_context(body.where(body.opposite(is_outside)))
                    self.add(total, [self.element(body.at(row, offset), mask, lanes)])
            there = body.at(to, body.mul(number, self.size))
            if lanes == 1:
                body.line(f"store {self.shape.element} {self.result(total)}, ptr {there}")
            else:
                self.computed.store(self.result(total), there)

        lanes = self.shape.lanes if self.code.dense else 1
        if self.code.dense:
            self.each(count, column)
            return
        with body.loop(0, count) as number:
            column(number, "")

    def element(self, address: str, mask: str, lanes: int) -> str:
        """Read a vector of a row, or one element."""
        if mask:
            return self.stored.load_some(address, mask, self.neutral)
        return self.stored.load(address, lanes)

    def each(self, count: str, make: Callable[[str, str], None]) -> None:
        """Go through a number of elements, vector by vector; the last may need a mask."""
        body, lanes = self.body, self.shape.lanes
        rest = body.rem(count, lanes)
        whole = body.sub(count, rest)
        with body.loop(0, whole, lanes) as first:
            make(first, "")
        with body.where(body.test("ne", rest, 0)):
            make(whole, self.stored.mask(rest))

    def windows(self, row: str, to: str, run: str) -> None:
        """Reduce the windows of a run of positions along a row in scratch memory."""
        body, dim = self.body, self.dims[-1]

        def strip(position: str, mask: str) -> None:
            first = body.mul(body.mul(position, dim[Spatial.STRIDE]), self.size)
            value = self.strip(body.at(row, first), self.shape.lanes if self.step else 1)
            there = body.at(to, body.mul(position, self.item))
            if not self.step:
                self.stored.store_first(value, there)
            elif mask:
                self.stored.store_some(value, there, mask)
            else:
                self.stored.store(value, there)

        if self.step:
            self.each(run, strip)
            return
        with body.loop(0, run) as position:
            strip(position, "")

    def strip(self, here: str, lanes: int) -> str:
        """Reduce the windows of a vector of positions, or of one position in the first lane."""
        body, total = self.body, self.start(lanes)
        gap = body.mul(self.dims[-1][Spatial.DILATION], self.size)
        if self.code.width:
            starts = [body.at(here, body.mul(gap, k)) for k in range(self.code.width)]
            self.add(total, [self.seen_from(start, lanes) for start in starts])
        else:
            end = self.dims[-1][Spatial.TAPS]
            with body.long_loop("0", end) if self.is_long else body.loop(0, end) as k:
                self.add(total, [self.seen_from(body.at(here, body.mul(gap, k)), lanes)])
        value = self.result(total)
        if lanes == 1:
            only = f"{self.shape.vector} poison, {self.shape.element} {value}, i32 0"
            return body.let(f"insertelement {only}")
        return value

    def seen_from(self, here: str, lanes: int) -> str:
        """Read the elements of a row in scratch memory that a vector of positions, or one, sees."""
        if lanes == 1:
            return self.computed.load(here, 1)
        starts = [self.body.at(here, n * lanes * self.size) for n in range(self.step)]
        values = [self.computed.load(address) for address in starts]
        return values[0] if self.step == 1 else self.every_second(values)[0]

    def start(self, lanes: int) -> _Total:
        """Return variables for results in some lanes, set to the identity element."""
        body, shape = self.body, self.shape
        kind, bits = (shape.vector, f"<{lanes} x i1>") if lanes > 1 else (shape.element, "i1")
        total = _Total(kind, bits, body.slot(kind), body.slot(bits))
        body.set(total.value, splat(shape.element, self.number(self.neutral), lanes), kind)
        body.set(total.ordered, splat("i1", "true", lanes), bits)
        return total

    def add(self, total: _Total, values: list[str]) -> None:
        """Add more elements to the results."""
        body, (kind, bits, slot, ordered) = self.body, total
        result = body.get(slot, kind)
        for value in values:
            if self.code.kind == "sums":
                result = body.let(f"fadd {kind} {result}, {value}")
            else:
                larger = body.let(f"fcmp ogt {kind} {result}, {value}")
                result = body.let(f"select {bits} {larger}, {kind} {result}, {kind} {value}")
        body.set(slot, result, kind)
        if self.code.kind == "maxima":
            # The maximum loses NaN; one comparison finds it in two values.
            are = body.get(ordered, bits)
            for first, second in zip(values[::2], [*values[1::2], values[-1]], strict=False):
                both = body.let(f"fcmp ord {kind} {first}, {second}")
                are = body.let(f"and {bits} {are}, {both}")
            body.set(ordered, are, bits)

    def result(self, total: _Total) -> str:
        """Return the result: NaN if a NaN has been seen."""
        body, (kind, bits, slot, ordered) = self.body, total
        value = body.get(slot, kind)
        if self.code.kind == "sums":
            return value
        lanes = 1 if bits == "i1" else self.shape.lanes
        nan = splat(self.shape.element, self.number(math.nan), lanes)
        are = body.get(ordered, bits)
        return body.let(f"select {bits} {are}, {kind} {value}, {kind} {nan}")
