"""The cost of a node as graphs grow: `python -m benchmarks.large_graphs` prints a table.

Graphs of several shapes, from a thousand nodes on, ten times as many each time, are described and
compiled, each in a process of its own that keeps nothing from before. Shown is processor time in
microseconds a node, on all threads: it depends less on what else the machine does than the clock.
`--largest 1000000` goes on to a million nodes, which takes minutes a shape.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.first_result import grown_mib, resident_mib

BUILD, COMPILE = 10, 200
"""The targets, in microseconds a node."""


def chain(n: int) -> tuple[list[Any], list[Any]]:
    """One elementwise operation after the other."""
    import graphfw as gf

    x = y = gf.placeholder((8,), name="x")
    for _ in range(n):
        y = gf.sin(y)
    return [y], [x]


def gradient(n: int) -> tuple[list[Any], list[Any]]:
    """A chain and its gradient."""
    import graphfw as gf

    (y,), (x,) = chain(n // 3)
    return [gf.grad(gf.sum(y), x)], [x]


def concat(n: int) -> tuple[list[Any], list[Any]]:
    """A concatenation of many parts, and its gradient."""
    import graphfw as gf

    x = gf.placeholder((8,), name="x")
    sections = [gf.sin(x) if i % 2 else gf.cos(x) for i in range(n // 5)]
    y = gf.concat(sections)
    return [gf.grad(gf.sum(y * y), x)], [x]


def numbers(n: int) -> tuple[list[Any], list[Any]]:
    """A chain with another number at each link."""
    import graphfw as gf

    x = y = gf.placeholder((8,), name="x")
    for i in range(n // 4):
        y = y * (1 + i / 2**20) + i / 2**10
    return [y], [x]


def outputs(n: int) -> tuple[list[Any], list[Any]]:
    """Many results, all fetched."""
    import graphfw as gf

    x = gf.placeholder((8,), name="x")
    return [x * (i + 0.5) for i in range(n // 2)], [x]


def functions(n: int) -> tuple[list[Any], list[Any]]:
    """Many results of a function that is long in code, each of another number."""
    import graphfw as gf

    x = gf.placeholder((8,), name="x")
    return [gf.sin(x * (i + 0.5)) for i in range(n // 3)], [x]


def rows(n: int) -> tuple[list[Any], list[Any]]:
    """Reductions along one axis and the other, so that no two are one kernel."""
    import graphfw as gf

    x = y = gf.placeholder((8, 8), name="x")
    for i in range(n // 7):
        y = gf.softmax(gf.sin(y), axis=i % 2)
    return [y], [x]


def training(n: int) -> tuple[list[Any], list[Any]]:
    """A training step of a network of many narrow layers."""
    import graphfw as gf

    x = gf.placeholder(("b", 16), name="x")
    model = gf.nn.Sequential(*[gf.nn.Linear(16, 16) for _ in range(n // 24)])
    loss = gf.mean(model(x) ** 2)
    step = gf.optim.SGD(0.1).minimize(loss)
    return [loss, step], [x]


SHAPES: dict[str, Callable[[int], tuple[list[Any], list[Any]]]] = {
    one.__name__: one
    for one in (chain, gradient, concat, numbers, outputs, functions, rows, training)
}


def main() -> None:
    """Measure and print the table, row by row."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_graphs", description=__doc__)
    parser.add_argument("shapes", nargs="*", help=f"of: {', '.join(SHAPES)} (all)")
    parser.add_argument("--largest", type=int, default=100_000, help="nodes, about (100000)")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    shapes = options.shapes or [*SHAPES]
    for name in shapes:
        if name not in SHAPES:
            parser.error(f"no shape is named {name!r}: there are {', '.join(SHAPES)}")
    if options.one is not None:
        print(json.dumps(_measured(SHAPES[shapes[0]], options.one)), flush=True)
        return
    processor = platform.processor() or platform.machine()
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    print(f"{date.today()}, {processor}, {os.cpu_count()} cores, {load}\n")
    print(f"| graph | nodes | build µs a node (≤ {BUILD}) | compile (≤ {COMPILE}) | s | MiB |")
    print("|---|---|---|---|---|---|", flush=True)
    for name in shapes:
        size = 1000
        while size <= options.largest:
            print(_row(name, size), flush=True)
            size *= 10


def _row(name: str, size: int) -> str:
    command = [sys.executable, "-m", "benchmarks.large_graphs", name, "--one", str(size)]
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "GRAPHFW_CACHE": "off"}
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        return f"| {name} | {size:,} | failed: status {done.returncode} | | | |"
    found = json.loads(done.stdout)
    nodes = found["nodes"]
    build, compiled = (found[stage] * 1e6 / nodes for stage in ("build", "compile"))
    seconds, memory = found["build"] + found["compile"], found["grown_mib"]
    return f"| {name} | {nodes:,} | {build:.1f} | {compiled:.0f} | {seconds:.1f} | {memory:,.0f} |"


def _measured(make: Callable[[int], tuple[list[Any], list[Any]]], n: int) -> dict[str, float]:
    """Describe and compile a graph, after a small one of another kind."""
    import graphfw as gf

    with gf.Graph() as other:
        x = gf.placeholder((3, 5), name="x")
        doubled = gf.exp(x) * 2.0
        gf.grad(gf.sum(doubled), x)
    gf.Session(other).compile(doubled, feeds=[x])
    before = resident_mib()
    begin = time.process_time()
    with gf.Graph() as g:
        fetches, feeds = make(n)
    middle = time.process_time()
    gf.Session(g).compile(fetches, feeds=feeds)
    end = time.process_time()
    return {
        "nodes": len(g.nodes),
        "build": middle - begin,
        "compile": end - middle,
        "grown_mib": grown_mib(before),
    }


if __name__ == "__main__":
    main()
