"""How long each step of a run takes on a GPU, by CUDA's events."""

from __future__ import annotations

from threading import Event as Gate
from typing import Any

from graphfw.ir.op import Rng
from graphfw.runtime.cupy_executor.layouts import Evaluated
from graphfw.runtime.cupy_executor.runs import Run, Worker
from graphfw.runtime.profile import Event

_AHEAD = 256
"""So many steps are launched before the first one may begin: CUDA has room for more."""

_PATIENCE = 10.0
"""Seconds after which the GPU goes on, whatever happens."""


def events_of(worker: Worker, run: Run, rng: Rng, cupy: Any) -> list[Event]:
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

    def after() -> None:
        mark = cuda.Event()
        mark.record(stream)
        marks.append(mark)
        if len(marks) > _AHEAD:
            gate.set()

    try:
        for part in [*layout.parts, *layout.final]:
            if isinstance(part, Evaluated):
                gate.set()  # CuPy may wait for what it has launched
            worker.work(run, [part], rng, after)
    finally:
        gate.set()
    marks[-1].synchronize()
    ends = [cuda.get_elapsed_time(marks[0], mark) / 1e3 for mark in marks]
    return [
        Event(number, 0, begin, end)
        for number, begin, end in zip(layout.numbers, ends[:-1], ends[1:], strict=True)
        if number >= 0
    ]
