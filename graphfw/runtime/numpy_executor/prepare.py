"""Operands that are computed once: from constants, and from variables that keep their contents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphfw.ir.literal import Array
from graphfw.ir.time_limits import TimeOverError
from graphfw.runtime.hoisting import HoistedValues
from graphfw.runtime.numpy_executor.buffer_pool import aligned
from graphfw.runtime.numpy_executor.ready_run import ReadyRun
from graphfw.runtime.numpy_executor.recipe import PreparedStep, Recipe, in_row
from graphfw.runtime.numpy_executor.runner import Run, StepCall, Tables, Wave
from graphfw.runtime.planning.arena import side_by_side

_BATCH = 1 << 24
"""Bytes of operands that are prepared together."""


class Preparation:
    """The prepared operands of a plan, for the newest contents of the variables.

    Attributes:
        is_constant: Whether they depend on constants only.
    """

    def __init__(self, recipe: Recipe, addresses: Sequence[int], threads: int) -> None:
        self._recipe = recipe
        self._addresses = addresses
        self._threads = threads
        numbers = [number for step in recipe.prepared for number in step.operands]
        self.is_constant = all(number < recipe.fixed for number in numbers)
        self._values = HoistedValues(self)

    def provide(self, run: ReadyRun, inputs: Sequence[Array], version: int) -> None:
        """Set the addresses of the prepared operands, computed anew where they are out of date.

        A run that goes on meanwhile keeps those that it has.
        """
        version = self._values.version_of(version)
        if run.version == version or not self._recipe.prepared:
            return
        held = self._values.provide(inputs, version)
        run.version = -1  # an interrupt may leave some of both
        run.held = [*held.values()]
        for number, array in held.items():
            run.run.bases[number] = array.ctypes.data
        run.version = version

    def forget(self, run: ReadyRun) -> None:
        """Let go of operands that `provide` has set for a version that does not come again."""
        if self.is_constant or run.version == -1:
            return
        self._values.forget(run.version)
        run.version, run.held = -1, ()

    def memory(
        self, sources: Sequence[Array], before: Mapping[int, Array] | None
    ) -> Mapping[int, Array]:
        """Return new memory for the operands; see `HoistBackend`."""
        del sources, before  # runs of another version may be reading those of before
        return self._memory()

    def compute(
        self, memory: Mapping[int, Array], sources: Sequence[Array], *, is_new: bool
    ) -> None:
        """Compute the operands; see `HoistBackend`."""
        batches = list(self._batches())
        # What one batch is computed from lies where that of the batch before was.
        rooms = [side_by_side(self._missing(steps).values())[1] for steps in batches]
        room = aligned(max(rooms, default=0))
        for steps in batches:
            missing = self._missing(steps)
            lent = dict(zip(missing, _cut(room, [*missing.values()]), strict=True))
            tables, numbers = self._tables(steps)
            held = [self._array(number, memory, lent, sources) for number in numbers]
            compute = Run(tables, self._threads).stretch(0, 1, hold=False)
            try:
                failed = compute(tuple(held))
            except TimeOverError as error:
                error.op = "operands that are laid out ahead"
                raise
            assert not failed, "steps that prepare can't fail"

    def _missing(self, steps: Sequence[PreparedStep]) -> dict[int, int]:
        """Return the constants that have to be computed for some operands, and their bytes."""
        constants = self._recipe.constants
        read = dict.fromkeys([number for step in steps for number in step.operands])
        return {n: constants[n].nbytes_to_compute for n in read if n in constants}

    def _array(
        self,
        number: int,
        made: Mapping[int, Array],
        lent: Mapping[int, Array],
        inputs: Sequence[Array],
    ) -> Array:
        if number in made:
            return made[number]
        if number in lent:
            return in_row(self._recipe.constants[number], lent[number])
        return inputs[number - self._recipe.fixed]

    def _batches(self) -> Iterator[list[PreparedStep]]:
        """Yield the subgraphs computed together, so that few constants lie in memory twice."""
        batch: list[PreparedStep] = []
        size = 0
        for step in self._recipe.prepared:
            batch.append(step)
            size += step.nbytes
            if size > _BATCH:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def inside(self, run: ReadyRun) -> tuple[Run, list[tuple[int, int]]]:
        """Return a run that computes the operands of another one each time.

        Returns:
            The run, of one wave; for each input that it reads, its number and where its address is
            to be written.
        """
        tables, numbers = self._tables(self._recipe.prepared)
        made = self._memory()
        constants = self._recipe.constants
        read_here = {n: in_row(constants[n]) for n in numbers if n in constants}
        lasting = {**read_here, **made}
        run.held = list(lasting.values())
        own = Run(tables, self._threads)
        read: list[tuple[int, int]] = []
        for index, number in enumerate(numbers):
            if number in lasting:
                own.bases[index] = lasting[number].ctypes.data
            else:
                word = own.bases.ctypes.data + 8 * index
                read.append((number - self._recipe.fixed, word))
        for number, array in made.items():
            run.run.bases[number] = array.ctypes.data
        return own, read

    def _memory(self) -> Mapping[int, Array]:
        """Return memory for the operands: of one piece, which can lie in large pages."""
        sizes = [step.nbytes for step in self._recipe.prepared]
        pieces = _cut(aligned(side_by_side(sizes)[1]), sizes)
        results = [step.result for step in self._recipe.prepared]
        return dict(zip(results, pieces, strict=True))

    def _tables(self, steps: Sequence[PreparedStep]) -> tuple[Tables, list[int]]:
        """Return the tables that compute operands, and the numbers of the arrays they are given."""
        numbers: list[int] = []
        calls: list[StepCall] = []
        for step in steps:
            refs = [(index, 0) for index in range(len(numbers), len(numbers) + len(step.operands))]
            numbers.extend(step.operands)
            address = self._addresses[step.function]
            calls.append(StepCall(address, refs, step.params, step.work_items, step.scratch))
        return Tables([Wave(calls)], 0, len(numbers)), numbers


def _cut(memory: Array, sizes: Sequence[int]) -> list[Array]:
    """Return pieces of some bytes, each at the beginning of a cache line."""
    begins, _ = side_by_side(sizes)
    return [memory[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]
