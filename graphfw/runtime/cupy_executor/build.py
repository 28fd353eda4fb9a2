"""Compiling a program for a GPU: its steps in order, and where their operands are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, NoReturn, Protocol, TypeAlias, TypeGuard

import numpy as np

from graphfw.ir.constants import constant_array
from graphfw.ir.dim import DimLike
from graphfw.ir.literal import Array
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.variable import Variable
from graphfw.runtime.cupy_executor.codegen import CudaCode, GpuCode, HandwrittenCode, module
from graphfw.runtime.cupy_executor.codegen.batched_launch import MANY, TOGETHER
from graphfw.runtime.cupy_executor.codegen.launch import without_alignment
from graphfw.runtime.cupy_executor.cudnn import CudnnCode
from graphfw.runtime.cupy_executor.products import ProductCode
from graphfw.runtime.cupy_executor.stored import array_dtype
from graphfw.runtime.kernels.steps import Step, Storage, View
from graphfw.runtime.pipeline import Compilation
from graphfw.runtime.planning.arena import Block
from graphfw.runtime.planning.blocks import allocate
from graphfw.runtime.planning.hoist import HoistedSteps
from graphfw.runtime.planning.schedule import Level, Lifetime


class BodiesCode:
    """The code of a loop or a branch, for all sizes.

    The operands are the node's inputs, then its outputs, each in a row. Params: where each input
    begins in its storage, in elements, and what else a kind of region wants to know.

    Attributes:
        node: The node.
        builds: The bodies.
    """

    def __init__(self, node: Node, builds: Sequence[GpuProgram]) -> None:
        self.node = node
        self.builds = tuple(builds)

    @property
    def key(self) -> str:
        """The kind of region; its kernels are codes of their own."""
        return self.node.op.name

    @property
    def can_fail(self) -> bool:
        """Whether a kernel of a body checks something."""
        return any([build.can_fail for build in self.builds])

    @property
    def sequences(self) -> range:
        """The inputs that are taken row by row: only their rows have to be contiguous."""
        return range(0)


class KernelStep(NamedTuple):
    """A step that is a kernel."""

    step: Step
    code: GpuCode


class GemmStep(NamedTuple):
    """A step that is a matrix product."""

    step: Step
    code: ProductCode

    @property
    def fallback(self) -> list[KernelStep]:
        """The kernels that follow the plain product where cuBLASLt does no more than that."""
        return [_launched(step) for step in self.code.fallback]


class RegionStep(NamedTuple):
    """A step that is a loop or a branch."""

    step: Step
    code: BodiesCode


class CudnnStep(NamedTuple):
    """A step for which cuDNN is asked."""

    step: Step
    code: CudnnCode

    @property
    def epilogue(self) -> list[Work]:
        """The work that follows where cuDNN computes it."""
        return [_work(step) for step in self.code.epilogue]

    @property
    def fallback(self) -> list[Work]:
        """The work in its place where cuDNN does not."""
        return [_work(step) for step in self.code.fallback]


Work: TypeAlias = "KernelStep | GemmStep | CudnnStep | RegionStep | Node"
"""The work of a run at one moment: launch kernels, multiply, run bodies, or call an op's
`eval`."""


class GpuSteps(Protocol):
    """The steps of a run in their order, and where they find memory.

    Attributes:
        work: What is done, in order.
        level_of: For each of these a number: what has the same need not wait for one another.
        final: How many come before those that write the new contents of variables.
        block_of: For storages in the arena, the block.
        blocks: When each block of the arena is needed.
        nbytes: The blocks' bytes.
        nonzero: Sizes that must not be 0.
        can_fail: Whether a kernel checks something.
    """

    work: list[Work]
    level_of: list[int]
    final: int
    block_of: Mapping[Storage, int]
    blocks: Sequence[Block]
    nbytes: Sequence[DimLike]
    nonzero: tuple[DimLike, ...]
    can_fail: bool


class HoistedProgram(GpuSteps):
    """The work done once for many runs: see `planning.once`.

    Args:
        hoisted: The steps, and what runs read of what they make.
        variables: Those of the program.

    Attributes:
        kept: What runs read.
        constants: The constants that it is made of.
        variables: The variables that it is made of.
    """

    def __init__(self, hoisted: HoistedSteps, variables: Sequence[Variable]) -> None:
        steps = hoisted.steps
        self.kept = hoisted.kept
        self.work = [_work(step) for step in steps]
        self.level_of = list(range(len(steps)))
        self.final = len(steps)
        self.nonzero, self.can_fail = (), False
        read = dict.fromkeys([storage for step in steps for storage in step.operands])
        self.constants = _constants([*read])
        self.variables = [variable for variable in variables if variable in read]
        lifetimes: dict[Storage, Lifetime] = {}
        for number, step in enumerate(steps):
            for storage in step.operands:
                first = lifetimes.get(storage, Lifetime(number, number)).first
                lifetimes[storage] = Lifetime(first, number)
        elsewhere = {*self.kept, *self.constants, *self.variables}
        levels = [Level((step,), ()) for step in steps]
        memory = allocate(levels, lifetimes, elsewhere, _no_node)
        self.block_of, self.blocks, self.nbytes = memory.block_of, memory.blocks, memory.nbytes


class GpuProgram(GpuSteps):
    """A compiled program, for all sizes.

    Args:
        stages: What the stages of the compilation have made.
        is_body: Whether it is what a loop or a branch computes.

    Attributes:
        program: The program.
        stages: As given.
        is_body: Whether it is what a loop or a branch computes.
        once: What is done once for many runs; of a body, once for all iterations.
        work: What a run does, in order: a stream does one after the other.
        final: How many of these come before those that write the new contents of variables, which
            may be written over the old ones: these are generated kernels that do nothing where a
            check has failed. Nothing fails there, and nothing else happens.
        fetched: For each fetched output a storage that holds nothing else.
        updated: For each variable that is updated, what holds its new contents.
        draws: What random nodes draw from.
        constants: Those that are read.
        outside: What nodes make that CuPy computes.
    """

    def __init__(self, stages: Compilation, *, is_body: bool = False) -> None:
        self.program = program = stages.program
        self.is_body = is_body
        self.stages = stages
        self.draws = stages.backend.draws
        self.fetched = stages.lowered.fetched
        self.once = HoistedProgram(stages.hoisted, program.variables)
        plan = stages.schedule
        self.updated = plan.updated
        new = frozenset(self.updated)
        self.levels = len(plan.levels)
        self.work: list[Work] = []
        self.level_of: list[int] = []
        for number, level in enumerate(plan.levels):
            found = [
                _work(step if new.isdisjoint(step.operands) else _guarded(step))
                for step in level.steps
            ]
            self.work += [*found, *level.nodes]
            self.level_of += [number] * (len(self.work) - len(self.level_of))
        self.final = sum(
            [isinstance(w, Node) or new.isdisjoint(w.step.operands) for w in self.work]
        )
        steps = [one.step for one in self.work if not isinstance(one, Node)]
        self.can_fail = any(
            [
                one.code.can_fail if isinstance(one, RegionStep) else one.step.can_fail
                for one in self.work
                if not isinstance(one, Node)
            ]
        )
        self.nonzero = tuple([size for step in steps for size in step.nonzero])
        nodes = [one for one in self.work if isinstance(one, Node)]
        read = [storage for step in steps for storage in step.operands]
        read += [self.storage_of(tensor) for node in nodes for tensor in node.inputs]
        self.constants = _constants(read)
        self.outside = stages.outside
        memory = stages.memory
        self.block_of, self.blocks, self.nbytes = memory.block_of, memory.blocks, memory.nbytes

    @cached_property
    def alike(self) -> frozenset[str]:
        """The symbols of kernels that are launched several times without waiting in between."""
        launched = zip(self.work, self.level_of, strict=True)
        count = Counter([(level, w.code.symbol) for w, level in launched if _is_generated(w)])
        return frozenset([symbol for (_, symbol), number in count.items() if number > 1])

    @cached_property
    def rigid(self) -> frozenset[Storage]:
        """Storage for code that wants addresses as well aligned as arrays' are."""
        steps = [one.step for one in self.work if not isinstance(one, Node | KernelStep)]
        steps += [one.step for one, _ in self._kernels() if isinstance(one.code, HandwrittenCode)]
        return frozenset([storage for step in steps for storage in step.operands])

    def reads(self, storage: Storage) -> bool:
        """Return whether anything reads a storage."""
        return any([storage in self._read_by(one) for one in self.work])

    def _read_by(self, one: Work) -> frozenset[Storage]:
        if isinstance(one, Node):
            return frozenset([self.storage_of(tensor) for tensor in one.inputs])
        pairs = zip(one.step.operands, one.step.written, strict=True)
        return frozenset([storage for storage, is_new in pairs if not is_new])

    @property
    def inner(self) -> list[GpuProgram]:
        """The bodies of loops and branches, and the bodies in these."""
        own = [
            build for one in self.work if isinstance(one, RegionStep) for build in one.code.builds
        ]
        return [found for build in own for found in (build, *build.inner)]

    @cached_property
    def codes(self) -> list[GpuCode]:
        """The kernels that every run launches, each once."""
        return list(
            {k.code.key: k.code for k, is_spare in self._all_kernels() if not is_spare}.values()
        )

    @cached_property
    def spare(self) -> list[GpuCode]:
        """The others: for what libraries turn out not to do, once sizes are known."""
        own = {code.key for code in self.codes}
        found = {kernel.code.key: kernel.code for kernel, _ in self._all_kernels()}
        return [code for key, code in found.items() if key not in own]

    def source(self, codes: Sequence[GpuCode]) -> str:
        """Return the source of kernels: where sizes are known, of the variants that they need."""
        wanted: dict[str, set[str]] = {}
        # What lies in rows of arrays may not lie as vectors must.
        kernels = [(one, False) for one, _ in self._kernels()]
        kernels += [(one, True) for body in self.inner for one, _ in body._kernels()]
        for one, loose in kernels:
            found = wanted.setdefault(one.code.symbol, set())
            params = [size for size in one.step.params if isinstance(size, int)]
            is_known = len(params) == len(one.step.params)
            names = [one.code.launch(params).variant] if is_known else _possible(one)
            found.update(names, map(without_alignment, names) if loose else ())
        alike = frozenset.union(*[build.alike for build in (self, *self.inner)])
        for symbol in alike & wanted.keys():
            wanted[symbol] |= {f"{name}{MANY}" for name in wanted[symbol].intersection(TOGETHER)}
        return module(codes, wanted)

    def view(self, tensor: Tensor) -> View:
        """Return where a tensor is."""
        return self.stages.view(tensor)

    def storage_of(self, tensor: Tensor) -> Storage:
        """Return the storage that a tensor is in."""
        return self.view(tensor).storage

    def nodes_of(self, code: GpuCode) -> list[Node]:
        """Return the nodes that a kernel computes, in all steps that it is the code of."""
        steps = [one.step for one, _ in self._all_kernels()]
        return [node for step in steps if step.code == code for node in step.nodes]

    def _all_kernels(self) -> Iterator[tuple[KernelStep, bool]]:
        """Yield the kernels, those of bodies, too; see `_kernels`."""
        for build in (self, *self.inner):
            yield from build._kernels()

    def _kernels(self) -> Iterator[tuple[KernelStep, bool]]:
        """Yield the kernels, and of each whether libraries may make do without it."""
        for one in (*self.once.work, *self.work):
            if isinstance(one, KernelStep):
                yield one, False
            elif isinstance(one, GemmStep):
                yield from [(other, one.code.is_exact) for other in one.fallback]
            elif isinstance(one, CudnnStep):
                # cuBLASLt does nothing of it: that is known before, and cuDNN not asked.
                yield from [
                    (other, False) for other in one.epilogue if isinstance(other, KernelStep)
                ]
                yield from [
                    (other, True) for other in one.fallback if isinstance(other, KernelStep)
                ]

    @property
    def outputs(self) -> list[Storage]:
        """The storage of the outputs: what is fetched, then new contents of variables."""
        return [*self.fetched, *self.updated]


def _is_generated(one: Work) -> TypeGuard[KernelStep]:
    return isinstance(one, KernelStep) and isinstance(one.code, CudaCode)


def _possible(one: KernelStep) -> Sequence[str]:
    """Return the variants that a kernel may be launched as, some of whose sizes are not known."""
    code = one.code
    return code.possible(one.step.params) if isinstance(code, CudaCode) else code.variants


def _no_node(tensor: Tensor) -> NoReturn:
    raise AssertionError("what is done once are steps")


def _work(step: Step) -> Work:
    if isinstance(step.code, ProductCode):
        return GemmStep(step, step.code)
    if isinstance(step.code, BodiesCode):
        return RegionStep(step, step.code)
    if isinstance(step.code, CudnnCode):
        return CudnnStep(step, step.code)
    return _launched(step)


def _guarded(step: Step) -> Step:
    """Return a step that does nothing where a check has failed, which the host learns later."""
    assert isinstance(step.code, CudaCode)
    return replace(step, code=replace(step.code, is_guarded=True))


def _launched(step: Step) -> KernelStep:
    assert isinstance(step.code, CudaCode | HandwrittenCode)
    return KernelStep(step, step.code)


def _constants(read: Sequence[Storage]) -> dict[Storage, Array]:
    """Return those that are constants, in arrays that CuPy takes."""
    found: dict[Storage, Array] = {}
    for storage in read:
        array = constant_array(storage) if isinstance(storage, Tensor) else None
        if array is not None:
            found[storage] = np.require(array, requirements=["C", "A"]).view(
                array_dtype(storage.dtype)
            )
    return found
