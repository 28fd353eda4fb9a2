"""Inputs of runs that are made once for many of them: weights in other orders, or in 16 bits."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from graphfw.ir.op import NO_RNG
from graphfw.runtime.cupy_executor.build import GpuProgram
from graphfw.runtime.cupy_executor.device import Device
from graphfw.runtime.cupy_executor.layouts import Frame, GpuLayout, GpuLayouts
from graphfw.runtime.cupy_executor.runs import RunMemory, Worker
from graphfw.runtime.cupy_executor.stored import array_dtype
from graphfw.runtime.hoisting import HoistedValues
from graphfw.runtime.planning.arena import side_by_side
from graphfw.runtime.planning.hoist import known_bytes


class HoistedArrays(NamedTuple):
    """The arrays that have been made once.

    Attributes:
        memory: Where it is, in one piece.
        arrays: The pieces, by slot.
        sources: The arrays of the variables that it was made of, which are not kept for that.
    """

    memory: Any
    arrays: Mapping[int, Any]
    sources: Sequence[weakref.ref[Any]]

    @property
    def changing(self) -> tuple[Any, ...]:
        """The memory, if it may be another for another run: then it depends on variables."""
        return (self.memory,) if self.sources else ()


_NOTHING = HoistedArrays(None, {}, ())


class _Contents(NamedTuple):
    """The contents of variables.

    Attributes:
        arrays: Of the variables that what is made depends on.
        layout: Of the run that needs it, for errors.
    """

    arrays: Sequence[Any]
    layout: GpuLayout


class HoistedRuns:
    """Makes once what runs of a program need; see `HoistBackend`.

    Where new contents of variables went over the old ones nobody needs what was made of those, and
    it goes where that was: CUDA graphs know the address. Where they are in other arrays, runs that
    have begun may still need it; so it gets other memory.

    Args:
        build: The program.
        layouts: Of it.
        device: On which GPU.
        worker: What does its work.

    Attributes:
        is_constant: Whether it depends on constants only.
    """

    def __init__(
        self, build: GpuProgram, layouts: GpuLayouts, device: Device, worker: Worker
    ) -> None:
        self._plan = build.once
        self._layouts = layouts
        self._device = device
        self._worker = worker
        numbers = {variable: number for number, variable in enumerate(build.program.variables)}
        self._sources = {variable: numbers[variable] for variable in self._plan.variables}
        self.is_constant = not self._sources
        self._constants: dict[int, Any] = {}
        self._values = HoistedValues(self)

    def provide(self, variables: Sequence[Any], version: int, layout: GpuLayout) -> HoistedArrays:
        """Return operands prepared of some contents of variables, for the current stream to read.

        Args:
            variables: The arrays of the program's variables.
            version: Another number when their contents are others: see `Executable`.
            layout: Of the run that needs it, for errors.
        """
        if not self._plan.kept:
            return _NOTHING
        arrays = [variables[number] for number in self._sources.values()]
        made = self._values.provide(_Contents(arrays, layout), version)
        self._device.streams.reads(self._device.cupy.cuda.get_current_stream())
        return made

    def memory(self, contents: _Contents, before: HoistedArrays | None) -> HoistedArrays:
        """Return the memory of before where variables are where they were, else new memory."""
        arrays = contents.arrays
        if before is not None and all(
            old() is array for old, array in zip(before.sources, arrays, strict=True)
        ):
            return before
        begins, nbytes = side_by_side([known_bytes(storage) for storage in self._plan.kept])
        memory = self._worker.room(contents.layout, partial(self._worker.bytes, max(nbytes, 1)))
        pieces = {}
        for storage, begin in zip(self._plan.kept, begins, strict=True):
            piece = memory[begin : begin + known_bytes(storage)].view(array_dtype(storage.dtype))
            pieces[self._layouts.slot_of[storage]] = self._device.streams.lasting(piece)
        return HoistedArrays(memory, pieces, [weakref.ref(array) for array in arrays])

    def compute(self, memory: HoistedArrays, contents: _Contents, *, is_new: bool) -> None:
        """Launch what makes it on the current stream; see `HoistBackend`."""
        streams, stream = self._device.streams, self._device.cupy.cuda.get_current_stream()
        streams.reads(stream)
        if not is_new:
            streams.overwrites(stream)
        own = self._layouts.once
        room = self._worker.room(contents.layout, partial(self._worker.bytes, max(own.arena, 1)))
        run = RunMemory(own, Frame({}, (), own.arena), room)
        for slot, array in [*memory.arrays.items(), *self._read_constants().items()]:
            run.hold(slot, array)
        for variable, array in zip(self._sources, contents.arrays, strict=True):
            run.hold(self._layouts.slot_of[variable], self._device.in_a_row(array))
        self._worker.work(run, own.segments, NO_RNG)
        streams.has_written(stream)

    def _read_constants(self) -> dict[int, Any]:
        """Return the constants that are read, by slot; they stay if they will be read again."""
        if self._constants:
            return self._constants
        slot_of = self._layouts.slot_of
        found = {
            slot_of[storage]: self._device.constant(array)
            for storage, array in self._plan.constants.items()
        }
        self._constants = found if self._sources else {}
        return found
