"""The time until Ctrl-C or a timeout ends a run: `python -m benchmarks interrupts [FAMILY…]`.

Each operation runs at a size that takes tenths of a second to seconds. A timer's signal comes at
moments spread over its runs and does what Ctrl-C does. Shown is the time from there to the
`KeyboardInterrupt`: with one thread of processor time, which others that use the machine do not
lengthen. With `--timeout` a timeout ends the runs instead, and the time is from there to the
`RunTimeoutError`, by the clock. Beside it stands the longest cell of a run, or the longest node
outside of native code: between these each run asks whether it should end; cells with long loops ask
inside of these, too, and large nodes outside of native code between the pieces that they are cut
into.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import graphfw as gf
from benchmarks import machine
from benchmarks.long_runs import FAMILIES, Operation
from graphfw.runtime.profile import Profile

_MOST_S = 4.0
"""Signals come in the first seconds of a run."""

_PROFILES = 3
"""A cell's time is the least of so many runs."""


class Figures(NamedTuple):
    """The times of an interrupted operation, in seconds.

    Attributes:
        whole: How long a run takes.
        cell: How long its longest cell takes.
        label: The step that it is of.
        waits: The times from the signals to the interrupts, in order.
    """

    whole: float
    cell: float
    label: str
    waits: list[float]


def measure(operation: Operation, threads: int, count: int, *, timeout: bool = False) -> Figures:
    """Interrupt some runs of an operation, or have a timeout end them."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(operation.dtype) for s in operation.shapes]
    with gf.Graph() as g:
        xs = [gf.placeholder(s, operation.dtype) for s in operation.shapes]
        value = operation.compute(*xs)
    with gf.Session(g, threads=1) as session:
        plan = session.compile(value, feeds=xs)
        plan(*arrays)  # first runs choose strategies
        cell, label = _longest_cell([plan.profile(*arrays) for _ in range(_PROFILES)])
    with gf.Session(g, threads=threads) as session:
        plan = session.compile(value, feeds=xs)
        plan(*arrays)
        begin = time.perf_counter()
        plan(*arrays)
        whole = time.perf_counter() - begin
        last = min(0.9 * whole, _MOST_S)
        moments = [last * (n + 0.1) / count for n in range(count)]
        if timeout:
            waits = [_wait_for_timeout(plan, arrays, moment) for moment in moments]
        else:
            waits = [_wait(plan, arrays, moment, threads) for moment in moments]
    return Figures(whole, cell, label, sorted(waits))


def _longest_cell(profiles: Sequence[Profile]) -> tuple[float, str]:
    """Return the time of the longest cell, and its step; on one thread their order is the same."""
    cells = zip(*[profile.events for profile in profiles], strict=True)
    seconds, step = max([(min([e.end - e.begin for e in same]), same[0].step) for same in cells])
    return seconds, next(t.label for t in profiles[0].timings if t.step == step)


def _wait(run: Callable[..., Any], arrays: Sequence[Any], moment: float, threads: int) -> float:
    """Return the seconds from a signal, some time after a run's begin, to its end."""
    timer, clock = signal.ITIMER_REAL, time.perf_counter
    if threads == 1:
        timer, clock = signal.ITIMER_PROF, time.process_time
    begin = clock()
    try:
        signal.setitimer(timer, moment)
        while True:  # where a run is over sooner, the next one is interrupted
            run(*arrays)
    except KeyboardInterrupt:
        return max(clock() - begin - moment, 0.0)
    finally:
        signal.setitimer(timer, 0)


def _wait_for_timeout(run: Callable[..., Any], arrays: Sequence[Any], timeout: float) -> float:
    """Return the seconds from the end of a run's time to its end; 0 if it ends before."""
    begin = time.perf_counter()
    with contextlib.suppress(gf.errors.RunTimeoutError):
        run(*arrays, timeout=timeout)
    return max(time.perf_counter() - begin - timeout, 0.0)


def main(arguments: list[str]) -> None:
    """Read the command line, print a row for each operation, then one for each family."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks interrupts", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="family", help=", ".join(FAMILIES))
    parser.add_argument("--threads", type=machine.threads, default=1, help="of a session (1)")
    parser.add_argument("--count", type=int, default=9, help="signals for each operation (9)")
    parser.add_argument("--timeout", action="store_true", help="end runs by a timeout, not Ctrl-C")
    options = parser.parse_args(arguments)
    for number in (signal.SIGALRM, signal.SIGPROF):
        signal.signal(number, signal.default_int_handler)
    end = "timeout" if options.timeout else "Ctrl-C"
    print(f"| operation | run, ms | longest cell, ms | of | {end}, ms: median | most |")
    print("|---|---|---|---|---|---|")
    for family in options.families or FAMILIES:
        for operation in FAMILIES[family]():
            f = measure(operation, options.threads, options.count, timeout=options.timeout)
            print(
                f"| {family}: {operation.name} | {1e3 * f.whole:.0f} | {1e3 * f.cell:.1f} "
                f"| {f.label[:40]} | {1e3 * statistics.median(f.waits):.0f} "
                f"| {1e3 * f.waits[-1]:.0f} |",
                flush=True,
            )
