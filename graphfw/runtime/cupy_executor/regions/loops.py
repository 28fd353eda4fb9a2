"""Loops with a condition, which Python reads before each iteration, and their backward passes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from graphfw.ir.concrete import in_iteration
from graphfw.ir.dtype import bool_
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Node
from graphfw.ops.control.loop_op import Loop
from graphfw.runtime.cupy_executor.addresses import WELL, GpuAddress
from graphfw.runtime.cupy_executor.regions.common import (
    BoundRegion,
    Maker,
    RegionCode,
    RegionSite,
)
from graphfw.runtime.planning.arena import rounded, side_by_side

if TYPE_CHECKING:
    from graphfw.runtime.cupy_executor.runs import RunMemory, Worker


class WhileRegionCode(RegionCode):
    """A loop with a condition, for all sizes. The bodies are the condition, then the passes.

    Attributes:
        op: The loop.
        in_place: The carries of the first pass that an iteration writes over.
    """

    def __init__(self, node: Node, make: Maker) -> None:
        assert isinstance(node.op, Loop)
        self.op = op = node.op
        captures = len(node.inputs) - sum(op.carries)
        condition, first, *rest = op.bodies
        only = () if rest else range(op.carries[0])
        builds = [make(condition, captures), make(first, captures, only)]
        super().__init__(node, [*builds, *[make(body, captures) for body in rest]])
        self.in_place = builds[1].stages.overwritten

    def ready(self, at: RegionSite) -> BoundRegion:
        return BoundLoop(self, at)


class BoundLoop(BoundRegion):
    """A loop with a condition at known sizes.

    How many iterations there are is known only after them. So what they record for later passes
    is in memory that is asked for meanwhile.
    """

    def __init__(self, code: WhileRegionCode, at: RegionSite) -> None:
        super().__init__(code.node, at, at.laid_out())
        self.why_not_captured = "Python reads its condition before each iteration"
        self._code = code
        self._results = [at.bytes_of(body.outputs) for body in code.op.passes]
        self._device = at.inside[0].device
        self._answer = self.room(bool_.itemsize)
        largest = max([body.drawn for body in self.bodies if body is not None], default=0)
        self._table = self.room(8 * largest)
        only = range(code.op.carries[0]) if len(code.op.passes) == 1 else ()
        self._turns = {i: self.room(self._results[0][i]) for i in only if i not in code.in_place}
        *recorded, last = [sum(map(rounded, sizes)) for sizes in self._results]
        self.per_iteration = sum(recorded)
        self.outside = 2 * last if recorded else 0

    @property
    def how(self) -> str:
        passes = len(self._code.op.passes)
        return (
            f"iterations of {self.launches} launches{f' in {passes} passes' if passes > 1 else ''}"
        )

    def run(self, worker: Worker, run: RunMemory, rng: Rng) -> None:
        op = self._code.op
        inputs = len(self.node.inputs)
        input_addresses = [run.address_of(address) for address in self.operands[:inputs]]
        ends, _ = op.split([run.address_of(address) for address in self.operands[inputs:]])
        carries, captures = op.split(input_addresses)
        rooms: dict[int, list[Sequence[GpuAddress]]] = {}  # of the passes that have begun

        def computed(
            number: int, iteration: int, taken: Sequence[GpuAddress]
        ) -> Sequence[GpuAddress]:
            if number not in rooms:
                self.begun(worker, run, 1 + number, captures)
                rooms[number] = self._rooms(worker, run, number, ends[0])
            turns = rooms[number]
            made = turns[iteration % 2] if turns else self._record(worker, run, number)
            self._iteration(worker, run, rng, number, iteration, taken, made)
            return made

        self.begun(worker, run, 0, captures)
        holds = partial(self._holds, worker, run, rng)
        for number, carry in enumerate(op.ends(carries, holds, computed)):
            self.end(worker, carry, ends[number], self._results[number])

    def _rooms(
        self, worker: Worker, run: RunMemory, number: int, ends: Sequence[GpuAddress]
    ) -> list[Sequence[GpuAddress]]:
        """Return the addresses that iterations of a pass write to in turn; none if each is kept."""
        last = len(self._code.op.passes) - 1
        if not last:
            turns = [
                run.inside(self._turns[i]) if i in self._turns else end
                for i, end in enumerate(ends)
            ]
            return [ends, turns]
        # Nobody is given what the last one makes.
        return [self._record(worker, run, number) for _ in range(2)] if number == last else []

    def _holds(self, worker: Worker, run: RunMemory, rng: Rng, carry: Sequence[GpuAddress]) -> bool:
        body, answer = self.started(run, 0), run.inside(self._answer)
        for slot, spot in enumerate(carry):
            body.lie(slot, spot)
        body.lie(body.layout.of.handed[0], answer)
        self._draw(worker, run, body, rng)
        worker.work(body, body.layout.segments, rng)
        return bool(worker.read(answer.address, bool_, run))

    def _iteration(
        self,
        worker: Worker,
        run: RunMemory,
        rng: Rng,
        number: int,
        iteration: int,
        input_addresses: Sequence[GpuAddress],
        made: Sequence[GpuAddress],
    ) -> None:
        body = self.started(run, 1 + number)
        body.lie(0, self._device.numbers(iteration + 1).offset_by(WELL * iteration))
        for slot, spot in enumerate(input_addresses, 1):
            body.lie(slot, spot)
        for slot, spot in zip(body.layout.of.handed, made, strict=True):
            body.lie(slot, spot)
        own = rng.fold(iteration)
        self._draw(worker, run, body, own)
        with in_iteration(iteration):
            worker.work(body, body.layout.segments, own)

    def _draw(self, worker: Worker, run: RunMemory, body: RunMemory, rng: Rng) -> None:
        """Send what a body draws from."""
        if body.layout.drawn:
            table = np.empty(body.layout.drawn, np.int64)
            body.layout.fill(rng, table, 0)
            worker.send(table, run.inside(self._table))
            body.draw_from(run.inside(self._table))

    def _record(self, worker: Worker, run: RunMemory, number: int) -> list[GpuAddress]:
        """Return new memory for what an iteration of a pass yields."""
        begins, nbytes = side_by_side(self._results[number])
        memory = worker.room(run.layout, partial(worker.bytes, max(nbytes, 1)))
        return [GpuAddress(memory.data.ptr + begin, memory, begin) for begin in begins]
