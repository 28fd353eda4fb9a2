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
    StageBuffer,
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
from graphfw.runtime.numpy_executor.fourier.groups import Columns, End, Groups, StagePosition
from graphfw.runtime.numpy_executor.fourier.halves import HalvesKind, HalvesSizes, halves
from graphfw.runtime.numpy_executor.fourier.plan import (
    Factors,
    of_columns,
    of_halves,
    of_positions,
    of_rows,
)
from graphfw.runtime.numpy_executor.fourier.stages import StageKernel, StageKind, Turns, stage
from graphfw.runtime.numpy_executor.special.moves import ceil

OUTPUT, INPUT, TABLE = range(3)
"""The operands of a step."""

_WORK_ITEM = 1 << 15
"""Numbers of a work item, if there are so many."""

_WORK_ITEMS = 8
"""So many work items keep threads busy."""


class Direction(NamedTuple):
    """Which transform it is.

    Attributes:
        inverse: Whether it is the inverse one: it exchanges the parts before and after.
        scale: What the results are multiplied by.
    """

    inverse: bool
    scale: float


class StageSequence:
    """The stages of a transform, as they are added, and the step that they make.

    Args:
        groups: What goes through them together.
        dtype: Of the parts of numbers.
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
        """How many halves of scratch memory are in use."""
        self._half = 1
        """The half that was written last."""

    def run(
        self,
        radices: Sequence[int],
        source: End,
        target: End | Callable[[], End],
        columns: int | None = None,
    ) -> End:
        """Add the stages of some radices, from one array to another.

        Args:
            radices: The radices.
            source: What is read.
            target: What is written, or what chooses it when all before is added.
            columns: How many columns there are, which are rows of a longer transform: the j-th
                result of the k-th one is turned by exp(-2 pi i j k / n).

        Returns:
            Where the result is.
        """
        if self._direction.inverse:
            source = source._replace(buffers=(source.buffers[1], source.buffers[0]))
        done, n = 1, prod(radices)
        for number, radix in enumerate(radices):
            is_last = number == len(radices) - 1
            following = target if is_last else self.scratch
            written = following() if callable(following) else following
            position = StagePosition(radix, done, n // (done * radix))
            self._stage(position, source, written, is_last=is_last, columns=columns)
            done *= radix
            source = written
        return source

    def scratch(self) -> End:
        """Return the half of scratch memory that was not written last."""
        self._half = 1 - self._half
        self._used = max(self._used, self._half + 1)
        return self._groups.scratch(self._half, self._plane)

    def rows_in(self, view: View) -> End:
        """Add what brings the rows of a matrix side by side; return where they are."""
        sizes = self._crossing_sizes(view)
        target = self.beside()
        self._cross(
            inwards(self._dtype, sizes), StageBuffer(INPUT, self._begin(view)), target.buffers[0]
        )
        return target

    def rows_out(self, source: End, view: View) -> None:
        """Add what writes the rows of matrices, whose elements lie side by side."""
        crossing = outwards(self._dtype, self._crossing_sizes(view))
        self._cross(crossing, source.buffers[0], StageBuffer(OUTPUT, self._begin(view)))

    def _crossing_sizes(self, view: View) -> CrossingSizes:
        """Return the sizes of rows: a view of [batch, rows, numbers]."""
        width = 2 if view.storage.dtype.is_complex else 1
        batch, count, length = view.shape
        assert isinstance(length, int)
        apart, row, _ = [width * stride for stride in view.strides]
        return CrossingSizes(batch, apart, count, row, width * length, self._groups.apart)

    def _begin(self, view: View) -> DimLike:
        return view.storage.dtype.itemsize * view.offset

    def _cross(self, crossing: Crossing, source: StageBuffer, target: StageBuffer) -> None:
        apart = -self._groups.apart * self._dtype.itemsize
        buffers = [
            buffer._replace(apart=apart) if buffer.operand == SCRATCH else buffer
            for buffer in (source, target)
        ]
        code, params = KernelCode(crossing.kernel.kernel, self._processor), crossing.kernel.params
        items = WorkItems(crossing.items, crossing.per_group, crossing.apart)
        self._calls.append(StageCall(code, params, tuple(buffers), items))

    def beside(self) -> End:
        """Return the half of scratch memory that was not written last, for rows side by side."""
        assert isinstance(self._groups, Columns)
        self.scratch()
        return self._groups.beside(self._half, self._plane, self._dtype.itemsize)

    def halves(self, source: End, target: End | None, n: int) -> End:
        """Add what makes the transform of n real numbers of that of n/2 complex ones, or back.

        Args:
            source: What is read: scratch memory or, with no target, what lies outside.
            target: What is written; by default scratch memory.
            n: How many real numbers there are.

        Returns:
            Where the result is.
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
            sizes = HalvesSizes(self._groups.lines(count, is_inside=is_inside), half, reads, writes)
            table = StageBuffer(TABLE)
            if not ends:
                table = StageBuffer(TABLE, self._factors.add(of_halves(n, across=across)))
            begin = 0 if ends else writes[1]
            steps = [begin, half * writes[1]] if ends and target else [begin]
            self._add(halves(kind, sizes), source, written, table, steps)
        return written

    def _stage(
        self, at: StagePosition, source: End, target: End, *, is_last: bool, columns: int | None
    ) -> None:
        weaves = self._groups.weaves and at.is_first
        turns: Turns = "no" if is_last else "positions" if weaves else "rows"
        if is_last and columns:
            turns = "each"
        kind = StageKind(
            self._dtype,
            at.radix,
            reads=source.way,
            writes="woven" if weaves else target.way,
            turns=turns,
            scaled=is_last and self._direction.scale != 1.0,
            swapped=is_last and self._direction.inverse and target.way != "planes",
            cut=not self._groups.weaves and not (source.is_inside and target.is_inside),
        )
        if is_last and self._direction.inverse and target.way == "planes":
            target = target._replace(buffers=(target.buffers[1], target.buffers[0]))
        sizes = self._groups.sizes(at, source, target)
        table = StageBuffer(TABLE)
        if turns == "each":
            assert columns
            sizes = sizes._replace(turns=(2 * columns, 2 * columns * at.done, columns))
            begin = self._factors.add(of_columns(at.radix * at.done, columns))
            table = StageBuffer(TABLE, begin, self._groups.apart * self._dtype.itemsize)
        elif turns != "no":
            numbers = of_positions if weaves else of_rows
            table = StageBuffer(TABLE, self._factors.add(numbers(at.radix, at.left)))
        steps = [0] if kind.writes in ("planes", "woven") else range(at.radix)
        self._add(stage(kind, sizes), source, target, table, [k * sizes.writes.step for k in steps])

    def _add(
        self,
        made: StageKernel,
        source: End,
        target: End,
        table: StageBuffer,
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
        reads, writes = [self._buffers_of(end, is_inside=is_inside) for end in (source, target)]
        if target.way == "planes":
            writes = [self._moved(buffer, step) for step in steps for buffer in writes]
        else:
            writes = [self._moved(writes[0], step) for step in steps]
        code = KernelCode(made.kernel, self._processor)
        buffers = (*reads, table, *writes)
        items = WorkItems(1, 0 if is_inside else 1, 0)
        self._calls.append(StageCall(code, made.params, buffers, items))

    def _moved(self, buffer: StageBuffer, step: DimLike) -> StageBuffer:
        return buffer._replace(begin=buffer.begin + self._dtype.itemsize * step)

    def _buffers_of(self, end: End, *, is_inside: bool) -> list[StageBuffer]:
        """Return the buffers of both parts; in a group's own memory, back by the groups before."""
        if is_inside or not end.is_inside:
            return list(end.buffers)
        apart = self._groups.apart * self._dtype.itemsize
        return [buffer._replace(apart=-apart) for buffer in end.buffers]

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
