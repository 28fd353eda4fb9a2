"""Memory for time: the backward graph computes tensors again instead of keeping them.

A minimum cut between the inputs and what the backward graph reads finds the tensors to keep, where
cutting a tensor costs its bytes, as in functorch's `min_cut_rematerialization_partition` (H. He,
"Min-cut optimal recomputation with AOTAutograd", 2022). Long forward graphs are cut into segments
of which only the ends are kept, after T. Chen et al., "Training deep nets with sublinear memory
cost", arXiv:1604.06174.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from graphfw.ir.build import emit, emit_all, rewire
from graphfw.ir.dim import DimLike
from graphfw.ir.dim_text import evaluate
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.op import EFFECT, ELEMENTWISE, PURE, RANDOM, SOURCE, Op
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.sources import Placeholder, VariableOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import ancestors, users
from graphfw.ops.control.checkpoint_ops import Barrier
from graphfw.ops.control.host_call import HostCall
from graphfw.ops.control.region_op import Region
from graphfw.ops.control.scan_op import Scan
from graphfw.ops.random.draws import RandomBits
from graphfw.ops.shape.gather_scatter import Gather
from graphfw.passes.base import Pass
from graphfw.utils.records import record

_UNKNOWN = 64
"""Operations for each element, about, of expensive ops that don't declare their cost."""

_SMALL = 1 / 256
"""The smallest tensors, which together take no more of all bytes, are not worth the trouble."""

_GOLDEN = (math.sqrt(5) - 1) / 2


class Budget(NamedTuple):
    """The limit of what may be computed again besides what is cheap.

    Attributes:
        share: The fraction of the expensive nodes that are recomputed, those first that take least
            for the bytes that they save.
        segments: In place of that, everything between the ends of segments, of which there are so
            many times the root of the number of expensive nodes; 0 for no segments.
    """

    share: float = 0.0
    segments: float = 0.0


BUDGETS = (
    Budget(),
    Budget(share=1 / 4),
    Budget(share=1 / 2),
    Budget(share=3 / 4),
    Budget(segments=1),
    Budget(segments=1 / 2),
)
"""In the order of the time that they cost."""


@record
class Rematerialise(Pass):
    """Compute tensors of the forward graph again where the backward graph reads them.

    What is computed again comes after barriers: it waits for the cotangents that it is read with.
    Which nodes that are is found for given sizes; the graph stays right for all sizes.

    Attributes:
        sizes: What the symbolic dims stand for.
        budget: What may be computed again.
    """

    sizes: Mapping[str, int]
    budget: Budget
    name = "rematerialise"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        joint = ForwardBackward(graph, self.sizes)
        if not joint.wanted:
            return graph
        again = _BudgetedChoice(joint, self.budget).again()
        if not again:
            return graph
        return rebuild(graph, Rewriting(joint, again, hits))


def _is_available(node: Node) -> bool:
    return SOURCE in node.op.traits or not (node.inputs or RANDOM in node.op.traits)


def is_view(node: Node) -> bool:
    """Return whether a node computes nothing."""
    return isinstance(node.op, Barrier) or (
        node.op.source_index is not None and len(node.inputs) == 1
    )


def is_cheap(node: Node) -> bool:
    """Return whether a node takes no longer than reading and writing memory does."""
    op = node.op
    return _is_plain(node) or bool(op.combine) or isinstance(op, RandomBits)


def _is_plain(node: Node) -> bool:
    return is_view(node) or ELEMENTWISE in node.op.traits


class ForwardBackward:
    """A joint graph: its forward and its backward graph.

    Attributes:
        order: The positions of the nodes.
        nbytes: What the nodes' results take.
        available: The nodes whose results are there anyway, or are small.
        forward: The nodes that need no gradient: also what gradients compute from values of the
            forward graph only, element by element.
        trigger: For nodes of the backward graph, the cotangent that they wait for longest of those
            that are in memory anyway, as operands of expensive nodes.
        wanted: The tensors of the forward graph that those nodes read.
    """

    def __init__(self, graph: Graph, sizes: Mapping[str, int]) -> None:
        nodes = live_nodes(graph)
        self.sizes = sizes
        self.order = {node: index for index, node in enumerate(nodes)}
        kinds = dict.fromkeys([kind for node in nodes for kind in node.types])
        room = {kind: self.number(kind.nbytes) for kind in kinds}
        self.nbytes = {n: sum([room[kind] for kind in n.types]) for n in nodes}
        small = _small([size for n, size in self.nbytes.items() if not is_view(n)])
        self.available = {n for n in nodes if _is_available(n) or self.nbytes[n] <= small}
        self.forward: set[Node] = set()
        self.trigger: dict[Node, Tensor] = {}
        wanted: dict[Tensor, None] = {}
        for node in nodes:
            late = [t for t in node.inputs if t.node not in self.forward]
            is_gradient = node.loc.grad_of is not None
            if not late and (not is_gradient or _is_available(node) or _is_plain(node)):
                self.forward.add(node)
                continue
            trigger = self._trigger(node, late)
            if trigger is not None:
                self.trigger[node] = trigger
                early = [t for t in node.inputs if t.node in self.forward]
                wanted.update(dict.fromkeys([t for t in early if t.node not in self.available]))
        late_anyway = self._late(nodes, {tensor.node for tensor in graph.outputs})
        self.wanted = [tensor for tensor in wanted if tensor.node not in late_anyway]

    def number(self, dim: DimLike) -> int:
        """Return the number of a size."""
        return dim if isinstance(dim, int) else evaluate(dim, self.sizes)

    def _trigger(self, node: Node, late: Sequence[Tensor]) -> Tensor | None:
        found = late
        if is_cheap(node):
            found = [self.trigger[t.node] for t in late if t.node in self.trigger]
        return max(found, key=lambda t: self.order[t.node], default=None)

    def _late(self, nodes: Sequence[Node], outputs: Collection[Node]) -> set[Node]:
        """Return the cheap nodes that come of kept ones, and that only the backward graph needs.

        It is computed where it is read: nothing is kept for it.
        """
        read_by = users(nodes)
        found = {
            n for n in self.forward if is_cheap(n) and n not in self.available and n not in outputs
        }
        before = -1
        while len(found) != before:
            before = len(found)
            for node in (*nodes, *reversed(nodes)):
                if node in found and not (
                    all(t.node in found or t.node in self.available for t in node.inputs)
                    and all(one in found or one not in self.forward for one in read_by[node])
                ):
                    found.remove(node)
        return found


def _small(sizes: Sequence[int]) -> int:
    """Return up to which size tensors are small."""
    left = _SMALL * sum(sizes)
    found = 0
    for size, several in itertools.groupby(sorted(sizes)):
        left -= sum(several)
        if left < 0:
            break
        found = size
    return found


class _BudgetedChoice:
    """Finds what is computed again."""

    def __init__(self, joint: ForwardBackward, budget: Budget) -> None:
        self._joint = joint
        self._nodes = ancestors(joint.wanted, stop=joint.available.__contains__)
        self._kept = self._banned(budget)

    def again(self) -> set[Node]:
        """Return the nodes that are computed again: on the far side of the minimum cut."""
        import networkx  # not at the top: importing it takes as long as all of graphfw

        graph = networkx.DiGraph()
        # Of each tensor two numbers: it is made, and it is read. An edge without a capacity is
        # never cut.
        made = {t: 2 * i for i, t in enumerate([t for n in self._nodes for t in n.outputs])}
        source, wanted = -1, -2
        graph.add_nodes_from([source, wanted])
        for node in self._nodes:
            for tensor in node.outputs:
                own = made[tensor]
                if node in self._joint.available:
                    graph.add_edge(source, own)
                    graph.add_edge(own, own + 1, capacity=0)
                    continue
                room = self._joint.number(tensor.type.nbytes)
                graph.add_edge(own, own + 1, **({} if is_view(node) else {"capacity": room}))
                if node in self._kept:
                    graph.add_edge(source, own)
                graph.add_edges_from([(made[x] + 1, own) for x in node.inputs])
        graph.add_edges_from([(made[tensor] + 1, wanted) for tensor in self._joint.wanted])
        _, (_, far) = networkx.minimum_cut(graph, source, wanted)
        again: set[Node] = set()
        for node in self._nodes:
            is_far = any(made[tensor] in far for tensor in node.outputs)
            if is_far and not (is_view(node) and node.inputs[0].node not in again):
                again.add(node)
        return again

    def _banned(self, budget: Budget) -> set[Node]:
        """Return the nodes that are not computed again."""
        nodes = [n for n in self._nodes if n not in self._joint.available and not is_view(n)]
        never = {node for node in nodes if not _can_repeat(node.op)}
        free = [node for node in nodes if node not in never and not is_cheap(node)]
        if budget.segments:
            return never | self._ends({*free}, math.ceil(budget.segments * math.sqrt(len(free))))
        free.sort(key=self._rank(free))
        return never | set(free[round(budget.share * len(free)) :])

    def _rank(self, expensive: Sequence[Node]) -> Callable[[Node], tuple[float, float]]:
        """Return a sorting key of nodes: their time for each byte; equal ones spread evenly."""
        rate = {node: self._flops(node) / max(self._joint.nbytes[node], 1) for node in expensive}
        count: Counter[float] = Counter()
        spread: dict[Node, float] = {}
        for node in expensive:
            count[rate[node]] += 1
            spread[node] = count[rate[node]] * _GOLDEN % 1
        return lambda node: (rate[node], spread[node])

    def _flops(self, node: Node) -> int:
        if type(node.op).cost is Op.cost:
            return _UNKNOWN * self._joint.nbytes[node]
        return self._joint.number(node.op.cost(node.types, *[t.type for t in node.inputs]).flops)

    def _ends(self, expensive: Collection[Node], segments: int) -> set[Node]:
        """Return the nodes live at ends of segments with about equal bytes of expensive nodes."""
        live = self._live()
        nbytes = self._joint.nbytes
        rooms = [sum([nbytes[node] for node in nodes]) for nodes in live]
        sizes = [nbytes[node] if node in expensive else 0 for node in self._nodes]
        share = sum(sizes) / max(segments, 1)
        ends: set[Node] = set()
        first, filled = 0, 0
        for index, size in enumerate(sizes):
            filled += size
            if filled >= share and index > first:
                end = min(range(first + 1, index + 1), key=lambda n: (rooms[n], -n))
                ends |= live[end]
                first, filled = end, sum(sizes[end + 1 : index + 1])
        return ends

    def _live(self) -> list[frozenset[Node]]:
        """Return for each node whose results the forward graph after it reads, through views."""
        last: dict[Node, int] = {}
        root: dict[Node, Node] = {}
        for index, node in enumerate(self._nodes):
            is_available = node in self._joint.available
            seen = is_view(node) and not is_available
            root[node] = root[node.inputs[0].node] if seen else node
            last.setdefault(root[node], index)
            if not is_available and node.loc.grad_of is None:
                last.update({root[t.node]: index for t in node.inputs})
        found: list[frozenset[Node]] = []
        now: set[Node] = set()
        for index, node in enumerate(self._nodes):
            if root[node] is node and node not in self._joint.available:
                now.add(node)
            now = {one for one in now if last[one] > index}
            found.append(frozenset(now))
        return found


def _can_repeat(op: Op) -> bool:
    """Return whether an op may run again.

    Nobody knows how long Python functions take, and loops without a known length. What looks at
    indices may fail, and while anything can, no variable is written over: updates would wait.
    """
    is_loop = isinstance(op, Region) and not isinstance(op, Scan)
    is_pure = PURE in op.traits and EFFECT not in op.traits
    return is_pure and not isinstance(op, Gather | HostCall) and not is_loop


class Rewriting:
    """Makes the graph again, with copies of what is computed again, just before they are read."""

    def __init__(self, joint: ForwardBackward, again: set[Node], hits: Counter[str]) -> None:
        self._joint = joint
        self._again = again
        self._hits = hits
        self._new: dict[Tensor, Tensor] = {}
        self._copies: dict[Tensor, Tensor] = {}
        self._barriers: dict[Tensor, dict[Tensor, Tensor]] = {}

    def __call__(self, node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        self._new.update(zip(node.inputs, inputs, strict=True))
        trigger = self._joint.trigger.get(node)
        read = [t for t in node.inputs if t.node in self._again]
        if trigger is None or node in self._joint.forward or not read:
            return None
        self._copy(read, trigger)
        graph = current_graph()
        own = [self._copies.get(old, new) for old, new in zip(node.inputs, inputs, strict=True)]
        return graph.append(rewire(node, tuple(own), graph))

    def _copy(self, wanted: Sequence[Tensor], trigger: Tensor) -> None:
        """Compute tensors again, once a cotangent is there."""
        graph = current_graph()

        def done(node: Node) -> bool:
            return node not in self._again or node.outputs[0] in self._copies

        for node in ancestors(wanted, stop=done):
            if done(node):
                continue
            with graph.located(node.loc):
                own = [self._copied_or_kept(tensor, trigger) for tensor in node.inputs]
                made = emit_all(node.op, *own)
            self._copies.update(zip(node.outputs, made, strict=True))
            # What only gradients need was not computed before.
            if not is_view(node) and node.loc.grad_of is None:
                self._hits[node.op.name] += 1

    def _copied_or_kept(self, tensor: Tensor, trigger: Tensor) -> Tensor:
        copy = self._copies.get(tensor)
        if copy is not None:
            return copy
        kept = self._new[tensor]
        if not kept.node.inputs and not isinstance(kept.node.op, VariableOp | Placeholder):
            return kept  # rules see what constants are
        barriers = self._barriers.setdefault(tensor, {})
        if trigger not in barriers:
            barriers[trigger] = emit(Barrier(1), kept, self._new[trigger])
        return barriers[trigger]
