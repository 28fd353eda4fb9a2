"""`python -m graphfw opt`: passes, by name, over the text of a graph."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from graphfw.errors import ArgumentError, did_you_mean
from graphfw.ir.graph import Graph
from graphfw.ir.printer import graph_text
from graphfw.passes.base import Pass
from graphfw.passes.manager import PassReport, run_pipeline
from graphfw.runtime.commands.reading import add_graph, read_program
from graphfw.runtime.cupy_executor import passes as gpu
from graphfw.runtime.extra_passes import named
from graphfw.runtime.numpy_executor import passes as cpu

_CAPABILITY = "90"
"""The GPU whose passes are known by name; there need be none."""


def main(arguments: Sequence[str]) -> None:
    """Do what follows `python -m graphfw opt`.

    Raises:
        ArgumentError: A file can't be read, or there is no such pass.
        ParseError: A line of the text can't be read.
        PassError: A pass failed.
    """
    options = _parser().parse_args(arguments)
    passes = [*cpu.passes()] if options.passes is None else _chosen(options.passes)
    program = read_program(options, passes)
    shown = program.source

    def say(graph: Graph, report: PassReport) -> None:
        nonlocal shown
        hits = ", ".join([f"{name} {count}" for name, count in sorted(report.hits.items())])
        if graph is shown:
            sys.stdout.write(f"# after {report.name}: the same\n")
        else:
            _print(graph, f"after {report.name}: {hits}" if hits else f"after {report.name}")
        shown = graph

    if options.print_between:
        _print(shown, "before")
        run_pipeline(shown, passes, verify="each", after=say)
    else:
        _print(run_pipeline(shown, passes, verify="each").graph)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m graphfw opt",
        description="Run passes over a graph, and print it.",
        epilog=f"Passes: {', '.join(_own())}; and those of installed packages.",
    )
    add_graph(parser)
    parser.add_argument(
        "-p",
        "--passes",
        metavar="NAME,…",
        help="the passes, in order; all of the CPU's by default",
    )
    parser.add_argument(
        "--print-between",
        action="store_true",
        help="print the graph before the first pass, and after each one that changed it",
    )
    return parser


def _own() -> Mapping[str, Pass]:
    """Return the compiler's passes by name."""
    return {one.name: one for one in (*cpu.passes(), *gpu.passes(_CAPABILITY))}


def _chosen(names: str) -> list[Pass]:
    own = _own()
    found: list[Pass] = []
    for name in [word.strip() for word in names.split(",") if word.strip()]:
        near = did_you_mean(name, own, cutoff=0.4)
        hint = f"{near} there are: {', '.join(own)}".strip()
        found.append(own[name] if name in own else named(name, hint))
    if not found:
        raise ArgumentError("-p names no pass", fix=f"there are: {', '.join(own)}")
    return found


def _print(graph: Graph, comment: str = "") -> None:
    if comment:
        sys.stdout.write(f"# {comment}\n")
    sys.stdout.write(f"{graph_text(graph, locations=False)}\n")
