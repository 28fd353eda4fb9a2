"""Running a program with native code, on memory that is planned in advance."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphfw.ir.op import Rng
from graphfw.ir.time_limits import TimeOverError
from graphfw.runtime.executor import Claim, Options
from graphfw.runtime.numpy_executor.buffer_pool import NO_MEMORY, Arenas
from graphfw.runtime.numpy_executor.contiguous import as_contiguous
from graphfw.runtime.numpy_executor.execution import Execution
from graphfw.runtime.numpy_executor.feed_variants import FeedVariants, first_elements
from graphfw.runtime.numpy_executor.layout import Layout
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.numpy_executor.prepare import Preparation
from graphfw.runtime.numpy_executor.ready_run import LoadedRecipe, ReadyRun
from graphfw.runtime.planned_executable import PlannedExecutable
from graphfw.runtime.profile import Profile
from graphfw.runtime.program import Program

if TYPE_CHECKING:
    from graphfw.runtime.numpy_executor.build import Build
    from graphfw.runtime.numpy_executor.labels import Described

_LAYOUTS = 256


class NativeExecutable(PlannedExecutable[Layout]):
    """A program as native steps.

    What is known once is its recipe; what depends on the sizes, a `Layout`; what changes from run
    to run, a `ReadyRun`, of which there are as many as runs have gone on at once.
    """

    build: Build | None = None
    variants: FeedVariants | None = None
    _code = "native code"

    def __init__(
        self, program: Program, options: Options, arenas: Arenas, loaded: LoadedRecipe
    ) -> None:
        super().__init__(program, options)
        self.loaded = loaded
        self._options = options
        self._threads = options.threads or default_threads()
        self.arenas = arenas
        self.preparation = Preparation(loaded.recipe, loaded.addresses, self._threads)
        self._prepares = bool(loaded.recipe.prepared)
        self._takes_inputs = not (loaded.is_random or program.layouts)
        self._has_strided = False

    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        if self._has_strided and self.variants is not None:
            variant = self.variants.of(inputs, sizes)
            if variant is not None:
                executable, known = variant
                return executable(inputs, known, rng, version, claim)
        try:
            layout = self._layouts.get(sizes) or self._new_layout(sizes, claim)
        except ArithmeticError:
            # Either an operation refuses these sizes, or it has numbers of more than 64 bits.
            return self._reference(inputs, sizes, rng, version, claim)
        if layout.is_unchecked:
            self._check_by_reference(inputs, sizes, rng)
        run = self.ready_run(layout)
        arena = self.arenas.take(run.nbytes) if run.nbytes else NO_MEMORY
        arrays = inputs if self._takes_inputs else self._arrays_of(inputs, rng)
        try:
            if self._prepares and run.version != version:
                self.preparation.provide(run, inputs, version)
            if run.whole is not None:  # the short way, which is what small graphs feel
                if run.nbytes:
                    run.lie_at(arena.address)
                outputs = [make() for make in run.makers]
                failed = run.whole((*arrays, *outputs))
                if failed < 0:  # a feed is not C-contiguous
                    self._has_strided = True
                    arrays = [as_contiguous(array, self._threads) for array in arrays]
                    failed = run.whole((*arrays, *outputs))
                if not failed:
                    return outputs
            execution = Execution(self.loaded, layout, run, arena, arrays, self.build)
            is_computed = execution.compute(rng, claim)
            self._has_strided |= execution.has_copied
            if is_computed:
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
        return self._instead(inputs, sizes, rng)

    def _arrays_of(self, inputs: Sequence[Any], rng: Rng) -> Sequence[Any]:
        """Return the arrays that native code is given."""
        return self.loaded.arrays_of(first_elements(inputs, self.program.layouts), rng)

    def _say(self, error: TimeOverError, call: int | None) -> None:
        """Say in an error what a native step computes, by its number, and on which line."""
        if call is None or error.op:
            return
        # Some steps only prepare what a later one reads.
        steps = [step for level in self.loaded.recipe.levels for step in level]
        for step in steps[call:]:
            if step.op:
                error.op = step.op
                error.at = None if step.node < 0 else self.program.source.nodes[step.node].loc
                return

    def ready_run(self, layout: Layout) -> ReadyRun:
        """Return tables that nobody else uses, until they are put back among the layout's."""
        try:
            run: ReadyRun = layout.runs.pop()
        except IndexError:
            run = ReadyRun(self.loaded, layout, self._threads)
        return run

    def _laid_out(self, sizes: tuple[int, ...]) -> Layout:
        layout = self.loaded.layouts.make(sizes)
        if layout.is_refused:
            raise ArithmeticError
        return layout

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
            arrays = self._arrays_of(inputs, rng)
            yield run, Execution(self.loaded, layout, run, arena, arrays, self.build)
        finally:
            self.arenas.give(arena)
