"""Scans: loops over a known number of iterations, which may be part of a CUDA graph as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from graphfw.errors import counted
from graphfw.ir.body import Body
from graphfw.ir.concrete import in_iteration
from graphfw.ir.dim import divisible
from graphfw.ir.dim_text import evaluate
from graphfw.ir.op import Rng
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.control.scan_op import Scan
from graphfw.runtime.cupy_executor.addresses import WELL, GpuAddress, StorageAddress
from graphfw.runtime.cupy_executor.regions.common import (
    MOST_LAUNCHES,
    BoundRegion,
    Maker,
    RegionCode,
    Sizes,
    bytes_of,
    overwritten,
)

if TYPE_CHECKING:
    from graphfw.runtime.cupy_executor.layouts import GpuLayouts
    from graphfw.runtime.cupy_executor.runs import RunMemory, Worker


class CarryStack(NamedTuple):
    """A stack of all values of a carry: iterations hand it on there, and the body need not copy it.

    Attributes:
        stack: Which stack of the scan.
        is_new: Whether its rows are what iterations yield, rather than what they begin with.
    """

    stack: int
    is_new: bool


class ScanRegionCode(RegionCode):
    """A scan, for all sizes.

    The body yields the next carry, then the rows of the stacks that are of no carry. Params: as of
    all regions, then how far apart the rows of each sequence are, in elements.

    Attributes:
        op: The scan.
        kept: By carry, where its values are stacked.
        rest: The other stacks.
        in_place: The carries that an iteration writes over.
    """

    def __init__(self, node: Node, make: Maker) -> None:
        op = node.op
        assert isinstance(op, Scan)
        self.op = op
        first = op.carries
        carried, stacked = op.body.outputs[:first], op.body.outputs[first:]
        self.kept = _kept(op.body.parameters[1 : 1 + first], carried, stacked)
        gone = {kept.stack for kept in self.kept.values()}
        self.rest = [number for number in range(len(stacked)) if number not in gone]
        body = Body(op.body.parameters, (*carried, *[stacked[number] for number in self.rest]))
        captures = len(node.inputs) - first - op.sequences
        build = make(body, captures)
        super().__init__(node, [build])
        self.in_place = overwritten(build, body.parameters[1 : 1 + first]) - self.kept.keys()

    @property
    def sequences(self) -> range:
        return range(self.op.carries, self.op.carries + self.op.sequences)

    def ready(
        self,
        env: Sizes,
        params: Sequence[int],
        operands: Sequence[StorageAddress],
        inside: Sequence[GpuLayouts],
    ) -> BoundRegion:
        return BoundScan(self, env, params[len(self.node.inputs) :], operands, inside[0])


def _kept(
    given: Sequence[Tensor], carried: Sequence[Tensor], stacked: Sequence[Tensor]
) -> dict[int, CarryStack]:
    """Find the stacks of carries whose rows are where a carry may lie, one a carry at most."""
    carry_of = {t: (i, False) for i, t in enumerate(given)}
    carry_of.update({t: (i, True) for i, t in enumerate(carried)})
    found: dict[int, CarryStack] = {}
    for number, t in enumerate(stacked):
        if t in carry_of and divisible(t.type.size * t.dtype.itemsize, WELL):
            i, is_new = carry_of[t]
            found.setdefault(i, CarryStack(number, is_new))
    return found


class BoundScan(BoundRegion):
    """A scan at known sizes."""

    def __init__(
        self,
        code: ScanRegionCode,
        env: Sizes,
        strides: Sequence[int],
        operands: Sequence[StorageAddress],
        layouts: GpuLayouts,
    ) -> None:
        op = code.op
        first = op.carries
        self._code = code
        self._iterations = iterations = evaluate(op.length, env)
        tensors = op.body.parameters[1:]
        self._strides = [
            stride * tensors[i].dtype.itemsize
            for i, stride in zip(code.sequences, strides, strict=True)
        ]
        self._rows = bytes_of(op.body.outputs, env)
        # What does not lie as well as an array does, by the body's slots.
        loose = {
            1 + i
            for i, stride in zip(code.sequences, self._strides, strict=True)
            if operands[i].offset % WELL or stride % WELL
        }
        handed = layouts.handed
        for number, k in enumerate(code.rest, first):
            if self._rows[first + k] % WELL:
                loose.add(handed[number])
        body = layouts.body(env, frozenset(loose)) if iterations else None
        super().__init__(code.node, operands, [body])
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
        if not self.alone and self.launches > MOST_LAUNCHES:
            self.alone = f"its {self.launches:,} launches are more than {MOST_LAUNCHES:,}"

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
        borrowed = [run.address_of(place) for place in self.operands]
        given, made = borrowed[: len(self.node.inputs)], borrowed[len(self.node.inputs) :]
        ends, stacks = made[:first], made[first:]
        for i, (stack, is_new) in self._code.kept.items():
            if not is_new and self._iterations:
                begin = stacks[stack].offset_by(self._row(0) * self._rows[i])
                worker.copy(begin.address, given[i].address, self._rows[i])
        carry = given[:first]
        if self._iterations:
            body = self.begun(worker, run, 0, given[first + op.sequences :])
            for place in range(self._iterations):
                iteration = self._row(place)
                new = [self._target(i, place, run, ends, stacks) for i in range(first)]
                self._lie(body, iteration, carry, given, [*new, *self._results(iteration, stacks)])
                if self._drawn:
                    body.draw_from(run.drawn.offset_by(self.begin + 8 * iteration * self._drawn))
                with in_iteration(iteration):
                    self._iteration(worker, run, body, rng.fold(iteration))
                carry = new
        for spot, end, nbytes in zip(carry, ends, self._rows, strict=False):
            if spot.address != end.address:
                worker.copy(end.address, spot.address, nbytes)

    def _row(self, place: int) -> int:
        """Return the number of an iteration, given how many come before it."""
        return self._iterations - 1 - place if self._code.op.backwards else place

    def _target(
        self,
        i: int,
        place: int,
        run: RunMemory,
        ends: Sequence[GpuAddress],
        stacks: Sequence[GpuAddress],
    ) -> GpuAddress:
        """Return where an iteration writes a carry."""
        is_last = place == self._iterations - 1
        kept = self._code.kept.get(i)
        if kept is not None and (kept.is_new or not is_last):
            row = self._row(place if kept.is_new else place + 1)
            return stacks[kept.stack].offset_by(row * self._rows[i])
        # Turn by turn, so that the last one is where the scan's result lies.
        is_end = i not in self._turns or (self._iterations - 1 - place) % 2 == 0
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
        given: Sequence[GpuAddress],
        results: Sequence[GpuAddress],
    ) -> None:
        """Say where the body finds what it takes in an iteration, and where its results go."""
        if self._numbers is not None:
            body.lie(0, self._numbers.offset_by(WELL * iteration))
        for slot, spot in enumerate(carry, 1):
            body.lie(slot, spot)
        for i, stride in zip(self._code.sequences, self._strides, strict=True):
            body.lie(1 + i, given[i].offset_by(iteration * stride))
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
        worker.work(body, layout.parts, rng)
        for target, source, nbytes in after:
            worker.copy(target, source, nbytes)
