"""`Body`: writes the body of one LLVM function with loops and conditions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

ATTRIBUTES = 'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'


class Body:
    """The lines of a function body. Values are names or numbers; integers are i64.

    What changes lies in slots on the stack, which LLVM turns into registers.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._slots: list[str] = []
        self._names = 0

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append(text)

    def let(self, text: str) -> str:
        """Add an instruction and return the name of its result."""
        self._names += 1
        self._lines.append(f"%v{self._names} = {text}")
        return f"%v{self._names}"

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
        """Return how many pieces of at most y elements there are in x."""
        return self.div(self.sub(self.add(x, y), 1), y)

    def test(self, how: str, x: str, y: str | int) -> str:
        """Return the bit of a comparison."""
        return self.let(f"icmp {how} i64 {x}, {y}")

    def select(self, bit: str, x: str, y: str, kind: str = "i64") -> str:
        """Return x where the bit is set, else y."""
        return self.let(f"select i1 {bit}, {kind} {x}, {kind} {y}")

    def at(self, pointer: str, offset: str | int) -> str:
        """Return the address that lies `offset` bytes behind another."""
        return (
            pointer if offset == 0 else self.let(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        )

    def slot(self, kind: str = "i64") -> str:
        """Return the address of a new variable."""
        self._names += 1
        self._slots.append(f"%s{self._names} = alloca {kind}")
        return f"%s{self._names}"

    def get(self, slot: str, kind: str = "i64") -> str:
        """Read a variable."""
        return self.let(f"load {kind}, ptr {slot}")

    def set(self, slot: str, value: str | int, kind: str = "i64") -> None:
        """Write a variable."""
        self.line(f"store {kind} {value}, ptr {slot}")

    def array(self, pointer: str, index: str | int, kind: str = "i64") -> str:
        """Read an element of an array of i64 or of pointers."""
        place = self.let(f"getelementptr {kind}, ptr {pointer}, i64 {index}")
        return self.let(f"load {kind}, ptr {place}")

    @contextmanager
    def loop(self, begin: str | int, end: str, step: str | int = 1) -> Iterator[str]:
        """Repeat for `begin, begin + step, ...` below `end`; gives the index."""
        slot = self.slot()
        self.set(slot, begin)
        with self._loop(slot, end, step, 0) as index:
            yield index

    @contextmanager
    def whole(self, slot: str, end: str, step: int) -> Iterator[str]:
        """Go on from where a variable stands as long as a whole step fits; gives its value."""
        with self._loop(slot, end, step, step - 1) as index:
            yield index

    @contextmanager
    def _loop(self, slot: str, end: str, step: str | int, ahead: int) -> Iterator[str]:
        self._names += 1
        name = f"loop{self._names}"
        self._lines += [f"br label %{name}", f"{name}:"]
        index = self.get(slot)
        again = self.test("slt", self.add(index, ahead), end)
        self._lines += [f"br i1 {again}, label %{name}.body, label %{name}.end", f"{name}.body:"]
        yield index
        self.set(slot, self.add(index, step))
        self._lines += [f"br label %{name}", f"{name}.end:"]

    @contextmanager
    def where(self, bit: str) -> Iterator[None]:
        """Do what follows only where the bit is set."""
        self._names += 1
        name = f"if{self._names}"
        self._lines += [f"br i1 {bit}, label %{name}, label %{name}.end", f"{name}:"]
        yield
        self._lines += [f"br label %{name}.end", f"{name}.end:"]

    def function(self, head: str, result: str = "ret void") -> str:
        """Return the text of the function; `head` is what stands before its body."""
        lines = ["entry:", *self._slots, *self._lines, result]
        return "\n".join([f"{head} {ATTRIBUTES} {{", *lines, "}", ""])
