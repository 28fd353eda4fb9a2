"""The time that compiling takes, with nothing kept from before.

Each figure is of processes of its own (`benchmarks.compile_time`). "describe and compile" begins
with Python functions, and is compared with tracing, lowering and compiling in JAX; "compile" begins
with what was described.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile

from benchmarks import machine
from benchmarks.compile_time import CONTENDERS, PROGRAMS
from benchmarks.workload import Probe, Runner, Target

Figures = tuple[dict[str, float], dict[str, str]]

_LATER = "{}, compile alone"


def _seconds(program: str, contender: str, threads: int) -> dict[str, float]:
    """Return what a fresh process says that it took."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GRAPHFW_CACHE": folder, "OMP_NUM_THREADS": str(threads)}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        command = [sys.executable, "-m", "benchmarks.compile_time", program, contender]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1][-300:])
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said


def _measure(program: str, runner: Runner) -> Figures:
    """Take the least of some processes, in turns: others at work only make it longer."""
    names = [n for n in CONTENDERS if runner.settings.takes(n) and machine.installed(n)]
    seconds: dict[str, float] = {}
    notes: dict[str, str] = {}
    for _ in range(2 if runner.settings.rounds < 5 else 4):
        for name in names:
            try:
                said = _seconds(program, name, runner.settings.threads)
            except RuntimeError as error:
                notes[name] = f"failed: {error}"
                continue
            figures = {name: sum(said.values()), _LATER.format(name): said["compiled"]}
            for row, value in figures.items():
                seconds[row] = min(value, seconds.get(row, value))
    return seconds, notes


WORKLOADS = [
    Probe(
        f"compile-{program}",
        f"describing and compiling {program}, imports left out, nothing kept from before",
        functools.partial(_measure, program),
        (
            Target(0.3, "jax"),
            Target(0.3, _LATER.format("jax"), _LATER.format("graphfw")),
        ),
    )
    for program in PROGRAMS
]
