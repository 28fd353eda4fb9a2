"""Running a program on a GPU: kernels and CuPy's functions, on memory planned in advance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from operator import call
from typing import Any

import numpy as np

from graphfw.errors import ExecutionError, ExecutorError
from graphfw.ir.literal import Array
from graphfw.ir.op import EFFECT, Rng
from graphfw.runtime.cupy_executor import failures, reports
from graphfw.runtime.cupy_executor.bound_plan import Segment
from graphfw.runtime.cupy_executor.build import GpuProgram
from graphfw.runtime.cupy_executor.capture import RUNS, USELESS, Capturing, Instance, read_by, worth
from graphfw.runtime.cupy_executor.compiling import compilation
from graphfw.runtime.cupy_executor.deferred_check import (
    DeferredOutcome,
    RunFeeds,
    SessionFlags,
    changed,
    pass_on,
)
from graphfw.runtime.cupy_executor.device import Device
from graphfw.runtime.cupy_executor.hoisted import HoistedArrays, HoistedRuns
from graphfw.runtime.cupy_executor.layouts import GpuLayout, GpuLayouts
from graphfw.runtime.cupy_executor.profiling import events_of
from graphfw.runtime.cupy_executor.regions.common import RefusedError
from graphfw.runtime.cupy_executor.runs import RunMemory, Worker
from graphfw.runtime.cupy_executor.stored import Edge, array_dtype
from graphfw.runtime.cupy_executor.streams import collect, key_of
from graphfw.runtime.executor import Claim, Options
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.memory import MemoryReport
from graphfw.runtime.planned_executable import PlannedExecutable
from graphfw.runtime.profile import Profile, profile
from graphfw.runtime.program import Program
from graphfw.utils.collecting import without_collection


class GpuExecutable(PlannedExecutable[GpuLayout]):
    """A program on one GPU.

    Runs are made by themselves, with memory of their own, or with an `Instance`.
    """

    _code = "a kernel"

    def __init__(
        self,
        program: Program,
        options: Options,
        device: Device,
        capturing: Capturing,
        halts: SessionFlags,
    ) -> None:
        super().__init__(program, options)
        self.device = device
        self._capturing = capturing
        self._halts = halts
        self._unsettled = options.unsettled
        nodes = program.graph.nodes
        # What Python is called with, or shown, is right: those before it have not failed.
        self._may_be_late = not any([EFFECT in node.op.traits for node in nodes])
        self._xp = device.cupy
        self._edge = Edge(program)
        with without_collection():
            self.build = GpuProgram(compilation(program, options, device.capability))
        with device.current(), device.translated():
            self.layouts = GpuLayouts(self.build, device)
            self._constants = self.layouts.constants
        kept = program.variables or self.build.once.kept
        self._reads = bool(kept) or self.layouts.holds_constants
        self._worker = Worker(self.build, self.layouts, device, self._spare)
        self._preparation = HoistedRuns(self.build, self.layouts, device, self._worker)

    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        program, streams = self.program, self.device.streams
        inputs = self._edge.taken(inputs)
        if not self._may_be_late:
            self._settle()
        with self.device.current(), self.device.translated(), np.errstate(all="ignore"):
            layout = self._taken(inputs, sizes, rng, claim)
            layout.runs += 1
            stream = self._xp.cuda.get_current_stream()
            if self._reads:
                streams.reads(stream)
            if layout.is_unchecked:
                self._check_by_reference(inputs, sizes, rng)
            made = self._prepared(layout, inputs, version)
            instance = self._instance(layout, inputs, made, claim, stream)
            me = object()
            try:
                if instance is None or not instance.workspace.take(me):
                    return self._edge.handed(self._by_itself(layout, inputs, rng, made))
                found = self._with_instance(instance, inputs, rng, claim, stream)
                return self._edge.handed(found)
            except RefusedError:
                raise self._refusal(inputs, sizes, rng) from None
            finally:
                if instance is not None:
                    instance.workspace.give_back(me)
                if program.updated:
                    streams.has_written(stream)
                elif self._reads:
                    streams.has_read(stream)

    def _laid_out(self, sizes: tuple[int, ...]) -> GpuLayout:
        return self.layouts.made(sizes)

    def _taken(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, claim: Claim | None = None
    ) -> GpuLayout:
        """Return the layout of a run, or raise what is wrong with its sizes."""
        try:
            return self.layout(sizes, claim)
        except ArithmeticError:
            raise self._refusal(inputs, sizes, rng) from None

    # Runs by themselves.

    def _by_itself(
        self, layout: GpuLayout, inputs: Sequence[Any], rng: Rng, made: HoistedArrays
    ) -> list[Any]:
        run, run_feeds = self._begun(layout, inputs, rng, made)
        self._worker.work(run, layout.segments, rng)
        fetched = self._fetched(run)
        if self.build.updated:
            self._settle()
            self._require(run, inputs, rng)
            return [*fetched, *self._written_anew(run, rng)]
        self._require_later(run, fetched, run_feeds, inputs, rng)
        return fetched

    def _begun(
        self, layout: GpuLayout, inputs: Sequence[Any], rng: Rng, made: HoistedArrays
    ) -> tuple[RunMemory, RunFeeds]:
        """Return a run that has its inputs, in memory of its own, and these for later."""
        host = [n for n, a in enumerate(inputs) if not isinstance(a, self._xp.ndarray)]
        frame = layout.frame([*self._drawn(layout), *host])
        memory = self._worker.room(layout, partial(self._bytes, frame.nbytes))
        run = RunMemory(layout, frame, memory)
        for slot, array in [*self._constants.items(), *made.arrays.items()]:
            run.hold(slot, array)
        self._hold_new(run, self.build.fetched, layout.shapes)
        return run, self._worker.give(run, inputs, rng)

    def _written_anew(self, run: RunMemory, rng: Rng) -> list[Any]:
        """Write new contents of variables to arrays of their own, and return these."""
        updated, layout = self.build.updated, run.layout
        if not updated:
            return []
        self._hold_new(run, updated, layout.shapes[len(self.build.fetched) :])
        self._worker.work(run, layout.final, rng)
        self._capturing.forget_variables()
        return [self.device.streams.lasting(run.arrays[self._slot(s)]) for s in updated]

    # Runs with an instance.

    def _instance(
        self,
        layout: GpuLayout,
        inputs: Sequence[Any],
        made: HoistedArrays,
        claim: Claim | None,
        stream: Any,
    ) -> Instance | None:
        """Return an instance for a run; None where the run is to be made by itself."""
        capturing = self._capturing
        updates = bool(self.program.updated)
        if layout.refused or (layout.runs <= RUNS and not updates):
            return None
        if updates and claim is None:
            layout.uncaptured = "variables can't be written over: new contents are looked at first"
            return None
        layout.uncaptured = capturing.why_not(stream)
        if layout.uncaptured:
            return None
        found = capturing.find(layout, key_of(stream))
        lasting = [*inputs[len(self.program.feeds) :], *made.changing]
        if found is not None and found.knows(lasting):
            layout.useless = 0
            return found
        layout.useless += 1
        return self._made(layout, inputs, made, stream)

    def _made(
        self, layout: GpuLayout, inputs: Sequence[Any], made: HoistedArrays, stream: Any
    ) -> Instance | None:
        """Make an instance; returns None where that is not worth it, or can't be."""
        build, program = self.build, self.program
        if layout.useless > USELESS:
            layout.refused = "what one run records, the next one could not use"
            return None
        count = len(program.feeds)
        on_device = [n for n in range(count) if isinstance(inputs[n], self._xp.ndarray)]
        found = worth(layout, build, self.layouts.slot_of, on_device)
        outside = {self._slot(s) for s in build.outside}
        fetched = {self._slot(s) for s in build.fetched} - outside
        known = read_by([*(layout.segments if found.pays else ()), *layout.final])
        drawn = self._drawn(layout)
        held = [*drawn, *range(count), *sorted((outside & known) | fetched)]
        # What is fetched is copied out: the next run writes to the same memory.
        fixed = {*drawn, *(known.intersection(held))} | (fetched if found.pays else set())
        frame = layout.frame(held, frozenset(fixed))
        extra = frame.nbytes - layout.arena - sum(layout.nbytes[:count])
        if not found.pays and not program.updated:
            layout.refused = f"not worth it: they would save {found}"
            return None
        if self._limit is not None and self._memory(layout).peak + extra > self._limit:
            layout.refused = "memory_limit leaves no room for memory that stays where it is"
            return None
        variables = inputs[count:]
        if any([self.device.in_a_row(array) is not array for array in variables]):
            layout.refused = "a variable does not lie as kernels read it"
            return None
        try:
            workspace = self._capturing.workspace(frame.nbytes, stream)
        except self._xp.cuda.memory.OutOfMemoryError:
            layout.refused = "the GPU has too little memory"
            return None
        run = RunMemory(layout, frame, workspace.memory)
        lasting = [*enumerate(variables, count), *self._constants.items(), *made.arrays.items()]
        for slot, array in lasting:
            run.hold(slot, array)
        array_of = dict(zip(program.variables, variables, strict=True))
        updated = [array_of[variable] for variable in program.updated]
        for storage, array in zip(build.updated, updated, strict=True):
            run.hold(self._slot(storage), array)  # new contents go over the old ones
        instance = Instance(run, workspace, [*variables, *made.changing], updated, found)
        self._capturing.add(layout, key_of(stream), instance)
        return instance

    def _with_instance(
        self, instance: Instance, inputs: Sequence[Any], rng: Rng, claim: Claim | None, stream: Any
    ) -> list[Any]:
        """Run with an instance: graphs where there are any, everything else as always."""
        run = instance.run.another()
        layout, build = run.layout, self.build
        self._hold_new(run, build.fetched, layout.shapes)
        run_feeds = self._worker.give(run, inputs[: len(self.program.feeds)], rng)
        if instance.final is None and layout.final:
            self._worker.rehearse(layout.final[0], run)
            instance.final = self._recorded(run, layout.final[0])
        for number, segment in enumerate(layout.segments):
            graph = self._graph(instance, number, segment, run)
            if graph is None:
                self._worker.work(run, [segment], rng)
            else:
                graph.launch(stream)
        fetched = self._fetched(run)
        if not build.updated:
            self._require_later(run, fetched, run_feeds, inputs, rng)
            return fetched
        done = claim() if claim is not None and instance.final is not None else None
        if done is None:
            self._settle()
            self._require(run, inputs, rng)
            return [*fetched, *self._written_anew(run, rng)]
        self.device.streams.overwrites(stream)
        self._require_later(run, fetched, run_feeds, inputs, rng)
        # In one call, of functions that are no Python: an interrupt comes before it or after it.
        list(map(call, (instance.final.launch, done.fill), (stream, 1)))
        return [*fetched, *instance.updated]

    def _graph(self, instance: Instance, number: int, segment: Segment, run: RunMemory) -> Any:
        """Return the graph of a segment; None where it has none, or not yet."""
        if number not in instance.graphs:
            if run.layout.runs <= RUNS or not instance.records(number):
                return None
            instance.graphs[number] = self._recorded(run, segment)
        return instance.graphs[number]

    def _recorded(self, run: RunMemory, segment: Segment) -> Any:
        """Return a graph of a stretch of launches; None where CUDA refuses to record it."""
        assert isinstance(segment, list)
        refused: tuple[type[Exception], ...] = (*failures.lasting(self._xp), ExecutorError)
        try:
            return self._capturing.record(segment, lambda wave: self._worker.launch(wave, run))
        except refused as error:
            run.layout.refused = f"CUDA does not record it: {error}"
            return None

    # For both.

    def _spare(self) -> bool:
        """Give back memory that runs can do without; says whether there was any."""
        found = collect(wait=True)
        return self._capturing.drop() or found

    def _prepared(self, layout: GpuLayout, inputs: Sequence[Any], version: int) -> HoistedArrays:
        """Return the operands that are prepared once, of the variables' present contents."""
        return self._preparation.provide(inputs[len(self.program.feeds) :], version, layout)

    def _drawn(self, layout: GpuLayout) -> list[int]:
        """Return the slot of what is drawn from, if anything is."""
        return [self.layouts.drawn] if layout.drawn else []

    def _slot(self, storage: Storage) -> int:
        return self.layouts.slot_of[storage]

    def _require(self, run: RunMemory, inputs: Sequence[Any], rng: Rng) -> None:
        """Raise an error where a check has failed; this is what a run waits for, if anything."""
        if self.build.can_fail and self._worker.failed(run):
            raise self._refusal(inputs, tuple(run.layout.sizes.values()), rng)

    def _settle(self) -> None:
        """Wait for the runs before; this one is to happen only if they have."""
        if self._unsettled is not None:
            self._unsettled.settle()

    def _require_later(
        self,
        run: RunMemory,
        fetched: Sequence[Any],
        run_feeds: RunFeeds,
        inputs: Sequence[Any],
        rng: Rng,
    ) -> None:
        """Have the session raise an error where a check has failed, once that is known.

        The guards of what writes variables know it at once, and of the runs before.
        """
        unsettled, updates = self._unsettled, bool(self.build.updated)
        if unsettled is None or not self._may_be_late:
            self._require(run, inputs, rng)
            return
        if not (self.build.can_fail or (updates and unsettled)):
            return
        word = self._halts.word(unsettled) if updates else None
        settle = self.layouts.modules.settle() if updates else None
        if not self.build.can_fail:
            pass_on(settle, run.flags, word)
            return
        sizes = tuple(run.layout.sizes.values())
        variables = inputs[len(self.program.feeds) :]

        def refusal() -> ExecutionError:
            fed = run_feeds.arrays()
            if fed is None:
                return changed(None)
            host = [*fed[: len(self.program.feeds)], *variables]
            return changed(self._refused(host, sizes, rng))

        late = DeferredOutcome(self.device, word, refusal)
        step = rng.step if self.program.is_random else None
        unsettled.add(late, fetched, updates=updates, step=step)
        late.begin(settle, run.flags)

    def _hold_new(
        self, run: RunMemory, storages: Iterable[Storage], shapes: Iterable[tuple[int, ...]]
    ) -> None:
        """Give outputs arrays of their own, but for those that CuPy makes, or graphs know."""
        for storage, shape in zip(storages, shapes, strict=False):
            slot = self._slot(storage)
            if slot not in run.frame.fixed and storage not in self._outside:
                new = partial(self._xp.empty, shape, array_dtype(storage.dtype))
                run.hold(slot, self._worker.room(run.layout, new))

    @cached_property
    def _outside(self) -> frozenset[Storage]:
        return frozenset(self.build.outside)

    def _fetched(self, run: RunMemory) -> list[Any]:
        """Return the fetched arrays; each is the caller's."""
        found = []
        for storage, shape in zip(self.build.fetched, run.layout.shapes, strict=False):
            slot = self._slot(storage)
            array = run.arrays[slot]
            if array is None:
                new = partial(self._xp.empty, shape, array_dtype(storage.dtype))
                array = self._worker.room(run.layout, new)
                self._worker.copy(array.data.ptr, run.addresses[slot], array.nbytes)
            found.append(array.reshape(shape))
        return found

    def _bytes(self, count: int) -> Any:
        return self._xp.empty(count, np.uint8)

    # Errors and reports.

    def _on_host(self, inputs: Sequence[Any]) -> Sequence[Array]:
        return self._edge.to_host_copies(self._xp, inputs)

    def explain(self, sizes: tuple[int, ...] | None) -> str:
        with self.device.current():
            steps = reports.explain(self.build, self._known(sizes), self.device)
        return f"{steps}\n{self._graphs(sizes)}"

    def _known(self, sizes: tuple[int, ...] | None) -> GpuLayout | None:
        """Return the layout of some sizes; None where they are unknown, or there is no such run."""
        try:
            return None if sizes is None else self._layouts.get(sizes) or self._laid_out(sizes)
        except ArithmeticError:
            return None

    def _graphs(self, sizes: tuple[int, ...] | None) -> str:
        """Say what becomes of CUDA graphs."""
        with self.device.current():
            refused = self._capturing.why_not(self._xp.cuda.get_current_stream())
            if refused:
                return f"no CUDA graphs: {refused}"
            if sizes is None:
                return f"CUDA graphs: from run {RUNS + 1} of the same sizes on, where they pay"
            layout = self._known(sizes)
            if layout is None:
                return "no CUDA graphs: there is no run of these sizes"
        if layout.refused or layout.uncaptured:
            return f"no CUDA graphs: {layout.refused or layout.uncaptured}"
        instances = self._capturing.instances_of(layout)
        if not instances:
            found = worth(layout, self.build, self.layouts.slot_of)
            if found.pays:
                return f"CUDA graphs: from run {RUNS + 1} of these sizes on; they save {found}"
            return f"no CUDA graphs: not worth it: they would save {found}"
        return "\n".join([f"CUDA graphs: {instance}" for instance in instances])

    def source(self) -> str:
        return self.build.source([*self.build.codes, *self.build.spare])

    def memory(self, sizes: tuple[int, ...]) -> MemoryReport:
        with self.device.current():
            return self._memory(self._layouts.get(sizes) or self._laid_out(sizes))

    def _memory(self, layout: GpuLayout) -> MemoryReport:
        in_place = not self._capturing.why_not(self._xp.cuda.get_current_stream())
        return reports.memory(self.build, layout, in_place=in_place)

    def profile(
        self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng, version: int
    ) -> Profile:
        streams = self.device.streams
        inputs = self._edge.taken(inputs)
        with self.device.current(), self.device.translated(), np.errstate(all="ignore"):
            layout = self._taken(inputs, sizes, rng)
            stream = self._xp.cuda.get_current_stream()
            streams.reads(stream)
            made = self._prepared(layout, inputs, version)
            try:
                # What is done once only is not to count.
                first = self._apart(layout, inputs, rng, made)
                self._worker.work(first, [*layout.segments, *layout.final], rng)
                self._require(first, inputs, rng)
                events = events_of(
                    self._worker, self._apart(layout, inputs, rng, made), rng, self._xp
                )
            except RefusedError:
                raise self._refusal(inputs, sizes, rng) from None
            finally:
                streams.has_read(stream)
        return profile(events, reports.labels(self.build))

    def _apart(
        self, layout: GpuLayout, inputs: Sequence[Any], rng: Rng, made: HoistedArrays
    ) -> RunMemory:
        """Return a run that changes nothing."""
        run, _ = self._begun(layout, inputs, rng, made)
        self._hold_new(run, self.build.updated, layout.shapes[len(self.build.fetched) :])
        return run
