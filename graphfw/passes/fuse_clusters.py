"""Groups of nodes while they grow: which may be joined, and how their loops then correspond."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.shape.gather_scatter import Gather
from graphfw.passes.fuse_cluster import Cluster
from graphfw.passes.fuse_loops import Axes, GroupReduction, Loops, loops_of
from graphfw.passes.fuse_nodes import FusionFacts, Read, Role, Space
from graphfw.passes.fuse_row_reductions import takes_up

_CODE = 128
"""A kernel has no more code, in nodes of an instruction or two: compilers take long over large
functions, and registers run out."""

_CODE_OF_A_NANOSECOND = 10
"""The instructions of a function of the math library, inlined, for each nanosecond it takes."""

_SEARCH = 64
"""The most groups that are searched for a cycle."""

_READERS = 3
"""The most groups that read the same tensor and are tried."""

TOO_LARGE = "the kernel is large enough"
CYCLE = "it would form a cycle"
ONE_NUMBER = "it is one number, and others may need it sooner"
OTHER_ROWS = "it has other rows"
ALL_ROWS = "it needs all rows"
PRODUCT = "it is a matmul"
TWO_WAYS = "it is read in two orders"
WAITS = "it is what a barrier waits for"


class _Link(NamedTuple):
    """A tensor of one cluster that another reads: which axes are the same."""

    source: tuple[int, ...]
    reader: tuple[int, ...]
    is_inside: bool


class _Joint(NamedTuple):
    """The loops that two clusters have in common."""

    same: dict[int, int]
    order: tuple[int, ...]
    rows: Axes | None
    has_row_values: bool
    form: Literal["rows", "columns"]
    reductions: list[GroupReduction]


class Clusters:
    """All groups of a graph.

    Attributes:
        facts: What the nodes are.
        reads: What each node reads.
        out: The axes of each node's output.
        sizes: Of the axes.
        picks: The gathers that are loops over what they pick from.
        reasons: Why a node is not in one group with a tensor that it reads.
        readers: The nodes that read each tensor.
        with_products: Whether matrix products may be joined to: when all else is settled.
    """

    def __init__(self, facts: FusionFacts, positions: dict[Node, int]) -> None:
        self.facts = facts
        self.reads: dict[Node, tuple[Read, ...]] = {}
        self.axes: dict[Node, tuple[int, ...]] = {}
        self.out: dict[Node, tuple[int, ...]] = {}
        self.sizes: list[DimLike] = []
        self.picks: set[Node] = set()
        self.reasons: dict[tuple[Tensor, Node], str] = {}
        self.readers: dict[Tensor, list[Node]] = {}
        self.positions = positions
        self.with_products = False
        self._same: list[int] = []
        self._of: dict[Node, Cluster] = {}
        self._count = 0
        self._readers: dict[Tensor, list[tuple[Node, Read]]] = {}
        self._scalars: Cluster | None = None

    # Looking.

    def of(self, node: Node) -> Cluster | None:
        """Return the cluster of a node that is computed in one."""
        cluster = self._of.get(node)
        return cluster if cluster is None or cluster.into is None else self._found(cluster)

    def all(self) -> list[Cluster]:
        """Return the clusters there are, in the order of making."""
        return list(dict.fromkeys(self._found(c) for c in self._of.values()))

    def same(self, axis: int) -> int:
        """Return the axis that stands for all that were found to be the same."""
        parents = self._same
        while parents[axis] != axis:
            parents[axis] = parents[parents[axis]]
            axis = parents[axis]
        return axis

    def resolved(self, axes: Iterable[int]) -> Axes:
        """Return the axes that stand for these."""
        return frozenset([self.same(axis) for axis in axes])

    def order_of(self, cluster: Cluster) -> tuple[int, ...]:
        """Return a cluster's axes in order."""
        return tuple([self.same(axis) for axis in cluster.axes])

    def _found(self, cluster: Cluster) -> Cluster:
        while cluster.into is not None:
            if cluster.into.into is not None:
                cluster.into = cluster.into.into
            cluster = cluster.into
        return cluster

    # Growing.

    def add(self, node: Node) -> None:
        """Assign a node to a group: one of those that it reads from, or one of its own."""
        single = self._single_role(node)
        if not single and isinstance(node.op, Gather) and self._add_pick(node):
            return
        self.put_single(node)
        if not single:
            self._join_sources(node)
            self._join_siblings(node)

    def _single_role(self, node: Node) -> bool:
        is_one = self.facts.role[node] in (Role.FALLBACK, Role.MATMUL, Role.COPY)
        return is_one or len(node.types) > 1

    def put_single(self, node: Node) -> None:
        """Give a node a group of its own."""
        facts, role = self.facts, self.facts.role[node]
        if role is Role.FALLBACK or len(node.types) > 1:
            why = "it is computed by itself"
            reads = tuple([Read(facts.root_of(t), None, why) for t in node.inputs])
            self._new(node, Space((), (), reads)).closed = why
        elif role is Role.MATMUL:
            why = "it is an operand of a matmul"
            reads = tuple([Read(facts.root_of(t), None, why) for t in facts.read_by(node)])
            sizes = tuple([d for d in node.types[0].shape if d != 1])
            self._new(node, Space(sizes, tuple(range(len(sizes))), reads)).product = node
        else:
            cluster = self._new(node, facts.space(node))
            if role is Role.COPY:
                cluster.closed = "a reshape mixes axes"

    def _add_pick(self, node: Node) -> bool:
        """Put a gather into the group that computes what it picks from, if that goes."""
        source, x = self.of(self.facts.root_of(node.inputs[0]).node), node.inputs[0]
        # Rows of one position have no loop along it, in which what is picked from would be at hand.
        if source is None or x.shape[-1] == 1 or self.facts.picking(node) is None:
            return False
        cluster = self._new(node, self.facts.space(node, pick=True))
        if self._join_source(node, self.reads[node][0]):
            self.picks.add(node)
            self._join_sources(node)
            return True
        self._forget(node, cluster)
        return False

    def _new(self, node: Node, space: Space) -> Cluster:
        first = len(self.sizes)
        axes = tuple(range(first, first + len(space.sizes)))
        self.sizes.extend(space.sizes)
        self._same.extend(axes)
        position = self.positions[node]
        cluster = Cluster(self._count, [node], self._code_of([node]), axes, position, position)
        self._count += 1
        self._of[node] = cluster
        self.axes[node] = axes
        self.out[node] = tuple([axes[i] for i in space.out])
        waits = [Read(tensor, None, WAITS) for tensor in self.facts.waits(node)]
        self.reads[node] = (*space.reads, *waits)
        if len(space.out) < len(axes):
            is_index = node.op.combine in ("argmax", "argmin")
            whole, kept = frozenset(axes), frozenset(self.out[node])
            if self.facts.role[node] is Role.REDUCE:
                cluster.reductions.append(GroupReduction(whole, kept, is_index))
                loops = loops_of(axes, self.sizes, None, cluster.reductions)
                if isinstance(loops, Loops):
                    cluster.rows, cluster.form = loops.rows, loops.form
                else:
                    cluster.closed = loops
            else:
                cluster.rows, cluster.has_row_values = kept, True
        for read in self.reads[node]:
            source = self.of(read.root.node)
            if source is not None:
                cluster.sources.add(source)
                self.readers.setdefault(read.root, []).append(node)
                if read.why:
                    self.reasons[read.root, node] = read.why
        return cluster

    def _code_of(self, nodes: Iterable[Node]) -> int:
        cost = self.facts.natives.cost
        return sum([max(1, int(_CODE_OF_A_NANOSECOND * cost(node))) for node in nodes])

    def _forget(self, node: Node, cluster: Cluster) -> None:
        for read in self.reads[node]:
            if self.of(read.root.node) is not None:
                self.readers[read.root].remove(node)
        del self._of[node], self.axes[node], self.out[node], self.reads[node]
        cluster.nodes.clear()

    def _join_sources(self, node: Node) -> None:
        for read in self.reads[node]:
            if self.of(read.root.node) is not None:
                self._join_source(node, read)

    def _join_source(self, node: Node, read: Read) -> bool:
        """Try to make one group of a node's and the one that computes what it reads."""
        reader, source = self.of(node), self.of(read.root.node)
        assert reader is not None
        assert source is not None
        if reader is source:
            return True
        joint: _Joint | str = read.why
        if read.axes is not None:
            joint = self._fit(source, reader, self._links(source, reader))
            if isinstance(joint, _Joint) and self._reaches(source, reader, beyond=True):
                joint = CYCLE
        if isinstance(joint, str):
            self.reasons[read.root, node] = joint
            return False
        self._join(source, reader, joint)
        return True

    def _join_siblings(self, node: Node) -> None:
        """Try to make one group of a node's and one that reads the same, if it is still alone."""
        cluster = self.of(node)
        assert cluster is not None
        if not cluster.axes:
            if self._scalars is not None and cluster is not self._found(self._scalars):
                self._join_sibling(self._found(self._scalars), cluster, [])
            self._scalars = self.of(node)
            return
        reads = [r for r in self.reads[node] if r.axes and len(r.axes) == len(cluster.axes)]
        for read in reads:
            readers = self._readers.setdefault(read.root, [])
            for other, its_read in readers if len(cluster.nodes) == 1 else ():
                sibling, mine = self.of(other), self.of(node)
                assert sibling is not None
                assert mine is not None
                if sibling is mine:
                    continue
                theirs = self._axes_of(other, its_read)
                if self._join_sibling(
                    sibling, mine, [_Link(theirs, self._axes_of(node, read), False)]
                ):
                    break
            readers.append((node, read))
            if len(readers) > _READERS:
                del readers[0]

    def _join_sibling(self, sibling: Cluster, mine: Cluster, links: list[_Link]) -> bool:
        joint = self._fit(sibling, mine, links)
        if isinstance(joint, str):
            return False
        if self._reaches(sibling, mine) or self._reaches(mine, sibling):
            return False
        self._join(sibling, mine, joint)
        return True

    def join_beside(self, a: Node, b: Node) -> None:
        """Try to make one group of those of two nodes that run through the same axes."""
        first, second = self.of(a), self.of(b)
        if first is None or second is None or first is second:
            return
        if len(self.out[a]) == len(self.out[b]) == len(first.axes) == len(second.axes):
            self._join_sibling(first, second, [_Link(self.out[a], self.out[b], False)])

    def _axes_of(self, node: Node, read: Read) -> tuple[int, ...]:
        assert read.axes is not None
        axes = self.axes[node]
        return tuple([axes[i] for i in read.axes])

    def _links(self, source: Cluster, reader: Cluster) -> list[_Link] | str:
        """Return how the axes of two clusters correspond where one reads the other."""
        links = []
        for node in reader.nodes:
            for read in self.reads[node]:
                if self.of(read.root.node) is not source:
                    continue
                if read.axes is None:
                    return read.why
                links.append(_Link(self.out[read.root.node], self._axes_of(node, read), True))
        return links

    def _fit(self, a: Cluster, b: Cluster, links: list[_Link] | str) -> _Joint | str:
        """Return how two clusters would be one, or why they can't."""
        if isinstance(links, str):
            return links
        if a.closed or b.closed:
            return a.closed or b.closed
        if a.code + b.code > _CODE:
            return TOO_LARGE
        if (a.product or b.product) and not self.with_products:
            return PRODUCT
        if a.product is not None and b.product is not None:
            return "a kernel has one matmul"
        order_a, order_b = self.order_of(a), self.order_of(b)
        if not order_a and order_b:
            return ONE_NUMBER
        same = self._matched(links, order_a, order_b)
        if isinstance(same, str):
            return same
        translated = tuple([same.get(axis, axis) for axis in order_b])
        order = order_a if len(order_a) >= len(order_b) else translated
        shorter = translated if order is order_a else order_a
        if [axis for axis in order if axis in shorter] != list(shorter):
            return TWO_WAYS

        whole = frozenset(order)
        kinds = {frozenset(order_a), frozenset(translated)}
        if a.has_row_values and a.rows is not None:
            kinds.add(self.resolved(a.rows))
        if b.has_row_values and b.rows is not None:
            kinds.add(self._translated(b.rows, same))
        kinds.update(self.resolved(link.source) for link in links if link.is_inside)
        kinds.discard(whole)
        if len(kinds) > 1 or any(not kind < whole for kind in kinds):
            results = {self.resolved(r.result) for r in a.reductions}
            is_result = any(
                link.is_inside and self.resolved(link.source) in results for link in links
            )
            return ALL_ROWS if is_result else OTHER_ROWS
        rows = next(iter(kinds), None)
        reductions = [
            GroupReduction(self.resolved(r.source), self.resolved(r.result), r.is_index)
            for r in a.reductions
        ]
        for r in b.reductions:
            moved = self._translated(r.source, same), self._translated(r.result, same)
            reductions.append(GroupReduction(*moved, r.is_index))
        if not takes_up(self.facts, a.product or b.product, order, rows, reductions):
            return "it is no function of one element of a matmul"
        loops = loops_of(order, self.sizes, rows, list(dict.fromkeys(reductions)))
        if isinstance(loops, str):
            return loops
        return _Joint(same, order, loops.rows, rows is not None, loops.form, reductions)

    def _matched(
        self, links: Sequence[_Link], order_a: Sequence[int], order_b: Sequence[int]
    ) -> dict[int, int] | str:
        """Return for the second cluster's axes those of the first that they are."""
        same: dict[int, int] = {}
        for link in links:
            for theirs, mine in zip(link.source, link.reader, strict=True):
                axis = self.same(theirs)
                if same.setdefault(self.same(mine), axis) != axis:
                    return TWO_WAYS
        if len(set(same.values())) < len(same):
            return TWO_WAYS
        taken = set(same.values())
        left_a = [axis for axis in order_a if axis not in taken]
        left_b = [axis for axis in order_b if axis not in same]
        if left_a and left_b:
            if [self.sizes[i] for i in left_a] != [self.sizes[i] for i in left_b]:
                return OTHER_ROWS
            same.update(zip(left_b, left_a, strict=True))
        return same

    def _translated(self, axes: Iterable[int], same: dict[int, int]) -> Axes:
        found = self.resolved(axes)
        return frozenset([same.get(axis, axis) for axis in found])

    def _reaches(self, first: Cluster, last: Cluster, *, beyond: bool = False) -> bool:
        """Return whether `last` reads, through others, from `first`, or may do so.

        With `beyond` reading directly does not count.
        """
        todo = [self._found(c) for c in last.sources]
        if beyond:
            todo = [c for c in todo if c is not first]
        return self._reached(first, last, todo)

    def _reached(self, first: Cluster, last: Cluster, todo: list[Cluster]) -> bool:
        seen: set[Cluster] = set()
        while todo:
            cluster = todo.pop()
            if cluster is first:
                return True
            # What ends before the first begins can't read from it.
            if cluster in seen or cluster.high < first.low or cluster is last:
                continue
            seen.add(cluster)
            if len(seen) > _SEARCH:
                return True
            todo.extend([self._found(c) for c in cluster.sources])
        return False

    # Taking apart.

    def split(self, cluster: Cluster, nodes: Sequence[Node], loops: Loops) -> Cluster:
        """Give the nodes of row values a cluster, which is returned; the rest gets other loops."""
        rows = self.resolved(cluster.rows or ())
        order = tuple([axis for axis in self.order_of(cluster) if axis in rows])
        positions = [self.positions[node] for node in nodes]
        code = self._code_of(nodes)
        other = Cluster(self._count, list(nodes), code, order, min(positions), max(positions))
        self._count += 1
        cluster.nodes = [node for node in cluster.nodes if node not in other.nodes]
        cluster.code -= code
        cluster.rows, cluster.has_row_values, cluster.form = loops.rows, False, loops.form
        self._of.update(dict.fromkeys(nodes, other))
        readers = [u for n in nodes for t in n.outputs for u in self.readers.get(t, ())]
        for node in (*nodes, *readers):
            mine = self.of(node)
            assert mine is not None
            sources = {self.of(read.root.node) for read in self.reads[node]}
            mine.sources.update([c for c in sources if c is not None and c is not mine])
        for node in nodes:
            for read in self.reads[node]:
                if self.of(read.root.node) is cluster:
                    self.reasons[read.root, node] = ALL_ROWS
        return other

    # Matrix products.

    def attach(self, product: Cluster, reader: Cluster) -> bool:
        """Join a product to the only cluster that reads it, if that is elementwise."""
        joint = self._fit(product, reader, self._links(product, reader))
        if isinstance(joint, str) or self._reaches(product, reader, beyond=True):
            return False
        self._join(product, reader, joint)
        return True

    def attach_sections(self, product: Cluster, reader: Cluster, width: DimLike) -> bool:
        """Join a product to an elementwise cluster whose last axis is a section of its columns."""
        order_a, order_b = self.order_of(reader), self.order_of(product)
        sizes_a, sizes_b = ([self.sizes[i] for i in order] for order in (order_a, order_b))
        fits = [*sizes_b[:-1], width] == sizes_a and not reader.closed and reader.rows is None
        if not fits or product.code + reader.code > _CODE:
            return False
        if self._reaches(product, reader, beyond=True):
            return False
        same = dict(zip(order_b[:-1], order_a[:-1], strict=True))
        self._join(reader, product, _Joint(same, order_a, None, False, "rows", []))
        return True

    def move(self, nodes: Sequence[Node], reader: Cluster, product: Cluster) -> bool:
        """Move nodes from the cluster that reads a product to the product's."""
        sources = {self.of(r.root.node) for n in nodes for r in self.reads[n]}
        others = [c for c in sources if c is not None and c is not product and c is not reader]
        if self._reached(product, reader, list(others)):
            return False
        order_a, order_b = self.order_of(product), self.order_of(reader)
        if [self.sizes[axis] for axis in order_a] != [self.sizes[axis] for axis in order_b]:
            return False
        for theirs, mine in zip(order_b, order_a, strict=True):
            self._same[theirs] = mine
        moved = set(nodes)
        reader.nodes = [node for node in reader.nodes if node not in moved]
        product.nodes.extend(nodes)
        reader.code -= self._code_of(nodes)
        product.code += self._code_of(nodes)
        product.sources.update(others)
        product.high = max(product.high, *(self.positions[node] for node in nodes))
        reader.sources.add(product)
        for node in nodes:
            self._of[node] = product
        return True

    def _join(self, a: Cluster, b: Cluster, joint: _Joint) -> None:
        for theirs, mine in joint.same.items():
            self._same[self.same(theirs)] = self.same(mine)
        big, small = (a, b) if len(a.nodes) >= len(b.nodes) else (b, a)
        big.nodes.extend(small.nodes)
        big.code += small.code
        big.axes = joint.order
        big.rows, big.has_row_values, big.form = joint.rows, joint.has_row_values, joint.form
        big.reductions = list(dict.fromkeys(joint.reductions))
        big.product = a.product or b.product
        big.low, big.high = min(a.low, b.low), max(a.high, b.high)
        big.sources |= small.sources
        small.into = big
        big.sources = {s for s in map(self._found, big.sources) if s is not big}
        small.nodes, small.sources = [], set()
