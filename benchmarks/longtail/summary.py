"""Results of the long tail in short: ratios to the best peer, and their means by class."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine, runs
from benchmarks.timing import text
from benchmarks.workload import Result

COPY = "+copy"
"""Ends the names of peers whose time has the copy of the inputs that they need."""

TIE = 1.05
"""The ratio up to which a plan that ends in NumPy's own call is as fast as NumPy."""

WORST = 10

_WARM = ", warm cache"
_OUTSIDE = "outside of native code"
"""What graphfw's plans say of steps that call NumPy or SciPy."""

_COLUMNS = (
    *("workload", "what", "graphfw", "best peer", "ratio", "of medians"),
    *("without copies", "verdict", "graphfw's longest step"),
)
HEAD = f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|"


@dataclass(frozen=True)
class Row:
    """One workload's ratio.

    Attributes:
        name, title: The workload's; its class is the first part of its name.
        seconds: graphfw's least time.
        peer, peer_seconds: The best peer, and its least time.
        ratio: graphfw's least time over the best peer's, where peers are given the arrays as
            the user has them: the copy counts that a peer needs.
        of_medians: The same of the medians.
        free: The same as `ratio`, with arrays that lie as each peer wants them.
        outside: How much of graphfw's time goes to calls of NumPy or SciPy.
        step: The step that takes most of graphfw's time, with its share.
    """

    name: str
    title: str
    seconds: float
    peer: str
    peer_seconds: float
    ratio: float
    of_medians: float
    free: float
    outside: float
    step: str

    @property
    def group(self) -> str:
        """The class."""
        return self.name.split("/")[0]

    @property
    def verdict(self) -> str:
        """Whether graphfw is ahead, level (by a call of NumPy's that both make), or behind."""
        if self.ratio <= 1:
            return "ahead"
        return "tie" if self.ratio <= TIE and self.outside > 0.5 else "BEHIND"


def rows_of(result: Result) -> list[Row]:
    """Return a result's rows: one, or two where it was measured with a warm cache too."""
    cold = {name: s for name, s in result.seconds.items() if not name.endswith(_WARM)}
    if len(cold) == len(result.seconds):
        return _rows(result.name, result, result.seconds, result.minima)
    # Who keeps nothing takes as long as with an empty cache.
    warm = {name: result.seconds.get(f"{name}{_WARM}", s) for name, s in cold.items()}
    return _rows(result.name, result, cold, {}) + _rows(f"{result.name}-warm", result, warm, {})


def _rows(
    name: str, result: Result, medians: dict[str, float], minima: dict[str, float]
) -> list[Row]:
    """Return a row, or none where graphfw or all peers have no time."""
    minima = minima or medians
    peers = [n for n in minima if n in machine.PEERS]
    given = [n for n in peers if f"{n}{COPY}" not in minima]
    if "graphfw" not in minima or not given:
        return []
    own, best = minima["graphfw"], min(given, key=lambda n: minima[n])
    outside = sum(share for label, share in result.steps if _OUTSIDE in label)
    step = f"{result.steps[0][0]} {result.steps[0][1]:.0%}" if result.steps else ""
    return [
        Row(
            name,
            result.title,
            own,
            best,
            minima[best],
            own / minima[best],
            medians["graphfw"] / min(medians[n] for n in given),
            own / min(minima[n] for n in peers),
            outside,
            step,
        )
    ]


def lines_of(result: Result) -> str:
    """Return a result's rows of the Markdown table, and why contenders have no times."""
    lines = [_line(row) for row in rows_of(result)]
    for name, note in result.notes.items():
        said = " ".join(note.split()).replace("|", "/")
        lines.append(f"| {result.name} | {name} {said} {'|' * (len(_COLUMNS) - 1)}")
    return "\n".join(lines)


def _line(row: Row) -> str:
    cells = [row.name, row.title, text(row.seconds), f"{text(row.peer_seconds)} ({row.peer})"]
    cells += [f"{value:.2f}" for value in (row.ratio, row.of_medians)]
    cells += ["" if row.free == row.ratio else f"{row.free:.2f}", row.verdict, row.step]
    return f"| {' | '.join(cells)} |"


def overview(results: Iterable[Result]) -> str:
    """Return the means of all and by class, and the worst, as Markdown."""
    rows = [row for result in results for row in rows_of(result)]
    if not rows:
        return "Nothing was measured."
    level = sum(row.verdict != "BEHIND" for row in rows)
    mean, medians, free = [
        _mean([getattr(row, kind) for row in rows]) for kind in ("ratio", "of_medians", "free")
    ]
    lines = [
        f"Geometric mean of {len(rows)} ratios to the best peer: **{mean:.2f}** "
        f"(of medians {medians:.2f}; without the copies that peers need {free:.2f}). "
        f"graphfw is ahead or level in {level}, behind in {len(rows) - level}.",
        "",
        "| class | workloads | geometric mean | ahead or level | worst |",
        "|---|---|---|---|---|",
    ]
    for group in dict.fromkeys(row.group for row in rows):
        own = [row for row in rows if row.group == group]
        worst = max(own, key=lambda row: row.ratio)
        ahead = sum(row.verdict != "BEHIND" for row in own)
        lines.append(
            f"| {group} | {len(own)} | {_mean([row.ratio for row in own]):.2f} | {ahead} "
            f"| {worst.name.split('/')[1]} {worst.ratio:.2f} |"
        )
    lines += ["", f"The worst {WORST}:", "", HEAD]
    lines += map(_line, sorted(rows, key=lambda row: -row.ratio)[:WORST])
    return "\n".join(lines)


def _mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def write(path: Path, heading: str, results: Sequence[Result]) -> None:
    """Write the table and the plot beside the file of the figures."""
    rows = [row for result in results for row in rows_of(result)]
    table = "\n".join([HEAD, *map(lines_of, results)])
    picture = path.with_suffix(".png")
    said = f"![ratio by workload]({picture.name})\n\n" if rows else ""
    runs.write(
        path.with_suffix(".md"), f"{heading}\n\n{overview(results)}\n\n{said}All:\n\n{table}\n"
    )
    if rows:
        from benchmarks.longtail.plot import plot  # matplotlib, which is not needed to measure

        plot(rows, heading.splitlines()[0], picture)
