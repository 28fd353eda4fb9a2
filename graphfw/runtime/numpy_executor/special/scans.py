"""The native steps of `cumulative_sum`, `cumulative_prod` and `recurrence`.

Arrays have the shape [before, size, after]. A scan goes through lines along the middle one element
after the other, several lines at a time: neighbours in memory, or several rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dim import dim_max, dim_min
from graphfw.ir.dtype import DType, float32
from graphfw.ir.op import Op
from graphfw.ir.tensor import Node
from graphfw.ops.reduce.cumulative import CumulativeProd, CumulativeSum, Recurrence
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.numpy_executor.codegen.numbers import Number
from graphfw.runtime.planning.collapse import scan_layout_of
from graphfw.runtime.planning.work import ceil

_BLOCK = 256
"""The neighbouring lines of a work item."""

_ROWS = 4
"""Rows that are scanned at once, since an addition waits for the one before; a power of 2. More
rows, a power of 2 apart, would evict each other from the cache."""

_WORK_ITEM = 1 << 13
"""Elements that a work item has at least, if there are so many."""

_NAMES = ("batches", "before", "size", "after", "block", "blocks")


class ScanCode:
    """A scan along the middle dim.

    Operands: output, inputs. Params: `_NAMES`, then offset and three strides of each input.

    Args:
        dtype: The dtype of all operands.
        op: The op's class.
        reverse: Whether it begins at the end.
        exclusive: Whether results leave the element itself out.
        rows: Whether the last dim has one element.
    """

    def __init__(
        self, dtype: DType, op: type[Op], *, reverse: bool, exclusive: bool, rows: bool
    ) -> None:
        self._dtype = dtype
        self._op = op
        self._reverse = reverse
        self._exclusive = exclusive
        self._rows = rows
        self._inputs = 2 if op is Recurrence else 1

    @property
    def key(self) -> str:
        traits = f"{self._reverse} {self._exclusive} {self._rows}"
        return f"scan {self._op.name} {self._dtype.name} {traits}"

    def llvm(self, symbol: str) -> str:
        f = LlvmFunction(LlvmModule())
        n = f.read_sizes(_NAMES)
        first = len(_NAMES)
        lying = [
            [f.read("%params", first + 4 * number + i) for i in range(4)]
            for number in range(self._inputs)
        ]
        addresses = [f.operand(i) for i in range(self._inputs + 1)]
        block = f.rem("%work_item", n["blocks"])
        batch = f.mul(f.div("%work_item", n["blocks"]), n["batches"])
        end = f.low(f.add(batch, n["batches"]), n["before"])
        for asks in f.briefly_or_not(n["size"]):
            if self._rows:
                whole = f.add(batch, f.let(f"and i64 {f.sub(end, batch)}, {-_ROWS}"))
                for begin, stop, count in ((batch, whole, _ROWS), (whole, end, 1)):
                    with f.loop(begin, stop, count) as row:
                        self._walk_rows(f, n, lying, addresses, row.index, count, asks=asks)
            else:
                column = f.mul(block, n["block"])
                width = f.low(n["block"], f.sub(n["after"], column))
                with f.loop(batch, end) as row:
                    where = row.index, column, width
                    self._walk_columns(f, n, lying, addresses, *where, asks=asks)
        return f.work_item(symbol)

    def _walk_rows(
        self,
        f: LlvmFunction,
        n: dict[str, str],
        lying: Sequence[Sequence[str]],
        addresses: Sequence[str],
        row: str,
        count: int,
        *,
        asks: bool,
    ) -> None:
        """Scan `count` rows at once."""
        number = Number(self._dtype)
        starts = []
        for i in range(count):
            index = f.add(row, str(i))
            at = [f.add(offset, f.mul(index, batch)) for offset, batch, _, _ in lying]
            starts.append((f.mul(index, n["size"]), at))
        carried = [(number.kind, self._identity(number))] * count
        with f.walk(n["size"], carried=carried, asks=asks) as loop:
            axis_index = self._position(f, n, loop.index)
            for (to, at), state in zip(starts, loop.values, strict=True):
                xs = []
                for x, start, (_, _, middle, _) in zip(addresses[1:], at, lying, strict=True):
                    element = f.add(start, f.mul(axis_index, middle))
                    xs.append(number.load(f, f.at(number.stored, x, element)))
                result, state = self._next(f, number, loop.index, state, xs)
                number.store(f, result, f.at(number.stored, addresses[0], f.add(to, axis_index)))
                loop.following.append(state)

    def _walk_columns(
        self,
        f: LlvmFunction,
        n: dict[str, str],
        lying: Sequence[Sequence[str]],
        addresses: Sequence[str],
        row: str,
        column: str,
        width: str,
        *,
        asks: bool,
    ) -> None:
        """Scan neighbouring lines; the state of each is in scratch memory."""
        lanes = 64 // Number(self._dtype).nbytes
        whole = f.let(f"and i64 {width}, {-lanes}")
        for _, _, _, last in lying:
            in_row = f.let(f"icmp eq i64 {last}, 1")
            whole = f.let(f"select i1 {in_row}, i64 {whole}, i64 0")
        with f.loop("0", width) as loop:
            state = self._state(1)
            state.store(f, self._identity(state), f.at(state.stored, "%scratch", loop.index))
        starts = []
        for offset, batch, _, last in lying:
            start = f.add(offset, f.mul(row, batch))
            starts.append(f.add(start, f.mul(column, last)))
        with f.walk(n["size"], asks=asks) as line:
            axis_index = self._position(f, n, line.index)
            to = f.mul(f.add(f.mul(row, n["size"]), axis_index), n["after"])
            to = f.add(to, column)
            for begin, stop, count in (("0", whole, lanes), (whole, width, 1)):
                number, state = Number(self._dtype, count), self._state(count)
                with f.loop(begin, stop, count) as loop:
                    xs = []
                    for x, start, (_, _, middle, last) in zip(
                        addresses[1:], starts, lying, strict=True
                    ):
                        element = f.add(start, f.mul(axis_index, middle))
                        element = f.add(element, f.mul(loop.index, last))
                        xs.append(number.load(f, f.at(number.stored, x, element)))
                    kept = f.at(state.stored, "%scratch", loop.index)
                    value = state.load(f, kept)
                    result, value = self._next(f, number, line.index, value, xs)
                    state.store(f, value, kept)
                    element = f.add(to, loop.index)
                    number.store(f, result, f.at(number.stored, addresses[0], element))

    def _position(self, f: LlvmFunction, n: dict[str, str], index: str) -> str:
        """Return the position after some steps."""
        return f.sub(f.sub(n["size"], "1"), index) if self._reverse else index

    def _state(self, lanes: int) -> Number:
        return Number(float32 if self._dtype.is_low_precision else self._dtype, lanes)

    def _identity(self, number: Number) -> str:
        if self._op is CumulativeProd:
            return number.constant(1)
        # -0.0 is the identity of sums; 0.0 would turn -0.0 into 0.0.
        return number.constant(-0.0 if self._op is CumulativeSum else 0.0)

    def _next(
        self, f: LlvmFunction, number: Number, index: str, state: str, xs: Sequence[str]
    ) -> tuple[str, str]:
        """Return the result at an element, and the state after it."""
        if self._op is Recurrence:
            factor, term = xs
            return state, number.add(f, number.multiply(f, factor, state), term)
        (x,) = xs
        combine = number.add if self._op is CumulativeSum else number.multiply
        after = combine(f, state, x)
        if not self._exclusive:
            return after, after
        nothing = number.constant(0 if self._op is CumulativeSum else 1)
        first = f.let(f"icmp eq i64 {index}, 0")
        return number.choose(f, first, nothing, state), after


def scan_steps(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> list[Step]:
    """Return the steps of a node that scans an axis; none for complex numbers."""
    (output,) = outputs
    dtype = output.storage.dtype
    if dtype.is_complex:
        return []
    walk = scan_layout_of(node, inputs, output, KernelCode)
    before, size, after = walk.sizes
    rows = after == 1
    block = dim_min(dim_max(1, after), _BLOCK)
    batches = dim_max(1, _WORK_ITEM // dim_max(1, size * block))
    if rows:
        batches = _ROWS * ceil(batches, _ROWS)
    blocks = ceil(after, block)
    code = ScanCode(
        dtype,
        type(node.op),
        reverse=walk.reverse,
        exclusive=walk.exclusive,
        rows=rows,
    )
    step = Step(
        nodes=(node,),
        code=code,
        operands=walk.operands,
        written=(True, *[False] * len(inputs)),
        params=(batches, before, size, after, block, blocks, *walk.params),
        work_items=ceil(before, batches) * blocks,
        scratch=0 if rows else block * max(4, dtype.itemsize),
        in_place=walk.in_place,
    )
    return [*walk.copies, step]
