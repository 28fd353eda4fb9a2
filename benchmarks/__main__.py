"""Run workloads and print a table of medians and ratios; `--json` writes them to a file."""

from __future__ import annotations

import argparse
import json
from datetime import date
from pathlib import Path

from benchmarks import overhead, training
from benchmarks.timing import Result, hardware, text

WORKLOADS = {**overhead.WORKLOADS, **training.WORKLOADS}


def table(results: list[Result]) -> str:
    """Return the results as Markdown: each contender's time, and its ratio to graphfw's."""
    lines = ["| workload | contender | median | × graphfw | target |", "|---|---|---|---|---|"]
    for result in results:
        own = result.seconds.get("graphfw")
        for name, seconds in result.seconds.items():
            ratio = f"{seconds / own:.2f}" if own else ""
            lines.append(
                f"| {result.name} | {name} | {text(seconds)} | {ratio} | {result.target} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="workload", help=", ".join(WORKLOADS))
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    unknown = [name for name in options.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload is named {unknown[0]!r}: there are {', '.join(WORKLOADS)}")
    results = [WORKLOADS[name]() for name in options.workloads or WORKLOADS]
    print(f"{date.today()}; {hardware()}\n\n{table(results)}")
    if options.json:
        record = {
            "date": str(date.today()),
            "hardware": hardware(),
            "results": [vars(result) for result in results],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
