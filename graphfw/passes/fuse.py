"""Fusion: a graph's nodes in groups, each of which is computed by one kernel.

Nodes are visited in order. Each begins as a group of its own and joins the groups that compute what
it reads, where one set of loops serves both and the groups' dependencies stay free of cycles.
Afterwards what is cheap to compute is computed again where it is read, instead of being stored.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from graphfw.ir.dim import DimLike
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.shape.gather_scatter import Gather
from graphfw.passes.fuse_cluster import Cluster
from graphfw.passes.fuse_clusters import Clusters
from graphfw.passes.fuse_concats import join_concats
from graphfw.passes.fuse_cycles import break_cycles
from graphfw.passes.fuse_nodes import CompilableOps, FusionFacts, Role
from graphfw.passes.fuse_outputs import Outputs, settled
from graphfw.passes.fuse_products import attach_products
from graphfw.passes.split_column_reductions import split_narrow
from graphfw.utils.records import record

_ANEW = (Role.GENERATED, Role.UNPACK)
"""Ops that are computed anew wherever kernels read them."""

GroupKind: TypeAlias = Literal["kernel", "matmul", "reference"]


@record(eq=False)
class Group:
    """Nodes that are computed together.

    Attributes:
        kind: "kernel": one loop nest; "matmul": a product and what is done to its elements;
            "reference": one node that is not native.
        nodes: In order. Cheap ones may be in several groups.
        outputs: What it leaves in memory.
        sizes: The axes that it loops over, the slowest in memory first; none is 1.
        rows: Which of them tell rows apart; None where elements don't depend on each other.
        form: "columns" where what runs along a vector is the last axis of the rows.
        picks: The gathers that take one position of each row of a tensor computed in the group.
        reasons: Why it is not larger: for a tensor that it reads, why it does not compute it.
    """

    kind: GroupKind
    nodes: tuple[Node, ...]
    outputs: tuple[Tensor, ...]
    sizes: tuple[DimLike, ...]
    rows: tuple[int, ...] | None
    form: Literal["rows", "columns"]
    picks: frozenset[Node]
    reasons: Mapping[Tensor, str]


@record(eq=False)
class Partition:
    """A graph in groups.

    Attributes:
        groups: In an order in which they can be executed.
        facts: What the nodes are, and how views lie.
    """

    groups: tuple[Group, ...]
    facts: FusionFacts


def partition(
    graph: Graph,
    natives: CompilableOps,
    fed: Mapping[Tensor, Sequence[DimLike]] | None = None,
) -> Partition:
    """Divide a graph's nodes into groups.

    Sources, views and what is computed anew wherever it is read belong to no group. The outputs of
    the graph, or the tensors that they are views of, are outputs of groups or sources.

    Args:
        graph: The graph.
        natives: What can be compiled.
        fed: The strides, in elements, of feeds that are not C-contiguous.
    """
    facts = FusionFacts(graph, natives, fed)
    wanted = _wanted(graph, facts)
    idle = _idle(graph, facts)
    clusters = Clusters(facts, {node: i for i, node in enumerate(graph.nodes)})
    for node in graph.nodes:
        role = facts.role[node]
        if role in (Role.SOURCE, Role.VIEW, Role.POOLED):
            continue
        if role in _ANEW and node not in wanted:
            continue
        if node in idle:
            continue
        clusters.add(node)
    split_narrow(clusters)
    break_cycles(clusters)
    attach_products(clusters, graph)
    break_cycles(clusters)
    join_concats(clusters, graph)
    outputs = settled(clusters, facts, natives, graph.outputs)
    groups = [_group(c, clusters, outputs) for c in _ordered(clusters, outputs)]
    return Partition(tuple(groups), facts)


def _wanted(graph: Graph, facts: FusionFacts) -> set[Node]:
    """Return the nodes that must be in memory, too: for outputs, products, references."""
    tensors = list(graph.outputs)
    numbered: list[Tensor] = []
    for node in graph.nodes:
        role = facts.role[node]
        if role in (Role.MATMUL, Role.FALLBACK):
            tensors.extend(facts.read_by(node))
        elif isinstance(node.op, Gather):
            numbered.append(node.inputs[0])
        elif role is Role.COPY:
            numbered.extend(node.inputs)
    roots = {facts.root_of(t).node for t in tensors}
    generated = {facts.root_of(t).node for t in numbered}
    return {
        *[node for node in roots if facts.role[node] in _ANEW],
        *[node for node in generated if facts.role[node] is Role.GENERATED],
    }


def _idle(graph: Graph, facts: FusionFacts) -> set[Node]:
    """Return the nodes that only reductions need that compute them themselves."""
    idle = {node for short in facts.short.values() for node in short.inside}
    if not idle:
        return idle
    todo = [facts.root_of(t).node for t in graph.outputs]
    seen = set(todo)
    while todo:
        node = todo.pop()
        idle.discard(node)
        fresh = {root.node for root in facts.needed_by(node)} - seen
        seen |= fresh
        todo.extend(fresh)
    return idle


def _group(cluster: Cluster, clusters: Clusters, outputs: Outputs) -> Group:
    nodes = outputs.nodes[cluster]
    order = clusters.order_of(cluster)
    rows = None if cluster.rows is None else clusters.resolved(cluster.rows)
    kind: GroupKind = "kernel"
    if cluster.product is not None:
        kind = "matmul"
    elif clusters.facts.role[nodes[0]] is Role.FALLBACK:
        kind = "reference"
    inside = set(nodes)
    reasons = {
        read.root: clusters.reasons[read.root, node]
        for node in nodes
        for read in clusters.reads[node]
        if read.root.node not in inside and (read.root, node) in clusters.reasons
    }
    return Group(
        kind=kind,
        nodes=nodes,
        outputs=outputs.tensors[cluster],
        sizes=tuple([clusters.sizes[axis] for axis in order]),
        rows=None if rows is None else tuple([i for i, a in enumerate(order) if a in rows]),
        form=cluster.form,
        picks=frozenset(clusters.picks & inside),
        reasons=reasons,
    )


def _ordered(clusters: Clusters, outputs: Outputs) -> Sequence[Cluster]:
    """Return the clusters that are needed, each after those that it reads from."""
    needed = outputs.nodes.keys()
    users: dict[Cluster, list[Cluster]] = {cluster: [] for cluster in needed}
    missing: dict[Cluster, int] = {}
    for cluster in needed:
        sources = outputs.sources[cluster]
        missing[cluster] = len(sources)
        for source in sources:
            users[source].append(cluster)
    ready = [(c.low, c.number, c) for c in needed if not missing[c]]
    heapq.heapify(ready)
    result = []
    while ready:
        _, _, cluster = heapq.heappop(ready)
        result.append(cluster)
        for user in users[cluster]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, (user.low, user.number, user))
    assert len(result) == len(needed)
    return result
