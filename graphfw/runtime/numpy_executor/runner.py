"""The runner: what a plan's native steps are laid out as, and the one call that computes them.

    schedule = Tables([Wave([Call(address, refs, params, work items)])], bases=1, arrays=2)
    run = Run(schedule, threads=2)
    run.bases[0] = arena_address
    compute = run.stretch(0, 1, hold=False)
    failed = compute((x, y))

`runner.ll` has the offsets of everything that is laid out here.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphfw.runtime.numpy_executor.buffer_pool import aligned
from graphfw.runtime.numpy_executor.engine import compile_codes
from graphfw.runtime.numpy_executor.native import (
    DATA_OFFSET,
    FLAGS_OFFSET,
    ITEMS_OFFSET,
    MAX_WORKERS,
    RunnerCode,
)
from graphfw.runtime.numpy_executor.watch import poll_address, watch_address
from graphfw.utils import forks

Words: TypeAlias = "NDArray[np.int64]"
Arrays: TypeAlias = "tuple[NDArray[Any], ...]"
Stretch: TypeAlias = "Callable[[Arrays], int]"

RECORD = np.dtype([(n, np.int64) for n in ("call", "thread", "work_item", "start", "end")])
"""The times at which a thread computed a work item, in ns of a clock that only goes forward."""

_ALIGNMENT = 128
"""Two cache lines: processors fetch them in pairs."""
_RECORDS_HEADER = 8
_STATE, _OWN_DUE = 48, 40
"""Words of what a run changes; the one that says when to ask next, if no other does."""
_RELEASE, _KEEP, _RELEASED = range(3)
"""The ways to treat Python's lock."""


class StepCall(NamedTuple):
    """One step of a plan at known sizes.

    Attributes:
        address: Of its function.
        refs: Where each operand is: the number of a base, and how many bytes after it.
        params: Its run-time integers.
        work_items: How many work items it has.
        scratch: How many bytes of scratch memory each thread needs.
    """

    address: int
    refs: Sequence[tuple[int, int]]
    params: Sequence[int]
    work_items: int
    scratch: int = 0


class Wave(NamedTuple):
    """Calls that don't depend on each other.

    Attributes:
        calls: In the order in which they are begun.
        parallel: Whether it is worth sharing: more than about 5 µs of work.
    """

    calls: Sequence[StepCall]
    parallel: bool = True


class Tables:
    """The calls of a plan at known sizes, laid out for the runner. Runs share it.

    Args:
        waves: In order; each begins when the one before is done.
        bases: How many bases are set in `Run.bases`, numbered from 0.
        arrays: How many arrays each run is given; their addresses are the bases after those.
        whole_from: The first wave from which on a run is not interrupted; none if it is None.

    Raises:
        OverflowError: There are numbers of more than 64 bits.
    """

    def __init__(
        self, waves: Sequence[Wave], bases: int, arrays: int, whole_from: int | None = None
    ) -> None:
        self.whole_from = len(waves) if whole_from is None else whole_from
        calls = [call for wave in waves for call in wave.calls]
        self.bases = bases
        self.arrays = arrays
        self.scratch = -(-max((call.scratch for call in calls), default=0) // 64) * 64
        if self.scratch * (MAX_WORKERS + 1) > sys.maxsize:
            raise OverflowError
        self.steps = _words(5 * len(calls))
        self.waves = _words(4 * len(waves))
        self.first_operand = [0]
        """Of each wave, and after the last."""
        self.operands = _filled([word for call in calls for ref in call.refs for word in ref])
        self.params = _filled([param for call in calls for param in call.params])
        self._lay_out(waves)

    def _lay_out(self, waves: Sequence[Wave]) -> None:
        step = self.steps.ctypes.data
        params = self.params.ctypes.data
        steps: list[int] = []
        rows: list[int] = []
        operand = 0
        for wave in waves:
            first, work_item = step, 0
            for call in wave.calls:
                steps += [call.address, operand, params, work_item, work_item + call.work_items]
                operand += len(call.refs)
                params += 8 * len(call.params)
                work_item += call.work_items
                step += 5 * 8
            rows += [first, step, work_item, wave.parallel and work_item > 1]
            self.first_operand.append(operand)
        self.steps[:] = steps
        self.waves[:] = rows


class Run:
    """The data of one run at a time of a schedule: several of them may be at work together.

    Args:
        schedule: What is computed.
        threads: How many threads may work on it, the caller counted. The results don't depend on
            it.
        owns_scratch: Whether it has its own scratch memory; otherwise `scratch_at` says, before
            each call, where that is.

    Attributes:
        scratch: How many bytes of scratch memory all threads take together.
        bases: The addresses that operands are counted from; the first `schedule.bases` of them are
            set by the owner, at any time outside of a call.
    """

    def __init__(self, schedule: Tables, threads: int, *, owns_scratch: bool = True) -> None:
        self.schedule = schedule
        self.threads = min(threads, MAX_WORKERS + 1)
        self.bases = _words(schedule.bases + schedule.arrays)
        self._resolved = _words(schedule.first_operand[-1])
        self.scratch = self.threads * schedule.scratch
        # Memory that no thread touches is not taken from the system.
        self._scratch = aligned(self.scratch if owns_scratch else 0, boundary=_ALIGNMENT)
        self._records: Words | None = None
        self._state = _words(_STATE)
        self._state[:9] = [
            schedule.steps.ctypes.data,
            schedule.waves.ctypes.data,
            schedule.operands.ctypes.data,
            self.bases.ctypes.data,
            schedule.bases,
            self._resolved.ctypes.data,
            self._scratch.ctypes.data,
            schedule.scratch,
            self.threads,
        ]
        self._state[13:16] = schedule.arrays, poll_address(), watch_address()
        self._state[34] = schedule.whole_from
        self.ask_by(self._state.ctypes.data + 8 * _OWN_DUE)

    @property
    def address(self) -> int:
        """The address that native code reads."""
        return self._state.ctypes.data

    def ask_by(self, address: int) -> None:
        """Have the time of the next question, whether to end, in the word at an address."""
        self._state[32] = address

    @property
    def ended_in(self) -> int | None:
        """The number of the call that was the last when a run ended early, or None."""
        return int(self._state[12]) - 1 if self._state[12] else None

    def scratch_at(self, address: int) -> None:
        """Say where the scratch memory lies."""
        self._state[6] = address

    def stretch(self, first: int, count: int, *, hold: bool) -> Stretch:
        """Return a function that computes the waves from `first`, `count` of them.

        It takes a tuple of arrays, as many as the schedule says or none: with none, the addresses
        of an earlier call are used. What it returns:

        - 0: all is computed.
        - n > 0: the call of number n - 1, counted over all waves, failed; the rest was skipped.
        - n < 0: the array -n - 1 is not aligned, not in C order or one too many; nothing was
          computed.

        It raises what signal handlers do, and `time_limits.TimeOverError`: the rest was skipped.

        It may not be called while another call on the same `Run` is under way.

        Args:
            first: A number of a wave.
            count: How many waves.
            hold: Keep Python's lock meanwhile. Good for less than about 10 µs of work.
        """
        native = _native()
        record = self.record_of(first, count, _KEEP if hold else _RELEASE)
        call = functools.partial(native.call, record)
        return call if native.reads_arrays else functools.partial(self._slowly, call)

    def record_of(self, first: int, count: int, lock: int = _RELEASED) -> Record:
        """Return a record that tells the runner which waves to compute, on which run.

        Args:
            first: A number of a wave.
            count: How many waves.
            lock: What is done with Python's lock; by default a loop's native code has given it up.
        """
        schedule = self.schedule
        begin = schedule.first_operand[first]
        parallel = schedule.waves.reshape(-1, 4)[first : first + count, 3].any()
        record = Record(
            self._state.ctypes.data,
            first,
            first + count,
            begin,
            schedule.first_operand[first + count] - begin,
            self.threads > 1 and bool(parallel),
            lock,
        )
        record.owner = self  # the run must live as long as the record
        return record

    def _slowly(self, call: Stretch, arrays: Arrays) -> int:
        """Do what the runner does where it can't read this Python's objects."""
        for i, array in enumerate(arrays):
            fits = i < self.schedule.arrays
            if not (fits and array.flags.c_contiguous and array.flags.aligned):
                return -i - 1
            self.bases[self.schedule.bases + i] = array.ctypes.data
        return call(())

    def record(self, capacity: int) -> None:
        """Note from now on when each item is computed, `capacity` of them; with 0, no longer."""
        self._records = _words(_RECORDS_HEADER + 5 * capacity) if capacity else None
        if self._records is not None:
            self._records[1] = capacity
        self._state[9] = 0 if self._records is None else self._records.ctypes.data

    def records(self) -> NDArray[np.void]:
        """Return the records noted so far, of dtype `RECORD`, and forget them."""
        if self._records is None:
            return np.empty(0, RECORD)
        count = min(self._records[:2])
        self._records[0] = 0
        content = self._records[_RECORDS_HEADER : _RECORDS_HEADER + 5 * count]
        return content.copy().view(RECORD)


class Record(ctypes.Structure):
    """A stretch, as the runner reads it."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("run", "first", "last", "operand", "operands", "parallel", "lock")
    )
    owner: Run


class _Native:
    """The runner's function, as Python calls it."""

    def __init__(self) -> None:
        (address,) = compile_codes([RunnerCode()])
        # It gives up Python's lock itself, and may come back with an error set.
        kind = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.POINTER(Record), ctypes.py_object)
        self.call: Callable[[object, Arrays], int] = kind(address)
        self.reads_arrays = _reads_arrays()
        self.address = address

    def forget_workers(self) -> None:
        self.call(None, ())


def _reads_arrays() -> bool:
    """Return whether tuples and arrays lie in memory as the runner reads them."""
    if sys.implementation.name != "cpython" or np.intp(0).nbytes != 8:
        return False
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or hasattr(sys, "gettotalrefcount"):
        return False
    whole = np.empty((3, 5), np.float32)
    samples = (
        whole,
        whole[1:, ::2],
        whole.T,
        np.empty((), np.int8),
        np.empty(9, "b")[1:].view(">i4"),
    )
    length = ctypes.c_int64.from_address(id(samples) + 16).value
    items = (ctypes.c_int64 * len(samples)).from_address(id(samples) + ITEMS_OFFSET)
    if length != len(samples) or [*items] != [id(array) for array in samples]:
        return False
    for array in samples:
        data = ctypes.c_int64.from_address(id(array) + DATA_OFFSET).value
        flags = ctypes.c_int32.from_address(id(array) + FLAGS_OFFSET).value
        if data != array.ctypes.data or flags != array.flags.num:
            return False
    return True


def reads_arrays() -> bool:
    """Return whether native functions may look arrays up in tuples themselves."""
    return _native().reads_arrays


def runner_address() -> int:
    """Return where the runner is: `i64 (ptr record, ptr tuple)`."""
    return _native().address


_made: list[_Native] = []
_lock = forks.renewed_lock()


def _native() -> _Native:
    with _lock:
        if not _made:
            _made.append(_Native())
        return _made[0]


def _after_fork() -> None:
    for native in _made:
        native.forget_workers()


forks.in_child(_after_fork)


def _words(count: int) -> Words:
    """Return zeros."""
    return aligned(8 * count, np.zeros, _ALIGNMENT).view(np.int64)


def _filled(values: Sequence[int]) -> Words:
    words = _words(len(values))
    words[:] = values  # or an OverflowError
    return words
