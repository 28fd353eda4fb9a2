"""Runs of many workloads: what is asked for, what there is already, and measuring the others."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine, report
from benchmarks.workers import Pool
from benchmarks.workload import Result, Settings, Target, Workload

UNFINISHED = 3
"""The exit status where workloads are left."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what all runs can be asked for."""
    parser.add_argument("--list", action="store_true", help="list the workloads and stop")
    parser.add_argument("--peers", help=f"which take part, of: {', '.join(machine.PEERS)}")
    parser.add_argument("--peers-only", action="store_true", help="leave graphfw itself out")
    parser.add_argument(
        "--threads", type=machine.threads, default="2", help="for each contender (2)"
    )
    parser.add_argument(
        "--json", type=machine.in_a_folder, help="write the figures to this file too, as they come"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="leave out what that file has figures of, but for workloads that are named",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="begin nothing later than that; the exit status is 3 if anything is left",
    )
    parser.add_argument(
        "--patience", type=float, help="seconds to get ready in, for each contender"
    )


def contenders(
    parser: argparse.ArgumentParser, options: argparse.Namespace, there: Iterable[str]
) -> tuple[str, ...]:
    """Return who takes part: graphfw, unless it is left out, and the peers that are asked for.

    Args:
        parser: It ends the program where a peer is none.
        options: What `add_arguments` has parsed.
        there: Who there is.
    """
    known = [name for name in machine.PEERS if name in there]
    peers = options.peers.split(",") if options.peers else known
    for name in peers:
        if name not in known:
            parser.error(f"no peer is named {name!r}: there are {', '.join(known)}")
    return tuple([] if options.peers_only else ["graphfw"]) + tuple(peers)


def kept(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    facts: Mapping[str, Any],
    targets: Mapping[str, tuple[Target, ...]],
) -> list[Result]:
    """Return what has been measured before.

    Args:
        parser: It ends the program where the figures are of something else.
        options: What `add_arguments` has parsed.
        facts: What the file has to say, by key, so that its figures are of the same.
        targets: What graphfw should reach, by workload.
    """
    if not options.resume:
        return []
    if options.json is None:
        parser.error("--resume goes on with a file: name it by --json")
    if not options.json.exists():
        return []
    before = json.loads(options.json.read_text("utf-8"))
    for key, value in facts.items():
        if before.get(key) != value:
            what = "machine" if key == "device" else key
            parser.error(f"{options.json} has figures of another {what}: {before.get(key)}")
    return report.results_of(before, targets)


def measure(
    workloads: Sequence[Workload],
    settings: Settings,
    results: Iterable[Result],
    options: argparse.Namespace,
    show: Callable[[Result], str],
    more: Mapping[str, Any],
    *,
    keep_least: bool = False,
) -> tuple[list[Result], bool]:
    """Measure workloads; print each result, and write the file, as soon as it is there.

    Args:
        workloads: What is measured.
        settings: How it is measured.
        results: What there is already.
        options: What `add_arguments` has parsed.
        show: Says a result.
        more: What the file says beside.
        keep_least: Whether what has been measured before keeps its times where they are less.

    Returns:
        All results, and whether all workloads have been measured in the time that there was.
    """
    found = {result.name: result for result in results}
    measured = {workload.name for workload in workloads}
    for name, result in found.items():
        if name not in measured:
            print(show(result), flush=True)
    begin, count = time.perf_counter(), 0
    with Pool(settings) as pool:
        for workload in workloads:
            if time.perf_counter() - begin > options.seconds:
                break
            result, count = workload.measure(pool), count + 1
            before = found.get(workload.name)
            found[workload.name] = least(before, result) if before and keep_least else result
            print(show(found[workload.name]), flush=True)
            if options.json:
                record = {**report.record(settings, found.values()), **more}
                write(options.json, f"{json.dumps(record, indent=1)}\n")
    print(f"\n{count} workloads in {time.perf_counter() - begin:.0f} s")
    return [*found.values()], count == len(workloads)


def least(before: Result, now: Result) -> Result:
    """Return a result with the lesser times of two measurements."""
    both = [
        {name: min(value, old.get(name, value)) for name, value in new.items()}
        for old, new in ((before.seconds, now.seconds), (before.minima, now.minima))
    ]
    return dataclasses.replace(now, seconds=both[0], minima=both[1])


def write(path: Path, text: str) -> None:
    """Write a file, whose old contents stay until it is whole."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
