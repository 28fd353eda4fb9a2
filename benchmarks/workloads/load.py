"""From a model's file to the first result, each figure from processes of its own.

Importing the library is left out (`benchmarks.load_time`): it is the same for all models.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import machine
from benchmarks.load_time import CONTENDERS
from benchmarks.workload import Probe, Runner, Target
from benchmarks.workloads.models import NETWORKS, image_of, model
from benchmarks.workloads.programs import compile_package, with_bytecode

Figures = tuple[dict[str, float], dict[str, str]]

_WARM = "graphfw, warm cache"


def _written(network: str, folder: str) -> str:
    """Write a network's file, and its input beside it; return the file's path."""
    proto = model(network)
    file = Path(folder) / f"{network}.onnx"
    file.write_bytes(proto.SerializeToString())
    np.save(f"{file}.npy", image_of(proto))
    return str(file)


def _once(file: str, contender: str, cache: str, threads: int) -> dict[str, float]:
    """Return what a fresh process says that it took."""
    settings = {"GRAPHFW_CACHE": cache, "OMP_NUM_THREADS": str(threads)}
    environment = with_bytecode({**os.environ, **settings})
    command = [sys.executable, "-m", "benchmarks.load_time", file, contender]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1][-300:])
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said


def _all(network: str, figure: str, runner: Runner) -> Figures:
    """Take the least of some processes, in turns: others at work only make it longer."""
    compile_package()
    names = [n for n in CONTENDERS if runner.settings.takes(n) and machine.installed(n)]
    least: dict[str, float] = {}
    notes: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = _written(network, folder)
        for number in range(2 if runner.settings.rounds < 5 else 4):
            cache = str(Path(folder) / f"cache{number}")
            # With an empty cache, then with what the first process has left there.
            for name, row in zip((*names, "graphfw"), (*names, _WARM), strict=True):
                if name not in names:
                    continue
                try:
                    said = _once(file, name, cache, runner.settings.threads)
                except RuntimeError as error:
                    notes[row] = f"failed: {error}"
                    continue
                least[row] = min(said[figure], least.get(row, said[figure]))
    return least, notes


def _times(network: str) -> Probe:
    return Probe(
        f"load-{network}",
        f"from {NETWORKS[network]}'s file to the first result, imports left out; "
        "cold cache unless said",
        functools.partial(_all, network, "seconds"),
        (Target(2.0, "onnxruntime"), Target(1.0, "onnxruntime", _WARM)),
    )


def _memory(network: str) -> Probe:
    return Probe(
        f"load-memory-{network}",
        f"memory at its highest from {NETWORKS[network]}'s file to the first result, above that "
        "with the library loaded",
        functools.partial(_all, network, "grown_mib"),
        (Target(1.0, "onnxruntime"), Target(1.0, "onnxruntime", _WARM)),
        unit="MiB",
    )


WORKLOADS = [
    *map(_times, ("resnet50", "squeezenet", "shufflenet", "densenet121", "vgg19")),
    *map(_memory, ("resnet50", "vgg19")),
]
