"""Processes in a grid, and the state that they share between runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphfw.distributed.processes import Processes
from graphfw.utils import forks


class Grid:
    """Processes in a grid with named axes.

    All processes make it at once.

    Args:
        processes: The processes.
        axes: The sizes of the axes, by name. They multiply to the number of processes.

    Attributes:
        rank: The number of this process.
        size: The number of processes.
        coordinates: The index of this process along each axis.
        groups: By axes, the processes that differ along that axis alone.
        runner: The thread whose run exchanges arrays, if there is one.
        is_cut: Whether a run has failed, after which the processes have to come together again.
    """

    def __init__(self, processes: Processes, axes: Mapping[str, int]) -> None:
        self.processes = processes
        self.rank = processes.rank
        self.size = processes.count
        shape = tuple(axes.values())
        position = [int(i) for i in np.unravel_index(self.rank, shape)]
        self.coordinates = dict(zip(axes, position, strict=True))
        ranks = np.arange(self.size).reshape(shape)
        self.groups = {}
        for axis, name in enumerate(axes):
            along: tuple[Any, ...] = (*position[:axis], slice(None), *position[axis + 1 :])
            self.groups[name] = processes.group([int(rank) for rank in ranks[along]])
        self._running = forks.renewed_lock()
        self.runner: int | None = None
        self.is_cut = False

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Wait for runs of other threads: only one at a time exchanges arrays."""
        with self._running:
            self.runner = threading.get_ident()
            try:
                yield
            finally:
                self.runner = None
