"""What a plan is for given sizes: tables for the native runner, and where everything lies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.ir.dim_text import evaluator
from graphfw.ir.tensor import Tensor
from graphfw.runtime.kernels.steps import Storage
from graphfw.runtime.numpy_executor.arena import Arena, Block
from graphfw.runtime.numpy_executor.recipe import Part, Recipe, Stretch
from graphfw.runtime.numpy_executor.runner import Call, Tables, Wave
from graphfw.runtime.numpy_executor.schedule import Level, Lifetime

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
        cells: How many cells each level with native steps has.
        offsets: Where each block of the arena begins, in bytes.
        nbytes: The size of each block.
        arena: The size of the arena.
        shapes: The outputs' shapes and bytes.
        sizes: What the symbols stand for.
        is_refused: Whether a step does not take these sizes.
        runs: Tables for single runs that nobody uses at the moment.
        views: Where tensors lie that are looked at outside of native code, as far as known.
    """

    tables: Tables
    cells: list[int]
    offsets: list[int]
    nbytes: list[int]
    arena: int
    shapes: list[tuple[tuple[int, ...], int]]
    sizes: dict[str, int]
    is_refused: bool
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
            Wave([self._call(part, values, offsets) for part in level]) for level in recipe.levels
        ]
        tables = Tables(waves, recipe.fixed, recipe.arrays)
        cells = [sum(call.cells for call in wave.calls) for wave in waves]
        env = dict(zip(recipe.symbols, sizes, strict=True))
        is_refused = 0 in values  # those that are left must not be 0
        return Layout(tables, cells, offsets, nbytes, total, shapes, env, is_refused)

    def _call(self, part: Part, values: Iterator[int], offsets: Sequence[int]) -> Call:
        params = [next(values) for _ in range(part.params)]
        cells, scratch = next(values), next(values)
        refs = [(n, 0) if n >= 0 else (ARENA, offsets[~n]) for n in part.operands]
        return Call(self._addresses[part.function], refs, params, cells, scratch)


def blocks_of(
    levels: Sequence[Level],
    lifetimes: Mapping[Storage, Lifetime],
    elsewhere: Mapping[Storage, int],
    storage_of: Callable[[Tensor], Storage],
) -> tuple[dict[Storage, int], list[Block], list[DimLike]]:
    """Give each storage of the arena a block: its own, or that of an operand it may overwrite.

    Returns:
        The storages' blocks, from when to when each is needed, and their bytes.
    """
    heirs = _heirs(levels, lifetimes, elsewhere, storage_of)
    block_of: dict[Storage, int] = {}
    blocks: list[Block] = []
    sizes: list[DimLike] = []
    for storage, (first, last) in sorted(lifetimes.items(), key=lambda entry: entry[1].first):
        if storage in elsewhere:
            continue
        dead = heirs.get(storage)
        if dead is None:
            block_of[storage] = len(blocks)
            blocks.append(Block(first, last))
            sizes.append(nbytes(storage))
        else:
            number = block_of[storage] = block_of[dead]
            blocks[number] = Block(blocks[number].first, last)
    return block_of, blocks, sizes


def _heirs(
    levels: Sequence[Level],
    lifetimes: Mapping[Storage, Lifetime],
    elsewhere: Mapping[Storage, int],
    storage_of: Callable[[Tensor], Storage],
) -> dict[Storage, Storage]:
    """Find what may be written over an operand that nobody else reads then or later."""
    heirs: dict[Storage, Storage] = {}
    for number, level in enumerate(levels):
        readers = Counter([s for step in level.steps for s in step.operands])
        readers.update([storage_of(t) for node in level.nodes for t in node.inputs])
        taken: set[Storage] = set()
        for step in level.steps:
            for new, old in step.in_place:
                heir, dead = step.operands[new], step.operands[old]
                if (
                    {heir, dead}.isdisjoint(elsewhere)
                    and dead in lifetimes
                    and lifetimes[dead].last == number
                    and readers[dead] == 1
                    and nbytes(heir) == nbytes(dead)
                    and heir not in heirs
                    and dead not in taken
                ):
                    heirs[heir] = dead
                    taken.add(dead)
    return heirs


def nbytes(storage: Storage) -> DimLike:
    """Return how many bytes a storage takes."""
    return storage.size * storage.dtype.itemsize
