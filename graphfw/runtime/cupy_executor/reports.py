"""The reports of a program that is compiled for a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphfw.errors import counted
from graphfw.ir.dim_text import evaluate
from graphfw.ir.tensor import Node
from graphfw.ir.variable import Variable
from graphfw.runtime.cupy_executor import attention, cudnn
from graphfw.runtime.cupy_executor.attention.cudnn import CudnnAttention
from graphfw.runtime.cupy_executor.build import (
    CudnnStep,
    GemmStep,
    GpuProgram,
    KernelStep,
    RegionStep,
    Work,
)
from graphfw.runtime.cupy_executor.codegen.batched_launch import kind_of
from graphfw.runtime.cupy_executor.convolution import CONVOLUTIONS, channels_last
from graphfw.runtime.cupy_executor.device import Device
from graphfw.runtime.cupy_executor.layouts import GpuLayout
from graphfw.runtime.cupy_executor.regions.common import BoundRegion
from graphfw.runtime.cupy_executor.stored import runs_on_host
from graphfw.runtime.limits import shown_bytes
from graphfw.runtime.locations import location_of
from graphfw.runtime.memory import MemoryEntry, MemoryReport, PerIteration, report
from graphfw.runtime.planning.blocks import bytes_at
from graphfw.runtime.planning.hoist import known_bytes
from graphfw.runtime.profile import Label
from graphfw.runtime.step_reports import Reasons, entries, entry, label_of, ops_of


def explain(build: GpuProgram, layout: GpuLayout | None, device: Device) -> str:
    """Return a line for each step: what it computes, and how its threads go about it.

    Args:
        build: The program.
        layout: At which sizes; None for what holds for all.
        device: The GPU.
    """
    lines = _lines(build, layout, device)
    nodes = [node for one in build.work if isinstance(one, KernelStep) for node in one.step.nodes]
    convolutions, _ = _asked_for(build)
    if not convolutions and any([isinstance(node.op, CONVOLUTIONS) for node in nodes]):
        reason = cudnn.why_not() or "it would not do them better"
        lines.append(f"cuDNN is asked for no convolution: {reason}")
    lines += channels_last.said(build.program.graph)
    of_attention = [node for node in nodes if isinstance(node.op, attention.ATTENTION)]
    lines += attention.said(of_attention, device.capability)
    return "\n".join(lines)


def _asked_for(build: GpuProgram) -> tuple[int, int]:
    """Return for how many convolutions cuDNN is asked, and for how many steps of attention."""
    asked = [
        isinstance(one.code, CudnnAttention) for one in build.work if isinstance(one, CudnnStep)
    ]
    return asked.count(False), asked.count(True)


def _lines(build: GpuProgram, layout: GpuLayout | None, device: Device) -> list[str]:
    env = None if layout is None else layout.sizes
    kernels = sum([isinstance(one, KernelStep) for one in build.work])
    others = sum([isinstance(one, Node) for one in build.work])
    convolutions, attentions = _asked_for(build)
    regions = sum([isinstance(one, RegionStep) for one in build.work])
    products = len(build.work) - kernels - others - convolutions - attentions - regions
    kinds = len({one.code.key for one in build.work if isinstance(one, KernelStep)})
    lines = [
        f"{counted(kernels, 'kernel')} of {kinds} kinds; {products} products by cuBLASLt; "
        + (f"{convolutions} convolutions by cuDNN where it has a way; " if convolutions else "")
        + (f"{attentions} of attention by cuDNN where it has a way; " if attentions else "")
        + f"{others} operations by CuPy"
        + (f"; {regions} loops and branches" if regions else "")
    ]
    reasons = Reasons(build.stages.partition)
    known = {} if layout is None else {region.node: region for region in layout.regions}
    along = {} if layout is None else _along(build, layout)
    for number, one in enumerate(build.work):
        region = known.get(one.code.node) if isinstance(one, RegionStep) else None
        lines.append(f"{number:>4}  {_line(one, env, device, region)}{along.get(number, '')}")
        nodes = (one,) if isinstance(one, Node) else one.step.nodes
        lines += [f"        {line}" for line in reasons.of(nodes)]
        bodies = one.code.builds if isinstance(one, RegionStep) else ()
        at = [None for _ in bodies] if region is None else region.bodies
        for body, own in zip(bodies, at, strict=True):
            lines += [f"      | {line}" for line in _lines(body, own, device)]
    once = build.once
    if once.kept:
        nbytes = sum([known_bytes(storage) for storage in once.kept])
        when = f"again when {_listed(once.variables)} changed" if once.variables else "for good"
        when = "before the iterations" if build.is_body else when
        lines.append(f"made once, {when}, {shown_bytes(nbytes)} that are kept:")
        lines += [f"      {_line(one, env, device)}" for one in once.work]
    return "\n".join(lines).splitlines()


def _how(region: BoundRegion | None) -> str:
    """Say who makes the iterations of a loop, or chooses a body."""
    if region is None:
        return "its bodies are compiled"
    who = (
        f"by Python, since {region.why_not_captured}"
        if region.why_not_captured
        else "may be part of a CUDA graph"
    )
    return f"{region.how}, {who}"


def _along(build: GpuProgram, layout: GpuLayout) -> dict[int, str]:
    """Say of kernels that are part of another's launch of which, by number."""
    launched, found, first = {*layout.numbers}, {}, {}
    for number, (one, level) in enumerate(zip(build.work, build.level_of, strict=True)):
        if not isinstance(one, KernelStep) or one.code.symbol not in build.alike:
            continue
        kind = kind_of(one.code.launch([evaluate(s, layout.sizes) for s in one.step.params]))
        alike = level, one.code.symbol, kind
        if number in launched:
            first[alike] = number
        elif kind is not None and alike in first:
            found[first[alike]] = ", in one launch with others"
            found[number] = f", in one launch with {first[alike]}"
    return found


def _listed(variables: Sequence[Variable]) -> str:
    if len(variables) > 1:
        return f"one of {counted(len(variables), 'variable')} has"
    return f'"{variables[0].name}" has'


def _line(
    one: Work, env: Mapping[str, int] | None, device: Device, region: BoundRegion | None = None
) -> str:
    if isinstance(one, Node):
        whose = "NumPy, as CuPy lacks its dtypes" if runs_on_host(one) else "CuPy"
        return f"{one.op.name}: by {whose}, made at {location_of(one)}"
    if isinstance(one, GemmStep):
        made = ", ".join([location_of(node) for node in one.step.nodes])
        return f"{one.code.title}: by cuBLASLt, made at {made}"
    what = _label(one)
    if isinstance(one, RegionStep):
        return f"{what}: {_how(region)}, made at {location_of(one.code.node)}"
    if isinstance(one, CudnnStep):
        return f"{what}: {_asked(one, env, device)}"
    if env is None:
        return f"{what}: {' or '.join(one.code.variants)}"
    launch = one.code.launch([evaluate(size, env) for size in one.step.params])
    if not launch.grid:
        return f"{what}: nothing to do"
    size = f"{launch.grid * launch.pieces} blocks of {launch.block[0] * launch.block[1]} threads"
    return f"{what}: {launch.variant}, {size}{', 64-bit indices' if launch.is_wide else ''}"


def _asked(one: CudnnStep, env: Mapping[str, int] | None, device: Device) -> str:
    """Say what computes a step for which cuDNN is asked, and why."""
    if env is None:
        return "by cuDNN where it has a way at given sizes, else by kernels"
    plan = device.by_cudnn.plan(one.code, [evaluate(size, env) for size in one.step.params])
    others = one.fallback if isinstance(plan, str) else one.epilogue
    lines = [f"\n        {_line(other, env, device)}" for other in others]
    if isinstance(plan, str):
        return f"by kernels, since {plan}:{''.join(lines)}"
    then = f", then:{''.join(lines)}" if lines else ""
    slices = f" in {counted(len(plan.slices), 'slice')}" if plan.slices else ""
    scratch = shown_bytes(plan.workspace)
    return f"{one.code.title} by cuDNN{slices}, {scratch} of scratch memory{then}"


def _label(one: Work) -> str:
    if isinstance(one, Node):
        return one.op.name
    return ops_of(one.step.nodes) if isinstance(one, RegionStep) else label_of(one.step)


def labels(build: GpuProgram) -> list[Label]:
    """Return the name of each step in a profile, those of bodies after the others.

    How fast a GPU could be is not known.
    """
    found = []
    for body in (build, *build.inner):
        for one in body.work:
            nodes = (one,) if isinstance(one, Node) else one.step.nodes
            name = f"{'in a body: ' if body.is_body else ''}{_label(one)}"
            found.append(Label(name, ", ".join(dict.fromkeys(map(location_of, nodes))), 0.0))
    return found


def memory(build: GpuProgram, layout: GpuLayout, *, in_place: bool) -> MemoryReport:
    """Return the memory that a run takes.

    Args:
        build: The program.
        layout: At which sizes.
        in_place: Whether new contents of variables go over the old ones.
    """
    end = max(build.levels - 1, 0)
    sizes, once = layout.sizes, build.once
    # Of constants alone it is made but once, and then these are not needed any more.
    constants = {**build.constants, **(once.constants if once.variables else {})}
    found = entries(build.stages, sizes, constants, build.levels, in_place=in_place)
    for body in build.inner:
        found += [entry(storage, "constant", sizes, 0, end) for storage in body.constants]
        found += [entry(storage, "outside", sizes, 0, end) for storage in body.outside]
    if layout.scratch > layout.inside:
        nbytes = layout.scratch - layout.inside
        found.append(MemoryEntry("inside of loops and branches", "scratch", nbytes, 0, end, ""))
    scratch = layout.arena - layout.scratch
    if scratch:
        found.append(MemoryEntry("values kept by kernels", "scratch", scratch, 0, end, ""))
    per_iteration = []
    for region in _regions_in(layout):
        name, location = region.node.op.name, location_of(region.node)
        if region.outside:
            found.append(
                MemoryEntry(f"inside of {name}", "outside", region.outside, 0, end, location)
            )
        if region.per_iteration:
            per_iteration.append(PerIteration(region.per_iteration, name, location))
    new = [bytes_at(storage, sizes) for storage in build.updated]
    return report(found, build.levels, layout.inside, sum(new) if in_place else 0, per_iteration)


def _regions_in(layout: GpuLayout) -> Iterator[BoundRegion]:
    """Yield the loops and branches, and those in their bodies."""
    for region in layout.regions:
        yield region
        for body in region.bodies:
            if body is not None:
                yield from _regions_in(body)
