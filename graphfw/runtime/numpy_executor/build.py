"""Compiling a program: its steps, when they run, and what their operands are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphfw.ir.dim_text import evaluate
from graphfw.ir.literal import Array
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Tensor
from graphfw.passes.base import constant_array
from graphfw.passes.fuse import partition
from graphfw.runtime.kernels.lower import CanCompile, lower
from graphfw.runtime.kernels.steps import Prepared, Step, Storage, View
from graphfw.runtime.kernels.views import is_whole, view
from graphfw.runtime.numpy_executor.copies import copied, marked
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.layout import ARENA, KnownView, Layout, Layouts, stretches
from graphfw.runtime.numpy_executor.recycle import Recycler
from graphfw.runtime.numpy_executor.schedule import Item, Level, schedule, written
from graphfw.runtime.numpy_executor.special.draws import Draws
from graphfw.runtime.numpy_executor.target import CpuTarget
from graphfw.runtime.program import Program


class Build:
    """A compiled program, for all sizes.

    Attributes:
        levels: What runs when.
        stretches: The levels, cut where Python has something to do.
        layouts: Makes what depends on the sizes.
        fetched: For each fetched output what holds it alone.
        bases: The number of the address of each storage that is not in the arena. First come those
            that stay: the arena, constants, prepared operands, what nodes outside of native code
            make; then those of the arrays of a call: the inputs, what random nodes draw from, the
            direct outputs, the updates.
        draws: What random nodes draw from.
        array_of: For storages of the latter kind, the place among the arrays.
        constants: What the constants are.
        prepared: The prepared operands.
        overwritten: For each update the place of the variable among the inputs.
        direct: For each direct output its number among all outputs, and what makes its arrays.
        spares: The same for the updates.
        is_plain: Whether it is native as a whole and updates nothing.
        preparing: For each prepared operand the address of the function that computes it.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        graph = program.graph
        self.draws = Draws(graph)
        target = CpuTarget(self.draws)
        self.partition = partition(graph, CanCompile(target))
        # What a plan updates changes the version of all contents, so it prepares constants alone.
        fixed = () if program.updated else program.variables
        items = lower(graph, self.partition, target, fixed=fixed)
        count = program.fetch_count
        self.fetched = self._fetched(graph.outputs[:count], items)
        updates = [
            (variable, self._whole(self.view(tensor), items))
            for variable, tensor in zip(program.updated, graph.outputs[count:], strict=True)
        ]
        plan = schedule(items, self.storage_of, updates, self.fetched, _copy_of)
        marks: list[Storage] = []
        if updates:
            step, mark = marked()
            plan.levels.append(Level([step], []))
            marks.append(mark)
        self.levels = plan.levels
        self.lifetimes = plan.lifetimes
        self.updated = plan.updated
        self.stretches = stretches(plan.levels)
        self.steps = [step for level in plan.levels for step in level.steps]
        self.prepared = _prepared(self.steps)
        self.constants = _constants(self.steps, self.prepared)
        outside = _made_outside(self.levels)
        direct = [(k, storage) for k, storage in enumerate(self.fetched) if storage not in outside]
        lasting = [*self.constants, *self.prepared, *outside]
        drawn: list[Storage] = [self.draws.storage] if self.draws else []
        given = [*program.feeds, *program.variables, *drawn]
        arrays = [*given, *[s for _, s in direct], *plan.updated, *marks]
        self.bases = {s: number for number, s in enumerate((*lasting, *arrays), ARENA + 1)}
        self.array_of = {storage: place for place, storage in enumerate(arrays)}
        self.overwritten = [self.array_of[variable] for variable in program.updated]
        recyclers = [(k, Recycler(t.dtype.dtype)) for k, t in enumerate(graph.outputs)]
        self.direct = [recyclers[k] for k, _ in direct]
        self.spares = recyclers[count:]
        self.is_plain = len(self.stretches) == 1 and not outside and not updates
        addresses = compile_codes(
            [step.code for step in (*self.steps, *[one.step for one in self.prepared])]
        )
        self.layouts = Layouts(
            plan.levels,
            plan.lifetimes,
            self.bases,
            len(lasting) + 1,
            len(arrays),
            dict(zip(self.steps, addresses, strict=False)),
            program.symbols,
            graph.outputs,
            self.storage_of,
        )
        self.preparing = dict(zip(self.prepared, addresses[len(self.steps) :], strict=True))

    def given(self, inputs: Sequence[Array], rng: Rng) -> Sequence[Array]:
        """Return the arrays that a run begins with: its inputs, and what it draws from."""
        return (*inputs, self.draws.array(rng)) if self.draws else inputs

    def view(self, tensor: Tensor) -> View:
        """Return where a tensor lies."""
        return view(tensor, self.partition.facts)

    def view_at(self, tensor: Tensor, layout: Layout) -> KnownView:
        """Return where a tensor lies at known sizes."""
        known = layout.views.get(tensor)
        if known is None:
            storage, offset, shape, strides = self.view(tensor)
            env = layout.sizes
            known = layout.views[tensor] = KnownView(
                storage,
                evaluate(offset, env),
                tuple([evaluate(dim, env) for dim in shape]),
                tuple([evaluate(stride, env) for stride in strides]),
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
        step, temp = copied(place, (place.storage.node,), "new contents of a variable")
        items.append(step)
        return temp

    def _fetched(self, outputs: Sequence[Tensor], items: list[Item]) -> list[Storage]:
        """Return for each fetched output a storage of its own that holds it, in its order."""
        free = {s for item in items for s in written(item)}
        found: list[Storage] = []
        for tensor in outputs:
            place = self.view(tensor)
            if is_whole(place) and place.storage in free:
                free.remove(place.storage)  # who wants it as well gets a copy
                found.append(place.storage)
            else:
                step, temp = copied(place, (tensor.node,), "a fetched value")
                items.append(step)
                found.append(temp)
        return found


def _copy_of(storage: Storage) -> tuple[Step, Storage]:
    nodes = (storage.node,) if isinstance(storage, Tensor) else ()
    place = View(storage, 0, (storage.size,), (1,))
    return copied(place, nodes, "new contents of a variable")


def _prepared(steps: Sequence[Step]) -> list[Prepared]:
    found = [s for step in steps for s in step.operands if isinstance(s, Prepared)]
    return list(dict.fromkeys(found))


def _constants(steps: Sequence[Step], prepared: Sequence[Prepared]) -> dict[Storage, Array]:
    """Collect the constants that steps read from memory."""
    found: dict[Storage, Array] = {}
    for step in (*steps, *[one.step for one in prepared]):
        for storage in step.operands:
            if isinstance(storage, Tensor):
                array = constant_array(storage)
                if array is not None:
                    found[storage] = np.require(array, requirements=["C", "A"])
    return found


def _made_outside(levels: Sequence[Level]) -> dict[Storage, None]:
    return {t: None for level in levels for node in level.nodes for t in node.outputs}
