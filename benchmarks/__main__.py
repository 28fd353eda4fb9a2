"""Run workloads and print a table of medians and ratios; `--json` writes them to a file.

`python -m benchmarks sweep` measures a few functions over all sizes and plots them, `python -m
benchmarks strategies` the ways to compute the layers of networks, `python -m benchmarks accuracy`
how far networks' results are from those in float64, `python -m benchmarks interrupts` how soon
Ctrl-C ends a run, and `python -m benchmarks baseline COMMIT` a short list beside an earlier commit.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import sys
import time
from pathlib import Path

from benchmarks import accuracy, baseline, interrupts, machine, report, strategies, sweep
from benchmarks.devices import DEVICES
from benchmarks.registry import WORKLOADS
from benchmarks.workers import Pool
from benchmarks.workload import Result, Settings, Workload

UNFINISHED = 3
"""The exit status where workloads are left."""


def main() -> None:
    """Read the command line and run; the exit status is 1 if a contender failed."""
    parts = {
        "accuracy": accuracy,
        "baseline": baseline,
        "interrupts": interrupts,
        "strategies": strategies,
        "sweep": sweep,
    }
    if len(sys.argv) > 1 and sys.argv[1] in parts:
        parts[sys.argv[1]].main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="workload", help="names, or gelu-*")
    parser.add_argument("--list", action="store_true", help="list the workloads and stop")
    parser.add_argument("--peers", help=f"which take part, of: {', '.join(machine.PEERS)}")
    parser.add_argument("--peers-only", action="store_true", help="leave graphfw itself out")
    parser.add_argument(
        "--threads", type=machine.threads, default="2", help="for each contender (2)"
    )
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="where to compute (cpu)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
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
    options = parser.parse_args()
    if options.list:
        listed = WORKLOADS[options.device].values()
        print("\n".join(f"{w.name:26} {w.title}" for w in listed))
        return
    there = machine.CONTENDERS if options.device == "cpu" else machine.ON_GPU
    known = [name for name in machine.PEERS if name in there]
    peers = options.peers.split(",") if options.peers else known
    for name in peers:
        if name not in known:
            parser.error(f"no peer is named {name!r}: there are {', '.join(known)}")
    contenders = tuple([] if options.peers_only else ["graphfw"]) + tuple(peers)
    rounds, budget = (3, 1.0) if options.quick else (7, 3.0)
    settings = Settings(
        contenders, options.threads, rounds, budget, options.device, options.patience
    )
    chosen, kept = _chosen(parser, options), _kept(parser, options)
    if options.workloads:  # what is named is measured again
        named = {workload.name for workload in chosen}
        kept = [result for result in kept if result.name not in named]
    done = {result.name for result in kept}
    left = [workload for workload in chosen if workload.name not in done]
    results = _run(left, settings, kept, options)
    if len(results) < len(kept) + len(left):
        sys.exit(UNFINISHED)
    sys.exit(any(result.failed for result in results))


def _chosen(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[Workload]:
    known = WORKLOADS[options.device]
    found: dict[str, Workload] = {}
    for pattern in options.workloads or ["*"]:
        names = fnmatch.filter(known, pattern)
        if not names:
            parser.error(f"no workload is named {pattern!r}: see --list")
        found.update((name, known[name]) for name in names)
    return list(found.values())


def _kept(parser: argparse.ArgumentParser, options: argparse.Namespace) -> list[Result]:
    """Return what has been measured before."""
    if not options.resume:
        return []
    if options.json is None:
        parser.error("--resume goes on with a file: name it by --json")
    if not options.json.exists():
        return []
    before = json.loads(options.json.read_text("utf-8"))
    if before["device"] != machine.device(options.device):
        parser.error(f"{options.json} has figures of another machine: {before['device']}")
    known = WORKLOADS[options.device]
    return report.results_of(before, {name: known[name].targets for name in known})


def _run(
    workloads: list[Workload], settings: Settings, kept: list[Result], options: argparse.Namespace
) -> list[Result]:
    """Measure; print each result, and write the file, as soon as it is there."""
    print(f"{report.heading(settings)}\n\n{report.HEAD}", flush=True)
    for result in kept:
        print(report.rows(result), flush=True)
    begin = time.perf_counter()
    results = [*kept]
    with Pool(settings) as pool:
        for workload in workloads:
            if time.perf_counter() - begin > options.seconds:
                break
            results.append(workload.measure(pool))
            print(report.rows(results[-1]), flush=True)
            if options.json:
                _write(options.json, json.dumps(report.record(settings, results), indent=1))
    print(f"\n{len(results) - len(kept)} workloads in {time.perf_counter() - begin:.0f} s")
    return results


def _write(path: Path, text: str) -> None:
    """Write a file, whose old contents stay until it is whole."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(f"{text}\n", encoding="utf-8")
    new.replace(path)


if __name__ == "__main__":
    main()
