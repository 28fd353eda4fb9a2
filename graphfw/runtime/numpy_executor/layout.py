"""The layout of a plan at given sizes: tables for the native runner, and where everything is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from graphfw.ir.dim_text import evaluator
from graphfw.ir.tensor import Tensor
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.numpy_executor.recipe import Recipe, RecipeStep, Stretch
from graphfw.runtime.numpy_executor.runner import StepCall, Tables, Wave
from graphfw.runtime.planning.arena import Arena
from graphfw.runtime.planning.schedule import Level

ARENA = 0
"""The number of the arena's address."""


def stretches(levels: Sequence[Level]) -> tuple[Stretch, ...]:
    """Cut the levels where Python has something to do. Those without native steps don't count."""
    found: list[Stretch] = []
    first = count = 0
    for level in levels:
        count += bool(level.steps)
        if level.nodes:
            found.append(Stretch(first, count, tuple(level.nodes)))
            first, count = first + count, 0
    if count:
        found.append(Stretch(first, count, ()))
    return tuple(found)


class KnownView(NamedTuple):
    """A `View` at known sizes, offset and strides in bytes.

    Attributes:
        is_dense: Whether its elements lie one after the other, in C order.
    """

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_dense: bool


@dataclass(eq=False)
class Layout:
    """Everything that depends on the sizes.

    Attributes:
        tables: For the native runner.
        work_items: How many work items each level with native steps has.
        offsets: Where each block of the arena begins, in bytes.
        nbytes: The size of each block.
        arena: The size of the arena.
        shapes: The outputs' shapes and bytes.
        sizes: What the symbols stand for.
        is_refused: Whether a step does not take these sizes.
        is_unchecked: Whether there are indices that native code does not look at, as they name
            elements of nothing.
        runs: Tables for single runs that nobody uses at the moment.
        views: Where tensors are that are looked at outside of native code, as far as known.
    """

    tables: Tables
    work_items: list[int]
    offsets: list[int]
    nbytes: list[int]
    arena: int
    shapes: list[tuple[tuple[int, ...], int]]
    sizes: dict[str, int]
    is_refused: bool
    is_unchecked: bool = False
    runs: list[Any] = field(default_factory=list)
    views: dict[Tensor, KnownView] = field(default_factory=dict)


class Layouts:
    """Makes the layouts of a plan.

    Args:
        recipe: The plan's.
        addresses: Of the recipe's functions.
    """

    def __init__(self, recipe: Recipe, addresses: Sequence[int]) -> None:
        self._recipe = recipe
        self._addresses = addresses
        self._evaluate = evaluator(recipe.sizes)
        self._arena: Arena | None = None

    def make(self, sizes: Sequence[int]) -> Layout:
        """Return the layout for what the symbols stand for.

        Raises:
            ZeroDivisionError: A size divides by 0.
        """
        recipe = self._recipe
        values = iter(self._evaluate(*sizes))
        nbytes = [next(values) for _ in recipe.blocks]
        shapes = [(tuple([next(values) for _ in range(n)]), next(values)) for n in recipe.ranks]
        if self._arena is None:
            self._arena = Arena(recipe.blocks, nbytes)
        offsets, total = self._arena.offsets(nbytes)
        waves = [
            Wave([self._call(step, values, offsets) for step in level]) for level in recipe.levels
        ]
        tables = Tables(waves, recipe.fixed, recipe.arrays, recipe.writes_from)
        work_items = [sum(call.work_items for call in wave.calls) for wave in waves]
        env = dict(zip(recipe.symbols, sizes, strict=True))
        is_refused = 0 in values  # those that are left must not be 0
        return Layout(tables, work_items, offsets, nbytes, total, shapes, env, is_refused)

    def _call(self, step: RecipeStep, values: Iterator[int], offsets: Sequence[int]) -> StepCall:
        params = [next(values) for _ in range(step.params)]
        work_items, scratch = next(values), next(values)
        refs = [(n, 0) if n >= 0 else (ARENA, offsets[~n]) for n in step.operands]
        return StepCall(self._addresses[step.function], refs, params, work_items, scratch)
