"""Views of a graph: a table for people, and a networkx graph for algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphfw.errors import counted
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.op import MEASURES
from graphfw.utils.reports import Report

if TYPE_CHECKING:
    import networkx

    from graphfw.ir.graph import Graph


def summary(graph: Graph) -> str:
    """Return a table of a graph's placeholders, variables and ops.

    Flops and bytes are what the ops' `cost` says of one run of every node, before any optimisation;
    they hold the symbols of the shapes.

    >>> import graphfw as gf
    >>> with gf.Graph("double") as g:
    ...     x = gf.placeholder(("n", 3), name="x")
    ...     y = x + x
    >>> print(g.summary())
    graph "double": 2 nodes
    <BLANKLINE>
    placeholder  type
    x            float32[n, 3]
    <BLANKLINE>
    op           count  flops  bytes read  bytes written
    add              1    3*n        24*n           12*n
    placeholder      1      0           0              0
    total            2    3*n        24*n           12*n
    """
    title = f'graph "{graph.name}"' if graph.name else "graph"
    paragraphs = [f"{title}: {counted(len(graph.nodes), 'node')}"]
    if graph.placeholders:
        rows = [(t.name or "(no name)", str(t.type)) for t in graph.placeholders]
        paragraphs.append(table(("placeholder", "type"), rows, left=2))
    if graph.variables:
        paragraphs.append(_variables(graph))
    if graph.nodes:
        paragraphs.append(_ops(graph))
    return Report("\n\n".join(paragraphs))


def _variables(graph: Graph) -> str:
    rows: list[tuple[str, ...]] = []
    totals: dict[bool, list[DimLike]] = {True: [0, 0], False: [0, 0]}
    for variable in graph.variables:
        size, nbytes = variable.type.size, variable.type.nbytes
        totals[variable.trainable][0] += size
        totals[variable.trainable][1] += nbytes
        kind = "yes" if variable.trainable else "no"
        rows.append((variable.name, str(variable.type), kind, number(size), number(nbytes)))
    for trainable, what in ((True, "trainable"), (False, "not trainable")):
        rows.append((f"total {what}", "", "", *map(number, totals[trainable])))
    return table(("variable", "type", "trainable", "parameters", "bytes"), rows, left=3)


def _ops(graph: Graph) -> str:
    counts: dict[str, int] = {}
    costs: dict[str, list[DimLike]] = {}
    total: list[DimLike] = [0, 0, 0]
    for node in graph.nodes:
        name = node.op.name
        counts[name] = counts.get(name, 0) + 1
        of_op = costs.setdefault(name, [0, 0, 0])
        for i, amount in enumerate(node.op.cost(node.types, *[t.type for t in node.inputs])):
            of_op[i] += amount
            total[i] += amount
    rows = [
        (name, number(counts[name]), *map(number, costs[name]))
        for name in sorted(counts, key=lambda name: (-counts[name], name))
    ]
    rows.append(("total", number(len(graph.nodes)), *map(number, total)))
    return table(("op", "count", "flops", "bytes read", "bytes written"), rows, left=1)


def number(value: DimLike) -> str:
    """Return the text of a number of elements or bytes: `9,610`."""
    return f"{value:,}" if isinstance(value, int) else str(value)


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]], *, left: int) -> str:
    """Align columns: the first `left` to the left, the others, numbers, to the right."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def to_networkx(graph: Graph) -> networkx.MultiDiGraph:
    """Return a graph as a networkx graph.

    Its nodes are the `Node`s, with the attributes `op`, `name`, `loc` and `types`. For each use of
    a result there is an edge from the producer to the user, with the attributes `output`, the
    result's index, and `input`, its index among the user's inputs.

    >>> import graphfw as gf, networkx
    >>> with gf.Graph() as g:
    ...     x = gf.placeholder((3,), name="x")
    ...     y = x + x
    >>> [edge["input"] for _, _, edge in g.to_networkx().edges(data=True)]
    [0, 1]
    """
    import networkx  # here, not above: `import graphfw` should be quick

    result = networkx.MultiDiGraph(name=graph.name)
    for node in graph.nodes:
        result.add_node(node, op=node.op, name=node.name, loc=node.loc, types=node.types)
    for node in graph.nodes:
        for i, tensor in enumerate(node.inputs):
            result.add_edge(tensor.node, node, output=tensor.index, input=i)
    return result


def symbol_origin(graph: Graph, name: str) -> str:
    """Return where a symbolic dim comes from: `batch` is dim 0 of "x" (model.py:3)."""
    for node in graph.nodes:
        if MEASURES in node.op.traits and name in node.op.symbols:
            return f"`{name}` is what a run finds out by {node.op.name}, {node.loc.short()}"
        if node.op.name != "placeholder":
            continue
        for axis, dim in enumerate(node.types[0].shape):
            if isinstance(dim, Dim) and str(dim) == name:
                shown = f'"{node.name}"' if node.name else "a placeholder"
                return f"`{name}` is dim {axis} of {shown}, {node.loc.short()}"
    return ""
