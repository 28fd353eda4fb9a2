"""Matrices in memory, and the writer of functions that go through them group by group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from graphfw.ir.dtype import int64
from graphfw.runtime.numpy_executor.linalg.elements import ElementWriter
from graphfw.runtime.numpy_executor.linalg.vectors import Vector
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
                self._live = self.lanes.one.mask(self, left)
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
        addresses = lanes.one.addresses(self, address, source.apart)
        return lanes.one.gather(self, addresses, self._live)

    def write_element(self, source: Source, row: str, column: str, value: str) -> None:
        """Store an element of each matrix."""
        lanes = self.lanes
        address = self._address(source, row, column)
        if not lanes.many:
            lanes.one.store(self, value, address)
            return
        addresses = lanes.one.addresses(self, address, source.apart)
        lanes.one.scatter(self, value, addresses, self._live)

    def _address(self, source: Source, row: str, column: str) -> str:
        at = self.add(self.mul(row, source.row), self.mul(column, source.column))
        return self.at(self.lanes.one.stored, source.start, at)

    def write_number(self, target: Source, row: str, value: str) -> None:
        """Store a number of each matrix as an i64."""
        wide = Vector(int64, self.lanes.one.lanes)
        if self._number != "i64":
            value = self.let(f"sext {self.number_kind} {value} to {wide.kind}")
        address = self.at("i64", target.start, self.mul(row, target.row))
        if not self.lanes.many:
            wide.store(self, value, address)
            return
        addresses = wide.addresses(self, address, target.apart)
        wide.scatter(self, value, addresses, self._live)
