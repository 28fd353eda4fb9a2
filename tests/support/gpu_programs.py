"""Small programs for the CuPy executor's tests of CUDA graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import graphfw as gf


def chain() -> tuple[gf.Graph, gf.Tensor, gf.Tensor]:
    """A graph of several kernels, each of which needs all of the one before."""
    with gf.Graph() as g:
        x = gf.placeholder(("n", 8), name="x")
        y = x
        for _ in range(6):
            y = gf.tanh(y - gf.mean(gf.sum(y * y, axis=1), axis=0)) * 0.5 + x
        gf.identity(y, name="y")
    return g, x, y


def trained(dropout: float = 0.3) -> tuple[gf.Graph, gf.Tensor, gf.Tensor, gf.Update]:
    """Training without matrix products, with random numbers, a step counter and a check."""
    with gf.Graph() as g:
        words = gf.placeholder(("batch", "time"), gf.int64, name="words")
        table = gf.Variable(gf.nn.init.normal(), shape=(11, 8), name="table")
        scale = gf.Variable(np.ones(8, np.float32), name="scale")
        x = gf.nn.Dropout(dropout)(gf.take(table, words, axis=0) * scale)
        loss = gf.mean(gf.square(gf.nn.LayerNorm(8)(x) - 0.5 * x))
        train = gf.optim.AdamW(1e-2).minimize(loss)
    return g, words, loss, train


def data(rng: np.random.Generator, n: int = 5) -> np.ndarray[Any, Any]:
    """Return the feed of `chain`."""
    return rng.normal(size=(n, 8)).astype(np.float32)


def on_cpu(
    g: gf.Graph, fetches: Any, feeds: Sequence[Mapping[Any, Any]]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the results of runs on the CPU, one after the other, and the variables then."""
    with gf.Session(g, seed=3) as session:
        return [session.run(fetches, feed) for feed in feeds], session.state_dict()
