"""What groups leave in memory, and what is cheaper to compute again than to store and read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.fuse_clusters import Cluster, Clusters
from graphfw.passes.fuse_nodes import Facts, Natives, Read, Role

_AGAIN = 6
"""So many nodes are computed again at most in place of reading one tensor."""

_MOVED = 16
"""So many move at most to the only group that reads what they compute."""


@dataclass
class Outputs:
    """What the clusters compute in the end.

    Attributes:
        nodes: What each computes, in order; clusters that nobody needs are not here.
        tensors: What each leaves in memory.
        sources: The clusters that each reads from.
    """

    nodes: dict[Cluster, tuple[Node, ...]]
    tensors: dict[Cluster, tuple[Tensor, ...]]
    sources: dict[Cluster, set[Cluster]]


def settled(
    clusters: Clusters, facts: Facts, natives: Natives, outputs: Sequence[Tensor]
) -> Outputs:
    """Decide what each cluster stores, and what its readers compute again."""
    return _Settling(clusters, facts, natives, outputs).result()


class _Settling:
    def __init__(
        self, clusters: Clusters, facts: Facts, natives: Natives, outputs: Sequence[Tensor]
    ) -> None:
        self.clusters = clusters
        self.facts = facts
        self.natives = natives
        # The nodes of each cluster, with those that it computes again.
        self.members = {c: set(c.nodes) for c in clusters.all()}
        self.home = {node: c for c, nodes in self.members.items() for node in nodes}
        # Who reads what is computed elsewhere.
        self.readers: dict[Tensor, dict[Cluster, bool]] = {}
        self.stored: set[Tensor] = set()
        self.again: set[Tensor] = set()
        self.demanded = {facts.root_of(t) for t in outputs}
        for node, cluster in self.home.items():
            for read in clusters.reads[node]:
                source = self.home.get(read.root.node)
                if source is None or source is cluster:
                    continue
                full = read.axes is not None and len(read.axes) == len(cluster.axes)
                can_compute = full and cluster.closed == ""
                readers = self.readers.setdefault(read.root, {})
                readers[cluster] = readers.get(cluster, True) and can_compute

    def result(self) -> Outputs:
        order = sorted(self.home, key=self.clusters.places.__getitem__)
        for node in order:
            for tensor in node.outputs:
                if tensor in self.demanded:
                    self.stored.add(tensor)
                elif tensor in self.readers and not self._computed_again(tensor):
                    self.stored.add(tensor)
        return self._pruned(order)

    def _computed_again(self, tensor: Tensor) -> bool:
        """Let the readers of a tensor compute it themselves, where that moves fewer bytes."""
        node, readers = tensor.node, self.readers[tensor]
        cluster = self.home[node]
        is_full = len(self.clusters.out[node]) == len(cluster.axes) > 0
        if not is_full or not all(readers.values()):
            return False
        expanded = self._expanded(tensor, moves=len(readers) == 1)
        if expanded is None:
            return False
        nodes, frontier, instead = expanded
        width = len(self.clusters.out[node])
        large = [t for t in frontier if sum(d != 1 for d in t.shape) >= width]
        saved = tensor.dtype.itemsize * (1 + len(readers))
        for reader in readers:
            known = self._reads_of(reader)
            saved -= sum(t.dtype.itemsize for t in large if t not in known)
        saved -= sum(t.dtype.itemsize for t in instead)
        # Of two tensors that cost the same, the one with more users may serve them too.
        if saved < bool(not instead):
            return False
        self.again.add(tensor)
        for reader in readers:
            self.members[reader].update(nodes)
        for source in frontier:
            if source.node in self.home:
                self.stored.add(source)
                known_readers = self.readers.setdefault(source, {})
                for reader in readers:
                    if self.home[source.node] is not reader:
                        known_readers.setdefault(reader, False)
        return True

    def _expanded(
        self, tensor: Tensor, *, moves: bool
    ) -> tuple[list[Node], list[Tensor], list[Tensor]] | None:
        """Return the nodes that compute a tensor from what is in memory, and what that is.

        Those nodes are cheap, or nobody else needs them: then they move to the only reader. What
        can't be computed again is named once more, last: it must be stored in place of the tensor.
        """
        nodes: list[Node] = []
        instead: list[Tensor] = []
        frontier: list[Tensor] = []
        todo = [tensor]
        moved: set[Node] = set()
        cheap = 0
        while todo:
            current = todo.pop()
            if current.node in nodes:
                continue
            if not all(
                [self._can_go_on(read, tensor) for read in self.clusters.reads[current.node]]
            ):
                if current is tensor or len(self.clusters.readers[current]) < 2:
                    return None
                instead.append(current)
                frontier.append(current)
                continue
            if moves and self._is_of_one(current, moved, is_first=not nodes):
                moved.add(current.node)
            else:
                cheap += 1
                if cheap > _AGAIN or not self._is_cheap(current.node):
                    return None
            nodes.append(current.node)
            if len(nodes) > _MOVED:
                return None
            for read in self.clusters.reads[current.node]:
                root = read.root
                home = self.home.get(root.node)
                is_open = home is not None and root not in self.stored
                if is_open and self._is_like(root, tensor):
                    todo.append(root)
                else:
                    frontier.append(root)
        return nodes, list(dict.fromkeys(frontier)), list(dict.fromkeys(instead))

    def _can_go_on(self, read: Read, tensor: Tensor) -> bool:
        """Whether what a node reads is in memory, a row value, or may be computed again."""
        root = read.root
        home = self.home.get(root.node)
        if home is None or root in self.stored:
            return True
        if read.axes is None:
            return False
        if self._is_like(root, tensor):
            return self._is_plain(root.node)
        return len(self.clusters.out[root.node]) < len(home.axes)

    def _is_of_one(self, tensor: Tensor, moved: set[Node], *, is_first: bool) -> bool:
        """Whether nobody needs a tensor in its own cluster but nodes that move away."""
        taken = tensor in self.again or tensor in self.demanded or tensor in self.stored
        if taken or not self._is_plain(tensor.node):
            return False
        home = self.home[tensor.node]
        users = self.clusters.readers.get(tensor, ())
        return all(self.home[user] is not home if is_first else user in moved for user in users)

    def _is_like(self, root: Tensor, tensor: Tensor) -> bool:
        """Whether two tensors have all axes of their groups, so that one index serves both."""
        out, axes = self.clusters.out, self.home[root.node].axes
        return len(out[root.node]) == len(out[tensor.node]) == len(axes)

    def _is_plain(self, node: Node) -> bool:
        is_pointwise = self.facts.role[node] is Role.POINTWISE
        return is_pointwise and node.op.name not in ("gather", "index_add")

    def _is_cheap(self, node: Node) -> bool:
        return self._is_plain(node) and self.natives.is_cheap(node)

    def _reads_of(self, cluster: Cluster) -> set[Tensor]:
        return {read.root for node in self.members[cluster] for read in self.clusters.reads[node]}

    def _pruned(self, order: Sequence[Node]) -> Outputs:
        """Leave out what nobody needs any more, from the end to the beginning."""
        places = self.clusters.places
        result = Outputs({}, {}, {})
        needed = set(self.demanded)
        kept: dict[Cluster, set[Node]] = {}
        for node in reversed(order):
            cluster = self.home[node]
            if any(t in needed for t in node.outputs):
                kept.setdefault(cluster, set())
                self._keep(node, kept[cluster], self.members[cluster], needed)
        # Of what is needed somewhere, what another cluster reads is stored.
        for cluster in self.members:
            if cluster not in kept:
                continue
            nodes = sorted(kept[cluster], key=places.__getitem__)
            own = [t for n in nodes if self.home[n] is cluster for t in n.outputs]
            result.nodes[cluster] = tuple(nodes)
            result.tensors[cluster] = tuple([t for t in own if t in needed])
            inside = kept[cluster]
            roots = {r.root.node for n in nodes for r in self.clusters.reads[n]} - inside
            result.sources[cluster] = {self.home[n] for n in roots if n in self.home}
        return result

    def _keep(self, node: Node, kept: set[Node], members: set[Node], needed: set[Tensor]) -> None:
        """Keep a node in a cluster and what it needs there; `needed` gets what others compute."""
        todo = [node]
        while todo:
            current = todo.pop()
            if current in kept:
                continue
            kept.add(current)
            for read in self.clusters.reads[current]:
                if read.root.node in members:
                    todo.append(read.root.node)
                else:
                    needed.add(read.root)
