"""`ImagesCode`: transformed tiles of an image, the left operands of products.

    @images(ptr image, ptr params, i64 down, i64 across, i64 rows, i64 columns, i64 first, i64 last,
        ptr scratch, ptr to, i64 gap, i64 plane)

transforms `rows` times `columns` tiles, from the tile at `down` and `across` on, of the channels
from `first`, a multiple of a vector's lanes, up to `last`. Element [product, tile, channel] goes to
`to`, see `layout.Planes`; the last vector is padded with any numbers.

Vectors are channels, so a strip of the image is transposed first, padded with 0. Then columns are
transformed, which neighbouring tiles share, then rows.
"""

from __future__ import annotations

from graphfw.runtime.numpy_executor.codegen import FunctionText, module
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import Algorithm
from graphfw.runtime.numpy_executor.convolution.winograd.layout import WinogradParams
from graphfw.runtime.numpy_executor.convolution.winograd.vectors import mapped, transposed
from graphfw.runtime.numpy_executor.matmul.elements import Elements, declarations
from graphfw.runtime.numpy_executor.matmul.shared_function import SharedFunction
from graphfw.runtime.numpy_executor.matmul.tile import TileShape
from graphfw.utils.records import record


@record
class ImagesCode(SharedFunction):
    """The function, compiled once for all work items."""

    shape: TileShape
    algorithm: Algorithm

    @property
    def types(self) -> str:
        return "ptr, ptr, i64, i64, i64, i64, i64, i64, ptr, ptr, i64, i64"

    def scratch(self, rows: int, columns: int) -> int:
        """Return the bytes of its scratch memory."""
        here, lanes = self.algorithm, self.shape.lanes
        width = -(-(columns * here.positions + 2) // lanes) * lanes + 1
        return (rows * here.positions + 2 + here.size) * width * lanes * self.shape.size

    def llvm(self, symbol: str) -> str:
        return module([FunctionText(_Images(self).text(symbol), declarations(self.shape), ())])


class _Images:
    """Writes the function."""

    def __init__(self, code: ImagesCode) -> None:
        self.shape = code.shape
        self.algorithm = code.algorithm
        self.body = body = FunctionBody()
        self.elements = Elements(body, self.shape, self.shape.dtype)
        self.line = self.shape.lanes * self.shape.size
        self.height, self.width = (
            body.param(i) for i in (WinogradParams.HEIGHT, WinogradParams.WIDTH)
        )
        self.x_channel, self.x_row = (
            body.mul(body.param(i), self.shape.size)
            for i in (WinogradParams.X_CHANNEL, WinogradParams.X_ROW)
        )

    def text(self, symbol: str) -> str:
        """Go through the channels group by group."""
        body, m, lanes = self.body, self.algorithm.positions, self.shape.lanes
        lines = body.add(body.mul("%rows", m), 2)
        seen = body.add(body.mul("%columns", m), 2)
        # A further cache line between rows keeps a column's positions out of one set of a cache.
        room = body.add(body.mul(body.ceil(seen, lanes), self.line * lanes), self.line)
        columns = body.at("%scratch", body.mul(lines, room))
        with body.loop("%first", "%last", lanes) as channel:
            self.strip(channel, lines, room)
            to = body.at("%to", body.mul(channel, self.shape.size))
            with body.loop(0, "%rows") as row:
                here = body.at("%scratch", body.mul(body.mul(row, m), room))
                self.down(here, columns, room, seen)
                self.across(columns, room, body.at(to, body.mul(row, body.mul("%columns", "%gap"))))
        return body.function(
            f"define fastcc void @{symbol}(ptr %image, ptr %params, i64 %down, i64 %across, "
            "i64 %rows, i64 %columns, i64 %first, i64 %last, ptr %scratch, ptr %to, i64 %gap, "
            "i64 %plane)"
        )

    def strip(self, channel: str, lines: str, room: str) -> None:
        """Pack the elements of tiles and of a group of channels: `[line][column][channel]`."""
        body, size, lanes, m = (
            self.body,
            self.shape.size,
            self.shape.lanes,
            self.algorithm.positions,
        )
        last = body.sub(body.sub("%last", channel), 1)
        image = body.at("%image", body.mul(channel, self.x_channel))
        sources = [
            body.at(image, body.mul(body.min(str(lane), last), self.x_channel))
            for lane in range(lanes)
        ]
        top, left = (
            body.sub(body.mul(first, m), body.param(before))
            for first, before in (
                ("%down", WinogradParams.PADDING_DOWN),
                ("%across", WinogradParams.PADDING_ACROSS),
            )
        )
        with body.loop(0, lines) as line:
            y = body.add(top, line)
            # A negative number is large as an unsigned one.
            width = body.select(body.test("ult", y, self.height), self.width, "0")
            row = body.mul(y, self.x_row)
            to = body.at("%scratch", body.mul(line, room))
            with body.loop(0, body.sub(body.div(room, self.line), 1), lanes) as column:
                x = body.add(left, column)
                outside = self.elements.mask(body.sub("0", x))
                inside = self.elements.mask(body.sub(width, x))
                mask = body.let(f"icmp ugt <{lanes} x i1> {inside}, {outside}")
                offset = body.add(row, body.mul(x, size))
                vectors = [
                    self.elements.load_some(body.at(source, offset), mask) for source in sources
                ]
                there = body.at(to, body.mul(column, self.line))
                for lane, vector in enumerate(transposed(body, self.shape, vectors)):
                    self.elements.store(vector, body.at(there, lane * self.line))

    def down(self, strip: str, to: str, room: str, seen: str) -> None:
        """Transform the columns of a row of tiles."""
        body = self.body
        with body.loop(0, seen) as column:
            offset = body.mul(column, self.line)
            values = self.loaded(body.at(strip, offset), room)
            there = body.at(to, offset)
            for i, value in enumerate(mapped(body, self.shape, self.algorithm.of_image, values)):
                self.elements.store(value, body.at(there, body.mul(room, i)))

    def across(self, columns: str, room: str, to: str) -> None:
        """Transform the rows of a row of tiles."""
        body, algorithm = self.body, self.algorithm
        with body.loop(0, str(algorithm.size)) as i:
            here = body.at(columns, body.mul(i, room))
            first = body.at(to, body.mul(body.mul(i, algorithm.size), "%plane"))
            with body.loop(0, "%columns") as tile:
                offset = body.mul(tile, algorithm.positions * self.line)
                values = self.loaded(body.at(here, offset), str(self.line))
                there = body.at(first, body.mul(tile, "%gap"))
                for j, value in enumerate(mapped(body, self.shape, algorithm.of_image, values)):
                    self.elements.store(value, body.at(there, body.mul("%plane", j)))

    def loaded(self, first: str, gap: str) -> list[str]:
        """Read the elements that a tile sees, along one dim."""
        return [
            self.elements.load(self.body.at(first, self.body.mul(gap, i)))
            for i in range(self.algorithm.size)
        ]
