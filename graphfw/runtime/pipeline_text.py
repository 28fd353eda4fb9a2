"""The results of the stages of a compilation, as text.

Tensors are `%n`, as in the text of the optimised graph; memory that belongs to no tensor is `t0`,
`t1`, and so on, which the last lines explain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Node
from graphfw.ir.variable import Variable
from graphfw.passes.fuse import Group
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.printer import show
from graphfw.runtime.kernels.steps import Code, Item, ReferenceStep, Step, Storage, Temp
from graphfw.runtime.pipeline import Compilation
from graphfw.runtime.planning.schedule import written
from graphfw.runtime.step_reports import label_of

Stage: TypeAlias = Literal["partition", "lower", "hoist", "schedule", "allocate"]

STAGES: Sequence[Stage] = get_args(Stage)


def text(compilation: Compilation, stage: Stage) -> str:
    """Return the result of a stage; the stages before it are run for that."""
    names = _Names(compilation.program.graph)
    return "\n".join([*_LINES[stage](compilation, names), *names.legend()])


def about(code: Code) -> str:
    """Return the name of a code's class and the first line that it says of itself."""
    kind = type(code)
    return f"{kind.__name__}: {(kind.__doc__ or '').strip().partition(chr(10))[0]}".rstrip(": ")


class _Names:
    """The names of storages in a text."""

    def __init__(self, graph: Graph) -> None:
        tensors = [tensor for node in graph.nodes for tensor in node.outputs]
        self._tensors = {tensor: f"%{number}" for number, tensor in enumerate(tensors)}
        self._temps: dict[Temp, str] = {}

    def __call__(self, storage: Storage) -> str:
        if isinstance(storage, Temp):
            return self._temps.setdefault(storage, f"t{len(self._temps)}")
        return self._tensors.get(storage) or storage.name or storage.node.op.name

    def all(self, storages: Iterable[Storage]) -> str:
        return ", ".join(map(self, storages)) or "nothing"

    def legend(self) -> Iterator[str]:
        """Yield a line for each storage that belongs to no tensor."""
        for temp, name in self._temps.items():
            yield f"{name} : {temp.dtype.name}[{temp.size}], {temp.why}"

    def node(self, node: Node) -> str:
        left = f"{', '.join(map(self, node.outputs))} = " if node.outputs else ""
        return f"{left}{node.op.name}({', '.join(map(self, node.inputs))})"

    def step(self, item: Item | Node) -> str:
        """Return a step in a line: what it computes, what it reads, and what it writes."""
        if isinstance(item, ReferenceStep):
            item = item.node
        if isinstance(item, Node):
            return f"{self.node(item)}, by eval"
        read = [s for s, new in zip(item.operands, item.written, strict=True) if not new]
        return f"{label_of(item)}: {self.all(dict.fromkeys(read))} -> {self.all(written(item))}"


def _partition(compilation: Compilation, names: _Names) -> Iterator[str]:
    for number, group in enumerate(compilation.partition.groups):
        yield f"group {number}: {_form(group)}"
        yield from [f"  {names.node(node)}" for node in group.nodes]
        yield f"  writes {names.all(group.outputs)}"
        for tensor, reason in group.reasons.items():
            yield f"  reads {names(tensor)}: {reason}"


def _form(group: Group) -> str:
    if group.kind != "kernel":
        return {"matmul": "a product and what follows it", "reference": "by eval"}[group.kind]
    axes = f"a loop nest over [{', '.join(map(str, group.sizes))}]"
    if group.rows is None:
        return axes
    rows = ", ".join([str(group.sizes[axis]) for axis in group.rows])
    return f"{axes}, {group.form} along [{rows}]"


def _lower(compilation: Compilation, names: _Names) -> Iterator[str]:
    lowered = compilation.lowered
    for number, item in enumerate(lowered.items):
        yield f"step {number}: {names.step(item)}"
        if isinstance(item, Step):
            yield from [f"  {line}" for line in _facts(item, names)]
    for number, storage in enumerate(lowered.fetched):
        yield f"fetch {number}: {names(storage)}"
    yield from _updates(lowered.updates, names)


def _facts(step: Step, names: _Names) -> Iterator[str]:
    kernel = getattr(step.code, "kernel", None)
    if isinstance(kernel, Kernel):
        yield _listed({f"b{index}": names(s) for index, s in enumerate(step.operands)})
        if step.params:
            yield _listed({f"p{index}": size for index, size in enumerate(step.params)})
    yield (
        f"work items {step.work_items}, workspace {step.scratch} bytes"
        if step.scratch
        else (f"work items {step.work_items}")
    )
    if step.after:
        yield f"after {names.all(step.after)}"
    if step.choice is not None:
        yield f"strategy {step.choice}"
    if isinstance(kernel, Kernel):
        yield from show(kernel).splitlines()
    else:
        yield about(step.code)


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join([f"{name} = {value}" for name, value in values.items()])


def _updates(updates: Iterable[tuple[Variable, Storage]], names: _Names) -> Iterator[str]:
    for variable, storage in updates:
        yield f'update "{variable.name}" = {names(storage)}'


def _hoist(compilation: Compilation, names: _Names) -> Iterator[str]:
    hoisted = compilation.hoisted
    kept = names.all(hoisted.kept)
    yield "once"
    yield from [f"  {names.step(step)}" for step in hoisted.steps]
    yield f"  keeps {kept}"
    yield "each run"
    yield from [f"  {names.step(item)}" for item in hoisted.rest]


def _schedule(compilation: Compilation, names: _Names) -> Iterator[str]:
    plan = compilation.schedule
    for number, level in enumerate(plan.levels):
        yield f"level {number}"
        yield from [f"  {names.step(step)}" for step in level.steps]
        yield from [f"  {names.step(node)}" for node in level.nodes]
    for storage, (first, last) in plan.lifetimes.items():
        end = "the end" if last >= len(plan.levels) else last
        yield f"{names(storage)} is needed from level {first} to {end}"
    yield from _updates(zip(compilation.program.updated, plan.updated, strict=True), names)


def _allocate(compilation: Compilation, names: _Names) -> Iterator[str]:
    memory = compilation.memory
    for number, (block, nbytes) in enumerate(zip(memory.blocks, memory.nbytes, strict=True)):
        inside = [storage for storage, own in memory.block_of.items() if own == number]
        when = f"levels {block.first} to {block.last}"
        yield f"block {number}: {nbytes} bytes, {when}: {names.all(inside)}"
    outside = [s for s in compilation.schedule.lifetimes if s not in memory.block_of]
    yield f"outside the arena: {names.all(outside)}"


_LINES: Mapping[Stage, Callable[[Compilation, _Names], Iterator[str]]] = {
    "partition": _partition,
    "lower": _lower,
    "hoist": _hoist,
    "schedule": _schedule,
    "allocate": _allocate,
}
