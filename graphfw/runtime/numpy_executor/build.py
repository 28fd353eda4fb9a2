"""Compiling a program: its steps, when they run, and what their operands are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphfw.ir.dim import DimLike
from graphfw.ir.dim_text import evaluate
from graphfw.ir.dim_text import written as sizes_of
from graphfw.ir.literal import Literal
from graphfw.ir.sources import Constant
from graphfw.ir.tensor import Node, Tensor
from graphfw.loc import Loc
from graphfw.ops.regions import Region
from graphfw.passes.fuse import partition
from graphfw.runtime.executor import Options
from graphfw.runtime.kernels.lower import CanCompile, lower
from graphfw.runtime.kernels.steps import Item, Prepared, ReferenceStep, Step, Storage, Table, View
from graphfw.runtime.kernels.views import is_whole, view
from graphfw.runtime.numpy_executor.choice import by_estimate
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.layout import ARENA, KnownView, Layout, stretches
from graphfw.runtime.numpy_executor.names import name_of
from graphfw.runtime.numpy_executor.pool import default_threads
from graphfw.runtime.numpy_executor.recipe import Measured, Part, PreparedPart, Recipe
from graphfw.runtime.numpy_executor.recycle import Arenas
from graphfw.runtime.numpy_executor.regions import CompiledRegion
from graphfw.runtime.numpy_executor.target import CpuTarget
from graphfw.runtime.numpy_executor.tuning import Tuner
from graphfw.runtime.planning.blocks import blocks_of
from graphfw.runtime.planning.copies import copied, held, marked
from graphfw.runtime.planning.draws import Draws, drawn_keys
from graphfw.runtime.planning.schedule import Level, schedule, written
from graphfw.runtime.planning.work import is_worth_a_copy
from graphfw.runtime.program import Program

_NEAR = 6 << 20
"""So many bytes of weights a shared cache still holds when the next run reads them, prepared."""


class Build:
    """A compiled program, for all sizes.

    Attributes:
        levels: What runs when.
        fetched: For each fetched output what holds it alone.
        bases: The number of the address of each storage that is not in the arena; see `Recipe`. The
            arrays of a call are the inputs, what random nodes draw from, the direct outputs, the
            updates.
        array_of: For storages of the latter kind, the place among the arrays.
        block_of: For storages in the arena, the block.
        constants: What the constants are.
        prepared: The prepared operands.
        regions: What computes the nodes with bodies.
        codes: What each function is made from, by its name.
        recipe: What runs need to know of it.
    """

    def __init__(
        self,
        program: Program,
        options: Options,
        arenas: Arenas,
        measured: Measured | None = None,
    ) -> None:
        self.program = program
        graph = program.graph
        drawn = drawn_keys(graph)
        draws = Draws(drawn)
        tuner = Tuner(options.threads or default_threads(), graph, measured)
        choose = tuner.choose if options.tune else by_estimate
        target = CpuTarget(draws, options, choose, is_near=tuner.weights <= _NEAR)
        self.partition = partition(graph, CanCompile(target))
        items = lower(graph, self.partition, target, fixed=program.kept)
        self._lines = {_line(node): number for number, node in enumerate(program.source.nodes)}
        count = program.fetch_count
        self.fetched = self._fetched(graph.outputs[:count], items)
        updates = [
            (variable, self._whole(self.view(tensor), items))
            for variable, tensor in zip(program.updated, graph.outputs[count:], strict=True)
        ]
        plan = schedule(
            items,
            self.storage_of,
            updates,
            self.fetched,
            _copy_of,
            may_overwrite=lambda step: not is_worth_a_copy(step),
        )
        marks: list[Storage] = []
        if updates:
            step, mark = marked(KernelCode)
            plan.levels.append(Level([step], []))
            marks.append(mark)
        self.levels = plan.levels
        self.regions = {
            node: CompiledRegion(node.op, options, arenas)
            for level in plan.levels
            for node in level.nodes
            if isinstance(node.op, Region)
        }
        self.lifetimes = plan.lifetimes
        self.updated = plan.updated
        self.steps = [step for level in plan.levels for step in level.steps]
        self.prepared = _prepared(self.steps)
        self.constants = _constants(self.steps, self.prepared)
        outside = _made_outside(self.levels)
        direct = [k for k, storage in enumerate(self.fetched) if storage not in outside]
        lasting = [*self.constants, *self.prepared, *outside]
        drawing: list[Storage] = [draws.storage] if draws else []
        given = [*program.feeds, *program.variables, *drawing]
        arrays = [*given, *[self.fetched[k] for k in direct], *plan.updated, *marks]
        self.bases = {s: number for number, s in enumerate((*lasting, *arrays), ARENA + 1)}
        self.array_of = {storage: place for place, storage in enumerate(arrays)}
        self.block_of, blocks, dims = blocks_of(
            plan.levels, plan.lifetimes, self.bases, self.storage_of
        )
        codes = [step.code for step in (*self.steps, *[one.step for one in self.prepared])]
        # Steps of equal structure share their code: it is named once.
        name_by_id = {number: name_of(code) for number, code in {id(c): c for c in codes}.items()}
        names = [name_by_id[id(code)] for code in codes]
        self.codes = dict(zip(names, codes, strict=True))
        numbers = {name: number for number, name in enumerate(self.codes)}
        function_of = iter([numbers[name] for name in names])
        for tensor in graph.outputs:
            dims.extend((*tensor.shape, tensor.type.nbytes))
        for step in self.steps:
            dims.extend((*step.params, step.cells, step.scratch))
        for step in self.steps:
            dims.extend(step.nonzero)
        self.recipe = Recipe(
            functions=tuple(self.codes),
            levels=tuple(
                [
                    tuple([self._part(step, next(function_of)) for step in level.steps])
                    for level in plan.levels
                    if level.steps
                ]
            ),
            stretches=stretches(plan.levels),
            blocks=tuple(blocks),
            symbols=program.symbols,
            sizes=sizes_of(dims, program.symbols),
            ranks=tuple([tensor.ndim for tensor in graph.outputs]),
            dtypes=tuple([tensor.dtype.name for tensor in graph.outputs]),
            fixed=len(lasting) + 1,
            arrays=len(arrays),
            constants={self.bases[s]: literal for s, literal in self.constants.items()},
            prepared=tuple([self._prepared_part(one, next(function_of)) for one in self.prepared]),
            overwritten=tuple([self.array_of[variable] for variable in program.updated]),
            direct=tuple(direct),
            drawn=drawn,
            measured=tuner.found,
        )

    def _part(self, step: Step, function: int) -> Part:
        bases = self.bases
        operands = [bases[s] if s in bases else ~self.block_of[s] for s in step.operands]
        op, node = "", -1
        if step.nodes:
            op, node = step.nodes[0].op.name, self._lines.get(_line(step.nodes[0]), -1)
        return Part(function, tuple(operands), len(step.params), op, node)

    def lines_of(self, step: Step) -> list[int]:
        """Return numbers of nodes of the program's source, on the lines that made a step."""
        numbers = [self._lines.get(_line(node), -1) for node in step.nodes]
        return [number for number in dict.fromkeys(numbers) if number >= 0]

    def _prepared_part(self, one: Prepared, function: int) -> PreparedPart:
        step = one.step
        result = self.bases[one]
        pairs = zip(step.operands, step.written, strict=True)
        return PreparedPart(
            result=result,
            nbytes=static(one.size) * one.dtype.itemsize,
            function=function,
            operands=tuple([result if is_new else self.bases[s] for s, is_new in pairs]),
            params=tuple(map(static, step.params)),
            cells=static(step.cells),
            scratch=static(step.scratch),
        )

    def view(self, tensor: Tensor) -> View:
        """Return where a tensor lies."""
        return view(tensor, self.partition.facts)

    def view_at(self, tensor: Tensor, layout: Layout) -> KnownView:
        """Return where a tensor lies at known sizes."""
        known = layout.views.get(tensor)
        if known is None:
            storage, offset, shape, strides = self.view(tensor)
            env = layout.sizes
            dims = [evaluate(dim, env) for dim in shape]
            steps = [evaluate(stride, env) for stride in strides]
            item = storage.dtype.itemsize
            known = layout.views[tensor] = KnownView(
                storage,
                evaluate(offset, env) * item,
                tuple(dims),
                tuple([step * item for step in steps]),
                steps == [math.prod(dims[axis:]) for axis in range(1, len(dims) + 1)],
            )
        return known

    def storage_of(self, tensor: Tensor) -> Storage:
        """Return the storage that a tensor lies in."""
        return self.view(tensor).storage

    def _whole(self, place: View, items: list[Item]) -> Storage:
        """Return a storage that holds a view's elements and no others, in their order."""
        if is_whole(place):
            return place.storage
        assert isinstance(place.storage, Tensor)
        step, temp = copied(place, (place.storage.node,), "new contents of a variable", KernelCode)
        items.append(step)
        return temp

    def _fetched(self, outputs: Sequence[Tensor], items: list[Item]) -> list[Storage]:
        """Return for each fetched output a storage of its own that holds it, in its order."""
        # What a trip makes is to lie where its loop says. A loop inside of it says so itself.
        kept = [item for item in items if not (self.program.is_trip and _is_region(item))]
        free = {s for item in kept for s in written(item)}
        places = [(tensor.node, self.view(tensor)) for tensor in outputs]
        return held(places, free, items, "a fetched value", KernelCode)


def _line(node: Node) -> Loc:
    return node.loc._replace(merged=()) if node.loc.merged else node.loc


def _is_region(item: Item) -> bool:
    return isinstance(item, ReferenceStep) and isinstance(item.node.op, Region)


def _copy_of(storage: Storage) -> tuple[Step, Storage]:
    nodes = (storage.node,) if isinstance(storage, Tensor) else ()
    place = View(storage, 0, (storage.size,), (1,))
    return copied(place, nodes, "new contents of a variable", KernelCode)


def _prepared(steps: Sequence[Step]) -> list[Prepared]:
    found = [s for step in steps for s in step.operands if isinstance(s, Prepared)]
    return list(dict.fromkeys(found))


def _constants(steps: Sequence[Step], prepared: Sequence[Prepared]) -> dict[Storage, Literal]:
    """Collect the constants that steps read from memory."""
    found: dict[Storage, Literal] = {}
    for step in (*steps, *[one.step for one in prepared]):
        for storage in step.operands:
            if isinstance(storage, Tensor) and isinstance(storage.node.op, Constant):
                op: Any = storage.node.op
                found[storage] = op.value
            elif isinstance(storage, Table):
                found[storage] = storage.literal
    return found


def _made_outside(levels: Sequence[Level]) -> dict[Storage, None]:
    return {t: None for level in levels for node in level.nodes for t in node.outputs}


def static(size: DimLike) -> int:
    """Return a size that is known."""
    assert isinstance(size, int)
    return size
