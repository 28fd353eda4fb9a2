"""Run workloads and print a table of medians and ratios; `--json` writes them to a file.

`python -m benchmarks sweep` measures a few functions over all sizes and plots them, `python -m
benchmarks strategies` the ways to compute the layers of networks, `python -m benchmarks accuracy`
how far networks' results are from those in float64, `python -m benchmarks interrupts` how soon
Ctrl-C ends a run, `python -m benchmarks baseline COMMIT` a short list beside an earlier commit, and
`python -m benchmarks longtail` some 140 workloads, drawn by a seed, beside the best peer of each.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys

from benchmarks import accuracy, baseline, interrupts, machine, report, runs, strategies, sweep
from benchmarks.devices import DEVICES
from benchmarks.longtail import suite
from benchmarks.registry import WORKLOADS
from benchmarks.workload import Settings, Workload


def main() -> None:
    """Read the command line and run; the exit status is 1 if a contender failed."""
    commands = {
        "accuracy": accuracy,
        "baseline": baseline,
        "interrupts": interrupts,
        "longtail": suite,
        "strategies": strategies,
        "sweep": sweep,
    }
    if len(sys.argv) > 1 and sys.argv[1] in commands:
        commands[sys.argv[1]].main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="workload", help="names, or gelu-*")
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="where to compute (cpu)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    runs.add_arguments(parser)
    options = parser.parse_args()
    known = WORKLOADS[options.device]
    if options.list:
        print("\n".join(f"{w.name:26} {w.title}" for w in known.values()))
        return
    there = machine.CONTENDERS if options.device == "cpu" else machine.ON_GPU
    contenders = runs.contenders(parser, options, there)
    rounds, budget = (3, 1.0) if options.quick else (7, 3.0)
    settings = Settings(
        contenders, options.threads, rounds, budget, options.device, options.patience
    )
    chosen = _chosen(parser, options)
    facts = {"device": machine.device(options.device)}
    kept = runs.kept(parser, options, facts, {name: w.targets for name, w in known.items()})
    # What is named is measured again.
    done = set() if options.workloads else {result.name for result in kept}
    left = [workload for workload in chosen if workload.name not in done]
    print(f"{report.heading(settings)}\n\n{report.HEAD}", flush=True)
    results, is_done = runs.measure(left, settings, kept, options, report.rows, {})
    if not is_done:
        sys.exit(runs.UNFINISHED)
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


if __name__ == "__main__":
    main()
