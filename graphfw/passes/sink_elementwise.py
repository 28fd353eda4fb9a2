"""Elementwise operations on feeds move below the views that are read of their results.

`astype(image)[..., 0]` is `astype(image[..., 0])`. The views of a feed need no memory, and what is
done to their elements can be computed where it is read: so an image whose channels are used one by
one, or in another order, is read once, and no converted copy of it is stored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from graphfw.ir.build import emit, emit_all
from graphfw.ir.dim import DimLike
from graphfw.ir.dim_text import evaluate
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph
from graphfw.ir.op import ELEMENTWISE, SOURCE, Op
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.shape import size_of
from graphfw.ir.sources import Placeholder
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.types import Shape
from graphfw.ir.walk import users
from graphfw.ops.shape.concat import Split
from graphfw.ops.shape.gather_scatter import Slice
from graphfw.ops.shape.movement import PermuteDims
from graphfw.passes.base import Pass
from graphfw.passes.fuse_views import renamed, renames, standard_index
from graphfw.utils.records import record

_SIZE = 64
"""The size that an unknown dim counts as. What is moved depends on it, no value does."""


class ResultView(NamedTuple):
    """A view of a result that has a shape; operands are broadcast to that."""

    op: Op
    shape: Shape


@record
class SinkElementwiseBelowViews(Pass):
    """Compute elementwise results where views of them are read, without storing all of them."""

    name = "sink-elementwise-below-views"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        viewed = {n.inputs[0].node for n in graph.nodes if isinstance(n.op, _VIEWS)}
        if not any(map(is_elementwise, viewed)):
            return graph
        nodes = live_nodes(graph)
        fed = _functions_of_feeds(nodes)
        sunk = {} if fed.isdisjoint(viewed) else _sunk(graph, nodes, fed)
        if not sunk:
            return graph
        views: dict[tuple[Node, ResultView], tuple[Tensor, ...]] = {}

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            def operand(number: int, view: ResultView) -> tuple[Tensor, ...]:
                found = views.get((node.inputs[number].node, view))
                return view_of(view, inputs[number]) if found is None else found

            for view in sunk.get(node, ()):
                operands = [operand(number, view) for number in range(len(inputs))]
                made = [emit(node.op, *each) for each in zip(*operands, strict=True)]
                views[node, view] = tuple(made)
            if not node.inputs or node.inputs[0].node not in sunk or node in sunk:
                return None
            hits["sunk"] += 1
            return views[node.inputs[0].node, ResultView(node.op, node.inputs[0].shape)]

        return rebuild(rebuild(graph, rewrite))  # twice: the whole results go


_VIEWS = (PermuteDims, Slice, Split)

_Sunk: TypeAlias = Mapping[Node, Collection[ResultView]]


def _sunk(graph: Graph, nodes: Sequence[Node], fed: Collection[Node]) -> _Sunk:
    """Return the nodes that are computed where views of them are read, and which views these are.

    All that read them are views, or functions of which the same holds, and these views together
    have no more elements than the result.

    Args:
        graph: The graph.
        nodes: Those that its outputs need.
        fed: The elementwise functions of feeds among them.
    """
    readers = users(nodes)
    kept = {tensor.node for tensor in graph.outputs}
    found: dict[Node, Collection[ResultView]] = {}
    into_kernels: set[Node] = set()  # views that elementwise operations and reductions read
    for node in reversed(nodes):
        if renames(node):
            if all([r in into_kernels or _is_fusible(r) for r in readers[node]]):
                into_kernels.add(node)
        elif node in fed and node not in kept:
            views = _views_of(node, readers[node], found, into_kernels)
            if views and _elements(views, node.types[0].shape) <= usual_size(node.types[0].shape):
                found[node] = views
    return found


def _functions_of_feeds(nodes: Sequence[Node]) -> set[Node]:
    """Return elementwise functions of what is there before a run, a placeholder among it."""
    found: set[Node] = set()
    there: dict[Node, bool] = {}  # with whether it depends on a placeholder
    for node in nodes:
        if SOURCE in node.op.traits:
            there[node] = isinstance(node.op, Placeholder)
        elif all([t.node in there for t in node.inputs]):
            is_fed = any([there[t.node] for t in node.inputs])
            if renames(node):
                there[node] = is_fed
            elif is_fed and is_elementwise(node):
                there[node] = True
                found.add(node)
    return found


def _views_of(
    node: Node, readers: Sequence[Node], sunk: _Sunk, into_kernels: Collection[Node]
) -> Collection[ResultView]:
    """Return the views that are read of a node's result; none where something else reads it."""
    views: dict[ResultView, None] = {}
    for reader in readers:
        if reader in sunk:
            views.update(dict.fromkeys(sunk[reader]))
        elif isinstance(reader.op, _VIEWS) and reader in into_kernels and _is_inside(reader):
            views[ResultView(reader.op, node.types[0].shape)] = None
        else:
            return ()
    return tuple(views)


def is_elementwise(node: Node) -> bool:
    """Return whether a node computes elements by a scalar function of its operands' elements."""
    return ELEMENTWISE in node.op.traits and node.op.scalar is not None and len(node.types) == 1


def _is_fusible(node: Node) -> bool:
    """Return whether a kernel that computes a node can compute its operands, too."""
    return is_elementwise(node) or bool(node.op.combine)


def _is_inside(node: Node) -> bool:
    """Return whether all elements of a view are known to exist; else they must be checked."""
    return all([renamed(t, standard_index(t)[0]) is not None for t in node.outputs])


def _elements(views: Iterable[ResultView], shape: Shape) -> int:
    """Count the elements of an operand that the views read together."""
    total = 0
    for op, full in views:
        lengths = op.lengths if isinstance(op, Slice) else full
        aligned = zip(shape, lengths[len(full) - len(shape) :], strict=True)
        total += usual_size([1 if dim == 1 else length for dim, length in aligned])
    return total


def usual_size(shape: Sequence[DimLike]) -> int:
    """Return the number of elements, where an unknown dim counts as a usual size."""
    return evaluate(size_of(shape), defaultdict(lambda: _SIZE))


def view_of(view: ResultView, x: Tensor) -> tuple[Tensor, ...]:
    """Return a view of an operand that is broadcast to the view's shape."""
    op, full = view
    shape: Shape = (*(1,) * (len(full) - x.ndim), *x.shape)
    is_broadcast = [dim == 1 and size != 1 for dim, size in zip(shape, full, strict=True)]
    if isinstance(op, PermuteDims):
        return (F.permute_dims(F.reshape(x, shape), op.axes),) if x.ndim else (x,)
    if isinstance(op, Split):
        if op.axis < len(full) - x.ndim or is_broadcast[op.axis]:
            return (x,) * len(op.lengths)
        return emit_all(Split(op.lengths, op.axis - len(full) + x.ndim), x)
    assert isinstance(op, Slice)
    axes = [
        (0, 1, 1) if is_one else axis for axis, is_one in zip(op.axes(), is_broadcast, strict=True)
    ][len(full) - x.ndim :]
    return (emit(Slice(*zip(*axes, strict=True)), x) if axes else x,)
