"""`Nest`: writes the loops of a kernel and what its statements do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import reduce as fold

from graphfw.runtime.kernels.ir import (
    Accumulate,
    Axis,
    BoundsCheck,
    Carry,
    InnerLoop,
    Keep,
    Kernel,
    Reduce,
    Store,
)
from graphfw.runtime.kernels.walk import Statement, copied_buffers, in_turn, roots
from graphfw.runtime.numpy_executor.codegen.across import Transposing
from graphfw.runtime.numpy_executor.codegen.across_columns import ColumnTransposing
from graphfw.runtime.numpy_executor.codegen.across_rows import RowPanels
from graphfw.runtime.numpy_executor.codegen.addresses import Registers
from graphfw.runtime.numpy_executor.codegen.carries import CarryVariables, leave_unless
from graphfw.runtime.numpy_executor.codegen.evaluate import Evaluator
from graphfw.runtime.numpy_executor.codegen.facts import (
    KernelFacts,
    VectorShape,
    lanes_of,
    vectors_of,
)
from graphfw.runtime.numpy_executor.codegen.prefetch import Prefetch
from graphfw.runtime.numpy_executor.codegen.primitives import Primitives
from graphfw.runtime.numpy_executor.codegen.reductions import (
    Accumulators,
    Combiner,
    State,
    combined,
)
from graphfw.runtime.numpy_executor.codegen.registers import (
    iota,
    memory,
    register,
    splat,
    vector,
)
from graphfw.runtime.numpy_executor.codegen.streams import Streams
from graphfw.runtime.numpy_executor.codegen.strided import neighbours
from graphfw.runtime.numpy_executor.codegen.target import Processor
from graphfw.runtime.numpy_executor.codegen.writer import Writer

_REGISTER = 128
"""Bits of the smallest vector register."""
_MANY_CALLS = 8
"""With so many functions of the library the rest of a kernel's vectors calls them: written into it
a second time, they would be half of what LLVM compiles."""


def block_shape(kernel: Kernel, target: Processor) -> VectorShape:
    """Return how many elements of the vector axis a kernel computes at once; "rows": the lanes."""
    facts = KernelFacts(kernel)
    rows = kernel.form == "rows"
    return VectorShape(
        lanes_of(facts, target), 1 if rows else vectors_of(facts, facts.statements())
    )


class Nest:
    """The loops of one kernel in one function.

    Attributes:
        kernel: The kernel.
        writer: Of the function.
    """

    def __init__(self, kernel: Kernel, writer: Writer, target: Processor) -> None:
        self.kernel = kernel
        self.writer = writer
        self._facts = KernelFacts(kernel)
        # The vectors at once differ from loop to loop with "rows": see `_inner_rows`.
        self._main = block_shape(kernel, target)
        self._target = target
        self._masked = target.masked
        self._streams: Streams | None = None
        self._past_caches: tuple[Store, ...] = ()
        self._large = target.large
        self._evaluator = Evaluator(self._facts, writer)
        self._transposing = ColumnTransposing(self._evaluator, target, self._main)
        # Where LLVM 22 knows that a mask has one lane, a store of integers that were cut to fewer
        # bits writes all bits that they had before: 4 bytes of a bfloat16. So masks of kernels with
        # such stores are hidden from it.
        stored = [memory(dtype) for dtype in self._facts.stored()]
        self._stores_narrow = not {"i8", "i16", "i32"}.isdisjoint(stored)
        self._line = "0"
        self._is_first = ""
        self._is_last = ""
        # For work items only: what others run through lies in the cache.
        self._prefetch: Prefetch | None = None
        self._lasting: dict[Accumulate, Accumulators] = {}
        self._asks = False

    # Sizes

    def size(self, axis: Axis) -> str:
        """Return the extent of an axis."""
        return self._evaluator.size(axis.extent)

    def product(self, axes: tuple[Axis, ...]) -> str:
        """Write the product of extents."""
        sizes = [self.size(axis) for axis in axes]
        return fold(lambda a, b: self._evaluator.int64("mul", a, b, 0), sizes, "1")

    def int64(self, instruction: str, a: str, b: str) -> str:
        """Write arithmetic of two i64 before all loops."""
        return self._evaluator.int64(instruction, a, b, 0)

    def range_of(self, number: str, size: str, end: str) -> tuple[str, str]:
        """Write where a block of a size begins and ends, at the latest at `end`."""
        begin = self.int64("mul", number, size)
        after = self.int64("add", begin, size)
        return begin, self.writer.call("i64", "llvm.smin.i64", [("i64", after), ("i64", end)], 0)

    # Work items

    def work_item(self, *, asks: bool = False) -> None:
        """Write the work item `%work_item`.

        Args:
            asks: Whether it asks `%run` on the thread `%thread`, in its loops, if it should end.
        """
        self._asks = asks
        block, columns = "%work_item", ("0", self.size(self._vector_axis))
        per_item = self._evaluator.size(self.kernel.per_item)
        if self.kernel.form == "columns":
            count = self._blocks(columns[1], per_item)
            block, others = (self.int64(f"{x}", "%work_item", count) for x in ("urem", "udiv"))
            self._start_outer(self.kernel.outer[:-1], others)
            with self._lasting_sums():
                self.columns(*self.range_of(block, per_item, columns[1]))
            return
        if self.kernel.split is not None:
            split = self._evaluator.size(self.kernel.split)
            count = self._blocks(columns[1], split)
            chunk, block = (self.int64(f"{x}", "%work_item", count) for x in ("urem", "udiv"))
            columns = self.range_of(chunk, split, columns[1])
        rows = self.range_of(block, per_item, self.product(self.kernel.outer))
        copied = copied_buffers(self.kernel)
        if copied is not None:
            rows = rows[0], self._none_if_same(copied, *rows)
        self._line = block
        self._prefetch = Prefetch(self.kernel)
        with self._lasting_sums():
            self.rows(rows, columns)

    def _none_if_same(self, buffers: tuple[int, int], begin: str, end: str) -> str:
        """Write where the rows of a copy end: where they begin, if both buffers are one array."""
        one, other = [self._evaluator.pointer(buffer) for buffer in buffers]
        is_same = self.writer.let(f"icmp eq ptr {one}, {other}", 0)
        return self.writer.let(f"select i1 {is_same}, i64 {begin}, i64 {end}", 0)

    @property
    def _vector_axis(self) -> Axis:
        return (self.kernel.inner if self.kernel.form == "rows" else self.kernel.outer)[-1]

    def _blocks(self, total: str, size: str) -> str:
        rounded = self.int64("add", total, self.int64("sub", size, "1"))
        return self.int64("udiv", rounded, size)

    def rows(self, rows: tuple[str, str], columns: tuple[str, str]) -> None:
        """Write the rows of a range, of each the inner positions of a range."""
        if self._large:
            lanes = self._main.lanes
            self._streams = Streams(self._evaluator, lanes, columns[0], self._large)
        panels = RowPanels(self._evaluator, self._target, self._evaluator.reserve_keeps(1))
        transposing = Transposing(self._evaluator, self._target, rows, columns)
        outer = self.kernel.outer
        slots = self._start_outer(outer, rows[0])
        with self._evaluator.loop("", rows[0], rows[1]):
            for axis, slot in zip(outer, slots, strict=True):
                self._evaluator.index[axis.name] = self.writer.load("i64", slot, 1)
            row = self._evaluator.index[""]
            self._is_first = self.writer.let(f"icmp eq i64 {row}, {rows[0]}", 1)
            following = self._evaluator.int64("add", row, "1", 1)
            self._is_last = self.writer.let(f"icmp eq i64 {following}, {rows[1]}", 1)
            if self._prefetch:  # else nobody has room for panels
                panels.row(self._is_first)
            if not transposing.row(self._is_first):
                self._row(lambda loop: self._inner_rows(loop, columns))
            self._step_outer(outer, slots)
        if self._streams:
            self._streams.finish()

    def columns(self, begin: str, end: str) -> None:
        """Write a block of the last outer axis."""
        self._evaluator.reserve_keeps(self._main.lanes * self._main.vectors)
        for _ in self._vector_loops(begin, end):
            index = self._evaluator.index[self._vector_axis.name]
            self._is_first = self.writer.let(f"icmp eq i64 {index}, {begin}", 1)
            self._row(self._inner_columns)

    def _start_outer(self, axes: tuple[Axis, ...], number: str) -> list[str]:
        """Write where the axes stand at the row of a number; return the variables that say so."""
        slots: list[str] = []
        for at, axis in reversed(list(enumerate(axes))):
            size = self.size(axis)
            index = self.int64("urem", number, size) if at else number
            number = self.int64("udiv", number, size) if at else number
            slots.insert(0, self.writer.slot("i64"))
            self.writer.store("i64", index, slots[0], 0)
            self._evaluator.index[axis.name] = index
        return slots

    def _step_outer(self, axes: tuple[Axis, ...], slots: list[str]) -> None:
        """Write the step to the next row: the last axis, and with each that is through the next."""
        carry = "1"
        for axis, slot in reversed(list(zip(axes, slots, strict=True))):
            index = self._evaluator.int64("add", self._evaluator.index[axis.name], carry, 1)
            through = self.writer.let(f"icmp eq i64 {index}, {self.size(axis)}", 1)
            index = self.writer.let(f"select i1 {through}, i64 0, i64 {index}", 1)
            self.writer.store("i64", index, slot, 1)
            carry = self.writer.let(f"zext i1 {through} to i64", 1)

    def _vector_loops(
        self, begin: str, end: str, streamed: tuple[Store, ...] = ()
    ) -> Iterator[None]:
        """Open, one after the other, the loops of the vector axis: whole steps, then the rest.

        Args:
            begin: The first index.
            end: The one after the last.
            streamed: Stores that go past the caches where they may: then a loop of whole steps of
                its own does all these steps, and the other one none.
        """
        writer, evaluator, axis = self.writer, self._evaluator, self._vector_axis.name
        # With "columns" these go through a work item's columns.
        asks = self._asks and self.kernel.form == "rows"
        level = writer.depth
        slot = writer.slot("i64")
        writer.store("i64", begin, slot, level)
        length = self.int64("sub", end, begin)
        whole_steps, rest = self._steps()
        evaluator.masks = ()
        for evaluator.shape in whole_steps:
            step = evaluator.shape.lanes * evaluator.shape.vectors
            until = self.int64("add", begin, self.int64("and", length, str(-step)))
            if streamed and self._streams:
                condition = self._streams.condition(streamed)
                past = writer.pure(f"select i1 {condition}, i64 {until}, i64 {begin}", 0)
                self._past_caches = streamed
                with evaluator.loop_on(axis, slot, past, str(step), asks=asks):
                    yield
                self._past_caches = ()
            with evaluator.loop_on(axis, slot, until, str(step), asks=asks):
                yield
        if rest is None:
            return
        evaluator.shape = rest
        evaluator.calls = self._facts.library_calls >= _MANY_CALLS
        with evaluator.loop_on(axis, slot, end, str(rest.lanes * rest.vectors)):
            if rest.lanes > 1:
                evaluator.masks = self._masks(end, level + 1)
            yield
        evaluator.masks = ()
        evaluator.calls = False

    def _steps(self) -> tuple[list[VectorShape], VectorShape | None]:
        """Return the shapes of steps, as long as enough elements are left, and the one at the end.

        At the end it is vectors under masks, or else single elements; None if none are left. With
        "columns" each step goes through all rows, so they are few, and not much wider than the end.
        """
        (lanes, vectors), whole = self._main, [self._main]
        columns = self.kernel.form == "columns"
        if not columns and self.kernel.multiple % lanes == 0:
            more = [VectorShape(lanes, 1)] if self.kernel.multiple % (lanes * vectors) else []
            return [*whole, *more], None
        if columns and self._vector_axis.extent == 1:
            return [], VectorShape(1, 1)
        if self._facts.carries and self._masked:
            return whole, VectorShape(lanes, vectors // 2)
        if columns and vectors > 4:
            whole.append(VectorShape(lanes, 4))
        if columns and not self._masked:
            whole.append(VectorShape(lanes, 1))
        if not self._masked:
            return whole, VectorShape(1, 1)
        return whole, VectorShape(lanes, min(vectors, 4) if columns else 1)

    def _masks(self, end: str, level: int) -> Registers:
        """Write for each vector of the rest which lanes are below `end`."""
        left = self.writer.let(
            f"sub nsw i64 {end}, {self._evaluator.index[self._vector_axis.name]}", level
        )
        lanes, vectors = self._evaluator.shape
        operands = [("i64", left), ("i64", str(lanes * vectors))]
        left = self.writer.call("i64", "llvm.smin.i64", operands, level)
        if self._stores_narrow:
            left = self.writer.let(f'call i64 asm "", "=r,0"(i64 {left})', level)
        # As bytes, where they suffice: one comparison serves vectors of all widths. But they have
        # to fill a register: of less than one AVX-512 compares the rest, too, and where LLVM spills
        # that mask, stores of bytes write what it has for lanes that there are none of.
        bits = max(8 if lanes * vectors < 256 else 16, _REGISTER // lanes if lanes > 1 else 0)
        kind = f"i{min(bits, 64)}"
        if kind != "i64":
            left = self.writer.let(f"trunc i64 {left} to {kind}", level)
        limit = self._evaluator.spread(left, kind, level)
        numbers = [iota(kind, lanes, lanes * number) for number in range(vectors)]
        texts = [f"icmp ult <{lanes} x {kind}> {number}, {limit}" for number in numbers]
        return tuple([self.writer.let(text, level) for text in texts])

    # Rows

    def _row(self, inner: Callable[[InnerLoop], None]) -> None:
        for item in in_turn(self.kernel):
            if isinstance(item, InnerLoop):
                inner(item)
            else:
                self._statements(item)

    def _inner_rows(self, loop: InnerLoop, columns: tuple[str, str]) -> None:
        self._main = self._main._replace(vectors=vectors_of(self._facts, loop.body))
        sums = self._row_sums(loop, self._accumulator_lanes(self._main.vectors))
        with ExitStack() as stack:
            for axis in self.kernel.inner[:-1]:
                loop_of = self._evaluator.loop(axis.name, "0", self.size(axis), asks=self._asks)
                stack.enter_context(loop_of)
            streamed = self._streams.stores(loop) if self._streams else ()
            for _ in self._vector_loops(*columns, streamed):
                self._statements(loop.body, sums)
                if self._prefetch and loop is self._prefetch.loop and self._is_whole:
                    self._prefetch.ask(self._evaluator, self._is_last)
        for reduce, accumulators in sums.items():
            state = accumulators.joined(1)
            self._evaluator.set_result(reduce.name, (state[-1],))

    def _inner_columns(self, loop: InnerLoop) -> None:
        lanes, vectors = self._evaluator.shape
        sums = self._row_sums(loop, [lanes] * vectors)
        carrying = CarryVariables(self._evaluator, [s for s in loop.body if isinstance(s, Carry)])
        with ExitStack() as stack:
            for axis in self.kernel.inner:
                loop_of = self._evaluator.loop(axis.name, "0", self.size(axis), asks=self._asks)
                stack.enter_context(loop_of)
            self._transposing.position(loop)
            carrying.take()
            leave_unless(self._evaluator, loop)
            self._statements(loop.body, sums)
            carrying.give()
        carrying.take()
        for reduce, accumulators in sums.items():
            states = [accumulators.state(number, 1) for number in range(vectors)]
            self._evaluator.set_result(reduce.name, tuple([state[-1] for state in states]))

    def _accumulator_lanes(self, vectors: int) -> list[int]:
        """Return the lanes of accumulators for several vectors, and for single elements."""
        main = [self._main.lanes] * vectors
        return main if self._masked else [*main, 1]

    @property
    def _is_whole(self) -> bool:
        """Whether what is at hand are whole vectors."""
        return self._evaluator.shape.lanes > 1 and not self._evaluator.masks

    @property
    def _first_accumulator(self) -> int:
        """Return the number of the accumulator for the first vector, or the element."""
        return self._main.vectors if self._evaluator.shape.lanes == 1 else 0

    def _row_sums(self, loop: InnerLoop, lanes: list[int]) -> dict[Reduce, Accumulators]:
        return {
            statement: Accumulators(
                self.writer, Combiner(statement.kind, statement.value.dtype), lanes, 1
            )
            for statement in loop.body
            if isinstance(statement, Reduce)
        }

    # Statements

    def _statements(
        self, statements: tuple[Statement, ...], sums: dict[Reduce, Accumulators] | None = None
    ) -> None:
        """Write all values, then what is done with them: an output may lie where an input does."""
        evaluator = self._evaluator
        evaluator.evaluate([root for statement in statements for root in roots(statement)])
        together = []
        if self._is_whole:
            together = neighbours(statements, self._vector_axis.name)
        for stores in together:
            beside = [evaluator.vectors(store.value) for store in stores]
            evaluator.store_beside(stores[0].buffer, stores[0].access, beside)
        done = {store for stores in together for store in stores}
        for statement in statements:
            if statement in done:
                continue
            if isinstance(statement, Store):
                self._store(statement)
            elif isinstance(statement, Keep):
                values = evaluator.vectors(statement.value)
                address = evaluator.keep_address(statement.name)
                # The memory of the lanes that are not computed is there, and nobody reads it.
                masked = self.kernel.form == "rows"
                evaluator.store(statement.value.dtype, address, values, masked)
            elif isinstance(statement, Accumulate):
                self._accumulate(statement)
            elif isinstance(statement, BoundsCheck):
                evaluator.check(statement.value, statement.bound)
            elif isinstance(statement, Reduce) and sums is not None:
                self._take(sums[statement], statement)

    def _store(self, store: Store) -> None:
        evaluator = self._evaluator
        address = evaluator.address(store.buffer, store.access)
        varying = self._facts.loop_of(store.value).varying
        if varying and not address.varying:
            raise ValueError("a store whose value differs along vectors, but not its address")
        values = evaluator.vectors(store.value) if address.varying else evaluator.value(store.value)
        dtype = self.kernel.buffers[store.buffer].dtype
        past_caches = store in self._past_caches
        evaluator.store(dtype, address, values, masked=True, past_caches=past_caches)

    def _take(self, accumulators: Accumulators, reduce: Reduce) -> None:
        """Write that the accumulators of a reduction take up the values at hand."""
        # With "columns" they are those of the vectors at hand.
        first = self._first_accumulator if self.kernel.form == "rows" else 0
        states = self._states(reduce, accumulators.combiner)
        accumulators.take(first, states, self._evaluator.masks, self.writer.depth)

    def _states(self, reduce: Reduce, combiner: Combiner) -> list[State]:
        values = self._evaluator.vectors(reduce.value)
        if not combiner.has_position:
            return [(value,) for value in values]
        axis = self.kernel.inner[-1].name
        index, depth = self._evaluator.index[axis], self.writer.depth
        if axis == self._vector_axis.name:
            positions: Registers = self._evaluator.positions(index, depth)
        else:
            positions = (self._evaluator.spread(index, "i64", depth),) * len(values)
        return list(zip(values, positions, strict=True))

    # Partial results

    @contextmanager
    def _lasting_sums(self) -> Iterator[None]:
        """Keep accumulators for the whole work item; at its end store what they have."""
        for item in self.kernel.body:
            lanes = [1]
            if self.kernel.form == "columns":
                lanes = self._accumulator_lanes(self._main.vectors)
            elif isinstance(item, InnerLoop):
                lanes = self._accumulator_lanes(vectors_of(self._facts, item.body))
            for statement in item.body if isinstance(item, InnerLoop) else (item,):
                if isinstance(statement, Accumulate) and not statement.inner:
                    combiner = Combiner(statement.kind, statement.value.dtype)
                    self._lasting[statement] = Accumulators(self.writer, combiner, lanes, 0)
        yield
        for statement, accumulators in self._lasting.items():
            access, first = statement.access, "%work_item"
            address = self._evaluator.address(statement.buffer, access, first=first)
            dtype = self.kernel.buffers[statement.buffer].dtype
            self._evaluator.store(dtype, address, accumulators.joined(0), masked=False)

    def _accumulate(self, statement: Accumulate) -> None:
        if statement.inner:
            self._accumulate_line(statement)
            return
        accumulators, depth = self._lasting[statement], self.writer.depth
        if accumulators.lanes == [1]:
            accumulators.take(0, [self._evaluator.value(statement.value)], (), depth)
            return
        states: list[State] = [(value,) for value in self._evaluator.vectors(statement.value)]
        masks = self._evaluator.masks
        accumulators.take(self._first_accumulator, states, masks, depth)

    def _accumulate_line(self, statement: Accumulate) -> None:
        """Write that the elements of the item's line in the buffer take up the values at hand."""
        evaluator, depth = self._evaluator, self.writer.depth
        dtype = self.kernel.buffers[statement.buffer].dtype
        combiner = Combiner(statement.kind, statement.value.dtype)
        line = "%work_item" if self.kernel.form == "columns" else self._line
        first = self.int64("mul", line, self.product(self.kernel.inner))
        address = evaluator.address(statement.buffer, statement.access, first)
        values = evaluator.vectors(statement.value)
        if self.kernel.form == "columns":
            lanes, masks = evaluator.shape.lanes, evaluator.masks
            values = (combined(self.writer, combiner, values, masks, lanes),)
        lanes = evaluator.shape.lanes if address.varying else 1
        p = Primitives(self.writer, lanes, depth)
        kind, bits = vector(register(dtype), lanes), "i1"
        identity = splat(register(dtype), combiner.identity(), lanes)
        results = []
        for value, old in zip(values, evaluator.load(dtype, address), strict=True):
            # The first row of a work item finds in the buffer what was there before.
            text = f"select {bits} {self._is_first}, {kind} {identity}, {kind} {old}"
            (result,) = combiner.join(p, (p.let(text),), (value,))
            results.append(result)
        evaluator.store(dtype, address, tuple(results), masked=True)
