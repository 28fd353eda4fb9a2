"""Matrices in scratch memory, and the writer of functions that compute with them.

There are two forms, and one text of each algorithm for both. Where there are many matrices, the
lanes of a vector are elements at the same position of neighbouring matrices. Of a single matrix
they are neighbours in a row. A row is changed from a column on: element by element in the first
form, in whole vectors in the second, which may change elements after the row's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphfw.runtime.numpy_executor.codegen.registers import iota, vector
from graphfw.runtime.numpy_executor.linalg.elements import ElementWriter


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


class MatrixWriter(ElementWriter):
    """The lines of a function that computes with matrices in scratch memory."""

    # Rows.

    def divide_row(self, row: str, begin: str, end: str, divisor: str) -> None:
        """Divide a row, from a column on."""
        spread = self._in_row(divisor)
        kind = self.lanes.row.kind
        with self.loop(begin, end, self.lanes.step) as column:
            address = self._slot(row, column.index)
            value = self.lanes.row.load(self, address)
            self.lanes.row.store(self, self.let(f"fdiv {kind} {value}, {spread}"), address)

    def subtract_row(self, row: str, other: str, begin: str, end: str, factor: str) -> None:
        """Subtract a multiple of another row, from a column on."""
        self.subtract_rows([row], other, begin, end, [factor])

    def subtract_rows(
        self, rows: Sequence[str], other: str, begin: str, end: str, factors: Sequence[str]
    ) -> None:
        """Subtract multiples of another row from some rows, from a column on."""
        number = self.lanes.row
        kind = self.lanes.one.kind
        spread = [self._in_row(self.let(f"fneg {kind} {factor}")) for factor in factors]
        with self.loop(begin, end, self.lanes.step) as column:
            more = number.load(self, self._slot(other, column.index))
            for row, factor in zip(rows, spread, strict=True):
                address = self._slot(row, column.index)
                known = number.load(self, address)
                number.store(self, self._multiply_add(factor, more, known), address)

    def dot_rows(self, rows: Sequence[str], other: str, begin: str, end: str) -> list[str]:
        """Return the products of some rows with another row, from a column on.

        Elements after the rows' ends count, too, up to a whole vector.
        """
        number = self.lanes.row
        zero = number.constant(0)
        with self.loop(
            begin, end, self.lanes.step, carried=[(number.kind, zero)] * len(rows)
        ) as column:
            y = number.load(self, self._slot(other, column.index))
            for row, known in zip(rows, column.values, strict=True):
                x = number.load(self, self._slot(row, column.index))
                column.following.append(self._multiply_add(x, y, known))
        return [self._across("fadd", total) for total in column.values]

    def copy_below(self, row: str, other: str, k: str, end: str) -> str:
        """Make a row of another's elements after column k, zeros before; return their largest size.

        That of NaN is left out.
        """
        number = self.lanes.row
        zero = number.constant(0)
        with self.loop("0", end, self.lanes.step, carried=[(number.kind, zero)]) as column:
            value = number.load(self, self._slot(other, column.index))
            value = self._where_after(column.index, k, value)
            number.store(self, value, self._slot(row, column.index))
            size = self._row_call("fabs", value)
            column.following = [self._row_call("maxnum", size, column.values[0])]
        return self._across("fmax", column.values[0])

    def scale_row(self, row: str, begin: str, end: str, divisor: str) -> str:
        """Divide a row from a column on, and return the sum of the squares."""
        number = self.lanes.row
        spread = self._in_row(divisor)
        zero = number.constant(0)
        with self.loop(begin, end, self.lanes.step, carried=[(number.kind, zero)]) as column:
            address = self._slot(row, column.index)
            value = self.let(f"fdiv {number.kind} {number.load(self, address)}, {spread}")
            number.store(self, value, address)
            column.following = [self._multiply_add(value, value, column.values[0])]
        return self._across("fadd", column.values[0])

    def multiply_row(self, row: str, begin: str, end: str, factor: str) -> None:
        """Multiply a row, from a column on."""
        number = self.lanes.row
        spread = self._in_row(factor)
        with self.loop(begin, end, self.lanes.step) as column:
            address = self._slot(row, column.index)
            number.store(self, number.multiply(self, number.load(self, address), spread), address)

    def fill_row(self, row: str, begin: str, end: str) -> None:
        """Make a row's elements 0 from a column on, up to a whole vector."""
        number = self.lanes.row
        with self.loop(begin, end, self.lanes.step) as column:
            number.store(self, number.constant(0), self._slot(row, column.index))

    def aligned(self, column: str) -> str:
        """Return the last column up to this one at which a vector of a row begins."""
        return column if self.lanes.many else self.let(f"and i64 {column}, {-self.lanes.step}")

    def _where_after(self, column: str, k: str, value: str) -> str:
        """Return the elements after column k of what a row has from a column on, else zeros."""
        kind, count = self.lanes.row.kind, self.lanes.count
        zero = self.lanes.row.constant(0)
        if self.lanes.many:
            return self.lanes.row.choose(self, self.let(f"icmp sgt i64 {column}, {k}"), value, zero)
        left = self._spread(self.sub(k, column), "i64", count)
        mask = self.let(f"icmp sgt <{count} x i64> {iota('i64', count)}, {left}")
        return self.let(f"select <{count} x i1> {mask}, {kind} {value}, {kind} {zero}")

    def _across(self, how: str, value: str) -> str:
        """Return the sum or the maximum of a row's elements, given those of its vectors."""
        if self.lanes.many:
            return value
        number = self.lanes.row
        name = f"llvm.vector.reduce.{how}.v{number.lanes}f{8 * self.lanes.dtype.itemsize}"
        if how != "fadd":
            return self.call(self.lanes.one.kind, name, (number.kind, value))
        kind = self.lanes.one.kind
        symbol = self.module.declare(kind, name, kind, number.kind)
        zero = self.lanes.one.constant(0)
        return self.let(f"call reassoc {kind} {symbol}({kind} {zero}, {number.kind} {value})")

    def _multiply_add(self, x: str, y: str, z: str) -> str:
        return self._row_call("fmuladd", x, y, z)

    def _row_call(self, function: str, *values: str) -> str:
        number = self.lanes.row
        name = f"llvm.{function}.v{number.lanes}f{8 * self.lanes.dtype.itemsize}"
        return self.call(number.kind, name, *[(number.kind, value) for value in values])

    def exchange_rows(self, row: str, other: str, begin: str, end: str, where: str) -> None:
        """Exchange two rows, from a column on, in the matrices of which a truth holds."""
        number = self.lanes.row
        with self.loop(begin, end, self.lanes.step) as column:
            addresses = [self._slot(r, column.index) for r in (row, other)]
            x, y = [number.load(self, address) for address in addresses]
            for address, new, old in zip(addresses, (y, x), (x, y), strict=True):
                text = f"select {self._truth} {where}, {number.kind} {new}, {number.kind} {old}"
                number.store(self, self.let(text), address)

    def _in_row(self, value: str) -> str:
        """Spread an element over what is changed of a row at once."""
        if self.lanes.many:
            return value
        return self._spread(value, self.lanes.one.kind, self.lanes.count)

    # Memory.

    def live(self, left: str) -> None:
        """Say how many matrices are left: lanes beyond these are neither read nor written."""
        if self.lanes.many:
            self._live = self._mask(left)

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

    def copy_in(self, source: Source, rows: str, columns: str, at: str) -> None:
        """Load matrices into scratch memory, from its column `at` on."""
        if self.lanes.many:
            self._copy_elements_in(source, rows, columns, at)
            return
        dense = self.let(f"icmp eq i64 {source.column}, 1")
        with self.when(dense):
            self._copy_rows_in(source, rows, columns, at)
        with self.when(self.let(f"xor i1 {dense}, true")):
            self._copy_elements_in(source, rows, columns, at)

    def _copy_elements_in(self, source: Source, rows: str, columns: str, at: str) -> None:
        # Of a single matrix these are columns that are contiguous, mostly.
        with self.loop("0", columns) as column, self.loop("0", rows) as row:
            value = self.read_element(source, row.index, column.index)
            self.put(row.index, self.add(column.index, at), value)

    def _copy_rows_in(self, source: Source, rows: str, columns: str, at: str) -> None:
        """Load a matrix whose rows are contiguous, vector by vector."""
        number, count = self.lanes.row, self.lanes.count
        size = 8 * self.lanes.dtype.itemsize
        with self.loop("0", rows) as row, self.loop("0", columns, count) as column:
            mask = self._mask(self.sub(columns, column.index))
            value = self.call(
                number.kind,
                f"llvm.masked.load.v{count}f{size}.p0",
                ("ptr", self._address(source, row.index, column.index)),
                ("i32", str(self.lanes.dtype.itemsize)),
                (f"<{count} x i1>", mask),
                (number.kind, "zeroinitializer"),
            )
            number.store(self, value, self._slot(row.index, self.add(column.index, at)))

    def copy_out(self, target: Source, rows: str, columns: str, at: str, first: str = "0") -> None:
        """Store matrices of scratch memory, from its column `at` and its row `first` on."""
        if self.lanes.many:
            self._copy_elements_out(target, rows, columns, at, first)
            return
        dense = self.let(f"icmp eq i64 {target.column}, 1")
        with self.when(dense):
            self._copy_rows_out(target, rows, columns, at, first)
        with self.when(self.let(f"xor i1 {dense}, true")):
            self._copy_elements_out(target, rows, columns, at, first)

    def _copy_elements_out(
        self, target: Source, rows: str, columns: str, at: str, first: str
    ) -> None:
        with self.loop("0", rows) as row, self.loop("0", columns) as column:
            value = self.get(self.add(row.index, first), self.add(column.index, at))
            self.write_element(target, row.index, column.index, value)

    def _copy_rows_out(self, target: Source, rows: str, columns: str, at: str, first: str) -> None:
        """Store a matrix whose rows are contiguous, vector by vector."""
        number, count = self.lanes.row, self.lanes.count
        size = 8 * self.lanes.dtype.itemsize
        types = (number.kind, "ptr", "i32", f"<{count} x i1>")
        name = self.module.declare("void", f"llvm.masked.store.v{count}f{size}.p0", *types)
        with self.loop("0", rows) as row, self.loop("0", columns, count) as column:
            here = self._slot(self.add(row.index, first), self.add(column.index, at))
            values = (
                number.load(self, here),
                self._address(target, row.index, column.index),
                str(self.lanes.dtype.itemsize),
                self._mask(self.sub(columns, column.index)),
            )
            pairs = zip(types, values, strict=True)
            self.do(f"call void {name}({', '.join([f'{kind} {text}' for kind, text in pairs])})")

    def _mask(self, left: str) -> str:
        """Return which lanes of a vector are among so many elements."""
        count = self.lanes.count
        every = self._spread(left, "i64", count)
        return self.let(f"icmp slt <{count} x i64> {iota('i64', count)}, {every}")

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
