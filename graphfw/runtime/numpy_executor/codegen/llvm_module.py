"""Writing LLVM functions: loops that carry values, conditions, whole modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from graphfw.runtime.numpy_executor.codegen.writer import ATTRIBUTES, PIECE, POLL, WORK_ITEM


class OpenLoop:
    """A loop in whose body code is being written.

    Attributes:
        index: Its counter, i64.
        values: The carry: inside the loop before this iteration, after it the last one.
        following: The carry for the next iteration; to be set inside the loop.
    """

    def __init__(self, index: str, values: list[str]) -> None:
        self.index = index
        self.values = values
        self.following: list[str] = []


class LlvmModule:
    """The functions of an LLVM module, and the declarations that they need."""

    def __init__(self) -> None:
        self._functions: list[str] = []
        self._declarations: dict[str, None] = {}

    def declare(self, result: str, name: str, *types: str) -> str:
        """Return the name of a function of LLVM, after declaring it."""
        self._declarations[f"declare {result} @{name}({', '.join(types)})"] = None
        return f"@{name}"

    def add(self, head: str, body: LlvmFunction) -> None:
        """Add a function; `head` is its first line up to the brace."""
        lines = [f"{head} noinline {ATTRIBUTES} {{", "entry:", *body.lines, "}", ""]
        self._functions.append("\n".join(lines))

    @property
    def text(self) -> str:
        """The module."""
        lines = [*self._declarations, "", *self._functions]
        return "\n".join(
            [*lines, "!0 = distinct !{!0, !1}", '!1 = !{!"llvm.loop.unroll.disable"}', ""]
        )


class LlvmFunction:
    """The lines of a function, in the order in which they are written."""

    def __init__(self, module: LlvmModule) -> None:
        self.module = module
        self.lines: list[str] = []
        self._names = 0
        self._block = "entry"

    def do(self, text: str) -> None:
        """Add a line."""
        self.lines.append(text)

    def let(self, text: str) -> str:
        """Add an instruction and return the name of its result."""
        self._names += 1
        name = f"%v{self._names}"
        self.lines.append(f"{name} = {text}")
        return name

    def call(self, result: str, name: str, *arguments: tuple[str, str]) -> str:
        """Call a function of LLVM; arguments are pairs of type and value."""
        symbol = self.module.declare(result, name, *[kind for kind, _ in arguments])
        values = ", ".join([f"{kind} {value}" for kind, value in arguments])
        return self.let(f"call {result} {symbol}({values})")

    def add(self, a: str, b: str) -> str:
        """The sum of two i64."""
        return b if a == "0" else a if b == "0" else self.let(f"add nsw i64 {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        """The difference of two i64."""
        return a if b == "0" else self.let(f"sub nsw i64 {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        """The product of two i64."""
        return b if a == "1" else a if b == "1" else self.let(f"mul nsw i64 {a}, {b}")

    def div(self, a: str, b: str) -> str:
        """The quotient of two i64 that are not negative, rounded down."""
        return self.let(f"udiv i64 {a}, {b}")

    def rem(self, a: str, b: str) -> str:
        """The remainder of two i64 that are not negative."""
        return self.let(f"urem i64 {a}, {b}")

    def low(self, a: str, b: str) -> str:
        """The smaller of two i64."""
        return self.call("i64", "llvm.smin.i64", ("i64", a), ("i64", b))

    def high(self, a: str, b: str) -> str:
        """The greater of two i64."""
        return self.call("i64", "llvm.smax.i64", ("i64", a), ("i64", b))

    def ceil(self, a: str, unit: int) -> str:
        """The quotient of `a`, an i64 that is not negative, and `unit`, rounded up."""
        return self.div(self.add(a, str(unit - 1)), str(unit))

    def whole(self, a: str, unit: int) -> str:
        """`a`, an i64 that is not negative, rounded up to a multiple of `unit`."""
        return self.mul(self.ceil(a, unit), str(unit))

    def at(self, kind: str, base: str, index: str) -> str:
        """The address of an element."""
        return base if index == "0" else self.let(f"getelementptr {kind}, ptr {base}, i64 {index}")

    @contextmanager
    def loop(
        self,
        begin: str,
        end: str,
        step: int = 1,
        carried: Sequence[tuple[str, str]] = (),
        *,
        asks: bool = False,
    ) -> Iterator[OpenLoop]:
        """Open a loop over `begin, begin + step, ...` below `end`.

        Args:
            begin: The first index.
            end: The limit of the indices.
            step: Their distance.
            carried: Types and first values of the carry.
            asks: Whether it asks before each iteration but the first if the run should end.
        """
        self._names += 1
        label, before = f"loop{self._names}", self._block
        names = [f"%{label}.{i}" for i in range(len(carried) + 1)]
        self.lines += [f"br label %{label}", f"{label}:"]
        line = len(self.lines)
        self.do(f"%{label}.more = icmp slt i64 {names[0]}, {end}")
        self.do(f"br i1 %{label}.more, label %{label}.body, label %{label}.end")
        self.do(f"{label}.body:")
        self._block = f"{label}.body"
        loop = OpenLoop(names[0], names[1:])
        if asks:
            with self.when(self.let(f"icmp ne i64 {names[0]}, {begin}")):
                self._ask()
        yield loop
        following = [self.add(names[0], str(step)), *loop.following]
        # Not unrolled: LLVM would take several times as long to compile the loop.
        self.do(f"br label %{label}, !llvm.loop !0")
        self.do(f"{label}.end:")
        first = [("i64", begin), *carried]
        self.lines[line:line] = [
            f"{name} = phi {kind} [ {start}, %{before} ], [ {value}, %{self._block} ]"
            for name, (kind, start), value in zip(names, first, following, strict=True)
        ]
        self._block = f"{label}.end"

    def briefly_or_not(self, end: str, step: int = 1) -> Iterator[bool]:
        """Open two branches, one after the other, for a `walk` that is short or long.

        A walk that asks takes longer, also if it is too short to do so.

        Args:
            end: The limit of the walk.
            step: The step of the walk.

        Yields:
            Whether the walk in this branch asks.
        """
        is_long = self.let(f"icmp sgt i64 {end}, {step * PIECE}")
        for asks, condition in ((False, self.let(f"xor i1 {is_long}, true")), (True, is_long)):
            with self.when(condition):
                yield asks

    @contextmanager
    def walk(
        self, end: str, step: int = 1, carried: Sequence[tuple[str, str]] = (), *, asks: bool
    ) -> Iterator[OpenLoop]:
        """Open a loop over `0, step, ...` below `end`; see `loop`.

        Args:
            end: The limit of the indices.
            step: Their distance.
            carried: Types and first values of the carry.
            asks: Whether it asks after each piece of the loop if the run should end.
        """
        if not asks:
            with self.loop("0", end, step, carried) as loop:
                yield loop
            return
        with self.loop("0", end, step * PIECE, carried, asks=True) as piece:
            stop = self.low(self.add(piece.index, str(step * PIECE)), end)
            inner = [(kind, v) for (kind, _), v in zip(carried, piece.values, strict=True)]
            with self.loop(piece.index, stop, step, inner) as loop:
                yield loop
            piece.following = loop.values
        loop.values = piece.values

    def _ask(self) -> None:
        """Return 1 from the function of a work item if the run should end."""
        poll = self.let(f"load ptr, ptr {self.at('i64', '%run', str(POLL))}")
        answer = self.let(f"call i32 {poll}(ptr %run, i64 %thread)")
        with self.when(self.let(f"icmp ne i32 {answer}, 0")):
            self.leave("ret i32 1")

    def leave(self, text: str) -> None:
        """Add the line that returns from the function."""
        self.do(text)
        self._block = ""

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Open a branch that runs if the condition holds."""
        self._names += 1
        label = f"when{self._names}"
        self.do(f"br i1 {condition}, label %{label}, label %{label}.end")
        self.do(f"{label}:")
        self._block = label
        yield
        if self._block:  # else the function has been left
            self.do(f"br label %{label}.end")
        self.do(f"{label}.end:")
        self._block = f"{label}.end"

    def label(self, name: str) -> None:
        """Begin a block."""
        self.do(f"{name}:")
        self._block = name

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        """End a block with a branch to one of two labels."""
        self.do(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def read(self, base: str, index: int) -> str:
        """Load an i64 from an array of such."""
        return self.let(f"load i64, ptr {self.at('i64', base, str(index))}")

    def read_sizes(self, names: Sequence[str]) -> dict[str, str]:
        """Load the first params, by their names."""
        return {name: self.read("%params", i) for i, name in enumerate(names)}

    def operand(self, index: int) -> str:
        """Load the address of an operand of a kernel."""
        return self.let(f"load ptr, ptr {self.at('ptr', '%buffers', str(index))}")

    @contextmanager
    def unless(self, failed: str) -> Iterator[None]:
        """End a kernel: return 1 if a condition holds, else 0 after the code written inside."""
        self.branch(failed, "refused", "accepted")
        self.label("accepted")
        yield
        self.do("ret i32 0")
        self.label("refused")
        self.leave("ret i32 1")

    def define(self, head: str, result: str = "ret void") -> None:
        """Add the function to the module: it ends with `result`, unless it has been left.

        Args:
            head: Its first line up to the brace.
            result: The instruction that returns.
        """
        if self._block:
            self.do(result)
        self.module.add(head, self)

    def work_item(self, symbol: str) -> str:
        """Return the module with the function of a work item, which returns 0 if it gets here."""
        self.define(f"define i32 @{symbol}({WORK_ITEM})", "ret i32 0")
        return self.module.text
