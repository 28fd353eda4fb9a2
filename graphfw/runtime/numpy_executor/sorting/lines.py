"""Lines between memory and a thread's own: of each line an element in a lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction
from graphfw.runtime.numpy_executor.codegen.transpose import transposed
from graphfw.runtime.numpy_executor.sorting.keys import LaneKeys
from graphfw.runtime.numpy_executor.sorting.network import Network

Way: TypeAlias = Literal["along", "across"]
"""The arrangement of lines: neighbours in memory are elements of one line, or of several."""


class Lines(NamedTuple):
    """Some lines in memory, as many as a vector has lanes, or fewer.

    Attributes:
        start: The address of the first element of the first line.
        along: The distance of a line's elements, in elements.
        across: That of lines.
        number: How many lines there are.
        size: How many elements a line has.
        left: How many elements there are from the first one on, where the last lines are not all
            there; "" where they are.
    """

    start: str
    along: str
    across: str
    number: str
    size: str
    left: str = ""

    def element(self, f: LlvmFunction, keys: LaneKeys, line: str, index: str) -> str:
        """Return the address of an element; the last line stands for those after it."""
        known = f.low(line, f.sub(self.number, "1"))
        offset = f.add(f.mul(known, self.across), f.mul(index, self.along))
        return f.at(keys.single, self.start, offset)


class LineCopies:
    """Writes copies of lines.

    Args:
        f: The writer.
        keys: What elements are.
        network: Where they are sorted.
    """

    def __init__(self, f: LlvmFunction, keys: LaneKeys, network: Network) -> None:
        self._f = f
        self._keys = keys
        self._network = network

    def read(self, lines: Lines, way: Way) -> None:
        """Copy lines to the thread's memory."""
        f, keys, network = self._f, self._keys, self._network
        is_fast = self._is_fast(lines, way)
        with f.when(is_fast):
            if way == "across":
                with f.loop("0", lines.size) as n:
                    address = lines.element(f, keys, "0", n.index)
                    network.put(n.index, self._load(address))
            else:
                with f.loop("0", lines.size, keys.lanes) as square:
                    begin = self._begin(lines, square.index)
                    rows = [self._loaded(lines, str(lane), begin) for lane in range(keys.lanes)]
                    for lane, column in enumerate(transposed(f.let, keys.kind, keys.lanes, rows)):
                        network.put(f.add(begin, str(lane)), column)
        with (
            f.when(f.let(f"xor i1 {is_fast}, true")),
            f.loop("0", lines.size) as n,
            f.loop("0", str(keys.lanes)) as each,
        ):
            self._move(lines.element(f, keys, each.index, n.index), self._lane(n.index, each.index))

    def write(self, lines: Lines, way: Way, *, decodes: bool) -> None:
        """Copy sorted lines back, as elements or as keys."""
        f, keys, network = self._f, self._keys, self._network

        def value(index: str) -> str:
            key = network.get(index)
            return keys.decoded(f, key) if decodes else key

        is_fast = self._is_fast(lines, way)
        with f.when(is_fast):
            if way == "across":
                with f.loop("0", lines.size) as n:
                    self._store(value(n.index), lines.element(f, keys, "0", n.index))
            else:
                with f.loop("0", lines.size, keys.lanes) as square:
                    begin = self._begin(lines, square.index)
                    columns = [value(f.add(begin, str(lane))) for lane in range(keys.lanes)]
                    rows = transposed(f.let, keys.kind, keys.lanes, columns)
                    for lane, row in enumerate(rows):
                        self._store(row, lines.element(f, keys, str(lane), begin))
        with f.when(f.let(f"xor i1 {is_fast}, true")), f.loop("0", lines.size) as n:
            network.put(n.index, value(n.index))
            with f.loop("0", lines.number) as each:
                address = lines.element(f, keys, each.index, n.index)
                self._move(self._lane(n.index, each.index), address)

    def keep_zeros(self, lines: Lines) -> None:
        """Write the zeros of each line in the order that they have in memory."""
        f, keys = self._f, self._keys
        with f.loop("0", str(keys.lanes)) as line:

            def put(index: str, element: str) -> None:
                address, key = self._lane(index, line.index), keys.encoded(f, element, 1)
                f.do(f"store {keys.single} {key}, ptr {address}, align {keys.dtype.itemsize}")

            keep_zeros(f, keys, lines, line.index, put)

    def _is_fast(self, lines: Lines, way: Way) -> str:
        """Return whether whole vectors are copied."""
        f, lanes = self._f, str(self._keys.lanes)
        number = lines.size if way == "along" else lines.number
        return f.let(f"icmp sge i64 {number}, {lanes}")

    def _begin(self, lines: Lines, index: str) -> str:
        """Return where a square of elements begins: the last one has some of that before it."""
        return self._f.low(index, self._f.sub(lines.size, str(self._keys.lanes)))

    def _loaded(self, lines: Lines, line: str, begin: str) -> str:
        """Load a vector of elements of one line."""
        f, keys = self._f, self._keys
        address = lines.element(f, keys, line, begin)
        if not lines.left:
            return self._load(address)
        offset = f.add(f.mul(line, lines.across), begin)
        mask, kind = keys.before(f, f.sub(lines.left, offset)), keys.kind
        bits = f"<{keys.lanes} x i1>"
        align = str(keys.dtype.itemsize)
        name = f"llvm.masked.load.v{keys.lanes}{keys.single}.p0"
        arguments = (("ptr", address), ("i32", align), (bits, mask), (kind, keys.last()))
        return f.call(kind, name, *arguments)

    def _load(self, address: str) -> str:
        align = self._keys.dtype.itemsize
        return self._f.let(f"load {self._keys.kind}, ptr {address}, align {align}")

    def _store(self, value: str, address: str) -> None:
        align = self._keys.dtype.itemsize
        self._f.do(f"store {self._keys.kind} {value}, ptr {address}, align {align}")

    def _lane(self, index: str, lane: str) -> str:
        """Return the address of a lane of a vector in the thread's memory."""
        f, lanes = self._f, str(self._keys.lanes)
        return f.at(self._keys.single, "%scratch", f.add(f.mul(index, lanes), lane))

    def _move(self, source: str, target: str) -> None:
        f, kind, align = self._f, self._keys.single, self._keys.dtype.itemsize
        value = f.let(f"load {kind}, ptr {source}, align {align}")
        f.do(f"store {kind} {value}, ptr {target}, align {align}")


def keep_zeros(
    f: LlvmFunction, keys: LaneKeys, lines: Lines, line: str, put: Callable[[str, str], None]
) -> None:
    """Write the zeros of a line in the order that they have in memory.

    Args:
        f: The writer.
        keys: What elements are.
        lines: Where the line is.
        line: Its number.
        put: Writes an element at an index of the sorted line.
    """

    def element(index: str) -> str:
        address = lines.element(f, keys, line, index)
        return f.let(f"load {keys.single}, ptr {address}, align {keys.dtype.itemsize}")

    with f.loop("0", lines.size, carried=[("i64", "0")]) as n:
        is_below = keys.is_below_zero(f, keys.encoded(f, element(n.index), 1))
        n.following = [f.add(n.values[0], f.let(f"zext i1 {is_below} to i64"))]
    with f.loop("0", lines.size, carried=[("i64", n.values[0])]) as n:
        x = element(n.index)
        is_zero = keys.is_zero(f, keys.encoded(f, x, 1))
        with f.when(is_zero):
            put(n.values[0], x)
        n.following = [f.add(n.values[0], f.let(f"zext i1 {is_zero} to i64"))]
