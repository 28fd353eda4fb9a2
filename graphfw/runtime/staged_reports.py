"""Reports of a program in stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphfw.errors import ExecutorError
from graphfw.ir.dim import DimLike, static, substitute, symbols_of
from graphfw.ops.control.shape_checks import ShapeCheck
from graphfw.runtime.locations import location_of
from graphfw.runtime.memory import Kind, MemoryEntry, MemoryReport
from graphfw.runtime.profile import Event, Profile, Timing
from graphfw.runtime.stages import Measurement, Stages


def title(stages: Stages, number: int) -> str:
    """Return the headline of a stage: which it is, and what is measured after it."""
    measured = ", ".join(
        [
            f"{', '.join(map(str, one.op.dims))} by {one.op.name} ({location_of(one.node)})"
            for one in stages.stages[number].measurements
        ]
    )
    end = f", then it finds out {measured}" if measured else ""
    return f"== stage {number + 1} of {len(stages.stages)}{end}"


def introduce(check: ShapeCheck, env: dict[str, int]) -> None:
    """Give the symbol that an assertion introduces its size."""
    if check.introduced is not None and symbols_of(check.actual) <= env.keys():
        env.setdefault(check.introduced, _size(check.actual, env))


def bound(one: Measurement, env: dict[str, int]) -> None:
    """Give the symbols of a measurement the largest sizes that they may have.

    Raises:
        ExecutorError: Nothing tells.
    """
    shapes = [tuple([_size(dim, env) for dim in t.shape]) for t in one.node.inputs]
    for dim, most in zip(one.op.dims, one.op.most(*shapes), strict=True):
        if most is None:
            raise ExecutorError(
                f"what memory a run takes depends on values: on `{dim}`, which {one.op.name} at "
                f"{location_of(one.node)} finds out",
                fix="measure a run: plan.profile(…) times it, tracemalloc shows its memory",
            )
        env[str(dim)] = _size(most, env)


def memory(stages: Stages, reports: Sequence[MemoryReport], env: Mapping[str, int]) -> MemoryReport:
    """Join the reports of stages: one comes after the other."""
    levels = sum([max(each.levels, 1) for each in reports])
    entries: dict[MemoryEntry, None] = {}
    peak = begin = 0
    held: dict[int, int] = {}
    for stage, own in zip(stages.stages, reports, strict=True):
        end = begin + max(own.levels, 1) - 1
        lasting = [e for e in own.entries if e.kind in _LASTING]
        entries.update(dict.fromkeys([replace(e, first=0, last=levels - 1) for e in lasting]))
        for e in own.entries:
            if e.kind not in _LASTING:
                entries[replace(e, first=e.first + begin, last=e.last + begin)] = None
        carried = sum(held.values())
        if carried:
            entries[MemoryEntry("held for later stages", "output", carried, begin, end, "")] = None
        peak = max(peak, own.peak - own.of(*_LASTING) + carried)
        made = dict(zip(stage.gives, [t.type for t in stage.program.source.outputs], strict=True))
        for one in stage.measurements:
            made.update(zip(one.gives, one.node.types, strict=True))
        held.update({slot: _size(kind.nbytes, env) for slot, kind in made.items()})
        for slot in stage.drops:
            held.pop(slot, None)
        begin = end + 1
    ordered = tuple(sorted(entries, key=lambda e: -e.nbytes))
    return MemoryReport(
        entries=ordered,
        levels=levels,
        arena=max([each.arena for each in reports]),
        peak=peak + sum([e.nbytes for e in ordered if e.kind in _LASTING]),
        spare=reports[-1].spare,
        per_iteration=tuple([one for each in reports for one in each.per_iteration]),
    )


_LASTING: tuple[Kind, ...] = ("variable", "constant", "prepared")


def profile(
    stages: Stages, found: Sequence[Profile], seconds: Sequence[Sequence[float]]
) -> Profile:
    """Join the profiles of stages, with the measurements between them as steps of their own."""
    timings: list[Timing] = []
    events: list[Event] = []
    now, step = 0.0, 0

    def add(timing: Timing, number: int) -> None:
        begin, end = timing.begin + now, timing.end + now
        timings.append(replace(timing, step=number, begin=begin, end=end))

    for stage, own, took in zip(stages.stages, found, seconds, strict=True):
        for timing in own.timings:
            add(timing, timing.step + step)
        for event in own.events:
            begin, end = event.begin + now, event.end + now
            events.append(Event(event.step + step, event.thread, begin, end))
        now += own.seconds
        step += 1 + max([timing.step for timing in own.timings], default=-1)
        for one, lasted in zip(stage.measurements, took, strict=True):
            name, location = one.op.name, location_of(one.node)
            add(Timing(step, name, location, lasted, 0.0, lasted, 0.0), step)
            events.append(Event(step, 0, now, now + lasted))
            now, step = now + lasted, step + 1
    timings.sort(key=lambda timing: -timing.seconds)
    return Profile(tuple(timings), tuple(events), now)


def _size(dim: DimLike, env: Mapping[str, int]) -> int:
    return static(substitute(dim, env))
