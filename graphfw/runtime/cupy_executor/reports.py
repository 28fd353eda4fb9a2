"""What a program that is compiled for a GPU says about itself."""

from __future__ import annotations

from collections.abc import Mapping

from graphfw.ir.dim_text import evaluate
from graphfw.ir.tensor import Node, Tensor
from graphfw.runtime.cupy_executor.build import Build, Launched, Multiplied, Work
from graphfw.runtime.cupy_executor.layouts import Layout
from graphfw.runtime.kernels.steps import Storage, Temp
from graphfw.runtime.memory import Entry, Kind, MemoryReport, report
from graphfw.runtime.places import place_of
from graphfw.runtime.profile import Label


def explain(build: Build, sizes: tuple[int, ...] | None) -> str:
    """Return a line for each step: what it computes, and how its threads go about it."""
    env = None if sizes is None else dict(zip(build.program.symbols, sizes, strict=True))
    kernels = sum([isinstance(one, Launched) for one in build.work])
    others = sum([isinstance(one, Node) for one in build.work])
    products = len(build.work) - kernels - others
    lines = [
        f"{kernels} kernels of {len(build.codes)} kinds; {products} products by cuBLASLt; "
        f"{others} operations by CuPy"
    ]
    lines += [f"{number:>4}  {_line(one, env)}" for number, one in enumerate(build.work)]
    return "\n".join(lines)


def _line(one: Work, env: Mapping[str, int] | None) -> str:
    if isinstance(one, Node):
        return f"{one.op.name}: by CuPy, made at {place_of(one)}"
    if isinstance(one, Multiplied):
        made = ", ".join([place_of(node) for node in one.step.nodes])
        return f"{one.code.title}: by cuBLASLt, made at {made}"
    what = _names(one)
    if env is None:
        return f"{what}: {' or '.join(one.code.variants)}"
    launch = one.code.launch([evaluate(size, env) for size in one.step.params])
    if not launch.grid:
        return f"{what}: nothing to do"
    size = f"{launch.grid * launch.pieces} blocks of {launch.block[0] * launch.block[1]} threads"
    return f"{what}: {launch.variant}, {size}{', 64-bit indices' if launch.is_wide else ''}"


def _names(one: Work) -> str:
    names = [node.op.name for node in ((one,) if isinstance(one, Node) else one.step.nodes)]
    counted = [
        f"{name}×{n}" if (n := names.count(name)) > 1 else name for name in dict.fromkeys(names)
    ]
    return " ".join(counted) or "a copy"


def labels(build: Build) -> list[Label]:
    """Return what each step is called in a profile; how fast a GPU could be is not known."""
    found = []
    for one in build.work:
        nodes = (one,) if isinstance(one, Node) else one.step.nodes
        found.append(Label(_names(one), ", ".join(dict.fromkeys(map(place_of, nodes))), 0.0))
    return found


def memory(build: Build, layout: Layout, *, in_place: bool) -> MemoryReport:
    """Return what memory a run takes.

    Args:
        build: The program.
        layout: At which sizes.
        in_place: Whether new contents of variables go over the old ones.
    """
    end = max(build.levels - 1, 0)
    entries: list[Entry] = []
    sizes = layout.sizes

    def add(storage: Storage, kind: Kind, first: int = 0, last: int = end) -> None:
        nbytes = evaluate(storage.size, sizes) * storage.dtype.itemsize
        name, place = storage.why if isinstance(storage, Temp) else "", ""
        if isinstance(storage, Tensor):
            name, place = storage.name or storage.node.op.name, place_of(storage.node)
        entries.append(Entry(name, kind, nbytes, first, last, place))

    fetched = frozenset(build.fetched)
    for variable in build.program.variables:
        add(variable, "variable")
    for storage in build.constants:
        add(storage, "constant")
    for one, level in zip(build.work, build.level_of, strict=True):
        for tensor in one.outputs if isinstance(one, Node) else ():
            if tensor not in fetched:
                add(tensor, "outside", level, end)
    for storage in build.fetched if in_place else build.outputs:
        add(storage, "output")
    for storage, number in build.block_of.items():
        block = build.blocks[number]
        add(storage, "arena", block.first, min(block.last, end))
    scratch = layout.arena - layout.scratch
    if scratch:
        entries.append(Entry("values kept by kernels", "scratch", scratch, 0, end, ""))
    new = [evaluate(s.size, sizes) * s.dtype.itemsize for s in build.updated]
    return report(entries, build.levels, layout.scratch, sum(new) if in_place else 0)
