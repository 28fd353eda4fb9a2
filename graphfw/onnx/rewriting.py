"""Going over the nodes of a model: their order, which are needed, other names for values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx import GraphProto, NodeProto


def pruned(nodes: Sequence[NodeProto], wanted: set[str]) -> list[NodeProto]:
    """Return the nodes that make what is wanted, in order."""
    needed = set(wanted)
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(read(node))
    return kept[::-1]


def ordered(nodes: Sequence[NodeProto]) -> list[NodeProto]:
    """Return nodes after those that make what they read, and else in the order given."""
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    found: dict[int, None] = {}
    for last in range(len(nodes)):
        open_ = [last]
        while open_:
            index = open_[-1]
            needs = [makers[name] for name in read(nodes[index]) if name in makers]
            missing = [need for need in needs if need not in found]
            if missing:
                open_ += missing
            else:
                found[open_.pop()] = None
    return [nodes[index] for index in found]


def read(node: NodeProto) -> Iterator[str]:
    """Yield the names of what a node and the bodies in it read."""
    yield from node.input
    for graph in bodies(node):
        for inner in graph.node:
            yield from read(inner)


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs in a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g


def rename(nodes: Sequence[NodeProto], names: Mapping[str, str]) -> None:
    """Give values other names, also where bodies read them."""
    for node in nodes:
        for field in (node.input, node.output):
            for index, name in enumerate(field):
                if name in names:
                    field[index] = names[name]
        for graph in bodies(node):
            rename(graph.node, names)
