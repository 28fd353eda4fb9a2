"""The stages of compilation, which turn an optimised graph into code, for all executors.

| stage | result |
|---|---|
| partition | the nodes that are computed together, and why not more |
| lower | steps: kernels, calls of libraries, and nodes that an op's `eval` computes |
| hoist | the steps that are done once for many runs |
| schedule | levels of steps that need not wait for one another, updates last |
| allocate | the blocks of the arena |

An executor says by its `Backend` what is its own in these. What it makes of the last result, code
and tables for its runs, is in `numpy_executor/build.py` and `cupy_executor/build.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

from graphfw.ir.tensor import Tensor
from graphfw.ir.variable import Variable
from graphfw.ops.control.region_op import Region
from graphfw.passes.fuse import Partition, partition
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.lower import CanCompile, Target, lower
from graphfw.runtime.kernels.steps import (
    Code,
    Item,
    ReferenceStep,
    Step,
    Storage,
    Temp,
    View,
)
from graphfw.runtime.kernels.views import view
from graphfw.runtime.planning.blocks import Memory, allocate
from graphfw.runtime.planning.copies import copied_whole, held, laid_out, whole
from graphfw.runtime.planning.draws import Draws
from graphfw.runtime.planning.hoist import HoistedSteps, hoisted
from graphfw.runtime.planning.overwriting import CarriedPair, overwritten, waiting
from graphfw.runtime.planning.schedule import Level, Schedule, schedule, written
from graphfw.runtime.program import Program
from graphfw.utils.records import record

_NEW_CONTENTS = "new contents of a variable"


class Backend(Protocol):
    """The functions that an executor adds to the stages."""

    @property
    def target(self) -> Target:
        """The generator of native code, which lowering asks."""
        ...

    @property
    def draws(self) -> Draws:
        """The source of the random bits of a run."""
        ...

    def may_hoist(self, step: Step) -> bool:
        """Return whether a step that makes the same in many runs may be done once for these."""
        ...

    @property
    def updates_last(self) -> bool:
        """Whether the steps that write over variables come after all others.

        Otherwise they come after those that can fail or read what they write over.
        """
        ...

    def code(self, kernel: Kernel) -> Code:
        """Return the code of a kernel that copies."""
        ...

    def expanded(self, item: Item, view: Callable[[Tensor], View]) -> Sequence[Item]:
        """Return the steps in the place of one, such as of a loop that lowering has left alone.

        Args:
            item: The step.
            view: Returns the layout of a tensor.
        """
        ...

    def may_overwrite(self, step: Step) -> bool:
        """Return whether a step may write over a variable; where it may not, a copy follows it."""
        ...

    @property
    def lends_outputs(self) -> bool:
        """Whether what an output is written over may lie in the output's memory before."""
        ...

    def is_in_place(self, step: Step) -> bool:
        """Return whether a step of a body keeps what it says of operands that are one array."""
        ...


@record(eq=False)
class ProgramSteps:
    """The steps of a program.

    Attributes:
        items: The steps, each after those whose results it reads.
        fetched: For each fetched output a storage that holds nothing else.
        updates: The variables, and the storages of their new contents.
    """

    items: Sequence[Item]
    fetched: Sequence[Storage]
    updates: Sequence[tuple[Variable, Storage]]


class Compilation:
    """A program on its way through the stages; each is computed when it is first asked for.

    Args:
        program: The program.
        backend: The executor's functions.
    """

    def __init__(self, program: Program, backend: Backend) -> None:
        self.program = program
        self.backend = backend

    @cached_property
    def fed(self) -> Mapping[Tensor, Storage]:
        """The feeds, and the storage of the array that each is given: of a copied one another."""
        program = self.program
        layouts = program.layouts or (None,) * len(program.feeds)
        return {
            x: Temp(x.dtype, x.size, "a feed that is not C-contiguous")
            if layout is not None and layout.is_copied
            else x
            for x, layout in zip(program.feeds, layouts, strict=True)
        }

    @cached_property
    def partition(self) -> Partition:
        """The nodes that are computed together."""
        strides = self.program.strides
        read = {x: strides[x] for x, array in self.fed.items() if x is array and x in strides}
        return partition(self.program.graph, CanCompile(self.backend.target), read)

    @cached_property
    def lowered(self) -> ProgramSteps:
        """The steps of the groups, and copies where what is handed out lies otherwise."""
        program, backend = self.program, self.backend
        steps = lower(program.graph, self.partition, backend.target, fixed=program.kept)
        items: list[Item] = [*self._copies]
        items += [one for item in steps for one in backend.expanded(item, self.view)]
        # What an iteration makes is to lie where its loop says. A loop inside it says so itself.
        own = [item for item in items if not (program.is_iteration and _is_region(item))]
        free = {storage for item in own for storage in written(item)}
        outputs = [(tensor.node, self.view(tensor)) for tensor in program.graph.outputs]
        count = program.fetch_count
        fetched = held(outputs[:count], free, items, "a fetched value", backend.code)
        new = [whole(*one, items, _NEW_CONTENTS, backend.code) for one in outputs[count:]]
        return ProgramSteps(items, fetched, [*zip(program.updated, new, strict=True)])

    @cached_property
    def hoisted(self) -> HoistedSteps:
        """The steps that are done once for many runs, and the rest."""
        program, steps = self.program, self.lowered
        made = {*steps.fetched, *[storage for _, storage in steps.updates]}
        may = self.backend.may_hoist
        return hoisted(steps.items, self.storage_of, program.kept, made, may)

    @cached_property
    def schedule(self) -> Schedule:
        """The steps of a run in levels."""
        return schedule(
            self.hoisted.rest,
            self.storage_of,
            self.lowered.updates,
            self.lowered.fetched,
            self._copy,
            apart=self.backend.updates_last,
            may_overwrite=self.backend.may_overwrite,
            waits=waiting(self.hoisted.rest, self.storage_of, self._carried),
        )

    @cached_property
    def memory(self) -> Memory:
        """The blocks of the arena, which has all that is neither handed out nor made by `eval`."""
        plan, fetched = self.schedule, self.lowered.fetched
        elsewhere = {*self.outside, *fetched, *plan.updated}
        lends = self.backend.lends_outputs
        lent = {*fetched}.difference(self.outside, plan.updated) if lends else ()
        return allocate(plan.levels, plan.lifetimes, elsewhere, self.storage_of, lent)

    @cached_property
    def overwritten(self) -> frozenset[int]:
        """The outputs that may lie where what an iteration is given of them does."""
        carried, plan = self._carried, self.schedule
        may = self.backend.is_in_place
        found = overwritten(plan.levels, self.storage_of, carried, self.memory.homes, may)
        return frozenset([self.program.carried[number][1] for number in found])

    @cached_property
    def outside(self) -> dict[Storage, None]:
        """The storages that `eval` makes, in order."""
        levels = self.schedule.levels
        return {t: None for level in levels for node in level.nodes for t in node.outputs}

    def view(self, tensor: Tensor) -> View:
        """Return the layout of a tensor in its storage."""
        return view(tensor, self.partition.facts)

    def storage_of(self, tensor: Tensor) -> Storage:
        """Return the storage that a tensor is in."""
        return self.view(tensor).storage

    @cached_property
    def levels(self) -> Sequence[Level]:
        """The levels of a run, with the in-place variants of steps that may be in place."""
        return [
            level._replace(
                steps=[
                    one.when_in_place if one.when_in_place and self._is_in_place(one) else one
                    for one in level.steps
                ]
            )
            for level in self.schedule.levels
        ]

    def _is_in_place(self, step: Step) -> bool:
        """Return whether a step overwrites what it reads, in all iterations but the first."""
        block_of, homes = self.memory.block_of, self.memory.homes
        numbers = [number for _, number in self.program.carried]
        pairs = zip(numbers, self._carried, strict=True)
        made = {pair.before: pair.made for number, pair in pairs if number in self.overwritten}
        for new, old in step.in_place:
            target, source = [homes.get(s, s) for s in (step.operands[new], step.operands[old])]
            shares = block_of.get(target, -1) == block_of.get(source, -2)
            if not shares and target is not source and made.get(source) is not target:
                return False
        return bool(step.in_place)

    @property
    def _copies(self) -> list[Step]:
        """The steps that copy feeds."""
        strides, target = self.program.strides, self.backend.target
        return [
            laid_out(View(array, 0, x.shape, strides[x]), x, target)
            for x, array in self.fed.items()
            if array is not x
        ]

    @property
    def _carried(self) -> list[CarriedPair]:
        feeds, fetched = self.program.feeds, self.lowered.fetched
        return [CarriedPair(feeds[old], fetched[new]) for old, new in self.program.carried]

    def _copy(self, storage: Storage) -> tuple[Step, Temp]:
        return copied_whole(storage, _NEW_CONTENTS, self.backend.code)


def _is_region(item: Item) -> bool:
    return isinstance(item, ReferenceStep) and isinstance(item.node.op, Region)
