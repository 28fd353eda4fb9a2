"""The offsets of a run's intermediate results in one piece of memory, the arena."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import NamedTuple

ALIGNMENT = 64
"""The alignment of every block, in bytes: a vector and a cache line."""


class Block(NamedTuple):
    """A block that is needed from one level to another."""

    first: int
    last: int


class Arena:
    """Positions blocks so that those needed at the same time do not overlap.

    The positions are found once, for the sizes of the first run. What is kept of that is which
    block lies directly above which; for other sizes the blocks are stacked in the same way, which
    takes two steps a block.

    Args:
        blocks: The blocks.
        sizes: Their bytes in the first run.
    """

    def __init__(self, blocks: Sequence[Block], sizes: Sequence[int]) -> None:
        self._below: list[list[int]] = [[] for _ in blocks]
        first_offsets = _assign_offsets(
            blocks, [rounded(max(size, 1)) for size in sizes], self._below
        )
        self._order = sorted(range(len(blocks)), key=first_offsets.__getitem__)

    def offsets(self, sizes: Sequence[int]) -> tuple[list[int], int]:
        """Return the blocks' offsets for some sizes, all in bytes, and the arena's size."""
        ends = [0] * len(self._below)
        offsets = [0] * len(self._below)
        for block in self._order:
            offset = max([ends[other] for other in self._below[block]], default=0)
            offsets[block] = offset
            ends[block] = offset + rounded(sizes[block])
        return offsets, max(ends, default=0)


def rounded(nbytes: int) -> int:
    """Return how much room so many bytes take."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def side_by_side(sizes: Iterable[int], begin: int = 0) -> tuple[list[int], int]:
    """Return where pieces of some bytes begin, one after the other, and where the last ends."""
    offsets: list[int] = []
    for nbytes in sizes:
        offsets.append(begin)
        begin += rounded(nbytes)
    return offsets, begin


class _Segment:
    """A piece of the arena: a block, or (block -1) a gap between two, or all that is above them."""

    __slots__ = ("above", "below", "block", "offset", "size")

    def __init__(self, offset: int, size: int, block: int) -> None:
        self.offset = offset
        self.size = size
        self.block = block
        self.below: _Segment | None = None
        self.above: _Segment | None = None

    def neighbour(self, side: str) -> int | None:
        """Return the next block on a side; gaps never lie side by side."""
        other: _Segment | None = getattr(self, side)
        if other is not None and other.block < 0:
            other = getattr(other, side)
        return None if other is None else other.block


class _Space:
    """Segments in the order of their offsets; the gaps also by size."""

    def __init__(self) -> None:
        self._top = _Segment(0, 0, -1)
        self._sizes: list[tuple[int, int]] = []
        self._gaps: dict[int, _Segment] = {}

    def take(self, size: int, block: int) -> _Segment:
        """Put a block into the smallest gap that holds it, else above all."""
        index = bisect_left(self._sizes, (size, 0))
        gap = self._gaps[self._sizes[index][1]] if index < len(self._sizes) else self._top
        if gap is not self._top:
            self._forget(gap)
        taken = _Segment(gap.offset, size, block)
        self._join(gap.below, taken)
        gap.offset += size
        gap.size -= size
        if gap is self._top or gap.size:
            self._join(taken, gap)
            if gap is not self._top:
                self._note(gap)
        else:
            self._join(taken, gap.above)
        return taken

    def free(self, segment: _Segment) -> None:
        """Make a block a gap, one with the gaps beside it."""
        segment.block = -1
        if segment.below is not None and segment.below.block < 0:
            self._forget(segment.below)
            segment.offset = segment.below.offset
            segment.size += segment.below.size
            self._join(segment.below.below, segment)
        if segment.above is self._top:
            self._top.offset = segment.offset
            self._join(segment.below, self._top)
            return
        if segment.above is not None and segment.above.block < 0:
            self._forget(segment.above)
            segment.size += segment.above.size
            self._join(segment, segment.above.above)
        self._note(segment)

    def _join(self, below: _Segment | None, above: _Segment | None) -> None:
        if below is not None:
            below.above = above
        if above is not None:
            above.below = below

    def _note(self, gap: _Segment) -> None:
        insort(self._sizes, (gap.size, gap.offset))
        self._gaps[gap.offset] = gap

    def _forget(self, gap: _Segment) -> None:
        del self._sizes[bisect_left(self._sizes, (gap.size, gap.offset))]
        del self._gaps[gap.offset]


def _assign_offsets(
    blocks: Sequence[Block], sizes: Sequence[int], below: Sequence[list[int]]
) -> list[int]:
    """Find offsets level by level, and note for each block who lies directly below it.

    The neighbours at the moment when a block is placed are enough: those that become neighbours
    later are kept in order by what lay between them.
    """
    starting: dict[int, list[int]] = {}
    ending: dict[int, list[int]] = {}
    for number, block in enumerate(blocks):
        starting.setdefault(block.first, []).append(number)
        ending.setdefault(block.last, []).append(number)
    offsets = [0] * len(blocks)
    space = _Space()
    live: dict[int, _Segment] = {}
    for level in sorted(starting.keys() | ending.keys()):
        for number in sorted(starting.get(level, ()), key=sizes.__getitem__, reverse=True):
            live[number] = segment = space.take(sizes[number], number)
            offsets[number] = segment.offset
            lower, upper = segment.neighbour("below"), segment.neighbour("above")
            if lower is not None:
                below[number].append(lower)
            if upper is not None and upper >= 0:
                below[upper].append(number)
        for number in ending.get(level, ()):
            space.free(live.pop(number))
    return offsets
