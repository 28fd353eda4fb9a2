"""Operands of dot products of pairs: two positions of k side by side in one word of four bytes.

`vdpbf16ps` adds to each lane of float32 the products of two pairs of bfloat16. Panels of `b` are
`[panel][pair][two vectors of words]`, see `packing`; an `a` with contiguous rows is read
directly, any other is copied to words. Where k is odd the last pair has a 0.

The instruction takes subnormal numbers for 0 and makes none.
"""

from __future__ import annotations

from graphfw.ir.dtype import bfloat16, float32
from graphfw.runtime.numpy_executor.codegen.function_body import FunctionBody
from graphfw.runtime.numpy_executor.matmul.elements import Elements
from graphfw.runtime.numpy_executor.matmul.packing import Layout, address_of_column, ahead, columns
from graphfw.runtime.numpy_executor.matmul.tile import TileShape

_ITEM, _WORD = 2, 4
"""The bytes of an element, and of a pair."""


def pair_right(symbol: str, shape: TileShape, layout: Layout) -> str:
    """Return the function that packs a layout, under a name; its arguments are `packing`'s."""
    body = FunctionBody()
    {"rows": _rows, "columns": _columns, "other": _elements}[layout](body, shape)
    return body.function(
        f"define fastcc void @{symbol}(ptr %b, i64 %ks, i64 %ns, ptr %to, i64 %gap, i64 %n, "
        "i64 %columns)"
    )


class _Rows:
    """Mixes vectors of two rows: twice as many elements as there are lanes, then as many words."""

    def __init__(self, body: FunctionBody, shape: TileShape) -> None:
        self.body = body
        self.lanes = shape.columns
        self.elements = Elements(body, shape._replace(lanes=self.lanes), bfloat16)
        self.words = Elements(body, shape, float32)
        self._kind = f"<{self.lanes} x i16>"

    def mixed(self, address: str, gap: str, both: str, mask: str) -> list[str]:
        """Return two vectors of words, of a mask's lanes; the second row is 0 unless `both`."""
        body, bits = self.body, self.elements.mask_type
        second = body.let(f"select i1 {both}, {bits} {mask}, {bits} zeroinitializer")
        addresses = address, body.at(address, gap)
        for row in addresses:
            ahead(body, row, body.mul(gap, 2))
        x, y = (self.elements.moved(*of) for of in zip(addresses, (mask, second), strict=True))
        vectors = []
        for half in range(2):
            begin = half * self.lanes // 2
            order = [begin + i + other for i in range(self.lanes // 2) for other in (0, self.lanes)]
            text = ", ".join([f"i32 {i}" for i in order])
            pairs = body.let(
                f"shufflevector {self._kind} {x}, {self._kind} {y}, <{self.lanes} x i32> <{text}>"
            )
            vectors.append(body.let(f"bitcast {self._kind} {pairs} to <{self.lanes // 2} x float>"))
        return vectors


def _rows(body: FunctionBody, shape: TileShape) -> None:
    """Pack two rows at a time, panel by panel; panels are padded with 0."""
    rows, width = _Rows(body, shape), shape.columns
    with body.loop(0, body.ceil("%n", 2)) as pair:
        row = body.at("%b", body.mul(pair, body.mul("%ks", 2)))
        both = body.test("slt", body.add(body.mul(pair, 2), 1), "%n")
        to = body.at("%to", body.mul(pair, width * _WORD))
        with body.loop(0, "%columns", width) as column:
            here = body.at(row, body.mul(column, _ITEM))
            mask = rows.elements.mask(body.sub("%columns", column))
            address = body.at(to, body.mul(body.div(column, width), "%gap"))
            for n, words in enumerate(rows.mixed(here, "%ks", both, mask)):
                rows.words.store(words, body.at(address, n * shape.lanes * _WORD))


def _columns(body: FunctionBody, shape: TileShape) -> None:
    """Transpose pairs, which are words in memory; then pack the last row of an odd k."""
    pairs = body.div("%n", 2)
    columns(body, shape, Elements(body, shape, float32, align=_ITEM), pairs)
    with body.where(body.test("ne", body.rem("%n", 2), 0)), body.loop(0, "%columns") as column:
        source = body.at(body.at("%b", body.mul(column, "%ns")), body.mul(pairs, _WORD))
        to = body.at(address_of_column(body, shape, column), body.mul(pairs, shape.columns * _WORD))
        _single(body, source, to)


def _single(body: FunctionBody, source: str, to: str) -> None:
    """Make a pair of one element."""
    one = body.let(f"zext i16 {body.let(f'load i16, ptr {source}')} to i32")
    body.line(f"store i32 {one}, ptr {to}")


def _elements(body: FunctionBody, shape: TileShape) -> None:
    """Pack column by column."""
    with body.loop(0, "%columns") as column:
        start = body.at("%b", body.mul(column, "%ns"))
        _spread(
            body,
            start,
            "%ks",
            "%n",
            (address_of_column(body, shape, column), shape.columns * _WORD),
        )


def _spread(body: FunctionBody, start: str, gap: str, n: str, to: tuple[str, str | int]) -> None:
    """Make words of elements, pair by pair; `to` is where they go, and the bytes between them."""
    pairs = body.div(n, 2)
    with body.loop(0, pairs) as pair:
        source = body.at(start, body.mul(pair, body.mul(gap, 2)))
        address = body.at(to[0], body.mul(pair, to[1]))
        for number, item in enumerate((source, body.at(source, gap))):
            value = body.let(f"load i16, ptr {item}")
            body.line(f"store i16 {value}, ptr {body.at(address, number * _ITEM)}")
    with body.where(body.test("ne", body.rem(n, 2), 0)):
        source = body.at(start, body.mul(pairs, body.mul(gap, 2)))
        _single(body, source, body.at(to[0], body.mul(pairs, to[1])))


def pair_left(symbol: str, shape: TileShape) -> str:
    """Return the function, under a name, that makes words of a matrix.

        @pair_left(ptr a, i64 rs, i64 ks, ptr to, i64 rows, i64 n)

    They lie row by row where the elements of a row do, else pair by pair, the rows side by side.
    """
    body = FunctionBody()
    dense = body.test("eq", "%ks", _ITEM)
    side_by_side = body.test("eq", "%rs", _ITEM)
    with body.where(dense):
        _padded(body, shape)
    with body.where(body.let(f"and i1 {side_by_side}, {body.opposite(dense)}")):
        _rows_of_a(body, shape)
    neither = body.let(f"or i1 {side_by_side}, {dense}")
    with body.where(body.opposite(neither)), body.loop(0, "%rows") as row:
        start = body.at("%a", body.mul(row, "%rs"))
        to = body.at("%to", body.mul(row, _WORD))
        _spread(body, start, "%ks", "%n", (to, body.mul("%rows", _WORD)))
    return body.function(
        f"define fastcc void @{symbol}(ptr %a, i64 %rs, i64 %ks, ptr %to, i64 %rows, i64 %n)"
    )


def _padded(body: FunctionBody, shape: TileShape) -> None:
    """Copy rows; a 0 follows one of odd length."""
    elements = Elements(body, shape._replace(lanes=shape.columns), bfloat16)
    even = body.mul(body.ceil("%n", 2), 2)
    with body.loop(0, "%rows") as row:
        source = body.at("%a", body.mul(row, "%rs"))
        to = body.at("%to", body.mul(row, body.mul(even, _ITEM)))
        with body.loop(0, "%n", shape.columns) as k:
            offset = body.mul(k, _ITEM)
            bits = elements.moved(body.at(source, offset), elements.mask(body.sub("%n", k)))
            elements.move(bits, body.at(to, offset), elements.mask(body.sub(even, k)))


def _rows_of_a(body: FunctionBody, shape: TileShape) -> None:
    """Mix two positions of k; the rows' elements of a position are neighbours."""
    rows = _Rows(body, shape)
    with body.loop(0, body.ceil("%n", 2)) as pair:
        both = body.test("slt", body.add(body.mul(pair, 2), 1), "%n")
        source = body.at("%a", body.mul(pair, body.mul("%ks", 2)))
        to = body.at("%to", body.mul(pair, body.mul("%rows", _WORD)))
        with body.loop(0, "%rows", shape.columns) as row:
            left = body.sub("%rows", row)
            here = body.at(source, body.mul(row, _ITEM))
            address = body.at(to, body.mul(row, _WORD))
            for n, words in enumerate(rows.mixed(here, "%ks", both, rows.elements.mask(left))):
                at = body.at(address, n * shape.lanes * _WORD)
                rows.words.store_some(words, at, rows.words.mask(left, n))
