"""Rematerialisation of elementwise results: the backward graph computes them again.

Of `gelu(h)` the gradient needs `h` itself and, for a weight that it was multiplied by, the result.
What computes the gradient from `h` has all that it takes to compute the result once more, so that
only `h` need be kept. The same goes for what a norm has made of its input, for copies of a tensor
in another order, and for what comes of several tensors that are all kept: what a gate lets through.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from graphfw.ir.graph import Graph
from graphfw.ir.op import ELEMENTWISE, SOURCE
from graphfw.ir.rebuild import rebuild
from graphfw.ir.tensor import Node
from graphfw.ir.walk import ancestors
from graphfw.ops.shape.movement import Reshape
from graphfw.passes.base import Pass
from graphfw.passes.rematerialise import ForwardBackward, Rewriting, is_cheap, is_view
from graphfw.utils.records import record

_SIZE = 64
"""The size that an unknown dim counts as. Which tensors are chosen depends on it, no value does."""

_THIN = 16
"""A tensor so many times smaller than what is computed from it is kept: a mean, a scale."""

_LARGE = 4 << 20
"""Fewer bytes are not worth the trouble: a cache holds them."""

_LONG = 24
"""The most operations that are repeated for one tensor."""


@record
class RematerialiseElementwise(Pass):
    """Compute again in the backward graph what comes of one tensor, where that is kept anyway."""

    name: str = "rematerialise-elementwise"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        if not any(node.loc.grad_of is not None for node in graph.nodes):
            return graph
        try:
            joint = ForwardBackward(graph, defaultdict(lambda: _SIZE))
        except ZeroDivisionError:  # a size that there is for other sizes only
            return graph
        again = _ElementwiseChoice(joint, {tensor.node for tensor in graph.outputs}).again()
        return rebuild(graph, Rewriting(joint, again, hits)) if again else graph


class _ElementwiseChoice:
    """Finds what is computed again.

    Each tensor of the forward graph has a root: the one large tensor that it comes of, element by
    element. What comes of several is its own root, and these are its origins.
    """

    def __init__(self, joint: ForwardBackward, outputs: set[Node]) -> None:
        self._joint = joint
        self._outputs = outputs
        self._sizes: dict[Node, int] = {}
        self._root: dict[Node, Node] = {}
        self._origins: dict[Node, set[Node]] = {}
        for node in joint.order:
            if node in joint.forward:
                self._add(node)

    def _add(self, node: Node) -> None:
        size = self._joint.nbytes[node]
        if is_view(node):  # no more is in memory than what it is a view of
            size = min(size, self._sizes[node.inputs[0].node])
        self._sizes[node] = size
        self._root[node] = node
        if node in self._joint.available or not _is_plain(node):
            return
        large = [t.node for t in node.inputs if self._sizes[t.node] * _THIN > size]
        roots = {self._root[n] for n in large if n not in self._joint.available}
        if len(roots) == 1:
            self._root[node] = roots.pop()
        elif roots:
            self._origins[node] = roots

    def again(self) -> set[Node]:
        """Return the nodes that are computed again."""
        wanted: dict[Node, set[Node]] = defaultdict(set)
        for tensor in self._joint.wanted:
            wanted[self._root[tensor.node]].add(tensor.node)
        stored = self._stored()
        joined = [node for node in self._origins if node in stored and self._joins(node, wanted)]
        found: set[Node] = set()
        needed: set[Node] = set()
        for node in joined:
            found.update(self._between(node, wanted[node]))
            for before in [t.node for t in node.inputs]:
                if self._root[before] in self._origins[node]:
                    wanted[self._root[before]].add(before)
                    needed.add(self._root[before])
        for root, nodes in wanted.items():
            found |= self._of_root(root, nodes, stored, is_needed=root in needed)
        return found

    def _joins(self, node: Node, wanted: Mapping[Node, Collection[Node]]) -> bool:
        """Return whether a tensor is computed from several kept ones, and none from it."""
        origins = self._origins[node]
        if self._joint.nbytes[node] < _LARGE or not {node, *origins} <= wanted.keys():
            return False
        if not all([one is node or is_view(one) for one in wanted[node]]):
            return False
        between = ancestors(
            [t for t in node.inputs if self._root[t.node] in origins],
            stop=lambda n: n in origins or self._root[n] not in origins,
        )
        return len(between) <= _LONG

    def _stored(self) -> set[Node]:
        """Return the nodes that stay in memory beside their root: operands of expensive nodes."""
        found: set[Node] = set()
        for reader in self._joint.trigger:
            for tensor in () if is_cheap(reader) else reader.inputs:
                node = tensor.node
                while is_view(node) and not _is_copy(node):
                    node = node.inputs[0].node
                found.add(node)
        return found - self._outputs

    def _of_root(
        self, root: Node, wanted: Collection[Node], stored: Collection[Node], *, is_needed: bool
    ) -> set[Node]:
        """Return the nodes that are computed again from a root: all that come of it, or none.

        Args:
            root: The root.
            wanted: What comes of it and is read.
            stored: What must lie in memory.
            is_needed: Whether something is computed again that comes of it and others.
        """
        nodes = self._narrowed(self._between(root, wanted), wanted)
        root = nodes[0]
        kept = {node for node in nodes[1:] if node in stored}
        nbytes = sum([self._joint.nbytes[node] for node in kept])
        if not is_needed and (nbytes < _LARGE or len(nodes) > _LONG * len(kept)):
            return set()
        without = {root}  # what comes of the root without what is kept beside it
        for node in nodes[1:]:
            if node not in kept and not without.isdisjoint([t.node for t in node.inputs]):
                without.add(node)
        is_kept = is_needed or not without.isdisjoint(wanted)
        if not is_kept and nbytes <= self._joint.nbytes[root]:
            return set()
        again: set[Node] = set()
        for node in nodes[1:]:
            if not is_view(node) or node in kept or node.inputs[0].node in again:
                again.add(node)
        return again

    def _between(self, root: Node, wanted: Collection[Node]) -> list[Node]:
        """Return the nodes from a root to what comes of it, in order, the root first."""
        tensors = [node.outputs[0] for node in wanted]
        found = ancestors(tensors, stop=lambda n: n is root or self._root[n] is not root)
        return [node for node in found if self._root[node] is root]

    def _narrowed(self, nodes: list[Node], wanted: Collection[Node]) -> list[Node]:
        """Leave out the first nodes, up to one that all others come of: to a product the bias.

        What they read besides is there anyway, so that whatever makes the root makes them, too.
        """
        index_of = {node: number for number, node in enumerate(nodes)}
        inside = [[index_of[t.node] for t in node.inputs if t.node in index_of] for node in nodes]
        best = 0
        for number, node in enumerate(nodes[1:], 1):
            if not all([t.node in index_of or _is_source(t.node) for t in node.inputs]):
                break
            later = [read for reads in inside[number + 1 :] for read in reads]
            is_end = min([*later, *[index_of[n] for n in wanted]], default=number) >= number
            if is_end and self._joint.nbytes[node] <= self._joint.nbytes[nodes[0]]:
                best = number
        return nodes[best:]


def _is_plain(node: Node) -> bool:
    return is_view(node) or (ELEMENTWISE in node.op.traits and node.op.scalar is not None)


def _is_source(node: Node) -> bool:
    """Return whether a node is there before a run, or a view of such a one."""
    while is_view(node) and node.inputs:
        node = node.inputs[0].node
    return SOURCE in node.op.traits or not node.inputs


def _is_copy(node: Node) -> bool:
    """Return whether a view may need a copy: the reshape of a tensor in another order."""
    before = node.inputs[0].node
    while isinstance(before.op, Reshape):
        before = before.inputs[0].node
    return isinstance(node.op, Reshape) and is_view(before)
