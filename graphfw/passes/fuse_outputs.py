"""The outputs of groups: those that stay in memory, and those that are cheaper to compute again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.shape.flip_roll import Roll
from graphfw.ops.shape.gather_scatter import Gather, IndexAdd
from graphfw.passes.fuse_cluster import Cluster
from graphfw.passes.fuse_clusters import Clusters
from graphfw.passes.fuse_nodes import CompilableOps, FusionFacts, Read, Role

_AGAIN = 6
"""The most nodes that are recomputed instead of reading one tensor."""

_MOVED = 16
"""The most nodes that move to the only group that reads their result."""

_LARGE = 8 << 20
"""A tensor of so many bytes is not in a cache any more when it is read again."""

_SYMBOL = 64
"""The size that an unknown dim counts as where sizes are estimated."""

_BYTE = 0.05
"""Nanoseconds in which a thread moves a byte from memory; to memory it takes twice as long."""


@dataclass
class Outputs:
    """The outputs of the clusters in the end.

    Attributes:
        nodes: What each computes, in order; clusters that nobody needs are not here.
        tensors: What each leaves in memory.
        sources: The clusters that each reads from.
    """

    nodes: dict[Cluster, tuple[Node, ...]]
    tensors: dict[Cluster, tuple[Tensor, ...]]
    sources: dict[Cluster, set[Cluster]]


class _Again(NamedTuple):
    """The nodes that compute a tensor again.

    Attributes:
        nodes: In no order.
        frontier: What they read from memory.
        instead: What of that would not be there otherwise: it can't be computed again, and must be
            stored in place of the tensor.
    """

    nodes: list[Node]
    frontier: list[Tensor]
    instead: list[Tensor]


def _joined(several: Sequence[_Again]) -> _Again:
    """Return one record of the nodes that compute several tensors."""
    return _Again(
        list(dict.fromkeys([node for one in several for node in one.nodes])),
        list(dict.fromkeys([tensor for one in several for tensor in one.frontier])),
        list(dict.fromkeys([tensor for one in several for tensor in one.instead])),
    )


def settled(
    clusters: Clusters, facts: FusionFacts, natives: CompilableOps, outputs: Sequence[Tensor]
) -> Outputs:
    """Decide what each cluster stores, and what its readers compute again."""
    return _Settling(clusters, facts, natives, outputs).result()


class _Settling:
    def __init__(
        self,
        clusters: Clusters,
        facts: FusionFacts,
        natives: CompilableOps,
        outputs: Sequence[Tensor],
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
        order = sorted(self.home, key=self.clusters.positions.__getitem__)
        for node in order:
            for tensor in node.outputs:
                if tensor in self.demanded:
                    self.stored.add(tensor)
                elif tensor in self.readers and not self._computed_again(tensor):
                    self.stored.add(tensor)
        large: dict[tuple[Cluster, tuple[Cluster, ...]], list[Tensor]] = {}
        for tensor, readers in self.readers.items():
            is_open = tensor in self.stored and tensor not in self.demanded
            if is_open and self._can_compute(tensor) and _estimated(tensor) >= _LARGE:
                large.setdefault((self.home[tensor.node], tuple(readers)), []).append(tensor)
        for (_, several), tensors in large.items():
            self._compute_large(tensors, several)
        return self._pruned(order)

    def _can_compute(self, tensor: Tensor) -> bool:
        """Return whether the readers of a tensor have the loops to compute it."""
        is_full = len(self.clusters.out[tensor.node]) == len(self.home[tensor.node].axes) > 0
        return is_full and all(self.readers[tensor].values())

    def _computed_again(self, tensor: Tensor) -> bool:
        """Let the readers of a tensor compute it themselves, where that moves fewer bytes."""
        readers = self.readers[tensor]
        if not self._can_compute(tensor):
            return False
        again = self._expanded(tensor, moves=len(readers) == 1)
        if again is None:
            return False
        saved = tensor.dtype.itemsize * (1 + len(readers)) - self._more_read(again, readers)
        saved -= sum(t.dtype.itemsize for t in again.instead)
        # Of two tensors that cost the same, the one with more users may serve them too.
        if saved < bool(not again.instead):
            return False
        self._compute_in(readers, [tensor], again)
        return True

    def _compute_large(self, tensors: Sequence[Tensor], readers: Sequence[Cluster]) -> None:
        """Let readers compute tensors that no cache holds, even dearly, where that takes less time.

        They are all that these readers take from one group: what computes one may serve the others.
        """
        self.stored.difference_update(tensors)
        fixed = {t for t in tensors if self._expanded(t, moves=False, is_large=True) is None}
        self.stored.update(fixed)
        tensors = [tensor for tensor in tensors if tensor not in fixed]
        several = [self._expanded(tensor, moves=False, is_large=True) for tensor in tensors]
        again = _joined([one for one in several if one is not None])
        nbytes = sum([t.dtype.itemsize for t in tensors])
        written = nbytes - sum([t.dtype.itemsize for t in again.instead])
        moved = 2 * written + nbytes * len(readers) - self._more_read(again, readers)
        computing = sum(
            [
                self.natives.cost(node)
                for reader in readers
                for node in again.nodes
                if node not in self.members[reader]
            ]
        )
        if moved * _BYTE > computing:
            self._compute_in(readers, tensors, again)
        else:
            self.stored.update(tensors)

    def _more_read(self, again: _Again, readers: Iterable[Cluster]) -> int:
        """Return how many bytes an element readers read more if they compute something again."""
        width = max([len(self.clusters.out[node]) for node in again.nodes], default=0)
        large = [t for t in again.frontier if sum(d != 1 for d in t.shape) >= width]
        return sum(
            [t.dtype.itemsize for reader in readers for t in set(large) - self._reads_of(reader)]
        )

    def _compute_in(
        self, readers: Collection[Cluster], tensors: Sequence[Tensor], again: _Again
    ) -> None:
        self.again.update(tensors)
        for reader in readers:
            self.members[reader].update(again.nodes)
        for source in again.frontier:
            if source.node in self.home:
                self.stored.add(source)
                known_readers = self.readers.setdefault(source, {})
                for reader in readers:
                    if self.home[source.node] is not reader:
                        known_readers.setdefault(reader, False)

    def _expanded(self, tensor: Tensor, *, moves: bool, is_large: bool = False) -> _Again | None:
        """Return the nodes that compute a tensor from those in memory.

        Those nodes are cheap, or the tensor is large, or nobody else needs them: then they move to
        the only reader.
        """
        nodes: list[Node] = []
        instead: list[Tensor] = []
        frontier: list[Tensor] = []
        todo = [tensor]
        moved: set[Node] = set()
        known = 0
        while todo:
            current = todo.pop()
            if current.node in nodes:
                continue
            if self._is_narrower(current, tensor):
                instead.append(current)
                frontier.append(current)
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
                known += 1
                can_repeat = self._is_plain if is_large else self._is_cheap
                if known > _AGAIN * (1 + is_large) or not can_repeat(current.node):
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
        return _Again(nodes, list(dict.fromkeys(frontier)), list(dict.fromkeys(instead)))

    def _can_go_on(self, read: Read, tensor: Tensor) -> bool:
        """Return whether what a node reads is in memory, a row value, or may be computed again."""
        root = read.root
        home = self.home.get(root.node)
        if home is None or root in self.stored:
            return True
        if read.axes is None:
            return False
        if self._is_like(root, tensor):
            return self._is_plain(root.node) or self._is_narrower(root, tensor)
        return len(self.clusters.out[root.node]) < len(home.axes)

    def _is_narrower(self, root: Tensor, tensor: Tensor) -> bool:
        """Return whether a product has fewer bytes than the conversion of its result."""
        is_product = self.facts.role[root.node] is Role.MATMUL
        return is_product and root.dtype.itemsize < tensor.dtype.itemsize

    def _is_of_one(self, tensor: Tensor, moved: set[Node], *, is_first: bool) -> bool:
        """Return whether nobody needs a tensor in its own cluster but nodes that move away."""
        taken = tensor in self.again or tensor in self.demanded or tensor in self.stored
        if taken or not self._is_plain(tensor.node):
            return False
        home = self.home[tensor.node]
        users = self.clusters.readers.get(tensor, ())
        return all(self.home[user] is not home if is_first else user in moved for user in users)

    def _is_like(self, root: Tensor, tensor: Tensor) -> bool:
        """Return whether two tensors have all axes of their groups: one index serves both."""
        out, axes = self.clusters.out, self.home[root.node].axes
        return len(out[root.node]) == len(out[tensor.node]) == len(axes)

    def _is_plain(self, node: Node) -> bool:
        is_pointwise = self.facts.role[node] is Role.POINTWISE
        return is_pointwise and not isinstance(node.op, Gather | IndexAdd | Roll)

    def _is_cheap(self, node: Node) -> bool:
        return self._is_plain(node) and self.natives.is_cheap(node)

    def _reads_of(self, cluster: Cluster) -> set[Tensor]:
        return {read.root for node in self.members[cluster] for read in self.clusters.reads[node]}

    def _pruned(self, order: Sequence[Node]) -> Outputs:
        """Leave out what nobody needs any more, from the end to the beginning."""
        positions = self.clusters.positions
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
            nodes = sorted(kept[cluster], key=positions.__getitem__)
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


def _estimated(tensor: Tensor) -> int:
    """Return about how many bytes a tensor has."""
    nbytes = tensor.dtype.itemsize
    for dim in tensor.shape:
        nbytes *= dim if isinstance(dim, int) else _SYMBOL
    return nbytes
