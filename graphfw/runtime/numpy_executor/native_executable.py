"""Running a program with native code, on memory that is planned ahead."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from graphfw.errors import ExecutionError
from graphfw.ir.op import Rng
from graphfw.ir.time_limits import TimeOverError
from graphfw.ops.control.effects import quiet
from graphfw.ops.control.shape_checks import hold
from graphfw.ops.shape.gather_scatter import names_nothing
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.executor import Claim, Executable, Options
from graphfw.runtime.numpy_executor.buffer_pool import NO_MEMORY, Arenas
from graphfw.runtime.numpy_executor.execution import Execution
from graphfw.runtime.numpy_executor.layout import Layout
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.numpy_executor.prepare import Preparation
from graphfw.runtime.numpy_executor.ready_run import LoadedRecipe, ReadyRun
from graphfw.runtime.profile import Profile
from graphfw.runtime.program import Program
from graphfw.utils import forks
from graphfw.utils.collecting import without_collection

if TYPE_CHECKING:
    from graphfw.runtime.numpy_executor.build import Build
    from graphfw.runtime.numpy_executor.labels import Described

_LAYOUTS = 256


class NativeExecutable(Executable):
    """A program as native steps.

    What is known once is its recipe; what depends on the sizes, a `Layout`; what changes from run
    to run, a `ReadyRun`, of which there are as many as runs have gone on at once.
    """

    build: Build | None = None

    def __init__(
        self, program: Program, options: Options, arenas: Arenas, loaded: LoadedRecipe
    ) -> None:
        self.program = program
        self.loaded = loaded
        self._options = options
        self._threads = options.threads or default_threads()
        self.arenas = arenas
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
            # Either an operation refuses these sizes, or it has numbers of more than 64 bits.
            return self._reference(inputs, sizes, rng, version, claim)
        if layout.is_unchecked:
            with quiet():
                self._reference(inputs, sizes, rng, 0, None)
        run = self.ready_run(layout)
        arena = self.arenas.take(run.nbytes) if run.nbytes else NO_MEMORY
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
        except ctypes.ArgumentError as error:  # it wraps what converting an argument raises
            if "RecursionError" in str(error):
                raise RecursionError("maximum recursion depth exceeded") from None
            raise
        except TimeOverError as error:
            self._say(error, run.run.ended_in)
            raise
        finally:
            layout.runs.append(run)
            if run.nbytes:
                self.arenas.give(arena)
        # A check in native code has failed, before anything was overwritten.
        raise self._refusal(inputs, sizes, rng)

    def _say(self, error: TimeOverError, call: int | None) -> None:
        """Say in an error what a native step computes, by its number, and on which line."""
        if call is None or error.op:
            return
        # Some steps only prepare what a later one reads.
        parts = [part for level in self.loaded.recipe.levels for part in level]
        for part in parts[call:]:
            if part.op:
                error.op = part.op
                error.at = None if part.node < 0 else self.program.source.nodes[part.node].loc
                return

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
            ArithmeticError: A size divides by 0, or a step or a check does not take these sizes.
        """
        return self._layouts.get(sizes) or self._layout(sizes)

    def profile(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Profile:
        self(inputs, sizes, rng, version, None)
        layout = self.layout(sizes)
        with self._apart(layout, inputs, rng, version) as (run, execution):
            run.run.record(sum(layout.work_items))
            execution.compute(rng, None)
        # Not at the top: what is only run does without.
        labels = import_module("graphfw.runtime.numpy_executor.labels")
        found: Profile = labels.profiled(
            self.described(sizes), run.run.records(), execution.timings
        )
        return found

    def described(self, sizes: tuple[int, ...]) -> list[Described]:
        """Return the name and the cost of each step."""
        raise NotImplementedError

    @contextmanager
    def _apart(
        self, layout: Layout, inputs: Sequence[Any], rng: Rng, version: int
    ) -> Iterator[tuple[ReadyRun, Execution]]:
        """Make an execution with tables of its own, to look at."""
        run = ReadyRun(self.loaded, layout, self._threads)
        arena = self.arenas.take(run.nbytes)
        try:
            self.preparation.provide(run, inputs, version)
            given = self.loaded.given(inputs, rng)
            yield run, Execution(self.loaded, layout, run, arena, given, self.build)
        finally:
            self.arenas.give(arena)

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
            ArithmeticError: A size divides by 0, or a step or a check does not take these sizes.
        """
        with self._lock:
            layout = self._layouts.get(sizes)
            if layout is None:
                with without_collection():
                    layout = self.loaded.layouts.make(sizes)
                program = self.program
                if layout.is_refused or not hold(program.shape_checks, program.symbols, sizes):
                    raise ArithmeticError
                self._check(layout, claim)
                layout.is_unchecked = names_nothing(self.program.source, layout.sizes)
                self._layouts[sizes] = layout
                while len(self._layouts) > _LAYOUTS:
                    self._layouts.popitem(last=False)
        return layout
