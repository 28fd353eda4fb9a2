"""The steps of gradients of pooling: the numbers of the chosen elements, and sums at these.

window_argmax  x -> the number of a window's largest element
window_take    x, number -> that element
window_put     y, number -> y added to these elements
fold           y of each tap -> added to the elements of the windows
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from graphfw.ir.dim import DimLike, dim_max
from graphfw.ir.dtype import int64
from graphfw.ir.op import Op
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.nn.pooling_ops import WindowArgmax, WindowPut, WindowTake
from graphfw.ops.nn.unfold import FoldWindows, Windowed
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.codegen import FunctionText, Processor, RecordCode, host, module
from graphfw.runtime.numpy_executor.codegen.function_body import declared
from graphfw.runtime.numpy_executor.codegen.param_block import ParamBlock
from graphfw.runtime.numpy_executor.codegen.registers import literal, splat
from graphfw.runtime.numpy_executor.convolution import window_bounds
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim, numbers
from graphfw.runtime.numpy_executor.convolution.direct_window import written_width
from graphfw.runtime.numpy_executor.convolution.window_bounds import Spatial, WindowBounds
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.lowering import supported
from graphfw.runtime.numpy_executor.matmul.tile import TileShape, shape_for
from graphfw.utils.records import record

_WORK_ITEM = 1 << 14
"""About the number of elements of the image of a work item."""

_ADDS = (WindowPut, FoldWindows)
"""The ops that add to an image; the others read one."""


class ArgmaxParams(ParamBlock):
    """The integers of a work item.

    `Spatial` of each dim follow; then for each operand that is read its offset and its strides, dim
    by dim.
    """

    PLANES: int
    TOGETHER: int
    EACH: int
    SIZE: int
    """All planes, those of a work item, how many make up one of the slower leading dim; a plane's
    elements in memory."""


@record
class WindowArgmaxCode(RecordCode):
    """A work item: some planes of the result. Operands: those of the op, the result.

    Attributes:
        op: The op's class.
        shape: The vectors.
        rank: The number of spatial dims.
        step: See `window_bounds`; 0, too, if positions of another operand are not contiguous.
        width: See `DirectWindowCode`.
        is_dense: Whether neighbouring elements of the window, along the last dim, are neighbours in
            the image.
        is_long: Whether the window is long, see `window_bounds`.
        target: The processor.
    """

    op: type[Op]
    shape: TileShape
    rank: int
    step: window_bounds.DenseStride
    width: int
    is_dense: bool
    is_long: bool
    target: Processor

    def llvm(self, symbol: str) -> str:
        lanes = self.shape.lanes
        mask = f"<{lanes} x i1>"
        whole = declarations(self.shape) | declared(
            f"<{lanes} x i64> @llvm.masked.load.v{lanes}i64.p0(ptr, i32, {mask}, <{lanes} x i64>)",
            f"void @llvm.masked.store.v{lanes}i64.p0(<{lanes} x i64>, ptr, i32, {mask})",
            "void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
        )
        return module([FunctionText(_WindowArgmax(self).text(symbol), whole, ())])


class _Operand(NamedTuple):
    """The address of an operand, and the strides of its dims in bytes."""

    start: str
    lead: list[str]
    window: list[str]
    strides: list[str]


class _Along(NamedTuple):
    """The elements that a strip sees along a row, of one tap or of two neighbouring taps.

    Attributes:
        taps: The indices of the taps.
        offset: The offset of the first element that the first position sees, in bytes.
        masks: The lanes of the vectors in memory that see elements.
    """

    taps: tuple[str, ...]
    offset: str
    masks: list[str]


class _Tap(NamedTuple):
    """The elements that a strip sees in one row of the window.

    Attributes:
        here: The address of the first element that the first position sees.
        masks: The lanes of the vectors in memory that see elements.
        numbers: The taps' numbers.
        indices: The taps' indices along each dim of the window.
    """

    here: str
    masks: list[str]
    numbers: list[str]
    indices: list[list[str]]


class _WindowArgmax(WindowBounds):
    """Writes the function."""

    def __init__(self, code: WindowArgmaxCode) -> None:
        # An image that is added to has the dtype of the computation.
        shape, self.adds = code.shape, code.op in _ADDS
        seen = shape._replace(stored=shape.dtype) if self.adds else shape
        super().__init__(seen, code.rank, code.step or 1, ArgmaxParams.COUNT, is_long=code.is_long)
        self.code = code
        self.values = Elements(self.body, shape, shape.stored)
        self.kind = shape.vector
        self.operands = self._operands()

    def _operands(self) -> list[_Operand]:
        """Read the operands' addresses and strides."""
        op, rank, body = self.code.op, self.code.rank, self.body
        positions = itertools.count(ArgmaxParams.COUNT + Spatial.COUNT * rank)
        found = []
        for number in range(1 if op in (WindowArgmax, FoldWindows) else 2):
            item = 8 if number else self.values.dtype.itemsize
            window = rank if op is FoldWindows else 0
            first, *gaps = [
                body.mul(body.param(next(positions)), item) for _ in range(3 + window + rank)
            ]
            start = body.at(body.operand(number), first)
            found.append(_Operand(start, gaps[:2], gaps[2 : 2 + window], gaps[2 + window :]))
        return found

    def text(self, symbol: str) -> str:
        body = self.body
        planes, together = (body.param(i) for i in (ArgmaxParams.PLANES, ArgmaxParams.TOGETHER))
        begin = body.mul("%work_item", together)
        with body.loop(begin, body.min(body.add(begin, together), planes)) as plane:
            self.plane(plane)
        return body.work_item(symbol)

    def plane(self, plane: str) -> None:
        """Go through a plane, strip by strip; each is as wide as a vector."""
        body, code, lanes = self.body, self.code, self.shape.lanes
        each = body.max(body.param(ArgmaxParams.EACH), 1)
        lead = (body.div(plane, each), body.rem(plane, each))
        starts = [self.offset(one.start, one.lead, lead) for one in self.operands]
        rows, positions = "1", self.dims[-1][Spatial.POSITIONS]
        for dim in self.dims[:-1]:
            rows = body.mul(rows, dim[Spatial.POSITIONS])
        result = body.operand(len(self.operands))
        size, item = body.param(ArgmaxParams.SIZE), code.shape.stored.itemsize
        if not self.adds:
            image = starts[0]
            line = 8 if code.op is WindowArgmax else item
            result = body.at(result, body.mul(body.mul(plane, body.mul(rows, positions)), line))
        else:
            result = body.at(result, body.mul(body.mul(plane, size), item))
            image = "%scratch" if code.shape.converts else result
            nbytes = body.mul(size, self.shape.size)
            body.line(f"call void @llvm.memset.p0.i64(ptr {image}, i8 0, i64 {nbytes}, i1 false)")
        with body.loop(0, positions, lanes if code.step else 1) as position:
            run = body.min(body.sub(positions, position), lanes) if code.step else "1"
            for some in self.groups(position, run):
                with body.loop(0, rows) as row:
                    self.strip(image, starts, result, (row, position, run), some)
        if self.adds and code.shape.converts:
            self.rounded(result, size)

    def groups(self, position: str, run: str) -> list[list[_Along]]:
        """Return the groups of taps along a row: each is done for all rows of a plane at once.

        Adding to an image reads it soon after it was written, which is slow if the vectors overlap.
        So all rows come before the next tap.
        """
        width = self.code.width
        if not self.adds or not width:
            return [[self.along(position, run, (str(k),)) for k in range(width)]]
        together = 2 if self.code.step == 2 and self.code.is_dense else 1
        taps = [
            tuple(map(str, range(k, min(k + together, width)))) for k in range(0, width, together)
        ]
        return [[self.along(position, run, some)] for some in taps]

    def along(self, position: str, run: str, taps: tuple[str, ...]) -> _Along:
        """Find the elements that a strip sees along a row."""
        body, size = self.body, self.dims[-1][Spatial.SIZE]
        offset, low, high = self.seen_along(position, taps[0])
        if len(taps) == 1:
            return _Along(taps, offset, self.masks(low, body.min(high, run), 1))
        index, _ = self.index(self.dims[-1], position, taps[0])
        low = body.max(body.sub("0", index), "0")
        high = body.min(body.sub(size, index), body.mul(run, 2))
        lanes = self.shape.lanes
        return _Along(taps, offset, [self.between(low, high, n * lanes) for n in range(2)])

    def strip(
        self,
        image: str,
        starts: list[str],
        result: str,
        where: tuple[str, str, str],
        known: Sequence[_Along],
    ) -> None:
        """Compute the positions of a strip in one row."""
        body, op, (row, position, run) = self.body, self.code.op, where
        outer = self.split(row, Spatial.POSITIONS, self.dims[:-1])
        pairs = zip(starts, self.operands, strict=True)
        there = [self.offset(start, one.strides, [*outer, position]) for start, one in pairs]
        kept, item = self.stored.mask(run), self.values.dtype.itemsize
        taps = self.elements(image, outer, (position, run), known)
        flat = body.add(body.mul(row, self.dims[-1][Spatial.POSITIONS]), position)
        if op is WindowArgmax:
            chosen = self.largest(taps)
            self.store_numbers(chosen, body.at(result, body.mul(flat, 8)), kept)
        elif op is WindowTake:
            taken = self.taken(taps, self.numbers(there[1], kept))
            to = body.at(result, body.mul(flat, item))
            if self.code.step:
                self.values.store_some(taken, to, kept)
            else:
                self.values.store_first(taken, to)
        elif op is WindowPut:
            number, value = self.numbers(there[1], kept), self.values.load_some(there[0], kept)
            for tap in taps:
                self.add(tap, [self.only(value, number, one) for one in tap.numbers])
        else:
            gaps = self.operands[0].window
            for tap in taps:
                addresses = [self.offset(there[0], gaps, indices) for indices in tap.indices]
                self.add(tap, [self.values.load_some(at, kept) for at in addresses])

    def elements(
        self,
        image: str,
        outer: list[str],
        run: tuple[str, str],
        known: Sequence[_Along],
    ) -> Iterator[_Tap]:
        """Go through the taps of the window that see elements."""
        body, last = self.body, self.dims[-1][Spatial.TAPS]
        with ExitStack() as loops:
            tap = [
                loops.enter_context(self.taps(dim, (at, at)))
                for dim, at in zip(self.dims, outer, strict=False)
            ]
            here, is_outside = self.row_seen(image, outer, tap)
            loops.enter_context(body.where(body.opposite(is_outside)))
            before = "0"
            for dim, index in zip(self.dims[:-1], tap, strict=True):
                before = body.add(body.mul(before, dim[Spatial.TAPS]), index)
            before = body.mul(before, last)
            if not known:
                end = body.sub(body.add(*run), 1)
                index = loops.enter_context(self.taps(self.dims[-1], (run[0], end)))
                known = [self.along(*run, (index,))]
            for one in known:
                yield _Tap(
                    body.at(here, one.offset),
                    one.masks,
                    [body.add(before, k) for k in one.taps],
                    [[*tap, k] for k in one.taps],
                )

    def largest(self, taps: Iterator[_Tap]) -> str:
        """Return the numbers of the largest elements, of NaNs the last one's."""
        body, shape = self.body, self.shape
        chosen, bits = f"<{shape.lanes} x i32>", f"<{shape.lanes} x i1>"
        best, choice = body.slot(self.kind), body.slot(chosen)
        body.set(
            best, splat(shape.element, literal(-math.inf, shape.dtype), shape.lanes), self.kind
        )
        body.set(choice, "zeroinitializer", chosen)
        for tap in taps:
            (value,) = self.read(tap.here, tap.masks, -math.inf)
            larger = body.let(f"fcmp ogt {self.kind} {value}, {body.get(best, self.kind)}")
            is_nan = body.let(f"fcmp uno {self.kind} {value}, {value}")
            is_better = body.let(f"or {bits} {larger}, {is_nan}")
            news = ((best, value, self.kind), (choice, self.spread(tap.numbers[0]), chosen))
            for slot, new, kind in news:
                was = body.get(slot, kind)
                now = body.let(f"select {bits} {is_better}, {kind} {new}, {kind} {was}")
                body.set(slot, now, kind)
        return body.get(choice, chosen)

    def taken(self, taps: Iterator[_Tap], number: str) -> str:
        """Return the elements of the numbers."""
        body, kind = self.body, self.kind
        total = body.slot(kind)
        body.set(total, "zeroinitializer", kind)
        for tap in taps:
            value = self.only(self.read(tap.here, tap.masks)[0], number, tap.numbers[0])
            body.set(total, body.let(f"fadd {kind} {body.get(total, kind)}, {value}"), kind)
        return body.get(total, kind)

    def offset(self, start: str, gaps: list[str], indices: Sequence[str]) -> str:
        """Return the offset of an element."""
        for index, gap in zip(indices, gaps, strict=True):
            start = self.body.at(start, self.body.mul(index, gap))
        return start

    def spread(self, number: str) -> str:
        """Return a number in all lanes, as i32."""
        body, kind = self.body, f"<{self.shape.lanes} x i32>"
        small = body.let(f"trunc i64 {number} to i32")
        one = body.let(f"insertelement {kind} poison, i32 {small}, i32 0")
        return body.let(f"shufflevector {kind} {one}, {kind} poison, {kind} zeroinitializer")

    def numbers(self, at: str, kept: str) -> str:
        """Read chosen numbers, as i32; numbers of no element stay so."""
        lanes, body = self.shape.lanes, self.body
        kind, most = f"<{lanes} x i64>", splat("i64", str(2**31 - 1), lanes)
        value = body.let(
            f"call {kind} @llvm.masked.load.v{lanes}i64.p0(ptr {at}, i32 8, <{lanes} x i1> {kept}, "
            f"{kind} zeroinitializer)"
        )
        # A negative number is large as an unsigned one.
        fits = body.let(f"icmp ult {kind} {value}, {most}")
        value = body.let(f"select <{lanes} x i1> {fits}, {kind} {value}, {kind} {most}")
        return body.let(f"trunc {kind} {value} to <{lanes} x i32>")

    def store_numbers(self, chosen: str, to: str, kept: str) -> None:
        """Write chosen numbers."""
        lanes, body = self.shape.lanes, self.body
        wide = body.let(f"zext <{lanes} x i32> {chosen} to <{lanes} x i64>")
        body.line(
            f"call void @llvm.masked.store.v{lanes}i64.p0(<{lanes} x i64> {wide}, ptr {to}, i32 8, "
            f"<{lanes} x i1> {kept})"
        )

    def only(self, value: str, number: str, tap: str) -> str:
        """Return values whose number is that of a tap, and 0 in other lanes."""
        body, lanes = self.body, self.shape.lanes
        is_it = body.let(f"icmp eq <{lanes} x i32> {number}, {self.spread(tap)}")
        return body.let(
            f"select <{lanes} x i1> {is_it}, {self.kind} {value}, {self.kind} zeroinitializer"
        )

    def add(self, tap: _Tap, values: list[str]) -> None:
        """Add vectors, one for each tap, to the elements that a strip's positions see."""
        body, lanes, kind = self.body, self.shape.lanes, self.kind
        first, second = [*values, "zeroinitializer"][:2]
        for n, mask in enumerate(tap.masks):
            masked = first
            if self.step == 2:
                order = [n * lanes // 2 + i // 2 + i % 2 * lanes for i in range(lanes)]
                text = ", ".join([f"i32 {i}" for i in order])
                masked = body.let(
                    f"shufflevector {kind} {first}, {kind} {second}, <{lanes} x i32> <{text}>"
                )
            to = body.at(tap.here, n * lanes * self.shape.size)
            total = body.let(f"fadd {kind} {self.stored.load_some(to, mask)}, {masked}")
            self.stored.store_some(total, to, mask)

    def rounded(self, result: str, size: str) -> None:
        """Write a plane from scratch memory."""
        body, lanes = self.body, self.shape.lanes
        with body.loop(0, size, lanes) as position:
            mask = self.stored.mask(body.sub(size, position))
            value = self.stored.load_some(
                body.at("%scratch", body.mul(position, self.shape.size)), mask
            )
            to = body.at(result, body.mul(position, self.values.dtype.itemsize))
            self.values.store_some(value, to, mask)


def window_argmax_steps(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> list[Step]:
    """Return the step of one of the ops; none where that is not native.

    There is native code for floats, with numbers of int64, whose leading dims have one or two
    strides.
    """
    assert isinstance(node.op, Windowed)
    return steps_of(node.op, node, inputs, outputs)


def steps_of(
    op: Windowed, node: Node, inputs: Sequence[View], outputs: Sequence[View]
) -> list[Step]:
    """Return the step of one of the ops that a node computes."""
    (result,), first = outputs, inputs[0]
    if not supported(first.storage.dtype):
        return []
    if any([view.storage.dtype is not int64 for view in inputs[1:]]):
        return []
    rank, adds = len(op.window), isinstance(op, FoldWindows | WindowPut)
    image = result if adds else first
    lead = len(image.shape) - rank
    cut = _cut(inputs, lead)
    if cut is None:
        return []
    sizes = image.shape[lead:]
    positions = op.output_sizes(sizes)
    facts = zip(
        *(sizes, image.strides[lead:], positions, op.window, op.strides, op.dilations),
        [before for before, _ in op.pairs],
        strict=True,
    )
    dims = [SpatialDim(*fact) for fact in facts]
    beside = [view for view in inputs if view is not image]
    is_dense = all([view.strides[-1] == 1 or positions[-1] == 1 for view in beside])
    shape = shape_for(first.storage.dtype, host())
    size, planes = size_of(sizes), size_of(image.shape[:lead])
    together = dim_max(1, _WORK_ITEM // dim_max(1, dim_max(size, size_of(positions))))
    params: list[DimLike] = [planes, together, size_of(image.shape[cut:lead]), size]
    params += numbers(dims)
    for view in inputs:
        slow, fast = _gaps(view, cut, lead)
        assert slow is not None
        assert fast is not None
        params += [view.offset, slow, fast]
        params += [0] * rank if view is image else view.strides[lead:]
    step = dims[-1].step if is_dense else 0
    width, is_near = written_width(dims[-1].taps), op.dilations[-1] == 1
    is_long = window_bounds.is_long(op.window)
    code = WindowArgmaxCode(type(op), shape, rank, step, width, is_near, is_long, host())
    operands = (*[view.storage for view in inputs], result.storage)
    written = (*[False] * len(inputs), True)
    scratch = size * shape.size if adds and shape.converts else 0
    work_items = (planes + together - 1) // together
    return [Step((node,), code, operands, written, tuple(params), work_items, scratch)]


def _cut(views: Sequence[View], lead: int) -> int | None:
    """Return the index that cuts the leading dims in two groups, each joined in all views."""
    for cut in range(lead + 1):
        if all([None not in _gaps(view, cut, lead) for view in views]):
            return cut
    return None


def _gaps(view: View, cut: int, lead: int) -> list[DimLike | None]:
    """Return the strides of the two groups of leading dims; None where one has several."""
    return [_gap(view, range(cut)), _gap(view, range(cut, lead))]


def _gap(view: View, axes: range) -> DimLike | None:
    """Return the stride of joined dims; None if it varies."""
    gap: DimLike = 0
    following: DimLike | None = None
    for axis in reversed(axes):
        size, stride = view.shape[axis], view.strides[axis]
        if size == 1:
            continue
        if following is None:
            gap = stride
        elif stride != following:
            return None
        following = stride * size
    return gap
