"""Running a program with native code, on memory that is planned ahead."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphfw.errors import ExecutionError
from graphfw.ir.op import Rng
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.executor import Claim, Executable, Options, Replayed
from graphfw.runtime.memory import MemoryReport
from graphfw.runtime.numpy_executor import reports
from graphfw.runtime.numpy_executor.build import Build
from graphfw.runtime.numpy_executor.execution import Execution, ReadyRun
from graphfw.runtime.numpy_executor.layout import ARENA, Layout
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.numpy_executor.prepare import Preparation
from graphfw.runtime.numpy_executor.recycle import Arenas
from graphfw.runtime.profile import Profile
from graphfw.runtime.program import Program, without_collection

_LAYOUTS = 256


class CompiledExecutable(Executable):
    """A program as native steps.

    What is known once is its `build`; what depends on the sizes, a `Layout`; what changes from run
    to run, a `ReadyRun`, of which there are as many as runs have gone on at once.
    """

    def __init__(self, program: Program, options: Options, arenas: Arenas) -> None:
        self.program = program
        self.build = Build(program)
        self._threads = options.threads or default_threads()
        self._limit = options.memory_limit
        self._arenas = arenas
        self._reference = ArrayExecutable(program, np)
        self._preparation = Preparation(self.build, self._threads)
        self._layouts: OrderedDict[tuple[int, ...], Layout] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        try:
            layout = self._layouts.get(sizes) or self._layout(sizes, claim)
        except ArithmeticError:
            raise self._refusal(inputs, sizes, rng) from None
        try:
            run = layout.runs.pop()
        except IndexError:
            run = ReadyRun(self.build, layout, self._threads)
        arena = self._arenas.take(layout.arena)
        given = self.build.given(inputs, rng)
        try:
            self._preparation.provide(run, inputs, version)
            if run.whole is not None:  # the short way, which is what small graphs feel
                run.run.bases[ARENA] = arena.address
                outputs = [make() for make in run.makers]
                if not run.whole((*given, *outputs)):
                    return outputs
            execution = Execution(self.build, layout, run, arena, given)
            if execution.compute(rng, claim):
                return execution.outputs()
        finally:
            layout.runs.append(run)
            self._arenas.give(arena)
        # A check in native code has failed, before anything was overwritten.
        raise self._refusal(inputs, sizes, rng)

    def _refusal(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        """Say what is wrong with values or sizes: the reference path has the messages."""
        try:
            self._reference(inputs, sizes, rng, 0, None)
        except ExecutionError as error:
            return error
        return ExecutionError("native code refuses values that the operations themselves accept")

    def explain(self, sizes: tuple[int, ...] | None) -> str:
        return reports.explain(self.build, sizes)

    def source(self) -> str:
        return reports.source(self.build)

    def memory(self, sizes: tuple[int, ...]) -> MemoryReport:
        with self._lock:
            layout = self._layouts.get(sizes) or self.build.layouts.make(sizes)
        return reports.memory(self.build, layout, self._threads)

    def profile(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Profile:
        self(inputs, sizes, rng, version, None)
        layout = self._layout(sizes)
        with self._apart(layout, inputs, rng, version) as (run, execution):
            run.run.record(sum(layout.cells))
            execution.compute(rng, None)
        return reports.profiled(self.build, layout, run.run.records(), execution.timings)

    def replay(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Iterator[Replayed]:
        with self._apart(self._layout(sizes), inputs, rng, version) as (_, execution):
            yield from reports.replayed(self.build, execution, rng)

    @contextmanager
    def _apart(
        self, layout: Layout, inputs: Sequence[Any], rng: Rng, version: int
    ) -> Iterator[tuple[ReadyRun, Execution]]:
        """Make an execution with tables of its own, to look at."""
        run = ReadyRun(self.build, layout, self._threads)
        arena = self._arenas.take(layout.arena)
        try:
            self._preparation.provide(run, inputs, version)
            given = self.build.given(inputs, rng)
            yield run, Execution(self.build, layout, run, arena, given)
        finally:
            self._arenas.give(arena)

    def blame(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        return self._reference.blame(inputs, sizes, rng)

    def _layout(self, sizes: tuple[int, ...], claim: Claim | None = None) -> Layout:
        """Lay out sizes that have not been seen lately.

        Raises:
            ArithmeticError: A size divides by 0, or a step does not take these sizes.
        """
        with self._lock:
            layout = self._layouts.get(sizes)
            if layout is None:
                with without_collection():
                    layout = self.build.layouts.make(sizes)
                if layout.is_refused:
                    raise ArithmeticError
                if self._limit is not None:
                    report = reports.memory(self.build, layout, self._threads)
                    needed = report.peak if claim is not None else report.peak + report.spare
                    if needed > self._limit:
                        raise reports.too_much(report, needed, self._limit, self.program.symbols)
                self._layouts[sizes] = layout
                while len(self._layouts) > _LAYOUTS:
                    self._layouts.popitem(last=False)
        return layout
