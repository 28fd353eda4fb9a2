"""Timing that survives a noisy machine: contenders take turns, and the median counts."""

from __future__ import annotations

import gc
import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ROUND_S = 0.05
"""How long one contender runs before the next has its turn."""


@dataclass(frozen=True)
class Result:
    """One workload's figures.

    Attributes:
        name: The workload.
        seconds: The median time of each contender.
        target: What graphfw should reach, in words.
        notes: Anything to know when reading the figures.
    """

    name: str
    seconds: dict[str, float]
    target: str = ""
    notes: dict[str, str] = field(default_factory=dict)


def compare(contenders: Mapping[str, Callable[[], object]], rounds: int = 15) -> dict[str, float]:
    """Return each contender's median time in seconds, measured in turns.

    Every contender is called once before anything counts. In a round each runs for about
    `ROUND_S`; a round's figure is the mean of its calls, the result the median over rounds.
    """
    calls = {}
    for name, function in contenders.items():
        function()
        start = time.perf_counter()
        function()
        once = max(time.perf_counter() - start, 1e-7)
        calls[name] = max(1, int(ROUND_S / once))
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, function in contenders.items():
                start = time.perf_counter()
                for _ in range(calls[name]):
                    function()
                samples[name].append((time.perf_counter() - start) / calls[name])
    finally:
        gc.enable()
    return {name: statistics.median(times) for name, times in samples.items()}


def compare_apart(
    makers: Mapping[str, Callable[[], Callable[[], object]]], rounds: int = 15
) -> dict[str, float]:
    """Return each contender's median time in seconds, each in a process of its own, in turns.

    Libraries with thread pools slow each other down in one process: OpenBLAS's threads spin on
    after a call and take PyTorch's cores. Makers are called in the processes, so they must pickle.
    """
    context = multiprocessing.get_context("spawn")
    pipes = {}
    processes = []
    for name, maker in makers.items():
        pipes[name], theirs = context.Pipe()
        process = context.Process(target=_contend, args=(theirs, maker), daemon=True)
        process.start()
        processes.append(process)
    samples: dict[str, list[float]] = {name: [] for name in makers}
    for pipe in pipes.values():
        pipe.recv()  # it is warm
    for _ in range(rounds):
        for name, pipe in pipes.items():
            pipe.send(True)
            samples[name].append(pipe.recv())
    for pipe in pipes.values():
        pipe.send(False)
    for process in processes:
        process.join()
    return {name: statistics.median(times) for name, times in samples.items()}


def _contend(pipe: Any, maker: Callable[[], Callable[[], object]]) -> None:
    """Run rounds as long as the other end asks for them, and send what a call took."""
    function = maker()
    for _ in range(3):
        function()
    start = time.perf_counter()
    function()
    calls = max(1, int(4 * ROUND_S / max(time.perf_counter() - start, 1e-7)))
    pipe.send(None)
    while pipe.recv():
        function()  # wakes the threads
        start = time.perf_counter()
        for _ in range(calls):
            function()
        pipe.send((time.perf_counter() - start) / calls)


def text(seconds: float) -> str:
    """Say a time with a unit that fits."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def hardware() -> str:
    """Describe the machine, for the record."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
        model = f"{names[0]}, {len(names)} cores"
    except (OSError, IndexError):
        pass
    return f"{model}; {platform.system()}; Python {platform.python_version()}"
