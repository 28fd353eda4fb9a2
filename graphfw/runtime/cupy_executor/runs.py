"""Runs: the memory of one, and what makes it do its work, step after step."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from graphfw.errors import ExecutionError
from graphfw.ir import concrete
from graphfw.ir.dim_text import evaluate
from graphfw.ir.dtype import DType, int32
from graphfw.ir.literal import Array
from graphfw.ir.op import ALIAS, NO_RNG, RANDOM, Rng
from graphfw.ir.tensor import Tensor
from graphfw.runtime.cupy_executor import failures
from graphfw.runtime.cupy_executor.addresses import GpuAddress, StorageAddress
from graphfw.runtime.cupy_executor.bound_plan import Native, Segment
from graphfw.runtime.cupy_executor.bound_steps import BoundCudnn, BoundProduct, Cleared, Evaluated
from graphfw.runtime.cupy_executor.build import GpuProgram
from graphfw.runtime.cupy_executor.deferred_check import RunFeeds
from graphfw.runtime.cupy_executor.device import Device
from graphfw.runtime.cupy_executor.layouts import Frame, GpuLayout, GpuLayouts
from graphfw.runtime.cupy_executor.products import RESULT
from graphfw.runtime.cupy_executor.regions.common import BoundRegion, RefusedError
from graphfw.runtime.cupy_executor.staging import HostArray
from graphfw.runtime.cupy_executor.stored import array_dtype, runs_on_host, to_device, to_host
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.limits import shown_bytes
from graphfw.runtime.locations import location_of
from graphfw.runtime.planning.blocks import bytes_at

_NOTHING = np.uint64(0)


class RunMemory:
    """The memory of a run.

    Args:
        layout: At which sizes.
        frame: What lies in `memory`.
        memory: The arena, and what lies after it.
        around: Of a body's run, that of the program around it.

    Attributes:
        scratch: The address of scratch memory.
        flags: The address of flags and counters; 0 where there are none.
        borrowed: For slots that are neither in `memory` nor arrays, their addresses.
        addresses: Where each slot is, as far as that is known yet.
        arrays: For slots that do not lie in `memory`, the arrays.
    """

    def __init__(
        self, layout: GpuLayout, frame: Frame, memory: Any, around: RunMemory | None = None
    ) -> None:
        self.layout = layout
        self.frame = frame
        self.memory = memory
        self.base: int = memory.data.ptr
        self.scratch: int = self.base + layout.scratch
        self.flags: int = 0 if layout.flags < 0 else self.base + layout.flags
        if around is not None:
            self.scratch, self.flags = around.scratch, around.flags
        self.borrowed: dict[int, GpuAddress] = {}
        self._bodies: dict[GpuLayout, RunMemory] = {}
        self.addresses = [0] * len(layout.nbytes)
        self.arrays: list[Any] = [None] * len(layout.nbytes)
        for slot, offset in frame.offsets.items():
            self.addresses[slot] = self.base + offset

    def another(self) -> RunMemory:
        """Return a run that begins as this one, in the same memory."""
        made = RunMemory.__new__(RunMemory)
        made.__dict__.update(
            self.__dict__,
            addresses=self.addresses.copy(),
            arrays=self.arrays.copy(),
            borrowed={},
            _bodies={},
        )
        return made

    def body(self, layout: GpuLayout) -> RunMemory:
        """Return the run of a body, whose memory is part of this one's: one has it at a time."""
        found = self._bodies.get(layout)
        if found is None:
            memory = self.bytes_at(self.layout.inside, max(layout.arena, 1))
            frame = Frame({}, layout.of.handed, layout.arena)
            found = self._bodies[layout] = RunMemory(layout, frame, memory, self)
            for slot, constant in layout.of.constants.items():
                found.hold(slot, constant)
        return found

    def inside(self, offset: int) -> GpuAddress:
        """Return an address after the arena, where bodies are."""
        begin = self.layout.inside + offset
        return GpuAddress(self.base + begin, self.memory, begin)

    def address_of(self, address: StorageAddress) -> GpuAddress:
        """Return where something is."""
        slot, offset = address
        if slot < 0:
            return GpuAddress(self.base + offset, self.memory, offset)
        if self.arrays[slot] is not None:
            return GpuAddress(self.addresses[slot], self.arrays[slot], 0).offset_by(offset)
        known = self.borrowed.get(slot)
        if known is None:
            known = GpuAddress(self.addresses[slot], self.memory, self.frame.offsets[slot])
        return known.offset_by(offset)

    def lie(self, slot: int, spot: GpuAddress) -> None:
        """Have a slot be somewhere in other memory."""
        self.borrowed[slot] = spot
        self.addresses[slot] = spot.address

    def draw_from(self, spot: GpuAddress) -> None:
        """Say where it finds what it draws from, if it does."""
        if self.layout.drawn:
            self.lie(self.layout.of.drawn, spot)

    @property
    def drawn(self) -> GpuAddress:
        """The address of the words that it draws from."""
        return self.address_of(StorageAddress(self.layout.of.drawn, 0))

    def hold(self, slot: int, array: Any) -> None:
        """Have a slot be an array."""
        self.arrays[slot] = array
        self.addresses[slot] = array.data.ptr

    def bytes_at(self, offset: int, nbytes: int) -> Any:
        """Return a piece of the memory."""
        return self.memory[offset : offset + nbytes]

    def flat(self, slot: int, dtype: Any) -> Any:
        """Return the elements of a slot in some shape."""
        array = self.arrays[slot]
        if array is not None:
            return array
        spot = self.borrowed.get(slot)
        if spot is not None:
            held = spot.holder.reshape(-1).view(np.uint8)
            return held[spot.offset : spot.offset + self.layout.nbytes[slot]].view(dtype)
        return self.bytes_at(self.frame.offsets[slot], self.layout.nbytes[slot]).view(dtype)


class Worker:
    """The worker of a program's runs, on the current stream.

    Args:
        build: The program.
        layouts: What there is to do at which sizes.
        device: On which GPU.
        spare: Lets go of memory that runs can do without; says whether there was any.
    """

    def __init__(
        self, build: GpuProgram, layouts: GpuLayouts, device: Device, spare: Callable[[], bool]
    ) -> None:
        self._build = build
        self._layouts = layouts
        self._device = device
        self._spare = spare
        self._xp = device.cupy
        self._after: Callable[[object], None] = _nothing

    def room(self, layout: GpuLayout, make: Callable[[], Any]) -> Any:
        """Return the result of a function which may take memory that runs can do without.

        Raises:
            ExecutionError: There is too little memory nevertheless.
        """
        try:
            return make()
        except self._xp.cuda.memory.OutOfMemoryError as error:
            if self._spare():
                return self.room(layout, make)
            raise _too_large(self._layouts, layout, self._xp) from error

    def give(self, run: RunMemory, inputs: Sequence[Any], rng: Rng) -> RunFeeds:
        """Give a run what it begins with: each goes where the frame says, or stays where it is.

        Args:
            run: The run; in its frame, what is drawn from and what is fed lie in this order.
            inputs: What is fed; the variables' contents, too, unless the run has these already.
            rng: What random operations draw from.

        Returns:
            What it was given, for later.
        """
        offsets = run.frame.offsets
        pieces = []
        kept: list[Any] = [None for _ in inputs]
        if run.layout.drawn:
            table = np.empty(run.layout.drawn, np.int64)
            run.layout.fill(rng, table, 0)
            pieces.append(HostArray(table, offsets[self._layouts.drawn]))
        for slot, array in enumerate(inputs):
            if isinstance(array, self._xp.ndarray):
                kept[slot] = weakref.ref(array)
                array = self._device.in_a_row(array)
                if slot not in run.frame.fixed:
                    run.hold(slot, array)
                else:
                    self.copy(run.addresses[slot], array.data.ptr, array.nbytes)
            else:
                pieces.append(HostArray(array, offsets[slot]))
        stream = self._xp.cuda.get_current_stream()
        copies = self._device.staging.send(pieces, run.base, stream)
        on_host = [slot for slot, one in enumerate(kept) if one is None]
        for slot, array in zip(on_host, copies[len(copies) - len(on_host) :], strict=True):
            kept[slot] = array
        return RunFeeds(kept)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy bytes from one address of the GPU to another."""
        if nbytes:
            runtime, stream = self._xp.cuda.runtime, self._xp.cuda.get_current_stream()
            kind = runtime.memcpyDeviceToDevice
            runtime.memcpyAsync(target, source, nbytes, kind, stream.ptr)

    def noting(self, after: Callable[[object], None]) -> Worker:
        """Return one that calls a function with each step that is done, also in bodies."""
        made = copy.copy(self)
        made._after = after
        return made

    def work(self, run: RunMemory, segments: Iterable[Segment], rng: Rng) -> None:
        """Run some segments.

        Args:
            run: Its memory.
            segments: What to do.
            rng: What random operations draw from.
        """
        for segment in segments:
            if isinstance(segment, list):
                for wave in segment:
                    self.launch(wave, run)
                continue
            if isinstance(segment, Evaluated):
                self.evaluate(segment, run, rng)
            else:
                self._region(segment, run, rng)
            self._after(segment)

    def _region(self, one: BoundRegion, run: RunMemory, rng: Rng) -> None:
        try:
            one.run(self, run, rng)
        except ExecutionError as error:
            if not error.names_node:
                raise
            raise concrete.failed(one.node, (), error) from error

    def launch(self, steps: Iterable[Native], run: RunMemory) -> None:
        """Launch steps, one after the other."""
        runtime = self._xp.cuda.runtime
        stream: int = self._xp.cuda.get_current_stream().ptr
        base, addresses = run.base, run.addresses
        scratch, flags = np.uint64(run.scratch), np.uint64(run.flags)
        for one in steps:
            if isinstance(one, Cleared):
                runtime.memsetAsync(base + one.offset, 0, one.nbytes, stream)
            elif isinstance(one, BoundRegion):
                one.run(self, run, NO_RNG)  # it is in memory already
            else:
                at = [
                    base + offset if slot < 0 else addresses[slot] for slot, offset in one.operands
                ]
                if isinstance(one, BoundProduct):
                    self._multiply(one, at, run.scratch, stream)
                elif isinstance(one, BoundCudnn):
                    self._device.by_cudnn.run(one.plan, at, run.scratch, stream)
                else:
                    launch = one.launch
                    args: list[np.integer[Any]] = [np.uint64(address) for address in at]
                    args += [*one.params, flags, scratch if launch.scratch else _NOTHING]
                    grid = launch.grid, launch.pieces
                    one.function(grid, launch.block, args, shared_mem=launch.shared)
            self._after(one)

    def rehearse(self, segment: Segment, run: RunMemory) -> None:
        """Launch a stretch of guarded kernels so that they do nothing.

        CUDA loads the code of a kernel at its first launch, which it could not do while it records.
        The run has not begun: its first step takes the flag down again.
        """
        assert isinstance(segment, list)
        stream = self._xp.cuda.get_current_stream().ptr
        self._xp.cuda.runtime.memsetAsync(run.flags, 1, 4, stream)
        for wave in segment:
            self.launch(wave, run)

    def failed(self, run: RunMemory) -> bool:
        """Return whether a check of a run has failed; waits for all that has been launched."""
        stream = self._xp.cuda.get_current_stream()
        (flag,) = self._device.staging.numbers([(run.flags, int32)], stream)
        return bool(flag)

    def read(self, address: int, dtype: DType, run: RunMemory) -> int:
        """Return a number of the GPU, once all that was launched before is done.

        Raises:
            RefusedError: A check of the run has failed, so it may be any number.
        """
        stream = self._xp.cuda.get_current_stream()
        addresses = [(address, dtype), *([(run.flags, int32)] if run.flags else [])]
        found, *flags = self._device.staging.numbers(addresses, stream)
        if any(flags):
            raise RefusedError
        return found

    def send(self, array: Array, spot: GpuAddress) -> None:
        """Bring an array of the host to an address in the GPU's memory."""
        stream = self._xp.cuda.get_current_stream()
        self._device.staging.send([HostArray(array, 0)], spot.address, stream)

    def bytes(self, count: int) -> Any:
        """Return new memory."""
        return self._xp.empty(count, np.uint8)

    def _multiply(
        self, one: BoundProduct, addresses: Sequence[int], scratch: int, stream: int
    ) -> None:
        if one.product is None:
            self._xp.cuda.runtime.memsetAsync(addresses[RESULT], 0, one.nbytes, stream)
        else:
            self._device.products.run(one.product, addresses, scratch, stream)

    def evaluate(self, one: Evaluated, run: RunMemory, rng: Rng) -> None:
        """Compute a node with CuPy's functions, or on the host."""
        node, xp, on_host = one.node, self._xp, runs_on_host(one.node)
        arrays = [self._array(tensor, run) for tensor in node.inputs]
        if on_host:
            pairs = zip(arrays, node.inputs, strict=True)
            arrays = [to_host(xp, array, tensor.dtype) for array, tensor in pairs]
        random = {"rng": rng} if RANDOM in node.op.traits else {}
        untouched = (xp.cuda.memory.OutOfMemoryError, *failures.lasting(xp))

        def computed() -> Any:
            try:
                return one.call(*arrays, **random)
            except Exception as error:
                if isinstance(error, untouched):
                    raise
                is_own = type(node.op).__module__.startswith("graphfw.")
                if is_own and failures.is_missing_library(error):
                    raise failures.without_library(f"compute {node.op.name}", error) from error
                raise concrete.failed(node, arrays, error) from error

        result = self.room(run.layout, computed)
        results = result if node.op.multiple else (result,)
        for tensor, value in zip(node.outputs, results, strict=True):
            array = to_device(xp, value, tensor.dtype) if on_host else xp.asarray(value)
            # A view may be of memory that is written again.
            if ALIAS in node.op.traits or array.base is not None:
                array = xp.array(array, order="C")
            self._put(run, run.layout.of.slot_of[tensor], self._device.in_a_row(array))

    def _put(self, run: RunMemory, slot: int, array: Any) -> None:
        """Have a slot be an array; where CUDA graphs know an address of it, it is copied there."""
        run.arrays[slot] = array
        if slot not in run.frame.fixed:
            run.addresses[slot] = array.data.ptr
        else:
            self.copy(run.addresses[slot], array.data.ptr, array.nbytes)

    def _array(self, tensor: Tensor, run: RunMemory) -> Any:
        """Return a tensor as an array, which may be a view of memory that will be written again."""
        storage, offset, shape, strides = run.layout.of.build.view(tensor)
        env = run.layout.sizes
        dims = tuple([evaluate(dim, env) for dim in shape])
        steps = tuple([evaluate(stride, env) for stride in strides])
        return self._device.viewed(self._held(storage, run), evaluate(offset, env), dims, steps)

    def _held(self, storage: Storage, run: RunMemory) -> Any:
        slot, begin = run.layout.of.address_of(storage, run.layout.offsets)
        if slot >= 0:
            return run.flat(slot, array_dtype(storage.dtype))
        nbytes = bytes_at(storage, run.layout.sizes)
        return run.bytes_at(begin, nbytes).view(array_dtype(storage.dtype))


def _nothing(_: object) -> None:
    """Do nothing."""


def _too_large(layouts: GpuLayouts, layout: GpuLayout, cupy: Any) -> ExecutionError:
    """Say what a run wanted, what is large in it, what there was, and what would fit."""
    free, total = cupy.cuda.runtime.memGetInfo()
    build, sizes = layouts.build, layout.sizes
    held = {s: bytes_at(s, sizes) for s in (*build.block_of, *build.outputs)}
    largest = sorted(held.items(), key=lambda entry: -entry[1])[:5]
    lines = [
        f"{shown_bytes(nbytes)}: "
        + (f"{s.node.op.name} made at {location_of(s.node)}" if isinstance(s, Tensor) else s.why)
        for s, nbytes in largest
    ]
    at = f" at {', '.join([f'{name} = {n}' for name, n in sizes.items()])}" if sizes else ""
    fix = "make fewer values live at once: gf.checkpoint computes some again"
    if sizes:
        fix = f"run it with smaller {' or '.join(sizes)}; or " + fix
        # Where there is enough, but in pieces, nobody knows what would fit.
        wanted = sizes if layout.needed > free else ()
        found = {name: _fitting(layouts, sizes, name, free) for name in wanted}
        fitting = [f"{name} = {size}" for name, size in found.items() if size]
        if fitting:
            fix = f"{' or '.join(fitting)} would fit, or " + fix
    return ExecutionError(
        f"the GPU has too little memory: a run{at} takes {shown_bytes(layout.needed)} besides "
        f"variables and feeds; {shown_bytes(free)} of {shown_bytes(total)} are free",
        why="the largest tensors: " + "; ".join(lines),
        fix=fix,
    )


def _fitting(layouts: GpuLayouts, sizes: Mapping[str, int], name: str, free: int) -> int:
    """Return the largest size of a dim below this one with which a run fits; 0 if there is none."""
    low, high = 0, sizes[name]
    while high - low > 1:
        middle = (low + high) // 2
        try:
            needed = layouts.made(tuple({**sizes, name: middle}.values())).needed
        except ArithmeticError:
            return 0
        low, high = (middle, high) if needed <= free else (low, middle)
    return low
