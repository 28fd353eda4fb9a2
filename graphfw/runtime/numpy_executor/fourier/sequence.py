"""`StageSequence`: the step that takes an array through the stages of a transform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphfw.ir.dim import DimLike, dim_max, dim_min
from graphfw.ir.dtype import DType
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.codegen.target import Processor
from graphfw.runtime.numpy_executor.fourier.code import Place, StageCall, code_of, params_of
from graphfw.runtime.numpy_executor.fourier.groups import End, Groups, StagePlace
from graphfw.runtime.numpy_executor.fourier.plan import Factors, of_positions, of_rows
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
        self._halves = 0

    def run(self, radices: Sequence[int], source: End, target: End) -> None:
        """Add the stages of some radices, from one array to another."""
        done = 1
        for number, radix in enumerate(radices):
            is_last = number == len(radices) - 1
            following = target if is_last else self._groups.scratch(number % 2, self._plane)
            if not is_last:
                self._halves = max(self._halves, number % 2 + 1)
            done *= radix
            left = self._length(radices) // done
            self._stage(StagePlace(radix, done // radix, left), source, following, is_last=is_last)
            source = following

    @staticmethod
    def _length(radices: Sequence[int]) -> int:
        n = 1
        for radix in radices:
            n *= radix
        return n

    def _stage(self, at: StagePlace, source: End, target: End, *, is_last: bool) -> None:
        weaves = self._groups.weaves and at.is_first
        turns: Turns = "no" if is_last else "positions" if weaves else "rows"
        kind = StageKind(
            self._dtype,
            at.radix,
            reads=source.way,
            writes="woven" if weaves else target.way,
            turns=turns,
            scaled=is_last and self._direction.scale != 1.0,
            swapped=is_last and self._direction.inverse,
            cut=not self._groups.weaves and not (source.is_inside and target.is_inside),
        )
        sizes = self._groups.sizes(at, source, target)
        table = 0
        if turns != "no":
            numbers = of_positions if weaves else of_rows
            table = self._factors.add(numbers(at.radix, at.left))
        steps = [0] if kind.writes in ("planes", "woven") else range(at.radix)
        self._add(stage(kind, sizes), source, target, table, [k * sizes.writes.step for k in steps])

    def _add(
        self, made: StageKernel, source: End, target: End, table: int, steps: Sequence[DimLike]
    ) -> None:
        """Add a stage.

        Args:
            made: Its kernel.
            source: What it reads.
            target: What it writes.
            table: Where its factors are, in bytes.
            steps: Where the buffers that have both parts begin, in elements; 0 where each part has
                one.
        """
        is_inside = source.is_inside and target.is_inside
        reads, writes = [self._places(end, is_inside=is_inside) for end in (source, target)]
        if self._direction.inverse and source.strides:
            reads.reverse()
        if target.way != "planes":
            begin = writes[0].begin
            writes = [Place(OUTPUT, begin + self._dtype.itemsize * step) for step in steps]
        code = KernelCode(made.kernel, self._processor)
        places = (*reads, Place(TABLE, table), *writes)
        self._calls.append(StageCall(code, made.params, places, is_inside))

    def _places(self, end: End, *, is_inside: bool) -> list[Place]:
        """Return the places of both parts; of a group's own memory, back by the groups before."""
        if is_inside or not end.is_inside:
            return list(end.places)
        apart = self._groups.apart * self._dtype.itemsize
        return [place._replace(apart=-apart) for place in end.places]

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
            scratch=2 * self._halves * self._plane,
            in_place=((0, 1),) if same and size_of(source.shape) == source.storage.size else (),
        )
