"""Compiling a program: its steps, when they run, and what their operands are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from graphfw.ir.dim import static
from graphfw.ir.dim_text import evaluate
from graphfw.ir.dim_text import written as sizes_of
from graphfw.ir.literal import Literal
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.loc import Loc
from graphfw.ops.control.region_op import Region
from graphfw.runtime.executor import Options
from graphfw.runtime.kernels.steps import Step, Storage, Table, View
from graphfw.runtime.numpy_executor.backend import CpuBackend
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.layout import ARENA, KnownView, Layout, stretches
from graphfw.runtime.numpy_executor.names import name_of
from graphfw.runtime.numpy_executor.node_regions import NodeRegion
from graphfw.runtime.numpy_executor.recipe import Measured, PreparedStep, Recipe, RecipeStep
from graphfw.runtime.pipeline import Compilation
from graphfw.runtime.planning.copies import marked
from graphfw.runtime.planning.schedule import Level, written
from graphfw.runtime.program import Program


class Build:
    """A compiled program, for all sizes.

    Args:
        program: The program.
        options: The session's.
        region_of: Compiles a node with bodies.
        measured: The choices that were measured before.

    Attributes:
        stages: What the stages of the compilation have made.
        levels: What runs when.
        fetched: For each fetched output a storage that holds nothing else.
        bases: The number of the address of each storage that is not in the arena; see `Recipe`. The
            arrays of a call are the inputs, what random nodes draw from, the direct outputs, the
            updates.
        array_of: For storages of the latter kind, the index among the arrays.
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
        region_of: Callable[[Region], NodeRegion],
        measured: Measured | None = None,
    ) -> None:
        self.program = program
        graph = program.graph
        backend = CpuBackend(program, options, measured)
        self.stages = stages = Compilation(program, backend)
        plan = stages.schedule
        self.fetched = stages.lowered.fetched
        self._lines = {_line(node): number for number, node in enumerate(program.source.nodes)}
        marks: list[Storage] = []
        self.levels = [*stages.levels]
        if plan.updated:
            step, mark = marked(KernelCode)
            self.levels.append(Level((step,), ()))
            marks.append(mark)
        self.regions = {
            node: region_of(node.op)
            for level in self.levels
            for node in level.nodes
            if isinstance(node.op, Region)
        }
        self.lifetimes = plan.lifetimes
        self.updated = plan.updated
        self.steps = [step for level in self.levels for step in level.steps]
        self.prepacked = [*stages.hoisted.steps]
        self.constants = _constants((*self.steps, *self.prepacked))
        direct = [k for k, storage in enumerate(self.fetched) if storage not in stages.outside]
        lasting = [*self.constants, *stages.hoisted.kept, *stages.outside]
        drawing: list[Storage] = [backend.draws.storage] if backend.draws else []
        inputs = [*stages.fed.values(), *program.variables, *drawing]
        arrays = [*inputs, *[self.fetched[k] for k in direct], *plan.updated, *marks]
        self.bases = {s: number for number, s in enumerate((*lasting, *arrays), ARENA + 1)}
        self.array_of = {storage: index for index, storage in enumerate(arrays)}
        memory = stages.memory
        self.block_of = memory.block_of
        for storage, output in memory.homes.items():
            self.bases[storage] = self.bases[output]
            self.array_of[storage] = self.array_of[output]
        codes = [step.code for step in (*self.steps, *self.prepacked)]
        # Steps of equal structure share their code: it is named once.
        name_by_id = {number: name_of(code) for number, code in {id(c): c for c in codes}.items()}
        names = [name_by_id[id(code)] for code in codes]
        self.codes = dict(zip(names, codes, strict=True))
        numbers = {name: number for number, name in enumerate(self.codes)}
        function_of = iter([numbers[name] for name in names])
        dims = [*memory.nbytes]
        for tensor in graph.outputs:
            dims.extend((*tensor.shape, tensor.type.nbytes))
        for step in self.steps:
            dims.extend((*step.params, step.work_items, step.scratch))
        for step in self.steps:
            dims.extend(step.nonzero)
        self.recipe = Recipe(
            functions=tuple(self.codes),
            levels=tuple(
                [
                    tuple([self._recipe_step(step, next(function_of)) for step in level.steps])
                    for level in self.levels
                    if level.steps
                ]
            ),
            stretches=stretches(self.levels),
            blocks=tuple(memory.blocks),
            symbols=program.symbols,
            sizes=sizes_of(dims, program.symbols),
            ranks=tuple([tensor.ndim for tensor in graph.outputs]),
            dtypes=tuple([tensor.dtype.name for tensor in graph.outputs]),
            fixed=len(lasting) + 1,
            arrays=len(arrays),
            constants={self.bases[s]: literal for s, literal in self.constants.items()},
            prepared=tuple([self._prepared_step(s, next(function_of)) for s in self.prepacked]),
            overwritten=tuple([self.array_of[variable] for variable in program.updated]),
            direct=tuple(direct),
            carried=tuple(sorted(stages.overwritten)),
            drawn=backend.drawn,
            measured=backend.tuner.found,
        )

    def _recipe_step(self, step: Step, function: int) -> RecipeStep:
        bases = self.bases
        operands = [bases[s] if s in bases else ~self.block_of[s] for s in step.operands]
        op, node = "", -1
        if step.nodes:
            op, node = step.nodes[0].op.name, self._lines.get(_line(step.nodes[0]), -1)
        return RecipeStep(function, tuple(operands), len(step.params), op, node)

    def lines_of(self, step: Step) -> list[int]:
        """Return numbers of nodes of the program's source, on the lines that made a step."""
        numbers = [self._lines.get(_line(node), -1) for node in step.nodes]
        return [number for number in dict.fromkeys(numbers) if number >= 0]

    def _prepared_step(self, step: Step, function: int) -> PreparedStep:
        (made,) = written(step)
        result = self.bases[made]
        pairs = zip(step.operands, step.written, strict=True)
        return PreparedStep(
            result=result,
            nbytes=static(made.size) * made.dtype.itemsize,
            function=function,
            operands=tuple([result if is_new else self.bases[s] for s, is_new in pairs]),
            params=tuple(map(static, step.params)),
            work_items=static(step.work_items),
            scratch=static(step.scratch),
        )

    def view(self, tensor: Tensor) -> View:
        """Return where a tensor is."""
        return self.stages.view(tensor)

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


def _line(node: Node) -> Loc:
    return node.loc._replace(merged=()) if node.loc.merged else node.loc


def _constants(steps: Sequence[Step]) -> dict[Storage, Literal]:
    """Collect the constants that steps read from memory."""
    found: dict[Storage, Literal] = {}
    for step in steps:
        for storage in step.operands:
            if isinstance(storage, Tensor) and isinstance(storage.node.op, ConstantOp):
                op: Any = storage.node.op
                found[storage] = op.value
            elif isinstance(storage, Table):
                found[storage] = storage.literal
    return found
