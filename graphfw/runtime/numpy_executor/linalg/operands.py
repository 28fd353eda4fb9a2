"""Matrices in memory, and the writer of functions that go through them group by group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from graphfw.runtime.numpy_executor.codegen.registers import iota, vector
from graphfw.runtime.numpy_executor.linalg.elements import ElementWriter
from graphfw.runtime.numpy_executor.linalg.views import read_views


class Source(NamedTuple):
    """Matrices in memory.

    Attributes:
        start: The address of the first element of the first matrix of a group.
        apart: The distance of matrices, in elements.
        row: That of rows.
        column: That of columns.
    """

    start: str
    apart: str
    row: str
    column: str

    @property
    def transposed(self) -> Source:
        """The transposes of the matrices."""
        return self._replace(row=self.column, column=self.row)


class OperandWriter(ElementWriter):
    """The lines of a function whose operands are matrices, and which computes in scratch memory."""

    def read_sizes(self, names: Sequence[str]) -> dict[str, str]:
        """Load the first params, by their names."""
        return {name: self.read("%params", i) for i, name in enumerate(names)}

    @contextmanager
    def groups(
        self,
        n: Mapping[str, str],
        kinds: Sequence[str],
        *,
        item: str = "%work_item",
        columns: Sequence[str] = (),
    ) -> Iterator[list[Source]]:
        """Go through the matrices of a work item, as many at once as lanes are for.

        Args:
            n: The first params: with the `count` of matrices, and how many are taken `together` by
                a work item. `VIEW` of each operand comes after them.
            kinds: LLVM's types of the operands' elements.
            item: The number of the matrices' work item, where some work items share them.
            columns: From which column on an operand is read or written, if not from the first.

        Yields:
            The operands.
        """
        views = read_views(self, len(n), len(kinds))
        arrays = [self.operand(i) for i in range(len(kinds))]
        begin = self.mul(item, n["together"])
        end = self.low(self.add(begin, n["together"]), n["count"])
        with self.loop(begin, end, self.lanes.unit) as group:
            left = self.sub(n["count"], group.index)
            if self.lanes.many:  # lanes beyond these are neither read nor written
                self._live = self._mask(left)
            found = []
            for number, (offset, apart, row, column) in enumerate(views):
                first = self.add(offset, self.mul(group.index, apart))
                if columns and columns[number] != "0":
                    first = self.add(first, self.mul(columns[number], column))
                start = self.at(kinds[number], arrays[number], first)
                found.append(Source(start, apart, row, column))
            yield found

    def read_element(self, source: Source, row: str, column: str) -> str:
        """Load an element of each matrix."""
        lanes = self.lanes
        address = self._address(source, row, column)
        if not lanes.many:
            return lanes.one.load(self, address)
        kind, suffix = lanes.one.kind, self._suffix
        pointers = self._pointers(source, address)
        return self.call(
            kind,
            f"llvm.masked.gather.{suffix}",
            (f"<{lanes.count} x ptr>", pointers),
            ("i32", str(lanes.dtype.itemsize)),
            (f"<{lanes.count} x i1>", self._live),
            (kind, "zeroinitializer"),
        )

    def write_element(self, source: Source, row: str, column: str, value: str) -> None:
        """Store an element of each matrix."""
        lanes = self.lanes
        address = self._address(source, row, column)
        if not lanes.many:
            lanes.one.store(self, value, address)
            return
        mask = f"<{lanes.count} x i1>"
        pointers = self._pointers(source, address)
        types = (lanes.one.kind, f"<{lanes.count} x ptr>", "i32", mask)
        name = self.module.declare("void", f"llvm.masked.scatter.{self._suffix}", *types)
        values = (value, pointers, str(lanes.dtype.itemsize), self._live)
        operands = ", ".join([f"{kind} {text}" for kind, text in zip(types, values, strict=True)])
        self.do(f"call void {name}({operands})")

    @property
    def _suffix(self) -> str:
        count = self.lanes.count
        return f"v{count}f{8 * self.lanes.dtype.itemsize}.v{count}p0"

    def _address(self, source: Source, row: str, column: str) -> str:
        at = self.add(self.mul(row, source.row), self.mul(column, source.column))
        return self.at(self.lanes.one.stored, source.start, at)

    def _pointers(self, source: Source, address: str, kind: str = "") -> str:
        """Return the addresses of the elements of neighbouring matrices."""
        count = self.lanes.count
        apart = self._spread(source.apart, "i64", count)
        steps = self.let(f"mul <{count} x i64> {iota('i64', count)}, {apart}")
        kind = kind or self.lanes.one.stored
        return self.let(f"getelementptr {kind}, ptr {address}, <{count} x i64> {steps}")

    def write_number(self, target: Source, row: str, value: str) -> None:
        """Store a number of each matrix as an i64."""
        count = self.lanes.one.lanes
        if self._number != "i64":
            value = self.let(f"sext {self.number_kind} {value} to {vector('i64', count)}")
        address = self.at("i64", target.start, self.mul(row, target.row))
        if count == 1:
            self.do(f"store i64 {value}, ptr {address}")
            return
        types = (f"<{count} x i64>", f"<{count} x ptr>", "i32", f"<{count} x i1>")
        pointers = self._pointers(target, address, "i64")
        name = self.module.declare("void", f"llvm.masked.scatter.v{count}i64.v{count}p0", *types)
        values = (value, pointers, "8", self._live)
        operands = ", ".join([f"{kind} {text}" for kind, text in zip(types, values, strict=True)])
        self.do(f"call void {name}({operands})")

    def _mask(self, left: str, count: int = 0) -> str:
        """Return the mask of the lanes of a vector that are among so many elements."""
        count = count or self.lanes.count
        every = self._spread(left, "i64", count)
        return self.let(f"icmp slt <{count} x i64> {iota('i64', count)}, {every}")
