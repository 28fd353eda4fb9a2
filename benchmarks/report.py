"""Results as a table for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import date
from typing import Any

from benchmarks import machine
from benchmarks.workload import Result, Settings, Target

HEAD = "| workload | contender | median | minimum | × graphfw | target | reached |\n" + "|---" * 7
HEAD += "|"


def heading(settings: Settings) -> str:
    """Return what all figures of a run have in common."""
    missing = [name for name in settings.contenders if not machine.installed(name, settings.device)]
    lines = [f"{date.today()}; {machine.facts()}; {settings.threads} threads; {machine.load()}"]
    if settings.device == "cuda":
        lines[0] = lines[0].replace(";", f"; {machine.gpu()};", 1)
    if missing:
        lines.append(f"Not installed: {', '.join(missing)}")
    return "\n".join(lines)


def rows(result: Result) -> str:
    """Return a result as rows of a Markdown table, fastest first."""
    lines = []
    own = result.seconds.get("graphfw")
    order = sorted(result.seconds, key=lambda name: result.seconds[name])
    for name in order:
        value = result.seconds[name]
        least = result.text(result.minima[name]) if name in result.minima else ""
        ratio = f"{value / own:.2f}" if own else ""
        targets = [t for t in result.targets if t.row == name]
        cells = [result.name, name, result.text(value), least, ratio]
        cells += [", ".join(map(str, targets)), ", ".join(_verdict(t, result) for t in targets)]
        lines.append("| " + " | ".join(cells) + " |")
    for name, note in result.notes.items():
        lines.append(f"| {result.name} | {name} | {note} | | | | |")
    return "\n".join(lines)


def _verdict(target: Target, result: Result) -> str:
    value = target.value(result.seconds)
    if value is None:
        return "no figure"
    found = result.text(value) if target.of == "seconds" else f"{value:.2f} ×"
    return f"{'yes' if value <= target.limit else 'NO'} ({found})"


def record(settings: Settings, results: Iterable[Result]) -> dict[str, Any]:
    """Return everything as what JSON knows."""
    return {
        "date": str(date.today()),
        "processor": machine.processor(),
        "versions": machine.versions(),
        "threads": settings.threads,
        "device": machine.device(settings.device),
        "results": [
            {
                **vars(result),
                "targets": [
                    {
                        "target": str(target),
                        "row": target.row,
                        "limit": target.limit,
                        "value": (value := target.value(result.seconds)),
                        "reached": None if value is None else value <= target.limit,
                    }
                    for target in result.targets
                ],
            }
            for result in results
        ],
    }


def results_of(
    recorded: Mapping[str, Any], targets: Mapping[str, tuple[Target, ...]]
) -> list[Result]:
    """Return the results of a record, as far as there still are workloads of their names.

    Args:
        recorded: What `record` has made.
        targets: What graphfw should reach, by workload.
    """
    names = [field.name for field in fields(Result)]
    found = [{name: one[name] for name in names if name in one} for one in recorded["results"]]
    return [
        Result(**{**one, "targets": targets[one["name"]], "failed": tuple(one["failed"])})
        for one in found
        if one["name"] in targets
    ]
