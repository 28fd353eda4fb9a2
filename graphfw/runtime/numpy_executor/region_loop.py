"""Loops with a condition, compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from graphfw.ir.concrete import in_iteration
from graphfw.ir.literal import Array
from graphfw.ir.op import Rng
from graphfw.ops.control.loop_op import Loop
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
from graphfw.runtime.numpy_executor.loops import Condition, IterationCarry, Iterations
from graphfw.runtime.numpy_executor.nested_loops import IndirectAddress, NestedLoops
from graphfw.runtime.numpy_executor.node_regions import BoundRegion, Sizes
from graphfw.runtime.planning.blocks import bytes_at


class LoopRegion:
    """A loop while a condition holds, and passes back over its iterations."""

    def __init__(self, op: Loop, compile: Compile) -> None:
        self.op = op
        captures = len(op.condition.parameters) - op.carries[0]
        self.condition = Compiled(op.condition, captures, compile, is_iteration=True)
        only = range(op.carries[0]) if len(op.passes) == 1 else ()
        self.passes = [
            Compiled(body, captures, compile, is_iteration=True, carried=only) for body in op.passes
        ]
        self.bodies = (self.condition, *self.passes)
        self.is_native = (
            len(self.passes) == 1
            and self.condition.made.loaded.recipe.is_plain
            and self.passes[0].is_native
            and not any(body.is_random for body in self.bodies)
        )
        self._carries = [OutputPool(t.dtype.dtype) for t in op.passes[0].outputs[: op.carries[0]]]

    def ready(self, sizes: Sizes) -> BoundRegion:
        if self.is_native:
            with suppress(NotNativeError):
                return self.native(sizes)
        own = [body.own(sizes) for body in self.passes]
        return partial(self._slowly, self.condition.own(sizes), own)

    def native(self, sizes: Sizes) -> NativeLoop:
        return NativeLoop(self, sizes)

    def per_iteration(self, sizes: Sizes) -> int:
        """Return how many bytes each iteration leaves for later passes, until the last is over."""
        return sum([bytes_at(t, sizes) for body in self.op.passes[:-1] for t in body.outputs])

    def carry_makers(self, sizes: Sizes) -> list[Maker]:
        """Return the makers of arrays for the carries."""
        pairs = zip(self._carries, self.op.passes[0].outputs, strict=True)
        return [
            pool_of_outputs.maker(shape_of(t, sizes), bytes_at(t, sizes))
            for pool_of_outputs, t in pairs
        ]

    def _slowly(
        self,
        asked: tuple[int, ...],
        own: Sequence[tuple[int, ...]],
        arrays: Sequence[Array],
        rng: Rng,
    ) -> Sequence[Array]:
        firsts, rest = self.op.split(arrays)
        captures = whole(rest)
        version = new_version()

        def holds(carry: Sequence[Array]) -> bool:
            return bool(self.condition([*carry, *captures], asked, rng, version)[0])

        def computed(number: int, iteration: int, carries: Sequence[Array]) -> list[Array]:
            inputs = [iteration_number(iteration), *carries, *captures]
            with in_iteration(iteration):
                return self.passes[number](inputs, own[number], rng.fold(iteration), version)

        copies = ([np.array(a, order="C") for a in carry] for carry in firsts)
        return [x for carry in self.op.ends(copies, holds, computed) for x in carry]


class NativeLoop:
    """The iterations of a loop of one pass, at some sizes.

    The arrays of a call are the node's inputs, then for each carry one that odd iterations write
    to, then for each that is not in place one that even iterations write to.
    """

    def __init__(self, loop: LoopRegion, sizes: Sizes) -> None:
        body, condition = loop.passes[0], loop.condition
        first, parameters = loop.op.carries[0], len(body.body.parameters) - 1
        self._first = first
        self._body = ReadyBody(body, sizes)
        self._condition = ReadyBody(condition, sizes)
        self.bodies = (self._body, self._condition)
        self._nbytes = [bytes_at(t, sizes) for t in loop.op.passes[0].outputs]
        self._makers = loop.carry_makers(sizes)
        turning = [i for i in range(first) if i not in body.in_place]
        self._even = {i: parameters + first + number for number, i in enumerate(turning)}
        captures = range(first, parameters)
        self._make_iterations = Iterations(
            self._body.work,
            body.address_slot(0),
            {i: body.address_slot(1 + i) for i in captures},
            (),
            [
                IterationCarry(
                    body.address_slot(1 + i),
                    body.address_slot(1 + parameters + i),
                    condition.address_slot(i),
                    i,
                    (parameters + i, self._even.get(i, parameters + i)),
                )
                for i in range(first)
            ],
            arrays=parameters + first + len(turning),
            iterations=None,
            condition=Condition(
                self._condition.run,
                {i: condition.address_slot(i) for i in captures},
                condition.address_slot(parameters),
            ),
        )

    def __call__(self, arrays: Sequence[Array], rng: Rng) -> Sequence[Array]:
        body, condition = self._body, self._condition
        captures = arrays[self._first :]
        body.prepare(captures)
        condition.prepare(captures)
        odd = [make() for make in self._makers]
        even = {i: self._makers[i]() for i in self._even}
        arena, other = body.take(), condition.take()
        try:
            made = self._make_iterations((*arrays, *odd, *even.values()))
        finally:
            body.give(arena)
            condition.give(other)
        if made is None:
            raise FailedError
        if not made:
            return [np.array(a, order="C") for a in arrays[: self._first]]
        return odd if made % 2 else [even.get(i, array) for i, array in enumerate(odd)]

    def join(
        self,
        chain: NestedLoops,
        sources: Sequence[IndirectAddress],
        room: Callable[[int], IndirectAddress],
    ) -> list[IndirectAddress]:
        """Add it to a chain; see `NativeScan.join`."""
        iterations = self._make_iterations
        odd = [room(nbytes) for nbytes in self._nbytes]
        even = [room(self._nbytes[i]) for i in self._even]
        for body in self.bodies:
            body.join(chain, sources)
        arrays = [*sources, *odd, *even]
        chain.add_addresses([(s, iterations.address_word(n)) for n, s in enumerate(arrays)])
        chain.add_loop(iterations)
        # Wherever the last iteration has written, or what it began with.
        ends = enumerate(self._nbytes)
        chain.add_copies(
            [
                (
                    IndirectAddress(iterations.carry_word(i), 0),
                    IndirectAddress(iterations.address_word(len(sources) + i), 0),
                    nbytes,
                )
                for i, nbytes in ends
            ]
        )
        return odd
