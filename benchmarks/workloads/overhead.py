"""The overhead of graphfw: importing, building, compiling, calling, a size it has not seen."""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import machine
from benchmarks.timing import compare
from benchmarks.workload import Probe, Runner, Target
from benchmarks.workloads import mlp

Figures = tuple[dict[str, float], dict[str, str]]


def _imports(runner: Runner) -> Figures:
    """Import in fresh processes, in turns; bytecode is compiled before."""
    names = [n for n in ("graphfw", "numpy") if runner.settings.takes(n)]
    seconds: dict[str, list[float]] = {name: [] for name in names}
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
    return {module: statistics.median(samples[1:]) for module, samples in seconds.items()}, {}


def build_node() -> dict[str, float]:
    """Return the time of building one node: `y + c` on a symbolic batch."""
    import graphfw as gf

    with gf.Graph():
        x = gf.placeholder(("batch", 64), name="x")
        c = gf.placeholder((64,), name="c")
        return compare({"graphfw": lambda: x + c}, rounds=5)


def _chain(length: int) -> tuple[Any, Any, Any]:
    import graphfw as gf

    with gf.Graph() as g:
        x = gf.placeholder(("batch", 8), name="x")
        y = x
        for _ in range(length // 2):
            y = gf.tanh(y * x)
        loss = gf.sum(y)
    return g, x, loss


def large_graph() -> dict[str, float]:
    """Return the time of each stage for each forward node, in a graph of 100,000 and of 10,000."""
    import graphfw as gf

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
            laid_out = time.perf_counter()
            plan(np.ones((1, 8), np.float32))
            ran = time.perf_counter()
        stages = {
            "build": built - start,
            "verify": verified - built,
            "differentiate": differentiated - verified,
            "compile": compiled - differentiated,
            "first run": laid_out - compiled,
            "run": ran - laid_out,
        }
        seconds.update({f"{k}, {length} nodes": v / length for k, v in stages.items()})
    return seconds


def call() -> dict[str, float]:
    """Return what `run` and a plan add to two operations on 16 floats."""
    import graphfw as gf

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
    seconds["plan, above NumPy"] = seconds["plan"] - seconds["numpy"]
    seconds["session.run, above NumPy"] = seconds["session.run"] - seconds["numpy"]
    return seconds


def _training() -> tuple[Any, Any]:
    """Return a session and what a step of it does: two matrices of 256 KB are written over."""
    import graphfw as gf

    with gf.Graph() as g:
        matrices = [gf.Variable(np.zeros((256, 256), np.float32), name=name) for name in "ab"]
        step = gf.group(*[gf.update(each, each + 1.0) for each in matrices])
    return gf.Session(g), step


def _compiling(scale: int) -> None:
    import graphfw as gf

    with gf.Graph() as g:
        x = gf.placeholder(("n", 32), name="x")
        y = gf.sum(gf.tanh(x * float(scale)) + gf.sin(x), axis=0)
    with gf.Session(g) as session:
        session.run(y, {x: np.ones((4, 32), np.float32)})


def forks() -> dict[str, float]:
    """Return how long `os.fork` takes while another thread does nothing, trains, compiles."""
    session, step = _training()
    numbers = itertools.count()
    jobs: dict[str, Callable[[], Any]] = {
        "idle": lambda: time.sleep(0.01),
        "training": lambda: session.run(step),
        "compiling": lambda: _compiling(next(numbers)),
    }
    seconds: dict[str, float] = {}
    for name, job in jobs.items():
        job()
        times = _fork_times(job)
        seconds[name], seconds[f"{name}, worst"] = statistics.median(times), max(times)
    session.close()
    return seconds


def _fork_times(job: Callable[[], Any]) -> list[float]:
    """Fork 30 times, at any moment of a thread that does a job again and again."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            job()

    thread = threading.Thread(target=work)
    thread.start()
    times = []
    for number in range(30):
        time.sleep(0.01 + 0.0007 * number)
        start = time.perf_counter()
        child = os.fork()
        if not child:
            os._exit(0)
        times.append(time.perf_counter() - start)
        os.waitpid(child, 0)
    over.set()
    thread.join()
    return times


def _alone(function: Callable[[], dict[str, float]], runner: Runner) -> Figures:
    """Measure in graphfw's process, where graphfw takes part."""
    if not runner.settings.takes("graphfw"):
        return {}, {"graphfw": "left out"}
    return runner.call("graphfw", function), {}


def what_a_size_adds(contender: str) -> list[float]:
    """Return by how much longer each first step at a batch size takes than later ones.

    Of 40 sizes, or as many as three seconds admit; the very first one is left out.
    """
    step = mlp.STEPS[contender]()
    added: list[float] = []
    begin = time.perf_counter()
    for size in range(5, 46):
        ((x, y),) = mlp.placed_batches(contender, size, 1)
        times = []
        for _ in range(3):
            start = time.perf_counter()
            step(x, y)
            times.append(time.perf_counter() - start)
        added.append(times[0] - min(times[1:]))
        if len(added) > 3 and time.perf_counter() - begin > 3:
            break
    return added[1:]


def _new_size(runner: Runner) -> Figures:
    seconds: dict[str, float] = {}
    for name in mlp.STEPS:
        if runner.settings.takes(name) and machine.installed(name):
            added = runner.call(name, what_a_size_adds, name)
            seconds[name], seconds[f"{name}, worst"] = statistics.median(added), max(added)
    return seconds, {}


WORKLOADS = [
    Probe(
        "new-size",
        "what a new batch size adds to the first training step of the MLP with it",
        _new_size,
        (Target(1e-3, "seconds"),),
    ),
    Probe("import", "import, NumPy's included", _imports, (Target(0.15, "seconds"),)),
    Probe(
        "build-node",
        "building one node",
        lambda runner: _alone(build_node, runner),
        (Target(20e-6, "seconds"),),
    ),
    Probe(
        "large-graph",
        "a graph of 100,000 nodes beside one of 10,000: time for each forward node",
        lambda runner: _alone(large_graph, runner),
        tuple(
            Target(1.5, f"{stage}, 10000 nodes", f"{stage}, 100000 nodes")
            for stage in ("build", "verify", "differentiate", "compile", "first run", "run")
        ),
    ),
    Probe(
        "fork",
        "os.fork() while another thread sleeps, trains, or compiles",
        lambda runner: _alone(forks, runner),
        (Target(1.0, "seconds", "compiling, worst"),),
    ),
    Probe(
        "call",
        "what graphfw adds to two operations on 16 floats",
        lambda runner: _alone(call, runner),
        (
            Target(5e-6, "seconds", "plan, above NumPy"),
            Target(15e-6, "seconds", "session.run, above NumPy"),
        ),
    ),
]
