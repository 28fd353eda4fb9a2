"""Compiled loops and branches: their bodies are programs of their own."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from graphfw.errors import ExecutionError
from graphfw.ir.body import Body
from graphfw.ir.concrete import in_trip
from graphfw.ir.dim_text import evaluate
from graphfw.ir.literal import Array
from graphfw.ir.op import Op, Rng
from graphfw.ops.branches import Branch
from graphfw.ops.regions import Region
from graphfw.ops.scans import Scan
from graphfw.ops.whiles import Loop
from graphfw.runtime.executor import Options
from graphfw.runtime.numpy_executor.execution import ReadyRun
from graphfw.runtime.numpy_executor.layout import ARENA
from graphfw.runtime.numpy_executor.loops import Carry, Condition, Move, make_trips
from graphfw.runtime.numpy_executor.native_executable import NativeExecutable, executable
from graphfw.runtime.numpy_executor.recycle import Arenas, Recycler
from graphfw.runtime.program import body_program

Sizes: TypeAlias = Mapping[str, int]

_versions = itertools.count(1)
"""Of captures: others in each run of a loop."""


class Compiled:
    """A body as a program. What the captures are, its last parameters, is prepared once a run."""

    def __init__(self, body: Body, captures: int, options: Options, arenas: Arenas) -> None:
        self.body = body
        self.program = body_program(body, captures)
        self.made: NativeExecutable = executable(self.program, options, arenas)
        self.arenas = arenas
        self.is_native = self.made.loaded.recipe.is_plain
        self.is_random = body.is_random

    def __call__(
        self, inputs: Sequence[Array], sizes: Sizes, rng: Rng, version: int
    ) -> list[Array]:
        result: list[Array] = self.made(inputs, self._own(sizes), rng, version, None)
        return result

    @contextmanager
    def ready(self, sizes: Sizes) -> Iterator[ReadyRun]:
        """Yield tables that nobody else uses meanwhile, with memory."""
        layout = self.made.layout(self._own(sizes))
        run = self.made.ready_run(layout)
        arena = self.arenas.take(layout.arena)
        run.run.bases[ARENA] = arena.address
        try:
            yield run
        finally:
            layout.runs.append(run)
            self.arenas.give(arena)

    def _own(self, sizes: Sizes) -> tuple[int, ...]:
        return tuple([sizes[name] for name in self.program.symbols])

    def nbytes(self, sizes: Sizes) -> int:
        """Return how much memory it takes besides its captures; outputs are written in turns."""
        report = self.made.memory(self._own(sizes))
        return report.arena + report.of("prepared", "outside", "scratch") + 2 * report.of("output")

    def explain(self, sizes: Sizes | None) -> Iterator[str]:
        """Yield the explanation, line by line."""
        text = self.made.explain(None if sizes is None else self._own(sizes))
        yield from text.splitlines()

    def output_shapes(self, sizes: Sizes) -> list[tuple[int, ...]]:
        """Return the outputs' shapes."""
        return [tuple([evaluate(dim, sizes) for dim in t.shape]) for t in self.body.outputs]

    def place(self, array: int) -> int:
        """Return where the address of an input goes; outputs come after the inputs."""
        return self.made.loaded.recipe.fixed + array

    def bind(self, run: ReadyRun, given: Mapping[int, Array]) -> None:
        """Say where inputs lie that are the same in every trip."""
        for place, array in given.items():
            run.run.bases[self.place(place)] = array.ctypes.data


class CompiledRegion:
    """What computes a node with bodies, compiled here and now.

    Attributes:
        how: Who makes the trips, or chooses, for reports.
        bodies: The bodies.
    """

    def __init__(self, op: Region, options: Options, arenas: Arenas) -> None:
        self._op = op
        self._kind: _Scan | _Loop | _Branch = _KINDS[type(op)](op, options, arenas)
        self.bodies = self._kind.bodies
        if isinstance(op, Branch):
            self.how = "one of its bodies is run"
        elif self._kind.is_native:
            self.how = "its trips are one native call"
        else:
            self.how = "Python makes its trips"

    def __call__(self, arrays: Sequence[Array], sizes: Sizes, rng: Rng) -> Sequence[Array]:
        whole = [np.require(a, requirements=["C", "A"]) for a in arrays]
        try:
            return self._kind(whole, sizes, rng)
        except _FailedError:  # the reference path has the message
            bound = self._op.bind(sizes)
            bound.eval(np, *whole, **({"rng": rng} if self._op.is_random else {}))
            raise

    def nbytes(self, sizes: Sizes) -> int:
        """Return how much memory it takes besides what it reads and yields."""
        return sum(body.nbytes(sizes) for body in self.bodies)

    def explain(self, sizes: Sizes | None) -> Iterator[str]:
        """Yield the bodies' explanations, line by line."""
        for body in self.bodies:
            yield from body.explain(sizes)


class _Trips(NamedTuple):
    """What the trips of a scan read and write.

    Attributes:
        sequences: One element a trip.
        captures: The same for all.
        stacks: What they yield besides the carry.
        histories: By their numbers, the carries whose values are kept, with the first and the last.
        trips: How many there are.
    """

    sequences: Sequence[Array]
    captures: Sequence[Array]
    stacks: Sequence[Array]
    histories: Mapping[int, Array]
    trips: int


class _Scan:
    """A loop over a known number of trips.

    Attributes:
        rows: The stacks of what is carried: which carry, and whether it is the one after the trip.
    """

    def __init__(self, op: Scan, options: Options, arenas: Arenas) -> None:
        self.op = op
        first = op.carries
        carried, stacked = op.body.outputs[:first], op.body.outputs[first:]
        place = {t: (i, False) for i, t in enumerate(op.body.parameters[1 : 1 + first])}
        place.update({t: (i, True) for i, t in enumerate(carried)})
        self.rows = {number: place[t] for number, t in enumerate(stacked) if t in place}
        rest = [t for number, t in enumerate(stacked) if number not in self.rows]
        captures = len(op.body.parameters) - 1 - first - op.sequences
        body = Body(op.body.parameters, (*carried, *rest))
        self.body = Compiled(body, captures, options, arenas)
        self.bodies = (self.body,)
        self.is_native = self.body.is_native
        self._stacks = [Recycler(t.dtype.dtype) for t in rest]
        carries = {carry for carry, _ in self.rows.values()}
        self._histories = {i: Recycler(carried[i].dtype.dtype) for i in carries}

    def __call__(self, arrays: Sequence[Array], sizes: Sizes, rng: Rng) -> Sequence[Array]:
        op = self.op
        first, last = op.carries, op.carries + op.sequences
        trips = evaluate(op.length, sizes)
        carry = [np.array(a, order="C") for a in arrays[:first]]
        shapes = self.body.output_shapes(sizes)[first:]
        stacks = [_rows(r, trips, shape) for r, shape in zip(self._stacks, shapes, strict=True)]
        # What is carried into and out of all trips, in a row.
        histories = {i: _rows(r, trips + 1, carry[i].shape) for i, r in self._histories.items()}
        for i, history in histories.items():
            history[trips if op.backwards else 0] = carry[i]
        if trips:
            run = self._native if self.is_native else self._slowly
            at = _Trips(arrays[first:last], arrays[last:], stacks, histories, trips)
            carry = run(at, carry, sizes, rng)
        rest = iter(stacks)
        found = list(carry)
        for number in range(len(op.body.outputs) - first):
            if number in self.rows:
                i, is_new = self.rows[number]
                skip = int(is_new != op.backwards)
                found.append(histories[i][skip : skip + trips])
            else:
                found.append(next(rest))
        return found

    def _slowly(self, at: _Trips, carry: list[Array], sizes: Sizes, rng: Rng) -> list[Array]:
        version = next(_versions)
        backwards = self.op.backwards
        for trip in reversed(range(at.trips)) if backwards else range(at.trips):
            elements = [np.asarray(s[trip]) for s in at.sequences]
            inputs = [_number(trip), *carry, *elements, *at.captures]
            with in_trip(trip):
                results = self.body(inputs, sizes, rng.fold(trip), version)
            carry = results[: len(carry)]
            for stack, result in zip(at.stacks, results[len(carry) :], strict=True):
                stack[trip] = result
            for i, history in at.histories.items():
                history[trip + (not backwards)] = carry[i]
        return carry

    def _native(self, at: _Trips, carry: list[Array], sizes: Sizes, rng: Rng) -> list[Array]:
        body, first, backwards = self.body, self.op.carries, self.op.backwards
        count = len(self.op.body.parameters)
        number = _number(0)
        moving = [*enumerate(at.sequences, 1 + first)]
        if body.is_random:
            drawn = [body.made.loaded.drawn(rng.fold(trip)) for trip in range(at.trips)]
            moving.append((count, np.stack(drawn)))
        outputs = count + body.is_random
        moving += enumerate(at.stacks, outputs + first)
        for i, history in at.histories.items():
            moving.append((1 + i, history[backwards:]))
            moving.append((outputs + i, history[not backwards :]))
        carries = [
            Carry(
                body.place(1 + i),
                body.place(outputs + i),
                0,
                a,
                (np.empty_like(a), np.empty_like(a)),
            )
            for i, a in enumerate(carry)
            if i not in at.histories
        ]
        with body.ready(sizes) as run:
            begin = [number, *carry, *[s[0] for s in at.sequences], *at.captures]
            body.made.prepare(run, begin, next(_versions))
            body.bind(run, {0: number, **dict(enumerate(at.captures, count - len(at.captures)))})
            made = make_trips(
                run.whole_record,
                run.run.bases,
                number,
                [Move(body.place(n), a.ctypes.data, a.strides[0]) for n, a in moving],
                carries,
                trips=at.trips,
                backwards=backwards,
            )
        if made < 0:
            raise _FailedError
        last = iter([c.rooms[(at.trips - 1) % 2] for c in carries])
        end = 0 if backwards else at.trips
        return [
            at.histories[i][end].copy() if i in at.histories else next(last)
            for i in range(len(carry))
        ]


def _rows(recycler: Recycler, count: int, shape: tuple[int, ...]) -> Array:
    dtype = recycler.dtype
    return recycler.take((count, *shape), count * math.prod(shape) * dtype.itemsize)


class _Loop:
    """A loop while a condition holds, and passes back over its trips."""

    def __init__(self, op: Loop, options: Options, arenas: Arenas) -> None:
        self.op = op
        captures = len(op.condition.parameters) - op.carries[0]
        self.condition = Compiled(op.condition, captures, options, arenas)
        self.passes = [Compiled(body, captures, options, arenas) for body in op.passes]
        self.bodies = (self.condition, *self.passes)
        self.is_native = len(self.passes) == 1 and all(
            body.is_native and not body.is_random for body in self.bodies
        )

    def __call__(self, arrays: Sequence[Array], sizes: Sizes, rng: Rng) -> Sequence[Array]:
        firsts, captures = self.op.split(arrays)
        carry = [np.array(a, order="C") for a in firsts[0]]
        if self.is_native:
            return self._native(carry, captures, sizes)
        version = next(_versions)
        count = self.op.carries[0]
        records: list[list[Array]] = []
        while self.condition([*carry, *captures], sizes, rng, version)[0]:
            trip = len(records)
            inputs = [_number(trip), *carry, *captures]
            with in_trip(trip):
                made = self.passes[0](inputs, sizes, rng.fold(trip), version)
            records.append([*carry, *made[count:]] if len(self.passes) > 1 else [])
            carry = made[:count]
        results = carry
        for number in range(1, len(self.passes)):
            results += self._pass(number, firsts[number], captures, records, sizes, rng, version)
        return results

    def _pass(
        self,
        number: int,
        carry: Sequence[Array],
        captures: Sequence[Array],
        records: list[list[Array]],
        sizes: Sizes,
        rng: Rng,
        version: int,
    ) -> list[Array]:
        carry = [np.array(a, order="C") for a in carry]
        order = range(len(records))
        for trip in reversed(order) if self.op.backwards[number] else order:
            inputs = [_number(trip), *carry, *records[trip], *captures]
            with in_trip(trip):
                made = self.passes[number](inputs, sizes, rng.fold(trip), version)
            records[trip] += [*carry, *made[len(carry) :]]
            carry = made[: len(carry)]
        return carry

    def _native(
        self, carry: list[Array], captures: Sequence[Array], sizes: Sizes
    ) -> Sequence[Array]:
        body, condition = self.passes[0], self.condition
        first, count = len(carry), len(self.op.passes[0].parameters)
        number, answer = _number(0), np.zeros((), np.bool_)
        carries = [
            Carry(body.place(1 + i), body.place(count + i), condition.place(i), a, _rooms(a))
            for i, a in enumerate(carry)
        ]
        version = next(_versions)
        with condition.ready(sizes) as asked, body.ready(sizes) as run:
            condition.made.prepare(asked, [*carry, *captures], version)
            body.made.prepare(run, [number, *carry, *captures], version)
            kept = dict(enumerate(captures, first))
            condition.bind(asked, {**kept, first + len(captures): answer})
            body.bind(run, {0: number, **dict(enumerate(captures, 1 + first))})
            made = make_trips(
                run.whole_record,
                run.run.bases,
                number,
                (),
                carries,
                trips=None,
                condition=Condition(asked.whole_record, asked.run.bases, answer),
            )
        if made < 0:
            raise _FailedError
        return [c.rooms[(made - 1) % 2] if made else c.begin for c in carries]


class _Branch:
    """One of several bodies."""

    def __init__(self, op: Branch, options: Options, arenas: Arenas) -> None:
        self.bodies = tuple([Compiled(body, 0, options, arenas) for body in op.choices])

    def __call__(self, arrays: Sequence[Array], sizes: Sizes, rng: Rng) -> Sequence[Array]:
        chosen = self.bodies[min(max(int(arrays[0]), 0), len(self.bodies) - 1)]
        return chosen(arrays[1:], sizes, rng, 0)


class _FailedError(ExecutionError):
    """A check in native code has failed: the reference path knows the message."""

    def __init__(self) -> None:
        super().__init__("native code refuses values that the operations themselves accept")


def _rooms(carry: Array) -> tuple[Array, Array]:
    return np.empty_like(carry), np.empty_like(carry)


def _number(trip: int) -> Array:
    return np.array(trip, np.int64)


_KINDS: Mapping[type[Op], Any] = {Scan: _Scan, Loop: _Loop, Branch: _Branch}
