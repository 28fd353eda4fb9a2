"""Processes in a grid, and the state that they share between runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphfw.distributed.processes import Processes


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
        running: Held by a run: only one at a time exchanges arrays.
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
        self.running = threading.Lock()
        self.is_cut = False
