"""Running a program with native code, on memory that is planned ahead."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfw.errors import ExecutionError
from graphfw.ir import forks
from graphfw.ir.collecting import without_collection
from graphfw.ir.op import Rng
from graphfw.ir.sources import Constant
from graphfw.ops.effects import quiet
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.executor import Claim, Executable, Options, Replayed
from graphfw.runtime.memory import MemoryReport
from graphfw.runtime.numpy_executor.engine import ahead, keep, recalled
from graphfw.runtime.numpy_executor.execution import Execution, Loaded, ReadyRun
from graphfw.runtime.numpy_executor.identity import key_of
from graphfw.runtime.numpy_executor.layout import Layout
from graphfw.runtime.numpy_executor.native import RunnerCode
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.numpy_executor.prepare import Preparation
from graphfw.runtime.numpy_executor.recipe import Measured
from graphfw.runtime.numpy_executor.recycle import NO_MEMORY, Arenas
from graphfw.runtime.profile import Profile
from graphfw.runtime.program import Program

if TYPE_CHECKING:
    from graphfw.runtime.numpy_executor.build import Build
    from graphfw.runtime.numpy_executor.compiled import CompiledExecutable

_LAYOUTS = 256


class NativeExecutable(Executable):
    """A program as native steps.

    What is known once is its recipe; what depends on the sizes, a `Layout`; what changes from run
    to run, a `ReadyRun`, of which there are as many as runs have gone on at once.
    """

    build: Build | None = None

    def __init__(self, program: Program, options: Options, arenas: Arenas, loaded: Loaded) -> None:
        self.program = program
        self.loaded = loaded
        self._options = options
        self._threads = options.threads or default_threads()
        self._arenas = arenas
        self.preparation = Preparation(loaded.recipe, loaded.addresses, self._threads)
        self._layouts: OrderedDict[tuple[int, ...], Layout] = OrderedDict()
        self._lock = forks.renewed_lock()

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
        run = self.ready_run(layout)
        arena = self._arenas.take(run.nbytes) if run.nbytes else NO_MEMORY
        given = self.loaded.given(inputs, rng) if self.loaded.is_random else inputs
        try:
            if run.version != version:
                self.preparation.provide(run, inputs, version)
            if run.whole is not None:  # the short way, which is what small graphs feel
                if run.nbytes:
                    run.lie_at(arena.address)
                outputs = [make() for make in run.makers]
                if not run.whole((*given, *outputs)):
                    return outputs
            execution = Execution(self.loaded, layout, run, arena, given, self.build)
            if execution.compute(rng, claim):
                return execution.outputs()
        finally:
            layout.runs.append(run)
            if run.nbytes:
                self._arenas.give(arena)
        # A check in native code has failed, before anything was overwritten.
        raise self._refusal(inputs, sizes, rng)

    def ready_run(self, layout: Layout) -> ReadyRun:
        """Return tables that nobody else uses, until they are put back among the layout's."""
        try:
            run: ReadyRun = layout.runs.pop()
        except IndexError:
            run = ReadyRun(self.loaded, layout, self._threads)
        return run

    def layout(self, sizes: tuple[int, ...]) -> Layout:
        """Return the layout at some sizes.

        Raises:
            ArithmeticError: A size divides by 0, or a step does not take these sizes.
        """
        return self._layouts.get(sizes) or self._layout(sizes)

    @cached_property
    def _reference(self) -> ArrayExecutable:
        return ArrayExecutable(self.program, np)

    def _refusal(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        """Say what is wrong with values or sizes: the reference path has the messages."""
        try:
            with quiet():  # what there was to see has been seen
                self._reference(inputs, sizes, rng, 0, None)
        except ExecutionError as error:
            return error
        return ExecutionError(
            "native code refuses values that the operations themselves accept",
            fix="this is a mistake in graphfw; gf.Session(g, debug=True) runs node by node",
        )

    def blame(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        return self._reference.blame(inputs, sizes, rng)

    def _check(self, layout: Layout, claim: Claim | None) -> None:
        """Refuse a layout that takes too much memory."""

    def _layout(self, sizes: tuple[int, ...], claim: Claim | None = None) -> Layout:
        """Lay out sizes that have not been seen lately.

        Raises:
            ArithmeticError: A size divides by 0, or a step does not take these sizes.
        """
        with self._lock:
            layout = self._layouts.get(sizes)
            if layout is None:
                with without_collection():
                    layout = self.loaded.layouts.make(sizes)
                if layout.is_refused:
                    raise ArithmeticError
                self._check(layout, claim)
                self._layouts[sizes] = layout
                while len(self._layouts) > _LAYOUTS:
                    self._layouts.popitem(last=False)
        return layout


class RecalledExecutable(NativeExecutable):
    """A program whose recipe another process has made. To look into it, it is compiled here."""

    _twin: CompiledExecutable | None = None

    def explain(self, sizes: tuple[int, ...] | None) -> str:
        return self._compiled().explain(sizes)

    def source(self) -> str:
        return self._compiled().source()

    def memory(self, sizes: tuple[int, ...]) -> MemoryReport:
        return self._compiled().memory(sizes)

    def profile(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Profile:
        return self._compiled().profile(inputs, sizes, rng, version)

    def replay(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Iterator[Replayed]:
        return self._compiled().replay(inputs, sizes, rng, version)

    def _compiled(self) -> CompiledExecutable:
        with self._lock:
            if self._twin is None:
                with without_collection():
                    self._twin = _compiled(
                        self.program, self._options, self._arenas, self.loaded.recipe.measured
                    )
            return self._twin


def executable(program: Program, options: Options, arenas: Arenas) -> NativeExecutable:
    """Return a program with native code: that of an earlier process, where it is kept."""
    key = key_of(program, options)
    if key is None:
        return _compiled(program, options, arenas)
    ops = [node.op for node in program.source.nodes]
    own = [op.value for op in ops if isinstance(op, Constant)]
    found = recalled(key, own)
    if found is not None:
        return RecalledExecutable(program, options, arenas, Loaded(*found))
    made = _compiled(program, options, arenas)
    keep(key, made.loaded.recipe, own)
    return made


def _compiled(
    program: Program, options: Options, arenas: Arenas, measured: Measured | None = None
) -> CompiledExecutable:
    with ahead(RunnerCode()):  # which every program needs
        # Not at the top: half of what importing the executor would take; who recalls does without.
        compiled = import_module("graphfw.runtime.numpy_executor.compiled")
        made: CompiledExecutable = compiled.CompiledExecutable(
            program, options, arenas, measured=measured
        )
    return made
