"""Many sizes in one session: what stays of each is its tables, not memory to compute in."""

import gc
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import graphfw as gf
from graphfw.runtime.numpy_executor.buffer_pool import OutputPool

ROOT = Path(__file__).parents[3]


def mlp(width):
    x = gf.placeholder(("n", width), name="x")
    model = gf.nn.Sequential(gf.nn.Linear(width, 256), gf.nn.GELU(), gf.nn.Linear(256, width))
    return x, gf.mean(model(x) ** 2)


def rnn(width):
    x = gf.placeholder((16, "n", width), name="x")
    outputs, _ = gf.nn.LSTM(width, width, batch_first=True)(x)
    return x, gf.mean(outputs**2)


def kept(network):
    """Return how many bytes stay of 18 further sizes."""
    with gf.Graph() as g:
        x, loss = network(96)
        step = gf.optim.SGD(0.1).minimize(loss)

    def run(n):
        shape = [n if isinstance(dim, gf.Dim) else dim for dim in x.shape]
        plan(np.zeros(shape, np.float32))

    with gf.Session(g, threads=8) as session:
        plan = session.compile([loss, step], [x])
        for n in range(20, 31):
            run(n)
        tracemalloc.start()
        try:
            for n in range(2, 20):
                run(n)
            for known in gc.get_objects():
                if isinstance(known, OutputPool):  # which keep a few arrays, whatever the sizes
                    known._past.clear()
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("network", [mlp, rnn], ids=lambda network: network.__name__)
def test_what_stays_of_a_size_is_small(network, monkeypatch):
    """In a process of its own: caches that other tests have filled would grow here."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    name = "tests.runtime.numpy_executor.test_many_sizes"
    code = f"import {name} as module; print(module.kept(module.{network.__name__}))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 18 * 60_000, "no packed weights, and no scratch memory of 8 threads"
