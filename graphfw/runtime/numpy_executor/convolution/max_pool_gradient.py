"""Gradients of maxima over windows that don't overlap, in one pass over the image.

Windows are two elements wide: their rows are read as pairs of vectors, whose even and odd lanes are
the elements. Each element of the image is read once, compared with the
others of its window, and gets the gradient or 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphfw.ir.dim import DimLike, dim_max
from graphfw.ir.dtype import int64
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.nn.pooling_ops import Padded, WindowArgmax, WindowPut
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, RecordCode, host, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody, declared
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.codegen.registers import splat
from graphfw.runtime.numpy_executor.convolution.pooling import leading
from graphfw.runtime.numpy_executor.convolution.window_argmax import steps_of
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.lowering import supported
from graphfw.runtime.numpy_executor.matmul.tile import TileShape, shape_for
from graphfw.utils.records import record

_WORK_ITEM = 1 << 14
"""About the number of elements of the image of a work item."""

_ROWS = 4
"""The most rows of a window: all its elements are in registers."""

_FEWEST = 4
"""The least lanes of a vector: shorter rows are masked."""


class PoolGradParams(ParamBlock):
    """The integers of a work item."""

    PLANES: int
    TOGETHER: int
    EACH: int
    """All planes, those of a work item, how many make up one of the slower leading dim."""
    HEIGHT: int
    WIDTH: int
    ROWS: int
    POSITIONS: int
    """The sizes of a plane of the image, and of one of the output."""
    COTANGENT: int
    COTANGENT_OUTER: int
    COTANGENT_PLANE: int
    COTANGENT_ROW: int
    """The offset of the first operand, and its strides along the two leading dims and rows."""
    IMAGE: int
    IMAGE_OUTER: int
    IMAGE_PLANE: int
    IMAGE_ROW: int


@record
class MaxPoolGradientCode(RecordCode):
    """A work item: some planes. Operands: the cotangent of each position, the image, the result.

    Attributes:
        shape: The vectors.
        rows: The number of rows of a window.
        target: The processor.
    """

    shape: TileShape
    rows: int
    target: Processor

    def llvm(self, symbol: str) -> str:
        whole = declarations(self.shape) | declared("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
        return module([FunctionText(_MaxPoolGradient(self).text(symbol), whole, ())])


class _Row(NamedTuple):
    """The addresses of a row of positions, and of the first row that its windows see."""

    cotangent: str
    seen: str
    result: str


class _MaxPoolGradient:
    """Writes the function."""

    def __init__(self, code: MaxPoolGradientCode) -> None:
        self.code, self.body = code, FunctionBody()
        self.item = code.shape.stored.itemsize
        self.memory = Elements(self.body, code.shape, code.shape.stored)
        self.seen_line = self.bytes(PoolGradParams.IMAGE_ROW)
        self.line = self.bytes(PoolGradParams.WIDTH)

    def bytes(self, index: int) -> str:
        """Read a distance."""
        return self.body.mul(self.body.param(index), self.item)

    def text(self, symbol: str) -> str:
        body = self.body
        begin = body.mul("%work_item", body.param(PoolGradParams.TOGETHER))
        end = body.min(
            body.add(begin, body.param(PoolGradParams.TOGETHER)), body.param(PoolGradParams.PLANES)
        )
        with body.loop(begin, end) as plane:
            self.plane(plane)
        return body.work_item(symbol)

    def plane(self, plane: str) -> None:
        """Go through a plane row by row of positions; elements that no window sees are 0."""
        body, rows = self.body, self.code.rows
        cotangent, seen = (
            self.start(n, at, plane)
            for n, at in enumerate((PoolGradParams.COTANGENT, PoolGradParams.IMAGE))
        )
        size = body.mul(body.param(PoolGradParams.HEIGHT), self.line)
        result = body.at(body.operand(2), body.mul(plane, size))
        with body.loop(0, body.param(PoolGradParams.ROWS)) as row:
            self.row(
                _Row(
                    body.at(cotangent, body.mul(row, self.bytes(PoolGradParams.COTANGENT_ROW))),
                    body.at(seen, body.mul(row, body.mul(self.seen_line, rows))),
                    body.at(result, body.mul(row, body.mul(self.line, rows))),
                )
            )
        done = body.mul(body.mul(body.param(PoolGradParams.ROWS), rows), self.line)
        self.clear(body.at(result, done), body.sub(size, done))

    def start(self, number: int, first: int, plane: str) -> str:
        """Return the address of a plane of an operand."""
        body, each = self.body, self.body.max(self.body.param(PoolGradParams.EACH), 1)
        at = body.at(body.operand(number), self.bytes(first))
        at = body.at(at, body.mul(body.div(plane, each), self.bytes(first + 1)))
        return body.at(at, body.mul(body.rem(plane, each), self.bytes(first + 2)))

    def clear(self, address: str, nbytes: str) -> None:
        self.body.line(
            f"call void @llvm.memset.p0.i64(ptr {address}, i8 0, i64 {nbytes}, i1 false)"
        )

    def row(self, row: _Row) -> None:
        """Compute a row of positions, vector by vector; the last one may repeat some."""
        body, lanes, positions = (
            self.body,
            self.code.shape.lanes,
            self.body.param(PoolGradParams.POSITIONS),
        )
        few = body.test("slt", positions, lanes)
        with body.where(few):
            self.strip(row, "0", positions)
        with body.where(body.opposite(few)):
            last = body.sub(positions, lanes)
            with body.loop(0, positions, lanes) as position:
                self.strip(row, body.min(position, last), "")
        done = body.mul(positions, 2 * self.item)
        with body.where(body.test("sgt", self.line, done)):
            for n in range(self.code.rows):
                here = body.at(row.result, body.mul(self.line, n))
                self.clear(body.at(here, done), body.sub(self.line, done))

    def strip(self, row: _Row, position: str, count: str) -> None:
        """Compute a vector of positions, or some lanes of it."""
        body, memory, lanes = self.body, self.memory, self.code.shape.lanes
        kept, masks = "", ["", ""]
        if count:
            kept = memory.mask(count)
            masks = [memory.mask(body.mul(count, 2), n) for n in range(2)]
        along = body.mul(position, 2 * self.item)
        taps: list[str] = []
        for n in range(self.code.rows):
            here = body.at(body.at(row.seen, body.mul(self.seen_line, n)), along)
            pair = [
                self.load(body.at(here, half * lanes * self.item), mask)
                for half, mask in enumerate(masks)
            ]
            taps += [self.shuffled(pair, [2 * i + odd for i in range(lanes)]) for odd in range(2)]
        chosen = self.chosen(taps)
        cotangent = self.load(body.at(row.cotangent, body.mul(position, self.item)), kept)
        kind, bits = self.code.shape.vector, f"<{lanes} x i1>"
        # A number added to 0 is never -0.
        cotangent = body.let(f"fadd {kind} {cotangent}, zeroinitializer")
        numbers = f"<{lanes} x i32>"
        sent = []
        for number in range(len(taps)):
            is_it = body.let(f"icmp eq {numbers} {chosen}, {splat('i32', str(number), lanes)}")
            sent.append(
                body.let(f"select {bits} {is_it}, {kind} {cotangent}, {kind} zeroinitializer")
            )
        for n in range(self.code.rows):
            here = body.at(body.at(row.result, body.mul(self.line, n)), along)
            pair = sent[2 * n : 2 * n + 2]
            for half, mask in enumerate(masks):
                first = half * lanes // 2
                order = [first + i // 2 + i % 2 * lanes for i in range(lanes)]
                value = self.shuffled(pair, order)
                there = body.at(here, half * lanes * self.item)
                if mask:
                    memory.store_some(value, there, mask)
                else:
                    memory.store(value, there)

    def load(self, address: str, mask: str) -> str:
        return self.memory.load_some(address, mask) if mask else self.memory.load(address)

    def shuffled(self, pair: Sequence[str], order: Sequence[int]) -> str:
        """Return a vector of lanes of two vectors."""
        kind, lanes = self.code.shape.vector, self.code.shape.lanes
        text = ", ".join([f"i32 {i}" for i in order])
        return self.body.let(
            f"shufflevector {kind} {pair[0]}, {kind} {pair[1]}, <{lanes} x i32> <{text}>"
        )

    def chosen(self, taps: list[str]) -> str:
        """Return the indices of the largest elements: of equal ones the first, of NaNs the last."""
        body, shape = self.body, self.code.shape
        kind, bits, numbers = shape.vector, f"<{shape.lanes} x i1>", f"<{shape.lanes} x i32>"
        best, choice = taps[0], "zeroinitializer"
        for number, value in enumerate(taps[1:], 1):
            larger = body.let(f"fcmp ogt {kind} {value}, {best}")
            is_nan = body.let(f"fcmp uno {kind} {value}, {value}")
            is_better = body.let(f"or {bits} {larger}, {is_nan}")
            best = body.let(f"select {bits} {is_better}, {kind} {value}, {kind} {best}")
            this = splat("i32", str(number), shape.lanes)
            choice = body.let(f"select {bits} {is_better}, {numbers} {this}, {numbers} {choice}")
        return choice


def has_max_pool_gradient(node: Node) -> bool:
    """Return whether a `window_put` of `window_argmax` has native code as one `window_route`."""
    op = node.op
    assert isinstance(op, Padded)
    if op.reaches or set(op.dilations) != {1} or op.window != op.strides:
        return False
    rows, width = (1, *op.window)[-2:]
    return len(op.window) <= 2 and width == 2 and rows <= _ROWS and supported(node.types[0].dtype)


def max_pool_gradient_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View]
) -> list[Step]:
    """Return the steps of a `window_route`; none where that is not native.

    There is one step if leading dims have one or two strides, and rows no gaps; else a step finds
    the elements' indices first.
    """
    op, (cotangent, seen), (result,) = node.op, inputs, outputs
    assert isinstance(op, Padded)
    rank = len(op.window)
    start = len(seen.shape) - rank
    lead = leading(cotangent, seen, start)
    is_along = all([x.strides[-1] == 1 or x.shape[-1] == 1 for x in inputs])
    is_whole = result.strides == contiguous(result.shape)
    is_one = cotangent.storage.dtype is seen.storage.dtype
    if not (has_max_pool_gradient(node) and len(lead) <= 2 and is_along and is_whole and is_one):
        return _in_two(op, node, cotangent, seen, result)
    height, width = (1, *seen.shape[start:])[-2:]
    rows, positions = (1, *cotangent.shape[start:])[-2:]
    (slow, *slow_gaps), (each, *gaps) = [(1, 0, 0)] * (2 - len(lead)) + lead
    planes = slow * each
    together = dim_max(1, _WORK_ITEM // dim_max(1, size_of((height, width))))
    params: list[DimLike] = [planes, together, each, height, width, rows, positions]
    for n, view in enumerate(inputs):
        line = view.strides[-2] if rank == 2 else 0
        params += [view.offset, slow_gaps[n], gaps[n], line]
    shape = _narrow(shape_for(seen.storage.dtype, host()), positions)
    code = MaxPoolGradientCode(shape, (1, *op.window)[-2], host())
    operands = (cotangent.storage, seen.storage, result.storage)
    work_items = (planes + together - 1) // together
    return [Step((node,), code, operands, (False, False, True), tuple(params), work_items)]


def _in_two(op: Padded, node: Node, cotangent: View, seen: View, result: View) -> list[Step]:
    """Return the steps that find the indices of the largest, and then scatter the cotangents."""
    memory = Temp(int64, size_of(cotangent.shape), "which elements are the largest")
    numbers = View(memory, 0, cotangent.shape, contiguous(cotangent.shape))
    dims = seen.shape[len(seen.shape) - len(op.window) :]
    found = steps_of(WindowArgmax(*op.values), node, [seen], [numbers])
    sent = steps_of(WindowPut(*[*op.values, dims]), node, [cotangent, numbers], [result])
    return [*found, *sent] if found and sent else []


def _narrow(shape: TileShape, positions: DimLike) -> TileShape:
    """Return vectors no wider than a row of positions, if its width is known."""
    lanes = shape.lanes
    while isinstance(positions, int) and lanes > max(positions, _FEWEST):
        lanes //= 2
    return shape._replace(lanes=lanes)
