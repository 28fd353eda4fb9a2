"""Concatenations whose inputs are computed by one group: it writes them where they belong.

Afterwards the group has the concatenation for an output. The inputs are not stored for it, and
nothing is copied. Where the inputs are single elements of short rows, as of coordinates that are
stacked, the groups that compute them become one for that.
"""

from __future__ import annotations

from collections import Counter

from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.shape.concat import Concat
from graphfw.ops.shape.movement import Reshape
from graphfw.passes.fuse_cluster import Cluster
from graphfw.passes.fuse_clusters import Clusters
from graphfw.passes.fuse_nodes import Role
from graphfw.passes.narrow_rolls import NARROW

_MOST_INPUTS = 32
"""A kernel writes no more inputs of concatenations: it has code for each, and compilers take longer
than in proportion over large functions. More are copied, in a loop over the inputs."""


def join_concats(clusters: Clusters, graph: Graph) -> None:
    """Give concatenations to the groups that compute all of their inputs."""
    counts: Counter[Cluster] = Counter()
    for node in graph.nodes:
        if not isinstance(node.op, Concat) or clusters.facts.role[node] is not Role.FALLBACK:
            continue
        if _is_narrow(node):
            _join_columns(clusters, node)
        group, source = clusters.of(node), _source(clusters, node)
        if group is not None and source is not None:
            if counts[source] + len(node.inputs) > _MOST_INPUTS:
                continue
            counts[source] += len(node.inputs)
            clusters.facts.role[node] = Role.CONCAT
            group.nodes, group.sources, group.into = [], set(), source
            source.nodes.append(node)
            source.high = max(source.high, clusters.positions[node])


def _source(clusters: Clusters, node: Node) -> Cluster | None:
    """Return the cluster that computes all inputs, where its loops run through each of them."""
    if len(node.inputs) > _MOST_INPUTS:
        return None
    found: set[Cluster] = set()
    for x in node.inputs:
        x = _column(x) if _is_narrow(node) else x
        source = clusters.of(x.node)
        if source is None or not clusters.facts.is_plain(x.node) or clusters.facts.waits(node):
            return None
        if len(clusters.out[x.node]) != len(source.axes):
            return None
        found.add(source)
    return found.pop() if len(found) == 1 else None


def _is_narrow(node: Node) -> bool:
    """Return whether a concatenation is of single elements along the last axis."""
    op, count = node.op, len(node.inputs)
    if not isinstance(op, Concat) or not 1 < count <= NARROW:
        return False
    shape = node.types[0].shape
    return op.axis % len(shape) == len(shape) - 1 and all([x.shape[-1] == 1 for x in node.inputs])


def _column(x: Tensor) -> Tensor:
    """Return the tensor of which an input is a reshape that only adds dims of 1."""
    while isinstance(x.node.op, Reshape):
        source = x.node.inputs[0]
        if [d for d in source.shape if d != 1] != [d for d in x.shape if d != 1]:
            break
        x = source
    return x


def _join_columns(clusters: Clusters, node: Node) -> None:
    """Make one group of those that compute the inputs, as far as that goes."""
    first, *others = [_column(x).node for x in node.inputs]
    if all(map(clusters.facts.is_plain, (first, *others))):
        for other in others:
            clusters.join_beside(first, other)
