"""Elements of matrices in scratch memory, and numbers of their rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.numpy_executor.codegen.registers import literal, splat, vector
from graphfw.runtime.numpy_executor.linalg.vectors import Vector, in_all_lanes

_SET = 1024
"""Bytes: rows whose distance is a multiple of it share few places of a cache."""


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
        self.one = Vector(dtype, self.count if many else 1)
        self.row = Vector(dtype, self.count)
        self.step = 1 if many else self.count
        self.unit = self.count if many else 1


def lanes_of(dtype: DType) -> int:
    """Return the number of elements of a vector: on narrower machines it is several registers."""
    return 64 // dtype.itemsize


def row_distance(columns: int, dtype: DType, *, many: bool) -> int:
    """Return the elements from row to row: of a single matrix whole vectors."""
    if many:
        return columns
    lanes = lanes_of(dtype)
    distance = lanes * -(-columns // lanes)
    return distance + (lanes if distance * dtype.itemsize % _SET == 0 else 0)


class ElementWriter(LlvmFunction):
    """The lines of a function that computes with elements of matrices in scratch memory.

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
        """The number of elements from row to row; to be set before elements are used."""
        self._live = ""

    # Elements.

    def get(self, row: str, column: str) -> str:
        """Return an element."""
        return self.lanes.one.load(self, self._slot(row, column))

    def put(self, row: str, column: str, value: str) -> None:
        """Set an element."""
        self.lanes.one.store(self, value, self._slot(row, column))

    def _slot(self, row: str, column: str) -> str:
        lanes = self.lanes
        element = self.add(self.mul(row, self.width), column)
        return self.at(lanes.one.stored, "%scratch", self.mul(element, str(lanes.unit)))

    def size_of(self, x: str) -> str:
        """The size of elements, without their signs."""
        return self.lanes.one.call(self, "fabs", x)

    def sqrt(self, x: str) -> str:
        """The square root of elements."""
        return self.lanes.one.call(self, "sqrt", x)

    def larger(self, x: str, y: str) -> str:
        """The larger element; of NaN and a number the number."""
        return self.lanes.one.call(self, "maxnum", x, y)

    def with_sign(self, x: str, sign: str) -> str:
        """Elements with the signs of others."""
        return self.lanes.one.call(self, "copysign", x, sign)

    def multiply_add(self, x: str, y: str, z: str) -> str:
        """The product of elements, and a sum."""
        return self.lanes.one.multiply_add(self, x, y, z)

    def constant(self, value: float) -> str:
        """The nearest number of the dtype, in all lanes."""
        one = self.lanes.one
        return splat(one.single, literal(value, self.lanes.dtype), one.lanes)

    def divide(self, x: str, y: str) -> str:
        """The quotient of elements."""
        return self.let(f"fdiv {self.lanes.one.kind} {x}, {y}")

    def subtract(self, x: str, y: str) -> str:
        """The difference of elements."""
        return self.let(f"fsub {self.lanes.one.kind} {x}, {y}")

    def negative(self, x: str) -> str:
        """Elements with the other sign."""
        return self.let(f"fneg {self.lanes.one.kind} {x}")

    def compare(self, how: str, x: str, y: str) -> str:
        """Compare elements; with NaN nothing is true."""
        return self.let(f"fcmp {how} {self.lanes.one.kind} {x}, {y}")

    def choose(self, where: str, x: str, y: str) -> str:
        """One of two elements, by a truth."""
        kind = self.lanes.one.kind
        return self.let(f"select {self._truth} {where}, {kind} {x}, {kind} {y}")

    def both(self, x: str, y: str) -> str:
        """The elements in which two truths hold."""
        return self.let(f"and {self._truth} {x}, {y}")

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
        return in_all_lanes(self, value, self._number, self.lanes.one.lanes)

    def choose_number(self, where: str, x: str, y: str) -> str:
        """One of two numbers, by a truth."""
        kind = self.number_kind
        return self.let(f"select {self._truth} {where}, {kind} {x}, {kind} {y}")

    def get_number(self, at: str) -> str:
        """Return one of the numbers in scratch memory, from an element on."""
        align = self.lanes.dtype.itemsize
        return self.let(f"load {self.number_kind}, ptr {self._slot('0', at)}, align {align}")

    def put_number(self, at: str, value: str) -> None:
        """Set one of these numbers."""
        align = self.lanes.dtype.itemsize
        self.do(f"store {self.number_kind} {value}, ptr {self._slot('0', at)}, align {align}")

    def index(self, number: str) -> str:
        """Return the number of a single matrix as an i64."""
        return number if self._number == "i64" else self.let(f"sext i32 {number} to i64")

    def same(self, x: str, y: str) -> str:
        """The elements in which numbers are equal."""
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

    def work_item(self, symbol: str) -> str:
        """Return the module with the function, which returns 1 if it refused a matrix, else 0."""
        failed = self._any(self.let(f"load {self._truth}, ptr {self._failed}"))
        self.leave(f"ret i32 {self.let(f'zext i1 {failed} to i32')}")
        return super().work_item(symbol)
