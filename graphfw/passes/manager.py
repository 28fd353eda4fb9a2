"""Running passes in order: checks, dumps, reports, and errors that name the pass."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from graphfw.errors import (
    ArgumentError,
    GraphError,
    GraphfwError,
    PassError,
    VerifyError,
    a_type,
    did_you_mean,
)
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Node
from graphfw.ir.verify import verify_new
from graphfw.passes.base import Pass, no_ambient
from graphfw.passes.values import Sample
from graphfw.utils.records import record
from graphfw.utils.signal_handlers import is_of_handler

Level: TypeAlias = Literal["off", "ends", "each", "values", "first-run"]
"""The levels of checks: nothing; the graph before the first and after the last pass; after each
pass; after each pass also that outputs have the values that they had before. "first-run" is "ends",
and sessions compare the first run of each plan with the graph as it was before the passes."""


@record
class PassReport:
    """The effect of one pass.

    Attributes:
        name: The pass.
        before: The number of nodes that it was given.
        after: The number of nodes that it returned.
        hits: What it did how often; for rules by the rule's name.
        ms: The time it took, checks not included.
    """

    name: str
    before: int
    after: int
    hits: Mapping[str, int]
    ms: float


@record
class PassResult:
    """A graph that passes have rewritten, and what they did."""

    graph: Graph
    reports: tuple[PassReport, ...]


def run_pipeline(
    graph: Graph,
    passes: Sequence[Pass],
    *,
    verify: Level | None = None,
    dump: str | os.PathLike[str] | None = None,
    all_passes: bool = False,
    after: Callable[[Graph, PassReport], None] | None = None,
) -> PassResult:
    """Run passes over a derived graph, one after the other.

    Args:
        graph: What `ir.rebuild.derive` made.
        passes: The passes, in order.
        verify: How much to check; without it the environment's `GRAPHFW_VERIFY`, else "off".
        dump: A folder for the graph's text before and after each pass, in a numbered folder of this
            run; without it the environment's `GRAPHFW_DUMP`, else none. `GRAPHFW_STOP_AFTER=n`
            leaves out all but the first n passes, to find the one at fault.
        all_passes: Whether it leaves out none here.
        after: Called after each pass with the graph that it returned and its report.

    Raises:
        PassError: A pass failed, broke the graph, or (at "values") changed a number. It names the
            pass, those that ran before it, and the line of the node where that is known.
        VerifyError: The graph was broken to begin with.
        GraphError: It is not a derived graph.
        ArgumentError: There is no such level, an environment variable makes no sense, or the folder
            can't be written to.
    """
    if not graph.is_derived:
        raise GraphError(
            "passes work on the nodes of a graph that outputs need",
            fix="derive it first: graphfw.ir.rebuild.derive(graph, outputs)",
        )
    level = chosen_level(verify)
    folder = _dump_folder(dump)
    reports: list[PassReport] = []
    right: set[Node] = set()
    with no_ambient():
        if level != "off":
            verify_new(graph, right)
        sample = Sample(graph) if level == "values" else None
        _write(folder, 0, "input", graph)
        for one in passes if all_passes else chosen_passes(passes):
            with _blamed(one, reports):
                result, report = _run(one, graph)
                if level in ("each", "values"):
                    _check(result, right, "it")
                if sample is not None:
                    sample.compare(one, graph, result)
            graph = result
            reports.append(report)
            if after is not None:
                after(graph, report)
            _write(folder, len(reports), one.name, graph)
        if level in ("ends", "first-run"):
            _check(graph, right, f"one of the passes {', '.join(r.name for r in reports)}")
    return PassResult(graph, tuple(reports))


def table(reports: Sequence[PassReport]) -> str:
    """Return reports as a table of text.

    >>> print(table([PassReport("cse", 12, 9, {"merged": 3}, 0.25)]))
    pass    nodes     ms  rewrites
    cse   12 -> 9   0.25  merged 3
    total 12 -> 9   0.25
    """
    if not reports:
        return "no passes"
    rows = [("pass", "nodes", "ms", "rewrites")]
    for r in reports:
        hits = ", ".join(f"{name} {count}" for name, count in sorted(r.hits.items()))
        rows.append((r.name, f"{r.before} -> {r.after}", f"{r.ms:.2f}", hits or "-"))
    ms = sum(r.ms for r in reports)
    rows.append(("total", f"{reports[0].before} -> {reports[-1].after}", f"{ms:.2f}", ""))
    name, nodes, time_ = (max(len(row[i]) for row in rows) for i in range(3))
    return "\n".join(
        f"{a:<{name}} {b:>{nodes}} {c:>{time_ + 2}}  {d}".rstrip() for a, b, c, d in rows
    )


def _run(one: Pass, graph: Graph) -> tuple[Graph, PassReport]:
    hits: Counter[str] = Counter()
    start = time.perf_counter()
    result = one.run(graph, hits)
    ms = (time.perf_counter() - start) * 1e3
    if not isinstance(result, Graph):
        raise PassError(f"it returned {a_type(result)}", fix="return the graph, rewritten or not")
    if [t.type for t in result.outputs] != [t.type for t in graph.outputs]:
        raise PassError(
            f"it changed the outputs from {_types(graph)} to {_types(result)}",
            fix="keep the outputs' order, shapes and dtypes, as graphfw.extend.rebuild does",
        )
    return result, PassReport(one.name, len(graph.nodes), len(result.nodes), dict(hits), ms)


def _types(graph: Graph) -> str:
    return f"({', '.join([str(t.type) for t in graph.outputs])})"


def _check(graph: Graph, right: set[Node], who: str) -> None:
    try:
        verify_new(graph, right)
    except VerifyError as error:
        raise PassError(
            f"{who} broke the graph: {error.summary}",
            operands=error.operands,
            at=error.at,
            fix="" if who == "it" else "GRAPHFW_VERIFY=each says which",
        ) from error


@contextmanager
def _blamed(one: Pass, reports: Sequence[PassReport]) -> Iterator[None]:
    """Turn any failure into an error that names the pass and those before it."""
    try:
        yield
    except Exception as error:
        if is_of_handler(error):
            raise
        before = f" (after {', '.join(r.name for r in reports)})" if reports else ""
        known = error if isinstance(error, GraphfwError) else None
        what = known.summary if known else f"{type(error).__name__}: {error}"
        raise PassError(
            f"the pass {one.name} failed{before}: {what}",
            operands=known.operands if known else (),
            why=known.why if known else "",
            at=known.at if known else None,
            fix=(known.fix if known else "")
            or f"GRAPHFW_STOP_AFTER={len(reports)} ends before it, GRAPHFW_DUMP=<folder> shows it",
        ) from error


def checked_level(level: str) -> Level:
    """Return a level of checking, where it is one.

    Raises:
        ArgumentError: It is none.
    """
    levels = get_args(Level)
    if level not in levels:
        near = did_you_mean(str(level), levels)
        listed = f"set verify, or GRAPHFW_VERIFY, to one of {', '.join(levels)}"
        raise ArgumentError(
            f"{level!r} is no level of checking", fix=f"{near} {listed}" if near else listed
        )
    return cast(Level, level)


def chosen_level(verify: Level | None) -> Level:
    """Return the level that is asked for, or the environment's.

    Raises:
        ArgumentError: It is no level.
    """
    return checked_level(os.environ.get("GRAPHFW_VERIFY", "off") if verify is None else verify)


def chosen_passes(passes: Sequence[Pass]) -> Sequence[Pass]:
    """Return the passes that the environment's `GRAPHFW_STOP_AFTER` leaves.

    Raises:
        ArgumentError: It is no number.
    """
    return passes[: _stop_after()]


def _stop_after() -> int | None:
    text = os.environ.get("GRAPHFW_STOP_AFTER", "")
    if text and not text.isdecimal():
        raise ArgumentError(
            f"GRAPHFW_STOP_AFTER={text!r} is not a number of passes", fix="set it to 0 or more"
        )
    return int(text) if text else None


def _dump_folder(dump: str | os.PathLike[str] | None) -> Path | None:
    """Make a folder for this run: the first number that is free."""
    base = os.environ.get("GRAPHFW_DUMP", "") if dump is None else dump
    if not base:
        return None
    parent = Path(base)
    with _dumping(parent):
        parent.mkdir(parents=True, exist_ok=True)
        number = sum(1 for _ in parent.iterdir())
        while True:
            folder = parent / f"{number:04}"
            try:
                folder.mkdir()
            except FileExistsError:  # another thread or process took it
                number += 1
            else:
                return folder


def _write(folder: Path | None, number: int, name: str, graph: Graph) -> None:
    if folder is not None:
        with _dumping(folder):
            (folder / f"{number:02}-{name}.txt").write_text(f"{graph}\n", encoding="utf-8")


@contextmanager
def _dumping(folder: Path) -> Iterator[None]:
    """Say what asked for graphs to be written where that can't be done."""
    try:
        yield
    except OSError as error:
        raise ArgumentError(
            f"can't write graphs to {str(folder)!r}: {error.strerror or error}",
            fix="set dump, or GRAPHFW_DUMP, to a folder that you may write to, or to none",
        ) from error
