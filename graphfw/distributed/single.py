"""A program of one process."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.distributed.processes import Processes, ProcessGroup
from graphfw.ir.literal import Array
from graphfw.ops.collectives.kinds import How


class SingleProcess(Processes):
    """The only process."""

    rank = 0
    count = 1

    def group(self, ranks: Sequence[int]) -> ProcessGroup:
        return _Single()

    def share(self, message: bytes, is_final: bool = False) -> list[bytes]:
        return [message]

    def stop(self, text: str) -> None:
        pass

    def restore(self) -> None:
        pass


class _Single(ProcessGroup):
    """A group of one process, to which everything comes back."""

    index = 0
    count = 1

    def all_gather(self, x: Array, sizes: Sequence[int]) -> Array:
        return x.copy()

    def all_to_all(self, x: Array, sent: Sequence[int], sizes: Sequence[int]) -> Array:
        return x.copy()

    def broadcast(self, x: Array, root: int) -> Array:
        return x.copy()

    def all_reduce(self, x: Array, how: How) -> Array:
        return x.copy()
