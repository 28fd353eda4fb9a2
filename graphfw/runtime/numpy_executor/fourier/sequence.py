"""`StageSequence`: the step that takes an array through the stages of a transform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from graphfw.ir.dim import DimLike, dim_max, dim_min
from graphfw.ir.dtype import DType
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.codegen.target import Processor
from graphfw.runtime.numpy_executor.fourier.code import (
    SCRATCH,
    BufferAddress,
    StageCall,
    WorkItems,
    code_of,
    params_of,
)
from graphfw.runtime.numpy_executor.fourier.crossing import (
    Crossing,
    CrossingSizes,
    inwards,
    outwards,
)
from graphfw.runtime.numpy_executor.fourier.groups import Columns, End, Groups, StagePlace
from graphfw.runtime.numpy_executor.fourier.halves import HalvesKind, halves
from graphfw.runtime.numpy_executor.fourier.lines import LineKind, LineSizes, lines
from graphfw.runtime.numpy_executor.fourier.plan import (
    Factors,
    of_chirp,
    of_columns,
    of_halves,
    of_positions,
    of_rows,
    of_spectrum,
)
from graphfw.runtime.numpy_executor.fourier.roots import Array
from graphfw.runtime.numpy_executor.fourier.stages import StageKernel, StageKind, Turns, stage
from graphfw.runtime.planning.work import ceil

OUTPUT, INPUT, TABLE = range(3)
"""The operands of a step."""

_WORK_ITEM = 1 << 15
"""Numbers of a work item, if there are so many."""

_WORK_ITEMS = 8
"""The number of work items that keep threads busy."""


class Direction(NamedTuple):
    """The options of a transform.

    Attributes:
        inverse: Whether it is the inverse one: it exchanges the components before and after.
        scale: What the results are multiplied by.
    """

    inverse: bool
    scale: float


class StageSequence:
    """The stages of a transform, as they are added, and the step that they make.

    Args:
        groups: What goes through them together.
        dtype: Of the components of numbers.
        processor: Whose vectors they use.
        direction: Which transform it is.
    """

    def __init__(
        self, groups: Groups, dtype: DType, processor: Processor, direction: Direction
    ) -> None:
        self._groups = groups
        self._dtype = dtype
        self._processor = processor
        self._direction = direction
        self._factors = Factors(dtype, direction.scale)
        self._calls: list[StageCall] = []
        # The rest keeps planes from driving each other out of the cache.
        self._plane = (groups.numbers * dtype.itemsize + 63) // 64 * 64 + 64
        self._used = 0
        """The number of halves of scratch memory that are in use."""
        self._half = 1
        """The half that was written last."""

    def run(
        self,
        radices: Sequence[int],
        source: End,
        target: End | Callable[[], End],
        columns: int | None = None,
        chirp: int | None = None,
        direction: Direction | None = None,
    ) -> End:
        """Add the stages of some radices, from one array to another.

        Args:
            radices: The radices.
            source: What is read.
            target: What is written, or what chooses it when all before is added.
            columns: How many columns there are, which are rows of a longer transform: the j-th
                result of the k-th one is turned by exp(-2 pi i j k / n).
            chirp: The length whose `of_spectrum` the results are multiplied by.
            direction: Which transform it is; by default that of the sequence.

        Returns:
            Where the result lies.
        """
        direction = direction or self._direction
        if direction.inverse:
            source = _exchanged(source)
        done, n = 1, prod(radices)
        for number, radix in enumerate(radices):
            is_last = number == len(radices) - 1
            following = target if is_last else self.scratch
            written = following() if callable(following) else following
            at = StagePlace(radix, done, n // (done * radix))
            if is_last:
                self._last_stage(at, source, written, direction, columns, chirp)
            else:
                self._stage(at, source, written)
            done *= radix
            source = written
        return source

    def scratch(self) -> End:
        """Return the half of scratch memory that was not written last."""
        self._half = 1 - self._half
        self._used = max(self._used, self._half + 1)
        return self._groups.scratch(self._half, self._plane)

    def rows_in(self, view: View, *, pairs: bool = True) -> End:
        """Add what brings the rows of a matrix side by side; return where they are.

        Args:
            view: The matrix.
            pairs: Whether two real numbers are one complex number.
        """
        sizes = self._crossing_sizes(view)
        target = self.beside(pairs=pairs)
        self._cross(
            inwards(self._dtype, sizes),
            BufferAddress(INPUT, self._begin(view)),
            target.addresses[0],
        )
        return target

    def rows_out(self, source: End, view: View) -> None:
        """Add what writes the rows of matrices, whose elements lie side by side."""
        crossing = outwards(self._dtype, self._crossing_sizes(view))
        self._cross(crossing, source.addresses[0], BufferAddress(OUTPUT, self._begin(view)))

    def _crossing_sizes(self, view: View) -> CrossingSizes:
        """Return the sizes of rows: a view of [batch, rows, numbers]."""
        width = 2 if view.storage.dtype.is_complex else 1
        batch, count, length = view.shape
        assert isinstance(length, int)
        apart, row, _ = [width * stride for stride in view.strides]
        return CrossingSizes(batch, apart, count, row, width * length, self._groups.apart)

    def _begin(self, view: View) -> DimLike:
        return view.storage.dtype.itemsize * view.offset

    def _cross(self, crossing: Crossing, source: BufferAddress, target: BufferAddress) -> None:
        apart = -self._groups.apart * self._dtype.itemsize
        addresses = [
            address._replace(apart=apart) if address.operand == SCRATCH else address
            for address in (source, target)
        ]
        code, params = KernelCode(crossing.kernel.kernel, self._processor), crossing.kernel.params
        items = WorkItems(crossing.items, crossing.per_group, crossing.apart)
        self._calls.append(StageCall(code, params, tuple(addresses), items))

    def beside(self, *, pairs: bool = True) -> End:
        """Return the half of scratch memory that was not written last, for rows side by side.

        Args:
            pairs: Whether numbers are pairs of components, else real ones.
        """
        assert isinstance(self._groups, Columns)
        self.scratch()
        found = self._groups.beside(self._half, self._plane, self._dtype.itemsize)
        if pairs:
            return found
        return found._replace(
            addresses=(found.addresses[0], found.addresses[0]), strides=self._groups.strides
        )

    def halves(self, source: End, target: End | None, n: int) -> End:
        """Add what makes the transform of n real numbers of that of n/2 complex ones, or back.

        Args:
            source: What is read: scratch memory or, with no target, what lies outside.
            target: What is written; by default scratch memory.
            n: The number of real numbers.

        Returns:
            Where the result lies.
        """
        written = target or self.scratch()
        half, across = n // 2, not self._groups.weaves
        is_inside = source.is_inside and written.is_inside
        reads, writes = [end.strides or self._groups.strides for end in (source, written)]
        for ends in (True, False):
            count = 1 if ends else half - 1
            if count == 0:
                continue
            kind = HalvesKind(
                self._dtype,
                "joined" if target else "parted",
                ends,
                source.way,
                written.way,
                across,
                cut=across and not is_inside,
            )
            sizes = LineSizes(self._groups.lines(count, is_inside=is_inside), half, reads, writes)
            table = BufferAddress(TABLE)
            if not ends:
                table = BufferAddress(TABLE, self._factors.add(of_halves(n, across=across)))
            begin = 0 if ends else writes[1]
            steps = [begin, half * writes[1]] if ends and target else [begin]
            self._add(halves(kind, sizes), source, written, table, steps)
        return written

    def convolved(
        self, radices: Sequence[int], source: End, target: End | Callable[[], End], n: int
    ) -> End:
        """Add the transform of n numbers by those of a length that has stages; see `lines`.

        Args:
            radices: Of that length.
            source: What is read.
            target: What is written, or what chooses it when all before is added.
            n: The number of numbers.

        Returns:
            Where the result lies.
        """
        length, forward = prod(radices), Direction(False, 1.0)
        inverse = self._direction.inverse
        factors = of_chirp(n, across=not self._groups.weaves)
        padded = self.scratch()
        self._line(_exchanged(source) if inverse else source, padded, n, factors)
        self._line(None, padded, length - n, begin=n)
        spectrum = self.run(radices, padded, self.scratch, chirp=n, direction=forward)
        result = self.run(radices, spectrum, self.scratch, direction=Direction(True, 1.0))
        written = target() if callable(target) else target
        to = _exchanged(written) if inverse else written
        self._line(result, to, n, self._direction.scale * factors)
        return written

    def _line(
        self,
        source: End | None,
        target: End,
        n: int,
        factors: Array | None = None,
        begin: int = 0,
        *,
        first: int = 0,
        mirrored: bool = False,
        reads_real: bool = False,
        writes_real: bool = False,
    ) -> None:
        """Add what copies n numbers.

        Args:
            source: From where; None for zeros.
            target: To where.
            n: How many.
            factors: Which they are multiplied by.
            begin: The place of the first one that is written.
            first: The place of that which is read.
            mirrored: See `LineKind`.
            reads_real: Likewise.
            writes_real: Likewise.
        """
        across = not self._groups.weaves
        is_inside = target.is_inside and (source is None or source.is_inside)
        # Exchanged, the imaginary part comes first.
        swapped = target.way != "planes" and self._direction.inverse
        kind = LineKind(
            self._dtype,
            source.way if source else None,
            target.way,
            across,
            cut=across and not is_inside,
            swapped=swapped,
            factors=factors is not None,
            mirrored=mirrored,
            reads_real=reads_real,
            writes_real=writes_real,
        )
        reads, writes = [
            (end.strides if end else None) or self._groups.strides for end in (source, target)
        ]
        sizes = LineSizes(self._groups.lines(n, is_inside=is_inside), n, reads, writes)
        table = (
            BufferAddress(TABLE)
            if factors is None
            else BufferAddress(TABLE, self._factors.add(factors))
        )
        if swapped:
            target = _exchanged(target)
        if source:
            addresses = [self._moved(address, first * reads[1]) for address in source.addresses]
            source = source._replace(addresses=(addresses[0], addresses[1]))
        self._add(lines(kind, sizes), source or target, target, table, [begin * writes[1]])

    def widened(self, source: End, n: int) -> End:
        """Add what makes complex numbers of n real ones; return where they lie."""
        target = self.scratch()
        self._line(source, target, n, reads_real=True)
        return target

    def mirrored(self, source: End, n: int) -> End:
        """Add what makes the n numbers of a spectrum of one half of it; return where they lie."""
        target, half = self.scratch(), n // 2
        self._line(source, target, 1, reads_real=True)
        if half:
            self._line(source, target, half, begin=1, first=1)
            self._line(source, target, half, begin=half + 1, first=half, mirrored=True)
        return target

    def copied(self, source: End, target: End, n: int, *, writes_real: bool = False) -> End:
        """Add what copies n numbers, or their real parts; return where they lie then."""
        self._line(source, target, n, writes_real=writes_real)
        return target

    def _last_stage(
        self,
        at: StagePlace,
        source: End,
        target: End,
        direction: Direction,
        columns: int | None,
        chirp: int | None,
    ) -> None:
        swapped = direction.inverse and target.way != "planes"
        if direction.inverse and not swapped:
            target = _exchanged(target)
        n, table, turns = at.radix * at.done, BufferAddress(TABLE), (0, 0, 0)
        kind = self._kind(at, source, target, "no")
        if columns:
            kind, turns = kind._replace(turns="each"), (2 * columns, 2 * columns * at.done, columns)
            begin = self._factors.add(of_columns(n, columns))
            table = BufferAddress(TABLE, begin, self._groups.apart * self._dtype.itemsize)
        elif chirp:
            kind, turns = kind._replace(turns="each"), (0, at.done, n)
            if not self._groups.weaves:
                # Each row has one place of the spectrum.
                kind, turns = kind._replace(turns="lines"), (1, at.done, n)
                target = target._replace(strides=self._groups.strides)
            table = BufferAddress(TABLE, self._factors.add(of_spectrum(chirp, n)))
        kind = kind._replace(scaled=direction.scale != 1.0, swapped=swapped)
        sizes = self._groups.sizes(at, source, target)._replace(turns=turns)
        steps = [0] if target.way == "planes" else range(at.radix)
        self._add(stage(kind, sizes), source, target, table, [k * sizes.writes.step for k in steps])

    def _stage(self, at: StagePlace, source: End, target: End) -> None:
        weaves = self._groups.weaves and at.is_first
        kind = self._kind(at, source, target, "positions" if weaves else "rows")
        numbers = of_positions if weaves else of_rows
        table = BufferAddress(TABLE, self._factors.add(numbers(at.radix, at.left)))
        made = stage(kind, self._groups.sizes(at, source, target))
        self._add(made, source, target, table, [0])

    def _kind(self, at: StagePlace, source: End, target: End, turns: Turns) -> StageKind:
        weaves = self._groups.weaves
        return StageKind(
            self._dtype,
            at.radix,
            reads=source.way,
            writes="woven" if weaves and at.is_first else target.way,
            turns=turns,
            cut=not weaves and not (source.is_inside and target.is_inside),
        )

    def _add(
        self,
        made: StageKernel,
        source: End,
        target: End,
        table: BufferAddress,
        steps: Sequence[DimLike],
    ) -> None:
        """Add a stage.

        Args:
            made: Its kernel.
            source: What it reads.
            target: What it writes.
            table: Where its factors are.
            steps: Where the buffers begin that are written, in elements from the array's begin.
        """
        is_inside = source.is_inside and target.is_inside
        reads, writes = [self._addresses(end, is_inside=is_inside) for end in (source, target)]
        if target.way == "planes":
            writes = [self._moved(address, step) for step in steps for address in writes]
        else:
            writes = [self._moved(writes[0], step) for step in steps]
        code = KernelCode(made.kernel, self._processor)
        addresses = (*reads, table, *writes)
        items = WorkItems(1, 0 if is_inside else 1, 0)
        self._calls.append(StageCall(code, made.params, addresses, items))

    def _moved(self, address: BufferAddress, step: DimLike) -> BufferAddress:
        return address._replace(begin=address.begin + self._dtype.itemsize * step)

    def _addresses(self, end: End, *, is_inside: bool) -> list[BufferAddress]:
        """Return the addresses of both components; in a group's memory, less the groups before."""
        if is_inside or not end.is_inside:
            return list(end.addresses)
        apart = self._groups.apart * self._dtype.itemsize
        return [address._replace(apart=-apart) for address in end.addresses]

    def step(self, node: Node, source: View, target: View) -> Step:
        """Return the step of what has been added."""
        groups = self._groups
        per_item = max(1, _WORK_ITEM // groups.numbers)
        each = dim_max(1, dim_min(per_item, ceil(groups.count, _WORK_ITEMS)))
        same = (source.offset, source.shape, source.strides) == (0, target.shape, target.strides)
        return Step(
            nodes=(node,),
            code=code_of(self._calls),
            operands=(target.storage, source.storage, self._factors.table()),
            written=(True, False, False),
            params=params_of(self._calls, groups.count, each, groups.turn),
            work_items=ceil(groups.count, each),
            scratch=2 * self._used * self._plane,
            in_place=((0, 1),) if same and size_of(source.shape) == source.storage.size else (),
        )


def _exchanged(end: End) -> End:
    """Return an array with its components exchanged."""
    return end._replace(addresses=(end.addresses[1], end.addresses[0]))
