"""The order of a plan's steps: levels of independent steps, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from graphfw.ir.dim import DimLike, symbols_of
from graphfw.ir.dim_text import evaluate
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.variable import Variable
from graphfw.runtime.kernels.steps import Item, ReferenceStep, Step, Storage
from graphfw.runtime.planning.work import BYTES, FLOPS, work_of
from graphfw.utils.records import record

_USUAL = 61
_FEW = 16
"""Steps of a level whose order matters: of more of them, the last is a small fraction."""


class Level(NamedTuple):
    """Steps that need not wait for one another: native ones, then nodes outside of native code."""

    steps: Sequence[Step]
    nodes: Sequence[Node]


class Lifetime(NamedTuple):
    """The first and the last level at which a storage holds what is needed."""

    first: int
    last: int


@record(eq=False)
class Schedule:
    """The levels of a plan.

    Attributes:
        levels: In order.
        lifetimes: Of everything that a step or a node makes.
        updated: Where each update's value lies. That may be the variable's own memory: it is
            written when nobody reads the variable any more, and nothing can fail.
    """

    levels: Sequence[Level]
    lifetimes: Mapping[Storage, Lifetime]
    updated: Sequence[Storage]


def schedule(
    items: Sequence[Item],
    storage_of: Callable[[Tensor], Storage],
    updates: Sequence[tuple[Variable, Storage]],
    fetched: Sequence[Storage],
    copy: Callable[[Storage], tuple[Step, Storage]],
    *,
    apart: bool = False,
    may_overwrite: Callable[[Step], bool] = lambda _: True,
    waits: Mapping[Item, Collection[Item]] | None = None,
) -> Schedule:
    """Put every step as early as what it reads allows, but those that overwrite variables late.

    Args:
        items: The steps, each after those whose results it reads or waits for.
        storage_of: Where the inputs of a node outside of native code lie.
        updates: The variables, and where their new contents are.
        fetched: What else is needed after the run.
        copy: Makes a step that copies a storage, and says where the copy is.
        apart: Whether the steps that overwrite variables come after all others, rather than after
            those that can fail or read what they overwrite.
        may_overwrite: Whether a step may be one of them; where it may not, a copy follows it.
        waits: By items, for which others they wait besides, in no circle.
    """
    waits = waits or {}
    items = _ordered(items, storage_of, waits) if waits else list(items)
    variables = {variable for variable, _ in updates}
    direct = _direct(items, storage_of, updates, fetched, may_overwrite)
    last: dict[Step, list[Variable]] = {}
    updated: list[Storage] = []
    for variable, storage in updates:
        step = direct.get(storage)
        if step is None:
            if storage in variables:  # which will be overwritten in its turn
                step, storage = copy(storage)
                items.append(step)
            step, storage = copy(storage)
            items.append(step)
        last.setdefault(step, []).append(variable)
        updated.append(storage)
    reads = [read_by(item, storage_of) for item in items]
    numbers = _numbers(items, reads, last, apart, waits)
    lifetimes = _lifetimes(items, reads, numbers, {*fetched, *updated})
    return Schedule(_levels(items, numbers), lifetimes, updated)


def read_by(item: Item, storage_of: Callable[[Tensor], Storage]) -> list[Storage]:
    """Return the storages that a step reads."""
    if isinstance(item, ReferenceStep):
        return [storage_of(tensor) for tensor in item.node.inputs]
    pairs = zip(item.operands, item.written, strict=True)
    return [s for s, is_new in pairs if not is_new]


def written(item: Item) -> list[Storage]:
    """Return the storages that a step writes."""
    if isinstance(item, ReferenceStep):
        return list(item.node.outputs)
    return [s for s, is_new in zip(item.operands, item.written, strict=True) if is_new]


def _ordered(
    items: Sequence[Item],
    storage_of: Callable[[Tensor], Storage],
    waits: Mapping[Item, Collection[Item]],
) -> list[Item]:
    """Return items, each after those whose results it reads and those for which it waits."""
    makers: dict[Storage, list[Item]] = {}
    for item in items:
        for storage in written(item):
            makers.setdefault(storage, []).append(item)
    found: dict[Item, None] = {}
    todo = [*reversed(items)]
    while todo:
        item = todo[-1]
        needed = [
            one for s in (*read_by(item, storage_of), *item.after) for one in makers.get(s, ())
        ]
        missing = [one for one in (*needed, *waits.get(item, ())) if one not in found]
        if missing and item not in found:
            todo += missing
        else:
            found[todo.pop()] = None
    return [*found]


def _direct(
    items: Sequence[Item],
    storage_of: Callable[[Tensor], Storage],
    updates: Sequence[tuple[Variable, Storage]],
    fetched: Sequence[Storage],
    may_overwrite: Callable[[Step], bool],
) -> dict[Storage, Step]:
    """Find the steps that may run last of all and write new contents over the variables' old ones.

    Nobody else reads or writes what they write, and of the variables that are updated they read
    only those that they write themselves, element by element.
    """
    new: dict[Storage, Variable] = {}
    wanted = {*fetched}
    for variable, storage in updates:
        if storage in new:  # can be written over one variable only
            wanted.add(storage)
        new[storage] = variable
    made_by_one: set[Storage] = set()
    for item in items:
        wanted.update(read_by(item, storage_of))
        wanted.update(made_by_one.intersection(written(item)))  # and now by two
        made_by_one.update(written(item))
    old = {variable: storage for variable, storage in updates}
    found: dict[Storage, Step] = {}
    for item in items:
        if isinstance(item, ReferenceStep) or item.can_fail:
            continue
        made = written(item)
        if new.keys().isdisjoint(made) or not wanted.isdisjoint(made):
            continue
        index_of = {storage: number for number, storage in enumerate(item.operands)}
        fits = all(
            old[s] in index_of and (index_of[old[s]], number) in item.in_place
            for number, s in enumerate(item.operands)
            if isinstance(s, Variable) and s in old
        )
        if fits and may_overwrite(item):
            found.update({s: item for s in made if s in new})
    return found


def _numbers(
    items: Sequence[Item],
    reads: Sequence[Sequence[Storage]],
    last: Mapping[Step, Sequence[Variable]],
    apart: bool,
    waits: Mapping[Item, Collection[Item]],
) -> list[int]:
    """Number the items' levels."""
    made: dict[Storage, int] = {}
    known: dict[Item, int] = {}
    read_at: dict[Storage, int] = {}
    numbers: list[int] = []
    safe = 0  # the first level at which variables may be written over
    for item, read in zip(items, reads, strict=True):
        needed = (*read, *item.after)
        before = [made.get(storage, -1) for storage in needed]
        before += [known[other] for other in waits.get(item, ())]
        number = known[item] = max(before, default=-1) + 1
        numbers.append(number)
        made.update({s: max(made.get(s, 0), number) for s in written(item)})
        if item in last:
            continue
        read_at.update({s: max(read_at.get(s, 0), number) for s in read})
        if apart or isinstance(item, ReferenceStep) or item.can_fail:
            safe = max(safe, number + 1)
    for index, item in enumerate(items):
        if isinstance(item, Step) and item in last:
            free = [read_at.get(variable, -1) + 1 for variable in last[item]]
            numbers[index] = max(numbers[index], safe, *free)
    return numbers


def _levels(items: Sequence[Item], numbers: Sequence[int]) -> list[Level]:
    count = max(numbers, default=-1) + 1
    steps: list[list[Step]] = [[] for _ in range(count)]
    nodes: list[list[Node]] = [[] for _ in range(count)]
    for item, number in zip(items, numbers, strict=True):
        if isinstance(item, ReferenceStep):
            nodes[number].append(item.node)
        else:
            steps[number].append(item)
    for level in steps:
        if 1 < len(level) <= _FEW:
            # Threads take work items in this order: with long ones at the end some would wait for
            # them.
            level.sort(key=_work_item_seconds, reverse=True)
    return [*map(Level, steps, nodes)]


def _work_item_seconds(step: Step) -> float:
    """Return how long an item takes, roughly; where sizes are not known, of sizes like others."""
    flops, moved = work_of(step.nodes, step.operands)
    seconds = _known(flops) / FLOPS + _known(moved) / BYTES
    return seconds / max(_known(step.work_items), 1)


def _known(size: DimLike) -> int:
    try:
        return evaluate(size, dict.fromkeys(symbols_of(size), _USUAL))
    except ZeroDivisionError:  # these sizes make no sense there
        return 1


def _lifetimes(
    items: Sequence[Item],
    reads: Sequence[Sequence[Storage]],
    numbers: Sequence[int],
    kept: set[Storage],
) -> dict[Storage, Lifetime]:
    first: dict[Storage, int] = {}
    last: dict[Storage, int] = {}
    for item, number in zip(items, numbers, strict=True):
        for storage in written(item):
            first[storage] = min(first.get(storage, number), number)
            last[storage] = max(last.get(storage, number), number)
    for read, number in zip(reads, numbers, strict=True):
        for storage in read:
            if storage in last:
                last[storage] = max(last[storage], number)
    end = max(numbers, default=-1) + 1
    return {s: Lifetime(first[s], end if s in kept else last[s]) for s in first}
