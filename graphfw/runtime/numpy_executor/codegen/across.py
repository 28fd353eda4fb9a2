"""Operands that a tile of rows and positions reads across: transposed before its rows begin.

Along a row their elements lie far apart, one in each line of memory; along the rows they lie
densely. So a work item that is a tile of both loads vectors along the rows, transposes them in
registers, and leaves them on the stack, where its rows read them densely.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.runtime.kernels.ir import Access, Kernel, Load, Store
from graphfw.runtime.kernels.lower_work_items import TILE
from graphfw.runtime.numpy_executor.codegen.evaluate import Evaluator
from graphfw.runtime.numpy_executor.codegen.facts import KernelFacts
from graphfw.runtime.numpy_executor.codegen.registers import memory, vector
from graphfw.runtime.numpy_executor.codegen.target import Processor
from graphfw.runtime.numpy_executor.codegen.transpose import transposed

_SQUARE = 16
"""The most vectors that are transposed at once: more would not stay in registers."""

_OPERANDS = 4
"""The most operands that are transposed, for the stack's sake; others are gathered."""


Operands = list[tuple[Load, ...]]
"""Loads, those of the same elements together."""


def loads_across(kernel: Kernel, facts: KernelFacts) -> Operands:
    """Return the loads of a kernel whose work items are tiles that are dense along its rows."""
    # Of kernels that are cut along rows, too, those whose items have one row are no tiles.
    if kernel.split is None or kernel.per_item == 1 or not kernel.outer:
        return []
    row, position = kernel.outer[-1].name, facts.vector_axis
    found = []
    for expr in facts.exprs:
        if isinstance(expr, Load) and not expr.access.terms and not kernel.is_packed(expr):
            strides = dict(expr.access.strides)
            if strides.get(row) == 1 and strides.get(position, 0) not in (0, 1):
                found.append(expr)
    return together(found)


def together(loads: Sequence[Load]) -> Operands:
    """Return the first loads to be transposed, those of the same elements together."""
    found: dict[tuple[int, Access], tuple[Load, ...]] = {}
    for load in loads:
        key = load.buffer, load.access
        found[key] = (*found.get(key, ()), load)
    return [*found.values()][:_OPERANDS]


def square(target: Processor, item: int) -> int:
    """Return the number of vectors of elements of some bytes that are transposed at once."""
    most = _SQUARE if target.masked else _SQUARE // 2
    return min(most, target.vector_bytes // item)


def _copy(facts: KernelFacts, operands: Operands) -> Store | None:
    """Return the only statement of a kernel, if it stores an operand as rows that are dense."""
    kernel = facts.kernel
    store, *others = facts.statements()
    if others or not isinstance(store, Store) or store.access.terms:
        return None
    if store.value not in operands[0]:
        return None
    is_dense = dict(store.access.strides).get(facts.vector_axis) == 1
    is_row = kernel.outer[-1].name in dict(store.access.strides)
    load = operands[0][0]
    same = kernel.buffers[store.buffer].dtype == kernel.buffers[load.buffer].dtype
    return store if is_dense and is_row and same else None


class Transposing:
    """Writes how the operands of a work item are transposed.

    Args:
        evaluator: Of the kernel.
        target: The processor.
        rows: Where the rows of the work item begin and end, counted over all outer axes.
        columns: Where its positions begin and end.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        target: Processor,
        rows: tuple[str, str],
        columns: tuple[str, str],
    ) -> None:
        self._evaluator, self._target = evaluator, target
        writer, kernel = evaluator.writer, evaluator.facts.kernel
        self._loads = loads = loads_across(kernel, evaluator.facts)
        self._rows, self._columns = rows, columns
        if not loads:
            return
        self._copy = _copy(evaluator.facts, loads)
        self._axis = kernel.outer[-1]
        self._first = writer.slot("i64")
        items = [kernel.buffers[load.buffer].dtype.itemsize for load, *_ in loads]
        items = [] if self._copy else items
        self._tiles = [writer.slot(f"[{TILE * item} x i8], align 64") for item in items]
        assert kernel.split is not None
        self._line = evaluator.size(kernel.split)

    def row(self, is_first: str) -> bool:
        """Write that a row finds its operands: they are transposed where the last axis begins.

        Args:
            is_first: Whether the row is the work item's first one (i1).

        Returns:
            Whether that is all: a kernel that only copies stores what is transposed at once.
        """
        if not self._loads:
            return False
        evaluator, writer = self._evaluator, self._evaluator.writer
        index = evaluator.index[self._axis.name]
        begins = writer.let(f"icmp eq i64 {index}, 0", 1)
        is_due = writer.let(f"or i1 {is_first}, {begins}", 1)
        before = writer.load("i64", self._first, 1)
        first = writer.let(f"select i1 {is_due}, i64 {index}, i64 {before}", 1)
        writer.store("i64", first, self._first, 1)
        left = writer.let(f"sub i64 {self._rows[1]}, {evaluator.index['']}", 1)
        along = writer.let(f"sub i64 {evaluator.size(self._axis.extent)}, {index}", 1)
        count = writer.call("i64", "llvm.smin.i64", [("i64", left), ("i64", along)], 1)
        if self._copy:
            target = self._start(self._copy.buffer, self._copy.access)
            line = evaluator.size(dict(self._copy.access.strides)[self._axis.name])
            self._transpose(self._loads[0][0], target, line, count, is_due)
            return True
        distance = writer.let(f"sub i64 {index}, {first}", 1)
        line = writer.let(f"mul i64 {distance}, {self._line}", 1)
        line = writer.let(f"sub i64 {line}, {self._columns[0]}", 1)
        for (load, *others), tile in zip(self._loads, self._tiles, strict=True):
            self._transpose(load, tile, self._line, count, is_due)
            element = memory(evaluator.facts.kernel.buffers[load.buffer].dtype)
            start = writer.let(f"getelementptr {element}, ptr {tile}, i64 {line}", 1)
            evaluator.transposed.update(dict.fromkeys([load, *others], start))
        return False

    def _start(self, buffer: int, access: Access) -> str:
        """Write where the elements of an access begin in the row at hand, at the first column."""
        evaluator, writer = self._evaluator, self._evaluator.writer
        element = memory(evaluator.facts.kernel.buffers[buffer].dtype)
        offset, axis = evaluator.size(access.offset), evaluator.facts.vector_axis
        start = writer.let(
            f"getelementptr {element}, ptr {evaluator.pointer(buffer)}, i64 {offset}", 1
        )
        for name, step in access.strides:
            index = self._columns[0] if name == axis else evaluator.index[name]
            offset = evaluator.int64("mul", index, evaluator.size(step), 1)
            start = writer.let(f"getelementptr {element}, ptr {start}, i64 {offset}", 1)
        return start

    def _transpose(self, load: Load, to: str, line: str, count: str, is_due: str) -> None:
        """Write that so many rows of an operand are transposed.

        Args:
            load: The load of the operand.
            to: Where the first row goes.
            line: How many elements lie between rows there.
            count: How many rows.
            is_due: Whether anything is transposed (i1).
        """
        evaluator, writer = self._evaluator, self._evaluator.writer
        dtype = evaluator.facts.kernel.buffers[load.buffer].dtype
        element, item = memory(dtype), dtype.itemsize
        lanes = square(self._target, item)
        stride = evaluator.size(dict(load.access.strides)[evaluator.facts.vector_axis])
        start = self._start(load.buffer, load.access)
        begin, end = self._columns
        # Rows that are not due transpose nothing.
        end = writer.let(f"select i1 {is_due}, i64 {end}, i64 {begin}", 1)
        last = evaluator.int64("sub", self._columns[1], "1", 0)
        # The last vectors of rows overlap the ones before; fewer rows go one by one.
        final = writer.let(f"sub i64 {count}, {lanes}", 1)
        is_short = writer.let(f"icmp slt i64 {final}, 0", 1)
        # So do those of positions, unless there is room for more of them: in a tile.
        right = evaluator.int64("sub", self._columns[1], str(lanes), 0)
        if self._copy:
            is_narrow = writer.let(f"icmp slt i64 {right}, {begin}", 1)
            is_short = writer.let(f"or i1 {is_short}, {is_narrow}", 1)
        whole = writer.let(f"select i1 {is_short}, i64 0, i64 {count}", 1)
        kind = vector(element, lanes)

        def let(text: str) -> str:
            return writer.let(text, writer.depth)

        def column(position: str, number: int) -> str:
            """Write where the column at or after a position begins; beyond the last, that one."""
            at = let(f"add i64 {position}, {number}")
            at = writer.call("i64", "llvm.smin.i64", [("i64", at), ("i64", last)], writer.depth)
            at = let(f"sub i64 {at}, {begin}")
            return let(
                f"getelementptr {element}, ptr {start}, i64 {let(f'mul i64 {at}, {stride}')}"
            )

        def address_of(row: str, position: str) -> str:
            at = let(f"mul i64 {row}, {line}")
            at = let(f"add i64 {at}, {let(f'sub i64 {position}, {begin}')}")
            return let(f"getelementptr {element}, ptr {to}, i64 {at}")

        if lanes > 1:
            with writer.loop(begin, end, str(lanes)) as position:
                if self._copy:
                    limits = [("i64", position), ("i64", right)]
                    position = writer.call("i64", "llvm.smin.i64", limits, writer.depth)
                columns = [column(position, number) for number in range(lanes)]
                with writer.loop("0", whole, str(lanes)) as index:
                    ends = [("i64", index), ("i64", final)]
                    row = writer.call("i64", "llvm.smin.i64", ends, writer.depth)
                    rows = []
                    for one in columns:
                        address = let(f"getelementptr {element}, ptr {one}, i64 {row}")
                        rows.append(let(f"load {kind}, ptr {address}, align {item}"))
                    corner = address_of(row, position)
                    for number, value in enumerate(transposed(let, kind, lanes, rows)):
                        lines = evaluator.int64("mul", line, str(number), 0)
                        address = let(f"getelementptr {element}, ptr {corner}, i64 {lines}")
                        store = f"store {kind} {value}, ptr {address}, align {item}"
                        writer.line(store, writer.depth)
        with writer.loop(begin, end, "1") as position:
            with writer.loop(whole if lanes > 1 else "0", count, "1") as row:
                address = let(f"getelementptr {element}, ptr {column(position, 0)}, i64 {row}")
                value = let(f"load {element}, ptr {address}, align {item}")
                address = address_of(row, position)
                writer.line(f"store {element} {value}, ptr {address}, align {item}", writer.depth)
