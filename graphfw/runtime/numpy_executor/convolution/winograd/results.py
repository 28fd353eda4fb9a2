"""`WinogradResultsCode`: the transform of sums of tiles' products to output positions.

    @results(ptr from, i64 gap, i64 plane, i64 rows, i64 columns, i64 height, i64 width,
        i64 outputs, ptr scratch, ptr to, i64 row, i64 line)

transforms `rows` times `columns` tiles of some outputs, at most as many as a vector has lanes.
Element [product, tile, output] is read from `from`, see `layout.Planes`; the first `height` times
`width` positions go to `to`, `row` bytes from row to row, `line` bytes from output to output.

Vectors are outputs; a strip of positions is then transposed.
"""

from __future__ import annotations

from graphfw.runtime.numpy_executor.codegen import FunctionText, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import Algorithm
from graphfw.runtime.numpy_executor.convolution.winograd.vectors import (
    mapped_twice,
    transposed,
)
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.shared_function import SharedFunction
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record


@record
class WinogradResultsCode(SharedFunction):
    """The function, compiled once for all work items."""

    shape: TileShape
    algorithm: Algorithm

    @property
    def types(self) -> str:
        return "ptr, i64, i64, i64, i64, i64, i64, i64, ptr, ptr, i64, i64"

    def scratch(self, rows: int, columns: int) -> int:
        """Return the bytes of its scratch memory."""
        m, lanes = self.algorithm.positions, self.shape.lanes
        positions = rows * m * columns * m + max(m, lanes)
        return positions * lanes * self.shape.size

    def llvm(self, symbol: str) -> str:
        return module([FunctionText(_Results(self).text(symbol), declarations(self.shape), ())])


class _Results:
    """Writes the function."""

    def __init__(self, code: WinogradResultsCode) -> None:
        self.shape = code.shape
        self.algorithm = code.algorithm
        self.body = body = FunctionBody()
        self.elements = Elements(body, self.shape, self.shape.dtype)
        self.line = self.shape.lanes * self.shape.size

    def text(self, symbol: str) -> str:
        """Transform all tiles, then write all positions."""
        body = self.body
        with body.loop(0, "%rows") as row, body.loop(0, "%columns") as number:
            # A tile's positions beyond the last column are at the begin of the next row, which is
            # written later.
            column = body.sub(body.sub("%columns", number), 1)
            self.tile(row, column)
        dense = body.test("eq", "%row", body.mul("%width", self.shape.size))
        runs = body.select(dense, "1", "%height")
        length = body.select(dense, body.mul("%height", "%width"), "%width")
        with body.loop(0, runs) as run:
            strip = body.at("%scratch", body.mul(body.mul(run, "%width"), self.line))
            self.turn(strip, length, body.at("%to", body.mul(run, "%row")))
        return body.function(
            f"define fastcc void @{symbol}(ptr %from, i64 %gap, i64 %plane, i64 %rows, "
            "i64 %columns, i64 %height, i64 %width, i64 %outputs, ptr %scratch, ptr %to, i64 %row, "
            "i64 %line)"
        )

    def tile(self, row: str, column: str) -> None:
        """Transform a tile."""
        body, algorithm = self.body, self.algorithm
        number = body.add(body.mul(row, "%columns"), column)
        source = body.at("%from", body.mul(number, "%gap"))
        n, m = algorithm.size, algorithm.positions
        products = (
            [self.elements.load(body.at(source, body.mul("%plane", i * n + j))) for j in range(n)]
            for i in range(n)
        )
        first = body.add(body.mul(body.mul(row, m), "%width"), body.mul(column, m))
        to = body.at("%scratch", body.mul(first, self.line))
        positions = mapped_twice(body, self.shape, algorithm.of_result, products)
        for i, values in enumerate(positions):
            there = body.at(to, body.mul("%width", i * self.line))
            for j, value in enumerate(values):
                self.elements.store(value, body.at(there, j * self.line))

    def turn(self, strip: str, length: str, to: str) -> None:
        """Write a run of positions, output by output."""
        body, shape = self.body, self.shape
        is_whole = body.test("sge", "%outputs", shape.lanes)
        with body.loop(0, length, shape.lanes) as position:
            here = body.at(strip, body.mul(position, self.line))
            vectors = [self.elements.load(body.at(here, n * self.line)) for n in range(shape.lanes)]
            columns_first = transposed(body, shape, vectors)
            there = body.at(to, body.mul(position, shape.size))
            left = body.sub(length, position)
            is_full = body.let(f"and i1 {is_whole}, {body.test('sge', left, shape.lanes)}")
            with body.where(is_full):
                for output, vector in enumerate(columns_first):
                    self.elements.store(vector, body.at(there, body.mul("%line", output)))
            with body.where(body.opposite(is_full)):
                for output, vector in enumerate(columns_first):
                    is_one = body.test("slt", str(output), "%outputs")
                    mask = self.elements.mask(body.select(is_one, left, "0"))
                    row = body.at(there, body.mul("%line", output))
                    self.elements.store_some(vector, row, mask)
