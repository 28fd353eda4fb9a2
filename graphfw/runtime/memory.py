"""The memory of a run: its arrays, from when to when, and who made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from graphfw.errors import MemoryLimitError, Operand
from graphfw.hints.names import Answering
from graphfw.ir import concrete
from graphfw.ir.dim_text import evaluate
from graphfw.ir.variable import Variable
from graphfw.runtime.limits import shown_bytes
from graphfw.utils.records import record

Kind: TypeAlias = Literal[
    "variable", "constant", "prepared", "output", "outside", "arena", "scratch"
]


@record
class MemoryEntry(Answering):
    """One array.

    Attributes:
        name: What it holds.
        kind: "variable" and "constant" are there before a run; "prepared" is made from these once;
            "output" belongs to the caller afterwards; "outside" is made by operations without
            native code, and by loops and branches; "arena" is an intermediate result, "scratch" a
            thread's own.
        nbytes: Its size.
        first: The level of the plan at which it is written.
        last: The last level at which it is needed.
        location: The source line that made it.
    """

    _answers_as = "Report"

    name: str
    kind: Kind
    nbytes: int
    first: int
    last: int
    location: str


@record
class PerIteration(Answering):
    """The memory that a loop with a condition takes besides, for each of a run's iterations.

    Its gradient needs what each began with and handed on. It is given back after the loop.

    Attributes:
        nbytes: Bytes for each iteration.
        name: What the loop computes: the name of its op.
        location: The source line that made it.
    """

    _answers_as = "Report"

    nbytes: int
    name: str
    location: str


@record
class MemoryReport(Answering):
    """The memory that a run takes, in bytes; print it for a table.

    Attributes:
        entries: All arrays but the feeds, the largest first.
        levels: How many levels the plan has.
        arena: The size of the arena that the intermediate results share.
        peak: The most memory at any moment, besides the feeds: all variables and constants, what is
            made from them, the outputs, the arena and the scratch memory.
        spare: What comes on top when variables can't be written over, because another run reads
            them at that moment, or with `check_finite`.
        per_iteration: What comes on top of all that for each iteration of differentiated loops
            whose trip count is known only in the run: `peak` and `memory_limit` leave it out.
    """

    _answers_as = "Report"

    entries: tuple[MemoryEntry, ...]
    levels: int
    arena: int
    peak: int
    spare: int
    per_iteration: tuple[PerIteration, ...] = ()

    def timeline(self) -> list[int]:
        """Return for each level the bytes that are in use: what a plot shows."""
        totals = [0] * max(self.levels, 1)
        for entry in self.entries:
            for level in range(entry.first, min(entry.last + 1, len(totals))):
                totals[level] += entry.nbytes
        return totals

    def needed(self, *, in_place: bool) -> int:
        """Return the most memory at any moment, if variables are written over, or if not."""
        return self.peak if in_place else self.peak + self.spare

    def of(self, *kinds: Kind) -> int:
        """Return the bytes of all arrays of some kinds."""
        return sum(entry.nbytes for entry in self.entries if entry.kind in kinds)

    def __repr__(self) -> str:
        rows = [("bytes", "kind", "levels", "what", "made at")]
        rows += [
            (shown_bytes(e.nbytes), e.kind, f"{e.first}-{e.last}", e.name, e.location)
            for e in self.entries[:40]
        ]
        if len(self.entries) > 40:
            rest = self.entries[40:]
            rows.append(
                (shown_bytes(sum(e.nbytes for e in rest)), "", "", f"{len(rest)} smaller ones", "")
            )
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines = [
            f"{a:>{widths[0]}}  {b:<{widths[1]}}  {c:<{widths[2]}}  {d:<{widths[3]}}  {e}".rstrip()
            for a, b, c, d, e in rows
        ]
        total = f"peak {shown_bytes(self.peak)}, of which the arena is {shown_bytes(self.arena)}"
        loops = [
            f"and {shown_bytes(one.nbytes)} for each iteration of the {one.name} made at "
            f"{one.location}"
            for one in self.per_iteration
        ]
        return "\n".join([total, *loops, *lines])


def report(
    entries: Sequence[MemoryEntry],
    levels: int,
    arena: int,
    spare: int,
    per_iteration: Sequence[PerIteration] = (),
) -> MemoryReport:
    """Sort entries and add up the peak."""
    ordered = tuple(sorted(entries, key=lambda e: -e.nbytes))
    outside = sum(e.nbytes for e in ordered if e.kind != "arena")
    return MemoryReport(ordered, levels, arena, outside + arena, spare, tuple(per_iteration))


def require_room(variables: Sequence[Variable], limit: int) -> None:
    """Refuse a program whose variables alone are more than its runs may take.

    Raises:
        MemoryLimitError: They are.
    """
    sizes = [evaluate(v.type.nbytes, {}) for v in variables]
    needed = sum(sizes)
    if needed <= limit:
        return
    largest = sorted(zip(sizes, variables, strict=True), key=lambda pair: -pair[0])[:3]
    raise MemoryLimitError(
        f"the variables of this run alone take {needed:,} bytes ({shown_bytes(needed)}), and "
        f"memory_limit is {limit:,} ({shown_bytes(limit)})",
        operands=[concrete.describe(shown_bytes(size), v) for size, v in largest],
        fix="raise memory_limit",
    )


def too_much(
    found: MemoryReport,
    needed: int,
    limit: int,
    sizes: Mapping[str, int],
    least: int | None = None,
) -> MemoryLimitError:
    """Say what makes a run too large.

    Args:
        found: What takes memory.
        needed: How many bytes.
        limit: How many there may be.
        sizes: What the symbolic dims stand for.
        least: With how few bytes it would do if it computed things again; None if there are none.
    """
    spare = needed - found.peak
    reasons = []
    if spare:
        reasons.append(f"{shown_bytes(spare)} of it is for variables that can't be written over")
    if least is not None:
        reasons.append(f"computing again what can be would leave {shown_bytes(least)}")
    largest = [
        Operand(shown_bytes(e.nbytes), "", e.name, f"{e.kind} {e.location}".strip())
        for e in [e for e in found.entries if e.kind != "scratch"][:3]
    ]
    fix = "raise memory_limit; print(plan.memory()) lists all arrays"
    if sizes:
        largest_dim, *others = sorted(sizes, key=lambda name: -sizes[name])
        known = "".join([f", {name}={sizes[name]}" for name in others])
        fix = f'plan.max_dim("{largest_dim}", {limit}{known}) says what fits; or raise memory_limit'
    return MemoryLimitError(
        f"a run of these sizes takes {needed:,} bytes ({shown_bytes(needed)}) besides its feeds, "
        f"and memory_limit is {limit:,} ({shown_bytes(limit)})",
        operands=largest,
        why="; ".join(reasons),
        fix=fix,
    )
