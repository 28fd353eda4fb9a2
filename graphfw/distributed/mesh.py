"""`Mesh`: the processes of a program as a grid with named axes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from importlib import import_module

from graphfw.distributed import tree
from graphfw.distributed.grid import Grid
from graphfw.distributed.processes import Processes
from graphfw.distributed.runs import MeshRuns, check_shards
from graphfw.distributed.single import SingleProcess
from graphfw.errors import ArgumentError, counted
from graphfw.hints.calls import explained
from graphfw.ir.mesh import AbstractMesh, Reduction
from graphfw.ops.args import is_whole
from graphfw.runtime.state import State

_LAUNCHERS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
"""The variables of the environment by which launchers of MPI programs are known."""


@explained
class Mesh(AbstractMesh):
    """The processes of a program as a grid with named axes.

    All processes run the same program, and make the same mesh. Started by `mpiexec` or `srun` they
    are connected by MPI, which wants the package `mpi4py`; a program that is started by itself is
    the only process of its mesh.

    Args:
        axes: The sizes of the axes, by name; one may be -1, for as many as there are processes
            left. Processes that differ by 1 along the last axis have successive ranks.

    Attributes:
        axes: The sizes of the axes, by name.

    Raises:
        ArgumentError: The sizes don't multiply to the number of processes, or are none.
        ExecutorError: More than one process was started, and `mpi4py` is missing.

    >>> import graphfw as gf
    >>> mesh = gf.distributed.Mesh(data=-1)
    >>> mesh, mesh.rank, mesh.size
    (Mesh(data=1), 0, 1)
    """

    def __init__(self, **axes: int) -> None:
        self._connect(_started(), axes)

    @classmethod
    def _of(cls, processes: Processes, axes: Mapping[str, int]) -> Mesh:
        """Return a mesh of some processes."""
        mesh = cls.__new__(cls)
        mesh._connect(processes, axes)
        return mesh

    def _connect(self, processes: Processes, axes: Mapping[str, int]) -> None:
        self.axes = filled(checked_axes("Mesh", axes), processes.count)
        self._grid = Grid(processes, self.axes)

    @property
    def rank(self) -> int:
        """The number of this process."""
        return self._grid.rank

    @property
    def size(self) -> int:
        """The number of processes."""
        return self._grid.size

    @property
    def coordinates(self) -> dict[str, int]:
        """The index of this process along each axis."""
        return dict(self._grid.coordinates)

    def shards(self, axis_name: str, shards: int) -> range:
        """Return the numbers of this process's shards, if the axis has so many in all.

        Args:
            axis_name: The axis.
            shards: The number of shards of all processes along it.

        Raises:
            ArgumentError: There is no such axis, or there are fewer shards than processes.

        >>> import graphfw as gf
        >>> gf.distributed.SimulatedMesh(data=3).run(lambda mesh: mesh.shards("data", 8))
        [range(0, 3), range(3, 6), range(6, 8)]
        """
        count = self.size_of(axis_name)
        if not is_whole(shards) or shards < count:
            raise ArgumentError(
                f"Mesh.shards: {shards!r} shards are too few for {count} processes",
                fix=f"make {count} shards or more",
            )
        return tree.held(shards, count, self._grid.coordinates[axis_name])

    def runs(
        self, state: State, check_finite: bool, reduction: Reduction, shards: int | None
    ) -> MeshRuns:
        if reduction not in ("ordered", "fast"):
            raise ArgumentError(
                f"Session: reduction={reduction!r} is no order of sums",
                fix='write "ordered" or "fast"',
            )
        if shards is not None and (not is_whole(shards) or shards < 1):
            raise ArgumentError(
                f"Session: shards={shards!r} is no number of shards", fix="write an int: shards=8"
            )
        if shards is not None and len(self.axes) == 1:  # else the graph says which axis
            ((axis_name, count),) = self.axes.items()
            check_shards(shards, axis_name, count)
        return MeshRuns(self, self._grid, state, check_finite, reduction, shards)


def checked_axes(what: str, axes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of axes as ints; -1 is one.

    Raises:
        ArgumentError: There are none, or one of them is no size.
    """
    if not axes:
        raise ArgumentError(f"{what}: a mesh has an axis or more", fix=f"write {what}(data=-1)")
    for name, size in axes.items():
        if not is_whole(size) or (size < 1 and size != -1):
            raise ArgumentError(
                f"{what}: {name}={size!r} is no size of an axis",
                fix=f"write a number of processes: {name}=2",
            )
    return {name: int(size) for name, size in axes.items()}


def filled(axes: Mapping[str, int], count: int) -> dict[str, int]:
    """Return the sizes of axes, with a number in the place of -1.

    Raises:
        ArgumentError: The sizes don't multiply to the number of processes.
    """
    shown = f"Mesh({', '.join([f'{name}={size}' for name, size in axes.items()])})"
    open_axes = [name for name, size in axes.items() if size == -1]
    if len(open_axes) > 1:
        raise ArgumentError(f"{shown}: two axes are -1", fix="write the size of one of them")
    known = math.prod([size for size in axes.values() if size != -1])
    if count % known or (not open_axes and known != count):
        raise ArgumentError(
            f"{shown} is no grid of {counted(count, 'process', 'processes')}",
            fix="start as many processes as the sizes multiply to, or make one size -1",
        )
    return {name: count // known if size == -1 else size for name, size in axes.items()}


def _started() -> Processes:
    """Return the processes that were started with this one."""
    if any([name in os.environ for name in _LAUNCHERS]):
        # Not at the top: it wants a package that one process does without.
        processes: Processes = import_module("graphfw.distributed.mpi").world()
        return processes
    return SingleProcess()
