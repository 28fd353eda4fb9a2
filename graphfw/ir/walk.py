"""Walks over the nodes above given tensors, iterative: graphs may have 100,000s of nodes."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING

from graphfw.ir.op import Nested

if TYPE_CHECKING:
    from graphfw.ir.tensor import Node, Tensor


class NestedGraph(Nested):
    """A graph in a field of an op, as those see it that go through its nodes."""

    parameters: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    @abc.abstractmethod
    def nodes(self) -> list[Node]:
        """The nodes, in the order in which they are computed."""


_serial = attrgetter("serial")


def ancestors(
    tensors: Iterable[Tensor], *, stop: Callable[[Node], bool] | None = None
) -> list[Node]:
    """Return the nodes that the tensors need, themselves included, inputs before users.

    `stop(node)` cuts the walk above a node; the node itself is still returned.
    """
    found: set[Node] = set()
    todo = [t.node for t in tensors]
    while todo:
        node = todo.pop()
        if node in found:
            continue
        found.add(node)
        if stop is None or not stop(node):
            for tensor in node.inputs:
                above = tensor.node
                if above not in found:
                    todo.append(above)
    # A node is always made after its inputs, so the order of making is a topological one.
    return sorted(found, key=_serial)


def users(nodes: Iterable[Node]) -> dict[Node, list[Node]]:
    """Return for each node the nodes that use one of its outputs, each once."""
    result: dict[Node, list[Node]] = {}
    for node in nodes:
        result.setdefault(node, [])
        for producer in dict.fromkeys(t.node for t in node.inputs):
            result.setdefault(producer, []).append(node)
    return result
