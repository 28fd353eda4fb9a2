"""The names of graphs in errors: the graph that owns something, and the one that was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphfw.ir.graph import Graph


def named(graph: Graph) -> str:
    """Return a graph's name, or else the line where its first node was made."""
    if graph.name:
        return f'the graph "{graph.name}"'
    return f"the graph begun at {graph.nodes[0].loc.short()}" if graph.nodes else "an empty graph"


def owners(owner: Graph, meant: Graph, what: str = "open is") -> str:
    """Return a sentence on the two graphs that were mixed up.

    Args:
        owner: Whose it is.
        meant: Where it is used.
        what: What the other graph is, as in "the session's is".
    """
    if meant.succeeds(owner):
        return f'it belongs to an earlier build of "{owner.name}"; each build makes its own tensors'
    other = "none is open" if meant.is_ambient else f"{what} {named(meant)}"
    return f"it belongs to {named(owner)}; {other}"
