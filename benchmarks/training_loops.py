"""The time that loops take around a step: `python -m benchmarks.training_loops`.

A plan of a small training step is called on the same batches, which lie ready, by three loops: one
that calls it and no more, one over `gf.data.feeds`, and `gf.train.Trainer` with a report each
hundred steps. They take turns; shown is the median of the processor time that the loop's thread
takes for a step, which other processes do not lengthen, and what it is above the first loop's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np

import graphfw as gf
from benchmarks import machine, timing

_STEPS = 500


def loops() -> dict[str, Callable[[], object]]:
    """Return the loops by name; each makes `_STEPS` steps."""
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 16), name="x")
        loss = gf.mean((gf.nn.Linear(16, 1)(x) - 1) ** 2)
        step = gf.optim.SGD(1e-3).minimize(loss)
    session = gf.Session(g, threads=1)
    plan = session.compile([step, [loss]], feeds=[x])
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((32, 16)).astype(np.float32) for _ in range(_STEPS)]
    trainer = gf.train.Trainer(session, step, {"loss": loss}, feeds=[x])

    def bare() -> None:
        for batch in batches:
            plan(batch)

    def over_feeds(ahead: int) -> None:
        with gf.data.feeds(batches, plan, ahead=ahead) as feeds:
            for feed in feeds:
                plan(*feed.values())

    return {
        "calls of the plan": bare,
        "gf.data.feeds, ahead=0": lambda: over_feeds(0),
        "gf.train.Trainer, ahead=0": lambda: trainer.fit(batches, ahead=0),
        "gf.data.feeds, ahead=2": lambda: over_feeds(2),
        "gf.train.Trainer, ahead=2": lambda: trainer.fit(batches, ahead=2),
    }


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_loops")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"{machine.facts()}; {machine.load()}\n\n| loop | a step | above calls |\n|---|--:|--:|")
    found = measured(loops(), options.rounds)
    least = next(iter(found.values()))
    for name, seconds in found.items():
        print(f"| {name} | {timing.text(seconds)} | {timing.text(seconds - least)} |")


def measured(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the seconds of a step in each loop."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):  # the first round warms up
        for name, loop in contenders.items():
            begun = time.thread_time()
            loop()
            samples[name].append((time.thread_time() - begun) / _STEPS)
    return {name: statistics.median(times[1:]) for name, times in samples.items()}


if __name__ == "__main__":
    main()
