"""Solving with a triangle of any size: four rows at a time, of some right-hand sides.

Right-hand sides are in scratch memory, in vectors along the columns. The rows above are subtracted
from four rows while these are in registers, then the four from one another. An upper triangle is a
lower one whose rows and columns are counted from the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction, LlvmModule
from graphfw.runtime.numpy_executor.codegen.numbers import Number
from graphfw.runtime.numpy_executor.linalg.elements import lanes_of
from graphfw.runtime.numpy_executor.linalg.vectors import Vector
from graphfw.runtime.numpy_executor.linalg.views import read_views

ROWS = 4
"""Rows that are solved for at once: as many chains of additions that wait for themselves."""

NAMES = ("size", "columns", "block", "blocks")
"""Of the rows of a matrix; of right-hand sides, how many of them a work item has, and of such
blocks."""


class TriangleCode:
    """Solves with lower triangles.

    Operands: output, matrices, right-hand sides. Params: `NAMES`, then `VIEW` for each operand; the
    columns of the output are contiguous.

    Args:
        dtype: Of all operands.
        unit: Whether the diagonal is taken as ones.
        vectors: So many vectors of right-hand sides are in registers, where there are so many.
    """

    def __init__(self, dtype: DType, *, unit: bool, vectors: int) -> None:
        self._dtype = dtype
        self._unit = unit
        self._vectors = vectors
        self._lanes = lanes_of(dtype)
        self._one = Number(dtype)
        self._row = Vector(dtype, self._lanes)

    @property
    def key(self) -> str:
        return f"triangle {self._dtype.name} {self._unit} {self._vectors}"

    def llvm(self, symbol: str) -> str:
        f = LlvmFunction(LlvmModule())
        failed = f.let("alloca i1")
        f.do(f"store i1 false, ptr {failed}")
        n = f.read_sizes(NAMES)
        views = read_views(f, len(NAMES), 3)
        matrix = f.div("%work_item", n["blocks"])
        left = f.mul(f.rem("%work_item", n["blocks"]), n["block"])
        columns = f.low(n["block"], f.sub(n["columns"], left))
        starts = []
        for number, (offset, apart, _, column) in enumerate(views):
            first = f.add(offset, f.mul(matrix, apart))
            if number != 1:
                first = f.add(first, f.mul(left, column))
            starts.append(f.at(self._one.stored, f.operand(number), first))
        strides = [(row, column) for _, _, row, column in views]
        is_wide = f.let(f"icmp sgt i64 {columns}, {self._lanes}")
        for vectors, taken in (
            (1, f.let(f"xor i1 {is_wide}, true")),
            (self._vectors, is_wide),
        ):
            with f.when(taken):
                self._solve(f, n["size"], columns, starts, strides, failed, vectors)
        result = f.let(f"load i1, ptr {failed}")
        f.leave(f"ret i32 {f.let(f'zext i1 {result} to i32')}")
        return f.work_item(symbol)

    def _solve(
        self,
        f: LlvmFunction,
        size: str,
        columns: str,
        starts: Sequence[str],
        strides: Sequence[tuple[str, str]],
        failed: str,
        vectors: int,
    ) -> None:
        """Solve for columns that fit so many vectors."""
        result, matrix, sides = starts
        masks = [self._row.mask(f, columns, v * self._lanes) for v in range(vectors)]
        self._load(f, size, sides, strides[2], masks)
        whole = f.let(f"and i64 {size}, {-ROWS}")
        for begin, end, count in (("0", whole, ROWS), (whole, size, 1)):
            with f.loop(begin, end, count, asks=True) as block:
                rows = [f.add(block.index, str(i)) for i in range(count)]
                lines = [f.at(self._one.stored, matrix, f.mul(r, strides[1][0])) for r in rows]
                sums = self._subtracted(f, rows, lines, strides[1][1], vectors)
                for number, row in enumerate(rows):
                    here = sums[number]
                    if not self._unit:
                        pivot = self._element(f, lines[number], row, strides[1][1])
                        self._check(f, pivot, failed)
                        spread = self._spread(f, pivot)
                        kind = self._row.kind
                        here = [f.let(f"fdiv {kind} {x}, {spread}") for x in here]
                    for other in range(number + 1, count):
                        element = self._element(f, lines[other], row, strides[1][1])
                        factor = self._spread(f, element, negative=True)
                        sums[other] = [
                            self._row.multiply_add(f, factor, x, y)
                            for x, y in zip(here, sums[other], strict=True)
                        ]
                    line = f.at(self._one.stored, result, f.mul(row, strides[0][0]))
                    for v, (x, mask) in enumerate(zip(here, masks, strict=True)):
                        self._row.store(f, x, self._slot(f, row, v, vectors))
                        self._row.store_masked(f, x, self._after(f, line, v), mask)

    def _subtracted(
        self,
        f: LlvmFunction,
        rows: Sequence[str],
        lines: Sequence[str],
        column: str,
        vectors: int,
    ) -> list[list[str]]:
        """Return rows of right-hand sides from which what is known has been subtracted."""
        kind = self._row.kind
        sums = [
            self._row.load(f, self._slot(f, row, v, vectors))
            for row in rows
            for v in range(vectors)
        ]
        with f.loop("0", rows[0], carried=[(kind, x) for x in sums]) as known:
            xs = [self._row.load(f, self._slot(f, known.index, v, vectors)) for v in range(vectors)]
            for number, line in enumerate(lines):
                element = self._element(f, line, known.index, column)
                factor = self._spread(f, element, negative=True)
                known.following += [
                    self._row.multiply_add(f, factor, x, known.values[number * vectors + v])
                    for v, x in enumerate(xs)
                ]
        found = known.values
        return [found[i : i + vectors] for i in range(0, len(found), vectors)]

    # What it is made of.

    def _load(
        self,
        f: LlvmFunction,
        size: str,
        sides: str,
        strides: tuple[str, str],
        masks: Sequence[str],
    ) -> None:
        """Copy right-hand sides to scratch memory; what there is not is 0."""
        row_stride, column_stride = strides
        dense = f.let(f"icmp eq i64 {column_stride}, 1")
        for taken, is_dense in ((dense, True), (f.let(f"xor i1 {dense}, true"), False)):
            with f.when(taken), f.loop("0", size) as row:
                line = f.at(self._one.stored, sides, f.mul(row.index, row_stride))
                for v, mask in enumerate(masks):
                    if is_dense:
                        value = self._row.load_masked(f, self._after(f, line, v), mask)
                    else:
                        first = v * self._lanes
                        addresses = self._row.addresses(f, line, column_stride, first)
                        value = self._row.gather(f, addresses, mask)
                    self._row.store(f, value, self._slot(f, row.index, v, len(masks)))

    def _slot(self, f: LlvmFunction, row: str, vector: int, vectors: int) -> str:
        """Return where a vector of a row is in scratch memory."""
        at = f.add(f.mul(row, str(vectors * self._lanes)), str(vector * self._lanes))
        return f.at(self._one.stored, "%scratch", at)

    def _after(self, f: LlvmFunction, line: str, vector: int) -> str:
        return f.at(self._one.stored, line, str(vector * self._lanes))

    def _element(self, f: LlvmFunction, line: str, at: str, column: str) -> str:
        return self._one.load(f, f.at(self._one.stored, line, f.mul(at, column)))

    def _check(self, f: LlvmFunction, pivot: str, failed: str) -> None:
        is_zero = f.let(f"fcmp oeq {self._one.kind} {pivot}, {self._one.constant(0)}")
        known = f.let(f"load i1, ptr {failed}")
        f.do(f"store i1 {f.let(f'or i1 {known}, {is_zero}')}, ptr {failed}")

    def _spread(self, f: LlvmFunction, value: str, *, negative: bool = False) -> str:
        if negative:
            value = f.let(f"fneg {self._one.kind} {value}")
        return self._row.spread(f, value)
