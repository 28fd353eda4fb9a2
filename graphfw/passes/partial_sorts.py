"""Sorts of which few elements are read, as a median is, need not put all in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from graphfw.ir.build import constant, emit
from graphfw.ir.constants import constant_array
from graphfw.ir.dtype import int64
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph
from graphfw.ir.op import ELEMENTWISE
from graphfw.ir.rebuild import derive, rebuild
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import users
from graphfw.ops.shape.gather_scatter import Gather
from graphfw.ops.sorting import selection
from graphfw.ops.sorting.partial_sort import PartialSort
from graphfw.ops.sorting.sort_search import Sort
from graphfw.passes.base import Pass
from graphfw.utils.records import record

_MOST = 64
"""A sort of which more elements are read stays one."""


@record
class SortToPartialSort(Pass):
    """Leave elements of a sort where they are that no gather along its axis reads."""

    name = "sort-to-partial-sort"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        read = _partly_read(graph)
        if not read:
            return graph
        graph = _with_last(graph, read)

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> Tensor | None:
            if node not in read:
                return None
            hits["partial"] += 1
            (x,) = inputs
            assert isinstance(node.op, Sort)
            return emit(PartialSort(node.op.axis), x, _joined(read[node], node.op.axis, x.ndim))

        return rebuild(graph, rewrite)


def _partly_read(graph: Graph) -> dict[Node, list[Tensor]]:
    """Return the sorts of which gathers alone read, and what says which elements."""
    if not any([isinstance(node.op, Sort) for node in graph.nodes]):
        return {}
    readers = users(graph.nodes)
    outputs = {tensor.node for tensor in graph.outputs}
    found: dict[Node, list[Tensor]] = {}
    for node in graph.nodes:
        op = node.op
        # Where zeros of two signs keep their order, a partial sort has none.
        if not isinstance(op, Sort) or op.descending:
            continue
        if op.stable and node.types[0].dtype.is_floating:
            continue
        size = node.types[0].shape[op.axis]
        if isinstance(size, int) and size < selection.MANY:
            continue
        indices = _indices(node, op.axis, readers, outputs)
        if indices is not None and _is_few(indices):
            found[node] = indices
    depending = _depending(graph, found)
    return {
        node: indices
        for node, indices in found.items()
        if all([index.node not in depending for index in indices])
    }


def _indices(
    node: Node, axis: int, readers: dict[Node, list[Node]], outputs: Collection[Node]
) -> list[Tensor] | None:
    """Return the indices of all gathers that read a node, after functions of each element."""
    found: list[Tensor] = []
    todo = [node]
    while todo:
        source = todo.pop()
        if source in outputs:
            return None
        for reader in readers[source]:
            if ELEMENTWISE in reader.op.traits and len(reader.inputs) == 1:
                todo.append(reader)
                continue
            if not isinstance(reader.op, Gather) or reader.op.axis != axis:
                return None
            x, *indices = reader.inputs
            if x.node is not source or len(indices) != 1 or indices[0].node is source:
                return None
            found += indices
    return found


def _is_few(indices: Sequence[Tensor]) -> bool:
    sizes = [index.type.size for index in indices]
    return all([isinstance(size, int) for size in sizes]) and sum(map(int, sizes)) <= _MOST


def _depending(graph: Graph, sorts: Collection[Node]) -> set[Node]:
    """Return sorts and all that depends on them."""
    found = set(sorts)
    for node in graph.nodes:
        if any([tensor.node in found for tensor in node.inputs]):
            found.add(node)
    return found


def _with_last(graph: Graph, sorts: Collection[Node]) -> Graph:
    """Return a graph that computes sorts, and what depends on them, after all others."""
    ordered = derive(graph, graph.outputs)
    depending = _depending(ordered, sorts)
    ordered.nodes.sort(key=depending.__contains__)
    return ordered


def _joined(indices: Sequence[Tensor], axis: int, ndim: int) -> Tensor:
    """Return indices in one tensor, which has one dim for each of the sorted tensor's."""
    shape = tuple([-1 if dim == axis else 1 for dim in range(ndim)])
    arrays = [constant_array(index) for index in indices]
    known = [array for array in arrays if array is not None]
    if len(known) == len(arrays):
        flat = np.unique(np.concatenate([array.reshape(-1) for array in known]))
        return constant(flat.astype(np.int64).reshape(shape))
    columns = [F.reshape(F.astype(index, int64), shape) for index in indices]
    joined: Tensor = F.concat(columns, axis=axis)
    return joined
