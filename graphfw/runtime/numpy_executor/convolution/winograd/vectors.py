"""Code for linear maps and transposes of vectors in registers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.codegen.registers import literal, splat
from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import Matrix
from graphfw.runtime.numpy_executor.matmul.packing import transposed_pieces
from graphfw.runtime.numpy_executor.matmul.tile import TileShape


def mapped(
    body: FunctionBody, shape: TileShape, matrix: Matrix, values: Sequence[str]
) -> list[str]:
    """Multiply a matrix with vectors.

    Neighbouring columns that differ in signs only use the sum and the difference of their values.
    Neighbouring rows that do are the sum and the difference of their even and odd elements.
    """
    write = _Sums(body, shape)
    matrix, values = write.columns(matrix, list(values))
    found: list[str] = []
    while len(found) < len(matrix):
        row, after = matrix[len(found)], matrix[len(found) + 1 : len(found) + 2]
        if after and _are_mirrored(row, after[0]):
            found += write.rows(row, after[0], values)
        else:
            found.append(write.total(row, values))
    return found


def mapped_twice(
    body: FunctionBody, shape: TileShape, matrix: Matrix, grid: Iterable[Sequence[str]]
) -> list[tuple[str, ...]]:
    """Multiply `matrix @ grid @ matrix.T`, of a grid of vectors by rows.

    Each row is used before the next is read, so few registers are needed.
    """
    rows = [mapped(body, shape, matrix, row) for row in grid]
    columns = [mapped(body, shape, matrix, column) for column in zip(*rows, strict=True)]
    return list(zip(*columns, strict=True))


def _are_mirrored(one: Sequence[Fraction], other: Sequence[Fraction]) -> bool:
    """Return whether two rows differ in some signs only, not in all."""
    pairs = [(x, y) for x, y in zip(one, other, strict=True) if x or y]
    same = [x == y for x, y in pairs]
    return any(same) and not all(same) and all([x in (y, -y) for x, y in pairs])


def _halves(one: Sequence[Fraction], other: Sequence[Fraction]) -> tuple[list[Fraction], ...]:
    """Return the elements that are equal in two mirrored rows, and those that differ."""
    pairs = list(zip(one, other, strict=True))
    return [x if x == y else Fraction(0) for x, y in pairs], [
        x if x != y else Fraction(0) for x, y in pairs
    ]


class _Sums:
    """Writes sums of multiples of vectors."""

    def __init__(self, body: FunctionBody, shape: TileShape) -> None:
        self.body = body
        self.shape = shape

    def columns(self, matrix: Matrix, values: list[str]) -> tuple[Matrix, list[str]]:
        """Replace values of mirrored columns by their sums and differences."""
        columns, v = list(zip(*matrix, strict=True)), self.shape.vector
        for j in range(len(columns) - 1):
            one, other = columns[j : j + 2]
            if _are_mirrored(one, other):
                x, y = values[j : j + 2]
                values[j] = self.body.let(f"fadd {v} {x}, {y}")
                values[j + 1] = self.body.let(f"fsub {v} {x}, {y}")
                columns[j : j + 2] = map(tuple, _halves(one, other))
        return tuple(zip(*columns, strict=True)), values

    def rows(
        self, one: Sequence[Fraction], other: Sequence[Fraction], values: list[str]
    ) -> list[str]:
        """Return the results of two mirrored rows: even elements plus and minus odd ones."""
        even, odd = _halves(one, other)
        factor = next(x for x in reversed(odd) if x)
        center = self.total(even, values)
        shift = self.total([x / factor for x in odd], values)
        return [self.plus(center, sign * factor, shift) for sign in (1, -1)]

    def total(self, row: Sequence[Fraction], values: list[str]) -> str:
        """Return the sum of the values times a row."""
        terms = [(c, value) for c, value in zip(row, values, strict=True) if c]
        terms.sort(key=lambda term: term[0] != 1)  # it begins with one that is taken as it is
        (factor, total), *rest = terms
        if factor != 1:
            total = self.body.let(f"fmul {self.shape.vector} {self.constant(factor)}, {total}")
        for factor, value in rest:
            total = self.plus(total, factor, value)
        return total

    def plus(self, total: str, factor: Fraction, value: str) -> str:
        """Return a sum plus a multiple of a vector."""
        v = self.shape.vector
        if abs(factor) == 1:
            return self.body.let(f"{'fadd' if factor == 1 else 'fsub'} {v} {total}, {value}")
        return self.body.let(
            f"call {v} @llvm.fmuladd.{self.shape.suffix}"
            f"({v} {self.constant(factor)}, {v} {value}, {v} {total})"
        )

    def constant(self, factor: Fraction) -> str:
        """Return a number in all lanes."""
        shape = self.shape
        return splat(shape.element, literal(float(factor), shape.dtype), shape.lanes)


def transposed(body: FunctionBody, shape: TileShape, registers: Sequence[str]) -> list[str]:
    """Transpose as many registers as a register has lanes.

    First within pieces of 16 bytes, of neighbouring registers; then piece by piece.
    """
    q = 16 // shape.size
    quads = [
        transposed_pieces(body, shape, q, list(registers[first : first + q]))
        for first in range(0, shape.lanes, q)
    ]
    found = [""] * shape.lanes
    for j, column in enumerate(zip(*quads, strict=True)):
        found[j::q] = _pieces(body, shape, q, column)
    return found


def _pieces(
    body: FunctionBody, shape: TileShape, q: int, registers: Sequence[str]
) -> Sequence[str]:
    """Transpose a square of pieces of q elements."""
    v, lanes = shape.vector, shape.lanes
    for _ in range(len(registers).bit_length() - 1):
        halves: list[list[str]] = [[], []]
        for x, y in zip(registers[::2], registers[1::2], strict=True):
            for odd, half in enumerate(halves):
                begins = range(odd * q, 2 * lanes, 2 * q)
                text = ", ".join([f"i32 {begin + i}" for begin in begins for i in range(q)])
                half.append(body.let(f"shufflevector {v} {x}, {v} {y}, <{lanes} x i32> <{text}>"))
        registers = halves[0] + halves[1]
    return registers
