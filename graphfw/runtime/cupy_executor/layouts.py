"""The work of a run at given sizes, and where everything is then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from graphfw.ir.dim_text import evaluate
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Node
from graphfw.ops.control.shape_checks import hold
from graphfw.runtime.cupy_executor.addresses import StorageAddress
from graphfw.runtime.cupy_executor.batched_launch import batched
from graphfw.runtime.cupy_executor.bound_plan import Native, Segment, launches_of, segments_of
from graphfw.runtime.cupy_executor.bound_steps import (
    BoundCudnn,
    BoundKernel,
    BoundProduct,
    Cleared,
    Evaluated,
)
from graphfw.runtime.cupy_executor.build import (
    BodiesCode,
    CudnnStep,
    GemmStep,
    GpuProgram,
    GpuSteps,
    RegionStep,
    Work,
)
from graphfw.runtime.cupy_executor.codegen import CudaCode, Launch
from graphfw.runtime.cupy_executor.codegen.launch import launch as launch_of
from graphfw.runtime.cupy_executor.codegen.launch import without_alignment
from graphfw.runtime.cupy_executor.device import Device
from graphfw.runtime.cupy_executor.modules import Modules
from graphfw.runtime.cupy_executor.products import RESULT
from graphfw.runtime.cupy_executor.regions.common import BoundRegion, RegionCode, RegionSite
from graphfw.runtime.cupy_executor.stored import runs_on_host
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.planning.arena import Arena, rounded, side_by_side
from graphfw.runtime.planning.blocks import bytes_at
from graphfw.runtime.planning.hoist import known_bytes
from graphfw.utils import locks
from graphfw.utils.collecting import without_collection

_NONE: frozenset[int] = frozenset()


_Where: TypeAlias = "Callable[[Storage], StorageAddress]"
"""Says where storages are."""


class Frame(NamedTuple):
    """One piece of memory: the arena, and after it what a run wants there besides.

    Attributes:
        offsets: Of what lies after the arena, by slot: where it begins, in bytes.
        fixed: The slots that must be there, because CUDA graphs know where it is; others may also
            be arrays of their own.
        nbytes: The size of all of it.
    """

    offsets: dict[int, int]
    fixed: Collection[int]
    nbytes: int


@dataclass(eq=False)
class GpuLayout:
    """Everything that depends on the sizes.

    Attributes:
        of: What has laid it out.
        sizes: What the symbols stand for.
        offsets: Where each block of the arena begins, in bytes.
        inside: Where in the arena bodies lie.
        arena: The bytes of the arena, with bodies, scratch memory and flags; a body has those of
            the program around it.
        scratch: Where in it kernels keep values; they do so one after the other.
        flags: Where in it flags and counters lie: see `CudaCode`; -1 where there are none.
        scratch_nbytes: How much scratch memory kernels take, those of bodies, too.
        counters: How many counters.
        drawn: How many words a run draws from, in bodies, too.
        segments: What a run does before new contents of variables are written.
        final: What writes these: one stretch of launches, or nothing.
        numbers: Of all that a run does, in order: which piece of `GpuProgram.work` it is; -1: none.
        shapes: The outputs'.
        nbytes: The bytes of each slot.
        needed: The bytes that a run takes: the arena and the outputs.
        runs: How many runs there were at these sizes.
        is_unchecked: Whether kernels do not look at some indices, as they name elements of size 0.
        useless: How many instances in a row have been of use to one run only.
        refused: Why runs of these sizes are to have no CUDA graphs; empty where they may.
        uncaptured: Why the last one had none, which may be otherwise with the next.
    """

    of: GpuLayouts
    sizes: dict[str, int]
    offsets: list[int]
    inside: int
    arena: int
    scratch: int
    flags: int
    scratch_nbytes: int
    counters: int
    drawn: int
    segments: list[Segment]
    final: list[Segment]
    numbers: list[int]
    shapes: list[tuple[int, ...]]
    nbytes: list[int]
    needed: int
    runs: int = 0
    is_unchecked: bool = False
    useless: int = 0
    refused: str = ""
    uncaptured: str = ""

    @property
    def steps(self) -> list[Native | Evaluated]:
        """All that a run does, in order."""
        found: list[Native | Evaluated] = []
        for segment in (*self.segments, *self.final):
            found += chain.from_iterable(segment) if isinstance(segment, list) else [segment]
        return found

    @cached_property
    def regions(self) -> list[BoundRegion]:
        """The loops and branches, in order."""
        return [step for step in self.steps if isinstance(step, BoundRegion)]

    @property
    def launches(self) -> int:
        """The number of launches, as far as it is known."""
        driven = [segment.launches for segment in self.segments if isinstance(segment, BoundRegion)]
        return sum(driven) + sum(map(launches_of, self.segments))

    @property
    def why_not_captured(self) -> str:
        """The reason that a loop around it can be no part of a CUDA graph; empty where it can."""
        for segment in self.segments:
            if isinstance(segment, Evaluated):
                return f"CuPy computes {segment.node.op.name}"
            if isinstance(segment, BoundRegion):
                return f"{segment.node.op.name}: {segment.why_not_captured}"
        return ""

    def fill(self, rng: Rng, table: Any, begin: int) -> None:
        """Write what a run draws from, in bodies, too, to a table of words from one of them on."""
        draws = self.of.build.draws
        if draws:
            own = draws.array(rng)
            table[begin : begin + len(own)] = own
        for region in self.regions:
            region.fill(rng, table, begin + region.begin // 8)

    def frame(self, slots: Iterable[int], fixed: Collection[int] = ()) -> Frame:
        """Return a frame in which some slots lie after the arena, in this order."""
        order = [*slots]
        sizes = [self.nbytes[slot] for slot in order]
        begins, end = side_by_side(sizes, rounded(self.arena))
        return Frame(dict(zip(order, begins, strict=True)), fixed, max(end, 1))


class GpuLayouts:
    """Makes layouts, and keeps those of sizes that have been seen lately.

    Args:
        build: The program.
        device: What runs it.
        modules: Its machine code; made here by default.

    Attributes:
        build: The program.
        device: What runs it.
        modules: Its machine code.
        slot_of: The numbers of the arrays besides the arena: feeds, variables, constants, what is
            drawn from, what CuPy makes, outputs.
        constants: The constants that are read, by slot.
    """

    def __init__(self, build: GpuProgram, device: Device, modules: Modules | None = None) -> None:
        self.build = build
        self.device = device
        self._lock = locks.reentrant()
        self.modules = Modules(build, device) if modules is None else modules
        self._arena: Arena | None = None
        program = build.program
        once = build.once
        lasting = [*program.feeds, *program.variables, *build.constants, build.draws.storage]
        lasting += [*once.constants, *once.kept]
        slots = dict.fromkeys([*lasting, *build.outside, *build.outputs])
        self.slot_of: dict[Storage, int] = {s: number for number, s in enumerate(slots)}
        read = {**build.constants, **(once.constants if build.is_body else {})}
        self.constants: dict[int, Any] = {
            self.slot_of[storage]: device.constant(array) for storage, array in read.items()
        }
        if self.constants:
            device.cupy.cuda.get_current_stream().synchronize()  # runs on others read them
        # A library that is missing is missed now.
        asked = [one for one in (*once.work, *build.work) if isinstance(one, CudnnStep)]
        self._cudnn = device.by_cudnn if asked else None
        self._inside: dict[BodiesCode, list[GpuLayouts]] = {
            one.code: [GpuLayouts(body, device, self.modules) for body in one.code.builds]
            for one in build.work
            if isinstance(one, RegionStep)
        }

    @property
    def holds_constants(self) -> bool:
        """Whether runs read constants, in bodies, too."""
        inside = [body for bodies in self._inside.values() for body in bodies]
        return bool(self.constants) or any([body.holds_constants for body in inside])

    def made(self, sizes: tuple[int, ...]) -> GpuLayout:
        """Lay out some sizes.

        Raises:
            ArithmeticError: A size divides by 0, or a step or a check does not take these sizes.
        """
        with self._lock, without_collection():
            return self._laid_out(dict(zip(self.build.program.symbols, sizes, strict=True)))

    @cached_property
    def once(self) -> GpuLayout:
        """The work done once for many runs, which depends on no sizes."""
        plan = self.build.once
        blocks = [evaluate(size, {}) for size in plan.nbytes]
        with without_collection():
            nothing = [0 for _ in self.slot_of]
            return self._layout(plan, {}, Arena(plan.blocks, blocks), nothing, [])

    def body(self, env: Mapping[str, int], loose: frozenset[int] = _NONE) -> GpuLayout:
        """Lay out a body.

        Args:
            env: What the symbols of the program around it stand for.
            loose: The slots that do not lie as well as arrays do.

        Raises:
            ArithmeticError: See `made`.
        """
        return self._laid_out({name: env[name] for name in self.build.program.symbols}, loose)

    @property
    def drawn(self) -> int:
        """The slot of what is drawn from."""
        return self.slot_of[self.build.draws.storage]

    @cached_property
    def kept(self) -> dict[int, int]:
        """The bytes of what is made once, by slot."""
        return {self.slot_of[storage]: known_bytes(storage) for storage in self.build.once.kept}

    @cached_property
    def handed(self) -> tuple[int, ...]:
        """The slots of what is fetched, in order."""
        return tuple([self.slot_of[storage] for storage in self.build.fetched])

    @cached_property
    def rigid(self) -> frozenset[int]:
        """The slots of what code reads and writes that wants them to lie well."""
        return frozenset([self.slot_of[s] for s in self.build.rigid if s in self.slot_of])

    def nbytes_of(self, slot: int, env: Mapping[str, int]) -> int:
        """Return the bytes of a slot."""
        return bytes_at(list(self.slot_of)[slot], env)

    def _laid_out(self, env: dict[str, int], loose: frozenset[int] = _NONE) -> GpuLayout:
        build = self.build
        if not hold(build.program.shape_checks, [*env], [*env.values()]):
            raise ArithmeticError
        if self._arena is None:
            self._arena = Arena(build.blocks, [evaluate(size, env) for size in build.nbytes])
        nbytes = [bytes_at(storage, env) for storage in self.slot_of]
        shapes = [tuple([evaluate(d, env) for d in t.shape]) for t in build.program.graph.outputs]
        return self._layout(build, env, self._arena, nbytes, shapes, loose)

    def _layout(
        self,
        plan: GpuSteps,
        env: dict[str, int],
        memory: Arena,
        nbytes: list[int],
        shapes: list[tuple[int, ...]],
        loose: frozenset[int] = _NONE,
    ) -> GpuLayout:
        offsets, total = memory.offsets([evaluate(size, env) for size in plan.nbytes])
        if 0 in [evaluate(size, env) for size in plan.nonzero]:
            raise ArithmeticError
        address_of = partial(self._address_of, plan, offsets)
        ready = [self._ready(one, env, address_of, loose) for one in plan.work]
        steps = [
            (level, number, one)
            for number, (some, level) in enumerate(zip(ready, plan.level_of, strict=True))
            for one in some
        ]
        launches = [one.launch for *_, one in steps if isinstance(one, BoundKernel)]
        products = [
            one.product for *_, one in steps if isinstance(one, BoundProduct) and one.product
        ]
        regions = [one for *_, one in steps if isinstance(one, BoundRegion)]
        drawn = self._words(regions)
        if drawn:
            nbytes[self.drawn] = 8 * drawn
        inside, total = total, total + max([region.nbytes for region in regions], default=0)
        users: list[Launch | BoundRegion] = [*launches, *regions]
        scratch = max([one.scratch for one in users], default=0)
        asked = [one.plan.workspace for *_, one in steps if isinstance(one, BoundCudnn)]
        scratch = rounded(max([scratch, *[product.workspace for product in products], *asked]))
        counters = max([one.counters for one in users], default=0)
        is_whole = not self.build.is_body
        has_guards = plan.final < len(plan.work)
        is_flagged = is_whole and (counters or plan.can_fail or has_guards)
        flags = 4 * (1 + counters) if is_flagged else 0
        final = sum([len(some) for some in ready[: plan.final]])
        early, late = [
            batched(some, plan.work, self.build.alike, self.modules.function)
            for some in (steps[:final], steps[final:])
        ]
        cleared = [(-1, -1, Cleared(total + scratch, flags))] if flags else []
        arena = total + scratch + flags if is_whole else total
        return GpuLayout(
            of=self,
            sizes=env,
            offsets=offsets,
            inside=inside,
            arena=arena,
            scratch=total,
            scratch_nbytes=scratch,
            counters=counters,
            drawn=drawn,
            flags=total + scratch if flags else -1,
            segments=segments_of([*cleared, *early]),
            final=segments_of(late),
            numbers=[number for _, number, _ in (*cleared, *early, *late)],
            shapes=shapes,
            nbytes=nbytes,
            needed=arena + sum([nbytes[self.slot_of[s]] for s in self.build.outputs]),
        )

    def _words(self, regions: Sequence[BoundRegion]) -> int:
        """Return how many words a run draws from: its own, then those of bodies."""
        draws = self.build.draws
        count = evaluate(draws.storage.size, {}) if draws else 0
        for region in regions:
            count += count % 2  # as well aligned as arrays are
            region.begin = 8 * count
            count += region.drawn
        return count + count % 2

    def _ready(
        self, one: Work, env: dict[str, int], address_of: _Where, loose: frozenset[int] = _NONE
    ) -> list[Native | Evaluated]:
        """Return the launches and calls of some work at these sizes; none where there is none."""
        if isinstance(one, Node):
            op = one.op.bind(env)
            xp = np if runs_on_host(one) else self.device.cupy
            return [Evaluated(one, op.kernel(xp, *[t.dtype for t in one.inputs]))]
        params = [evaluate(size, env) for size in one.step.params]
        operands = [address_of(storage) for storage in one.step.operands]
        if isinstance(one, GemmStep):
            return self._ready_product(one, params, operands, env, address_of)
        if isinstance(one, CudnnStep):
            assert self._cudnn is not None
            plan = self._cudnn.plan(one.code, params)
            others = one.fallback if isinstance(plan, str) else one.epilogue
            after = [ready for other in others for ready in self._ready(other, env, address_of)]
            return after if isinstance(plan, str) else [BoundCudnn(plan, operands), *after]
        if isinstance(one, RegionStep):
            pairs = zip(operands, one.step.operands, params, strict=False)
            addresses = [
                at.offset_by(begin * storage.dtype.itemsize) for at, storage, begin in pairs
            ]
            addresses = [
                *addresses[: len(one.code.node.inputs)],
                *operands[len(one.code.node.inputs) :],
            ]
            assert isinstance(one.code, RegionCode)
            return [one.code.ready(RegionSite(env, params, addresses, self._inside[one.code]))]
        launch = one.code.launch(params)
        if isinstance(one.code, CudaCode) and not loose.isdisjoint([at.slot for at in operands]):
            launch = launch_of(one.code.kernel, params, without_alignment(launch.variant))
        if not launch.grid:
            return []
        function = self.modules.function(one.code, launch)
        return [BoundKernel(function, launch, operands, [np.int64(param) for param in params])]

    def _ready_product(
        self,
        one: GemmStep,
        params: Sequence[int],
        operands: list[StorageAddress],
        env: dict[str, int],
        address_of: _Where,
    ) -> list[Native | Evaluated]:
        m, n, k, batch, *_ = params
        if 0 in (m, n, batch):
            return []
        products, nbytes = self.device.products, batch * m * n * one.code.out.itemsize
        product = products.product(one.code, params) if k else None
        if product is not None or one.code.op is None:
            return [BoundProduct(product, operands, nbytes)]
        sizes = [*params[:-3], 0, 0, 0]  # what follows finds the plain product in a row
        plain = products.product(one.code.plain, sizes) if k else None
        operands[RESULT] = operands[one.code.apart]
        after = [ready for other in one.fallback for ready in self._ready(other, env, address_of)]
        return [BoundProduct(plain, operands, nbytes), *after]

    def address_of(self, storage: Storage, offsets: Sequence[int]) -> StorageAddress:
        """Return where a storage is in a run, given where the blocks of the arena do."""
        return self._address_of(self.build, offsets, storage)

    def _address_of(
        self, plan: GpuSteps, offsets: Sequence[int], storage: Storage
    ) -> StorageAddress:
        slot = self.slot_of.get(storage)
        return (
            StorageAddress(-1, offsets[plan.block_of[storage]])
            if slot is None
            else StorageAddress(slot, 0)
        )
