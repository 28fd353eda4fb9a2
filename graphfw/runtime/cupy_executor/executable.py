"""Running a program on a GPU: kernels and CuPy's functions in order, on memory planned ahead."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from graphfw.errors import ExecutionError
from graphfw.ir import concrete
from graphfw.ir.collecting import without_collection
from graphfw.ir.dim_text import evaluate
from graphfw.ir.literal import Array
from graphfw.ir.op import ALIAS, RANDOM, Rng
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.effects import quiet
from graphfw.runtime.array_executor import ArrayExecutable
from graphfw.runtime.cupy_executor import failures, reports
from graphfw.runtime.cupy_executor.build import Build, Launched, Multiplied
from graphfw.runtime.cupy_executor.codegen import Launch
from graphfw.runtime.cupy_executor.cublaslt import Product
from graphfw.runtime.cupy_executor.device import Device
from graphfw.runtime.executor import Claim, Executable, Options
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.memory import MemoryReport, too_much
from graphfw.runtime.planning.arena import Arena
from graphfw.runtime.program import Program

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
        operands: Where a, b and the result lie.
        nbytes: The bytes of the result.
    """

    product: Product | None
    operands: list[Place]
    nbytes: int


class Evaluated(NamedTuple):
    """A node at known sizes that CuPy computes.

    Attributes:
        node: The node.
        call: What computes it.
    """

    node: Node
    call: Any


@dataclass(eq=False)
class Layout:
    """Everything that depends on the sizes.

    Attributes:
        sizes: What the symbols stand for.
        offsets: Where each block of the arena begins, in bytes.
        arena: The bytes of the arena.
        scratch: Where in it kernels keep values; they do so one after the other.
        flags: How many flags and counters there are: see `CudaCode`.
        work: What a run does.
        shapes: The outputs'.
        needed: The bytes that a run takes: the arena and the outputs.
    """

    sizes: dict[str, int]
    offsets: list[int]
    arena: int
    scratch: int
    flags: int
    work: list[Ready | ReadyProduct | Evaluated]
    shapes: list[tuple[int, ...]]
    needed: int


class GpuExecutable(Executable):
    """A program on one GPU."""

    def __init__(self, program: Program, options: Options, device: Device) -> None:
        self.program = program
        self.device = device
        self._limit = options.memory_limit
        self._xp = device.cupy
        with without_collection():
            self.build = Build(program, options)
        self._lock = threading.RLock()
        self._layouts: OrderedDict[tuple[int, ...], Layout] = OrderedDict()
        self._modules: dict[bool, Any] = {}
        self._arena: Arena | None = None
        build = self.build
        nodes = [one for one in build.work if isinstance(one, Node)]
        outside = [tensor for node in nodes for tensor in node.outputs]
        lasting = [*program.feeds, *program.variables, *build.constants, build.draws.storage]
        slots = dict.fromkeys([*lasting, *outside, *build.outputs])
        self._slot_of: dict[Storage, int] = {s: number for number, s in enumerate(slots)}
        self._made_outside = frozenset(outside)
        with device.current():
            if build.codes:
                self._module(wide=False)
            self._constants = {
                self._slot_of[s]: device.in_a_row(self._xp.asarray(array))
                for s, array in build.constants.items()
            }

    def __call__(
        self,
        inputs: Sequence[Any],
        sizes: tuple[int, ...],
        rng: Rng,
        version: int,
        claim: Claim | None,
    ) -> list[Any]:
        with self.device.current(), failures.told(self._xp), np.errstate(all="ignore"):
            try:
                layout = self._layouts.get(sizes) or self._layout(sizes)
            except ArithmeticError:
                raise self._refusal(inputs, sizes, rng) from None
            run = self._prepared(layout, inputs, rng)
            self._compute(layout, run, rng)
            if self.build.can_fail and run.flags is not None and int(run.flags[0]):
                raise self._refusal(inputs, sizes, rng)
            held = zip(self.build.outputs, layout.shapes, strict=True)
            return [run.arrays[self._slot_of[s]].reshape(shape) for s, shape in held]

    def _prepared(self, layout: Layout, inputs: Sequence[Any], rng: Rng) -> _Run:
        """Return the memory of a run.

        Raises:
            ExecutionError: There is too little.
        """
        xp, build = self._xp, self.build
        arrays: list[Any] = [None] * len(self._slot_of)
        arrays[: len(inputs)] = [self.device.in_a_row(array) for array in inputs]
        for slot, constant in self._constants.items():
            arrays[slot] = constant
        if build.draws:
            arrays[self._slot_of[build.draws.storage]] = xp.asarray(build.draws.array(rng))
        try:
            arena = xp.empty(max(layout.arena, 1), np.uint8)
            for storage, shape in zip(build.outputs, layout.shapes, strict=True):
                if storage not in self._made_outside:
                    arrays[self._slot_of[storage]] = xp.empty(shape, storage.dtype.dtype)
        except xp.cuda.memory.OutOfMemoryError as error:
            raise failures.too_large(build, layout.needed, layout.sizes, xp) from error
        return _Run(arrays, arena, xp.zeros(layout.flags, np.int32) if layout.flags else None)

    def _compute(self, layout: Layout, run: _Run, rng: Rng) -> None:
        nothing = np.uint64(0)
        base = run.arena.data.ptr
        flags = nothing if run.flags is None else np.uint64(run.flags.data.ptr)
        scratch = np.uint64(base + layout.scratch)
        arrays = run.arrays
        for one in layout.work:
            if isinstance(one, Evaluated):
                self._evaluate(one, layout, run, rng)
                continue
            pointers = [
                base + offset if slot < 0 else arrays[slot].data.ptr
                for slot, offset in one.operands
            ]
            if isinstance(one, ReadyProduct):
                self._multiply(one, pointers, base + layout.scratch)
                continue
            launch = one.launch
            args: list[np.integer[Any]] = [np.uint64(pointer) for pointer in pointers]
            args += [*one.params, flags, scratch if launch.scratch else nothing]
            one.function((launch.grid, launch.pieces), launch.block, args, shared_mem=launch.shared)

    def _multiply(self, one: ReadyProduct, pointers: Sequence[int], scratch: int) -> None:
        a, b, result = pointers
        stream = self._xp.cuda.get_current_stream().ptr
        if one.product is None:
            self._xp.cuda.runtime.memsetAsync(result, 0, one.nbytes, stream)
        else:
            self.device.products.run(one.product, a, b, result, scratch, stream)

    def _evaluate(self, one: Evaluated, layout: Layout, run: _Run, rng: Rng) -> None:
        """Compute a node with CuPy's functions."""
        node, xp = one.node, self._xp
        arrays = [self._array(tensor, layout, run) for tensor in node.inputs]
        try:
            random = {"rng": rng} if RANDOM in node.op.traits else {}
            result = one.call(*arrays, **random)
        except xp.cuda.memory.OutOfMemoryError as error:
            raise failures.too_large(self.build, layout.needed, layout.sizes, xp) from error
        except Exception as error:
            if isinstance(error, failures.lasting(xp)):
                raise
            raise concrete.failed(node, arrays, error) from error
        results = result if node.op.multiple else (result,)
        for tensor, value in zip(node.outputs, results, strict=True):
            array = xp.asarray(value)
            # A view may be of memory that is written again.
            if ALIAS in node.op.traits or array.base is not None:
                array = xp.array(array, order="C")
            run.arrays[self._slot_of[tensor]] = self.device.in_a_row(array)

    def _array(self, tensor: Tensor, layout: Layout, run: _Run) -> Any:
        """Return a tensor as an array, which may be a view of memory that will be written again."""
        storage, offset, shape, strides = self.build.view(tensor)
        env = layout.sizes
        dims = tuple([evaluate(dim, env) for dim in shape])
        slot, begin = self._place(storage, layout.offsets)
        if slot >= 0:
            held = run.arrays[slot]
        else:
            nbytes = evaluate(storage.size, env) * storage.dtype.itemsize
            held = run.arena[begin : begin + nbytes].view(storage.dtype.dtype)
        steps = tuple([evaluate(stride, env) for stride in strides])
        return self.device.viewed(held, evaluate(offset, env), dims, steps)

    # What depends on the sizes.

    def _layout(self, sizes: tuple[int, ...]) -> Layout:
        """Lay out sizes that have not been seen lately.

        Raises:
            ArithmeticError: A size divides by 0, or a step does not take these sizes.
        """
        with self._lock:
            layout = self._layouts.get(sizes)
            if layout is None:
                with without_collection():
                    layout = self._laid_out(sizes)
                self._check(layout)
                self._layouts[sizes] = layout
                while len(self._layouts) > _LAYOUTS:
                    self._layouts.popitem(last=False)
            return layout

    def _check(self, layout: Layout) -> None:
        """Refuse a layout that takes more memory than the session may."""
        if self._limit is not None:
            found = self._memory(layout)
            if found.peak > self._limit:
                raise too_much(found, found.peak, self._limit, self.program.symbols)

    def _laid_out(self, sizes: tuple[int, ...]) -> Layout:
        build = self.build
        env = dict(zip(self.program.symbols, sizes, strict=True))
        nbytes = [evaluate(size, env) for size in build.nbytes]
        if self._arena is None:
            self._arena = Arena(build.blocks, nbytes)
        offsets, total = self._arena.offsets(nbytes)
        if 0 in [evaluate(size, env) for size in build.nonzero]:
            raise ArithmeticError
        work: list[Ready | ReadyProduct | Evaluated] = []
        for one in build.work:
            if isinstance(one, Node):
                op = one.op.bind(env)
                work.append(Evaluated(one, op.kernel(self._xp, *[t.dtype for t in one.inputs])))
                continue
            params = [evaluate(size, env) for size in one.step.params]
            if isinstance(one, Multiplied):
                work += self._ready_product(one, params, offsets)
                continue
            launch = one.code.launch(params)
            if launch.grid:
                operands = [self._place(s, offsets) for s in one.step.operands]
                function = self._function(one, launch)
                work.append(Ready(function, launch, operands, [np.int64(p) for p in params]))
        launches = [one.launch for one in work if isinstance(one, Ready)]
        scratch = max([launch.scratch for launch in launches], default=0)
        products = [one.product for one in work if isinstance(one, ReadyProduct) and one.product]
        scratch = max([scratch, *[product.workspace for product in products]])
        counters = max([launch.counters for launch in launches], default=0)
        flags = 1 + counters if counters or build.can_fail else 0
        shapes = [tuple([evaluate(d, env) for d in t.shape]) for t in self.program.graph.outputs]
        own = sum([evaluate(t.type.nbytes, env) for t in self.program.graph.outputs])
        arena = total + scratch
        return Layout(env, offsets, arena, total, flags, work, shapes, arena + own)

    def _ready_product(
        self, one: Multiplied, params: Sequence[int], offsets: Sequence[int]
    ) -> list[ReadyProduct]:
        m, n, k, batch, *_ = params
        if 0 in (m, n, batch):
            return []
        product = self.device.products.product(one.code, params) if k else None
        operands = [self._place(s, offsets) for s in one.step.operands]
        return [ReadyProduct(product, operands, batch * m * n * one.code.dtype.itemsize)]

    def _place(self, storage: Storage, offsets: Sequence[int]) -> Place:
        slot = self._slot_of.get(storage)
        return Place(-1, offsets[self.build.block_of[storage]]) if slot is None else Place(slot, 0)

    def _function(self, one: Launched, launch: Launch) -> Any:
        loaded = self._module(wide=launch.is_wide)
        return loaded.get_function(f"{one.code.symbol}_{launch.variant}")

    def _module(self, *, wide: bool) -> Any:
        with self._lock:
            if wide not in self._modules:
                self._modules[wide] = self.device.functions(self.build, wide=wide)
            return self._modules[wide]

    # Errors and reports.

    @cached_property
    def _reference(self) -> ArrayExecutable:
        return ArrayExecutable(self.program, np)

    def _at_home(self, inputs: Sequence[Any]) -> list[Array]:
        return [self._xp.asnumpy(array) for array in inputs]

    def _refusal(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        """Say what is wrong with values or sizes: the reference path has the messages."""
        try:
            with quiet():
                self._reference(self._at_home(inputs), sizes, rng, 0, None)
        except ExecutionError as error:
            return error
        return ExecutionError(
            "a kernel refuses values that the operations themselves accept",
            fix="this is a mistake in graphfw; gf.Session(g, debug=True) runs node by node",
        )

    def blame(self, inputs: Sequence[Any], sizes: tuple[int, ...], rng: Rng) -> ExecutionError:
        return self._reference.blame(self._at_home(inputs), sizes, rng)

    def explain(self, sizes: tuple[int, ...] | None) -> str:
        return reports.explain(self.build, sizes)

    def source(self) -> str:
        return self.build.source

    def memory(self, sizes: tuple[int, ...]) -> MemoryReport:
        with self._lock, self.device.current():
            return self._memory(self._layouts.get(sizes) or self._laid_out(sizes))

    def _memory(self, layout: Layout) -> MemoryReport:
        scratch = layout.arena - layout.scratch
        return reports.memory(self.build, layout.sizes, layout.scratch, scratch)


class _Run(NamedTuple):
    """The memory of one run.

    Attributes:
        arrays: The arrays, by slot.
        arena: The arena.
        flags: What becomes 1 where a check fails, then counters of blocks; None without either.
    """

    arrays: list[Any]
    arena: Any
    flags: Any
