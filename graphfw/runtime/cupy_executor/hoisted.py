"""Inputs of runs that are made once for many of them: weights in other orders, or in 16 bits."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphfw.ir.op import Rng
from graphfw.runtime.cupy_executor.build import GpuProgram
from graphfw.runtime.cupy_executor.device import Device
from graphfw.runtime.cupy_executor.layouts import Frame, GpuLayout, GpuLayouts
from graphfw.runtime.cupy_executor.runs import RunMemory, Worker
from graphfw.runtime.cupy_executor.stored import array_dtype
from graphfw.runtime.planning.arena import ALIGNMENT
from graphfw.runtime.planning.hoist import known_bytes
from graphfw.utils import locks

_NO_RNG = Rng(0, 0)


class HoistedArrays(NamedTuple):
    """The arrays that have been made once.

    Attributes:
        memory: Where it lies, in one piece.
        arrays: The pieces, by slot.
        sources: The arrays of the variables that it was made of, which are not kept for that.
        version: Of these variables' contents.
    """

    memory: Any
    arrays: Mapping[int, Any]
    sources: Sequence[weakref.ref[Any]]
    version: int

    @property
    def changing(self) -> tuple[Any, ...]:
        """The memory, if it may be another for another run: then it depends on variables."""
        return (self.memory,) if self.sources else ()


_NOTHING = HoistedArrays(None, {}, (), 0)


class HoistedRuns:
    """Makes once what runs of a program need: see `planning.once`.

    It is made anew when variables have other contents. Where these went over the old ones nobody
    needs what was made of those, and it goes where that was: CUDA graphs know the place. Where they
    are in other arrays, runs that have begun may still need it; so it gets other memory.

    Args:
        build: The program.
        layouts: Of it.
        device: On which GPU.
        worker: What does its work.
    """

    def __init__(
        self, build: GpuProgram, layouts: GpuLayouts, device: Device, worker: Worker
    ) -> None:
        self._plan = build.once
        self._layouts = layouts
        self._device = device
        self._worker = worker
        self._lock = locks.reentrant()
        self._made: HoistedArrays | None = None
        numbers = {variable: number for number, variable in enumerate(build.program.variables)}
        self._sources = {variable: numbers[variable] for variable in self._plan.variables}
        self._constants: dict[int, Any] = {}

    def provide(self, variables: Sequence[Any], version: int, layout: GpuLayout) -> HoistedArrays:
        """Return operands prepared of some contents of variables, for the current stream to read.

        Args:
            variables: The arrays of the program's variables.
            version: Another number when their contents are others: see `Executable`.
            layout: Of the run that needs it, for errors.
        """
        if not self._plan.kept:
            return _NOTHING
        streams, stream = self._device.streams, self._device.cupy.cuda.get_current_stream()
        if not self._sources:
            version = 0
        with self._lock:
            made = self._made
            if made is None or made.version != version:
                streams.reads(stream)
                made = self._made = self._new(made, variables, version, layout)
                streams.has_written(stream)
        streams.reads(stream)
        return made

    def _new(
        self,
        before: HoistedArrays | None,
        variables: Sequence[Any],
        version: int,
        layout: GpuLayout,
    ) -> HoistedArrays:
        xp, own = self._device.cupy, self._layouts.once
        arrays = [variables[number] for number in self._sources.values()]
        if before is None or any(
            old() is not array for old, array in zip(before.sources, arrays, strict=True)
        ):
            made = self._placed([weakref.ref(array) for array in arrays], version, layout)
        else:
            self._device.streams.overwrites(xp.cuda.get_current_stream())
            made = before._replace(version=version)
        room = self._worker.room(layout, lambda: xp.empty(max(own.arena, 1), np.uint8))
        run = RunMemory(own, Frame({}, (), own.arena), room)
        for slot, array in [*made.arrays.items(), *self._read_constants().items()]:
            run.hold(slot, array)
        for variable, array in zip(self._sources, arrays, strict=True):
            run.hold(self._layouts.slot_of[variable], self._device.in_a_row(array))
        self._worker.work(run, own.parts, _NO_RNG)
        return made

    def _placed(
        self, sources: Sequence[weakref.ref[Any]], version: int, layout: GpuLayout
    ) -> HoistedArrays:
        """Return new memory for what is kept."""
        xp = self._device.cupy
        sizes = [known_bytes(storage) for storage in self._plan.kept]
        begins = [0, *itertools.accumulate([-(-n // ALIGNMENT) * ALIGNMENT for n in sizes])]
        memory = self._worker.room(layout, lambda: xp.empty(max(begins[-1], 1), np.uint8))
        pieces = {}
        for storage, begin, size in zip(self._plan.kept, begins, sizes, strict=False):
            piece = memory[begin : begin + size].view(array_dtype(storage.dtype))
            pieces[self._layouts.slot_of[storage]] = self._device.streams.lasting(piece)
        return HoistedArrays(memory, pieces, sources, version)

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
