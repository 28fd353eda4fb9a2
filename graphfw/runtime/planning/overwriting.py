"""Carries in place: what an iteration hands on is written over what it was given.

By example: `y = index_add(y, i, f(y))` computes `f(y)` at level 0 and adds it at level 1. Nobody
reads the old y after level 1, but for the addition itself, each element before it writes it. So
the new y may lie where the old one does, and only the elements that i names are touched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from graphfw.ir.tensor import Tensor
from graphfw.runtime.kernels.steps import Item, ReferenceStep, Step, Storage
from graphfw.runtime.planning.schedule import Level, read_by, written


class CarriedPair(NamedTuple):
    """A value that an iteration is given, and the one that it makes of it for the next."""

    before: Storage
    made: Storage


def waiting(
    items: Sequence[Item], storage_of: Callable[[Tensor], Storage], carried: Sequence[CarriedPair]
) -> dict[Item, set[Item]]:
    """Find out which items should wait for others, so that carries may be in place.

    Those that change some elements of a carry wait for all that read the old one. A step that
    changes all waits for nobody: it would take as long elsewhere.

    Args:
        items: The items, each after those whose results it reads.
        storage_of: Where the inputs of a node outside of native code lie.
        carried: The carries.

    Returns:
        By items, for whom they wait; there are no circles.
    """
    return _Waiting(items, storage_of, carried).found if carried else {}


class _Link(NamedTuple):
    """A step of the way from what an iteration makes back to what it is given.

    Attributes:
        old: What is written over.
        writers: By whom.
    """

    old: Storage
    writers: Sequence[Step]


class _Waiting:
    def __init__(
        self,
        items: Sequence[Item],
        storage_of: Callable[[Tensor], Storage],
        carried: Sequence[CarriedPair],
    ) -> None:
        self.found: dict[Item, set[Item]] = {}
        self._makers: dict[Storage, list[Item]] = {}
        self._readers: dict[Storage, list[Item]] = {}
        self._needs: dict[Item, list[Storage]] = {}
        for item in items:
            read = read_by(item, storage_of)
            self._needs[item] = [*read, *item.after]
            for storage in read:
                self._readers.setdefault(storage, []).append(item)
            for storage in written(item):
                self._makers.setdefault(storage, []).append(item)
        kept = {pair.made for pair in carried}
        for pair in carried:
            links = [*self._links(pair, kept)]
            if links and links[-1].old is pair.before:
                if any([step.leaves_rest for link in links for step in link.writers]):
                    self._make_wait(links)

    def _links(self, pair: CarriedPair, kept: Collection[Storage]) -> Iterator[_Link]:
        """Yield the links from what is made backwards, as far as each step may write in place."""
        made = pair.made
        while made is not pair.before:
            makers = self._makers.get(made, ())
            writers = [item for item in makers if isinstance(item, Step)]
            old = {
                step.operands[old]: None
                for step in writers
                for new, old in step.in_place
                if step.operands[new] is made
            }
            choice = [pair.before] if pair.before in old else [s for s in old if s not in kept]
            if len(choice) != 1 or len(writers) < len(makers):
                return
            yield _Link(choice[0], writers)
            made = choice[0]

    def _make_wait(self, links: Sequence[_Link]) -> None:
        """Have the writers of each link wait for those that read what they write over."""
        new: dict[Item, set[Item]] = {}
        for old, writers in links:
            readers = {item for item in self._readers.get(old, ()) if item not in writers}
            for writer in writers:
                new[writer] = new.get(writer, set()) | readers
        before = {item: {*others} for item, others in self.found.items()}
        for item, others in new.items():
            self.found[item] = self.found.get(item, set()) | others
        if any([item in self._before(others) for item, others in new.items()]):
            self.found = before

    def _before(self, items: Collection[Item]) -> set[Item]:
        """Return items, and all that must be done before them."""
        seen = {*items}
        todo = [*items]
        while todo:
            item = todo.pop()
            makers = [maker for s in self._needs[item] for maker in self._makers.get(s, ())]
            for other in (*makers, *self.found.get(item, ())):
                if other not in seen:
                    seen.add(other)
                    todo.append(other)
        return seen


def overwritten(
    levels: Sequence[Level],
    storage_of: Callable[[Tensor], Storage],
    carried: Sequence[CarriedPair],
    homes: Mapping[Storage, Storage],
    may: Callable[[Step], bool],
) -> frozenset[int]:
    """Return which carries may be in place, by their numbers.

    Who reads what is written over must be at a level before the first that writes there, or at that
    level and read each element before it writes it.

    Args:
        levels: The steps.
        storage_of: Where the inputs of a node outside of native code lie.
        carried: The carries.
        homes: What is in the memory of what is handed out, and of what.
        may: Whether a step may be asked to write over what it reads.
    """
    readers: dict[Storage, list[tuple[int, Item]]] = {}
    writers: dict[Storage, list[tuple[int, Item]]] = {}
    for number, level in enumerate(levels):
        items: list[Item] = [*level.steps, *map(ReferenceStep, level.nodes)]
        for item in items:
            for storage in read_by(item, storage_of):
                readers.setdefault(storage, []).append((number, item))
            for storage in written(item):
                writers.setdefault(homes.get(storage, storage), []).append((number, item))
    found = []
    for i, (before, made) in enumerate(carried):
        first = min([number for number, _ in writers.get(made, ())], default=-1)
        fits = [
            number < first
            or (
                number == first
                and isinstance(item, Step)
                and may(item)
                and _reads_before(item, before, made, homes)
            )
            for number, item in readers.get(before, ())
        ]
        if first >= 0 and all(fits):
            found.append(i)
    return frozenset(found)


def _reads_before(
    step: Step, before: Storage, made: Storage, homes: Mapping[Storage, Storage]
) -> bool:
    """Return whether a step reads each element of its operands before it overwrites it."""
    operands = step.operands
    safe = {old for new, old in step.in_place if homes.get(operands[new], operands[new]) is made}
    return safe >= {index for index, storage in enumerate(operands) if storage is before}
