"""Whole programs: time from Python's start to the first result, and memory at its highest.

Each figure comes from processes of its own (`benchmarks.first_result`).
"""

from __future__ import annotations

import compileall
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import machine
from benchmarks.workload import Probe, Runner, Target

CACHES = {
    "graphfw": "GRAPHFW_CACHE",
    "torch.compile": "TORCHINDUCTOR_CACHE_DIR",
    "jax": "JAX_COMPILATION_CACHE_DIR",
}
"""Who keeps compiled code in a folder, and the variable of the environment that names it."""

_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_CONTENDERS = ("graphfw", "numpy", "torch", "torch.compile", "jax")
_WITHOUT = {
    "gpt": ("numpy",),
    "lstm": ("numpy", "torch.compile"),
    "ode": ("numpy", "torch.compile"),
}
"""Who does not have a model."""
_SLOW_S = 1.5
"""Programs that take longer run once."""

Figures = tuple[dict[str, float], dict[str, str]]


def _program(
    model: str, contender: str, environment: dict[str, str], steps: int
) -> tuple[float, float]:
    """Return the seconds until the program said its result, and its memory in MiB."""
    command = [sys.executable, "-m", "benchmarks.first_result", model, contender]
    start = time.perf_counter()
    with subprocess.Popen(
        [*command, "--steps", str(steps)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=with_bytecode({**os.environ, **environment}),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stdout.readline()
        taken = time.perf_counter() - start
        errors = process.stderr.read()
    if process.returncode:
        raise RuntimeError((errors.strip().splitlines() or ["no message"])[-1][-300:])
    return taken, json.loads(said)["grown_mib"]


def with_bytecode(environment: dict[str, str]) -> dict[str, str]:
    """Return an environment in which Python may write and keep bytecode."""
    return {k: v for k, v in environment.items() if k != _NO_BYTECODE}


@functools.cache
def compile_package() -> None:
    """Write the bytecode of graphfw, as pip does where it installs a package."""
    root = Path(__file__).parents[2]
    for folder in ("graphfw", "benchmarks"):
        compileall.compile_dir(root / folder, quiet=1)


def _environment(runner: Runner) -> dict[str, str]:
    compile_package()
    threads = str(runner.settings.threads)
    return {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}


def _contenders(model: str, runner: Runner) -> list[str]:
    return [
        name
        for name in _CONTENDERS
        if runner.settings.takes(name)
        and machine.installed(name)
        and name not in _WITHOUT.get(model.split("-")[0], ())
    ]


def first_result(model: str, runner: Runner) -> Figures:
    """Measure from Python's start: with an empty cache, then with what the first process left."""
    seconds: dict[str, float] = {}
    notes: dict[str, str] = {}
    for name in _contenders(model, runner):
        try:
            seconds |= _from_cold_to_warm(model, name, runner)
        except RuntimeError as error:
            notes[name] = f"failed: {error}"
    return seconds, notes


def _from_cold_to_warm(model: str, name: str, runner: Runner) -> dict[str, float]:
    environment = _environment(runner)
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(1 if runner.settings.rounds < 5 else 3):
        with tempfile.TemporaryDirectory() as folder:
            if name in CACHES:
                environment[CACHES[name]] = folder
            if name == "jax":
                environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
            cold.append(_program(model, name, environment, 1)[0])
            if name in CACHES:
                warm.append(_program(model, name, environment, 1)[0])
        if cold[-1] > _SLOW_S:
            break
    if not warm:
        return {name: statistics.median(cold)}
    return {name: statistics.median(cold), f"{name}, warm cache": statistics.median(warm)}


def _memory(model: str, runner: Runner) -> Figures:
    """Measure three training steps, above what loading the library takes."""
    grown: dict[str, float] = {}
    notes: dict[str, str] = {}
    for name in _contenders(model, runner):
        try:
            grown[name] = _program(model, name, _environment(runner), 3)[1]
        except RuntimeError as error:
            notes[name] = f"failed: {error}"
    return grown, notes


_WARM = Target(0.3, "seconds", "graphfw, warm cache")

WORKLOADS = [
    Probe(
        "first-mlp",
        "from Python's start to the first step of the MLP; cold cache unless said",
        functools.partial(first_result, "mlp"),
        (Target(0.3, "seconds"), _WARM),
    ),
    Probe(
        "first-gpt",
        "from Python's start to the first step of the GPT; cold cache unless said",
        functools.partial(first_result, "gpt"),
        (Target(2.0, "seconds"), _WARM),
    ),
    Probe(
        "first-lstm",
        "from Python's start to the first gradients of the LSTM; cold cache unless said",
        functools.partial(first_result, "lstm"),
        (Target(0.3, "jax"),),
    ),
    Probe(
        "first-ode",
        "from Python's start to the gradient of ode-scan-neural; cold cache unless said",
        functools.partial(first_result, "ode"),
        (Target(0.3, "jax"),),
    ),
    Probe(
        "memory-gpt",
        "memory at its highest in three GPT training steps, above that with the library loaded",
        functools.partial(_memory, "gpt"),
        (Target(0.7, "torch"),),
        unit="MiB",
    ),
    Probe(
        "memory-gpt-bf16",
        "memory-gpt in mixed precision with bfloat16",
        functools.partial(_memory, "gpt-bf16"),
        (Target(0.7, "torch"),),
        unit="MiB",
    ),
]
