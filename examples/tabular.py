"""Train a model of a table in a parquet file that is read piece by piece.

    python examples/tabular.py [--rows 1000000] [--out tabular-out]

The table is drawn at random: rides with an hour, a zone to begin and one to end in, a distance and
a number of passengers, and whether the rider tipped. Rows are written and read by row groups, so
memory does not grow with the table: with `--rows 1000000000` it is larger than most memories.
`gf.data.parquet` shuffles rows by a seed. The model looks zones up in a table of vectors and feeds
all columns to a small network.

Needs the extra `data` (pyarrow). Takes some twenty seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from pyarrow import parquet

import graphfw as gf

Array = np.ndarray[Any, Any]

ZONES = 200
GROUP = 50_000
"""The rows of a row group, and so the rows that lie in memory at once."""


def drawn(rng: np.random.Generator, rows: int, liked: Array) -> dict[str, Array]:
    """Return columns of rides; riders tip more at night, on long rides and in some zones."""
    hour = rng.uniform(0, 24, rows).astype(np.float32)
    begin, end = rng.integers(0, ZONES, (2, rows))
    distance = rng.gamma(2.0, 2.0, rows).astype(np.float32)
    passengers = rng.integers(1, 5, rows)
    score = liked[begin] + liked[end] * 0.5 + np.log(distance) - 0.2 * passengers
    score += 1.5 * np.cos((hour - 22) / 12 * np.pi)
    tipped = rng.random(rows) < 1 / (1 + np.exp(-score))
    return {
        "hour": hour,
        "begin": begin,
        "end": end,
        "distance": distance,
        "passengers": passengers.astype(np.float32),
        "tipped": tipped.astype(np.float32),
    }


def write(path: Path, rows: int, seed: int) -> None:
    """Write a table of rides, a row group at a time."""
    rng = np.random.default_rng(seed)
    liked = np.random.default_rng(7).normal(0, 1, ZONES)
    writer = None
    for first in range(0, rows, GROUP):
        table = pyarrow.table(drawn(rng, min(GROUP, rows - first), liked))
        writer = writer or parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


class Model(NamedTuple):
    """The graph, and its tensors that the rest of the program uses."""

    graph: gf.Graph
    feeds: list[gf.Tensor]
    loss: gf.Tensor
    step: gf.Update
    quality: gf.Tensor


def describe(steps: int) -> Model:
    """Describe the network, its loss and its training step; nothing is computed here."""
    with gf.Graph("tabular") as graph:
        hour = gf.placeholder(("batch",), name="hour")
        begin = gf.placeholder(("batch",), gf.int64, name="begin")
        end = gf.placeholder(("batch",), gf.int64, name="end")
        distance = gf.placeholder(("batch",), name="distance")
        passengers = gf.placeholder(("batch",), name="passengers")
        tipped = gf.placeholder(("batch",), name="tipped")
        zones = gf.nn.Embedding(ZONES, 8)
        turn = hour * (2 * gf.pi / 24)  # so that midnight is near one o'clock
        numbers = [gf.sin(turn), gf.cos(turn), gf.log(distance + 1e-3), passengers]
        columns = gf.concat([gf.stack(numbers, axis=1), zones(begin), zones(end)], axis=1)
        model = gf.nn.Sequential(
            gf.nn.Linear(4 + 2 * 8, 64), gf.nn.ReLU(), gf.nn.Linear(64, 32), gf.nn.ReLU(),
            gf.nn.Linear(32, 1),
        )  # fmt: skip
        score = gf.squeeze(model(columns), axis=1)
        loss = gf.nn.bce_with_logits(score, tipped)
        rate = gf.optim.schedules.cosine(3e-3, steps)
        step = gf.optim.AdamW(rate).minimize(loss)
        quality = gf.nn.metrics.roc_auc(score, tipped > 0.5)
    feeds = [hour, begin, end, distance, passengers, tipped]
    return Model(graph, feeds, loss, step, quality)


def main() -> None:
    """Write the tables, train, and say how well the model tells riders apart."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=Path("tabular-out"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rides, others = options.out / "rides.parquet", options.out / "test.parquet"
    write(rides, options.rows, seed=0)
    write(others, GROUP, seed=1)
    data = gf.data.parquet(rides, 512, seed=0, epochs=2)
    net = describe(len(data))
    with gf.Session(net.graph, seed=0) as session:
        trainer = gf.train.Trainer(
            session,
            net.step,
            {"loss": net.loss},
            feeds=net.feeds,
            evaluation={"auc": net.quality},
            monitor="auc",
            maximize=True,
            checkpoints=gf.train.Checkpoints(options.out, keep_last=1),
        )
        result = trainer.fit(data, eval_data=gf.data.parquet(others, GROUP), every=500)
    found = result.history[-1]
    print(f"{result.step} steps on {options.rows:,} rows: AUC {found['eval/auc']:.3f}")
    print(f"{found['waiting']:.0%} of the time waited for data")
    if found["eval/auc"] < 0.8:  # that of the drawn scores themselves is 0.84
        raise SystemExit("the model did not learn as it should")


if __name__ == "__main__":
    main()
