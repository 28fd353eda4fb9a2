"""Products whose epilogues reduce their rows: a mean over all places behind a convolution.

Rows of a convolution are its outputs, columns its places. Where work items have whole rows, what
follows may go through each as any kernel does; what leaves it are few numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphfw.ir.tensor import Node
from graphfw.passes.fuse_loops import Axes, GroupReduction, Loops, loops_of
from graphfw.passes.fuse_nodes import FusionFacts

if TYPE_CHECKING:
    from graphfw.passes.fuse_cluster import Cluster
    from graphfw.passes.fuse_clusters import Clusters


def takes_up(
    facts: FusionFacts,
    product: Node | None,
    order: Sequence[int],
    rows: Axes | None,
    reductions: Sequence[GroupReduction],
) -> bool:
    """Whether a product, if there is one in a group, can take up what the group does.

    Args:
        facts: What the nodes are.
        product: The product.
        order: The axes of the group, which are the product's.
        rows: The axes of its row values, if it has some.
        reductions: What it reduces.
    """
    if product is None or (rows is None and not reductions):
        return True
    lines = _lines(product, order)
    is_along = all([_is_along(one, order, lines) for one in reductions])
    is_fit = bool(reductions) and is_along and rows in (None, lines)
    return is_fit and facts.natives.keeps_rows(product)


def _lines(product: Node, order: Sequence[int]) -> Axes:
    """Return those of a product's axes that tell its rows apart."""
    columns = [dim for dim in product.types[0].shape[2:] if dim != 1]
    return frozenset(order[: len(order) - len(columns)])


def _is_along(one: GroupReduction, order: Sequence[int], lines: Axes) -> bool:
    """Whether a reduction is one over whole rows, of which there are several."""
    is_of_rows = one.source == frozenset(order) and one.result == lines
    return is_of_rows and bool(lines) and not one.is_place


def part_lines(clusters: Clusters, product: Node, reader: Cluster) -> bool:
    """Part what is done to reduced rows of a product, and among them, from what reduces them.

    Returns:
        Whether that is done: the rest of the group that reads the product may be taken up by it.
    """
    order = clusters.order_of(reader)
    lines, source = _lines(product, order), clusters.of(product)
    assert source is not None
    if [clusters.sizes[axis] for axis in clusters.order_of(source)] != [
        clusters.sizes[axis] for axis in order
    ]:
        return False
    behind = [n for n in reader.nodes if clusters.resolved(clusters.axes[n]) == lines]
    first = set(reader.nodes) - set(behind)
    reads = {read.root.node for node in first for read in clusters.reads[node]}
    if not behind or not reads.isdisjoint(behind) or clusters.picks & set(reader.nodes):
        return False
    reductions = [
        GroupReduction(clusters.resolved(r.source), clusters.resolved(r.result), r.is_place)
        for r in reader.reductions
    ]
    along = [one for one in reductions if _is_along(one, order, lines)]
    among = [one for one in reductions if one.source == lines]
    is_rest = len(along) + len(among) == len(reductions)
    if not along or not is_rest or not clusters.facts.natives.keeps_rows(product):
        return False
    loops = loops_of(order, clusters.sizes, None, along)
    others = loops_of([axis for axis in order if axis in lines], clusters.sizes, None, among)
    if not isinstance(loops, Loops) or not isinstance(others, Loops):
        return False
    parted = clusters.part(reader, behind, loops)
    parted.rows, parted.form, parted.reductions = others.rows, others.form, among
    reader.reductions = along
    return True
