"""Run workloads and print a table of medians and ratios; `--json` writes them to a file.

`python -m benchmarks sweep` measures a few functions over all sizes and plots them, `python -m
benchmarks strategies` the ways to compute the layers of networks, and `python -m benchmarks
accuracy` how far networks' results are from those in float64.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time

from benchmarks import accuracy, machine, report, strategies, sweep
from benchmarks.devices import DEVICES
from benchmarks.registry import WORKLOADS
from benchmarks.workers import Pool
from benchmarks.workload import Result, Settings, Workload


def main() -> None:
    """Read the command line and run; the exit status is 1 if a contender failed."""
    for name, part in (("accuracy", accuracy), ("strategies", strategies), ("sweep", sweep)):
        if sys.argv[1:2] == [name]:
            part.main(sys.argv[2:])
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
        "--json", type=machine.in_a_folder, help="write the figures to this file too"
    )
    options = parser.parse_args()
    if options.list:
        listed = WORKLOADS[options.device].values()
        print("\n".join(f"{w.name:26} {w.title}" for w in listed))
        return
    known = [n for n in machine.PEERS if options.device == "cpu" or n in machine.ON_GPU]
    peers = options.peers.split(",") if options.peers else known
    for name in peers:
        if name not in known:
            parser.error(f"no peer is named {name!r}: there are {', '.join(known)}")
    contenders = tuple([] if options.peers_only else ["graphfw"]) + tuple(peers)
    rounds, budget = (3, 1.0) if options.quick else (7, 3.0)
    settings = Settings(contenders, options.threads, rounds, budget, options.device)
    results = _run(_chosen(parser, options), settings)
    if options.json:
        text = json.dumps(report.record(settings, results), indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")
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


def _run(workloads: list[Workload], settings: Settings) -> list[Result]:
    """Measure, and print each result as soon as it is there."""
    print(f"{report.heading(settings)}\n\n{report.HEAD}", flush=True)
    begin = time.perf_counter()
    results = []
    with Pool(settings) as pool:
        for workload in workloads:
            results.append(workload.measure(pool))
            print(report.rows(results[-1]), flush=True)
    print(f"\n{len(results)} workloads in {time.perf_counter() - begin:.0f} s")
    return results


if __name__ == "__main__":
    main()
