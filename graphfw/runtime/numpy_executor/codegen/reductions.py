"""Accumulators of reductions: their first values, how they take up values, and how they are joined.

Everything is done in a fixed order: element i of a row always goes to the same lane of the same
accumulator, and accumulators are joined pair by pair. So a sum of floats is the same in each run.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from graphfw.ir.dtype import DType
from graphfw.runtime.kernels.ir import ReduceKind
from graphfw.runtime.numpy_executor.codegen.primitives import Primitives
from graphfw.runtime.numpy_executor.codegen.registers import literal, register, splat, vector
from graphfw.runtime.numpy_executor.codegen.writer import Writer

State: TypeAlias = tuple[str, ...]
"""The registers of one accumulator: the value; with argmax and argmin its position as well."""

_FUNCTIONS = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "all": "and", "any": "or"}


class Combiner:
    """The combination of two values of a reduction.

    Attributes:
        kind: Which reduction.
        dtype: Of the values.
    """

    def __init__(self, kind: ReduceKind, dtype: DType) -> None:
        self.kind = kind
        self.dtype = dtype
        self.has_position = kind in ("argmax", "argmin")

    def types(self, lanes: int) -> tuple[str, ...]:
        """Return the types of a state's registers."""
        value = vector(register(self.dtype), lanes)
        return (value, vector("i64", lanes)) if self.has_position else (value,)

    def identity(self) -> str:
        """Return the value that changes no other, as a scalar literal."""
        if self.kind in ("sum", "prod", "all", "any"):
            return literal(self.kind in ("prod", "all"), self.dtype)
        lowest = self.kind in ("max", "argmax")
        if self.dtype.is_floating:
            return literal(-math.inf if lowest else math.inf, self.dtype)
        info = np.iinfo(self.dtype.dtype)
        return literal(int(info.min if lowest else info.max), self.dtype)

    def join(self, p: Primitives, old: State, new: State, ordered: bool = True) -> State:
        """Write the combination of two states.

        With positions: where `ordered`, the new one's are after all of the old one's.
        """
        if not self.has_position:
            if self.kind in ("max", "min") and self.dtype.is_floating:
                # Which of two zeros it is may be left open here: that saves instructions. With the
                # new value first, those that wait for the old one are two.
                return (p.intrinsic(f"{self.kind}imum", self.dtype, (new[0], old[0]), "nsz "),)
            return (p.call(_FUNCTIONS[self.kind], self.dtype, (new[0], old[0])),)
        better = p.compare("gt" if self.kind == "argmax" else "lt", self.dtype, new[0], old[0])
        bits = vector("i1", p.lanes)
        if self.dtype.is_floating:
            number = p.let(f"fcmp ord {vector(register(self.dtype), p.lanes)} {old[0]}, {old[0]}")
            worst = p.let(f"and {bits} {p.is_nan(self.dtype, new[0])}, {number}")
            better = p.either(better, worst)
        if not ordered:
            better = p.either(better, self._earlier_equal(p, old, new))
        return self.choose(p, better, new, old)

    def choose(self, p: Primitives, condition: str, a: State, b: State) -> State:
        """Write the choice between two states."""
        value = p.select(self.dtype, condition, a[0], b[0])
        if not self.has_position:
            return (value,)
        bits, kind = vector("i1", p.lanes), vector("i64", p.lanes)
        return (value, p.let(f"select {bits} {condition}, {kind} {a[1]}, {kind} {b[1]}"))

    def _earlier_equal(self, p: Primitives, old: State, new: State) -> str:
        bits = vector("i1", p.lanes)
        equal = p.compare("eq", self.dtype, new[0], old[0])
        if self.dtype.is_floating:
            nans = p.is_nan(self.dtype, new[0]), p.is_nan(self.dtype, old[0])
            equal = p.either(equal, p.let(f"and {bits} {nans[0]}, {nans[1]}"))
        earlier = p.let(f"icmp slt {vector('i64', p.lanes)} {new[1]}, {old[1]}")
        return p.let(f"and {bits} {equal}, {earlier}")


class Accumulators:
    """The accumulators of one reduction: variables that live through a loop.

    Attributes:
        combiner: What is done.
        lanes: Of each accumulator.
    """

    def __init__(self, writer: Writer, combiner: Combiner, lanes: list[int], level: int) -> None:
        """Make accumulators and, at a level, give them their first values."""
        self.combiner = combiner
        self.lanes = lanes
        self._writer = writer
        self._slots: list[tuple[str, ...]] = []
        for count in lanes:
            slots = tuple([writer.slot(kind) for kind in combiner.types(count)])
            self._slots.append(slots)
            self._store(len(self._slots) - 1, self._first(count), level)

    def take(self, first: int, values: list[State], masks: State, level: int) -> None:
        """Write: the accumulators from number `first` on take up one state each.

        Args:
            first: Which accumulator takes the first.
            values: What they take up.
            masks: For each of them which lanes do; empty: all.
            level: Where it is written.
        """
        for index, value in enumerate(values):
            number = first + index
            p = Primitives(self._writer, self.lanes[number], level)
            old = self.state(number, level)
            new = self.combiner.join(p, old, value)
            if masks:
                new = self.combiner.choose(p, masks[index], new, old)
            self._store(number, new, level)

    def state(self, number: int, level: int) -> State:
        """Read an accumulator."""
        kinds = self.combiner.types(self.lanes[number])
        pairs = zip(kinds, self._slots[number], strict=True)
        return tuple([self._writer.load(kind, slot, level) for kind, slot in pairs])

    def joined(self, level: int) -> State:
        """Write the combination of all accumulators' lanes: one scalar state."""
        states = [
            folded(self._writer, self.combiner, self.state(number, level), lanes, level)
            for number, lanes in enumerate(self.lanes)
            if lanes == 1
        ]
        wide = [number for number, lanes in enumerate(self.lanes) if lanes > 1]
        if wide:
            p = Primitives(self._writer, self.lanes[wide[0]], level)
            vectors = [self.state(number, level) for number in wide]
            whole = _pairwise(self.combiner, p, vectors)
            states.insert(0, folded(self._writer, self.combiner, whole, p.lanes, level))
        return _pairwise(self.combiner, Primitives(self._writer, 1, level), states)

    def _first(self, lanes: int) -> State:
        value = splat(register(self.combiner.dtype), self.combiner.identity(), lanes)
        # Nothing is better than this value only where all elements are equal to it: then the first
        # is the one.
        first = splat("i64", "0", lanes)
        return (value, first) if self.combiner.has_position else (value,)

    def _store(self, number: int, state: State, level: int) -> None:
        kinds = self.combiner.types(self.lanes[number])
        for kind, slot, value in zip(kinds, self._slots[number], state, strict=True):
            self._writer.store(kind, value, slot, level)


def folded(writer: Writer, combiner: Combiner, state: State, lanes: int, level: int) -> State:
    """Write the combination of the lanes of a state: halves with halves, until one is left."""
    while lanes > 1:
        half = lanes // 2
        p = Primitives(writer, half, level)
        low, high = (_partial(writer, combiner, state, lanes, at, level) for at in (0, half))
        state = combiner.join(p, low, high, ordered=False)
        lanes = half
    return state


def _partial(
    writer: Writer, combiner: Combiner, state: State, lanes: int, start: int, level: int
) -> State:
    half = lanes // 2
    kinds = combiner.types(lanes)
    if half == 1:
        pairs = zip(kinds, state, strict=True)
        return tuple([writer.let(f"extractelement {k} {x}, i64 {start}", level) for k, x in pairs])
    lanes_of = ", ".join([f"i32 {start + i}" for i in range(half)])
    order = f"<{half} x i32> <{lanes_of}>"
    return tuple(
        [
            writer.let(f"shufflevector {kind} {x}, {kind} poison, {order}", level)
            for kind, x in zip(kinds, state, strict=True)
        ]
    )


def _pairwise(combiner: Combiner, p: Primitives, states: list[State]) -> State:
    while len(states) > 1:
        pairs = [states[i : i + 2] for i in range(0, len(states), 2)]
        states = [
            combiner.join(p, pair[0], pair[1], ordered=False) if len(pair) == 2 else pair[0]
            for pair in pairs
        ]
    return states[0]
