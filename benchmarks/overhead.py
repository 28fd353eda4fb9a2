"""What graphfw itself costs: importing, building, compiling, calling."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import graphfw as gf
from benchmarks.timing import Result, compare


def imports() -> Result:
    """`import graphfw` in a fresh process, beside `import numpy`; bytecode is compiled before."""
    seconds: dict[str, list[float]] = {"graphfw": [], "numpy": []}
    program = "import time; s = time.perf_counter(); import {}; print(time.perf_counter() - s)"
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(12):
            for module, samples in seconds.items():
                command = [sys.executable, "-c", program.format(module)]
                done = subprocess.run(
                    command, capture_output=True, text=True, check=True, env=environment
                )
                samples.append(float(done.stdout))
    medians = {module: statistics.median(samples[1:]) for module, samples in seconds.items()}
    return Result("import (NumPy included)", medians, "graphfw < 150 ms")


def build_node() -> Result:
    """One node: `y + c` on a symbolic batch."""
    with gf.Graph():
        x = gf.placeholder(("batch", 64), name="x")
        c = gf.placeholder((64,), name="c")
        seconds = compare({"graphfw": lambda: x + c}, rounds=5)
    return Result("build one node", seconds, "< 20 µs")


def _chain(length: int) -> tuple[gf.Graph, gf.Tensor, gf.Tensor]:
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 8), name="x")
        y = x
        for _ in range(length // 2):
            y = gf.tanh(y * x)
        loss = gf.sum(y)
    return g, x, loss


def large_graph() -> Result:
    """A graph of 100,000 nodes: per-node cost of each stage, beside one of 10,000."""
    seconds: dict[str, float] = {}
    for length in (10_000, 100_000):
        start = time.perf_counter()
        g, x, loss = _chain(length)
        built = time.perf_counter()
        gf.verify(g)
        verified = time.perf_counter()
        with g:
            gradient = gf.grad(loss, x)
        differentiated = time.perf_counter()
        with gf.Session(g, verify="off") as session:
            plan = session.compile([loss, gradient], feeds=[x])
            compiled = time.perf_counter()
            plan(np.zeros((1, 8), np.float32))
            ran = time.perf_counter()
        stages = {
            "build": built - start,
            "verify": verified - built,
            "differentiate": differentiated - verified,
            "compile": compiled - differentiated,
            "run": ran - compiled,
        }
        seconds.update({f"{k}, {length} nodes": v / length for k, v in stages.items()})
    return Result("large graph, per forward node", seconds, "linear: the same per node")


def call() -> Result:
    """A graph of two ops on 16 floats: what `run` and a plan add to the ops themselves."""
    with gf.Graph() as g:
        x = gf.placeholder((16,), name="x")
        y = gf.exp(x) * 2.0
    array, two = np.ones(16, np.float32), np.float32(2.0)
    with gf.Session(g, verify="off") as session:
        plan = session.compile(y, feeds=[x])
        seconds = compare(
            {
                "numpy": lambda: np.exp(array) * two,
                "plan": lambda: plan(array),
                "session.run": lambda: session.run(y, {x: array}),
            }
        )
    seconds["plan, above the ops"] = seconds["plan"] - seconds["numpy"]
    seconds["session.run, above the ops"] = seconds["session.run"] - seconds["numpy"]
    return Result("two ops on 16 floats", seconds, "run < 15 µs, plan < 5 µs above the ops")


def new_size() -> Result:
    """A training step of an MLP at sizes that it has not seen, beside one that it has."""
    with gf.Graph() as g:
        x = gf.placeholder(("batch", 16), name="x")
        y = gf.placeholder(("batch",), gf.int64, name="y")
        model = gf.nn.Sequential(gf.nn.Linear(16, 16), gf.nn.ReLU(), gf.nn.Linear(16, 4))
        train = gf.optim.Adam().minimize(gf.nn.cross_entropy(model(x), y))
    samples: dict[str, list[float]] = {"first at a size": [], "second at a size": []}
    with gf.Session(g, verify="off") as session:
        plan = session.compile(train, feeds=[x, y])
        for size in range(1, 201):
            feeds = np.ones((size, 16), np.float32), np.zeros(size, np.int64)
            for times in samples.values():
                start = time.perf_counter()
                plan(*feeds)
                times.append(time.perf_counter() - start)
    medians = {name: statistics.median(times[10:]) for name, times in samples.items()}
    medians["what a new size adds"] = medians["first at a size"] - medians["second at a size"]
    return Result("a new batch size, 190 of them", medians, "nothing recompiles")


WORKLOADS = {
    "new-size": new_size,
    "import": imports,
    "build-node": build_node,
    "large-graph": large_graph,
    "call": call,
}
