"""Dims that the processes of a mesh share out: which they are, and along which axis of the mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

from graphfw.errors import ArgumentError, GraphError, ShardingError, a_type
from graphfw.ir import concrete
from graphfw.ir.dim import DimLike, is_symbol
from graphfw.ir.graph import Graph
from graphfw.ir.shape import shape_text
from graphfw.ir.sources import Placeholder
from graphfw.ir.tensor import Tensor


class SplitDim(NamedTuple):
    """A symbolic dim of which each process has some.

    Attributes:
        name: The symbol.
        axis_name: The axis of the mesh.
        placeholder: The placeholder that says so.
    """

    name: str
    axis_name: str
    placeholder: Tensor

    @property
    def text(self) -> str:
        """The annotation and its line, for errors."""
        shown = f'"{self.placeholder.name}"' if self.placeholder.name else "a placeholder"
        where = self.placeholder.node.loc.short()
        return f'`{self.name}` is split over "{self.axis_name}" by {shown} ({where})'


def split_dims(graph: Graph) -> dict[str, SplitDim]:
    """Return the split dims of a graph by name."""
    found: dict[str, SplitDim] = {}
    for tensor in graph.placeholders:
        for name, axis_name in cast("Placeholder", tensor.node.op).split:
            found.setdefault(name, SplitDim(name, axis_name, tensor))
    return found


def checked_split(
    graph: Graph, shape: Sequence[DimLike], split: object
) -> tuple[tuple[str, str], ...]:
    """Return the annotations of a placeholder: pairs of a dim and an axis of the mesh.

    Args:
        graph: The graph that is open.
        shape: The placeholder's.
        split: The user's argument.

    Raises:
        ArgumentError: It is no dict of dims and axes that there are.
        GraphError: The graph has no mesh.
        ShardingError: It contradicts itself, or another placeholder.
    """
    if not isinstance(split, Mapping) or not all(isinstance(key, str) for key in split):
        shown = split if isinstance(split, Mapping) else a_type(split)
        raise ArgumentError(
            f"placeholder: split is {shown}, and should name dims",
            fix='write the name of a dim and an axis of the mesh: split={"batch": "data"}',
        )
    if not split:
        return ()
    if graph.mesh is None:
        raise GraphError(
            "placeholder: split is for a graph with a mesh, and this one has none",
            fix="write mesh = gf.distributed.Mesh(data=-1), and `with gf.Graph(mesh=mesh) as g:`",
        )
    known = split_dims(graph)
    first = next(iter(split.values()))
    for name, axis_name in split.items():
        _check_dim(name, shape)
        if not isinstance(axis_name, str):
            raise ArgumentError(
                f"placeholder: split has {a_type(axis_name)} for the dim {name!r}",
                fix=f"write the name of an axis of the mesh: {', '.join(graph.mesh.axes)}",
            )
        graph.mesh.size_of(axis_name)
        if axis_name != first:
            raise ShardingError(
                f'placeholder: split has two axes of the mesh, "{first}" and "{axis_name}"',
                fix="split all dims over one axis of the mesh",
            )
        other = known.get(name) or next(iter(known.values()), None)
        if other is not None and other.axis_name != axis_name:
            raise ShardingError(
                f'placeholder: `{name}` is to be split over "{axis_name}", and {other.text}',
                operands=[concrete.describe("earlier", other.placeholder)],
                fix="split all dims over one axis of the mesh",
            )
    return tuple(sorted(split.items()))


def _check_dim(name: str, shape: Sequence[DimLike]) -> None:
    axes = [axis for axis, dim in enumerate(shape) if is_symbol(dim) == name]
    if not axes:
        raise ArgumentError(
            f"placeholder: split names {name!r}, and the shape {shape_text(tuple(shape))} has no "
            "such dim",
            fix="give the dim this name, in place of a number or None",
        )
    if len(axes) > 1:
        raise ShardingError(
            f"placeholder: `{name}`, which is split, is the size of axes {axes[0]} and {axes[1]}",
            fix="give one of the axes a name of its own",
        )
