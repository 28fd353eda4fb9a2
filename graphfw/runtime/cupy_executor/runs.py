"""Runs: the memory of one, and what makes it do its work, step after step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from graphfw.ir import concrete
from graphfw.ir.dim_text import evaluate
from graphfw.ir.op import ALIAS, RANDOM, Rng
from graphfw.ir.tensor import Tensor
from graphfw.runtime.cupy_executor import failures
from graphfw.runtime.cupy_executor.build import Build
from graphfw.runtime.cupy_executor.device import Device
from graphfw.runtime.cupy_executor.layouts import (
    Cleared,
    Evaluated,
    Frame,
    Layout,
    Layouts,
    Native,
    Part,
    ReadyProduct,
)
from graphfw.runtime.cupy_executor.products import RESULT
from graphfw.runtime.cupy_executor.staging import Piece
from graphfw.runtime.kernels.steps import Storage

_NOTHING = np.uint64(0)


class Run:
    """The memory of a run.

    Args:
        layout: At which sizes.
        frame: What lies in `memory`.
        memory: The arena, and what lies behind it.

    Attributes:
        addresses: Where each slot lies, as far as that is known yet.
        arrays: For slots that do not lie in `memory`, the arrays.
    """

    def __init__(self, layout: Layout, frame: Frame, memory: Any) -> None:
        self.layout = layout
        self.frame = frame
        self.memory = memory
        self.base: int = memory.data.ptr
        self.addresses = [0] * len(layout.nbytes)
        self.arrays: list[Any] = [None] * len(layout.nbytes)
        for slot, offset in frame.offsets.items():
            self.addresses[slot] = self.base + offset

    def another(self) -> Run:
        """Return a run that begins as this one, in the same memory."""
        made = Run.__new__(Run)
        made.__dict__.update(
            self.__dict__, addresses=self.addresses.copy(), arrays=self.arrays.copy()
        )
        return made

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
        return self.bytes_at(self.frame.offsets[slot], self.layout.nbytes[slot]).view(dtype)


class Worker:
    """What does the work of a program's runs, on the current stream.

    Args:
        build: The program.
        layouts: What there is to do at which sizes.
        device: On which GPU.
        spare: Lets go of memory that runs can do without; says whether there was any.
    """

    def __init__(
        self, build: Build, layouts: Layouts, device: Device, spare: Callable[[], bool]
    ) -> None:
        self._build = build
        self._layouts = layouts
        self._slot_of = layouts.slot_of
        self._device = device
        self._spare = spare
        self._xp = device.cupy

    def room(self, layout: Layout, make: Callable[[], Any]) -> Any:
        """Return what a function makes, which may take memory that runs can do without.

        Raises:
            ExecutionError: There is too little memory nevertheless.
        """
        try:
            return make()
        except self._xp.cuda.memory.OutOfMemoryError as error:
            if self._spare():
                return self.room(layout, make)
            raise failures.too_large(self._build, self._layouts, layout, self._xp) from error

    def give(self, run: Run, inputs: Sequence[Any], rng: Rng) -> None:
        """Give a run what it begins with: each goes where the frame says, or stays where it is.

        Args:
            run: The run; in its frame, what is drawn from and what is fed lie in this order.
            inputs: What is fed; the variables' contents, too, unless the run has these already.
            rng: What random operations draw from.
        """
        offsets = run.frame.offsets
        pieces = []
        if self._build.draws:
            slot = self._slot_of[self._build.draws.storage]
            pieces.append(Piece(self._build.draws.array(rng), offsets[slot]))
        for slot, array in enumerate(inputs):
            if isinstance(array, self._xp.ndarray):
                array = self._device.in_a_row(array)
                if slot not in run.frame.fixed:
                    run.hold(slot, array)
                else:
                    self.copy(run.addresses[slot], array.data.ptr, array.nbytes)
            else:
                pieces.append(Piece(array, offsets[slot]))
        stream = self._xp.cuda.get_current_stream()
        self._device.staging.send(pieces, run.base, stream)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy bytes from one address of the GPU to another."""
        if nbytes:
            runtime, stream = self._xp.cuda.runtime, self._xp.cuda.get_current_stream()
            kind = runtime.memcpyDeviceToDevice
            runtime.memcpyAsync(target, source, nbytes, kind, stream.ptr)

    def work(
        self,
        run: Run,
        parts: Iterable[Part],
        rng: Rng,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Do what some parts say.

        Args:
            run: Its memory.
            parts: What to do.
            rng: What random operations draw from.
            after: Is called after each step.
        """
        for part in parts:
            if isinstance(part, Evaluated):
                self.evaluate(part, run, rng)
                if after is not None:
                    after()
            else:
                for wave in part:
                    self.launch(wave, run, after)

    def launch(
        self, steps: Iterable[Native], run: Run, after: Callable[[], None] | None = None
    ) -> None:
        """Launch steps, one after the other."""
        runtime, layout = self._xp.cuda.runtime, run.layout
        stream: int = self._xp.cuda.get_current_stream().ptr
        base, addresses = run.base, run.addresses
        scratch = np.uint64(base + layout.scratch)
        flags = _NOTHING if layout.flags < 0 else np.uint64(base + layout.flags)
        for one in steps:
            if isinstance(one, Cleared):
                runtime.memsetAsync(base + one.offset, 0, one.nbytes, stream)
            else:
                at = [
                    base + offset if slot < 0 else addresses[slot] for slot, offset in one.operands
                ]
                if isinstance(one, ReadyProduct):
                    self._multiply(one, at, base + layout.scratch, stream)
                else:
                    launch = one.launch
                    args: list[np.integer[Any]] = [np.uint64(address) for address in at]
                    args += [*one.params, flags, scratch if launch.scratch else _NOTHING]
                    grid = launch.grid, launch.pieces
                    one.function(grid, launch.block, args, shared_mem=launch.shared)
            if after is not None:
                after()

    def failed(self, run: Run) -> bool:
        """Whether a check of a run has failed; waits for all that has been launched."""
        stream = self._xp.cuda.get_current_stream()
        return bool(self._device.staging.number(run.base + run.layout.flags, stream))

    def _multiply(
        self, one: ReadyProduct, addresses: Sequence[int], scratch: int, stream: int
    ) -> None:
        if one.product is None:
            self._xp.cuda.runtime.memsetAsync(addresses[RESULT], 0, one.nbytes, stream)
        else:
            self._device.products.run(one.product, addresses, scratch, stream)

    def evaluate(self, one: Evaluated, run: Run, rng: Rng) -> None:
        """Compute a node with CuPy's functions."""
        node, xp = one.node, self._xp
        arrays = [self._array(tensor, run) for tensor in node.inputs]
        random = {"rng": rng} if RANDOM in node.op.traits else {}
        untouched = (xp.cuda.memory.OutOfMemoryError, *failures.lasting(xp))

        def computed() -> Any:
            try:
                return one.call(*arrays, **random)
            except Exception as error:
                if isinstance(error, untouched):
                    raise
                raise concrete.failed(node, arrays, error) from error

        result = self.room(run.layout, computed)
        results = result if node.op.multiple else (result,)
        for tensor, value in zip(node.outputs, results, strict=True):
            array = xp.asarray(value)
            # A view may be of memory that is written again.
            if ALIAS in node.op.traits or array.base is not None:
                array = xp.array(array, order="C")
            self._put(run, self._slot_of[tensor], self._device.in_a_row(array))

    def _put(self, run: Run, slot: int, array: Any) -> None:
        """Have a slot be an array; where CUDA graphs know an address of it, it is copied there."""
        run.arrays[slot] = array
        if slot not in run.frame.fixed:
            run.addresses[slot] = array.data.ptr
        else:
            self.copy(run.addresses[slot], array.data.ptr, array.nbytes)

    def _array(self, tensor: Tensor, run: Run) -> Any:
        """Return a tensor as an array, which may be a view of memory that will be written again."""
        storage, offset, shape, strides = self._build.view(tensor)
        env = run.layout.sizes
        dims = tuple([evaluate(dim, env) for dim in shape])
        steps = tuple([evaluate(stride, env) for stride in strides])
        return self._device.viewed(self._held(storage, run), evaluate(offset, env), dims, steps)

    def _held(self, storage: Storage, run: Run) -> Any:
        slot, begin = self._layouts.place(storage, run.layout.offsets)
        if slot >= 0:
            return run.flat(slot, storage.dtype.dtype)
        nbytes = evaluate(storage.size, run.layout.sizes) * storage.dtype.itemsize
        return run.bytes_at(begin, nbytes).view(storage.dtype.dtype)
