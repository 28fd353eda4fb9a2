"""Some 140 workloads beside the best peer of each, drawn by a seed from families.

A workload's name is its class and its family, whatever its sizes: the seed draws sizes, dtypes and
layouts, and the title says them. The ratio is graphfw's least time over the least of the best peer:
others at work on a machine only make a time longer. With `--json FILE` a table and a plot are
written beside the file.
"""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import machine, report, runs
from benchmarks.longtail import (
    compile_times,
    conversions,
    convolutions,
    decoding,
    elementwise,
    integer_products,
    layouts,
    linear_algebra,
    loops,
    narrow,
    pairwise,
    recurrences,
    scatter,
    sorting,
    spectra,
    summary,
    training,
)
from benchmarks.longtail.draw import FULL, QUICK, Draw
from benchmarks.workload import Settings, Workload

CLASSES: dict[str, ModuleType] = {
    "sorting": sorting,
    "linear-algebra": linear_algebra,
    "loops": loops,
    "layouts": layouts,
    "conversions": conversions,
    "scatter": scatter,
    "spectra": spectra,
    "integer-products": integer_products,
    "convolutions": convolutions,
    "recurrences": recurrences,
    "pairwise": pairwise,
    "narrow": narrow,
    "training": training,
    "decoding": decoding,
    "compile-times": compile_times,
    "elementwise": elementwise,
}
"""The classes of workloads, with the modules of their families."""


def workloads(seed: int, scale: str = FULL) -> dict[str, Workload]:
    """Return the workloads that a seed draws, by name."""
    found: dict[str, Workload] = {}
    for of, module in CLASSES.items():
        for family, count in module.FAMILIES.items():
            for number in range(1, count + 1):
                name = f"{of}/{family.__name__.replace('_', '-')}"
                name += f"-{number}" if number > 1 else ""
                drawn: Any = family(Draw(seed, name, scale))
                found[name] = dataclasses.replace(drawn, name=name)
    return found


def seed_of_commit() -> int:
    """Return the first eight digits of the commit's hash as a number.

    Raises:
        ValueError: There is no commit.
    """
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError("there is no commit to take the seed from: give one by --seed")
    return int(done.stdout[:8], 16)


def main(arguments: list[str]) -> None:
    """Read the command line and measure; the exit status is 1 if a contender failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks longtail", description=__doc__)
    parser.add_argument(
        "--only",
        metavar="CLASS",
        help=f"classes, or names as sorting/sort-*, with commas; there are {', '.join(CLASSES)}",
    )
    parser.add_argument(
        "--seed",
        type=_seed,
        help="what sizes, dtypes and layouts are drawn by (the commit's hash)",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="with --resume: measure what there is again too, and keep the least times",
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds")
    runs.add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        seed = seed_of_commit() if options.seed is None else options.seed
    except ValueError as error:
        parser.error(str(error))
    scale = QUICK if options.quick else FULL
    known = workloads(seed, scale)
    chosen = _chosen(parser, options.only, known)
    if options.list:
        print("\n".join(f"{w.name:40} {w.title}" for w in chosen))
        return
    rounds, budget = (3, 0.5) if options.quick else (7, 3.0)
    settings = Settings(
        _with_copies(runs.contenders(parser, options, machine.CONTENDERS)),
        options.threads,
        rounds,
        budget,
        patience_s=options.patience,
        steps=True,
    )
    facts = {"device": machine.device("cpu"), "seed": seed, "scale": scale}
    kept = runs.kept(parser, options, facts, {name: w.targets for name, w in known.items()})
    # What is named is measured again.
    done = set() if options.only or options.again else {result.name for result in kept}
    left = [workload for workload in chosen if workload.name not in done]
    heading = f"{report.heading(settings)}\nSeed {seed}{', quick' if options.quick else ''}."
    print(f"{heading}\n\n{summary.HEAD}", flush=True)
    results, is_done = runs.measure(
        left, settings, kept, options, summary.lines_of, facts, keep_least=options.again
    )
    order = {name: number for number, name in enumerate(known)}
    results.sort(key=lambda result: order[result.name])
    print(f"\n{summary.overview(results)}")
    if options.json:
        summary.write(options.json, heading, results)
    if not is_done:
        sys.exit(runs.UNFINISHED)
    sys.exit(any(result.failed for result in results))


def _seed(text: str) -> int:
    """Return a seed from the command line, in digits of any base that Python writes."""
    return int(text, 0)


def _chosen(
    parser: argparse.ArgumentParser, only: str | None, known: dict[str, Workload]
) -> list[Workload]:
    """Return the workloads of classes and of patterns of names."""
    found: dict[str, Workload] = {}
    for pattern in only.split(",") if only else ["*"]:
        names = fnmatch.filter(known, f"{pattern}/*" if pattern in CLASSES else pattern)
        if not names:
            parser.error(f"no class or workload is named {pattern!r}: see --list")
        found.update((name, known[name]) for name in names)
    return list(found.values())


def _with_copies(contenders: tuple[str, ...]) -> tuple[str, ...]:
    """Return contenders with those that copy first: who takes part does so in both ways."""
    both = [f"{name}{summary.COPY}" for name in contenders]
    return tuple(dict.fromkeys([*contenders, *[n for n in both if n in machine.CONTENDERS]]))
