"""Matrices in scratch memory, and the writer of functions that compute with them.

There are two forms, and one text of each algorithm for both. Where there are many matrices, the
lanes of a vector are elements at the same position of neighbouring matrices. Of a single matrix
they are neighbours in a row. A row is changed from a column on: element by element in the first
form, in whole vectors in the second, which may change what lies after the row's end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.attention.text import LlvmModule
from graphfw.runtime.numpy_executor.codegen.registers import iota, splat, vector
from graphfw.runtime.numpy_executor.special.numbers import Number
from graphfw.runtime.numpy_executor.special.text import BranchWriter


class Lanes:
    """The meaning of the lanes of vectors.

    Attributes:
        dtype: Of the elements: float32 or float64.
        count: How many lanes a vector has.
        many: Whether they are elements of as many matrices, rather than neighbours in a row.
        one: What an element of a matrix is in registers.
        row: What is changed of a row at once.
        step: How many columns that are.
        unit: How many numbers an element takes in scratch memory.
    """

    def __init__(self, dtype: DType, *, many: bool) -> None:
        self.dtype = dtype
        self.count = lanes_of(dtype)
        self.many = many
        self.one = Number(dtype, self.count if many else 1)
        self.row = Number(dtype, self.count)
        self.step = 1 if many else self.count
        self.unit = self.count if many else 1


def lanes_of(dtype: DType) -> int:
    """Return how many elements a vector has: on narrower machines it is several registers."""
    return 64 // dtype.itemsize


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


class MatrixWriter(BranchWriter):
    """The lines of a function that computes with matrices in scratch memory.

    Args:
        module: Where the function goes.
        lanes: What vectors hold.
    """

    def __init__(self, module: LlvmModule, lanes: Lanes) -> None:
        super().__init__(module)
        self.lanes = lanes
        self._truth = vector("i1", lanes.one.lanes)
        self._failed = self.let(f"alloca {self._truth}")
        self._set_truth("false")
        self.width = "0"
        """How many elements lie between rows; to be set before elements are used."""
        self._live = ""

    # Elements.

    def get(self, row: str, column: str) -> str:
        """Return an element."""
        return self.lanes.one.load(self, self._element_address(row, column))

    def put(self, row: str, column: str, value: str) -> None:
        """Set an element."""
        self.lanes.one.store(self, value, self._element_address(row, column))

    def _element_address(self, row: str, column: str) -> str:
        lanes = self.lanes
        element = self.add(self.mul(row, self.width), column)
        return self.at(lanes.one.stored, "%scratch", self.mul(element, str(lanes.unit)))

    def _unary(self, function: str, x: str) -> str:
        one = self.lanes.one
        suffix = f"v{one.lanes}" if one.lanes > 1 else ""
        name = f"llvm.{function}.{suffix}f{8 * self.lanes.dtype.itemsize}"
        return self.call(one.kind, name, (one.kind, x))

    def size_of(self, x: str) -> str:
        """The size of elements, without their signs."""
        return self._unary("fabs", x)

    def sqrt(self, x: str) -> str:
        """The square root of elements."""
        return self._unary("sqrt", x)

    def divide(self, x: str, y: str) -> str:
        """The quotient of elements."""
        return self.let(f"fdiv {self.lanes.one.kind} {x}, {y}")

    def compare(self, how: str, x: str, y: str) -> str:
        """Compare elements; with NaN nothing is true."""
        return self.let(f"fcmp {how} {self.lanes.one.kind} {x}, {y}")

    def choose(self, where: str, x: str, y: str) -> str:
        """One of two elements, by a truth."""
        kind = self.lanes.one.kind
        return self.let(f"select {self._truth} {where}, {kind} {x}, {kind} {y}")

    # Numbers of rows, one for each matrix.

    @property
    def number_kind(self) -> str:
        """LLVM's type of a number for each matrix: as wide as an element."""
        return vector(self._number, self.lanes.one.lanes)

    @property
    def _number(self) -> str:
        return f"i{8 * self.lanes.dtype.itemsize}"

    def number(self, index: str) -> str:
        """The same number for all matrices."""
        bits = 8 * self.lanes.dtype.itemsize
        value = index if bits == 64 else self.let(f"trunc i64 {index} to i{bits}")
        return self._spread(value, self._number, self.lanes.one.lanes)

    def choose_number(self, where: str, x: str, y: str) -> str:
        """One of two numbers, by a truth."""
        kind = self.number_kind
        return self.let(f"select {self._truth} {where}, {kind} {x}, {kind} {y}")

    def same(self, x: str, y: str) -> str:
        """Where numbers are equal."""
        return self.let(f"icmp eq {self.number_kind} {x}, {y}")

    @contextmanager
    def when_any(self, where: str) -> Iterator[None]:
        """Do what is written inside where something is true of any matrix."""
        with self.when(self._any(where)):
            yield

    def _any(self, where: str) -> str:
        lanes = self.lanes.one.lanes
        if lanes == 1:
            return where
        bits = self.let(f"bitcast {self._truth} {where} to i{lanes}")
        return self.let(f"icmp ne i{lanes} {bits}, 0")

    # Failures.

    def refuse(self, where: str) -> None:
        """Let the run fail where something is true of a matrix that there is."""
        if self._live:
            where = self.let(f"and {self._truth} {where}, {self._live}")
        known = self.let(f"load {self._truth}, ptr {self._failed}")
        self._set_truth(self.let(f"or {self._truth} {known}, {where}"))

    def _set_truth(self, value: str) -> None:
        if value == "false":
            value = splat("i1", value, self.lanes.one.lanes)
        self.do(f"store {self._truth} {value}, ptr {self._failed}")

    def finish(self) -> None:
        """End the function: return 1 where a matrix was refused, else 0."""
        failed = self._any(self.let(f"load {self._truth}, ptr {self._failed}"))
        self.do(f"ret i32 {self.let(f'zext i1 {failed} to i32')}")

    # Rows.

    def divide_row(self, row: str, begin: str, end: str, divisor: str) -> None:
        """Divide a row, from a column on."""
        spread = self._in_row(divisor)
        kind = self.lanes.row.kind
        with self.loop(begin, end, self.lanes.step) as column:
            address = self._element_address(row, column.index)
            value = self.lanes.row.load(self, address)
            self.lanes.row.store(self, self.let(f"fdiv {kind} {value}, {spread}"), address)

    def subtract_row(self, row: str, other: str, begin: str, end: str, factor: str) -> None:
        """Subtract a multiple of another row, from a column on."""
        number = self.lanes.row
        spread = self._in_row(self.let(f"fneg {self.lanes.one.kind} {factor}"))
        name = f"llvm.fmuladd.v{number.lanes}f{8 * self.lanes.dtype.itemsize}"
        with self.loop(begin, end, self.lanes.step) as column:
            address = self._element_address(row, column.index)
            known = number.load(self, address)
            more = number.load(self, self._element_address(other, column.index))
            operands = [(number.kind, value) for value in (spread, more, known)]
            number.store(self, self.call(number.kind, name, *operands), address)

    def exchange_rows(self, row: str, other: str, begin: str, end: str, where: str) -> None:
        """Let two rows change places, from a column on, in the matrices of which a truth holds."""
        number = self.lanes.row
        with self.loop(begin, end, self.lanes.step) as column:
            addresses = [self._element_address(r, column.index) for r in (row, other)]
            x, y = [number.load(self, address) for address in addresses]
            for address, new, old in zip(addresses, (y, x), (x, y), strict=True):
                text = f"select {self._truth} {where}, {number.kind} {new}, {number.kind} {old}"
                number.store(self, self.let(text), address)

    def _in_row(self, value: str) -> str:
        """Spread an element over what is changed of a row at once."""
        if self.lanes.many:
            return value
        return self._spread(value, self.lanes.one.kind, self.lanes.count)

    def _spread(self, value: str, kind: str, count: int) -> str:
        if count == 1:
            return value
        if value.isdigit():
            return splat(kind, value, count)
        whole = vector(kind, count)
        first = self.let(f"insertelement {whole} poison, {kind} {value}, i64 0")
        zeros = f"<{count} x i32> zeroinitializer"
        return self.let(f"shufflevector {whole} {first}, {whole} poison, {zeros}")

    # Memory.

    def live(self, left: str) -> None:
        """Say how many matrices are left: lanes beyond these are neither read nor written."""
        if self.lanes.many:
            count = self.lanes.count
            numbers = iota("i64", count)
            every = self._spread(left, "i64", count)
            self._live = self.let(f"icmp slt <{count} x i64> {numbers}, {every}")

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
        arguments = ", ".join([f"{kind} {text}" for kind, text in zip(types, values, strict=True)])
        self.do(f"call void {name}({arguments})")

    @property
    def _suffix(self) -> str:
        count = self.lanes.count
        return f"v{count}f{8 * self.lanes.dtype.itemsize}.v{count}p0"

    def _address(self, source: Source, row: str, column: str) -> str:
        at = self.add(self.mul(row, source.row), self.mul(column, source.column))
        return self.at(self.lanes.one.stored, source.start, at)

    def _pointers(self, source: Source, address: str) -> str:
        """Return the addresses of the elements of neighbouring matrices."""
        count = self.lanes.count
        apart = self._spread(source.apart, "i64", count)
        steps = self.let(f"mul <{count} x i64> {iota('i64', count)}, {apart}")
        kind = self.lanes.one.stored
        return self.let(f"getelementptr {kind}, ptr {address}, <{count} x i64> {steps}")

    def copy_in(self, source: Source, rows: str, columns: str, at: str) -> None:
        """Load matrices: to column `at` of the scratch memory, and after."""
        with self.loop("0", rows) as row, self.loop("0", columns) as column:
            value = self.read_element(source, row.index, column.index)
            self.put(row.index, self.add(column.index, at), value)

    def copy_out(self, target: Source, rows: str, columns: str, at: str) -> None:
        """Store matrices: from column `at` of the scratch memory, and after."""
        with self.loop("0", rows) as row, self.loop("0", columns) as column:
            value = self.get(row.index, self.add(column.index, at))
            self.write_element(target, row.index, column.index, value)
