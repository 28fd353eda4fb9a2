"""Compile times: the first result of a deep network, and of graphs of many nodes."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np

from benchmarks import devices, machine
from benchmarks.longtail.draw import Draw
from benchmarks.workload import Failure, Probe, Runner
from benchmarks.workloads import programs

Figures = tuple[dict[str, float], dict[str, str]]


def first_step(draw: Draw) -> Probe:
    """Draw a GPT whose first training step is timed from Python's start, cold and warm."""
    depth, width = draw.size(3, 24), draw.size(64, 256, multiple=64)
    return Probe(
        "",
        f"from Python's start to the first training step of a GPT of {depth} layers, {width} wide",
        functools.partial(programs.first_result, f"gpt-{depth}x{width}"),
    )


# A chain of elementwise nodes, from Python functions to the first result


def _chain(xp: Any, x: Any, nodes: int) -> Any:
    for i in range(nodes // 3):
        x = xp.sin(x) * (1 + i / nodes) + x
    return x


def _graphfw_chain(nodes: int) -> float:
    import graphfw as gf

    x = np.ones(1000, np.float32)
    _first_graphfw()
    begin = time.perf_counter()
    with gf.Graph() as graph:
        fed = gf.placeholder(x.shape, name="x")
        y = _chain(gf, fed, nodes)
    devices.session(graph).compile(y, feeds=[fed])(x)
    return time.perf_counter() - begin


def _first_graphfw() -> None:
    """Compile another program: what a process does once is left out."""
    import graphfw as gf

    with gf.Graph() as graph:
        x = gf.placeholder((3, 5), gf.int32, name="x")
        y = x * 2
    devices.session(graph).compile(y, feeds=[x])(np.zeros((3, 5), np.int32))


def _jax_chain(nodes: int) -> float:
    import jax

    x = jax.device_put(np.ones(1000, np.float32))
    jax.block_until_ready(jax.jit(lambda x: x * 2)(jax.device_put(np.zeros((3, 5), np.int32))))
    begin = time.perf_counter()
    jax.block_until_ready(jax.jit(lambda x: _chain(jax.numpy, x, nodes))(x))
    return time.perf_counter() - begin


_CHAINS = {"graphfw": _graphfw_chain, "jax": _jax_chain}


def _times(nodes: int, runner: Runner) -> Figures:
    seconds: dict[str, float] = {}
    notes: dict[str, str] = {}
    for name, function in _CHAINS.items():
        if not (runner.settings.takes(name) and machine.installed(name)):
            continue
        try:
            seconds[name] = runner.call(name, function, nodes)
        except Failure as error:
            notes[name] = f"failed: {error}"
    return seconds, notes


def many_nodes(draw: Draw) -> Probe:
    nodes = draw.size(500, 3000)
    title = f"describing, compiling and running a chain of {nodes:,} elementwise nodes"
    return Probe("", title, functools.partial(_times, nodes))


FAMILIES = {first_step: 1, many_nodes: 1}
"""Each with how many workloads a run draws from it."""
