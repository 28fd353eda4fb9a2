"""The interface of what connects processes: MPI, or threads of one process in `simulated.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from graphfw.ir.literal import Array
from graphfw.ops.collectives.kinds import How


class Failure(NamedTuple):
    """The message of a process that does not go on.

    Attributes:
        rank: Its rank.
        text: Its error.
    """

    rank: int
    text: str


class Stopped(Exception):
    """Another process has failed, so that a collective never ends.

    Attributes:
        failure: Its message.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


class ProcessGroup(ABC):
    """Some of the processes, which exchange arrays with one another.

    All of them call the same methods in the same order. A call returns when the exchange is over.
    It raises `Stopped` if another process has failed, and `TimeOverError` if this thread's time
    limit is over. Arrays have one axis and are contiguous; those that are returned are new.

    Attributes:
        index: The number of this process in the group.
        count: The number of processes.
    """

    index: int
    count: int

    @abstractmethod
    def all_gather(self, x: Array, sizes: Sequence[int]) -> Array:
        """Return the arrays of all processes, which have these sizes, one after the other."""

    @abstractmethod
    def all_to_all(self, x: Array, sent: Sequence[int], sizes: Sequence[int]) -> Array:
        """Send a piece of an array to each process, and return what comes.

        Args:
            x: The pieces, one after the other.
            sent: Their sizes.
            sizes: The sizes of the pieces that come.
        """

    @abstractmethod
    def broadcast(self, x: Array, root: int) -> Array:
        """Return the array of one of the processes."""

    @abstractmethod
    def all_reduce(self, x: Array, how: How) -> Array | None:
        """Return the reduction of all processes' arrays in an order of the library's.

        None where the library has none for the dtype.
        """


class Processes(ABC):
    """All processes of a program.

    Attributes:
        rank: The number of this process.
        count: The number of processes.
    """

    rank: int
    count: int

    @abstractmethod
    def group(self, ranks: Sequence[int]) -> ProcessGroup:
        """Return a group that this process is in.

        All processes call it at once, each for the group that it is in.
        """

    @abstractmethod
    def share(self, message: bytes, is_final: bool = False) -> list[bytes]:
        """Return the messages of all processes, by rank.

        Args:
            message: As many bytes in each process, and one at least: an exchange of nothing may
                wait for nobody.
            is_final: Whether no time limit may end it.

        Raises:
            Stopped: Another process has failed.
            TimeOverError: This thread's time limit is over.
        """

    @abstractmethod
    def stop(self, text: str) -> None:
        """Tell the other processes that this one has failed; they get `Stopped` where they wait."""

    @abstractmethod
    def restore(self) -> None:
        """Make exchanges possible again after `stop` or `Stopped`; all processes call it."""
