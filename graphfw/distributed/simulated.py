"""A mesh whose processes are threads of one process: to try and to test programs for many."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from graphfw.distributed.mesh import Mesh, checked_axes
from graphfw.distributed.processes import Failure, Processes, ProcessGroup, Stopped
from graphfw.errors import ArgumentError, DistributedError
from graphfw.ir import time_limits
from graphfw.ir.literal import Array
from graphfw.ops.collectives.kinds import How

ResultT = TypeVar("ResultT")


class SimulatedMesh:
    """A mesh whose processes are threads of this process.

    It computes what as many processes would, bit by bit, and its errors are theirs. It is for tests
    and for trying programs out: it is no faster than one process.

    Args:
        axes: The sizes of the axes, by name.

    Raises:
        ArgumentError: A size is no positive int, or there is no axis.

    >>> import graphfw as gf
    >>> gf.distributed.SimulatedMesh(data=2, model=1).run(lambda mesh: mesh.coordinates)
    [{'data': 0, 'model': 0}, {'data': 1, 'model': 0}]
    """

    def __init__(self, **axes: int) -> None:
        self.axes = checked_axes("SimulatedMesh", axes)
        if -1 in self.axes.values():
            raise ArgumentError("SimulatedMesh: an axis is -1", fix="write its size")

    def run(self, program: Callable[[Mesh], ResultT]) -> list[ResultT]:
        """Call a program once for each process, side by side, and return the results by rank.

        Args:
            program: Takes the mesh as one of the processes sees it. Graphs are its own: it opens
                them itself.

        Raises:
            Exception: The first error that is not the consequence of another process's, if any of
                the calls raises one.
        """
        count = math.prod(self.axes.values())
        meeting = _Meeting(count)
        results: list[Any] = [None] * count
        errors: list[BaseException | None] = [None] * count

        def call(rank: int) -> None:
            processes = _Thread(meeting, rank)
            try:
                results[rank] = program(Mesh._of(processes, self.axes))
            except BaseException as error:
                errors[rank] = error
                meeting.leave(Failure(rank, f"{type(error).__name__}: {error}"))
            else:
                meeting.leave(Failure(rank, "its program has ended"))

        threads = [threading.Thread(target=call, args=(rank,)) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first = _first_cause(errors)
        if first is not None:
            raise first
        return results

    def __repr__(self) -> str:
        return f"SimulatedMesh({', '.join([f'{name}={size}' for name, size in self.axes.items()])})"


def _first_cause(errors: Sequence[BaseException | None]) -> BaseException | None:
    found = [error for error in errors if error is not None]
    causes = [error for error in found if not isinstance(error, DistributedError)]
    return next(iter([*causes, *found]), None)


class _Meeting:
    """The memory that the threads share: who comes to a meeting waits for the others.

    After a failure the threads go on in another age, in which no meeting of the age before counts.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._changed = threading.Condition()
        self._brought: dict[tuple[Any, ...], dict[int, Any]] = {}
        self._failures: dict[int, Failure] = {}
        self._left: dict[int, Failure] = {}

    def meet(
        self,
        key: tuple[Any, ...],
        rank: int,
        ranks: Sequence[int],
        value: Any,
        is_final: bool = False,
    ) -> list[Any]:
        """Bring a value to a meeting, and return those of all members, in the order of their ranks.

        Args:
            key: The age, and what tells the meetings of one age apart.
            rank: Who comes.
            ranks: The members.
            value: The value.
            is_final: Whether no time limit may end it.

        Raises:
            TimeOverError: This thread's time limit is over.
            Stopped: One of the members has failed or ended before it came.
        """
        with self._changed:
            brought = self._brought.setdefault(key, {})
            brought[rank] = value
            self._changed.notify_all()
            while len(brought) < len(ranks):
                absent = [self._left[r] for r in ranks if r in self._left and r not in brought]
                failure = self._failures.get(key[0]) or next(iter(absent), None)
                if failure is not None:
                    raise Stopped(failure)
                if not is_final:
                    time_limits.check()
                self._changed.wait(None if is_final else time_limits.seconds_left())
            self._brought.pop(key, None)  # the others hold it, too
            return [brought[r] for r in ranks]

    def stop(self, age: int, failure: Failure) -> None:
        """End the meetings of an age."""
        with self._changed:
            self._failures.setdefault(age, failure)
            self._changed.notify_all()

    def leave(self, failure: Failure) -> None:
        """Say that a thread comes to no meeting any more."""
        with self._changed:
            self._left[failure.rank] = failure
            self._changed.notify_all()

    def forget(self, age: int) -> None:
        """Drop what has been brought in an age that is over."""
        with self._changed:
            for key in [key for key in self._brought if key[0] == age]:
                del self._brought[key]


class _Thread(Processes):
    """One of the processes."""

    def __init__(self, meeting: _Meeting, rank: int) -> None:
        self.rank = rank
        self.count = meeting.count
        self._meeting = meeting
        self._age = 0
        self._serials: dict[tuple[int, ...], int] = {}

    def meet(self, ranks: tuple[int, ...], value: Any, is_final: bool = False) -> list[Any]:
        """Exchange a value with the processes of these ranks."""
        serial = self._serials[ranks] = self._serials.get(ranks, 0) + 1
        key = self._age, ranks, serial
        return self._meeting.meet(key, self.rank, ranks, value, is_final)

    def group(self, ranks: Sequence[int]) -> ProcessGroup:
        return _ThreadGroup(self, tuple(ranks))

    def share(self, message: bytes, is_final: bool = False) -> list[bytes]:
        return self.meet(tuple(range(self.count)), message, is_final)

    def stop(self, text: str) -> None:
        self._meeting.stop(self._age, Failure(self.rank, text))

    def restore(self) -> None:
        self._age += 1
        self._serials.clear()
        self.share(b"y")
        self._meeting.forget(self._age - 1)


class _ThreadGroup(ProcessGroup):
    """Threads that exchange arrays by handing over copies."""

    def __init__(self, thread: _Thread, ranks: tuple[int, ...]) -> None:
        self.index = ranks.index(thread.rank)
        self.count = len(ranks)
        self._thread = thread
        self._ranks = ranks

    def all_gather(self, x: Array, sizes: Sequence[int]) -> Array:
        return np.concatenate(self._thread.meet(self._ranks, x.copy()))

    def all_to_all(self, x: Array, sent: Sequence[int], sizes: Sequence[int]) -> Array:
        pieces = np.split(x.copy(), np.cumsum(sent[:-1]))
        return np.concatenate([one[self.index] for one in self._thread.meet(self._ranks, pieces)])

    def broadcast(self, x: Array, root: int) -> Array:
        return np.array(self._thread.meet(self._ranks, x.copy())[root])

    def all_reduce(self, x: Array, how: How) -> Array | None:
        return None  # none is faster than the ordered one
