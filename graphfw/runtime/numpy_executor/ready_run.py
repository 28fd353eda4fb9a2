"""The state of a recipe in this process, and of each of its runs at some sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from graphfw.ir.dtype import as_dtype
from graphfw.ir.literal import Array
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Node, Tensor
from graphfw.runtime.numpy_executor.buffer_pool import OutputPool
from graphfw.runtime.numpy_executor.layout import ARENA, Layout, Layouts
from graphfw.runtime.numpy_executor.recipe import Recipe, in_row
from graphfw.runtime.numpy_executor.runner import Record, Run
from graphfw.runtime.planning.arena import rounded
from graphfw.runtime.planning.draws import Draws

_SHORT = 2
"""Work items up to which a native call keeps Python's lock: giving it up would take longer."""


class LoadedRecipe:
    """A recipe in this process.

    Attributes:
        recipe: The recipe.
        addresses: Of its functions.
        layouts: Makes what depends on the sizes.
        direct: For each direct output its number among all outputs, and what makes its arrays.
        spares: The same for the updates.
        is_random: Whether it draws.
    """

    def __init__(self, recipe: Recipe, addresses: Sequence[int]) -> None:
        self.recipe = recipe
        self.addresses = addresses
        self.layouts = Layouts(recipe, addresses)
        pools_of_outputs = [
            (k, OutputPool(as_dtype(name).dtype)) for k, name in enumerate(recipe.dtypes)
        ]
        self.direct = [pools_of_outputs[k] for k in recipe.direct]
        self.spares = pools_of_outputs[len(pools_of_outputs) - len(recipe.overwritten) :]
        self.is_random = bool(recipe.drawn)
        self._draws = Draws(recipe.drawn)

    @cached_property
    def constants(self) -> dict[int, Array]:
        """The constants that native steps read, but for those that prepare operands."""
        constants = self.recipe.constants
        return {number: in_row(constants[number]) for number in self.read & constants.keys()}

    @cached_property
    def read(self) -> frozenset[int]:
        """The numbers of the addresses that native steps use."""
        steps = [step for level in self.recipe.levels for step in level]
        return frozenset([number for step in steps for number in step.operands])

    def arrays_of(self, inputs: Sequence[Array], rng: Rng) -> Sequence[Array]:
        """Return the arrays that a run begins with: its inputs, and what it draws from."""
        return (*inputs, self.drawn(rng)) if self.is_random else inputs

    def drawn(self, rng: Rng) -> Array:
        """Return the step and the keys of a run's draws."""
        return self._draws.array(rng)


class Outside(NamedTuple):
    """A node outside of native code at known sizes.

    Attributes:
        compute: Returns its results, which are nobody else's.
        outputs: What they are; for what native steps read, the number of its address.
    """

    compute: Callable[[Sequence[Array], Rng], Sequence[Array]]
    outputs: list[tuple[Tensor, int | None]]


class ReadyRun:
    """The tables that one run at a time writes to.

    Attributes:
        run: The native runner's.
        calls: For each stretch, what computes its native steps; None where there are none.
        whole: The only call, of a program that is native as a whole and updates nothing; else None.
        nbytes: How much memory it is lent for a run: the arena, and scratch memory after it.
        makers: What makes the arrays of the direct outputs.
        outside: Of the nodes outside of native code, those that have been computed.
        version: For which contents of the variables the prepared operands are set.
    """

    def __init__(self, loaded: LoadedRecipe, layout: Layout, threads: int) -> None:
        recipe = loaded.recipe
        self.run = Run(layout.tables, threads, owns_scratch=False)
        # In the arena, which all sizes and plans share: tables stay for each size that was seen.
        self._scratch_begin = rounded(layout.arena)
        scratch = self.run.scratch
        self.nbytes = self._scratch_begin + scratch if scratch else layout.arena
        for number, constant in loaded.constants.items():
            self.run.bases[number] = constant.ctypes.data
        self.calls: list[Callable[[tuple[Array, ...]], int] | None] = []
        for stretch in recipe.stretches:
            work_items = sum(layout.work_items[stretch.first : stretch.first + stretch.waves])
            call = self.run.stretch(stretch.first, stretch.waves, hold=work_items <= _SHORT)
            self.calls.append(call if stretch.waves else None)
        self.whole = self.calls[0] if recipe.is_plain else None
        self._recipe = recipe
        self.makers = [
            pool_of_outputs.maker(*layout.shapes[k]) for k, pool_of_outputs in loaded.direct
        ]
        self.outside: dict[Node, Outside] = {}
        self.version = -1
        self.held: Sequence[Array] = ()

    def lie_at(self, address: int) -> None:
        """Say where the memory is that it is lent."""
        self.run.bases[ARENA] = address
        if self.run.scratch:
            self.run.scratch_at(address + self._scratch_begin)

    @cached_property
    def whole_record(self) -> Record:
        """The record for the runner, of a program that is native as a whole."""
        (stretch,) = self._recipe.stretches
        return self.run.record_of(stretch.first, stretch.waves)
