"""Scans, compiled: loops over a known number of iterations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import numpy as np

from graphfw.ir.concrete import in_iteration
from graphfw.ir.dim_text import evaluate
from graphfw.ir.literal import Array
from graphfw.ir.op import NO_RNG, Rng
from graphfw.ir.tensor import Tensor
from graphfw.ops.control.scan_op import Scan
from graphfw.runtime.numpy_executor.bodies import (
    Compile,
    Compiled,
    FailedError,
    Maker,
    NotNativeError,
    ReadyBody,
    iteration_number,
    new_version,
    shape_of,
    whole,
)
from graphfw.runtime.numpy_executor.buffer_pool import OutputPool
from graphfw.runtime.numpy_executor.loops import IterationCarry, Iterations, Move
from graphfw.runtime.numpy_executor.nested_loops import IndirectAddress, NestedLoops
from graphfw.runtime.numpy_executor.node_regions import BoundRegion, Sizes
from graphfw.runtime.planning.blocks import bytes_at
from graphfw.runtime.planning.scans import body_without, stacked_carries

T = TypeVar("T")


class ScanRegion:
    """A loop over a known number of iterations.

    Attributes:
        op: What it computes.
        body: Yields the carry, then the rows of the stacks whose elements are no carry.
        rest: What these are stacks of.
        histories: The numbers of the carries whose values are kept, with the first and the last.
    """

    def __init__(self, op: Scan, compile: Compile) -> None:
        self.op = op
        self._stacked = {one.stack: one for one in stacked_carries(op)}
        body, _, captures = body_without(op, self._stacked)
        carried, self.rest = body.outputs[: op.carries], body.outputs[op.carries :]
        self.histories = sorted({one.carry for one in self._stacked.values()})
        held = [i for i in range(op.carries) if i not in self.histories]
        self.body = Compiled(body, captures, compile, is_iteration=True, carried=held)
        self.bodies = (self.body,)
        self.is_native = self.body.is_native
        self._carries = [OutputPool(t.dtype.dtype) for t in carried]
        self._stacks = [OutputPool(t.dtype.dtype) for t in self.rest]

    def ready(self, sizes: Sizes) -> BoundRegion:
        if self.is_native:
            with suppress(NotNativeError):
                return self.native(sizes)
        return partial(self._slowly, sizes, evaluate(self.op.length, sizes))

    def native(self, sizes: Sizes) -> NativeScan:
        iterations = evaluate(self.op.length, sizes)
        if not iterations:
            raise NotNativeError
        return NativeScan(self, sizes, iterations)

    def stack_makers(self, sizes: Sizes, iterations: int) -> list[Maker]:
        """Return the makers of arrays for the stacks of `rest`."""
        pairs = zip(self._stacks, self.rest, strict=True)
        return [_rows_maker(pool_of_outputs, t, sizes, iterations) for pool_of_outputs, t in pairs]

    def history_makers(self, sizes: Sizes, iterations: int) -> list[Maker]:
        """Return the makers of arrays for the histories."""
        outputs = self.body.body.outputs
        return [
            _rows_maker(self._carries[i], outputs[i], sizes, iterations + 1) for i in self.histories
        ]

    def carry_maker(self, carry: int, sizes: Sizes) -> Maker:
        """Return the maker of arrays for a carry."""
        tensor = self.body.body.outputs[carry]
        return self._carries[carry].maker(shape_of(tensor, sizes), bytes_at(tensor, sizes))

    def results(
        self, carry: Iterable[T], rest: Iterable[T], history_from: Callable[[int, int], T]
    ) -> list[T]:
        """Return the node's outputs; the stacks of carries are rows of their histories.

        Args:
            carry: The last carry.
            rest: The other stacks.
            history_from: Returns a stack that is in a history, given the number of the latter and
                in which row the stack begins.
        """
        found = list(carry)
        others = iter(rest)
        for number in range(len(self.rest) + len(self._stacked)):
            if number in self._stacked:
                _, i, is_new = self._stacked[number]
                index = self.histories.index(i)
                found.append(history_from(index, int(is_new != self.op.backwards)))
            else:
                found.append(next(others))
        return found

    def _slowly(
        self, sizes: Sizes, iterations: int, arrays: Sequence[Array], rng: Rng
    ) -> Sequence[Array]:
        op = self.op
        backwards = op.backwards
        first, last = op.carries, op.carries + op.sequences
        carry = [np.array(a, order="C") for a in arrays[:first]]
        sequences, captures = arrays[first:last], whole(arrays[last:])
        stacks = [make() for make in self.stack_makers(sizes, iterations)]
        histories = [make() for make in self.history_makers(sizes, iterations)]
        for i, history in zip(self.histories, histories, strict=True):
            history[iterations if backwards else 0] = carry[i]
        own, version = self.body.own(sizes), new_version()
        for iteration in op.order(iterations):
            elements = [np.asarray(s[iteration]) for s in sequences]
            inputs = [iteration_number(iteration), *carry, *elements, *captures]
            with in_iteration(iteration):
                made = self.body(inputs, own, rng.fold(iteration), version)
            carry = made[:first]
            for stack, result in zip(stacks, made[first:], strict=True):
                stack[iteration] = result
            for i, history in zip(self.histories, histories, strict=True):
                history[iteration + (not backwards)] = carry[i]
        return self.results(
            carry, stacks, lambda n, first: histories[n][first : first + iterations]
        )


class NativeScan:
    """The iterations of a scan, one or more, at some sizes.

    The arrays of a call are the node's inputs, what random nodes draw from, the stacks, the
    histories, the last carries, and what iterations write in turns with those not in place.
    """

    def __init__(self, scan: ScanRegion, sizes: Sizes, iterations: int) -> None:
        op, body, backwards = scan.op, scan.body, scan.op.backwards
        first, last = op.carries, op.carries + op.sequences
        parameters = len(body.body.parameters) - 1
        rows = [bytes_at(t, sizes) for t in (*body.body.parameters[1:], *body.body.outputs)]
        self._scan = scan
        self._iterations = iterations
        self._body = ReadyBody(body, sizes)
        self.bodies = (self._body,)
        self._rows = rows
        self._stacks = scan.stack_makers(sizes, iterations)
        self._histories = scan.history_makers(sizes, iterations)
        self._begin, self._end = (iterations, 0) if backwards else (0, iterations)
        self._held = [i for i in range(first) if i not in scan.histories]
        self._ends = [scan.carry_maker(i, sizes) for i in self._held]
        turning = [i for i in self._held if i not in body.in_place]
        self._turning = {i: number for number, i in enumerate(turning)}
        outputs = 1 + parameters + body.is_random
        stacks = parameters + body.is_random
        histories = stacks + len(self._stacks)
        ends = histories + len(self._histories)
        turns = ends + len(self._ends)
        moves = [Move(body.address_slot(1 + i), i, 0, rows[i]) for i in range(first, last)]
        if body.is_random:
            moves.append(
                Move(
                    body.address_slot(1 + parameters),
                    parameters,
                    0,
                    body.made.loaded.drawn(NO_RNG).nbytes,
                )
            )
        for number, _ in enumerate(scan.rest):
            nbytes = rows[parameters + first + number]
            moves.append(
                Move(body.address_slot(outputs + first + number), stacks + number, 0, nbytes)
            )
        for number, i in enumerate(scan.histories, histories):
            moves.append(Move(body.address_slot(1 + i), number, rows[i] * backwards, rows[i]))
            moves.append(
                Move(body.address_slot(outputs + i), number, rows[i] * (not backwards), rows[i])
            )
        carries = []
        for number, i in enumerate(self._held):
            end = ends + number
            rooms = (end, turns + self._turning[i] if i in self._turning else end)
            turn = rooms if iterations % 2 else rooms[::-1]
            carries.append(
                IterationCarry(body.address_slot(1 + i), body.address_slot(outputs + i), 0, i, turn)
            )
        self._make_iterations = Iterations(
            self._body.work,
            body.address_slot(0),
            {i: body.address_slot(1 + i) for i in range(last, parameters)},
            moves,
            carries,
            arrays=turns + len(turning),
            iterations=iterations,
            backwards=backwards,
        )

    def __call__(self, arrays: Sequence[Array], rng: Rng) -> Sequence[Array]:
        scan, body = self._scan, self._body
        stacks = [make() for make in self._stacks]
        histories = [make() for make in self._histories]
        for i, history in zip(scan.histories, histories, strict=True):
            history[self._begin] = arrays[i]
        ends = [make() for make in self._ends]
        turns = [self._ends[self._held.index(i)]() for i in self._turning]
        drawn = []
        if scan.body.is_random:
            loaded = scan.body.made.loaded
            drawn.append(
                np.stack(
                    [loaded.drawn(rng.fold(iteration)) for iteration in range(self._iterations)]
                )
            )
        body.prepare(arrays[scan.op.carries + scan.op.sequences :])
        arena = body.take()
        try:
            made = self._make_iterations((*arrays, *drawn, *stacks, *histories, *ends, *turns))
        finally:
            body.give(arena)
        if made is None:
            raise FailedError
        if histories:
            carry = dict(zip(self._held, ends, strict=True))
            for i, history in zip(scan.histories, histories, strict=True):
                carry[i] = np.array(history[self._end])  # of scalars, too
            ends = [carry[i] for i in range(len(carry))]
        iterations = self._iterations
        return scan.results(ends, stacks, lambda n, first: histories[n][first : first + iterations])

    def join(
        self,
        chain: NestedLoops,
        sources: Sequence[IndirectAddress],
        room: Callable[[int], IndirectAddress],
    ) -> list[IndirectAddress]:
        """Add it to a chain.

        Args:
            chain: The chain.
            sources: Where the node's inputs lie.
            room: Makes room for so many bytes.

        Returns:
            Where the results are.
        """
        scan, iterations = self._scan, self._make_iterations
        first, count = scan.op.carries, len(sources)
        stacks = [room(self._iterations * n) for n in self._rows[count + first :]]
        histories = [room((self._iterations + 1) * self._rows[i]) for i in scan.histories]
        ends = [room(self._rows[i]) for i in self._held]
        turns = [room(self._rows[i]) for i in self._turning]
        self._body.join(chain, sources)
        arrays = [*sources, *stacks, *histories, *ends, *turns]
        chain.add_addresses([(s, iterations.address_word(n)) for n, s in enumerate(arrays)])
        begins = []
        for number, i in enumerate(scan.histories, count + len(stacks)):
            nbytes = self._rows[i]
            target = IndirectAddress(iterations.address_word(number), self._begin * nbytes)
            begins.append((IndirectAddress(iterations.address_word(i), 0), target, nbytes))
        chain.add_copies(begins)
        chain.add_loop(iterations)
        carry = dict(zip(self._held, ends, strict=True))
        for i, history in zip(scan.histories, histories, strict=True):
            carry[i] = history.offset_by(self._end * self._rows[i])
        return scan.results(
            [carry[i] for i in range(first)],
            stacks,
            lambda n, row: histories[n].offset_by(row * self._rows[scan.histories[n]]),
        )


def _rows_maker(pool_of_outputs: OutputPool, tensor: Tensor, sizes: Sizes, count: int) -> Maker:
    """Return the maker of arrays of so many rows, each like a tensor."""
    return pool_of_outputs.maker((count, *shape_of(tensor, sizes)), count * bytes_at(tensor, sizes))
