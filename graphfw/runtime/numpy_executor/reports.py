"""The reports of a compiled program: its steps, its memory, its code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from graphfw.errors import counted
from graphfw.ir.dim import DimLike
from graphfw.ir.dim_text import evaluate
from graphfw.ir.dim_text import written as sizes_of
from graphfw.ir.literal import Array
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Node, Tensor
from graphfw.runtime import step_reports
from graphfw.runtime.executor import Replayed
from graphfw.runtime.kernels.steps import Step, Storage
from graphfw.runtime.locations import location_of, locations_of
from graphfw.runtime.memory import MemoryEntry, MemoryReport, PerIteration, report
from graphfw.runtime.numpy_executor.build import Build
from graphfw.runtime.numpy_executor.code_text import text_of
from graphfw.runtime.numpy_executor.execution import Execution
from graphfw.runtime.numpy_executor.labels import Described, Labels
from graphfw.runtime.numpy_executor.layout import Layout
from graphfw.runtime.numpy_executor.node_regions import NodeRegion
from graphfw.runtime.numpy_executor.rates import rates
from graphfw.runtime.numpy_executor.target import why_not_native
from graphfw.runtime.planning.blocks import bytes_at
from graphfw.runtime.planning.schedule import written
from graphfw.runtime.planning.work import work_of

_NAMED = 6
"""The number of ops of a step that are named."""


def label_of(step: Step | Node, regions: Mapping[Node, NodeRegion]) -> str:
    """Return the name of a step: the ops inside; of a node what computes it, too."""
    if isinstance(step, Step):
        return step_reports.label_of(step, _NAMED)
    how = regions[step].how if step in regions else "outside of native code"
    return f"{step.op.name} ({how})"


def memory(build: Build, layout: Layout, threads: int) -> MemoryReport:
    """Return the memory that a run takes."""
    env = layout.sizes
    levels = len(build.levels)
    end = max(levels - 1, 0)
    entries = step_reports.entries(build.stages, env, build.constants, levels)
    scratch = layout.tables.scratch * threads
    if scratch:
        entries.append(MemoryEntry(f"{threads} threads' own", "scratch", scratch, 0, end, ""))
    per_iteration: list[PerIteration] = []
    for depth, level in enumerate(build.levels):
        for node in level.nodes:
            region = build.regions.get(node)
            if region is not None:
                per_iteration += region.per_iteration(env, location_of(node))
                name = f"inside of {node.op.name}"
                size = region.nbytes(env)
                entries.append(MemoryEntry(name, "outside", size, depth, depth, location_of(node)))
    spare = sum([bytes_at(v, env) for v in build.program.updated])
    return report(entries, levels, layout.arena, spare, per_iteration)


class StepCost(NamedTuple):
    """The cost of a step, at known sizes.

    Attributes:
        flops: As the ops declare them.
        moved: The bytes of its operands.
        seconds: What the machine needs at least: the larger of computing and moving.
    """

    flops: int
    moved: int
    seconds: float


def _nodes_of(step: Step | Node) -> tuple[Node, ...]:
    return (step,) if isinstance(step, Node) else step.nodes


def _work(step: Step | Node) -> tuple[DimLike, DimLike]:
    """Return the flops of a step, and the bytes of its operands."""
    operands = (*step.inputs, *step.outputs) if isinstance(step, Node) else step.operands
    return work_of(_nodes_of(step), operands)


def cost_of(step: Step | Node, env: Mapping[str, int]) -> StepCost:
    """Return the cost of a step."""
    flops, moved = [evaluate(work, env) for work in _work(step)]
    return StepCost(flops, moved, rates().seconds(flops, moved))


def least_seconds(build: Build, sizes: Sequence[int]) -> float:
    """Return how long the machine needs at least for all steps, one after the other."""
    env = dict(zip(build.program.symbols, sizes, strict=True))
    steps: list[Step | Node] = [*build.steps]
    steps.extend([node for level in build.levels for node in level.nodes])
    return sum(cost_of(step, env).seconds for step in steps)


def explain(build: Build, sizes: Sequence[int] | None) -> str:
    """Return a text: each step with what is inside, what it takes, and why it is not larger."""
    env = None if sizes is None else dict(zip(build.program.symbols, sizes, strict=True))
    reasons = step_reports.Reasons(build.stages.partition)
    lines = [f"{counted(len(build.steps), 'native step')} in {counted(len(build.levels), 'level')}"]
    number = 0
    for depth, level in enumerate(build.levels):
        lines.append(f"level {depth}")
        steps: list[Step | Node] = [*level.steps, *level.nodes]
        for step in steps:
            lines.append(f"  {number:>3}  {label_of(step, build.regions)}")
            lines.append(f"       {_cost_text(step, env)}")
            note = getattr(step.code, "note", "") if isinstance(step, Step) else ""
            if note:
                lines.append(f"       by {note}")
            if isinstance(step, Step) and step.choice is not None:
                lines.append(f"       strategy {step.choice}")
            nodes = _nodes_of(step)
            if nodes:
                lines.append(f"       at {locations_of(nodes)}")
            lines += [f"       {line}" for line in reasons.of(nodes)]
            number += 1
            reason = why_not_native(step) if isinstance(step, Node) else ""
            if reason:
                lines.append(f"       not native: {reason}")
            if isinstance(step, Node) and step in build.regions:
                lines += [f"         | {line}" for line in build.regions[step].explain(env)]
    return "\n".join(lines)


def _cost_text(step: Step | Node, env: Mapping[str, int] | None) -> str:
    flops, moved = _work(step)
    if env is None:
        return f"{flops} flops, {moved} bytes"
    cost = cost_of(step, env)
    return f"{cost.flops:,} flops, {cost.moved:,} bytes, at least {cost.seconds * 1e6:.1f} µs"


def described(build: Build, sizes: Mapping[str, int]) -> list[Described]:
    """Return the native steps, then the nodes outside of native code, at some sizes."""
    nodes = [node for level in build.levels for node in level.nodes]
    steps: list[Step | Node] = [*build.steps, *nodes]
    found = []
    for step in steps:
        cost = cost_of(step, sizes)
        label = label_of(step, build.regions)
        found.append(Described(label, locations_of(_nodes_of(step)), cost.flops, cost.moved))
    return found


def labels(build: Build) -> Labels:
    """Return the names and the costs of the native steps, for all sizes."""
    work = [size for step in build.steps for size in _work(step)]
    return Labels(
        tuple([label_of(step, build.regions) for step in build.steps]),
        tuple([tuple(build.lines_of(step)) for step in build.steps]),
        sizes_of(work, build.program.symbols),
    )


def replayed(build: Build, execution: Execution, rng: Rng) -> Iterator[Replayed]:
    """Run a plan level by level and yield what its steps make.

    A step that ends what others have begun, in memory of no tensor, is yielded as all of them.
    """
    outputs = build.program.graph.outputs
    # Copies that are handed out belong to no tensor themselves.
    copied = dict(zip((*build.fetched, *build.updated), outputs, strict=True))
    begun: dict[Storage, tuple[Node, ...]] = {}
    for level in execution.levels(rng):
        steps: list[Step | Node] = [*level.steps, *level.nodes]
        for step in steps:
            read = () if isinstance(step, Node) else step.operands
            sources = [node for storage in read for node in begun.get(storage, ())]
            nodes = tuple(dict.fromkeys([*sources, *_nodes_of(step)]))
            values: list[tuple[Tensor, Array]] = []
            for storage in step.outputs if isinstance(step, Node) else written(step):
                tensor = copied.get(storage, storage)
                if isinstance(tensor, Tensor):
                    values.append((tensor, execution.flat(storage)))
                else:
                    begun[storage] = nodes
            yield Replayed(nodes, values)


def source(build: Build) -> str:
    """Return the kernels, each once, with the steps that use them."""
    users: dict[str, list[int]] = {}
    texts: dict[str, str] = {}
    for number, step in enumerate(build.steps):
        key = step.code.key
        users.setdefault(key, []).append(number)
        texts[key] = text_of(step.code)
    texts_of_steps = [
        f"steps {', '.join(map(str, numbers))}: "
        f"{label_of(build.steps[numbers[0]], build.regions)}\n{texts[key]}"
        for key, numbers in users.items()
    ]
    return "\n\n".join(texts_of_steps)
