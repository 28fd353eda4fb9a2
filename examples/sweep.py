"""Search hyper-parameters over processes: each trial trains a small network with its own options.

    python examples/sweep.py [--trials 16] [--processes 2] [--steps 400] [--out sweep-out]

The search is successive halving (Jamieson and Talwalkar, arXiv:1502.07943): all trials train for an
eighth of the steps, the better half of them goes on to a quarter, and so on. A trial goes on from
its own checkpoint, so no step is made twice. A trial that fails is reported, and the others go on.

Each result is a line of `results.jsonl` in the folder `--out`. If the search is stopped, the same
command goes on: what is in the file is not computed again.

Needs the extra `examples` (scikit-learn for the data). Takes about half a minute.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits

import graphfw as gf

ACTIVATIONS = {"relu": gf.nn.ReLU, "tanh": gf.nn.Tanh, "gelu": gf.nn.GELU}


class Trial(NamedTuple):
    """The options of a trial. Its number is also its seed."""

    number: int
    rate: float
    width: int
    dropout: float
    activation: str


class Result(NamedTuple):
    """The outcome of a trial after some steps."""

    number: int
    steps: int
    accuracy: float
    error: str


def drawn(number: int, seed: int) -> Trial:
    """Return a trial's options, which do not depend on how many others there are."""
    rng = np.random.default_rng([seed, number])
    return Trial(
        number,
        rate=float(10 ** rng.uniform(-4.5, 0.5)),
        width=int(rng.choice([16, 32, 64, 128])),
        dropout=float(rng.choice([0.0, 0.2, 0.5])),
        activation=str(rng.choice(list(ACTIVATIONS))),
    )


def train(trial: Trial, steps: int, out: Path) -> float:
    """Train until so many steps, from the trial's checkpoint on, and return the accuracy."""
    digits = load_digits()
    images, labels = (digits.data / 16).astype(np.float32), digits.target
    with gf.Graph() as graph:
        image = gf.placeholder(("batch", 64), name="image")
        label = gf.placeholder(("batch",), gf.int64, name="label")
        model = gf.nn.Sequential(
            gf.nn.Linear(64, trial.width),
            ACTIVATIONS[trial.activation](),
            gf.nn.Dropout(trial.dropout),
            gf.nn.Linear(trial.width, 10),
        )
        loss = gf.nn.cross_entropy(model(image), label)
        step = gf.optim.Adam(trial.rate).minimize(loss)
        accuracy = gf.nn.metrics.accuracy(model(image, training=False), label)
    data = gf.data.batches(
        {"image": images[:1200], "label": labels[:1200]}, 32, seed=trial.number, epochs=None
    )
    test = gf.data.batches({"image": images[1200:], "label": labels[1200:]}, 200)
    checkpoints = gf.train.Checkpoints(out / f"trial-{trial.number}", keep_last=1)
    # One thread each: the processes share the cores.
    with gf.Session(graph, seed=trial.number, threads=1) as session:
        done, history = 0, []
        if checkpoints.latest is not None:
            training = session.restore(checkpoints.latest).metadata["training"]
            done, history = training["step"], training["history"]
        if done < steps:
            trainer = gf.train.Trainer(
                session,
                step,
                {"loss": loss},
                feeds=[image, label],
                evaluation={"accuracy": accuracy},
                checkpoints=checkpoints,
                callbacks=[lambda training: training.step >= steps],
                progress=False,
            )
            history = trainer.fit(data, eval_data=test, every=steps - done, resume=True).history
    # It has more steps where the search was stopped before it wrote down the last result.
    return next(float(r["eval/accuracy"]) for r in history if r["step"] == steps)


def attempted(trial: Trial, steps: int, out: Path) -> Result:
    """Return the result of a trial, or its error. This runs in a process of the pool."""
    try:
        return Result(trial.number, steps, train(trial, steps, out), "")
    except Exception as error:
        first = str(error).partition("\n")[0]
        return Result(trial.number, steps, math.nan, f"{type(error).__name__}: {first}")


def found_in(path: Path) -> dict[tuple[int, int], Result]:
    """Return the results in a file. A line that was being written as the search ended is none.

    Trials that failed have none, so that they are tried again.
    """
    results = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            result = Result(**json.loads(line))
        except (TypeError, ValueError):
            continue
        if not result.error:
            results[result.number, result.steps] = result
    return results


def computed(trials: list[Trial], steps: int, processes: int, out: Path) -> Iterator[Result]:
    """Yield the results of trials as they come, also where a process dies."""
    lost = []
    # "spawn": a process begins afresh, with no threads or locks of this one.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(attempted, trial, steps, out): trial for trial in trials}
        for future in as_completed(futures):
            try:
                yield future.result()
            except BrokenProcessPool:
                lost.append(futures[future])
    for trial in lost:  # one of them ended its process, and with it the pool
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            try:
                yield pool.submit(attempted, trial, steps, out).result()
            except BrokenProcessPool:
                yield Result(trial.number, steps, math.nan, "its process died")


def search(trials: list[Trial], steps: int, processes: int, out: Path) -> list[Result]:
    """Return the last result of each trial, after successive halving."""
    path = out / "results.jsonl"
    known = found_in(path)
    latest: dict[int, Result] = {}
    going = trials
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.write(b"\n")
        for now in rounds(steps):
            results = [known[trial.number, now] for trial in going if (trial.number, now) in known]
            missing = [trial for trial in going if (trial.number, now) not in known]
            for result in computed(missing, now, processes, out) if missing else ():
                results.append(result)
                file.write(json.dumps(result._asdict()).encode() + b"\n")
                file.flush()
                said = result.error or f"{result.accuracy:.2%}"
                print(f"trial {result.number}, {now} steps: {said}", flush=True)
            latest |= {result.number: result for result in results}
            better = ranked([result for result in results if not result.error])
            kept = {result.number for result in better[: max(1, len(going) // 2)]}
            going = [trial for trial in going if trial.number in kept]
    return ranked(list(latest.values()))


def rounds(steps: int) -> list[int]:
    """Return the steps after which trials are compared.

    >>> rounds(400)
    [50, 100, 200, 400]
    """
    return sorted({max(1, steps // share) for share in (8, 4, 2, 1)})


def ranked(results: list[Result]) -> list[Result]:
    """Return results with the best ones first: more steps, then more accurate; failures last."""
    succeeded = [result for result in results if not result.error]
    failed = [result for result in results if result.error]
    succeeded.sort(key=lambda result: (-result.steps, -result.accuracy, result.number))
    return succeeded + sorted(failed)


def main() -> None:
    """Search, and print a table of all trials."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400, help="of a trial that is never left out")
    parser.add_argument("--seed", type=int, default=0, help="of the options that are drawn")
    parser.add_argument("--out", type=Path, default=Path("sweep-out"))
    options = parser.parse_args()
    if min(options.trials, options.processes, options.steps) < 1:
        parser.error("--trials, --processes and --steps are at least 1")
    options.out.mkdir(parents=True, exist_ok=True)
    asked = {"seed": options.seed, "steps": options.steps}
    record = options.out / "search.json"
    if record.exists() and json.loads(record.read_text("utf-8")) != asked:
        raise SystemExit(f"{options.out} is of a search with other options: choose another --out")
    record.write_text(json.dumps(asked), "utf-8")
    trials = [drawn(number, options.seed) for number in range(options.trials)]
    results = search(trials, options.steps, options.processes, options.out)
    print("\ntrial  steps  accuracy     rate  width  dropout  activation")
    for result in results:
        trial = trials[result.number]
        print(
            f"{trial.number:5}  {result.steps:5}  {result.accuracy:8.2%}  {trial.rate:.1e}"
            f"  {trial.width:5}  {trial.dropout:7}  {trial.activation}  {result.error}".rstrip()
        )
    if not results or results[0].error:
        raise SystemExit("no trial succeeded")


if __name__ == "__main__":
    main()
