"""The functions that move or add arrays of all processes of a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphfw.errors import ArgumentError, GraphError, a_type
from graphfw.ir.body import BodyGraph
from graphfw.ir.build import emit
from graphfw.ir.functions import F, public
from graphfw.ir.graph import current_graph
from graphfw.ir.mesh import AbstractMesh
from graphfw.ir.shape import normalize_axis
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, is_whole, ruled
from graphfw.ops.collectives.kinds import (
    AllGather,
    AllReduce,
    AllToAll,
    AxisIndex,
    Broadcast,
    How,
    ReduceScatter,
)
from graphfw.ops.composed import demand

__all__ = ["all_gather", "all_reduce", "all_to_all", "axis_index", "broadcast", "reduce_scatter"]

_INLINED = ("vmap", "jvp")
"""The bodies that become nodes of the graph around them."""


@public
def all_reduce(
    x: TensorLike, axis_name: str, *, op: How = "sum", shards: int | None = None
) -> Tensor:
    """Return the sum of the tensors that all processes along an axis of the mesh have.

    The processes are added in a binary tree, unless the session has `reduction="fast"`. The
    gradient is that of the sum of all processes' losses.

    x: [*A] of any number dtype -> [*A]; with `shards` [s, *A] -> [*A].

    Args:
        x: A tensor, of the same shape and dtype in each process.
        axis_name: The axis of the mesh.
        op: "sum", "max" or "min".
        shards: The number of shards of all processes together, if x has those of this process along
            axis 0. They are added in a binary tree over all shards, so the sum has the same bits
            for any number of processes: see `Mesh.shards`.

    Raises:
        GraphError: The graph has no mesh, or a body of a loop or a branch is open.
        ArgumentError: The mesh has no such axis, `op` is another word, or `shards` is no number
            that the processes can have.
        DTypeError: x is of bools, or complex where `op` is not "sum".
        ShapeError: With `shards`, x has no axes.
        DistributedError: When run: another process failed, or has another shape.

    >>> import graphfw as gf
    >>> def program(mesh):
    ...     with gf.Graph(mesh=mesh) as g:
    ...         x = gf.placeholder((), name="x")
    ...         total = gf.distributed.all_reduce(x, "data")
    ...     with gf.Session(g) as session:
    ...         return float(session.run(total, {x: mesh.rank + 1}))
    >>> gf.distributed.SimulatedMesh(data=3).run(program)
    [6.0, 6.0, 6.0]
    """
    demand(
        op in ("sum", "max", "min"),
        f"all_reduce: op={op!r} is no reduction",
        fix='write "sum", "max" or "min"; for a mean divide the sum by the number of processes',
    )
    count = _size_along("all_reduce", axis_name)
    number = _number("all_reduce", "shards", 0 if shards is None else shards)
    if shards is not None and number < count:
        raise ArgumentError(
            f"all_reduce: {number} shards are too few for {count} processes",
            fix=f"make {count} shards or more",
        )
    return emit(AllReduce(axis_name, count, how=op, shards=number), as_tensor(x))


@public
def reduce_scatter(x: TensorLike, axis_name: str, *, axis: int = 0) -> Tensor:
    """Return one block of the sum of the tensors that all processes along an axis have.

    The processes are added in a binary tree. The process with index i gets block i.

    x: [*A, n * b, *B] -> [*A, b, *B] for n processes.

    Args:
        x: A tensor, of the same shape and dtype in each process.
        axis_name: The axis of the mesh.
        axis: The axis of x that is cut into blocks.

    Raises:
        GraphError, ArgumentError, DistributedError: As for `all_reduce`.
        DTypeError: x is of bools.
        ShapeError: The number of processes does not divide the axis.
        AxisError: x has no such axis.

    >>> import graphfw as gf
    >>> def program(mesh):
    ...     with gf.Graph(mesh=mesh) as g:
    ...         mine = gf.distributed.reduce_scatter(gf.asarray([1.0, 2.0]), "data")
    ...     with gf.Session(g) as session:
    ...         return session.run(mine).tolist()
    >>> gf.distributed.SimulatedMesh(data=2).run(program)
    [[2.0], [4.0]]
    """
    op = ReduceScatter(axis_name, _size_along("reduce_scatter", axis_name))
    return _along("reduce_scatter", as_tensor(x), axis, lambda t: emit(op, t))


@public
def all_gather(x: TensorLike, axis_name: str, *, axis: int = 0) -> Tensor:
    """Return the tensors of all processes along an axis, one after the other.

    x: [*A, b, *B] -> [*A, n * b, *B] for n processes.

    Args:
        x: A tensor, of the same shape and dtype in each process.
        axis_name: The axis of the mesh.
        axis: The axis of x along which they are joined.

    Raises:
        GraphError, ArgumentError, DistributedError: As for `all_reduce`.
        AxisError: x has no such axis.

    >>> import graphfw as gf
    >>> def program(mesh):
    ...     with gf.Graph(mesh=mesh) as g:
    ...         x = gf.placeholder((1,), name="x")
    ...         everything = gf.distributed.all_gather(x, "data")
    ...     with gf.Session(g) as session:
    ...         return session.run(everything, {x: [mesh.rank]}).tolist()
    >>> gf.distributed.SimulatedMesh(data=2).run(program)
    [[0.0, 1.0], [0.0, 1.0]]
    """
    op = AllGather(axis_name, _size_along("all_gather", axis_name))
    return _along("all_gather", as_tensor(x), axis, lambda t: emit(op, t))


@public
def all_to_all(x: TensorLike, axis_name: str, *, split_axis: int, concat_axis: int) -> Tensor:
    """Send block i of a tensor to process i, and join the blocks that come.

    x: [*A, n * b, *B] -> the same dims, `split_axis` divided by n and `concat_axis` times n.

    Args:
        x: A tensor, of the same shape and dtype in each process.
        axis_name: The axis of the mesh.
        split_axis: The axis of x that is cut into blocks.
        concat_axis: The axis along which the blocks are joined.

    Raises:
        GraphError, ArgumentError, DistributedError: As for `all_reduce`.
        ShapeError: The number of processes does not divide `split_axis`.
        AxisError: x has no such axes.

    >>> import graphfw as gf
    >>> def program(mesh):
    ...     with gf.Graph(mesh=mesh) as g:
    ...         x = gf.placeholder((1, 2), name="x")
    ...         y = gf.distributed.all_to_all(x, "data", split_axis=1, concat_axis=0)
    ...     with gf.Session(g) as session:
    ...         return session.run(y, {x: [[mesh.rank, mesh.rank + 10]]}).tolist()
    >>> gf.distributed.SimulatedMesh(data=2).run(program)
    [[[0.0], [1.0]], [[10.0], [11.0]]]
    """
    tensor = as_tensor(x)
    count = _size_along("all_to_all", axis_name)
    split = ruled("all_to_all", tensor, normalize_axis, split_axis, tensor.ndim)
    concat = ruled("all_to_all", tensor, normalize_axis, concat_axis, tensor.ndim)
    op = AllToAll(axis_name, count)
    moved = emit(op, F.moveaxis(tensor, split, 0))
    if split == concat:
        return F.moveaxis(moved, 0, split)
    # [n * b, …] -> [n, b, …] -> the n before the axis along which the blocks are joined.
    blocks = F.reshape(moved, (count, moved.shape[0] // count, *moved.shape[1:]))
    blocks = F.moveaxis(F.moveaxis(blocks, 1, split + 1), 0, concat)
    joined = (*blocks.shape[:concat], count * blocks.shape[concat + 1], *blocks.shape[concat + 2 :])
    return F.reshape(blocks, joined)


@public
def broadcast(x: TensorLike, axis_name: str, *, root: int = 0) -> Tensor:
    """Return the tensor of one process in all processes along an axis.

    x: [*A] -> [*A].

    Args:
        x: A tensor, of the same shape and dtype in each process.
        axis_name: The axis of the mesh.
        root: The index along the axis of the process whose tensor it is.

    Raises:
        GraphError, ArgumentError, DistributedError: As for `all_reduce`.
        ArgumentError: `root` is no index along the axis.

    >>> import graphfw as gf
    >>> def program(mesh):
    ...     with gf.Graph(mesh=mesh) as g:
    ...         x = gf.placeholder((), name="x")
    ...         y = gf.distributed.broadcast(x, "data", root=1)
    ...     with gf.Session(g) as session:
    ...         return float(session.run(y, {x: mesh.rank + 5}))
    >>> gf.distributed.SimulatedMesh(data=2).run(program)
    [6.0, 6.0]
    """
    count = _size_along("broadcast", axis_name)
    number = _number("broadcast", "root", root)
    demand(
        number < count,
        f"broadcast: there is no process {root} along an axis of {count}",
        fix=f"use 0 to {count - 1}",
    )
    return emit(Broadcast(axis_name, count, root=number), as_tensor(x))


@public
def axis_index(axis_name: str) -> Tensor:
    """Return the index of the process along an axis of the mesh.  -> int32[]

    Args:
        axis_name: The axis.

    Raises:
        GraphError: The graph has no mesh, or a body of a loop or a branch is open.
        ArgumentError: The mesh has no such axis.

    >>> import graphfw as gf
    >>> def program(mesh):
    ...     with gf.Graph(mesh=mesh) as g:
    ...         index = gf.distributed.axis_index("data")
    ...     with gf.Session(g) as session:
    ...         return int(session.run(index))
    >>> gf.distributed.SimulatedMesh(data=2).run(program)
    [0, 1]
    """
    return emit(AxisIndex(axis_name, _size_along("axis_index", axis_name)))


def _mesh_of(what: str) -> AbstractMesh:
    graph = current_graph()
    while isinstance(graph, BodyGraph):
        if graph.what not in _INLINED:
            raise GraphError(
                f"{what} is called in the body of {graph.what}, which each process may run another "
                "number of times",
                fix=f"call {what} before it or after it",
            )
        graph = graph.outer
    if graph.mesh is None:
        raise GraphError(
            f"{what} is called in a graph without a mesh",
            fix="write mesh = gf.distributed.Mesh(data=-1), and `with gf.Graph(mesh=mesh) as g:`",
        )
    return graph.mesh


def _size_along(what: str, axis_name: object) -> int:
    mesh = _mesh_of(what)
    demand(
        isinstance(axis_name, str),
        f"{what}: axis_name is {a_type(axis_name)}, not the name of an axis of the mesh",
        fix=f"write one of its names: {', '.join(mesh.axes)}",
    )
    return mesh.size_of(str(axis_name))


def _number(what: str, name: str, number: Any) -> int:
    demand(
        is_whole(number) and number >= 0,
        f"{what}: {name}={number!r} is no number from 0 on",
        fix=f"write an int: {name}=1",
    )
    return int(number)


def _along(what: str, x: Tensor, axis: int, call: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the result of a collective along axis 0, for another axis."""
    number = ruled(what, x, normalize_axis, axis, x.ndim)
    return F.moveaxis(call(F.moveaxis(x, number, 0)), 0, number)
