"""Loops whose iterations are native, made in one call or a few.  `loop.ll` has the offsets."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from graphfw.ir.literal import Array
from graphfw.runtime.numpy_executor.contiguous import as_contiguous
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.native import clock_file, period, text_of
from graphfw.runtime.numpy_executor.ready_run import ReadyRun
from graphfw.runtime.numpy_executor.runner import Arrays, Run, reads_arrays, runner_address

_MANY = 1 << 62
_MOST_ITERATIONS = 1 << 20
"""Iterations after which the clock is looked at, at most."""

_WORDS = 28
"""The words of a loop, in `loop.ll`; the last four are what its word 21 points to, if nothing
else."""
_NUMBER, _ANSWER, _COUNT_AT, _COUNT = 7, 15, 21, 24
_DUE = 3
_EMPTY = 4
"""Words of what is an empty tuple as far as the runner looks."""
_FAILED = -2
"""The native function's result for a failure; others are numbers of iterations."""


class LoopCode:
    """The function `i64 (ptr loop, ptr tuple, i64 inside)` that makes iterations."""

    key = "loop"

    def llvm(self, symbol: str) -> str:
        return text_of(
            "arrays.ll",
            "loop.ll",
            clock_file(),
            symbol=symbol,
            short=period() // 16,
            long=period() // 4,
            most=_MOST_ITERATIONS,
        )


class Move(NamedTuple):
    """An operand of a body that lies elsewhere in each iteration.

    Attributes:
        base: Where its address goes.
        array: The number of the array that it is in.
        offset: Where it is in iteration 0, in bytes.
        nbytes: How much farther it is in the next.
    """

    base: int
    array: int
    offset: int
    nbytes: int


class IterationCarry(NamedTuple):
    """The values that an iteration takes from the one before it.

    Attributes:
        taken: Where the address of what is read goes.
        made: Where the address of what is written goes.
        asked: Where the condition has it.
        begin: The number of the array that the first iteration reads.
        rooms: Those of two arrays that iterations write to in turn, the first one first.
    """

    taken: int
    made: int
    asked: int
    begin: int
    rooms: tuple[int, int]


class IterationWork(NamedTuple):
    """The computation of an iteration.

    Attributes:
        function: The address of `i64 (ptr table, ptr nothing)`: 0 when all is done.
        table: What it is given.
        run: Where its addresses are.
        loops: Those inside.
        held: What the table refers to.
    """

    function: int
    table: int
    run: Run
    loops: tuple[Iterations, ...]
    held: object


def work_of(run: ReadyRun) -> IterationWork:
    """Return the work of a body without loops inside."""
    record = run.whole_record
    return IterationWork(runner_address(), ctypes.addressof(record), run.run, (), record)


class Condition(NamedTuple):
    """The condition that is asked before each iteration.

    Attributes:
        run: What computes it.
        kept: For the arrays that stay, by their numbers, where their addresses go.
        answer: Where the address of the answer goes.
    """

    run: ReadyRun
    kept: Mapping[int, int]
    answer: int


class Iterations:
    """The iterations of a loop at some sizes, called with arrays by one thread at a time.

    Attributes:
        here: The address of the table.

    Args:
        work: What computes an iteration.
        number: Where the address of the iteration's number goes.
        kept: For the arrays that stay, by their numbers, where their addresses go.
        moves: What moves.
        carries: What is carried. After n iterations, n > 0, it is in `rooms[(n - 1) % 2]`.
        arrays: How many arrays each call is given.
        iterations: How many iterations there are; None to go by the condition.
        backwards: Begin with the last number.
        condition: What is asked.
    """

    def __init__(
        self,
        work: IterationWork,
        number: int,
        kept: Mapping[int, int],
        moves: Sequence[Move],
        carries: Sequence[IterationCarry],
        *,
        arrays: int,
        iterations: int | None,
        backwards: bool = False,
        condition: Condition | None = None,
    ) -> None:
        total = _MANY if iterations is None else iterations
        # One table for all.
        first_move = _WORDS + _EMPTY
        first_carry = first_move + 3 * len(moves)
        first_asked = first_carry + 5 * len(carries)
        first_address = first_asked + len(carries)
        first_way = first_address + arrays
        ways = len(kept) + len(moves) + 3 * len(carries)
        if condition is not None:
            ways += len(condition.kept)
        self._loop = loop = np.zeros(first_way + 3 * ways, np.int64)
        self.here = here = loop.ctypes.data
        self._first_carry, self._first_address = first_carry, first_address
        bases = work.run.bases.ctypes.data
        rows = [(array, 0, bases + 8 * base) for array, base in kept.items()]
        for word, move in enumerate(moves):
            rows.append((move.array, move.offset, here + 8 * (first_move + 3 * word + 1)))
        for word, carry in enumerate(carries):
            indices = enumerate((carry.begin, *carry.rooms), first_carry + 5 * word + 2)
            rows += [(array, 0, here + 8 * index) for index, array in indices]
        work.run.bases[number] = here + 8 * _NUMBER
        asked = asked_bases = 0
        if condition is not None:
            asked = ctypes.addressof(condition.run.whole_record)
            asked_bases = condition.run.run.bases.ctypes.data
            rows += [(array, 0, asked_bases + 8 * base) for array, base in condition.kept.items()]
            condition.run.run.bases[condition.answer] = here + 8 * _ANSWER
        loop[:_WORDS] = (
            work.function,
            here + 8 * _WORDS,
            work.table,
            bases,
            0,
            -1 if backwards else 1,
            0,
            0,
            len(moves),
            here + 8 * first_move,
            len(carries),
            here + 8 * first_carry,
            asked,
            asked_bases,
            here + 8 * first_asked,
            0,
            total - 1 if backwards else 0,
            total,
            here + 8 * first_address,
            len(rows),
            here + 8 * first_way,
            0,
            work.run.address,
            runner_address(),
            0,
            0,
            0,
            0,
        )
        loop[first_move:first_address] = [
            *chain.from_iterable((move.base, 0, move.nbytes) for move in moves),
            *chain.from_iterable((carry.taken, carry.made, 0, 0, 0) for carry in carries),
            *[carry.asked for carry in carries],
        ]
        loop[first_way:] = [*chain.from_iterable(rows)]
        self._held = condition  # the table refers to it
        self._work = work
        self._count_in(here + 8 * _COUNT)
        native = _native()
        self._make: Callable[[Arrays], int] = functools.partial(native.call, here)
        if not reads_arrays():
            self._make = functools.partial(
                _slowly, native.call_on_addresses, here, loop[first_address:first_way]
            )

    def _count_in(self, count: int) -> None:
        """Set where iterations and time are counted: for all loops of a call in the same words."""
        self._loop[_COUNT_AT] = count
        runs = [self._work.run] if self._held is None else [self._work.run, self._held.run.run]
        for run in runs:
            run.ask_by(count + 8 * _DUE)
        for inner in self._work.loops:
            inner._count_in(count)

    def address_word(self, array: int) -> int:
        """Return where the address of an array is, by its number."""
        return self.here + 8 * (self._first_address + array)

    def carry_word(self, carry: int) -> int:
        """Return where the address of what the last iteration has made of a carry is."""
        return self.here + 8 * (self._first_carry + 5 * carry + 2)

    def __call__(self, arrays: Arrays) -> int | None:
        """Make the iterations, and return how many there were; None where a step failed.

        What is read need not be C-contiguous; what is written must.
        """
        while True:
            made = self._make(arrays)
            if made >= 0:
                return made
            if made == _FAILED:
                return None
            # An array is not C-contiguous.
            threads = self._work.run.threads
            arrays = tuple([as_contiguous(array, threads) for array in arrays])


def _slowly(call: Callable[..., int], here: int, addresses: Array, arrays: Arrays) -> int:
    """Do what the native function does where it can't read this Python's objects."""
    for number, array in enumerate(arrays):
        if not (array.flags.c_contiguous and array.flags.aligned):
            return -3 - number
        addresses[number] = array.ctypes.data
    return call(here, here + 8 * _WORDS, 0)


class _Native:
    """The native function, for a tuple of arrays and for what is empty as far as it looks."""

    def __init__(self) -> None:
        (address,) = compile_codes([LoopCode()])
        self.address = address
        # It gives up Python's lock itself, and may come back with an error set.
        word = ctypes.c_int64
        kind = ctypes.PYFUNCTYPE(word, word, ctypes.py_object, word)
        self.make: Callable[..., int] = kind(address)
        self.call_on_addresses: Callable[..., int] = ctypes.PYFUNCTYPE(word, word, word, word)(
            address
        )

    def call(self, here: int, arrays: Arrays) -> int:
        """Make the iterations of the loop at an address."""
        return self.make(here, arrays, 0)


_known: list[_Native] = []


def _native() -> _Native:
    if not _known:
        _known.append(_Native())
    return _known[0]


def loop_address() -> int:
    """Return where the function is."""
    return _native().address
