"""Loops whose trips are native: all of them in one call, or a few.  `loop.ll` has the offsets."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from string import Template
from typing import NamedTuple

import numpy as np

from graphfw.ir.literal import Array
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.runner import Record, runner_address

_TRIPS = 16
"""After so many trips Python looks for signals; then after twice as many, while these are short."""
_SHORT = 0.02
"""Seconds."""

_MANY = 1 << 62

_WORDS = 17
"""Of a loop, in `loop.ll`."""
_EMPTY = 4
"""Words of what is an empty tuple as far as the runner looks."""


class LoopCode:
    """The function `i64 (ptr loop)` that makes trips; see `loop.ll`."""

    key = "loop"

    def llvm(self, symbol: str) -> str:
        text = (Path(__file__).parent / "loop.ll").read_text("utf-8")
        return Template(text).substitute(symbol=symbol)


class Move(NamedTuple):
    """An operand of a body that lies elsewhere in each trip.

    Attributes:
        base: Where its address goes.
        first: Its address in trip 0.
        nbytes: How much farther it is in the next.
    """

    base: int
    first: int
    nbytes: int


class Carry(NamedTuple):
    """What a trip takes from the one before it.

    Attributes:
        taken: Where the address of what is read goes.
        made: Where the address of what is written goes.
        asked: Where the condition has it.
        begin: What the first trip reads.
        rooms: Two arrays that trips write to in turn, the first one first.
    """

    taken: int
    made: int
    asked: int
    begin: Array
    rooms: tuple[Array, Array]


class Condition(NamedTuple):
    """What is asked before each trip.

    Attributes:
        stretch: What computes it.
        bases: Its addresses.
        answer: What it writes.
    """

    stretch: Record
    bases: Array
    answer: Array


def make_trips(
    stretch: Record,
    bases: Array,
    number: Array,
    moves: Sequence[Move],
    carries: Sequence[Carry],
    *,
    trips: int | None,
    backwards: bool = False,
    condition: Condition | None = None,
) -> int:
    """Make the trips of a loop, and return how many there were; -1 where a step failed.

    Args:
        stretch: What computes a trip.
        bases: Its addresses; those of what stays are set.
        number: Where the trip's number goes.
        moves: What moves.
        carries: What is carried. After n trips, n > 0, it is in `rooms[(n - 1) % 2]`.
        trips: How many; None to go by the condition.
        backwards: Begin with the last number.
        condition: What is asked.
    """
    total = _MANY if trips is None else trips
    # One table for all: asking NumPy for an address takes longer than some trips.
    first_move = _WORDS + _EMPTY
    first_carry = first_move + 3 * len(moves)
    first_asked = first_carry + 5 * len(carries)
    loop = np.zeros(first_asked + len(carries), np.int64)
    here = loop.ctypes.data
    loop[:_WORDS] = (
        runner_address(),
        here + 8 * _WORDS,
        ctypes.addressof(stretch),
        bases.ctypes.data,
        total - 1 if backwards else 0,
        -1 if backwards else 1,
        total,
        number.ctypes.data,
        len(moves),
        here + 8 * first_move,
        len(carries),
        here + 8 * first_carry,
        0 if condition is None else ctypes.addressof(condition.stretch),
        0 if condition is None else condition.bases.ctypes.data,
        here + 8 * first_asked,
        0 if condition is None else condition.answer.ctypes.data,
        _TRIPS,
    )
    loop[first_move:] = [
        *chain.from_iterable(moves),
        *chain.from_iterable(
            (c.taken, c.made, c.begin.ctypes.data, *[room.ctypes.data for room in c.rooms])
            for c in carries
        ),
        *[c.asked for c in carries],
    ]
    call = _native()
    state = 1
    while state > 0:
        begin = time.perf_counter()
        state = call(here)
        if time.perf_counter() - begin < _SHORT:
            loop[_WORDS - 1] *= 2
    if state < 0:
        return -1
    return abs(int(loop[4]) - (total - 1 if backwards else 0))


_known: list[Callable[[int], int]] = []


def _native() -> Callable[[int], int]:
    if not _known:
        (address,) = compile_codes([LoopCode()])
        _known.append(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address))
    return _known[0]
