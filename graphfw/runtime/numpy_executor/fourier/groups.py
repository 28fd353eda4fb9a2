"""`Groups`: rows or columns that go through all stages together while they are in cache.

An array is taken as [before, n, after], and is transformed along the middle. Where `after` is 1,
numbers lie beside one another as they are transformed: a group is some rows, and the first stage
weaves (see `stages`). Otherwise vectors run along `after`, and a group is some columns of one of
the `before` matrices.
"""

from __future__ import annotations

import abc
from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.runtime.numpy_executor.fourier.code import SCRATCH, BufferAddress
from graphfw.runtime.numpy_executor.fourier.stages import StageSizes, Strides, Way
from graphfw.runtime.planning.work import ceil

_ROWS = 4096
"""Numbers that a group of rows has, if rows are shorter: they stay in the first cache."""

_COLUMNS = 1 << 15
"""Numbers that a group of columns has at most, if that are some vectors: likewise the second."""

_WIDTH = 64
"""The most columns of a group."""


class End(NamedTuple):
    """An array that stages read or write.

    Attributes:
        way: How its numbers lie, along vectors.
        addresses: Of the real and the imaginary parts.
        strides: Of the three dims, in elements of components; None for scratch memory of a group in
            the order in which stages leave it.
        is_inside: Whether it is scratch memory, which has the numbers of one group.
    """

    way: Way
    addresses: tuple[BufferAddress, BufferAddress]
    strides: tuple[DimLike, DimLike, DimLike] | None = None
    is_inside: bool = False


class StagePlace(NamedTuple):
    """A stage of a transform, by its radix and those of the others.

    Attributes:
        radix: Its radix.
        done: The product of those before it, and
        left: of those after it.
    """

    radix: int
    done: int
    left: int

    @property
    def is_first(self) -> bool:
        """Whether there is none before it."""
        return self.done == 1


class LineLoops(NamedTuple):
    """The loops of a kernel that goes along the axis once, see `StageSizes`."""

    batch: DimLike
    rows: DimLike
    positions: DimLike
    per_item: DimLike
    split: DimLike


class Groups(abc.ABC):
    """A division of an array into groups.

    Attributes:
        weaves: Whether the first stage does.
        numbers: How many numbers a group has.
        count: The number of groups.
        turn: After how many the places in scratch memory begin anew.
        apart: By how many elements the places of groups in scratch memory are apart, if there were
            one memory for all.
    """

    weaves: bool
    numbers: int
    count: DimLike
    turn: DimLike
    apart: int

    @abc.abstractmethod
    def sizes(self, at: StagePlace, source: End, target: End) -> StageSizes:
        """Return the sizes of a stage between two arrays."""

    @abc.abstractmethod
    def lines(self, n: int, *, is_inside: bool) -> LineLoops:
        """Return the loops over n numbers of each transform."""

    @property
    @abc.abstractmethod
    def strides(self) -> tuple[DimLike, DimLike, DimLike]:
        """The strides of scratch memory, as those of an `End`."""

    def scratch(self, half: int, plane: int) -> End:
        """Return the scratch memory of numbers, one half of it.

        Args:
            half: Which.
            plane: How many bytes the components of a group have.
        """
        addresses = [
            BufferAddress(SCRATCH, (2 * half + component) * plane) for component in range(2)
        ]
        return End("planes", (addresses[0], addresses[1]), is_inside=True)


class Rows(Groups):
    """Groups of rows.

    Args:
        n: The length of a row.
        before: How many there are.
    """

    weaves = True

    def __init__(self, n: int, before: DimLike) -> None:
        self._n, self._before = n, before
        self._rows = max(1, _ROWS // n)
        self.numbers = self.apart = self._rows * n
        self.count = self.turn = ceil(before, self._rows)

    def sizes(self, at: StagePlace, source: End, target: End) -> StageSizes:
        n, (radix, done, left) = self._n, at
        is_inside = source.is_inside and target.is_inside
        rows, positions = (1, left) if at.is_first else (left, done)
        reads = Strides(n, done, 1, left * done)
        writes = Strides(n, 0, 1, 1) if at.is_first else Strides(n, radix * done, 1, done)
        if source.strides:
            item, along, _ = source.strides
            reads = Strides(item, 0, along, left * along)
        if target.strides:
            item, along, _ = target.strides
            writes = Strides(item, 0, along, done * along)
        batch = self._rows if is_inside else self._before
        return StageSizes(
            batch, rows, positions, self._rows * rows, 0, reads, writes, (0, 2 * left, left)
        )

    def lines(self, n: int, *, is_inside: bool) -> LineLoops:
        return LineLoops(self._rows if is_inside else self._before, 1, n, self._rows, 0)

    @property
    def strides(self) -> tuple[DimLike, DimLike, DimLike]:
        return self._n, 1, 0


class Columns(Groups):
    """Groups of columns.

    Args:
        before: The number of matrices.
        n: How many rows each has.
        after: How many columns.
        lanes: How many numbers are computed side by side.
    """

    weaves = False

    def __init__(self, before: DimLike, n: int, after: DimLike, lanes: int) -> None:
        self._before, self._n, self._after = before, n, after
        vectors = max(1, min(_WIDTH // lanes, _COLUMNS // (n * lanes)))
        if isinstance(after, int):
            whole = max(1, -(-after // lanes))
            # Groups of as many columns, where that can be.
            vectors = max([n for n in range(1, vectors + 1) if whole % n == 0])
        self.apart = vectors * lanes
        # The transforms of real numbers have one number more.
        self.numbers = (n + 1) * self.apart
        self.turn = ceil(after, self.apart)
        self.count = before * self.turn

    def beside(self, half: int, plane: int, itemsize: int) -> End:
        """Return scratch memory with a row of real parts, then of imaginary ones, by turns.

        Args:
            half: Which half of it.
            plane: See `scratch`.
            itemsize: Of a component.
        """
        begin = 2 * half * plane
        addresses = (
            BufferAddress(SCRATCH, begin),
            BufferAddress(SCRATCH, begin + self.apart * itemsize),
        )
        return End("planes", addresses, (0, 2 * self.apart, 1), is_inside=True)

    def sizes(self, at: StagePlace, source: End, target: End) -> StageSizes:
        (radix, done, left), width = at, self.apart
        reads = Strides(0, done * width, 1, left * done * width)
        writes = Strides(0, radix * done * width, 1, done * width)
        if not source.strides and not target.strides:
            return StageSizes(1, left, done * width, left, 0, reads, writes)
        rows = left
        if source.strides:
            item, along, position = source.strides
            reads = Strides(item, along, position, left * along)
        if target.strides:
            # One row for each result of the stages before.
            item, along, position = target.strides
            writes, rows = Strides(item, along, position, done * along), done
            if not source.strides:
                reads = Strides(0, width, 1, done * width)
        if source.is_inside and target.is_inside:
            return StageSizes(1, rows, width, rows, 0, reads, writes)
        return StageSizes(self._before, rows, self._after, rows, width, reads, writes)

    def lines(self, n: int, *, is_inside: bool) -> LineLoops:
        if is_inside:
            return LineLoops(1, n, self.apart, n, 0)
        return LineLoops(self._before, n, self._after, n, self.apart)

    @property
    def strides(self) -> tuple[DimLike, DimLike, DimLike]:
        return 0, self.apart, 1
