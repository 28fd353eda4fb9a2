"""The epilogue of a matrix product: functions of its elements while they are in cache.

So are those of a convolution, whose columns are all its spatial dims; or its channels, where images
are channels-last.

Products are given epilogues when all other groups are settled. A group of elementwise nodes that
reads a product joins it. Of a group with reductions, the nodes up to one tensor move, where all
that comes of the product goes through that tensor: no more is written for it, and the group reads
one tensor in place of the product and whatever else they read. What others read of them
moves along: gradients of an activation leave its result, computed once more, beside their own.

A group that reads equal sections of a product's columns, as gates of a layer, joins it too;
and one that reduces its rows, where they are whole, as in a mean over all positions of a
convolution.
"""

from __future__ import annotations

from collections.abc import Collection

from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.products import MatMul
from graphfw.passes.fuse_cluster import Cluster
from graphfw.passes.fuse_clusters import Clusters
from graphfw.passes.fuse_loops import GroupReduction, Loops, loops_of
from graphfw.passes.fuse_nodes import Role
from graphfw.passes.fuse_pools import columns_of
from graphfw.passes.fuse_row_reductions import is_along, lines_of
from graphfw.passes.fuse_views import contiguous


def attach_products(clusters: Clusters, graph: Graph) -> None:
    """Give matrix products epilogues, the last ones first: these have most of their reads ready.

    Epilogues run along the columns, so a single column has none: what reads it does better alone.
    """
    clusters.with_products = True
    demanded = {clusters.facts.root_of(t) for t in graph.outputs}
    for node in reversed(graph.nodes):
        if clusters.facts.role[node] is not Role.MATMUL or node.outputs[0] in demanded:
            continue
        if any([dim != 1 for dim in columns_of(node)]):
            _attach(clusters, node, demanded)
            if isinstance(node.op, MatMul):
                _attach_sections(clusters, node, demanded)


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
    if _split_lines(clusters, node, reader) and clusters.attach(product, reader):
        return
    nodes = _prefix(clusters, tensor, reader, demanded)
    if nodes:
        clusters.move(nodes, reader, product)


def _split_lines(clusters: Clusters, product: Node, reader: Cluster) -> bool:
    """Split what is done to reduced rows of a product, and among them, from what reduces them.

    Returns:
        Whether that is done: the rest of the group that reads the product may be taken up by it.
    """
    order = clusters.order_of(reader)
    lines, source = lines_of(product, order), clusters.of(product)
    assert source is not None
    if [clusters.sizes[axis] for axis in clusters.order_of(source)] != [
        clusters.sizes[axis] for axis in order
    ]:
        return False
    after = [n for n in reader.nodes if clusters.resolved(clusters.axes[n]) == lines]
    first = set(reader.nodes) - set(after)
    reads = {read.root.node for node in first for read in clusters.reads[node]}
    if not after or not reads.isdisjoint(after) or clusters.picks & set(reader.nodes):
        return False
    reductions = [
        GroupReduction(clusters.resolved(r.source), clusters.resolved(r.result), r.is_index)
        for r in reader.reductions
    ]
    along = [one for one in reductions if is_along(one, order, lines)]
    among = [one for one in reductions if one.source == lines]
    is_rest = len(along) + len(among) == len(reductions)
    if not along or not is_rest or not clusters.facts.natives.keeps_rows(product):
        return False
    loops = loops_of(order, clusters.sizes, None, along)
    others = loops_of([axis for axis in order if axis in lines], clusters.sizes, None, among)
    if not isinstance(loops, Loops) or not isinstance(others, Loops):
        return False
    separated = clusters.split(reader, after, loops)
    separated.rows, separated.form, separated.reductions = others.rows, others.form, among
    reader.reductions = along
    return True


def _attach_sections(clusters: Clusters, node: Node, demanded: set[Tensor]) -> None:
    """Join a product to the elementwise cluster that reads nothing of it but sections.

    These are equal sections of its columns: the gates of a recurrent layer. An element of each is
    computed at a time, and what the epilogue so far does is done to each of them.
    """
    product = clusters.of(node)
    assert product is not None
    inside = set(product.nodes)
    read = {
        tensor: [user for user in clusters.readers.get(tensor, ()) if user not in inside]
        for one in product.nodes
        for tensor in one.outputs
    }
    read = {tensor: users for tensor, users in read.items() if users or tensor in demanded}
    if len(read) != 1 or not demanded.isdisjoint(read):
        return
    ((tensor, users),) = read.items()
    found = {clusters.of(user) for user in users}
    reader = next(iter(found))
    if len(found) != 1 or reader is None or reader.product is not None:
        return
    inside.discard(node)
    if not all([clusters.facts.is_plain(one) for one in (*inside, *reader.nodes)]):
        return
    widths = {_section(clusters, user, tensor) for user in users}
    width = next(iter(widths))
    if len(widths) == 1 and width is not None:
        clusters.attach_sections(product, reader, width)


def _section(clusters: Clusters, user: Node, tensor: Tensor) -> int | None:
    """Return how wide the sections are that an elementwise node reads of a tensor, if it does."""
    facts, shape = clusters.facts, user.types[0].shape
    width, columns = shape[-1] if shape else 1, tensor.shape[-1]
    if not isinstance(width, int) or not isinstance(columns, int):
        return None
    if width < 2 or columns % width or shape[:-1] != tensor.shape[:-1]:
        return None
    for x in user.inputs:
        layout = facts.layout_of(x)
        if layout.root is not tensor:
            continue
        begin = layout.offset
        is_section = isinstance(begin, int) and begin % width == 0 and begin < columns
        if x.shape != shape or layout.strides != contiguous(tensor.shape) or not is_section:
            return None
    return width


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
    for node in sorted(reader.nodes, key=clusters.positions.__getitem__):
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
            beside = _beside(clusters, cone, node, inside)
            if beside is not None:
                found = [*beside, *cone]
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
    """Return the nodes of the cluster that a node needs besides the cone, if they can move."""
    more: dict[Node, None] = {}
    todo = [node]
    while todo:
        for read in clusters.reads[todo.pop()]:
            source = read.root.node
            if read.root not in live and source not in inside:
                continue
            if read.axes is None:  # it reads other elements, such as those of a slice
                return None
            if read.root in live or source in cone or source in more:
                continue
            if not _can_move(clusters, source, node):
                return None
            more[source] = None
            todo.append(source)
    return list(more)[::-1]


def _beside(
    clusters: Clusters, cone: Collection[Node], last: Node, inside: set[Node]
) -> list[Node] | None:
    """Return a cluster's nodes that come of the cone beside its last node, if they can move.

    Others read it from memory, where the product's kernel writes it then.
    """
    found: dict[Node, None] = {}
    todo = [node for node in cone if node is not last]
    while todo:
        node = todo.pop()
        related = list(clusters.readers.get(node.outputs[0], ()))
        if node in found:
            reads = [read for read in clusters.reads[node] if read.root.node in inside]
            if any(read.axes is None or read.root.node is last for read in reads):
                return None
            related += [read.root.node for read in reads]
        for one in related:
            if one not in inside or one in cone or one in found:
                continue
            if not _can_move(clusters, one, last):
                return None
            found[one] = None
            todo.append(one)
    return list(found)


def _can_move(clusters: Clusters, node: Node, like: Node) -> bool:
    is_plain = clusters.facts.role[node] is Role.POINTWISE and node not in clusters.picks
    return is_plain and len(clusters.out[node]) == len(clusters.axes[like])
