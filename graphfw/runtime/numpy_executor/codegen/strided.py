"""Vectors of elements that lie a few elements apart: dense loads and stores, and shuffles.

A gather reads one element after the other. The elements of a vector whose stride is s lie in s
dense vectors, of which shuffles take them. Vectors that are stored in turn, as the components of
complex numbers are, are s dense vectors, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.runtime.kernels.ir import Size, Store
from graphfw.runtime.numpy_executor.codegen.addresses import Address, Registers, symbol_of
from graphfw.runtime.numpy_executor.codegen.facts import VectorShape
from graphfw.runtime.numpy_executor.codegen.registers import iota, vector
from graphfw.runtime.numpy_executor.codegen.transpose import Let, transposed
from graphfw.runtime.numpy_executor.codegen.writer import Writer

NEAR = 8
"""Elements that are farther apart are gathered."""


def is_near(stride: str) -> bool:
    """Return whether a stride is a number, and few dense loads read the elements of a vector."""
    return stride.removeprefix("-").isdigit() and 0 < abs(int(stride)) <= NEAR


def load(
    writer: Writer,
    element: str,
    align: int,
    lanes: int,
    pointers: str,
    stride: int,
    mask: str,
    level: int,
) -> str:
    """Write the load of a vector; nothing is read beyond its first and its last element.

    Args:
        writer: Writes it.
        element: LLVM's type of an element in memory.
        align: Of an element, in bytes.
        lanes: How many elements.
        pointers: Their addresses.
        stride: How far apart they are, in elements; not 0.
        mask: Which of the first lanes are loaded; empty: all.
        level: Where it is written.
    """
    lowest = lanes - 1 if stride < 0 else 0
    text = f"extractelement {vector('ptr', lanes)} {pointers}, i64 {lowest}"
    start = writer.pure(text, level)
    step, kind = abs(stride), vector(element, lanes)
    wanted = _Wanted(writer, lanes, stride, mask, level) if mask else None
    found, taken = "poison", 0
    while taken < lanes:
        # The last dense vector ends with the last element, so it may overlap the one before.
        begin = min(taken * step, (lanes - 1) * (step - 1))
        until = min(lanes, (begin + lanes - 1) // step + 1)
        address = writer.pure(f"getelementptr {element}, ptr {start}, i64 {begin}", level)
        if wanted:
            left = (kind, "zeroinitializer")
            operands = [("ptr", address), ("i32", str(align)), wanted.mask(begin), left]
            where = Address((address,), False, True, level)
            symbol = symbol_of(where, "gather", "load", lanes, element)
            dense = writer.call(kind, symbol, operands, level)
        else:
            dense = writer.let(f"load {kind}, ptr {address}, align {align}", level)
        picked = [
            str(lane if lane < taken else lanes + lane * step - begin) if lane < until else "poison"
            for lane in range(lanes)
        ]
        if stride < 0 and until == lanes:
            picked.reverse()
        pattern = ", ".join([f"i32 {lane_number}" for lane_number in picked])
        text = f"shufflevector {kind} {found}, {kind} {dense}, <{lanes} x i32> <{pattern}>"
        found, taken = writer.pure(text, level), until
    return found


class _Wanted:
    """The elements of dense vectors that are the first lanes of a strided one.

    Args:
        writer: Writes it.
        lanes: How many a vector has.
        stride: How far apart lanes are, in elements.
        mask: The lanes: the first ones.
        level: Where it is written.
    """

    def __init__(self, writer: Writer, lanes: int, stride: int, mask: str, level: int) -> None:
        self._writer, self._lanes, self._level = writer, lanes, level
        bits = writer.pure(f"bitcast <{lanes} x i1> {mask} to i{lanes}", level)
        count = writer.call(f"i{lanes}", f"llvm.ctpop.i{lanes}", [(f"i{lanes}", bits)], level)
        if lanes != 32:
            text = f"{'zext' if lanes < 32 else 'trunc'} i{lanes} {count} to i32"
            count = writer.pure(text, level)
        # Of backward strides the last lane is the lowest one.
        self._compare = "sle" if stride > 0 else "sge"
        ends = f"{count}, 1" if stride > 0 else f"{lanes}, {count}"
        end = writer.pure(f"sub i32 {ends}", level)
        bound = writer.pure(f"mul i32 {end}, {abs(stride)}", level)
        kind = vector("i32", lanes)
        one = writer.pure(f"insertelement {kind} poison, i32 {bound}, i64 0", level)
        order = f"<{lanes} x i32> zeroinitializer"
        self._bound = writer.pure(f"shufflevector {kind} {one}, {kind} poison, {order}", level)

    def mask(self, begin: int) -> tuple[str, str]:
        """Write the mask of the dense vector that begins at an element."""
        numbers = iota("i32", self._lanes, begin)
        text = f"icmp {self._compare} {vector('i32', self._lanes)} {numbers}, {self._bound}"
        return vector("i1", self._lanes), self._writer.pure(text, self._level)


def neighbours(statements: Sequence[object], axis: str) -> list[list[Store]]:
    """Return the stores that fill rows together, element by element of each row in order.

    Args:
        statements: What is done at a position.
        axis: The axis along vectors.
    """
    rows: dict[tuple[int, tuple[tuple[str, Size], ...]], dict[int, Store]] = {}
    for one in statements:
        if isinstance(one, Store) and not one.access.terms and isinstance(one.access.offset, int):
            key = one.buffer, one.access.strides
            rows.setdefault(key, {})[one.access.offset] = one
    found = []
    for (_, strides), stores in rows.items():
        width = dict(strides).get(axis)
        if isinstance(width, int) and width > 1 and sorted(stores) == [*range(width)]:
            found.append([stores[lane_number] for lane_number in range(width)])
    return found


def store(
    writer: Writer,
    element: str,
    align: int,
    lanes: int,
    pointers: str,
    values: Sequence[str],
    level: int,
) -> None:
    """Write the stores of vectors whose elements lie beside one another in turn.

    Args:
        writer: Writes them.
        element: LLVM's type of an element in memory.
        align: Of an element, in bytes.
        lanes: How many elements each vector has.
        pointers: The addresses of the first vector's elements.
        values: The vectors.
        level: Where they are written.
    """
    start = writer.pure(f"extractelement {vector('ptr', lanes)} {pointers}, i64 0", level)
    for number, row in enumerate(_interleaved(writer, element, lanes, values, level)):
        pointer = f"getelementptr {element}, ptr {start}, i64 {number * lanes}"
        address = writer.pure(pointer, level)
        writer.line(f"store {vector(element, lanes)} {row}, ptr {address}, align {align}", level)


def _interleaved(
    writer: Writer, element: str, lanes: int, values: Sequence[str], level: int
) -> list[str]:
    """Write vectors of the elements of others in turn: as many dense ones as there are values."""
    count, kind = len(values), vector(element, lanes)

    def let(text: str) -> str:
        return writer.pure(text, level)

    if count == lanes:
        return transposed(let, kind, lanes, values)
    if count % 2:
        return [_woven(let, kind, lanes, values, number) for number in range(count)]
    if count == 2:
        halves = [[value] for value in values]
    else:
        halves = [_interleaved(writer, element, lanes, values[n::2], level) for n in range(2)]
    in_turn = [f"i32 {lane // 2 + lanes * (lane % 2)}" for lane in range(2 * lanes)]
    orders = [", ".join(in_turn[begin : begin + lanes]) for begin in (0, lanes)]
    return [
        let(f"shufflevector {kind} {a}, {kind} {b}, <{lanes} x i32> <{order}>")
        for a, b in zip(*halves, strict=True)
        for order in orders
    ]


def _woven(let: Let, kind: str, lanes: int, values: Sequence[str], number: int) -> str:
    """Write the `number`-th vector of the elements of others in turn."""
    sources = [divmod(number * lanes + lane, len(values)) for lane in range(lanes)]
    result = "poison"
    for value, content in enumerate(values):
        taken = [
            lanes + row if of == value else lane if of < value else None
            for lane, (row, of) in enumerate(sources)
        ]
        order = ", ".join(["i32 poison" if n is None else f"i32 {n}" for n in taken])
        result = let(f"shufflevector {kind} {result}, {kind} {content}, <{lanes} x i32> <{order}>")
    return result


def split(writer: Writer, element: str, shape: VectorShape, row: str, level: int) -> Registers:
    """Write the vectors that a longer one is made of."""
    lanes, vectors = shape
    kind = vector(element, lanes * vectors)
    texts = [
        f"shufflevector {kind} {row}, {kind} poison, <{lanes} x i32> "
        + iota("i32", lanes, lanes * number)
        for number in range(vectors)
    ]
    return tuple([writer.pure(text, level) for text in texts])
