"""Compiling a program for a GPU: its steps in order, and where their operands lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from graphfw.ir.constants import constant_array
from graphfw.ir.literal import Array
from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.fuse import partition
from graphfw.runtime.cupy_executor.codegen import CudaCode, GpuCode, HandCode, module
from graphfw.runtime.cupy_executor.products import ProductCode
from graphfw.runtime.cupy_executor.target import GpuTarget
from graphfw.runtime.executor import Options
from graphfw.runtime.kernels.lower import CanCompile, lower
from graphfw.runtime.kernels.steps import Item, Step, Storage, View
from graphfw.runtime.kernels.views import is_whole, view
from graphfw.runtime.planning.blocks import blocks_of
from graphfw.runtime.planning.copies import copied, held
from graphfw.runtime.planning.draws import Draws, drawn_keys
from graphfw.runtime.planning.schedule import schedule, written
from graphfw.runtime.program import Program


class Launched(NamedTuple):
    """A step that is a kernel."""

    step: Step
    code: GpuCode


class Multiplied(NamedTuple):
    """A step that is a matrix product."""

    step: Step
    code: ProductCode

    @property
    def otherwise(self) -> list[Launched]:
        """The kernels that follow the plain product where cuBLASLt does no more than that."""
        return [_launched(step) for step in self.code.otherwise]


Work: TypeAlias = "Launched | Multiplied | Node"
"""What a run does at one moment: launch a kernel, multiply, or call an op's `eval`."""


class Build:
    """A compiled program, for all sizes.

    Attributes:
        program: The program.
        work: What a run does, in order: a stream does one after the other.
        final: How many of these come before those that write the new contents of variables, which
            may be written over the old ones: nothing fails there, and nothing else happens.
        fetched: For each fetched output what holds it alone.
        updated: For each variable that is updated, what holds its new contents.
        draws: What random nodes draw from.
        constants: Those that are read.
        outside: What nodes make that CuPy computes.
        blocks: When each block of the arena is needed.
        block_of: For storages in the arena, the block.
        nbytes: The blocks' bytes.
        can_fail: Whether a kernel checks something.
    """

    def __init__(self, program: Program, options: Options) -> None:
        self.program = program
        graph = program.graph
        self.draws = Draws(drawn_keys(graph))
        target = GpuTarget(self.draws, options.matmul_precision or "highest")
        self._partition = partition(graph, CanCompile(target))
        items = lower(graph, self._partition, target)
        count = program.fetch_count
        self.fetched = self._held(graph.outputs[:count], items)
        updates = [
            (variable, self._whole(tensor, items))
            for variable, tensor in zip(program.updated, graph.outputs[count:], strict=True)
        ]
        plan = schedule(items, self.storage_of, updates, self.fetched, _copy_of, apart=True)
        self.updated = plan.updated
        self.levels = len(plan.levels)
        self.work: list[Work] = []
        self.level_of: list[int] = []
        for number, level in enumerate(plan.levels):
            found: list[Work] = [_work(step) for step in level.steps]
            self.work += [*found, *level.nodes]
            self.level_of += [number] * (len(self.work) - len(self.level_of))
        new = frozenset(self.updated)
        self.final = sum(
            [isinstance(w, Node) or new.isdisjoint(w.step.operands) for w in self.work]
        )
        steps = [one.step for one in self.work if not isinstance(one, Node)]
        self.can_fail = any([step.can_fail for step in steps])
        self.nonzero = tuple([size for step in steps for size in step.nonzero])
        nodes = [one for one in self.work if isinstance(one, Node)]
        read = [storage for step in steps for storage in step.operands]
        read += [self.storage_of(tensor) for node in nodes for tensor in node.inputs]
        self.constants = _constants(read)
        self.outside = [tensor for node in nodes for tensor in node.outputs]
        elsewhere: list[Storage] = [*program.feeds, *program.variables, *self.constants]
        elsewhere += [*self.outside, *self.outputs, self.draws.storage]
        self.block_of, self.blocks, self.nbytes = blocks_of(
            plan.levels, plan.lifetimes, dict.fromkeys(elsewhere, 0), self.storage_of
        )

    @property
    def codes(self) -> list[GpuCode]:
        """The kernels, each once."""
        return list({one.code.key: one.code for one in self._launched()}.values())

    @cached_property
    def source(self) -> str:
        """The source of the kernels: where sizes are known, of the variants that they need."""
        wanted: dict[str, set[str]] = {}
        for one in self._launched():
            found = wanted.setdefault(one.code.symbol, set())
            params = [size for size in one.step.params if isinstance(size, int)]
            if len(params) == len(one.step.params):
                found.add(one.code.launch(params).variant)
            else:
                found.update(one.code.variants)
        return module(self.codes, wanted)

    def view(self, tensor: Tensor) -> View:
        """Return where a tensor lies."""
        return view(tensor, self._partition.facts)

    def storage_of(self, tensor: Tensor) -> Storage:
        """Return the storage that a tensor lies in."""
        return self.view(tensor).storage

    def nodes_of(self, code: GpuCode) -> list[Node]:
        """Return what a kernel computes, in all steps that it is the code of."""
        steps = [one.step for one in self._launched()]
        return [node for step in steps if step.code == code for node in step.nodes]

    def _launched(self) -> Iterator[Launched]:
        """Yield the kernels, also those that only some sizes may need."""
        for one in self.work:
            if isinstance(one, Launched):
                yield one
            elif isinstance(one, Multiplied):
                yield from one.otherwise

    @property
    def outputs(self) -> list[Storage]:
        """What holds the outputs: what is fetched, then new contents of variables."""
        return [*self.fetched, *self.updated]

    def _whole(self, tensor: Tensor, items: list[Item]) -> Storage:
        """Return a storage that holds a tensor's elements and no others, in their order."""
        place = self.view(tensor)
        if is_whole(place):
            return place.storage
        step, temp = copied(place, (tensor.node,), "new contents of a variable", CudaCode)
        items.append(step)
        return temp

    def _held(self, outputs: Sequence[Tensor], items: list[Item]) -> list[Storage]:
        """Return for each output a storage of its own that holds it, in its order."""
        free = {s for item in items for s in written(item)}
        places = [(tensor.node, self.view(tensor)) for tensor in outputs]
        return held(places, free, items, "an output", CudaCode)


def _copy_of(storage: Storage) -> tuple[Step, Storage]:
    nodes = (storage.node,) if isinstance(storage, Tensor) else ()
    place = View(storage, 0, (storage.size,), (1,))
    return copied(place, nodes, "new contents of a variable", CudaCode)


def _work(step: Step) -> Work:
    if isinstance(step.code, ProductCode):
        return Multiplied(step, step.code)
    return _launched(step)


def _launched(step: Step) -> Launched:
    assert isinstance(step.code, CudaCode | HandCode)
    return Launched(step, step.code)


def _constants(read: Sequence[Storage]) -> dict[Storage, Array]:
    """Return those that are constants."""
    found: dict[Storage, Array] = {}
    for storage in read:
        array = constant_array(storage) if isinstance(storage, Tensor) else None
        if array is not None:
            found[storage] = np.require(array, requirements=["C", "A"])
    return found
