"""Solving with a triangle of any size for a few right-hand sides.

The lanes of vectors are neighbours in a row or a column of the matrix, whichever is contiguous:

- of rows, some are multiplied at once with what is known of the solution,
- of columns, some are subtracted at once from what is left of the right-hand side.

Then the few rows are solved for, which the triangle on the diagonal connects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule, OpenLoop
from graphfw.runtime.numpy_executor.codegen.numbers import Number
from graphfw.runtime.numpy_executor.codegen.target import AVX512, host
from graphfw.runtime.numpy_executor.linalg.vectors import Vector
from graphfw.runtime.numpy_executor.linalg.views import read_views

FEW = 4
"""Right-hand sides that are solved for like this: there are more lanes in a row than of them."""

NAMES = ("size",)
"""Of the rows of a matrix."""


class ColumnCode:
    """Solves with triangles for a few columns, a work item for each matrix.

    Operands: output, matrices, right-hand sides. Params: `NAMES`, then `VIEW` for each operand.

    Args:
        dtype: Of all operands.
        columns: How many right-hand sides there are: 1 to `FEW`.
        upper: Whether the triangles are upper ones.
        unit: Whether the diagonal is taken as ones.
        by_columns: Whether columns of matrices are contiguous, not rows.
    """

    def __init__(
        self, dtype: DType, columns: int, *, upper: bool, unit: bool, by_columns: bool
    ) -> None:
        self._dtype = dtype
        self._columns = columns
        self._upper = upper
        self._unit = unit
        self._by_columns = by_columns
        bits = host().vector_bytes
        self._lanes = bits // dtype.itemsize
        # Each row and each column has a sum in registers: half of them.
        self._rows = (8, 8, 4, 4)[columns - 1] // (1 if bits == AVX512.vector_bytes else columns)
        self._rows = max(2, 1 << (self._rows.bit_length() - 1))
        self._one = Number(dtype)
        self._row = Vector(dtype, self._lanes)

    @property
    def key(self) -> str:
        traits = f"{self._columns} {self._upper} {self._unit} {self._by_columns} {self._lanes}"
        return f"triangle columns {self._dtype.name} {traits}"

    def llvm(self, symbol: str) -> str:
        f = LlvmFunction(LlvmModule())
        failed = f.let("alloca i1")
        f.do(f"store i1 false, ptr {failed}")
        size = f.read("%params", 0)
        starts, strides = [], []
        for number, (offset, apart, row, across) in enumerate(read_views(f, len(NAMES), 3)):
            first = f.add(offset, f.mul("%work_item", apart))
            starts.append(self._at(f, f.operand(number), first))
            strides.append((row, across))
        target, matrix, side = starts
        # A column after the other.
        held = [
            self._at(f, "%scratch", f.mul(size, str(column))) for column in range(self._columns)
        ]
        with f.loop("0", size) as each:
            for column, own in enumerate(held):
                value = self._element(f, side, each.index, str(column), strides[2])
                self._one.store(f, value, self._at(f, own, each.index))
        far = strides[1][1 if self._by_columns else 0]
        for rows in self._blocks(f, size):
            lines = [self._at(f, matrix, f.mul(row, far)) for row in rows]
            begin, end = self._others(f, rows, size)
            left = [[self._one.load(f, self._at(f, own, row)) for row in rows] for own in held]
            if not self._by_columns:
                products = self._products(f, lines, held, begin, end)
                left = [
                    [
                        f.let(f"fsub {self._one.kind} {x}, {product}")
                        for x, product in zip(own, known, strict=True)
                    ]
                    for own, known in zip(left, products, strict=True)
                ]
            self._solve(f, rows, lines, left, failed)
            for column, (own, found) in enumerate(zip(held, left, strict=True)):
                for row, value in zip(rows, found, strict=True):
                    self._one.store(f, value, self._at(f, own, row))
                    at = f.add(f.mul(row, strides[0][0]), f.mul(str(column), strides[0][1]))
                    self._one.store(f, value, self._at(f, target, at))
            if self._by_columns:
                self._subtract(f, lines, left, held, begin, end)
        result = f.let(f"load i1, ptr {failed}")
        f.leave(f"ret i32 {f.let(f'zext i1 {result} to i32')}")
        return f.work_item(symbol)

    def _blocks(self, f: LlvmFunction, size: str) -> Iterator[list[str]]:
        """Open loops over rows in the order in which they are solved for, some at once."""
        whole = f.let(f"and i64 {size}, {-self._rows}")
        for begin, end, count in (("0", whole, self._rows), (whole, size, 1)):
            with f.loop(begin, end, count, asks=True) as block:
                rows = [f.add(block.index, str(i)) for i in range(count)]
                last = f.sub(size, "1")
                yield [f.sub(last, row) for row in rows] if self._upper else rows

    def _others(self, f: LlvmFunction, rows: Sequence[str], size: str) -> tuple[str, str]:
        """Return between which rows others are: known ones, or ones that are left."""
        after = self._upper != self._by_columns
        if after:
            return f.add(rows[0] if self._upper else rows[-1], "1"), size
        return "0", rows[-1] if self._upper else rows[0]

    def _products(
        self, f: LlvmFunction, lines: Sequence[str], held: Sequence[str], begin: str, end: str
    ) -> list[list[str]]:
        """Return, for each column, the products of parts of rows and of what is known."""
        sums = [self._row.constant(0)] * (len(lines) * len(held))
        for loop, mask in self._vectors(f, begin, end, sums):
            elements = [self._load(f, self._at(f, line, loop.index), mask) for line in lines]
            totals = iter(loop.values)
            for own in held:
                known = self._load(f, self._at(f, own, loop.index), mask)
                loop.following += [
                    self._row.multiply_add(f, element, known, next(totals)) for element in elements
                ]
            sums = loop.values
        found = [self._row.sum(f, total) for total in sums]
        return [found[i : i + len(lines)] for i in range(0, len(found), len(lines))]

    def _subtract(
        self,
        f: LlvmFunction,
        lines: Sequence[str],
        found: Sequence[Sequence[str]],
        held: Sequence[str],
        begin: str,
        end: str,
    ) -> None:
        """Subtract, from each column, multiples of parts of the matrix's columns."""
        factors = [
            [self._row.spread(f, f.let(f"fneg {self._one.kind} {x}")) for x in own] for own in found
        ]
        for loop, mask in self._vectors(f, begin, end, []):
            elements = [self._load(f, self._at(f, line, loop.index), mask) for line in lines]
            for own, multiples in zip(held, factors, strict=True):
                address = self._at(f, own, loop.index)
                left = self._load(f, address, mask)
                for element, factor in zip(elements, multiples, strict=True):
                    left = self._row.multiply_add(f, element, factor, left)
                self._store(f, left, address, mask)

    def _solve(
        self,
        f: LlvmFunction,
        rows: Sequence[str],
        lines: Sequence[str],
        left: Sequence[list[str]],
        failed: str,
    ) -> None:
        """Solve for rows, given what is left of their right-hand sides; these are replaced."""
        kind = self._one.kind
        for number, row in enumerate(rows):
            if not self._unit:
                pivot = self._one.load(f, self._at(f, lines[number], row))
                zero = f.let(f"fcmp oeq {kind} {pivot}, {self._one.constant(0)}")
                known = f.let(f"load i1, ptr {failed}")
                f.do(f"store i1 {f.let(f'or i1 {known}, {zero}')}, ptr {failed}")
                for own in left:
                    own[number] = f.let(f"fdiv {kind} {own[number]}, {pivot}")
            less = [f.let(f"fneg {kind} {own[number]}") for own in left]
            name = f"llvm.fmuladd.f{8 * self._dtype.itemsize}"
            for other in range(number + 1, len(rows)):
                line, at = (number, other) if self._by_columns else (other, number)
                element = self._one.load(f, self._at(f, lines[line], rows[at]))
                for own, factor in zip(left, less, strict=True):
                    operands = [(kind, x) for x in (element, factor, own[other])]
                    own[other] = f.call(kind, name, *operands)

    # What it is made of.

    def _vectors(
        self, f: LlvmFunction, begin: str, end: str, carried: Sequence[str]
    ) -> Iterator[tuple[OpenLoop, str]]:
        """Open loops over elements, vector by vector, then over what is left, with its mask."""
        lanes = self._lanes
        count = f.high(f.sub(end, begin), "0")
        whole = f.add(begin, f.let(f"and i64 {count}, {-lanes}"))
        values = list(carried)
        for first, last in ((begin, whole), (whole, end)):
            pairs = [(self._row.kind, value) for value in values]
            with f.loop(first, last, lanes, carried=pairs) as loop:
                mask = self._row.mask(f, f.sub(end, loop.index)) if first is whole else ""
                yield loop, mask
            values = loop.values

    def _element(
        self, f: LlvmFunction, base: str, row: str, column: str, strides: tuple[str, str]
    ) -> str:
        at = f.add(f.mul(row, strides[0]), f.mul(column, strides[1]))
        return self._one.load(f, self._at(f, base, at))

    def _load(self, f: LlvmFunction, address: str, mask: str) -> str:
        if not mask:
            return self._row.load(f, address)
        return self._row.load_masked(f, address, mask)

    def _store(self, f: LlvmFunction, value: str, address: str, mask: str) -> None:
        if not mask:
            self._row.store(f, value, address)
            return
        self._row.store_masked(f, value, address, mask)

    def _at(self, f: LlvmFunction, base: str, index: str) -> str:
        return f.at(self._one.stored, base, index)
