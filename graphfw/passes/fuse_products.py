"""What is done to the elements of a matrix product while they are in cache: its epilogue.

Products are given epilogues when all other groups are settled. A group of elementwise nodes that
reads a product joins it. Of a group with reductions, the part up to one tensor moves, where all
that comes of the product goes through that tensor: no more is written for it, and the group reads
one tensor in place of the product and whatever else that part reads.
"""

from __future__ import annotations

from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.fuse_clusters import Cluster, Clusters
from graphfw.passes.fuse_nodes import Role


def attach_products(clusters: Clusters, graph: Graph) -> None:
    """Give matrix products epilogues, the last ones first: these have most of their reads ready.

    Epilogues run along the columns, so a single column has none: what reads it does better alone.
    """
    clusters.with_products = True
    demanded = {clusters.facts.root_of(t) for t in graph.outputs}
    for node in reversed(graph.nodes):
        if clusters.facts.role[node] is not Role.MATMUL or node.outputs[0] in demanded:
            continue
        if node.types[0].shape[-1] != 1:
            _attach(clusters, node, demanded)


def _attach(clusters: Clusters, node: Node, demanded: set[Tensor]) -> None:
    (tensor,) = node.outputs
    product = clusters.of(node)
    assert product is not None
    found = {clusters.of(user) for user in clusters.readers.get(tensor, ())}
    reader = next(iter(found), None)
    if len(found) != 1 or reader is None or reader.closed or reader.product is not None:
        return
    if clusters.attach(product, reader):
        return
    nodes = _prefix(clusters, tensor, reader, demanded)
    if nodes:
        clusters.move(nodes, reader, product)


def _prefix(
    clusters: Clusters, product: Tensor, reader: Cluster, demanded: set[Tensor]
) -> list[Node]:
    """Return the nodes up to the last tensor that all that comes of a product goes through."""
    facts, inside = clusters.facts, set(reader.nodes)
    width = len(reader.axes)
    cone: dict[Node, None] = {}
    found: list[Node] = []
    # What has been computed from the product and has readers that are not in the cone yet.
    live: dict[Tensor, int] = {product: len(clusters.readers[product])}
    for node in sorted(reader.nodes, key=clusters.places.__getitem__):
        mine = [read for read in clusters.reads[node] if read.root in live]
        if not mine:
            continue
        is_full = len(clusters.out[node]) == width == len(clusters.axes[node])
        is_plain = facts.role[node] is Role.POINTWISE and node not in clusters.picks
        if not is_full or not is_plain or any(r.axes is None for r in mine):
            continue  # what it reads stays live
        more = _needed(clusters, node, inside, cone, live)
        if more is None:
            continue
        for one in (*more, node):
            cone[one] = None
            for read in clusters.reads[one]:
                if read.root in live:
                    live[read.root] -= 1
        (tensor,) = node.outputs
        live = {t: count for t, count in live.items() if count > 0}
        readers = clusters.readers.get(tensor, ())
        live[tensor] = max(len(readers), 1)
        if live.keys() == {tensor}:
            found = list(cone)
    leaving = {t for n in found for t in n.outputs} & demanded
    last = found[-1].outputs[0] if found else None
    return found if not leaving - {last} else []


def _needed(
    clusters: Clusters,
    node: Node,
    inside: set[Node],
    cone: dict[Node, None],
    live: dict[Tensor, int],
) -> list[Node] | None:
    """Return the nodes of the cluster that a node needs besides the cone, if only it needs them."""
    more: list[Node] = []
    todo = [node]
    while todo:
        current = todo.pop()
        for read in clusters.reads[current]:
            source = read.root.node
            if read.root in live or source in cone or source in more or source not in inside:
                continue
            is_plain = clusters.facts.role[source] is Role.POINTWISE
            is_full = len(clusters.out[source]) == len(clusters.axes[node])
            users = clusters.readers.get(read.root, [])
            is_alone = all(u is node or u in cone or u in more for u in users)
            if not (is_plain and is_full and is_alone) or read.axes is None:
                return None
            more.append(source)
            todo.append(source)
    return more[::-1]
