"""The interface of meshes of processes for graphs and sessions: see `graphfw/distributed/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from graphfw.errors import ArgumentError, a_type, did_you_mean

Reduction: TypeAlias = Literal["ordered", "fast"]
"""Whether sums over processes are made in graphfw's own order or in that of a library."""


class AbstractMesh(ABC):
    """A grid of processes with named axes.

    Attributes:
        axes: The sizes of the axes, by name.
    """

    axes: Mapping[str, int]

    @abstractmethod
    def runs(self, state: Any, check_finite: bool, reduction: Reduction, shards: int | None) -> Any:
        """Return the runs of a session on a state, which the processes make together.

        Raises:
            ArgumentError: `reduction` is another word, or `shards` no number of shards.
        """

    def size_of(self, axis_name: str) -> int:
        """Return the size of an axis.

        Raises:
            ArgumentError: There is no such axis.
        """
        if axis_name not in self.axes:
            raise ArgumentError(
                f"the mesh has no axis {axis_name!r}",
                fix=f"{did_you_mean(axis_name, self.axes)} its axes are: "
                f"{', '.join(self.axes)}".lstrip(),
            )
        return self.axes[axis_name]

    def __repr__(self) -> str:
        return f"Mesh({', '.join([f'{name}={size}' for name, size in self.axes.items()])})"


def checked_mesh(what: str, mesh: object) -> AbstractMesh | None:
    """Return a mesh, or None.

    Raises:
        ArgumentError: It is something else.
    """
    if mesh is None or isinstance(mesh, AbstractMesh):
        return mesh
    raise ArgumentError(
        f"{what}: mesh is {a_type(mesh)}, not a mesh", fix="pass gf.distributed.Mesh(data=-1)"
    )


def mesh_for(own: AbstractMesh | None, mesh: object) -> AbstractMesh | None:
    """Return the mesh of a session: the one that it is given, or its graph's own.

    Raises:
        ArgumentError: It is no mesh, or its axes are not those of the graph's.
    """
    found = checked_mesh("Session", mesh)
    if found is None or own is None:
        return found or own
    if dict(found.axes) != dict(own.axes):
        raise ArgumentError(
            f"Session: the graph is for {own}, and the session has {found}",
            fix="make the graph for the session's mesh: gf.Graph(mesh=mesh)",
        )
    return found
