"""Operands that are computed once: from constants, and from variables in plans without updates."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphfw.ir.dim import DimLike
from graphfw.ir.literal import Array
from graphfw.runtime.kernels.steps import Prepared
from graphfw.runtime.numpy_executor.recycle import aligned
from graphfw.runtime.numpy_executor.runner import Call, Run, Tables, Wave

if TYPE_CHECKING:
    from graphfw.runtime.numpy_executor.build import Build
    from graphfw.runtime.numpy_executor.execution import ReadyRun


class Preparation:
    """The prepared operands of a plan, for the newest contents of the variables."""

    def __init__(self, build: Build, threads: int) -> None:
        self._build = build
        self._threads = threads
        self._lock = threading.Lock()
        self._version = -1
        self._arrays: list[Array] = []

    def provide(self, run: ReadyRun, inputs: Sequence[Array], version: int) -> None:
        """Set the addresses of the prepared operands, computed anew where they are out of date.

        A run that goes on meanwhile keeps those that it has.
        """
        if self._build.overwritten:
            version = 0  # constants don't change
        if run.version == version or not self._build.prepared:
            return
        with self._lock:
            if self._version != version:
                self._arrays = self._computed(inputs)
                self._version = version
            run.held = self._arrays
        run.version = -1  # an interrupt may leave some of both
        for one, array in zip(self._build.prepared, run.held, strict=True):
            run.run.bases[self._build.bases[one]] = array.ctypes.data
        run.version = version

    def _computed(self, inputs: Sequence[Array]) -> list[Array]:
        build = self._build
        arrays = [aligned(nbytes(one)) for one in build.prepared]
        made = dict(zip(build.prepared, arrays, strict=True))
        held: list[Array] = []
        calls: list[Call] = []
        for one in build.prepared:
            refs: list[tuple[int, int]] = []
            for storage, written in zip(one.step.operands, one.step.written, strict=True):
                refs.append((len(held), 0))
                if written:
                    held.append(made[one])
                elif storage in build.constants:
                    held.append(build.constants[storage])
                else:
                    held.append(inputs[build.array_of[storage]])
            step = one.step
            params = [static(param) for param in step.params]
            address = build.preparing[one]
            calls.append(Call(address, refs, params, static(step.cells), static(step.scratch)))
        run = Run(Tables([Wave(calls)], 0, len(held)), self._threads)
        failed = run.stretch(0, 1, hold=False)(tuple(held))
        assert not failed, "steps that prepare can't fail"
        return arrays


def nbytes(one: Prepared) -> int:
    """Return the bytes of a prepared operand; variables have static shapes."""
    return static(one.size) * one.dtype.itemsize


def static(size: DimLike) -> int:
    """Return a size that is known."""
    assert isinstance(size, int)
    return size
