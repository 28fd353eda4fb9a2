"""What a run does at given sizes, and where everything lies then."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from graphfw.ir.collecting import without_collection
from graphfw.ir.dim_text import evaluate
from graphfw.ir.tensor import Node
from graphfw.runtime.cupy_executor.build import Build, Launched, Multiplied, Work
from graphfw.runtime.cupy_executor.codegen import Launch
from graphfw.runtime.cupy_executor.cublaslt import Product
from graphfw.runtime.cupy_executor.device import Device
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.planning.arena import ALIGNMENT, Arena

_LAYOUTS = 256


class Place(NamedTuple):
    """Where a storage lies in a run: in the arena, or in an array of its own.

    Attributes:
        slot: The number of the array; -1: the arena.
        offset: In the arena, in bytes.
    """

    slot: int
    offset: int


class Ready(NamedTuple):
    """A kernel at known sizes.

    Attributes:
        function: What is launched.
        launch: How.
        operands: Where its buffers lie.
        params: Its run-time integers.
    """

    function: Any
    launch: Launch
    operands: list[Place]
    params: list[np.int64]


class ReadyProduct(NamedTuple):
    """A matrix product at known sizes.

    Attributes:
        product: What is run; None where there is nothing to add up.
        operands: Where a, b, the result and the others lie: see `ProductCode`.
        nbytes: The bytes of the result.
    """

    product: Product | None
    operands: list[Place]
    nbytes: int


class Cleared(NamedTuple):
    """A piece of the arena that becomes zeros.

    Attributes:
        offset: Where it begins, in bytes.
        nbytes: Its size.
    """

    offset: int
    nbytes: int


class Evaluated(NamedTuple):
    """A node at known sizes that CuPy computes.

    Attributes:
        node: The node.
        call: What computes it.
    """

    node: Node
    call: Any


Native: TypeAlias = "Ready | ReadyProduct | Cleared"
"""What is one launch, and can be part of a CUDA graph."""

Wave: TypeAlias = "list[Native]"
"""Launches that need not wait for one another, but for the memory that they share."""

Part: TypeAlias = "list[Wave] | Evaluated"
"""A stretch of launches, or what lies between two of them."""


class Frame(NamedTuple):
    """One piece of memory: the arena, and behind it what a run wants there besides.

    Attributes:
        offsets: Of what lies behind the arena, by slot: where it begins, in bytes.
        fixed: The slots that must be there, because CUDA graphs know where it is; others may also
            be arrays of their own.
        nbytes: The size of all of it.
    """

    offsets: dict[int, int]
    fixed: Collection[int]
    nbytes: int


@dataclass(eq=False)
class Layout:
    """Everything that depends on the sizes.

    Attributes:
        sizes: What the symbols stand for.
        offsets: Where each block of the arena begins, in bytes.
        arena: The bytes of the arena, with scratch memory and flags.
        scratch: Where in it kernels keep values; they do so one after the other.
        flags: Where in it flags and counters lie: see `CudaCode`; -1 where there are none.
        parts: What a run does before new contents of variables are written.
        final: What writes these: one stretch of launches, or nothing.
        numbers: Of all that a run does, in order: which piece of `Build.work` it is; -1: none.
        shapes: The outputs'.
        nbytes: The bytes of each slot.
        needed: The bytes that a run takes: the arena and the outputs.
        runs: How many runs there were at these sizes.
        useless: How many instances in a row have been of use to one run only.
        refused: Why runs of these sizes are to have no CUDA graphs; empty where they may.
        told: Why the last one had none, which may be otherwise with the next.
    """

    sizes: dict[str, int]
    offsets: list[int]
    arena: int
    scratch: int
    flags: int
    parts: list[Part]
    final: list[Part]
    numbers: list[int]
    shapes: list[tuple[int, ...]]
    nbytes: list[int]
    needed: int
    runs: int = 0
    useless: int = 0
    refused: str = ""
    told: str = ""

    def frame(self, slots: Iterable[int], fixed: Collection[int] = ()) -> Frame:
        """Return a frame in which some slots lie behind the arena, in this order."""
        offsets: dict[int, int] = {}
        end = _rounded(self.arena)
        for slot in slots:
            offsets[slot] = end
            end += _rounded(self.nbytes[slot])
        return Frame(offsets, fixed, max(end, 1))


class Layouts:
    """Makes layouts, and keeps those of sizes that have been seen lately.

    Args:
        build: The program.
        device: What runs it.

    Attributes:
        slot_of: The numbers of the arrays besides the arena: feeds, variables, constants, what is
            drawn from, what CuPy makes, outputs.
    """

    def __init__(self, build: Build, device: Device) -> None:
        self._build = build
        self._device = device
        self._lock = threading.RLock()
        self._known: OrderedDict[tuple[int, ...], Layout] = OrderedDict()
        self._modules: dict[bool, Any] = {}
        self._arena: Arena | None = None
        program = build.program
        lasting = [*program.feeds, *program.variables, *build.constants, build.draws.storage]
        slots = dict.fromkeys([*lasting, *build.outside, *build.outputs])
        self.slot_of: dict[Storage, int] = {s: number for number, s in enumerate(slots)}
        if build.codes:
            self._module(wide=False)

    def at(self, sizes: tuple[int, ...], check: Callable[[Layout], None] | None = None) -> Layout:
        """Return the layout of some sizes.

        Args:
            sizes: What the program's symbols stand for.
            check: Is called with a new one, and may refuse it.

        Raises:
            ArithmeticError: A size divides by 0, or a step does not take these sizes.
        """
        known = self._known.get(sizes)
        if known is not None:
            return known
        with self._lock:
            layout = self._known.get(sizes)
            if layout is None:
                layout = self.made(sizes)
                if check is not None:
                    check(layout)
                self._known[sizes] = layout
                while len(self._known) > _LAYOUTS:
                    self._known.popitem(last=False)
        return layout

    def known(self, sizes: tuple[int, ...]) -> Layout | None:
        """Return the layout of some sizes, if there have been runs of them lately."""
        return self._known.get(sizes)

    def made(self, sizes: tuple[int, ...]) -> Layout:
        """Lay out some sizes.

        Raises:
            ArithmeticError: A size divides by 0, or a step does not take these sizes.
        """
        with self._lock, without_collection():
            return self._laid_out(dict(zip(self._build.program.symbols, sizes, strict=True)))

    def _laid_out(self, env: dict[str, int]) -> Layout:
        build = self._build
        blocks = [evaluate(size, env) for size in build.nbytes]
        if self._arena is None:
            self._arena = Arena(build.blocks, blocks)
        offsets, total = self._arena.offsets(blocks)
        if 0 in [evaluate(size, env) for size in build.nonzero]:
            raise ArithmeticError
        ready = [self._ready(one, env, offsets) for one in build.work]
        steps = [
            (level, one) for some, level in zip(ready, build.level_of, strict=True) for one in some
        ]
        launches = [one.launch for _, one in steps if isinstance(one, Ready)]
        products = [
            one.product for _, one in steps if isinstance(one, ReadyProduct) and one.product
        ]
        scratch = max([launch.scratch for launch in launches], default=0)
        scratch = _rounded(max([scratch, *[product.workspace for product in products]]))
        counters = max([launch.counters for launch in launches], default=0)
        flags = 4 * (1 + counters) if counters or build.can_fail else 0
        final = sum([len(some) for some in ready[: build.final]])
        cleared = [(-1, Cleared(total + scratch, flags))] if flags else []
        nbytes = [evaluate(s.size, env) * s.dtype.itemsize for s in self.slot_of]
        arena = total + scratch + flags
        return Layout(
            sizes=env,
            offsets=offsets,
            arena=arena,
            scratch=total,
            flags=total + scratch if flags else -1,
            parts=_parts([*cleared, *steps[:final]]),
            final=_parts(steps[final:]),
            numbers=[*[-1 for _ in cleared], *[n for n, some in enumerate(ready) for _ in some]],
            shapes=[
                tuple([evaluate(d, env) for d in t.shape]) for t in build.program.graph.outputs
            ],
            nbytes=nbytes,
            needed=arena + sum([nbytes[self.slot_of[s]] for s in build.outputs]),
        )

    def _ready(
        self, one: Work, env: dict[str, int], offsets: Sequence[int]
    ) -> list[Native | Evaluated]:
        """Return what a piece of work is at these sizes; nothing where there is nothing to do."""
        if isinstance(one, Node):
            op = one.op.bind(env)
            return [Evaluated(one, op.kernel(self._device.cupy, *[t.dtype for t in one.inputs]))]
        params = [evaluate(size, env) for size in one.step.params]
        operands = [self.place(s, offsets) for s in one.step.operands]
        if isinstance(one, Multiplied):
            return self._ready_product(one, params, operands, env, offsets)
        launch = one.code.launch(params)
        if not launch.grid:
            return []
        function = self._function(one, launch)
        return [Ready(function, launch, operands, [np.int64(param) for param in params])]

    def _ready_product(
        self,
        one: Multiplied,
        params: Sequence[int],
        operands: list[Place],
        env: dict[str, int],
        offsets: Sequence[int],
    ) -> list[Native | Evaluated]:
        m, n, k, batch, *_ = params
        if 0 in (m, n, batch):
            return []
        products, nbytes = self._device.products, batch * m * n * one.code.out.itemsize
        product = products.product(one.code, params) if k else None
        if product is not None or one.code.op is None:
            return [ReadyProduct(product, operands, nbytes)]
        plain = products.product(one.code.plain, params) if k else None
        after = [ready for other in one.otherwise for ready in self._ready(other, env, offsets)]
        return [ReadyProduct(plain, operands, nbytes), *after]

    def place(self, storage: Storage, offsets: Sequence[int]) -> Place:
        """Return where a storage lies, given where the blocks of the arena do."""
        slot = self.slot_of.get(storage)
        return Place(-1, offsets[self._build.block_of[storage]]) if slot is None else Place(slot, 0)

    def _function(self, one: Launched, launch: Launch) -> Any:
        loaded = self._module(wide=launch.is_wide)
        function = loaded.get_function(f"{one.code.symbol}_{launch.variant}")
        self._device.allow_shared(function, launch.shared)
        return function

    def _module(self, *, wide: bool) -> Any:
        with self._lock:
            if wide not in self._modules:
                self._modules[wide] = self._device.functions(self._build, wide=wide)
            return self._modules[wide]


def _parts(steps: Sequence[tuple[int, Native | Evaluated]]) -> list[Part]:
    """Cut what a run does, each step with its level, where CuPy computes something."""
    parts: list[Part] = []
    before = None
    for level, one in steps:
        if isinstance(one, Evaluated):
            parts.append(one)
            continue
        if not parts or isinstance(parts[-1], Evaluated):
            parts.append([])
            before = None
        last = parts[-1]
        assert isinstance(last, list)
        if level != before:
            last.append([])
        last[-1].append(one)
        before = level
    return parts


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
