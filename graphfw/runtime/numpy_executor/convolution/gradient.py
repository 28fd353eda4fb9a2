"""`conv_weight_steps`: the steps of the gradient of kernels, sums over all places of all images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.correlation import ConvWeight
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.codegen import Function, Target, host, module
from graphfw.runtime.numpy_executor.convolution.cell import WindowsCode, depth, image_at
from graphfw.runtime.numpy_executor.convolution.depthwise import MOST, DepthwiseCode
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim, joined, numbers
from graphfw.runtime.numpy_executor.convolution.windows import P
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.pieces import Piece
from graphfw.runtime.numpy_executor.matmul.plan import heights_for
from graphfw.runtime.numpy_executor.matmul.text import Body
from graphfw.runtime.numpy_executor.matmul.tile import Shape, shape_for


class G(P):
    """The places of a cell's run-time integers: those of `windows.P`, but for these."""

    Y, Y_BATCH, Y_OUTPUT, Y_PLACE, IMAGES = range(9, 14)


@dataclass(frozen=True)
class GradientCode:
    """A cell: for all outputs of a group some elements of their kernels, as many as a panel has.

    Windows are laid out as for a convolution, and transposed: here sums go over places. Operands:
    x, y, the gradient.

    Attributes:
        windows: What lays out windows.
        heights: The rows of the tiles, the largest first; they make up all outputs of a group.
        target: The processor.
    """

    windows: WindowsCode
    heights: tuple[int, ...]
    target: Target

    @property
    def shape(self) -> Shape:
        """The tiles."""
        return self.windows.shape

    @property
    def key(self) -> str:
        """All that the code depends on."""
        return f"gradient of {self.windows.key} {self.heights} for {self.target.name}\n"

    @property
    def tiles(self) -> tuple[Piece, ...]:
        """The micro-kernels, one for each height."""
        return tuple([Piece("tile", self.shape, (h, 2, "", False)) for h in self.heights])

    @property
    def transpose(self) -> Piece:
        """What transposes windows."""
        return Piece("pack", self.shape, ("columns",))

    @property
    def parts(self) -> tuple[Piece | WindowsCode, ...]:
        """What it calls."""
        return (self.windows, self.transpose, *self.tiles)

    @property
    def line(self) -> int:
        """The bytes of a row of a panel."""
        return self.shape.columns * self.shape.size

    @property
    def panel_bytes(self) -> int:
        """The scratch memory of a panel, and of the square that is transposed to it."""
        return (depth(self.shape) + self.shape.columns) * self.line

    def llvm(self, symbol: str) -> str:
        """Return the LLVM module."""
        body = Body()
        declared = declarations(self.shape)
        for part in self.parts:
            declared |= part.declaration
        m, n, k, groups = (body.array("%params", i) for i in (G.M, G.N, G.K, G.GROUPS))
        images = body.array("%params", G.IMAGES)
        width = self.shape.columns
        panels = body.ceil(k, width)
        group, first = body.div("%cell", panels), body.mul(body.rem("%cell", panels), width)
        count = body.min(body.sub(k, first), width)
        totals = body.at("%scratch", self.panel_bytes)
        with body.loop(0, body.mul(m, self.line), self.shape.lanes * self.shape.size) as place:
            vector, zeros = self.shape.vector, "zeroinitializer"
            body.line(f"store {vector} {zeros}, ptr {body.at(totals, place)}")
        with body.loop(0, images) as image:
            x = image_at(body, self.shape, groups, body.add(body.mul(image, groups), group))
            y, row_gap, place_gap = self.left(body, image, group, m)
            with body.loop(0, n, depth(self.shape)) as place:
                length = body.min(body.sub(n, place), depth(self.shape))
                self.panel(body, x, (first, count), place, length)
                here = body.at(y, body.mul(place, place_gap))
                tiles = zip(self.tiles, body.pieces(self.heights, m), strict=True)
                for tile, (height, row) in tiles:
                    to = body.at(totals, body.mul(row, self.line))
                    body.line(
                        f"call fastcc void @{tile.name}(ptr {body.at(here, body.mul(row, row_gap))}"
                        f", i64 {row_gap}, i64 {place_gap}, ptr %scratch, i64 {self.line}, "
                        f"ptr {to}, i64 {self.line}, i64 {length}, i1 true, i64 {count}, "
                        f"i64 {height})"
                    )
        self.store(body, totals, (group, m), (first, count))
        head = f"define i32 @{symbol}(ptr %buffers, ptr %params, i64 %cell, ptr %scratch)"
        return module([Function(body.function(head, "ret i32 0"), declared, ())])

    def left(self, body: Body, image: str, group: str, m: str) -> tuple[str, str, str]:
        """Where the outputs of a group of an image lie; the bytes between them, and places."""
        start, batch, output, place = (
            body.mul(body.array("%params", i), self.shape.size)
            for i in (G.Y, G.Y_BATCH, G.Y_OUTPUT, G.Y_PLACE)
        )
        offset = body.add(start, body.mul(image, batch))
        offset = body.add(offset, body.mul(body.mul(group, m), output))
        return body.at(body.array("%buffers", 1, "ptr"), offset), output, place

    def panel(self, body: Body, x: str, wanted: tuple[str, str], place: str, length: str) -> None:
        """Lay out what windows see at some places, one row each, square by square."""
        width, size = self.shape.columns, self.shape.size
        square = body.at("%scratch", depth(self.shape) * self.line)
        with body.loop(0, length, width) as within:
            count = body.min(body.sub(length, within), width)
            body.line(
                f"call fastcc void @{self.windows.name}(ptr {x}, ptr %params, i64 {wanted[0]}, "
                f"i64 {wanted[1]}, i64 {body.add(place, within)}, i64 {count}, ptr {square})"
            )
            to = body.at("%scratch", body.mul(within, self.line))
            body.line(
                f"call fastcc void @{self.transpose.name}(ptr {square}, i64 {size}, "
                f"i64 {self.line}, ptr {to}, i64 0, i64 {count}, i64 {wanted[1]})"
            )

    def store(
        self, body: Body, totals: str, rows: tuple[str, str], wanted: tuple[str, str]
    ) -> None:
        """Write sums where they belong: in the result the window's elements are the fastest."""
        shape, (group, m), (first, count) = self.shape, rows, wanted
        stored = Elements(body, shape, shape.stored)
        channels, k = (body.array("%params", i) for i in (G.CHANNELS, G.K))
        taps = body.div(k, body.max(channels, 1))
        result = body.array("%buffers", 2, "ptr")
        result = body.at(result, body.mul(body.mul(body.mul(group, m), k), shape.size))
        with body.loop(0, count) as column:
            place = body.add(first, column)
            tap, channel = body.div(place, channels), body.rem(place, channels)
            offset = body.mul(body.add(body.mul(channel, taps), tap), shape.size)
            to, source = body.at(result, offset), body.at(totals, body.mul(column, shape.size))
            gap = body.mul(k, shape.size)
            with body.loop(0, m) as row:
                value = stored.load(body.at(source, body.mul(row, self.line)), 1)
                place = body.at(to, body.mul(row, gap))
                body.line(f"store {shape.element} {value}, ptr {place}")


def conv_weight_steps(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> list[Step]:
    """Return the step of a `conv_weight`; none where `why_not_weight` says why."""
    if why_not_weight(node):
        return []
    op, (x, y), (result,) = node.op, inputs, outputs
    assert isinstance(op, ConvWeight)
    facts = zip(
        *(x.shape[2:], x.strides[2:], y.shape[2:], op.places),
        *(op.strides, op.dilations, op.before),
        strict=True,
    )
    dims = [SpatialDim(*fact) for fact in facts]
    along = _along(y)
    if along is None:
        return []
    target = host()
    shape = shape_for(x.storage.dtype, target)
    groups, channels, outputs_ = op.groups, result.shape[1], y.shape[1]
    assert isinstance(groups, int)
    assert isinstance(outputs_, int)
    depthwise = _depthwise_step(node, x, y, result, dims)
    if depthwise is not None and along == 1:
        return [depthwise]
    dims = joined(dims)
    m, n, k = outputs_ // max(groups, 1), size_of(y.shape[2:]), size_of(result.shape[1:])
    windows = WindowsCode(shape, len(dims), dims[-1].step)
    code = GradientCode(windows, heights_for(shape, m), target)
    params = (
        *(m, n, k, groups, channels),
        *(x.offset, x.strides[0], channels * x.strides[1], x.strides[1]),
        *(y.offset, *y.strides[:2], along, x.shape[0], n),
        *numbers(dims),
    )
    return [
        Step(
            (node,),
            code,
            (x.storage, y.storage, result.storage),
            (False, False, True),
            params,
            groups * ((k + shape.columns - 1) // shape.columns),
            code.panel_bytes + m * code.line,
        )
    ]


def _depthwise_step(
    node: Node, x: View, y: View, result: View, dims: list[SpatialDim]
) -> Step | None:
    """Return the step for kernels that see one channel each; None for others, and large ones."""
    outputs, each, *kernel = result.shape
    is_small = all([isinstance(size, int) for size in kernel]) and size_of(kernel) <= MOST
    if each != 1 or not is_small or x.shape[1] == 1 or not dims[-1].step:
        return None
    target = host()
    shape = shape_for(x.storage.dtype, target)
    code = DepthwiseCode(shape, dims[-1].step, tuple([dim.kernel for dim in dims]), target)
    params = (
        *(x.shape[0], size_of([dim.places for dim in dims[:-1]]), outputs // x.shape[1]),
        *(x.offset, *x.strides[:2], y.offset, *y.strides[:2]),
        *numbers(dims),
    )
    operands = (x.storage, y.storage, result.storage)
    return Step((node,), code, operands, (False, False, True), params, outputs)


def why_not_weight(node: Node) -> str:
    """Return why there is no native code for a gradient of kernels; "" if there is."""
    op, x = node.op, node.inputs[0]
    assert isinstance(op, ConvWeight)
    if x.dtype.name not in ("float32", "float64"):
        return f"there is no native sum over places of {x.dtype}"
    if any(spread != 1 for spread in op.spreads):
        return "the elements of x are spread"
    if not all(isinstance(size, int) for size in (*node.types[0].shape, op.groups)):
        return "the sizes of the kernels are not known"
    return ""


def _along(y: View) -> DimLike | None:
    """Return how far apart places lie, all spatial dims as one; None where that is not regular."""
    gap = y.strides[-1]
    width: DimLike = 1
    for size, stride in zip(y.shape[:1:-1], y.strides[:1:-1], strict=True):
        if size != 1 and stride != gap * width:
            return None
        width = width * size
    return gap
