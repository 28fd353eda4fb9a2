"""The time of each step of a run on a GPU, by CUDA's events."""

from __future__ import annotations

from threading import Event as Gate
from typing import Any

from graphfw.ir.op import Rng
from graphfw.runtime.cupy_executor.build import GpuProgram
from graphfw.runtime.cupy_executor.layouts import GpuLayout
from graphfw.runtime.cupy_executor.runs import RunMemory, Worker
from graphfw.runtime.profile import Event

_AHEAD = 256
"""The number of steps that are launched before the first one begins: CUDA has room for more."""

_PATIENCE = 10.0
"""Seconds after which the GPU goes on, whatever happens."""


def events_of(worker: Worker, run: RunMemory, rng: Rng, cupy: Any) -> list[Event]:
    """Make a run, and return when each of its steps began and ended.

    The GPU is kept waiting until steps are launched: it would wait for each launch otherwise, and
    that would be measured.
    """
    layout, cuda = run.layout, cupy.cuda
    stream = cuda.get_current_stream()
    gate = Gate()
    marks = [cuda.Event()]
    stream.launch_host_func(gate.wait, _PATIENCE)
    marks[0].record(stream)

    numbers = _numbers(layout)
    found: list[int] = []

    def after(one: object) -> None:
        mark = cuda.Event()
        mark.record(stream)
        marks.append(mark)
        found.append(numbers.get(id(one), -1))
        if len(marks) > _AHEAD:
            gate.set()

    noting = worker.noting(after)
    try:
        for segment in [*layout.segments, *layout.final]:
            if not isinstance(segment, list):
                gate.set()  # who computes it may wait for what has been launched
            noting.work(run, [segment], rng)
    finally:
        gate.set()
    marks[-1].synchronize()
    ends = [cuda.get_elapsed_time(marks[0], mark) / 1e3 for mark in marks]
    return [
        Event(number, 0, begin, end)
        for number, begin, end in zip(found, ends[:-1], ends[1:], strict=True)
        if number >= 0
    ]


def _numbers(layout: GpuLayout) -> dict[int, int]:
    """Return the number of each step, by its identity: those of bodies come after the others'.

    A loop's own is what happens between and after its body's; what is done once has none.
    """
    begins: dict[GpuProgram, int] = {}
    end = 0
    for build in (layout.of.build, *layout.of.build.inner):
        begins[build] = end
        end += len(build.work)
    found: dict[int, int] = {}
    left: list[GpuLayout | None] = [layout]
    while left:
        one = left.pop()
        if one is None:
            continue
        begin = begins[one.of.build]
        for step, number in zip(one.steps, one.numbers, strict=True):
            found[id(step)] = number if number < 0 else begin + number
        left += [body for region in one.regions for body in region.bodies]
    return found
