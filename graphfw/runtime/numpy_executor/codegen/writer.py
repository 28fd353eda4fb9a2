"""`Writer`: collects the text of one LLVM function, loop by loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphfw.ir.dtype import DType

ATTRIBUTES = 'nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512"'

PAST_CACHES = "!nontemporal !0"
"""After a store: that what is written shall not stay in a cache."""
POLL = 14
"""The word of a run with the function that says whether it should end: see `runner.ll`."""
WORK_ITEM = "ptr %buffers, ptr %params, i64 %work_item, ptr %scratch, ptr %run, i64 %thread"
"""The arguments of a function that computes a work item: see `runner.ll`."""
PIECE = 4096
"""Iterations of a loop after which it asks."""
_USUAL, _RARE = "!prof !1", "!prof !2"
"""After a branch: that it mostly takes the first way, or the second."""
METADATA = """!0 = !{i32 1}
!1 = !{!"branch_weights", i32 1000000, i32 1}
!2 = !{!"branch_weights", i32 1, i32 1000000}"""
"""The metadata that a module needs for branch weights."""


class Writer:
    """The lines of a function.

    Level 0 is outside of all loops, level n inside of n loops. A line can be added at any level
    that is open: it then comes before the loop that is open inside of that level. So what does not
    depend on a loop is written outside of it. Variables that change are slots on the stack, which
    LLVM turns into registers.

    Attributes:
        declarations: By symbol, the declaration of each function of LLVM or the C library in use.
        math: The functions of `mathlib` in use: name, dtype, lanes.
        stored_form: Of values that were rounded to 16 bits, by name: the 16 bits.
    """

    def __init__(self) -> None:
        self.declarations: dict[str, str] = {}
        self.math: dict[tuple[str, DType, int], None] = {}
        self.stored_form: dict[str, str] = {}
        self._levels: list[list[str]] = [[]]
        self._known: list[dict[str, str]] = [{}]
        self._ends: list[str] = []
        self._slots: list[str] = []
        self._names = 0
        self._can_fail = False

    @property
    def depth(self) -> int:
        """The innermost level that is open."""
        return len(self._levels) - 1

    def fresh(self, hint: str = "v") -> str:
        """Return a new name, without a sign in front."""
        self._names += 1
        return f"{hint}{self._names}"

    def line(self, text: str, level: int) -> None:
        """Add a line."""
        self._levels[level].append(text)

    def let(self, text: str, level: int) -> str:
        """Add an instruction and return the name of its result."""
        name = "%" + self.fresh()
        self._levels[level].append(f"{name} = {text}")
        return name

    def pure(self, text: str, level: int) -> str:
        """Add an instruction, unless an equal one is there, and return the name of its result."""
        known = self._known[level]
        if text not in known:
            known[text] = self.let(text, level)
        return known[text]

    def slot(self, kind: str) -> str:
        """Return the address of a new variable."""
        name = "%" + self.fresh("slot")
        self._slots.append(f"{name} = alloca {kind}")
        return name

    def load(self, kind: str, slot: str, level: int) -> str:
        """Read a variable."""
        return self.let(f"load {kind}, ptr {slot}", level)

    def store(self, kind: str, value: str, slot: str, level: int) -> None:
        """Set a variable."""
        self.line(f"store {kind} {value}, ptr {slot}", level)

    def call(
        self,
        result: str,
        symbol: str,
        arguments: list[tuple[str, str]],
        level: int,
        flags: str = "",
    ) -> str:
        """Call a function that LLVM has; arguments are pairs of type and value.

        Only functions of values are written once for equal arguments; those of memory are void, or
        are given a pointer.
        """
        types = ", ".join([kind for kind, _ in arguments])
        self.declarations.setdefault(symbol, f"declare {result} @{symbol}({types})")
        values = ", ".join([f"{kind} {value}" for kind, value in arguments])
        if result == "void":
            self.line(f"call void @{symbol}({values})", level)
            return ""
        text = f"call {flags}{result} @{symbol}({values})"
        memory = any(["ptr" in kind for kind, _ in arguments])
        return self.let(text, level) if memory else self.pure(text, level)

    def ask(self, level: int) -> None:
        """Leave the function, which computes a work item, with 1 if the run should end."""
        address = self.let(f"getelementptr i64, ptr %run, i64 {POLL}", level)
        poll = self.let(f"load ptr, ptr {address}", level)
        answer = self.let(f"call i32 {poll}(ptr %run, i64 %thread)", level)
        self.fail_if(self.let(f"icmp ne i32 {answer}, 0", level), level)

    def fail_if(self, condition: str, level: int) -> None:
        """Leave the function with 1 where the condition holds."""
        self._can_fail = True
        go_on = self.fresh("ok")
        self.line(f"br i1 {condition}, label %failed, label %{go_on}", level)
        self.line(f"{go_on}:", level)

    def leave_unless(self, condition: str) -> None:
        """Leave the innermost loop unless the condition holds."""
        go_on = self.fresh("on")
        self.line(f"br i1 {condition}, label %{go_on}, label %{self._ends[-1]}", self.depth)
        self.line(f"{go_on}:", self.depth)

    @contextmanager
    def loop(self, begin: str, end: str, step: str, *, asks: bool = False) -> Iterator[str]:
        """Open a loop over `begin, begin + step, ...` below `end`; gives the loop's index."""
        slot = self.slot("i64")
        self.store("i64", begin, slot, self.depth)
        with self.loop_on(slot, end, step, asks=asks) as index:
            yield index

    @contextmanager
    def loop_on(self, slot: str, end: str, step: str, *, asks: bool = False) -> Iterator[str]:
        """Open a loop that goes on from where a variable stands.

        Args:
            slot: The variable.
            end: The loop goes on while the variable is less.
            step: What is added to it.
            asks: Whether the loop may take so long that it asks now and then if the run should end.
        """
        name = self.fresh("loop")
        pause = self._first_pause(slot, end, step) if asks else ""
        self._levels.append([f"br label %{name}", f"{name}:"])
        self._known.append({})
        self._ends.append(f"{name}.end")
        level = self.depth
        index = self.load("i64", slot, level)
        until = self.load("i64", pause, level) if pause else end
        again = self.let(f"icmp slt i64 {index}, {until}", level)
        out = f"{name}.pause" if pause else f"{name}.end"
        usual = f", {_USUAL}" if pause else ""
        self.line(f"br i1 {again}, label %{name}.body, label %{out}{usual}", level)
        if pause:
            self._pause(name, index, end, step, pause)
        self.line(f"{name}.body:", level)
        yield index
        following = self.let(f"add nsw i64 {index}, {step}", level)
        self.store("i64", following, slot, level)
        self.line(f"br label %{name}", level)
        self.line(f"{name}.end:", level)
        lines = self._levels.pop()
        self._known.pop()
        self._ends.pop()
        self._levels[-1].extend(lines)

    def _first_pause(self, slot: str, end: str, step: str) -> str:
        """Write up to where a loop goes before it asks, and return the variable that says so."""
        level = self.depth
        pause = self.slot("i64")
        self._store_pause(pause, self.load("i64", slot, level), end, step, level)
        return pause

    def _pause(self, name: str, index: str, end: str, step: str, pause: str) -> None:
        """Write what a loop does between two pieces: it ends, or asks and goes on."""
        level = self.depth
        self.line(f"{name}.pause:", level)
        more = self.let(f"icmp slt i64 {index}, {end}", level)
        self.line(f"br i1 {more}, label %{name}.ask, label %{name}.end, {_RARE}", level)
        self.line(f"{name}.ask:", level)
        self.ask(level)
        self._store_pause(pause, index, end, step, level)
        self.line(f"br label %{name}", level)

    def _store_pause(self, pause: str, index: str, end: str, step: str, level: int) -> None:
        piece = self.let(f"mul i64 {step}, {PIECE}", level)
        after = self.let(f"add i64 {index}, {piece}", level)
        least = self.let(f"icmp slt i64 {after}, {end}", level)
        until = self.let(f"select i1 {least}, i64 {after}, i64 {end}", level)
        self.store("i64", until, pause, level)

    def function(self, head: str, result: str = "ret i32 0") -> str:
        """Return the text of the function; `head` stands before its body, `result` is its end."""
        lines = ["entry:", *self._slots, *self._levels[0], result]
        if self._can_fail:
            lines += ["failed:", "ret i32 1"]
        return "\n".join([f"{head} {ATTRIBUTES} {{", *lines, "}", ""])
