"""A program that makes one result as soon as it can: `python -m benchmarks.first_result gpt jax`.

It prints a JSON object: `loss`, and `grown_mib`, how much the process's memory grew at its highest
above what it was when the library was loaded. With `--steps N` it makes N training steps. The model
`gpt-4x128` is a GPT of 4 layers that is 128 wide.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import CONTENDERS


def main() -> None:
    """Make the steps and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_result")
    parser.add_argument("model", help="mlp, gpt, gpt-bf16, gpt-LAYERSxWIDTH, lstm or ode")
    parser.add_argument("contender", choices=tuple(CONTENDERS))
    parser.add_argument("--steps", type=int, default=1)
    options = parser.parse_args()
    importlib.import_module(CONTENDERS[options.contender])
    before = resident_mib()
    losses = _losses(options.model, options.contender, options.steps)
    print(json.dumps({"loss": losses[-1], "grown_mib": grown_mib(before)}), flush=True)


def _losses(model: str, contender: str, steps: int) -> list[float]:
    if model.startswith("gpt"):
        from benchmarks.workloads import gpt

        case = gpt.STEPS[contender](gpt.named(model))
        return [float(case.run()) for _ in range(steps)]  # type: ignore[arg-type]  # a loss
    if model == "lstm":
        from benchmarks.workloads import recurrent

        gradients = recurrent.CASES[contender](recurrent.LSTM, True)
        runs: list[Any] = [gradients.run() for _ in range(steps)]
        return [float(np.asarray(y).mean()) for y, *_ in runs]
    if model == "ode":
        from benchmarks.workloads import loops

        case = loops.FIELD_GRADIENT.makers()[contender]()
        return [float(case.run()[0]) for _ in range(steps)]  # type: ignore[index]  # a loss first
    from benchmarks.workloads import mlp

    step = mlp.STEPS[contender]()
    return [float(step(x, y)) for x, y in mlp.placed_batches(contender, 128, steps)]


def grown_mib(before: float) -> float:
    """Return how much more memory the process had at its highest than `before`."""
    # What the system's `getrusage` says is the parent's, where that has more.
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (highest,) = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(highest) / 1024 - before


def resident_mib() -> float:
    """Return how much memory the process has now."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    main()
