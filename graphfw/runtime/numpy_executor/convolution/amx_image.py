"""Images as matrix tiles read them: components of numbers, with zeros around.

A word holds one component of two channels at a position. A group of an image is

    [component][pair of channels][phase][*extents]

with as many pairs as whole tiles have, so that the elements of 16 pairs that 16 neighbouring
positions see are a tile, with rows `PITCH` words apart. If the stride is more than 1, a phase has
the elements with the same remainder, so that neighbouring positions see neighbours. `extents` are
the elements of a phase that all windows together see.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.runtime.numpy_executor.codegen import FunctionText, RecordCode, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody, declared
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.codegen.registers import iota
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim
from graphfw.runtime.numpy_executor.convolution.window_bounds import DenseStride, Spatial
from graphfw.runtime.numpy_executor.convolution.windows import ConvParams
from graphfw.runtime.numpy_executor.convolution.work_item import image_at
from graphfw.runtime.numpy_executor.matmul import components
from graphfw.runtime.numpy_executor.matmul.amx import SIDE, Tiles
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record

PAIRS = 16
"""The pairs of channels in a tile."""

END = 24
"""The exponent of the first numbers that are not split: sums have up to 2^17 products, scaled by
2^60, see `matmul.components`."""

_WORK_ITEM = 1 << 14
"""A work item makes about so many words of a component."""

SLACK = 64
"""The words after the last that are read."""

_WORDS, _MASK = f"<{SIDE} x i32>", f"<{SIDE} x i1>"


class AmxDim(ParamBlock):
    """The integers of a spatial dim of the image in memory."""

    EXTENT: int
    PHASES: int
    CYCLE: int


class AmxImageParams(ParamBlock):
    """The integers after those of a convolution; `AmxDim` of each dim follow."""

    PAIRS: int
    TOGETHER: int
    PITCH: int
    PLANE: int
    COLUMNS: int
    ROWS: int

    @staticmethod
    def first(rank: int) -> int:
        """Return the index of the first of these integers."""
        return ConvParams.COUNT + Spatial.COUNT * rank

    @staticmethod
    def end(rank: int) -> int:
        """Return the index after the last of these integers."""
        return AmxImageParams.first(rank) + AmxImageParams.COUNT + AmxDim.COUNT * rank


class Extent(NamedTuple):
    """The elements of a spatial dim that are kept.

    Attributes:
        size: The elements of a phase.
        phases: The number of phases.
        cycle: Elements of a window that are so many apart are of one phase.
    """

    size: int
    phases: int
    cycle: int

    @staticmethod
    def of(dim: SpatialDim) -> Extent:
        """Return the elements that windows see; all sizes are known."""
        assert isinstance(dim.output_size, int)
        assert isinstance(dim.dilation, int)
        cycle = dim.stride // math.gcd(dim.stride, dim.dilation)
        size = dim.output_size + (dim.taps - 1) * dim.dilation // dim.stride
        return Extent(size, min(dim.taps, cycle), cycle)


class Words(NamedTuple):
    """The layout of the words of an image; sizes are in words.

    Attributes:
        extents: The extents of the spatial dims.
        pairs: The number of pairs of channels of a group.
    """

    extents: tuple[Extent, ...]
    pairs: int

    @staticmethod
    def of(dims: list[SpatialDim], channels: int) -> Words:
        """Return their layout for a number of channels in a group."""
        return Words(tuple(map(Extent.of, dims)), -(-channels // SIDE) * PAIRS)

    @property
    def plane(self) -> int:
        """The words of a phase."""
        return math.prod([extent.size for extent in self.extents])

    @property
    def pitch(self) -> int:
        """The distance of pairs: an odd number of cache lines, so that they use all sets of L1."""
        words = self.plane * math.prod([extent.phases for extent in self.extents])
        return (-(-words // 16) | 1) * 16

    @property
    def together(self) -> int:
        """The pairs of a work item: a power of two that divides their number."""
        most = max(_WORK_ITEM // self.pitch, 1) if self.pitch else PAIRS
        whole = self.pairs & -self.pairs
        return min(1 << most.bit_length() - 1, whole) or 1

    def size(self, tiles: Tiles) -> int:
        """The words of a group of an image."""
        return tiles.components * self.pairs * self.pitch

    def numbers(self, columns: int, rows: int) -> tuple[DimLike, ...]:
        """The integers of `AmxImageParams`."""
        each = [number for extent in self.extents for number in extent]
        return (self.pairs, self.together, self.pitch, self.plane, columns, rows, *each)


class AmxImageLayout:
    """Reads the integers of `AmxImageParams` and of the dims, in a function that has `%params`."""

    def __init__(self, body: FunctionBody, rank: int, tiles: Tiles) -> None:
        self.body = body
        first = AmxImageParams.first(rank)
        self.pairs, self.together, self.pitch, self.plane, self.columns, self.rows = (
            body.param(first + i) for i in range(AmxImageParams.COUNT)
        )
        self.dims = [
            [body.param(ConvParams.COUNT + Spatial.COUNT * dim + i) for i in range(Spatial.COUNT)]
            for dim in range(rank)
        ]
        self.extents = [
            [
                body.param(first + AmxImageParams.COUNT + AmxDim.COUNT * dim + i)
                for i in range(AmxDim.COUNT)
            ]
            for dim in range(rank)
        ]
        self.component = body.mul(body.mul(self.pairs, self.pitch), 4)
        self.group = body.mul(self.component, tiles.components)

    def split(self, index: str, sizes: list[str]) -> list[str]:
        """Return the indices along each dim of an index along joined dims."""
        found: list[str] = []
        for size in reversed(sizes[1:]):
            found.insert(0, self.body.rem(index, size))
            index = self.body.div(index, size)
        return [index, *found] if sizes else []

    def joined(self, indices: list[str], sizes: list[str]) -> str:
        """Return the index along joined dims of indices along each."""
        total = "0"
        for index, size in zip(indices, sizes, strict=True):
            total = self.body.add(self.body.mul(total, size), index)
        return total

    def tap(self, number: str) -> str:
        """Return the bytes from the first word that a position sees to the word of a tap."""
        body = self.body
        taps = self.split(number, [dim[Spatial.TAPS] for dim in self.dims])
        phases, steps = [], []
        for tap, dim, extent in zip(taps, self.dims, self.extents, strict=True):
            phases.append(body.rem(tap, extent[AmxDim.CYCLE]))
            steps.append(body.div(body.mul(tap, dim[Spatial.DILATION]), dim[Spatial.STRIDE]))
        phase = self.joined(phases, [extent[AmxDim.PHASES] for extent in self.extents])
        step = self.joined(steps, [extent[AmxDim.EXTENT] for extent in self.extents])
        return body.mul(body.add(body.mul(phase, self.plane), step), 4)

    def row(self, number: str) -> str:
        """Return the offset of a row of positions, in words."""
        rows = self.split(number, [dim[Spatial.POSITIONS] for dim in self.dims[:-1]])
        return self.joined([*rows, "0"], [extent[AmxDim.EXTENT] for extent in self.extents])


@record
class ImageComponentsCode(RecordCode):
    """A work item: a few pairs of channels of a group of an image.

    Operands: x, the words, for each work item a flag of whether all numbers could be split.

    Attributes:
        shape: The vectors, and the dtype of x.
        rank: The number of spatial dims.
        tiles: The tiles that read the components.
        step: See `window_bounds`; 0 for float32 only.
    """

    shape: TileShape
    rank: int
    tiles: Tiles
    step: DenseStride

    def llvm(self, symbol: str) -> str:
        known = declarations(self.shape) | components.splitting(self.shape)
        known |= declared(f"void @llvm.masked.store.v32i32.p0({_WORDS}, ptr, i32, {_MASK})")
        return module([FunctionText(_Image(self).text(symbol), known, ())])


class _Image:
    """Writes the function."""

    def __init__(self, code: ImageComponentsCode) -> None:
        self.code = code
        self.item = code.shape.stored.itemsize
        self.body = body = FunctionBody()
        self.layout = AmxImageLayout(body, code.rank, code.tiles)
        self.splitter = components.Splitter(body, code.tiles.components, END)
        self.lanes = Elements(body, code.shape._replace(lanes=SIDE), code.shape.stored)
        self.channels, channel = (
            body.param(i) for i in (ConvParams.CHANNELS, ConvParams.X_CHANNEL)
        )
        self.channel = body.mul(channel, self.item)

    def text(self, symbol: str) -> str:
        body, layout = self.body, self.layout
        sets, together = body.div(layout.pairs, layout.together), layout.together
        member, first = (
            body.div("%work_item", sets),
            body.mul(body.rem("%work_item", sets), together),
        )
        image = image_at(body, self.code.shape, body.param(ConvParams.GROUPS), member)
        words = body.at(body.operand(1), body.mul(member, layout.group))
        phases = "1"
        for extent in layout.extents:
            phases = body.mul(phases, extent[AmxDim.PHASES])
        rows = "1"
        for extent in layout.extents[:-1]:
            rows = body.mul(rows, extent[AmxDim.EXTENT])
        with body.loop(first, body.add(first, together)) as pair:
            x = body.at(image, body.mul(body.mul(pair, 2), self.channel))
            to = body.at(words, body.mul(body.mul(pair, layout.pitch), 4))
            with body.loop(0, phases) as phase, body.loop(0, rows) as row:
                word = body.mul(row, layout.extents[-1][AmxDim.EXTENT])
                there = body.add(body.mul(phase, layout.plane), word)
                self.row(x, pair, phase, row, body.at(to, body.mul(there, 4)))
        flag = body.let(f"zext i1 {self.splitter.verdict()} to i64")
        flags = body.operand(2)
        body.line(f"store i64 {flag}, ptr {body.at(flags, body.mul('%work_item', 8))}")
        return body.work_item(symbol)

    def row(self, x: str, pair: str, phase: str, row: str, to: str) -> None:
        """Write the words of a pair, in a row of a phase."""
        body, layout = self.body, self.layout
        phases = layout.split(phase, [extent[AmxDim.PHASES] for extent in layout.extents])
        rows = layout.split(row, [extent[AmxDim.EXTENT] for extent in layout.extents[:-1]])
        firsts = [
            body.sub(
                body.rem(body.mul(q, dim[Spatial.DILATION]), dim[Spatial.STRIDE]),
                dim[Spatial.PADDING],
            )
            for q, dim in zip(phases, layout.dims, strict=True)
        ]
        is_outside = "false"
        for first, along, dim in zip(firsts[:-1], rows, layout.dims, strict=False):
            index = body.add(first, body.mul(along, dim[Spatial.STRIDE]))
            # A negative number is large as an unsigned one.
            off = body.test("uge", index, dim[Spatial.SIZE])
            is_outside = body.let(f"or i1 {is_outside}, {off}")
            x = body.at(x, body.mul(index, body.mul(dim[Spatial.ELEMENT_STRIDE], self.item)))
        dim, width = layout.dims[-1], layout.extents[-1][AmxDim.EXTENT]
        low = body.ceil(body.max(body.sub("0", firsts[-1]), "0"), dim[Spatial.STRIDE])
        high = body.ceil(
            body.max(body.sub(dim[Spatial.SIZE], firsts[-1]), "0"), dim[Spatial.STRIDE]
        )
        high = body.select(is_outside, "0", high)
        x = body.at(x, body.mul(firsts[-1], body.mul(dim[Spatial.ELEMENT_STRIDE], self.item)))
        step = body.mul(body.mul(dim[Spatial.STRIDE], dim[Spatial.ELEMENT_STRIDE]), self.item)
        with body.loop(0, width, SIDE) as position:
            masks = self.masks(body.sub(low, position), body.sub(high, position))
            here = body.at(x, body.mul(position, step))
            split = []
            for n in range(2):
                exists = body.test("slt", body.add(body.mul(pair, 2), n), self.channels)
                there = body.at(here, self.channel) if n else here
                value = self.read(there, step, [self.where(exists, mask) for mask in masks])
                split.append(self.splitter.split(value))
            kept = self.before(body.sub(width, position))
            for number, (even, odd) in enumerate(zip(*split, strict=True)):
                at = body.at(body.at(to, body.mul(position, 4)), body.mul(layout.component, number))
                words = self.splitter.paired(even, odd)
                body.line(
                    f"call void @llvm.masked.store.v32i32.p0({_WORDS} {words}, ptr {at}, i32 4, "
                    f"{_MASK} {kept})"
                )

    def masks(self, low: str, high: str) -> list[str]:
        """Return masks of the elements to read for positions from `low` up to `high`."""
        body = self.body
        if self.code.step != 2:
            return [self.between(low, high)]
        # Nothing after the last position is read: it may not be in memory.
        low, high = body.mul(low, 2), body.sub(body.mul(high, 2), 1)
        return [self.between(body.sub(low, first), body.sub(high, first)) for first in (0, SIDE)]

    def between(self, low: str, high: str) -> str:
        """Return a mask of the lanes from `low` up to `high`."""
        body = self.body
        from_low = body.let(f"xor {_MASK} {self.before(low)}, splat (i1 true)")
        return body.let(f"and {_MASK} {from_low}, {self.before(high)}")

    def before(self, end: str) -> str:
        """Return a mask of the lanes before `end`."""
        body = self.body
        short = body.let(f"trunc i64 {end} to i32")
        first = body.let(f"insertelement {_WORDS} poison, i32 {short}, i32 0")
        every = body.let(
            f"shufflevector {_WORDS} {first}, {_WORDS} poison, <{SIDE} x i32> zeroinitializer"
        )
        return body.let(f"icmp slt {_WORDS} {iota('i32', SIDE)}, {every}")

    def where(self, bit: str, mask: str) -> str:
        """Return a mask where a bit is set, else none."""
        return self.body.let(f"select i1 {bit}, {_MASK} {mask}, {_MASK} zeroinitializer")

    def read(self, position: str, step: str, masks: list[str]) -> str:
        """Read the elements that neighbouring positions see, `step` bytes apart, as float32."""
        if not self.code.step:
            return self.splitter.gather(position, step, masks[0])
        item = SIDE * self.item
        vectors = [
            self.lanes.load_some(self.body.at(position, n * item), mask)
            for n, mask in enumerate(masks)
        ]
        if self.code.step == 1:
            return vectors[0]
        kind = f"<{SIDE} x float>"
        order = ", ".join([f"i32 {2 * lane}" for lane in range(SIDE)])
        first, second = vectors
        return self.body.let(
            f"shufflevector {kind} {first}, {kind} {second}, <{SIDE} x i32> <{order}>"
        )
