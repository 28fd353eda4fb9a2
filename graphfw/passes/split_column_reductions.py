"""Sums over many rows of few columns: made in chunks of rows by all threads, not by columns.

While groups grow, what is done to sums over the rows joins the group that makes them, which is then
run through column by column. With few columns and many rows that is work for one thread, so such a
group is taken apart again, unless the sums are needed at all its elements, as in a batch norm.
"""

from __future__ import annotations

from graphfw.ir.shape import size_of
from graphfw.passes.fuse_cluster import Cluster
from graphfw.passes.fuse_clusters import Clusters
from graphfw.passes.fuse_loops import Loops, is_wide, loops_of

_FEW_ROWS = 512
"""The number of rows up to which several threads have too little work."""


def split_narrow(clusters: Clusters) -> None:
    """Take apart the groups that would be run through by too few columns."""
    for cluster in clusters.all():
        if cluster.form == "columns" and cluster.has_row_values:
            _split(clusters, cluster)


def _split(clusters: Clusters, cluster: Cluster) -> None:
    order, sizes = clusters.order_of(cluster), clusters.sizes
    rows = clusters.resolved(cluster.rows or ())
    height = size_of([sizes[axis] for axis in order if axis not in rows])
    if is_wide(rows, sizes) or (isinstance(height, int) and height < _FEW_ROWS):
        return
    on_rows = [n for n in cluster.nodes if clusters.resolved(clusters.axes[n]) == rows]
    moved = set(on_rows)
    if not moved or moved & clusters.picks:
        return
    sums = {n for n in cluster.nodes if len(clusters.out[n]) < len(clusters.axes[n])} - moved
    for node in cluster.nodes:
        sources = {read.root.node for read in clusters.reads[node]}
        if node not in moved and (sources & moved or sources & sums):
            return
    whole = frozenset(order)
    wide = [r for r in cluster.reductions if clusters.resolved(r.source) == whole]
    translated = [r._replace(source=whole, result=clusters.resolved(r.result)) for r in wide]
    loops = loops_of(order, sizes, None, translated)
    if isinstance(loops, Loops) and loops.form == "rows":
        clusters.split(cluster, on_rows, loops)
