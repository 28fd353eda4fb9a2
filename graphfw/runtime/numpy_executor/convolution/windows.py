"""Packing of windows' elements into a panel, a product's right operand.

    @windows(ptr image, ptr params, i64 k, i64 n, i64 column, i64 columns, ptr to)

packs n positions of k for a number of columns, at most as many as a panel has. A column is an
output position, all spatial dims joined; k counts taps, the slowest, and channels. The panel is
padded with any numbers, since results of them are not stored.

A panel consists of runs: positions in one row of the result, which see elements of one row of the
image for each element of the window. So a run needs a mask for the zeros at both ends, and then
goes through all channels.
"""

from __future__ import annotations

from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.convolution.window_bounds import (
    DenseStride,
    Spatial,
    WindowBounds,
)
from graphfw.runtime.numpy_executor.matmul.tile import TileShape

_AHEAD = 8
"""The channels by which memory is prefetched: they lie too far apart for hardware prefetches."""


class ConvParams(ParamBlock):
    """The integers of a convolution. `Spatial` of each dim follow, then the epilogue's."""

    M: int
    N: int
    K: int
    GROUPS: int
    CHANNELS: int
    X: int
    X_BATCH: int
    X_GROUP: int
    X_CHANNEL: int
    ROW_BLOCKS: int
    COLUMN_BLOCKS: int
    TOGETHER: int
    MEMBERS: int
    CHUNK_COLUMNS: int
    POSITIONS: int


def windows(symbol: str, shape: TileShape, rank: int, step: DenseStride) -> str:
    """Return the function for a number of spatial dims, under a name."""
    return _Windows(shape, rank, step).text(symbol)


class _Windows(WindowBounds):
    """Writes the function."""

    def __init__(self, shape: TileShape, rank: int, step: DenseStride) -> None:
        super().__init__(shape, rank, step, ConvParams.COUNT)
        self.channels = self.body.param(ConvParams.CHANNELS)
        plane = self.body.param(ConvParams.X_CHANNEL)
        self.plane = self.body.mul(plane, shape.stored.itemsize)

    def text(self, symbol: str) -> str:
        body, positions = self.body, self.dims[-1][Spatial.POSITIONS]
        end = body.add("%column", "%columns")
        first = body.div("%column", positions)
        with body.loop(first, body.ceil(end, positions)) as row:
            begin = body.max(body.mul(row, positions), "%column")
            stop = body.min(body.mul(body.add(row, 1), positions), end)
            to = body.at("%to", body.mul(body.sub(begin, "%column"), self.shape.size))
            along = body.sub(begin, body.mul(row, positions))
            position = [*self.split(row, Spatial.POSITIONS, self.dims[:-1]), along]
            run = body.sub(stop, begin)
            few = body.test("sle", run, self.shape.lanes)
            for vectors, bit in ((1, few), (2, body.opposite(few))):
                with body.where(bit):
                    self.run(position, run, to, vectors)
        return body.function(
            f"define fastcc void @{symbol}(ptr %image, ptr %params, i64 %k, i64 %n, i64 %column, "
            "i64 %columns, ptr %to)"
        )

    def run(self, position: list[str], run: str, to: str, vectors: int) -> None:
        """Pack a run: for each tap that is wanted, all channels that are wanted."""
        body = self.body
        last = body.add("%k", "%n")
        channels = body.max(self.channels, 1)
        kept = [self.computed.mask(run, n) for n in range(vectors)]
        inside = self.masks("0", run, vectors) if self.step else []
        with body.loop(body.div("%k", channels), body.ceil(last, channels)) as tap:
            before = body.mul(tap, self.channels)
            begin = body.max(body.sub("%k", before), "0")
            end = body.min(body.sub(last, before), self.channels)
            source, low, high = self.seen(
                "%image", position, self.split(tap, Spatial.TAPS, self.dims)
            )
            source = body.at(source, body.mul(begin, self.plane))
            line = body.sub(body.add(before, begin), "%k")
            there = body.at(to, body.mul(line, self.shape.columns * self.shape.size))
            count = body.sub(end, begin)
            if not self.step:
                self.one_by_one(source, there, count, (low, body.min(high, run), run))
            else:
                is_inside = self.is_inside(low, high, run)
                with body.where(is_inside):
                    self.channel_by_channel(source, there, count, inside, kept)
                with body.where(body.opposite(is_inside)):
                    some = self.masks(low, body.min(high, run), vectors)
                    self.channel_by_channel(source, there, count, some, kept)

    def channel_by_channel(
        self, source: str, there: str, count: str, read: list[str], kept: list[str]
    ) -> None:
        """Copy vectors of each channel; positions that see nothing are 0."""
        body, shape, item = self.body, self.shape, self.shape.stored.itemsize
        line = shape.columns * shape.size
        ahead = body.mul(self.plane, _AHEAD)
        with body.loop(0, count) as channel:
            here = body.at(source, body.mul(channel, self.plane))
            to = body.at(there, body.mul(channel, line))
            later = body.at(here, ahead)
            offsets = range(0, len(read) * shape.lanes * item, shape.lanes * item)
            for offset in offsets:
                body.line(
                    f"call void @llvm.prefetch.p0(ptr {body.at(later, offset)}, i32 0, i32 3, i32 "
                    "1)"
                )
            for n, (value, mask) in enumerate(zip(self.read(here, read), kept, strict=True)):
                self.computed.store_some(value, body.at(to, n * shape.lanes * shape.size), mask)

    def one_by_one(self, source: str, there: str, count: str, ends: tuple[str, str, str]) -> None:
        """Copy the elements from `low` up to `high`, which are not contiguous; the others are 0."""
        body, shape, (low, high, run) = self.body, self.shape, ends
        distance = self.distance()
        first = body.min(low, run)
        with body.loop(0, count) as channel:
            here = body.at(source, body.mul(channel, self.plane))
            to = body.at(there, body.mul(channel, shape.columns * shape.size))
            for begin, end, is_read in (("0", first, False), (low, high, True), (high, run, False)):
                with body.loop(body.max(begin, "0"), end) as i:
                    value = "0.0"
                    if is_read:
                        value = self.stored.load(body.at(here, body.mul(i, distance)), 1)
                    address = body.at(to, body.mul(i, shape.size))
                    body.line(f"store {shape.element} {value}, ptr {address}")
