"""Compare the spike's kernels with NumPy, then with graphfw's, in turns in one process.

python -m spikes.tile_ir.bench [--threads 2] [--seconds 3] [--json FILE] [name ...]
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.runtime.numpy_executor import engine
from spikes.tile_ir.cases import Case, cases, matmul_case
from spikes.tile_ir.target import here

BATCH = 0.02
"""The seconds of a batch of calls: caches are as the calls of one kind leave them."""


def checked(case: Case, run: Callable[[], None]) -> float:
    """Return the error of a run as a part of the largest element; raise if it is too large."""
    result = case.arrays[-1]
    result[:] = 77
    run()
    expected = case.expected()
    error = float(np.abs(result - expected).max() / np.abs(expected).max())
    if not error <= case.tolerance:
        raise AssertionError(f"the error is {error}")
    return error


def in_turns(
    new: Callable[[], Any], old: Callable[[], Any], seconds: float, clock: Callable[[], float]
) -> dict[str, float]:
    """Time two functions in turns; return medians in ms, and old / new with its bounds."""

    def batch(run: Callable[[], Any], count: int) -> float:
        begin = clock()
        for _ in range(count):
            run()
        return (clock() - begin) / count

    counts = [max(int(BATCH / max(batch(run, 3), 1e-6)), 1) for run in (new, old)]
    times: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 11:
        both = [0.0, 0.0]
        for which in (0, 1) if len(times) % 2 else (1, 0):
            both[which] = batch((new, old)[which], counts[which])
        times.append((both[0], both[1]))
    ratios = sorted(old / new for new, old in times)
    # Of n numbers the median lies between these two in 95 of 100 cases.
    below = max(int(len(ratios) / 2 - 0.98 * math.sqrt(len(ratios))), 0)
    return {
        "new": statistics.median(t for t, _ in times) * 1e3,
        "old": statistics.median(t for _, t in times) * 1e3,
        "ratio": statistics.median(ratios),
        "low": ratios[below],
        "high": ratios[-1 - below],
        "pairs": len(ratios),
    }


def compile_times(name: str, repeats: int = 7) -> dict[str, float]:
    """Return the processor ms from kernels to machine code: the least of new processes."""
    found: dict[str, float] = {}
    for who in ("old", "new"):
        # Forked from one that has compiled none of it.
        with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
            runs = [pool.apply(compiled, (name, who)) for _ in range(repeats)]
        found[f"{who}_compile"] = min(runs)
    return found


def compiled(name: str, who: str) -> float:
    """Return the processor ms that the engine takes for graphfw's kernels, or all of the spike's.

    The engine writes the text of graphfw's kernels.
    """
    case, spent = cases(here())[name](np.random.default_rng(0)), [0.0]
    addresses = engine.Engine.addresses

    def timed(self: engine.Engine, codes: Any) -> list[int]:
        begin = time.process_time()
        found = addresses(self, codes)
        spent[0] += time.process_time() - begin
        return found

    engine.Engine.addresses = timed  # type: ignore[method-assign]  # for this process
    if who == "old":
        case.graph(1)()
    else:
        begin = time.process_time()
        case.program().bind(case.arrays)
        spent[0] = time.process_time() - begin
    return spent[0] * 1e3


def _warmed_up() -> None:
    """Compile something else first: what the engine compiles once is not counted."""
    with gf.Graph() as graph:
        x = gf.placeholder((3,))
        y = x + 1
    gf.Session(graph, threads=1).compile(y, feeds=[x])(np.ones(3, np.float32))


def many_compiled() -> dict[str, float]:
    """Return the processor ms for ten products of different sizes, all by one process.

    The sizes are a part of the kernels, or not; graphfw's never have them.
    """
    sizes = [(64 + 10 * i, 200 + 30 * i, 96 + 20 * i) for i in range(10)]
    found = {}
    _warmed_up()
    for how in ("old", "static", "symbolic"):
        spent = 0.0
        for n, (m, k, width) in enumerate(sizes):
            case = matmul_case(
                here(), np.random.default_rng(n), m, k, width, symbolic=how != "static"
            )
            begin = time.process_time()
            if how == "old":
                case.graph(1)()
            else:
                case.program().bind(case.arrays)
            spent += time.process_time() - begin
        found[how] = spent * 1e3
    return found


def main() -> None:
    """Run the workloads that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--check", action="store_true", help="compare with NumPy only")
    parser.add_argument("--compile-times", action="store_true", help="of each, and nothing else")
    parser.add_argument("--many", action="store_true", help="of ten products of different sizes")
    options = parser.parse_args()
    if options.many or options.compile_times:
        os.environ["GRAPHFW_CACHE"] = "off"
    if options.many:
        print(*[f"{key} {value:.4g}" for key, value in many_compiled().items()])
        return
    if options.compile_times:
        _warmed_up()
    random, rows = np.random.default_rng(), {}
    # One thread is timed by its processor time, which others on the machine disturb less.
    clock = time.thread_time if options.threads == 1 else time.perf_counter
    for name, make in cases(here()).items():
        if options.names and not any(part in name for part in options.names):
            continue
        if options.compile_times:
            rows[name] = compile_times(name)
            print(f"{name:32}", *[f"{key} {value:.4g}" for key, value in rows[name].items()])
            continue
        case = make(random)
        run = case.program().bind(case.arrays, options.threads)
        row: dict[str, float] = {"error": checked(case, run)}
        if not options.check:
            row |= in_turns(run, case.graph(options.threads), options.seconds, clock)
        rows[name] = row
        print(f"{name:32}", *[f"{key} {value:.4g}" for key, value in row.items()], flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
