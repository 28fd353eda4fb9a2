"""Messages of failures that come while processes vote, with a stand-in for MPI."""

from types import SimpleNamespace
from typing import Any

import pytest

from graphfw.distributed.mpi import MpiProcesses
from graphfw.distributed.processes import Stopped


class Communicator:
    """Process 1 of 2: its exchanges end after some tests, and process 0 has sent a message."""

    def __init__(self, message: bytes) -> None:
        self.messages = [message]
        self.tests = 0

    def Get_rank(self) -> int:
        return 1

    def Get_size(self) -> int:
        return 2

    def Dup(self) -> "Communicator":
        return self

    def Iallgather(self, own: Any, found: Any) -> Any:
        found[:] = own
        self.tests = 0
        return self

    def Test(self) -> bool:
        self.tests += 1
        return self.tests > 100

    def Iprobe(self, source: int, tag: int, status: Any) -> bool:
        return bool(self.messages)

    def Probe(self, source: int, tag: int, status: Any) -> None:
        pass

    def Recv(self, into: Any, source: int, tag: int) -> None:
        into[0][:] = self.messages.pop(0)


def processes(message: bytes) -> MpiProcesses:
    made = Communicator(message)

    def status() -> Any:
        return SimpleNamespace(Get_source=lambda: 0, Get_count=lambda kind: len(made.messages[0]))

    mpi = SimpleNamespace(Status=status, ANY_SOURCE=-1, BYTE=None)
    return MpiProcesses(mpi, made)


@pytest.mark.parametrize("text", ["its program has ended", "FeedError: …, train.py:12"])
def test_a_vote_that_is_over_elsewhere_ends_here_too(text):
    here = processes(f"1 {text}".encode())
    assert here.share(b"y", is_final=True) == [b"y", b"y"]
    with pytest.raises(Stopped) as caught:  # the message is for the next exchange
        here.share(b"r")
    assert caught.value.failure == (0, text)


@pytest.mark.parametrize("is_final", [False, True])
def test_a_failure_before_the_vote_is_over_ends_it(is_final):
    here = processes(b"0 RunTimeoutError: its timeout is over")
    with pytest.raises(Stopped, match="its timeout is over"):
        here.share(b"y", is_final=is_final)
