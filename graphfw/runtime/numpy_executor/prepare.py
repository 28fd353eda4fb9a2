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
    """The prepared operands of a plan, for the newest contents of the variables."""

    def __init__(self, recipe: Recipe, addresses: Sequence[int], threads: int) -> None:
        self._recipe = recipe
        self._addresses = addresses
        self._threads = threads
        self._lock = threading.Lock()
        self._version = -1
        self._arrays: list[Array] = []

    def provide(self, run: ReadyRun, inputs: Sequence[Array], version: int) -> None:
        """Set the addresses of the prepared operands, computed anew where they are out of date.

        A run that goes on meanwhile keeps those that it has.
        """
        if self._recipe.overwritten:
            version = 0  # constants don't change
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
        recipe = self._recipe
        made = {part.result: aligned(part.nbytes) for part in recipe.prepared}
        lasting = {**recipe.constants, **made}
        held: list[Array] = []
        calls: list[Call] = []

        def array(number: int) -> Array:
            return lasting[number] if number in lasting else inputs[number - recipe.fixed]

        for part in recipe.prepared:
            refs = [(place, 0) for place in range(len(held), len(held) + len(part.operands))]
            held.extend(map(array, part.operands))
            address = self._addresses[part.function]
            calls.append(Call(address, refs, part.params, part.cells, part.scratch))
        run = Run(Tables([Wave(calls)], 0, len(held)), self._threads)
        failed = run.stretch(0, 1, hold=False)(tuple(held))
        assert not failed, "steps that prepare can't fail"
        return list(made.values())
