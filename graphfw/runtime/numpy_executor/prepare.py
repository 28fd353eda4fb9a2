"""Operands that are computed once: from constants, and from variables in plans without updates."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphfw.ir.literal import Array
from graphfw.runtime.numpy_executor.recipe import Recipe
from graphfw.runtime.numpy_executor.recycle import aligned
from graphfw.runtime.numpy_executor.runner import Call, Run, Tables, Wave

if TYPE_CHECKING:
    from graphfw.runtime.numpy_executor.execution import ReadyRun


class Preparation:
    """The prepared operands of a plan, for the newest contents of the variables.

    Attributes:
        is_constant: Whether they depend on constants alone.
    """

    def __init__(self, recipe: Recipe, addresses: Sequence[int], threads: int) -> None:
        self._recipe = recipe
        self._addresses = addresses
        self._threads = threads
        numbers = [number for part in recipe.prepared for number in part.operands]
        self.is_constant = all(number < recipe.fixed for number in numbers)
        self._lock = threading.Lock()
        self._version = -1
        self._arrays: list[Array] = []

    def provide(self, run: ReadyRun, inputs: Sequence[Array], version: int) -> None:
        """Set the addresses of the prepared operands, computed anew where they are out of date.

        A run that goes on meanwhile keeps those that it has.
        """
        if self.is_constant:
            version = 0
        if run.version == version or not self._recipe.prepared:
            return
        with self._lock:
            if self._version != version:
                self._arrays = self._computed(inputs)
                self._version = version
            run.held = self._arrays
        run.version = -1  # an interrupt may leave some of both
        for part, array in zip(self._recipe.prepared, run.held, strict=True):
            run.run.bases[part.result] = array.ctypes.data
        run.version = version

    def _computed(self, inputs: Sequence[Array]) -> list[Array]:
        tables, numbers = self._tables()
        made = self._memory()
        lasting = {**self._recipe.constants, **made}
        first = self._recipe.fixed
        held = [lasting[n] if n in lasting else inputs[n - first] for n in numbers]
        failed = Run(tables, self._threads).stretch(0, 1, hold=False)(tuple(held))
        assert not failed, "steps that prepare can't fail"
        return list(made.values())

    def inside(self, run: ReadyRun) -> tuple[Run, list[tuple[int, int]]]:
        """Return a run that computes the operands of another one each time.

        Returns:
            The run, of one wave; for each input that it reads, its number and where its address is
            to be written.
        """
        tables, numbers = self._tables()
        made = self._memory()
        run.held = list(made.values())
        lasting = {**self._recipe.constants, **made}
        own = Run(tables, self._threads)
        read: list[tuple[int, int]] = []
        for place, number in enumerate(numbers):
            if number in lasting:
                own.bases[place] = lasting[number].ctypes.data
            else:
                word = own.bases.ctypes.data + 8 * place
                read.append((number - self._recipe.fixed, word))
        for number, array in made.items():
            run.run.bases[number] = array.ctypes.data
        return own, read

    def _memory(self) -> dict[int, Array]:
        return {part.result: aligned(part.nbytes) for part in self._recipe.prepared}

    def _tables(self) -> tuple[Tables, list[int]]:
        """Return what computes all operands, and the numbers of the arrays that it is given."""
        numbers: list[int] = []
        calls: list[Call] = []
        for part in self._recipe.prepared:
            refs = [(place, 0) for place in range(len(numbers), len(numbers) + len(part.operands))]
            numbers.extend(part.operands)
            address = self._addresses[part.function]
            calls.append(Call(address, refs, part.params, part.cells, part.scratch))
        return Tables([Wave(calls)], 0, len(numbers)), numbers
