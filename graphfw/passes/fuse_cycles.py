"""Groups that read from each other in a circle are taken apart.

While groups grow, the search for cycles leaves out what ends before the other group begins. But a
group that it reads from may have grown meanwhile, and end later. That is rare.
"""

from __future__ import annotations

from graphfw.passes.fuse_cluster import Cluster
from graphfw.passes.fuse_clusters import Clusters


def break_cycles(clusters: Clusters) -> None:
    """Dissolve groups until none reads from itself through others: the smallest first."""
    while circle := _in_circles(clusters):
        several = [cluster for cluster in circle if len(cluster.nodes) > 1]
        _dissolve(clusters, min(several, key=lambda c: (len(c.nodes), c.number)))


def _dissolve(clusters: Clusters, cluster: Cluster) -> None:
    """Give each node of a cluster one of its own."""
    nodes = sorted(cluster.nodes, key=clusters.positions.__getitem__)
    cluster.nodes, cluster.sources = [], set()
    readers = clusters.readers
    for node in nodes:
        for read in clusters.reads[node]:
            readers[read.root] = [n for n in readers.get(read.root, ()) if n is not node]
        clusters.picks.discard(node)
    for node in nodes:
        clusters.put_single(node)
    for node in nodes:
        source = clusters.of(node)
        assert source is not None
        for reader in [user for t in node.outputs for user in readers.get(t, ())]:
            mine = clusters.of(reader)
            if mine is not None and mine is not source:
                mine.sources.add(source)


def _in_circles(clusters: Clusters) -> list[Cluster]:
    """Return the clusters that lie on cycles, or between two."""
    sources: dict[Cluster, set[Cluster]] = {}
    for cluster in clusters.all():
        read = {clusters.of(r.root.node) for node in cluster.nodes for r in clusters.reads[node]}
        sources[cluster] = {source for source in read if source is not None} - {cluster}
    users: dict[Cluster, set[Cluster]] = {cluster: set() for cluster in sources}
    for cluster, read_from in sources.items():
        for source in read_from:
            users[source].add(cluster)
    _strip(sources, users)
    _strip(users, sources)
    return list(sources)


def _strip(before: dict[Cluster, set[Cluster]], after: dict[Cluster, set[Cluster]]) -> None:
    """Take away what has nothing before it, again and again."""
    todo = [cluster for cluster, others in before.items() if not others]
    while todo:
        cluster = todo.pop()
        for other in after[cluster]:
            before[other].discard(cluster)
            if not before[other]:
                todo.append(other)
        del before[cluster], after[cluster]
