"""The source lines of nodes, as reports show them."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Node


def location_of(node: Node) -> str:
    """Return where a node was made, with its layer, and for a gradient the line it belongs to."""
    layer = f" {node.loc.layer}" if node.loc.layer else ""
    gradient = f" (gradient of {node.loc.grad_of.short()})" if node.loc.grad_of else ""
    return f"{node.loc.short()}{layer}{gradient}"


def locations_of(nodes: Sequence[Node]) -> str:
    """Return where some nodes were made: the first two locations."""
    locations = list(dict.fromkeys(map(location_of, nodes)))
    more = f" and {len(locations) - 2} more" if len(locations) > 2 else ""
    return ", ".join(locations[:2]) + more


def node_table(graph: Graph) -> str:
    """Return a table of a graph's nodes, with what each takes and where it was made."""
    rows = [("step", "op", "result", "flops", "made at")]
    for number, node in enumerate(graph.nodes):
        cost = node.op.cost(node.types, *[t.type for t in node.inputs])
        types = ", ".join(map(str, node.types))
        rows.append((str(number), node.op.name, types, str(cost.flops), location_of(node)))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join(
        "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[4]]).rstrip()
        for row in rows
    )
