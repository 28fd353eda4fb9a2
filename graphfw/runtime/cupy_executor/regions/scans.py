"""Scans: loops over a known number of iterations, which may be part of a CUDA graph as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphfw.errors import counted
from graphfw.ir.concrete import in_iteration
from graphfw.ir.dim import divisible
from graphfw.ir.dim_text import evaluate
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Node
from graphfw.ops.control.scan_op import Scan
from graphfw.runtime.cupy_executor.addresses import WELL, GpuAddress
from graphfw.runtime.cupy_executor.regions.common import (
    MOST_LAUNCHES,
    BoundRegion,
    Maker,
    RegionCode,
    RegionSite,
)
from graphfw.runtime.planning.blocks import nbytes
from graphfw.runtime.planning.scans import StackedCarry, body_without, stacked_carries

if TYPE_CHECKING:
    from graphfw.runtime.cupy_executor.runs import RunMemory, Worker


class ScanRegionCode(RegionCode):
    """A scan, for all sizes.

    The body yields the next carry, then the rows of the stacks that are of no carry. Params: as of
    all regions, then how far apart the rows of each sequence are, in elements.

    Attributes:
        op: The scan.
        kept: By carry, the stack where its values are: iterations hand it on there, and the body
            need not copy it.
        rest: The other stacks.
        in_place: The carries that an iteration writes over.
    """

    def __init__(self, node: Node, make: Maker) -> None:
        op = node.op
        assert isinstance(op, Scan)
        self.op = op
        self.kept = _kept(op)
        body, self.rest, captures = body_without(op, [kept.stack for kept in self.kept.values()])
        build = make(body, captures, [i for i in range(op.carries) if i not in self.kept])
        super().__init__(node, [build])
        self.in_place = build.stages.overwritten

    @property
    def sequences(self) -> range:
        return range(self.op.carries, self.op.carries + self.op.sequences)

    def ready(self, at: RegionSite) -> BoundRegion:
        return BoundScan(self, at)


def _kept(op: Scan) -> dict[int, StackedCarry]:
    """Find the stacks of carries whose rows are where a carry may lie, one a carry at most."""
    found: dict[int, StackedCarry] = {}
    for one in stacked_carries(op):
        row = op.body.outputs[op.carries + one.stack]
        if divisible(nbytes(row), WELL):
            found.setdefault(one.carry, one)
    return found


class BoundScan(BoundRegion):
    """A scan at known sizes."""

    def __init__(self, code: ScanRegionCode, at: RegionSite) -> None:
        op, env, (layouts,) = code.op, at.env, at.inside
        strides = at.params[len(code.node.inputs) :]
        first = op.carries
        self._code = code
        self._iterations = iterations = evaluate(op.length, env)
        tensors = op.body.parameters[1:]
        self._strides = [
            stride * tensors[i].dtype.itemsize
            for i, stride in zip(code.sequences, strides, strict=True)
        ]
        self._rows = at.bytes_of(op.body.outputs)
        # What does not lie as well as an array does, by the body's slots.
        loose = {
            1 + i
            for i, stride in zip(code.sequences, self._strides, strict=True)
            if at.operands[i].offset % WELL or stride % WELL
        }
        handed = layouts.handed
        for number, k in enumerate(code.rest, first):
            if self._rows[first + k] % WELL:
                loose.add(handed[number])
        body = layouts.body(env, frozenset(loose)) if iterations else None
        super().__init__(code.node, at, [body])
        self._each, self.launches = (
            self.launches,
            self.launches * iterations + layouts.once.launches,
        )
        self._turns = {
            i: self.room(self._rows[i])
            for i in range(first)
            if iterations > 1 and i not in code.in_place and i not in code.kept
        }
        # Kernels that need more than that are given copies.
        self._copies = {
            slot: self.room(layouts.nbytes_of(slot, env)) for slot in sorted(loose & layouts.rigid)
        }
        wants_number = iterations and layouts.build.reads(op.body.parameters[0])
        self._numbers = layouts.device.numbers(iterations) if wants_number else None
        self._drawn = 0 if body is None else body.drawn
        self.drawn = iterations * self._drawn
        if not self.why_not_captured and self.launches > MOST_LAUNCHES:
            self.why_not_captured = (
                f"its {self.launches:,} launches are more than {MOST_LAUNCHES:,}"
            )

    @property
    def how(self) -> str:
        return f"{counted(self._iterations, 'iteration')} of {self._each} launches"

    def fill(self, rng: Rng, table: Any, begin: int) -> None:
        (body,) = self.bodies
        if self.drawn and body is not None:
            for iteration in range(self._iterations):
                body.fill(rng.fold(iteration), table, begin + iteration * self._drawn)

    def run(self, worker: Worker, run: RunMemory, rng: Rng) -> None:
        op, first = self._code.op, self._code.op.carries
        borrowed = [run.address_of(index) for index in self.operands]
        input_addresses, made = borrowed[: len(self.node.inputs)], borrowed[len(self.node.inputs) :]
        ends, stacks = made[:first], made[first:]
        for stack, i, is_new in self._code.kept.values():
            if not is_new and self._iterations:
                begin = stacks[stack].offset_by(self._row(0) * self._rows[i])
                worker.copy(begin.address, input_addresses[i].address, self._rows[i])
        carry = input_addresses[:first]
        if self._iterations:
            body = self.begun(worker, run, 0, input_addresses[first + op.sequences :])
            for index, iteration in enumerate(op.order(self._iterations)):
                new = [self._target(i, index, run, ends, stacks) for i in range(first)]
                self._lie(
                    body,
                    iteration,
                    carry,
                    input_addresses,
                    [*new, *self._results(iteration, stacks)],
                )
                if self._drawn:
                    body.draw_from(run.drawn.offset_by(self.begin + 8 * iteration * self._drawn))
                with in_iteration(iteration):
                    self._iteration(worker, run, body, rng.fold(iteration))
                carry = new
        self.end(worker, carry, ends, self._rows)

    def _row(self, index: int) -> int:
        """Return the number of an iteration, given how many come before it."""
        return self._iterations - 1 - index if self._code.op.backwards else index

    def _target(
        self,
        i: int,
        index: int,
        run: RunMemory,
        ends: Sequence[GpuAddress],
        stacks: Sequence[GpuAddress],
    ) -> GpuAddress:
        """Return where an iteration writes a carry."""
        is_last = index == self._iterations - 1
        kept = self._code.kept.get(i)
        if kept is not None and (kept.is_new or not is_last):
            row = self._row(index if kept.is_new else index + 1)
            return stacks[kept.stack].offset_by(row * self._rows[i])
        # Turn by turn, so that the last one is where the scan's result lies.
        is_end = i not in self._turns or (self._iterations - 1 - index) % 2 == 0
        return ends[i] if is_end else run.inside(self._turns[i])

    def _results(self, iteration: int, stacks: Sequence[GpuAddress]) -> list[GpuAddress]:
        """Return where an iteration writes its rows of the stacks."""
        first = self._code.op.carries
        return [stacks[k].offset_by(iteration * self._rows[first + k]) for k in self._code.rest]

    def _lie(
        self,
        body: RunMemory,
        iteration: int,
        carry: Sequence[GpuAddress],
        input_addresses: Sequence[GpuAddress],
        results: Sequence[GpuAddress],
    ) -> None:
        """Say where the body finds what it takes in an iteration, and where its results go."""
        if self._numbers is not None:
            body.lie(0, self._numbers.offset_by(WELL * iteration))
        for slot, spot in enumerate(carry, 1):
            body.lie(slot, spot)
        for i, stride in zip(self._code.sequences, self._strides, strict=True):
            body.lie(1 + i, input_addresses[i].offset_by(iteration * stride))
        for slot, spot in zip(body.layout.of.handed, results, strict=True):
            body.lie(slot, spot)

    def _iteration(self, worker: Worker, run: RunMemory, body: RunMemory, rng: Rng) -> None:
        layout = body.layout
        after = []
        for slot, begin in self._copies.items():
            spot, copy, nbytes = body.borrowed[slot], run.inside(begin), layout.nbytes[slot]
            body.lie(slot, copy)
            if slot in layout.of.handed:
                after.append((spot.address, copy.address, nbytes))
            else:
                worker.copy(copy.address, spot.address, nbytes)
        worker.work(body, layout.segments, rng)
        for target, source, nbytes in after:
            worker.copy(target, source, nbytes)
