"""`FunctionBody`: a `Writer` for functions that count and branch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from graphfw.ir.dtype import DType
from graphfw.runtime.numpy_executor.codegen.packed import Packed
from graphfw.runtime.numpy_executor.codegen.primitives import Primitives
from graphfw.runtime.numpy_executor.codegen.writer import WORK_ITEM, Writer


class FunctionBody:
    """The lines of a function body. Values are names or numbers; integers are i64."""

    def __init__(self) -> None:
        self._writer = Writer()

    def line(self, text: str) -> None:
        """Add a line."""
        self._writer.line(text, self._writer.depth)

    def let(self, text: str) -> str:
        """Add an instruction and return the name of its result."""
        return self._writer.let(text, self._writer.depth)

    def primitives(self, lanes: int) -> Primitives:
        """Return the writer of conversions between memory and registers."""
        return Primitives(self._writer, lanes, self._writer.depth)

    def packed(self, dtype: DType) -> Packed:
        """Return the writer of loads of elements smaller than a byte."""
        return Packed(self._writer, self._writer.depth, dtype)

    @property
    def declarations(self) -> dict[str, str]:
        """The declarations of the functions that `call` and `primitives` use, by symbol."""
        return self._writer.declarations

    def call(self, result: str, symbol: str, arguments: list[tuple[str, str]]) -> str:
        """Call a function of LLVM; arguments are pairs of type and value."""
        return self._writer.call(result, symbol, arguments, self._writer.depth)

    def add(self, x: str, y: str | int) -> str:
        """Return x + y."""
        return x if y == 0 else self.let(f"add nsw i64 {x}, {y}")

    def sub(self, x: str, y: str | int) -> str:
        """Return x - y."""
        return self.let(f"sub nsw i64 {x}, {y}")

    def mul(self, x: str, y: str | int) -> str:
        """Return x * y."""
        return x if y == 1 else self.let(f"mul nsw i64 {x}, {y}")

    def div(self, x: str, y: str | int) -> str:
        """Return x / y, of numbers >= 0."""
        return self.let(f"udiv i64 {x}, {y}")

    def rem(self, x: str, y: str | int) -> str:
        """Return x % y, of numbers >= 0."""
        return self.let(f"urem i64 {x}, {y}")

    def min(self, x: str, y: str | int) -> str:
        """Return the smaller."""
        return self.let(f"call i64 @llvm.smin.i64(i64 {x}, i64 {y})")

    def max(self, x: str, y: str | int) -> str:
        """Return the larger."""
        return self.let(f"call i64 @llvm.smax.i64(i64 {x}, i64 {y})")

    def ceil(self, x: str, y: str | int) -> str:
        """Return x / y, rounded up."""
        return self.div(self.sub(self.add(x, y), 1), y)

    def share(self, units: str, number: str, blocks: str) -> tuple[str, str]:
        """Return the bounds of the `number % blocks`-th of blocks as equal as can be."""
        block = self.rem(number, blocks)
        first = self.div(self.mul(units, block), blocks)
        return first, self.div(self.mul(units, self.add(block, 1)), blocks)

    def block(
        self, number: str, rows: tuple[str, str | int, str], columns: tuple[str, str | int, str]
    ) -> tuple[tuple[str, str], tuple[str, str], str]:
        """Return the rows and the columns of a matrix' block, and the number of the matrix.

        Rows and columns are three numbers: all, the unit of a block, the blocks.
        """
        found = []
        for count, unit, blocks in (columns, rows):
            first, last = self.share(self.ceil(count, unit), number, blocks)
            found.append((self.mul(first, unit), self.min(self.mul(last, unit), count)))
            number = self.div(number, blocks)
        return found[1], found[0], number

    def test(self, how: str, x: str, y: str | int) -> str:
        """Return the bit of a comparison."""
        return self.let(f"icmp {how} i64 {x}, {y}")

    def select(self, bit: str, x: str, y: str, kind: str = "i64") -> str:
        """Return x where the bit is set, else y."""
        return self.let(f"select i1 {bit}, {kind} {x}, {kind} {y}")

    def at(self, pointer: str, offset: str | int) -> str:
        """Return the address that lies `offset` bytes after another."""
        return (
            pointer if offset == 0 else self.let(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        )

    def slot(self, kind: str = "i64") -> str:
        """Return the address of a new variable."""
        return self._writer.slot(kind)

    def get(self, slot: str, kind: str = "i64") -> str:
        """Read a variable."""
        return self.let(f"load {kind}, ptr {slot}")

    def set(self, slot: str, value: str | int, kind: str = "i64") -> None:
        """Write a variable."""
        self.line(f"store {kind} {value}, ptr {slot}")

    def array(self, pointer: str, index: str | int, kind: str = "i64") -> str:
        """Read an element of an array of i64 or of pointers."""
        address = self.let(f"getelementptr {kind}, ptr {pointer}, i64 {index}")
        return self.let(f"load {kind}, ptr {address}")

    def param(self, index: str | int) -> str:
        """Read an integer of a work item."""
        return self.array("%params", index)

    def operand(self, index: str | int) -> str:
        """Read the address of an operand of a work item."""
        return self.array("%buffers", index, "ptr")

    @contextmanager
    def loop(
        self, begin: str | int, end: str, step: str | int = 1, *, asks: bool = False
    ) -> Iterator[str]:
        """Repeat for `begin, begin + step, ...` below `end`; yield the index.

        With `asks`, in a function that computes a work item, it asks before each iteration but the
        first if the run should end.
        """
        with self._writer.loop(str(begin), end, str(step)) as index:
            if asks:
                with self.where(self.test("ne", index, begin)):
                    self._writer.ask(self._writer.depth)
            yield index

    def long_loop(self, begin: str, end: str) -> AbstractContextManager[str]:
        """Repeat for `begin` up to `end`, which may take long; yield the index.

        In a function that computes a work item, it asks now and then if the run should end.
        """
        return self._writer.loop(begin, end, "1", asks=True)

    def whole(
        self, slot: str, end: str, step: str | int, least: str | int | None = None
    ) -> AbstractContextManager[str]:
        """Repeat from a variable's value as long as a whole step fits; yield its value.

        With `least`, as long as at least so much of a step is left.
        """
        least = step if least is None else least
        last = end if least == 1 else self.add(self.sub(end, least), 1)
        return self._writer.loop_on(slot, last, str(step))

    def pieces(self, sizes: tuple[int, ...], end: str) -> Iterator[tuple[int, str]]:
        """Go from 0 to `end` in steps of the first size, then of the next; yield size and begin.

        The code that is written for a size goes into its loop.
        """
        slot = self.slot()
        self.set(slot, 0)
        for size in sizes:
            with self.whole(slot, end, size) as index:
                yield size, index

    @contextmanager
    def where(self, bit: str) -> Iterator[None]:
        """Open a branch that runs if the bit is set."""
        name = self._writer.fresh("if")
        self.line(f"br i1 {bit}, label %{name}, label %{name}.end")
        self.line(f"{name}:")
        yield
        self.line(f"br label %{name}.end")
        self.line(f"{name}.end:")

    def opposite(self, bit: str) -> str:
        """Return a bit that is set where another is not."""
        return self.let(f"xor i1 {bit}, true")

    def work_item(self, symbol: str) -> str:
        """Return the text of a function that computes a work item."""
        return self._writer.function(f"define i32 @{symbol}({WORK_ITEM})")

    def function(self, head: str, result: str = "ret void") -> str:
        """Return the text of the function; `head` is what stands before its body."""
        return self._writer.function(head, result)


def declared(*signatures: str) -> dict[str, str]:
    """Return declarations by symbol, of functions of LLVM.

    >>> declared("i64 @llvm.smin.i64(i64, i64)")
    {'llvm.smin.i64': 'declare i64 @llvm.smin.i64(i64, i64)'}
    """
    return {text[text.index("@") + 1 : text.index("(")]: f"declare {text}" for text in signatures}
