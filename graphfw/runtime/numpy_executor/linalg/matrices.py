"""Matrices in scratch memory, and the writer of functions that compute with them.

There are two forms, and one text of each algorithm for both. Where there are many matrices, the
lanes of a vector are elements at the same position of neighbouring matrices. Of a single matrix
they are neighbours in a row. A row is changed from a column on: element by element in the first
form, in whole vectors in the second, which may change elements after the row's end.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.runtime.numpy_executor.codegen.registers import iota, vector
from graphfw.runtime.numpy_executor.codegen.target import host
from graphfw.runtime.numpy_executor.linalg.operands import OperandWriter, Source
from graphfw.runtime.numpy_executor.linalg.vectors import Vector, in_all_lanes


class MatrixWriter(OperandWriter):
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
                number.store(self, number.multiply_add(self, factor, more, known), address)

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
                column.following.append(number.multiply_add(self, x, y, known))
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
            size = number.call(self, "fabs", value)
            column.following = [number.call(self, "maxnum", size, column.values[0])]
        return self._across("fmax", column.values[0])

    def divide_below(self, row: str, other: str, k: str, end: str, divisor: str) -> None:
        """Make a row of another's elements after column k, divided, and of zeros before."""
        number = self.lanes.row
        spread = self._in_row(divisor)
        with self.loop("0", end, self.lanes.step) as column:
            value = number.load(self, self._slot(other, column.index))
            value = self.let(f"fdiv {number.kind} {value}, {spread}")
            value = self._where_after(column.index, k, value)
            number.store(self, value, self._slot(row, column.index))

    def largest(self, row: str, k: str, end: str) -> str:
        """Return the number of a row's largest element from column k on, the first of equal ones.

        NaN is larger than nothing, and nothing is larger than a NaN in column k.
        """
        number, kind = self.lanes.row, self._row_numbers
        count = self.lanes.count
        begin = self.aligned(k)
        first = self.size_of(self.get(row, k))
        with_nan = self.let(f"fcmp uno {self.lanes.one.kind} {first}, {first}")
        start = self._spread_number(k)
        least = number.constant(-1)
        with self.loop(
            begin, end, self.lanes.step, carried=[(number.kind, least), (kind, start)]
        ) as column:
            value = number.call(self, "fabs", number.load(self, self._slot(row, column.index)))
            here = self._spread_number(column.index)
            larger = self.let(f"fcmp ogt {number.kind} {value}, {column.values[0]}")
            if not self.lanes.many:
                here = self.let(f"add {kind} {here}, {iota(self._number, count)}")
                for how, bound in (("sge", k), ("slt", end)):
                    bounds = self._spread_number(bound)
                    inside = self.let(f"icmp {how} {kind} {here}, {bounds}")
                    larger = self.let(f"and <{count} x i1> {larger}, {inside}")
            column.following = [
                self.let(f"select <{count} x i1> {larger}, {one} {new}, {one} {column.values[i]}")
                for i, (one, new) in enumerate(((number.kind, value), (kind, here)))
            ]
        size, which = column.values
        if not self.lanes.many:
            most = number.spread(self, self._across("fmax", size))
            same = self.let(f"fcmp oeq {number.kind} {size}, {most}")
            none = self._spread_number(end)
            which = self.let(f"select <{count} x i1> {same}, {kind} {which}, {kind} {none}")
            name = f"llvm.vector.reduce.smin.v{count}{self._number}"
            which = self.call(self._number, name, (kind, which))
        return self.choose_number(with_nan, self.number(k), which)

    @property
    def _row_numbers(self) -> str:
        return vector(self._number, self.lanes.count)

    def _spread_number(self, index: str) -> str:
        """Return the same number in all lanes of a row."""
        bits = 8 * self.lanes.dtype.itemsize
        value = index if bits == 64 else self.let(f"trunc i64 {index} to i{bits}")
        return in_all_lanes(self, value, self._number, self.lanes.count)

    def exchange_columns(self, first: str, last: str, column: str, other: str, where: str) -> None:
        """Exchange elements of two columns in some rows, in the matrices of which a truth holds."""
        with self.loop(first, last) as row:
            x, y = [self.get(row.index, c) for c in (column, other)]
            self.put(row.index, column, self.choose(where, y, x))
            self.put(row.index, other, self.choose(where, x, y))

    def scale_row(self, row: str, begin: str, end: str, divisor: str) -> str:
        """Divide a row from a column on, and return the sum of the squares."""
        number = self.lanes.row
        spread = self._in_row(divisor)
        zero = number.constant(0)
        with self.loop(begin, end, self.lanes.step, carried=[(number.kind, zero)]) as column:
            address = self._slot(row, column.index)
            value = self.let(f"fdiv {number.kind} {number.load(self, address)}, {spread}")
            number.store(self, value, address)
            column.following = [number.multiply_add(self, value, value, column.values[0])]
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
        left = in_all_lanes(self, self.sub(k, column), "i64", count)
        mask = self.let(f"icmp sgt <{count} x i64> {iota('i64', count)}, {left}")
        return self.let(f"select <{count} x i1> {mask}, {kind} {value}, {kind} {zero}")

    def _across(self, how: str, value: str) -> str:
        """Return the sum or the maximum of a row's elements, given those of its vectors."""
        if self.lanes.many:
            return value
        row = self.lanes.row
        return row.sum(self, value) if how == "fadd" else row.reduce(self, how, value)

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
        return value if self.lanes.many else self.lanes.row.spread(self, value)

    # Memory.

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
        with self.loop("0", rows) as row, self.loop("0", columns, count) as column:
            address = self._address(source, row.index, column.index)
            mask = number.mask(self, self.sub(columns, column.index))
            value = number.load_masked(self, address, mask)
            number.store(self, value, self._slot(row.index, self.add(column.index, at)))

    def load_mean(self, source: Source, size: str) -> None:
        """Load the upper triangles of the means of matrices and their transposes."""
        one = self.lanes.one
        half = one.constant(0.5)
        with self.loop("0", size) as row, self.loop(row.index, size) as column:
            above = self.read_element(source, row.index, column.index)
            below = self.read_element(source, column.index, row.index)
            halves = [one.multiply(self, half, x) for x in (above, below)]
            self.put(row.index, column.index, one.add(self, *halves))

    def set_identity(self, size: str, *, first: str = "0", at: str = "0") -> None:
        """Put ones on a diagonal, and zeros around it, from a row and a column on."""
        one = self.lanes.one
        with self.loop("0", size) as row:
            line = self.add(row.index, first)
            with self.loop("0", size) as column:
                self.put(line, self.add(column.index, at), one.constant(0))
            self.put(line, self.add(row.index, at), one.constant(1))

    def copy_transposed_in(self, source: Source, rows: str, columns: str) -> None:
        """Load the transposes of matrices, with zeros up to a whole vector after their rows."""
        if self.lanes.many:
            self._copy_elements_in(source.transposed, columns, rows, "0")
            return
        dense = self.let(f"icmp eq i64 {source.column}, 1")
        with self.when(dense):
            self._copy_squares_in(source, rows, columns)
        with self.when(self.let(f"xor i1 {dense}, true")):
            last = self.aligned(self.sub(rows, "1"))
            with self.loop("0", columns) as column:
                self.fill_row(column.index, last, rows)
            self.copy_in(source.transposed, columns, rows, "0")

    def _copy_squares_in(self, source: Source, rows: str, columns: str) -> None:
        """Load the transpose of a matrix whose rows are contiguous, square by square."""
        side = host().vector_bytes // self.lanes.dtype.itemsize
        square = Vector(self.lanes.dtype, side)
        end = self.whole(rows, self.lanes.count)
        with self.loop("0", end, side) as row, self.loop("0", columns, side) as column:
            left = self.sub(columns, column.index)
            lines = []
            for i in range(side):
                here = self.add(row.index, str(i))
                is_row = self.let(f"icmp slt i64 {here}, {rows}")
                count = self.let(f"select i1 {is_row}, i64 {left}, i64 0")
                address = self._address(source, here, column.index)
                lines.append(square.load_masked(self, address, square.mask(self, count)))
            for i, value in enumerate(self._transposed(square, lines)):
                square.store(self, value, self._slot(self.add(column.index, str(i)), row.index))

    def _transposed(self, number: Vector, lines: Sequence[str]) -> list[str]:
        """Return the columns of a square: bit by bit, what differs there changes places."""
        found, side = list(lines), len(lines)
        bit = 1
        while bit < side:
            for i in range(side):
                if i & bit:
                    continue
                pair = found[i], found[i + bit]
                low = [j if not j & bit else side + j - bit for j in range(side)]
                high = [j + bit if not j & bit else side + j for j in range(side)]
                found[i], found[i + bit] = [
                    self.let(
                        f"shufflevector {number.kind} {pair[0]}, {number.kind} {pair[1]}, "
                        f"<{side} x i32> <{', '.join([f'i32 {j}' for j in order])}>"
                    )
                    for order in (low, high)
                ]
            bit *= 2
        return found

    def copy_upper_out(self, target: Source, rows: str, columns: str) -> None:
        """Store upper triangles whose columns are rows of scratch memory, and zeros below them."""
        with self.loop("0", rows) as row:
            with self.loop("0", self.low(row.index, columns)) as column:
                self.write_element(target, row.index, column.index, self.lanes.one.constant(0))
            with self.loop(row.index, columns) as column:
                value = self.get(column.index, row.index)
                self.write_element(target, row.index, column.index, value)

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
        with self.loop("0", rows) as row, self.loop("0", columns, count) as column:
            here = self._slot(self.add(row.index, first), self.add(column.index, at))
            value = number.load(self, here)
            address = self._address(target, row.index, column.index)
            mask = number.mask(self, self.sub(columns, column.index))
            number.store_masked(self, value, address, mask)
