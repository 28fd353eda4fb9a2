"""The gradient of 3 x 3 weights by Winograd's algorithm, tile by tile of the positions.

The formula of `winograd.algorithm` is reversed: for the positions of a tile and the elements that
they see,

    weight = G.T @ sum over tiles of ((At.T @ positions @ At) * (Bt @ image @ Bt.T)) @ G

So there is a matrix product for each element of a transformed tile, with sums over all tiles of all
images; a quarter of the multiplications is left, if the positions fill the tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from graphfw.ir.dim import DimLike, dim_max, dim_min, static
from graphfw.ir.dtype import float32
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import Step, Storage, Temp, View
from graphfw.runtime.numpy_executor.codegen import Processor, RecordCode, host
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim
from graphfw.runtime.numpy_executor.convolution.gradient_tiles import (
    GAP,
    TilesCode,
    matrix_transpose,
)
from graphfw.runtime.numpy_executor.convolution.partial_sums import added, panel_tiles, tiles_of
from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import F4, TAPS
from graphfw.runtime.numpy_executor.convolution.winograd.vectors import mapped, transposed
from graphfw.runtime.numpy_executor.matmul.elements import Elements
from graphfw.runtime.numpy_executor.matmul.pieces import Piece
from graphfw.runtime.numpy_executor.matmul.shared_function import calling
from graphfw.runtime.numpy_executor.matmul.tile import TileShape, shape_for
from graphfw.utils.records import record

_LEAST = 16
"""With fewer channels or outputs most of a panel would be empty."""

_STRIP = 1 << 15
"""About the number of elements that a work item transforms."""

_DEPTH = 128
"""The tiles that are multiplied at a time: the L1 cache holds a panel of both sides."""

_PANELS = 2
"""The panels of outputs and of channels of a work item, whose sums the L2 cache holds."""

_WORK_ITEMS = 16
"""With fewer work items than that, sums over all tiles are cut."""

_ROUNDS = 4
"""In so many rounds the images are done then."""


class SumParams(ParamBlock):
    """The integers of a work item that multiplies."""

    OUTPUTS: int
    CHANNELS: int
    TILES: int
    CHUNK: int
    """The last: over how many tiles a work item adds up."""


@record
class WeightSumsCode(RecordCode):
    """A work item: some outputs, a panel of channels, and some tiles.

    Operands: the transformed tiles of the positions, and of the image; the gradient, or one for
    each chunk of the tiles.

    Attributes:
        shape: The micro-kernels' tiles.
        target: The processor.
    """

    shape: TileShape
    target: Processor

    @property
    def callees(self) -> tuple[Piece, ...]:
        """The functions that it calls."""
        return panel_tiles(self.shape, self.shape.columns)

    @property
    def plane(self) -> int:
        """The distance between the sums for one element of a tile and the next, in elements."""
        return (_PANELS * self.shape.columns) ** 2 + GAP

    @property
    def scratch(self) -> int:
        """The bytes of its scratch memory."""
        return F4.products * self.plane * self.shape.size

    def llvm(self, symbol: str) -> str:
        return calling(_Sums(self).text(symbol), self.shape, self.callees)


class _Sums:
    """Writes the function."""

    def __init__(self, code: WeightSumsCode) -> None:
        self.code = code
        self.shape = code.shape
        self.body = body = FunctionBody()
        self.elements = Elements(body, self.shape, self.shape.dtype)
        self.stored = Elements(body, self.shape, self.shape.stored)
        self.line = self.shape.columns * self.shape.size
        self.outputs, self.channels, self.tiles = (
            body.param(i) for i in (SumParams.OUTPUTS, SumParams.CHANNELS, SumParams.TILES)
        )

    def text(self, symbol: str) -> str:
        body, width = self.body, self.shape.columns
        panels = [body.ceil(n, width) for n in (self.outputs, self.channels)]
        blocks = [body.ceil(count, _PANELS) for count in panels]
        # Neighbouring work items share their tiles.
        chunk_number = "%work_item"
        firsts: list[str] = []
        for count in blocks:
            firsts.append(body.mul(body.rem(chunk_number, count), _PANELS))
            chunk_number = body.div(chunk_number, count)
        chunk = body.param(SumParams.CHUNK)
        begin = body.mul(chunk_number, chunk)
        tiles = body.max(body.min(body.sub(self.tiles, begin), chunk), "0")
        ends = [
            body.min(body.add(n, _PANELS), count) for n, count in zip(firsts, panels, strict=True)
        ]
        gap = body.mul(self.tiles, self.line)
        pieces = body.max(body.ceil(tiles, _DEPTH), "1")
        with body.loop(0, str(F4.products)) as product:
            left, right = (
                self.matrix(operand, product, count, begin) for operand, count in enumerate(panels)
            )
            to = body.at("%scratch", body.mul(product, self.code.plane * self.shape.size))
            with (
                body.loop(0, pieces, asks=True) as piece,
                body.loop(firsts[0], ends[0]) as down,
                body.loop(firsts[1], ends[1]) as across,
            ):
                row, column = body.sub(down, firsts[0]), body.sub(across, firsts[1])
                there = body.at(to, body.mul(row, width * _PANELS * self.line))
                there = body.at(there, body.mul(column, self.line))
                operands = body.at(left, body.mul(down, gap)), body.at(right, body.mul(across, gap))
                left_rows = body.sub(self.outputs, body.mul(down, width))
                self.multiply(operands, there, (piece, pieces, tiles), left_rows)
        self.transform(body.mul(firsts[0], width), body.mul(firsts[1], width), chunk_number)
        return body.work_item(symbol)

    def matrix(self, operand: int, product: str, panels: str, tile: str) -> str:
        """Return the address of an operand's first panel, for one element of a tile."""
        body = self.body
        whole = body.mul(panels, body.mul(self.tiles, self.shape.columns))
        plane = body.mul(body.add(whole, GAP), self.shape.size)
        at = body.at(body.operand(operand), body.mul(product, plane))
        return body.at(at, body.mul(tile, self.line))

    def multiply(
        self, operands: tuple[str, str], to: str, counts: tuple[str, str, str], rows: str
    ) -> None:
        """Multiply a panel of outputs with one of channels, over a piece of the tiles."""
        body, (left, right), (piece, pieces, tiles) = self.body, operands, counts
        begin = body.div(body.mul(tiles, piece), pieces)
        end = body.div(body.mul(tiles, body.add(piece, 1)), pieces)
        offset, more = body.mul(begin, self.line), body.test("ne", piece, 0)
        right = body.at(right, offset)
        for tile, row in tiles_of(self.shape, self.shape.columns):
            here = body.at(body.at(left, offset), row * self.shape.size)
            with body.where(body.test("sgt", rows, row)):
                body.line(
                    f"call fastcc void @{tile.name}(ptr {here}, i64 {self.shape.size}, "
                    f"i64 {self.line}, ptr {right}, i64 {self.line}, "
                    f"ptr {body.at(to, row * _PANELS * self.line)}, i64 {_PANELS * self.line}, "
                    f"i64 {body.sub(end, begin)}, i1 {more}, i64 {self.shape.columns}, "
                    f"i64 0)"
                )

    def transform(self, first: str, channel: str, chunk_number: str) -> None:
        """Write the weights' gradients from the sums, output by output."""
        body, size, lanes = self.body, self.shape.size, self.shape.lanes
        item, taps = self.shape.stored.itemsize, TAPS * TAPS
        whole = body.mul(body.mul(self.outputs, self.channels), taps * item)
        result = body.at(body.operand(2), body.mul(chunk_number, whole))
        end = body.min(body.add(first, _PANELS * self.shape.columns), self.outputs)
        count = body.min(body.sub(self.channels, channel), _PANELS * self.shape.columns)
        with body.loop(first, end) as output, body.loop(0, count, lanes) as lane:
            here = body.at("%scratch", body.mul(body.sub(output, first), _PANELS * self.line))
            here = body.at(here, body.mul(lane, size))
            matrix = matrix_transpose(F4.of_weight)
            rows = []
            for i in range(F4.size):
                offsets = [(i * F4.size + j) * self.code.plane * size for j in range(F4.size)]
                values = [self.elements.load(body.at(here, offset)) for offset in offsets]
                rows.append(mapped(body, self.shape, matrix, values))
            columns = [mapped(body, self.shape, matrix, list(c)) for c in zip(*rows, strict=True)]
            weight = [columns[j][i] for i in range(TAPS) for j in range(TAPS)]
            begin = body.add(channel, lane)
            number = body.add(body.mul(output, self.channels), begin)
            to = body.at(result, body.mul(number, taps * item))
            for tap in range(0, taps, lanes):
                some = weight[tap : tap + lanes]
                vectors = transposed(
                    body, self.shape, [*some, *["zeroinitializer"] * (lanes - len(some))]
                )
                for n, vector in enumerate(vectors):
                    is_one = body.test("slt", body.add(begin, n), self.channels)
                    mask = self.stored.mask(body.select(is_one, str(len(some)), "0"))
                    offset = body.at(to, n * taps * item + tap * item)
                    self.stored.store_some(vector, offset, mask)


def fits(x: View, y: View, dims: list[SpatialDim], groups: int) -> bool:
    """Return whether the algorithm serves for a gradient."""
    return (
        (x.storage.dtype is float32 or x.storage.dtype.is_low_precision)
        and groups == 1
        and len(dims) == 2
        and min(_count(x), _count(y)) >= _LEAST
        and all([(dim.taps, dim.stride, dim.dilation) == (TAPS, 1, 1) for dim in dims])
        and dims[-1].step == 1
        and y.strides[-1] == 1
    )


def _count(view: View) -> int:
    """Return the number of channels, which is known like the weights' sizes."""
    return static(view.shape[1])


class _Tiling(NamedTuple):
    """The work of a round: some images, with tiles along both dims, and how many these are."""

    images: DimLike
    down: DimLike
    across: DimLike

    @property
    def total(self) -> DimLike:
        return self.images * self.down * self.across


def winograd_gradient_steps(
    node: Node, x: View, y: View, result: Storage, dims: list[SpatialDim]
) -> list[Step]:
    """Return the steps of the gradient of weights; see `fits`.

    If there are few channels and many tiles, the tiles are done in rounds, so that the L3 cache
    holds the transformed tiles of a round.
    """
    target = host()
    shape = shape_for(x.storage.dtype, target)
    outputs, channels = _count(y), _count(x)
    down, across = ((dim.output_size + F4.positions - 1) // F4.positions for dim in dims)
    width = _PANELS * shape.columns
    blocks = -(-outputs // width) * -(-channels // width)
    is_whole = blocks >= _WORK_ITEMS
    images = x.shape[0]
    rounds = 1 if is_whole else _ROUNDS
    if isinstance(images, int):
        rounds = max(min(rounds, images), 1)
    most = (images + rounds - 1) // rounds
    chunk = total = most * down * across
    chunks: DimLike = 1
    if not is_whole:
        chunk = dim_max(_DEPTH, (total * blocks + _WORK_ITEMS - 1) // _WORK_ITEMS)
        chunks = dim_max(1, (total + chunk - 1) // chunk)
    code = WeightSumsCode(shape if is_whole else shape._replace(stored=shape.dtype), target)
    before = [dim.before for dim in dims]
    steps: list[Step] = []
    sums: list[Storage] = []
    # Not before y, the cotangent: made earlier, the image's tiles would fill memory until then.
    after: Storage = y.storage
    for number in range(rounds):
        first = number * most
        tiling = _Tiling(dim_max(0, dim_min(most, images - first)), down, across)
        side = TilesCode(shape, "cotangent", target)
        positions = _transformed(node, side, y, first, tiling, [0, 0])
        image = _transformed(node, TilesCode(shape, "image", target), x, first, tiling, before)
        to = result
        if not is_whole:
            size = chunks * outputs * channels * TAPS * TAPS
            to = Temp(shape.dtype, size, "gradients of weights for chunks of the images")
        operands = (positions.operands[1], image.operands[1], to)
        params = (outputs, channels, tiling.total, chunk)
        steps += [replace(step, after=(after,)) for step in (positions, image)]
        steps.append(
            Step(
                (node,), code, operands, (False, False, True), params, blocks * chunks, code.scratch
            )
        )
        sums.append(to)
        after = to
    return steps if is_whole else [*steps, added(node, shape, target, sums, chunks, result)]


def _transformed(
    node: Node,
    code: TilesCode,
    view: View,
    first: DimLike,
    tiling: _Tiling,
    before: Sequence[DimLike],
) -> Step:
    """Return the step that transforms the tiles of some images."""
    channels, width = view.shape[1], code.shape.columns
    panels = (channels + width - 1) // width
    size = F4.products * (panels * tiling.total * width + GAP)
    strips = tiling.images * tiling.down
    together = dim_max(1, _STRIP // dim_max(1, tiling.across * F4.positions**2 * width))
    params = (
        *(channels, view.offset + first * view.strides[0], *view.strides[:3]),
        *(*view.shape[2:], *before),
        *(tiling.down, tiling.across, strips, together, tiling.total),
    )
    work_items = panels * ((strips + together - 1) // together)
    operands = (view.storage, Temp(code.shape.dtype, size, "transformed tiles"))
    scratch = code.scratch(tiling.across)
    return Step((node,), code, operands, (False, True), params, work_items, scratch)
