"""The connection of a session to the other processes of its mesh: exchanges, votes, failures.

A run that has collectives goes like this in every process:

1. begin: all say which program they run with which sizes, and compare;
2. the collectives, in the order of their serials;
3. vote: all say that they have computed everything; only then do they commit.

A process that fails says so to the others, which stop waiting wherever they are in the three steps,
and raise an error with its words. Nobody has committed then. The next run begins with `restore`,
for which all come together again.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from graphfw.distributed import ordered, tree
from graphfw.distributed.grid import Grid
from graphfw.distributed.interrupts import HeldInterrupts
from graphfw.distributed.processes import Failure, ProcessGroup, Stopped
from graphfw.errors import DistributedError, ExecutionError, GraphfwError, counted
from graphfw.ir.literal import Array
from graphfw.ir.mesh import Reduction
from graphfw.ir.time_limits import TimeOverError
from graphfw.ops.collectives.collective import Collective, Connected, Link
from graphfw.ops.collectives.kinds import (
    AllGather,
    AllReduce,
    AllToAll,
    AxisIndex,
    Broadcast,
    ReduceScatter,
)

_JOIN = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class Connection(Link):
    """A session's connection.

    Args:
        grid: The processes.
        reduction: The order of sums.
    """

    def __init__(self, grid: Grid, reduction: Reduction) -> None:
        self._grid = grid
        self.reduction = reduction
        self._results: dict[int, Array] | None = None
        self._interrupts = HeldInterrupts()

    def __repr__(self) -> str:
        return "processes"  # the same in all of them, since texts of programs are compared

    @property
    def is_live(self) -> bool:
        return self._results is not None

    # Runs.

    @contextmanager
    def run(self, word: bytes, text: Callable[[], str]) -> Iterator[None]:
        """Hold a run of all processes: a `with` block in which collectives exchange arrays.

        Args:
            word: A digest of the program and the sizes; see `compare`.
            text: Returns them in words.
        """
        if self._grid.runner == threading.get_ident():
            raise ExecutionError(
                "a run with collectives begins inside of another one",
                fix="run it before or after that, not in gf.host_call or a signal's handler",
            )
        with self._grid.exclusive(), self._interrupts, self.failing():
            self.compare(word, text)
            self._results = {}
            try:
                yield
            finally:
                self._results = None

    def vote(self) -> None:
        """Return when all processes have come so far, and will commit.

        They wait for each other twice. The first time takes as long as the slowest process, and an
        interrupt or a time limit may end it. The second time is short, since all are there, and
        nothing ends it: others may have committed.
        """
        self._share(b"r")
        self._interrupts.hold()
        self._share(b"y", is_final=True)

    def compare(self, word: bytes, text: Callable[[], str]) -> None:
        """Check that all processes are about to do the same.

        Args:
            word: A digest of that, of as many bytes in each process.
            text: Returns it in words, line by line, for the error.

        Raises:
            DistributedError: They are not.
        """
        if len(set(self._share(word))) > 1:
            raise _difference(self._shared_texts(text()), self._grid.rank)

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Tell the other processes if something fails inside a `with` block."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def fail(self, error: BaseException) -> None:
        """Tell the other processes of an error, if it is not theirs."""
        if isinstance(error, DistributedError):
            self._grid.is_cut = True  # they know
        elif not self._grid.is_cut:
            self._grid.is_cut = True
            self._grid.processes.stop(_line(error))

    def _share(self, message: bytes, is_final: bool = False) -> list[bytes]:
        try:
            if self._grid.is_cut:
                self._grid.processes.restore()
                self._grid.is_cut = False
            return self._grid.processes.share(message, is_final)
        except Stopped as stopped:
            raise self._stopped(stopped.failure) from None

    def _shared_texts(self, text: str) -> list[str]:
        own = text.encode()
        lengths = [
            int.from_bytes(one, "little") for one in self._share(len(own).to_bytes(8, "little"))
        ]
        padded = self._share(own.ljust(max(lengths), b"\0"))
        return [one[:length].decode() for one, length in zip(padded, lengths, strict=True)]

    def _stopped(self, failure: Failure, op: Connected | None = None) -> DistributedError:
        waited = "" if op is None else f"; this process, {self._grid.rank}, waited in {op.title}"
        error = DistributedError(
            f"process {failure.rank} of {self._grid.size} failed: {failure.text}",
            why=f"nothing has changed in any of the processes{waited}",
            fix=f"look at the error of process {failure.rank}",
        )
        error.names_node = True
        return error

    # Collectives.

    def collect(self, op: Connected, *operands: Array) -> Array:
        """Return the result of a collective, which is exchanged once in a run.

        What repeats a run to look at it, such as the search for the origin of a NaN, gets the same
        result again.
        """
        assert self._results is not None, "only in a run"
        known = self._results.get(op.serial)
        if known is None:
            try:
                known = self._results[op.serial] = self._result(op.what, *operands)
            except Stopped as stopped:
                raise self._stopped(stopped.failure, op) from None
            known.flags.writeable = False
        return known

    def _result(self, op: Collective, *operands: Array) -> Array:
        if isinstance(op, AxisIndex):
            return np.asarray(self._grid.coordinates[op.axis_name], np.int32)
        group = self._grid.groups[op.axis_name]
        (x,) = operands
        flat = np.ascontiguousarray(x).reshape(-1)
        if isinstance(op, AllReduce):
            return self._all_reduce(group, flat, x, op)
        if isinstance(op, Broadcast):
            return group.broadcast(flat, op.root).reshape(x.shape)
        sizes = [flat.size] * group.count
        if isinstance(op, AllGather):
            found = group.all_gather(flat, sizes)
            return found.reshape(x.shape[0] * group.count, *x.shape[1:])
        sizes = [flat.size // group.count] * group.count
        found = group.all_to_all(flat, sizes, sizes)
        if isinstance(op, AllToAll):
            return found.reshape(x.shape)
        assert isinstance(op, ReduceScatter), op
        total = ordered.reduced(found, group.count, np.add)
        return total.reshape(x.shape[0] // group.count, *x.shape[1:])

    def _all_reduce(self, group: ProcessGroup, flat: Array, x: Array, op: AllReduce) -> Array:
        join = _JOIN[op.how]
        if not op.shards:
            # The largest and the smallest are the same in any order.
            if self.reduction == "fast" or op.how != "sum":
                found = group.all_reduce(flat, op.how)
                if found is not None:
                    return found.reshape(x.shape)
            return ordered.all_reduce(group, [flat], group.count, join).reshape(x.shape)
        own = tree.held(op.shards, group.count, group.index)
        if x.shape[0] != len(own):
            raise ExecutionError(
                f"all_reduce: process {self._grid.rank} has {counted(x.shape[0], 'shard')} of "
                f"{op.shards}, and should have {len(own)}",
                fix=f'give it those of mesh.shards("{op.axis_name}", {op.shards})',
            )
        rows = flat.reshape(len(own), -1)
        sums = tree.joined_subtrees(rows, own, op.shards, join)
        return ordered.all_reduce(group, sums, op.shards, join).reshape(x.shape[1:])


def _line(error: BaseException) -> str:
    """Return an error in one line: `FeedError: …, train.py:12`."""
    if isinstance(error, GraphfwError):
        return f"{type(error).__name__}: {error.summary}, {error.at.short()}"
    if isinstance(error, TimeOverError):
        return f"RunTimeoutError: its timeout is over{f', in {error.op}' if error.op else ''}"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _difference(texts: list[str], rank: int) -> DistributedError:
    """Return an error that names the first line in which two processes differ."""
    others = [number for number, text in enumerate(texts) if text != texts[rank]]
    other = others[0] if others else 0
    mine, theirs = texts[rank].splitlines(), texts[other].splitlines()
    pairs = itertools.zip_longest(mine, theirs, fillvalue="nothing")
    a, b = next(((a, b) for a, b in pairs if a != b), ("", ""))
    error = DistributedError(
        "the processes don't do the same",
        why=f"process {rank} has {a.strip()}; process {other} has {b.strip()}",
        fix="run the same program, with the same sizes, in each; for what differs between them, "
        "write gf.distributed.axis_index(axis_name)",
    )
    error.names_node = True
    return error
