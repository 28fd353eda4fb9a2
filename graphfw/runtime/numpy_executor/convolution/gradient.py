"""`conv_weight_steps`: the steps of the gradient of weights, sums over positions and images."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dim import DimLike, dim_max, static
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.nn.convolution_ops import ConvWeight
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.numpy_executor.codegen import Processor, RecordCode, host
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.codegen.registers import memory
from graphfw.runtime.numpy_executor.convolution.depthwise import MOST, DepthwiseCode
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim, joined, numbers
from graphfw.runtime.numpy_executor.convolution.gradient_sums import fits, winograd_gradient_steps
from graphfw.runtime.numpy_executor.convolution.partial_sums import added, panel_tiles, tiles_of
from graphfw.runtime.numpy_executor.convolution.work_item import WindowsCode, depth, image_at
from graphfw.runtime.numpy_executor.matmul.lowering import supported
from graphfw.runtime.numpy_executor.matmul.packing import Layout
from graphfw.runtime.numpy_executor.matmul.pieces import Piece
from graphfw.runtime.numpy_executor.matmul.shared_function import calling
from graphfw.runtime.numpy_executor.matmul.tile import TileShape, shape_for
from graphfw.utils.records import record

_WORK_ITEM = 1 << 15
"""About the number of elements that a work item lays out."""

_WORK_ITEMS = 16
"""With fewer work items than that, sums over all positions are cut."""

_CHUNK = 1 << 10
"""Sums over so many positions are not cut."""

_SUMS = 1 << 17
"""About the number of sums of a work item: the L2 cache holds them."""


class GradientParams(ParamBlock):
    """The integers of a work item: as many as `ConvParams`, and the same first nine."""

    M: int
    N: int
    K: int
    GROUPS: int
    CHANNELS: int
    X: int
    X_BATCH: int
    X_GROUP: int
    X_CHANNEL: int
    TOTAL: int
    CHUNK: int
    SPAN: int
    TOGETHER: int
    ROWS: int
    """The output positions of all images, and over how many of them a work item adds up; into how
    many elements of the window panels divide, and how often; how many outputs it does."""
    UNUSED: int


class PackParams(ParamBlock):
    """The integers of a work item that packs the cotangent into panels."""

    OUTPUTS: int
    IMAGES: int
    POSITIONS: int
    GROUPS: int
    Y: int
    Y_BATCH: int
    Y_OUTPUT: int
    Y_POSITION: int
    TOGETHER: int


@record
class CotangentPanelsCode(RecordCode):
    """A work item: a panel of outputs of a group, at all positions of some images.

    Operands: y, the panels: [groups, panels, images, positions, outputs of a panel].

    Attributes:
        shape: The panels.
        layout: Whether the positions of an output are contiguous.
        target: The processor.
    """

    shape: TileShape
    layout: Layout
    target: Processor

    @property
    def pack(self) -> Piece:
        """The function that lays out panels."""
        return Piece("pack", self.shape, (self.layout,))

    @property
    def callees(self) -> tuple[Piece]:
        """The functions that it calls."""
        return (self.pack,)

    def llvm(self, symbol: str) -> str:
        body, shape, item = FunctionBody(), self.shape, self.shape.stored.itemsize
        outputs, images, positions, groups = (body.param(i) for i in range(PackParams.Y))
        start, batch, output, position = (
            body.mul(body.param(i), item)
            for i in (PackParams.Y, PackParams.Y_BATCH, PackParams.Y_OUTPUT, PackParams.Y_POSITION)
        )
        panels = body.mul(body.ceil(outputs, shape.columns), groups)
        panel, number = body.rem("%work_item", panels), body.div("%work_item", panels)
        together = body.param(PackParams.TOGETHER)
        begin = body.mul(number, together)
        end = body.min(body.add(begin, together), images)
        each = body.div(panels, groups)
        group = body.div(panel, each)
        first = body.mul(body.rem(panel, each), shape.columns)
        count = body.min(body.sub(outputs, first), shape.columns)
        source = body.at(body.operand(0), start)
        first = body.add(body.mul(group, outputs), first)
        source = body.at(source, body.mul(first, output))
        with body.loop(begin, end) as image:
            line = body.mul(body.add(body.mul(panel, images), image), positions)
            to = body.mul(line, shape.columns * shape.size)
            body.line(
                f"call fastcc void @{self.pack.name}(ptr {body.at(source, body.mul(image, batch))}"
                f", i64 {position}, i64 {output}, ptr "
                f"{body.at(body.operand(1), to)}"
                f", i64 0, i64 {positions}, i64 {count})"
            )
        return calling(body.work_item(symbol), shape, self.callees)


@record
class GradientCode(RecordCode):
    """A work item: for some outputs of a group a panel of channels, with all taps.

    If there are few channels, it has a panel of all elements that a window sees. Windows are laid
    out as for a convolution, and transposed, since sums go over positions. Operands: x, the panels
    of `CotangentPanelsCode`, the gradient, or one for each chunk of the positions.

    Attributes:
        windows: The code that lays out windows.
        results: The panels of results.
        is_whole: Whether there is one chunk, which is rounded to the dtype of x.
        target: The processor.
    """

    windows: WindowsCode
    results: TileShape
    is_whole: bool
    target: Processor

    @property
    def shape(self) -> TileShape:
        """The tiles."""
        return self.windows.shape

    @property
    def callees(self) -> tuple[Piece | WindowsCode, ...]:
        """The functions that it calls."""
        return (self.windows, self.transpose, *panel_tiles(self.shape, self.results.columns))

    @property
    def transpose(self) -> Piece:
        """The function that transposes windows, in the dtype of the computation."""
        shape = self.shape
        return Piece("pack", shape._replace(stored=shape.dtype), ("columns",))

    @property
    def line(self) -> int:
        """The bytes of a row of a panel."""
        return self.shape.columns * self.shape.size

    @property
    def panel_bytes(self) -> int:
        """The scratch memory of a panel, and of the square that is transposed to it."""
        return (depth(self.shape) + self.shape.columns) * self.line

    def llvm(self, symbol: str) -> str:
        body, width = FunctionBody(), self.shape.columns
        m, n, k, groups = (
            body.param(i)
            for i in (GradientParams.M, GradientParams.N, GradientParams.K, GradientParams.GROUPS)
        )
        total, chunk, span, together, most = (
            body.param(i) for i in range(GradientParams.TOTAL, GradientParams.ROWS + 1)
        )
        counts = [body.ceil(span, width), body.ceil(m, most), groups]
        number, found = "%work_item", []
        for count in counts:
            found.append(body.rem(number, count))
            number = body.div(number, count)
        first, row, group = body.mul(found[0], width), body.mul(found[1], most), found[2]
        rows = body.min(body.sub(m, row), most)
        count = body.min(body.sub(span, first), width)
        plane = body.mul(body.mul(body.ceil(most, width), width), self.line)
        totals = body.at("%scratch", self.panel_bytes)
        end = body.mul(plane, together)
        with body.loop(0, end, self.shape.lanes * self.shape.size) as position:
            vector = self.shape.vector
            body.line(f"store {vector} zeroinitializer, ptr {body.at(totals, position)}")
        line = self.results.columns * self.shape.size
        panels = body.mul(group, body.ceil(m, self.results.columns))
        panels = body.add(panels, body.div(row, self.results.columns))
        gap = body.mul(total, line)
        left = body.at(body.operand(1), body.mul(panels, gap))
        begin = body.mul(number, chunk)
        end = body.min(body.add(begin, chunk), total)
        asking = body.loop(begin, end, depth(self.shape), asks=True)
        with asking as position, body.loop(0, together) as turn:
            last = body.min(body.add(position, depth(self.shape)), end)
            wanted = body.add(body.mul(turn, span), first), count
            with body.loop(body.div(position, n), body.ceil(last, n)) as image:
                before = body.mul(image, n)
                some = (
                    body.max(body.sub(position, before), "0"),
                    body.min(body.sub(last, before), n),
                )
                x = image_at(body, self.shape, groups, body.add(body.mul(image, groups), group))
                skipped = body.sub(body.add(before, some[0]), position)
                to = body.at("%scratch", body.mul(skipped, self.line))
                self.panel(body, x, wanted, some, to)
            here = body.at(left, body.mul(position, line))
            to = body.at(totals, body.mul(turn, plane))
            self.multiply(body, here, gap, to, (rows, body.sub(last, position)))
        member = body.add(body.mul(number, groups), group)
        result = body.add(body.mul(member, m), row)
        self.store(body, (totals, plane), body.mul(result, k), rows, (first, count))
        return calling(body.work_item(symbol), self.shape, self.callees)

    def multiply(
        self, body: FunctionBody, left: str, gap: str, totals: str, sizes: tuple[str, str]
    ) -> None:
        """Multiply the cotangent at some positions with the windows there, panel by panel."""
        (rows, length), width, size = sizes, self.shape.columns, self.shape.size
        with body.loop(0, rows, width) as row:
            panel = body.at(left, body.mul(body.div(row, width), gap))
            to = body.at(totals, body.mul(row, self.line))
            for tile, within in tiles_of(self.shape, self.results.columns):
                with body.where(body.test("sgt", body.sub(rows, row), within)):
                    body.line(
                        f"call fastcc void @{tile.name}(ptr {body.at(panel, within * size)}, "
                        f"i64 {size}, i64 {self.results.columns * size}, ptr %scratch, "
                        f"i64 {self.line}, "
                        f"ptr {body.at(to, within * self.line)}, i64 {self.line}, i64 {length}, "
                        f"i1 true, i64 {width}, i64 0)"
                    )

    def panel(
        self,
        body: FunctionBody,
        x: str,
        wanted: tuple[str, str],
        positions: tuple[str, str],
        to: str,
    ) -> None:
        """Lay out the windows at some positions, one row each, square by square."""
        width, size = self.shape.columns, self.shape.size
        square = body.at("%scratch", depth(self.shape) * self.line)
        with body.loop(*positions, width) as position:
            count = body.min(body.sub(positions[1], position), width)
            body.line(
                f"call fastcc void @{self.windows.name}(ptr {x}, ptr %params, i64 {wanted[0]}, "
                f"i64 {wanted[1]}, i64 {position}, i64 {count}, ptr {square})"
            )
            there = body.at(to, body.mul(body.sub(position, positions[0]), self.line))
            body.line(
                f"call fastcc void @{self.transpose.name}(ptr {square}, i64 {size}, "
                f"i64 {self.line}, ptr {there}, i64 0, i64 {count}, i64 {wanted[1]})"
            )

    def store(
        self,
        body: FunctionBody,
        totals: tuple[str, str],
        begin: str,
        rows: str,
        wanted: tuple[str, str],
    ) -> None:
        """Write sums to the result, in which the taps are the fastest dims."""
        shape, (first, count) = self.shape, wanted
        kind = shape.stored if self.is_whole else shape.dtype
        channels, k, together = (
            body.param(i)
            for i in (GradientParams.CHANNELS, GradientParams.K, GradientParams.TOGETHER)
        )
        taps = body.div(k, body.max(channels, 1))
        offsets = body.slot(f"[{shape.columns} x i64]")
        with body.loop(0, count) as column:
            position = body.add(first, column)
            tap, channel = body.div(position, channels), body.rem(position, channels)
            offset = body.mul(body.add(body.mul(channel, taps), tap), kind.itemsize)
            body.set(body.at(offsets, body.mul(column, 8)), offset)
        result = body.at(body.operand(2), body.mul(begin, kind.itemsize))
        with body.loop(0, rows) as row, body.loop(0, count) as column:
            to = body.at(result, body.mul(body.mul(row, k), kind.itemsize))
            to = body.at(to, body.array(offsets, column))
            source = body.at(totals[0], body.mul(row, self.line))
            source = body.at(source, body.mul(column, shape.size))
            with body.loop(0, together) as turn:
                here = body.at(source, body.mul(turn, totals[1]))
                value = body.let(f"load {shape.element}, ptr {here}")
                value = body.primitives(1).to_memory(kind, value)
                there = body.at(to, body.mul(turn, kind.itemsize))
                body.line(f"store {memory(kind)} {value}, ptr {there}")


def conv_weight_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], *, winograd: bool = True
) -> list[Step]:
    """Return the steps of a `conv_weight`; none where `why_not_weight` says why.

    Args:
        node: The node.
        inputs: x with any strides, and y with one stride for all positions.
        outputs: The gradient.
        winograd: Whether Winograd's algorithm may be used.
    """
    if why_not_weight(node):
        return []
    op, (x, y), (result,) = node.op, inputs, outputs
    assert isinstance(op, ConvWeight)
    facts = zip(
        *(x.shape[2:], x.strides[2:], y.shape[2:], op.output_sizes),
        *(op.strides, op.dilations, op.before),
        strict=True,
    )
    dims = [SpatialDim(*fact) for fact in facts]
    along = _along(y)
    if along is None:
        return []
    target = host()
    shape = shape_for(x.storage.dtype, target)
    groups, channels, outputs_ = static(op.groups), static(result.shape[1]), static(y.shape[1])
    depthwise = _depthwise_step(node, x, y, result, dims)
    if depthwise is not None and along == 1:
        return [depthwise]
    if winograd and fits(x, y, dims, groups):
        return winograd_gradient_steps(node, x, y, result.storage, dims)
    dims = joined(dims)
    m, n, k = outputs_ // max(groups, 1), size_of(y.shape[2:]), static(size_of(result.shape[1:]))
    total, width = x.shape[0] * n, shape.columns
    results = _narrowed(shape, m)
    panels = groups * -(-m // results.columns)
    size = panels * total * results.columns
    laid_out = Temp(shape.dtype, size, "what the windows' positions have")
    together = dim_max(1, _WORK_ITEM // dim_max(1, n * results.columns))
    first = Step(
        (node,),
        CotangentPanelsCode(results, "columns" if along == 1 else "other", target),
        (y.storage, laid_out),
        (False, True),
        (m, x.shape[0], n, groups, y.offset, *y.strides[:2], along, together),
        panels * ((x.shape[0] + together - 1) // together),
    )
    span, turns = (channels, k // channels) if _by_channel(channels, k, width) else (k, 1)
    rows = max(_SUMS // (turns * width) // width, 1) * width
    rows = min(rows, -(-m // width) * width)
    work_items = groups * -(-m // max(rows, 1)) * -(-span // width)
    chunk: DimLike = total
    chunks: DimLike = 1
    to = result.storage
    if work_items < _WORK_ITEMS:
        chunk = dim_max(_CHUNK, (total * work_items + _WORK_ITEMS - 1) // _WORK_ITEMS)
        chunks = dim_max(1, (total + chunk - 1) // chunk)
        to = Temp(shape.dtype, chunks * outputs_ * k, "gradients of weights in chunks")
    windows = WindowsCode(shape, len(dims), dims[-1].step)
    code = GradientCode(windows, results, to is result.storage, target)
    params = (
        *(m, n, k, groups, channels),
        *(x.offset, x.strides[0], channels * x.strides[1], x.strides[1]),
        *(total, chunk, span, turns, rows),
        0,
        *numbers(dims),
    )
    operands, written = (x.storage, laid_out, to), (False, False, True)
    scratch = code.panel_bytes + turns * rows * code.line
    steps = [first, Step((node,), code, operands, written, params, work_items * chunks, scratch)]
    if to is not result.storage:
        steps.append(added(node, shape, target, [to], chunks, result.storage))
    return steps


def _narrowed(shape: TileShape, m: int) -> TileShape:
    """Return panels no wider than m columns need."""
    while m <= shape.lanes and shape.lanes * shape.size > 16:
        shape = shape._replace(lanes=shape.lanes // 2)
    return shape


def _by_channel(channels: int, k: int, width: int) -> bool:
    """Return whether most panels of channels are full: then a work item writes whole weights."""
    is_full = channels >= 4 * width or (channels > 0 and channels % width == 0)
    return is_full and k // channels * width**2 <= _SUMS


def _depthwise_step(
    node: Node, x: View, y: View, result: View, dims: list[SpatialDim]
) -> Step | None:
    """Return the step for weights that see one channel each; None for others, and large ones."""
    outputs, each, *window = result.shape
    is_small = all([isinstance(size, int) for size in window]) and size_of(window) <= MOST
    if each != 1 or not is_small or x.shape[1] == 1 or not dims[-1].step:
        return None
    target = host()
    shape = shape_for(x.storage.dtype, target)
    code = DepthwiseCode(shape, dims[-1].step, tuple([dim.taps for dim in dims]), target)
    params = (
        *(x.shape[0], size_of([dim.output_size for dim in dims[:-1]]), outputs // x.shape[1]),
        *(x.offset, *x.strides[:2], y.offset, *y.strides[:2]),
        *numbers(dims),
    )
    operands = (x.storage, y.storage, result.storage)
    return Step((node,), code, operands, (False, False, True), params, outputs)


def why_not_weight(node: Node) -> str:
    """Return why there is no native code for a gradient of weights; "" if there is."""
    op, x = node.op, node.inputs[0]
    assert isinstance(op, ConvWeight)
    if not supported(x.dtype):
        return f"there is no native sum over positions of {x.dtype}"
    if any(spread != 1 for spread in op.input_dilations):
        return "x is dilated"
    if not all(isinstance(size, int) for size in (*node.types[0].shape, op.groups)):
        return "the sizes of the weights are not known"
    return ""


def _along(y: View) -> DimLike | None:
    """Return the stride of positions, all spatial dims as one; None where it varies."""
    gap = y.strides[-1]
    width: DimLike = 1
    for size, stride in zip(y.shape[:1:-1], y.strides[:1:-1], strict=True):
        if size != 1 and stride != gap * width:
            return None
        width = width * size
    return gap
