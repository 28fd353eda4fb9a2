"""Loops with a condition, which Python reads before each iteration, and their backward passes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, count
from typing import TYPE_CHECKING

import numpy as np

from graphfw.ir.concrete import in_iteration
from graphfw.ir.dtype import bool_
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Node
from graphfw.ops.control.loop_op import Loop
from graphfw.runtime.cupy_executor.addresses import WELL, GpuAddress, StorageAddress
from graphfw.runtime.cupy_executor.regions.common import (
    BoundRegion,
    Maker,
    RegionCode,
    Sizes,
    bytes_of,
    laid_out,
    overwritten,
    rounded,
)

if TYPE_CHECKING:
    from graphfw.runtime.cupy_executor.layouts import GpuLayouts
    from graphfw.runtime.cupy_executor.runs import RunMemory, Worker


class WhileRegionCode(RegionCode):
    """A loop with a condition, for all sizes. The bodies are the condition, then the passes.

    Attributes:
        op: The loop, which may be in blocks of iterations.
        in_place: The carries of the first pass that an iteration writes over.
    """

    def __init__(self, node: Node, op: Loop, make: Maker) -> None:
        self.op = op
        captures = len(node.inputs) - sum(op.carries)
        super().__init__(node, [make(body, captures) for body in op.bodies])
        parameters = op.passes[0].parameters[1 : 1 + op.carries[0]]
        self.in_place = overwritten(self.builds[1], parameters)

    def ready(
        self,
        env: Sizes,
        params: Sequence[int],
        operands: Sequence[StorageAddress],
        inside: Sequence[GpuLayouts],
    ) -> BoundRegion:
        return BoundLoop(self, env, operands, inside)


class BoundLoop(BoundRegion):
    """A loop with a condition at known sizes.

    How many iterations there are is known only behind them. So what they record for later passes
    lies in memory that is asked for meanwhile.
    """

    def __init__(
        self,
        code: WhileRegionCode,
        env: Sizes,
        operands: Sequence[StorageAddress],
        inside: Sequence[GpuLayouts],
    ) -> None:
        super().__init__(code.node, operands, [laid_out(layouts, env) for layouts in inside])
        self.alone = "Python reads its condition before each iteration"
        self._code = code
        self._results = [bytes_of(body.outputs, env) for body in code.op.passes]
        self._device = inside[0].device
        self._answer = self.room(bool_.itemsize)
        largest = max([body.drawn for body in self.bodies if body is not None], default=0)
        self._table = self.room(8 * largest)
        only = range(code.op.carries[0]) if len(code.op.passes) == 1 else ()
        self._turns = {i: self.room(self._results[0][i]) for i in only if i not in code.in_place}
        *recorded, last = [sum(map(rounded, sizes)) for sizes in self._results]
        self.per_trip = sum(recorded)
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
        given = [run.address_of(place) for place in self.operands[:inputs]]
        ends, _ = op.split([run.address_of(place) for place in self.operands[inputs:]])
        carries, captures = op.split(given)
        records: list[list[GpuAddress]] = []
        carry = self._first(worker, run, rng, carries[0], ends[0], captures, records)
        self._end(worker, carry, ends[0], 0)
        for number in range(1, len(op.passes)):
            carry = carries[number]
            order = range(len(records))
            turns: list[list[GpuAddress]] = []
            if order:
                self.begun(worker, run, 1 + number, captures)
                if number == len(op.passes) - 1:  # nobody is given what it makes
                    turns = [self._record(worker, run, number) for _ in range(2)]
            for iteration in reversed(order) if op.backwards[number] else order:
                made = turns[iteration % 2] if turns else self._record(worker, run, number)
                self._iteration(
                    worker, run, rng, number, iteration, [*carry, *records[iteration]], made
                )
                if turns:
                    records[iteration].clear()  # no pass comes that is given it
                else:
                    records[iteration] += [*carry, *made[len(carry) :]]
                carry = made[: len(carry)]
            self._end(worker, carry, ends[number], number)

    def _first(
        self,
        worker: Worker,
        run: RunMemory,
        rng: Rng,
        carry: Sequence[GpuAddress],
        ends: Sequence[GpuAddress],
        captures: Sequence[GpuAddress],
        records: list[list[GpuAddress]],
    ) -> Sequence[GpuAddress]:
        """Make the iterations while the condition holds; return the last carry."""
        only = len(self._code.op.passes) == 1
        self.begun(worker, run, 0, captures)
        for iteration in count():
            if not self._holds(worker, run, rng, carry):
                break
            if not iteration:
                self.begun(worker, run, 1, captures)
            if only:
                new = [
                    run.inside(self._turns[i]) if iteration % 2 and i in self._turns else end
                    for i, end in enumerate(ends)
                ]
            else:
                new = self._record(worker, run, 0)
            self._iteration(worker, run, rng, 0, iteration, carry, new)
            if not only:
                records.append([*carry, *new[len(carry) :]])
            carry = new[: len(carry)]
        return carry

    def _holds(self, worker: Worker, run: RunMemory, rng: Rng, carry: Sequence[GpuAddress]) -> bool:
        body, answer = self.started(run, 0), run.inside(self._answer)
        for slot, spot in enumerate(carry):
            body.lie(slot, spot)
        body.lie(body.layout.of.handed[0], answer)
        self._draw(worker, run, body, rng)
        worker.work(body, body.layout.parts, rng)
        return bool(worker.read(answer.address, bool_, run))

    def _iteration(
        self,
        worker: Worker,
        run: RunMemory,
        rng: Rng,
        number: int,
        iteration: int,
        given: Sequence[GpuAddress],
        made: Sequence[GpuAddress],
    ) -> None:
        body = self.started(run, 1 + number)
        body.lie(0, self._device.numbers(iteration + 1).offset_by(WELL * iteration))
        for slot, spot in enumerate(given, 1):
            body.lie(slot, spot)
        for slot, spot in zip(body.layout.of.handed, made, strict=True):
            body.lie(slot, spot)
        own = rng.fold(iteration)
        self._draw(worker, run, body, own)
        with in_iteration(iteration):
            worker.work(body, body.layout.parts, own)

    def _draw(self, worker: Worker, run: RunMemory, body: RunMemory, rng: Rng) -> None:
        """Send what a body draws from."""
        if body.layout.drawn:
            table = np.empty(body.layout.drawn, np.int64)
            body.layout.fill(rng, table, 0)
            worker.send(table, run.inside(self._table))
            body.draw_from(run.inside(self._table))

    def _record(self, worker: Worker, run: RunMemory, number: int) -> list[GpuAddress]:
        """Return new memory for what an iteration of a pass yields."""
        sizes = [rounded(nbytes) for nbytes in self._results[number]]
        begins = [0, *accumulate(sizes)]
        memory = worker.room(run.layout, partial(worker.bytes, max(begins[-1], 1)))
        return [GpuAddress(memory.data.ptr + begin, memory, begin) for begin in begins[:-1]]

    def _end(
        self, worker: Worker, carry: Sequence[GpuAddress], ends: Sequence[GpuAddress], number: int
    ) -> None:
        """Bring the last carry where the node's results lie."""
        for spot, end, nbytes in zip(carry, ends, self._results[number], strict=False):
            if spot.address != end.address:
                worker.copy(end.address, spot.address, nbytes)
