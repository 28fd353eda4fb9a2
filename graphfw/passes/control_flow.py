"""Passes over loops, branches and checkpoints.

Scans of the same iterations are fused, dead values of bodies are dropped, bodies are optimised,
invariants are hoisted out of loops, and branches of little work become selections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

from graphfw.ir.body import Body, BodyGraph, copied
from graphfw.ir.build import emit_all
from graphfw.ir.dim import DimLike, always_le
from graphfw.ir.functions import F
from graphfw.ir.graph import Graph, current_graph
from graphfw.ir.op import ALIAS, ELEMENTWISE, PURE, RANDOM
from graphfw.ir.rebuild import live_nodes, rebuild
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ir.walk import ancestors, users
from graphfw.ops.control.branch_op import Branch
from graphfw.ops.control.checkpoint_ops import Checkpoint
from graphfw.ops.control.loop_op import Loop
from graphfw.ops.control.region_op import Region, zeros_like
from graphfw.ops.control.scan_op import Scan
from graphfw.ops.control.shape_checks import is_checked
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.shape.concat import Concat
from graphfw.passes.base import Pass
from graphfw.passes.cse import CSE
from graphfw.utils.records import record

OutputOf = tuple[int, int]
"""A tensor of a body: see `Body.output_key`."""


def _has_regions(graph: Graph) -> bool:
    return any(isinstance(node.op, Region) for node in graph.nodes)


@record
class InlineCheckpoints(Pass):
    """Put the bodies of checkpoints where these stand: barriers keep apart what is made again."""

    name = "inline-checkpoints"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        while any(isinstance(node.op, Checkpoint) for node in graph.nodes):
            graph = rebuild(graph, self._inlined)
            hits["inlined"] += 1
        return graph

    def _inlined(self, node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if not isinstance(node.op, Checkpoint):
            return None
        with current_graph().located(None):  # what is inside keeps its own locations
            return node.op.body.inline(*inputs)


@record
class FuseScans(Pass):
    """Make one scan of those that differ only in what they stack.

    The gradient of a scan is computed from one that also stacks what the backward iterations read.
    """

    name = "fuse-scans"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        groups: dict[object, list[Node]] = {}
        for node in live_nodes(graph) if _has_regions(graph) else ():
            if isinstance(node.op, Scan):
                groups.setdefault(_what_it_computes(node, node.op), []).append(node)
        group_of = {node: group for group in groups.values() if len(group) > 1 for node in group}
        if not group_of:
            return graph
        made: dict[Node, dict[OutputOf | int, Tensor]] = {}

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            group = group_of.get(node)
            if group is None:
                return None
            assert isinstance(node.op, Scan)
            first = group[0]
            if first not in made:
                hits["merged"] += len(group) - 1
                made[first] = _merged(group, inputs)
            carries = node.op.carries
            stacked = node.op.body.output_key[carries:]
            return tuple([made[first][key] for key in (*range(carries), *stacked)])

        return rebuild(graph, rewrite)


def _what_it_computes(node: Node, op: Scan) -> object:
    kept = op.body.output_key[: op.carries]
    inputs = tuple([(t.node, t.index) for t in node.inputs])
    own = (op.length, op.carries, op.sequences, op.backwards)
    return op.body.computation, kept, own, inputs


def _merged(group: Sequence[Node], inputs: tuple[Tensor, ...]) -> dict[OutputOf | int, Tensor]:
    """Emit the scan that stacks what any of a group stacks: its outputs by what they are."""
    op = group[0].op
    assert isinstance(op, Scan)
    stacked: dict[OutputOf, None] = {}
    for node in group:
        assert isinstance(node.op, Scan)
        stacked.update(dict.fromkeys(node.op.body.output_key[op.carries :]))
    outputs = [
        *op.body.outputs[: op.carries],
        *[op.body.tensor_at(position) for position in stacked],
    ]
    body = Body(op.body.parameters, outputs)
    found = emit_all(Scan(body, op.length, op.carries, op.sequences, op.backwards), *inputs)
    return dict(zip((*range(op.carries), *stacked), found, strict=True))


@record
class EliminateDeadBodyValues(Pass):
    """Drop values of bodies that nothing reads, and inputs that a body doesn't use.

    A carry of a scan that no iteration changes becomes a captured value.
    """

    name = "dce-bodies"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        if not _has_regions(graph):
            return graph
        used = {(t.node, t.index) for node in live_nodes(graph) for t in node.inputs}
        used.update([(t.node, t.index) for t in graph.outputs])

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            wanted = [i for i in range(len(node.types)) if (node, i) in used]
            found: Mapping[int, Tensor] | None = None
            if isinstance(node.op, Scan):
                found = _smaller_scan(node.op, wanted, inputs)
            elif isinstance(node.op, Branch):
                found = _smaller_branch(node.op, wanted, inputs)
            if found is None:
                return None
            hits[node.op.name] += 1
            # What nobody reads may be anything of its type.
            return tuple(
                [found[i] if i in found else zeros_like(k) for i, k in enumerate(node.types)]
            )

        return rebuild(graph, rewrite)


def _smaller_scan(
    op: Scan, wanted: Sequence[int], inputs: tuple[Tensor, ...]
) -> dict[int, Tensor] | None:
    """Emit what is needed of a scan, and return the wanted outputs; None if that is all of it."""
    count, last = op.carries, op.carries + op.sequences
    number, *parameters = op.body.parameters
    outputs = op.body.outputs
    constant = [i for i in range(count) if outputs[i] is parameters[i]]
    stacked = [i for i in wanted if i >= count]
    live = {i for i in wanted if i < count}
    before = -1
    while len(live) > before:
        before = len(live)
        needed = {n for n in ancestors([outputs[i] for i in (*live, *stacked)])}
        live.update(i for i in range(count) if parameters[i].node in needed)
    carry = [i for i in range(count) if i in live and i not in constant]
    rest = [i for i in range(count, len(parameters)) if parameters[i].node in needed]
    sequences = [i for i in rest if i < last]
    captures = [*[i for i in constant if i in live], *[i for i in rest if i >= last]]
    kept = [*carry, *sequences, *captures]
    if (
        len(kept) == len(parameters)
        and len(carry) == count
        and len(stacked) == len(outputs) - count
    ):
        return None
    body = Body([number, *[parameters[i] for i in kept]], [outputs[i] for i in (*carry, *stacked)])
    smaller = Scan(body, op.length, len(carry), len(sequences), op.backwards)
    found = emit_all(smaller, *[inputs[i] for i in kept])
    result = dict(zip((*carry, *stacked), found, strict=True))
    return result | {i: inputs[i] for i in constant}


def _smaller_branch(
    op: Branch, wanted: Sequence[int], inputs: tuple[Tensor, ...]
) -> dict[int, Tensor] | None:
    """Emit what is needed of a branch, and return the wanted outputs; None if that is all of it."""
    number, *operands = inputs
    outputs = [[body.outputs[i] for i in wanted] for body in op.choices]
    needed = [{*ancestors(own)} for own in outputs]
    kept = [
        i
        for i in range(len(operands))
        if any(b.parameters[i].node in own for b, own in zip(op.choices, needed, strict=True))
    ]
    if len(kept) == len(operands) and len(wanted) == len(op.choices[0].outputs):
        return None
    bodies = [
        Body([body.parameters[i] for i in kept], own)
        for body, own in zip(op.choices, outputs, strict=True)
    ]
    found = emit_all(Branch(tuple(bodies)), number, *[operands[i] for i in kept])
    return dict(zip(wanted, found, strict=True))


@record
class ConvertIfs(Pass):
    """Compute all bodies of a branch and select, where they are so small that asking costs more.

    The loop around it can then be native as a whole. Of a branch whose number is a constant, that
    body alone is left.

    Attributes:
        limit: How many operations on elements all bodies may take together; those whose sizes are
            symbolic take too many.
    """

    limit: int = 1 << 14
    name = "if-conversion"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        before = -1
        while before < hits["selected"]:  # there may be branches inside
            before = hits["selected"]
            if any(isinstance(node.op, Branch) for node in graph.nodes):
                graph = rebuild(graph, lambda node, inputs: self._selected(node, inputs, hits))
        return graph

    def _selected(
        self, node: Node, inputs: tuple[Tensor, ...], hits: Counter[str]
    ) -> tuple[Tensor, ...] | None:
        op = node.op
        if not isinstance(op, Branch):
            return None
        number, *operands = inputs
        bodies = op.choices
        if isinstance(number.node.op, ConstantOp):
            chosen = int(number.node.op.values[0].array)
            bodies = (bodies[min(max(chosen, 0), len(bodies) - 1)],)
            if _promises(bodies[0].graph):  # which runs of a body check
                return None
        elif not self._is_small(op):
            return None
        hits["selected"] += 1
        with current_graph().located(None):  # what is inside keeps its own locations
            first, *others = [body.inline(*operands) for body in bodies]
        for index, body in enumerate(others, 1):
            is_before = number < index
            pairs = zip(first, body, strict=True)
            first = tuple([a if a is b else F.where(is_before, a, b) for a, b in pairs])
        return first

    def _is_small(self, op: Branch) -> bool:
        """Return whether all bodies take little together, and can't fail: one may not be taken."""
        total = 0
        for body in op.choices:
            for node in body.nodes:
                if isinstance(node.op, Branch):
                    if not self._is_small(node.op):
                        return False
                    continue
                flops = node.op.cost(node.types, *[t.type for t in node.inputs]).flops
                if not _is_plain(node) or not isinstance(flops, int):
                    return False
                total += flops
        return total <= self.limit


def _promises(graph: Graph) -> bool:
    """Return whether a graph, or a body in it, relies on shapes that runs have to check."""
    regions = [node.op for node in graph.nodes if isinstance(node.op, Region)]
    inside = [body.graph for op in regions for body in op.bodies]
    return any(map(is_checked, graph.nodes)) or any(map(_promises, inside))


def _is_plain(node: Node) -> bool:
    """Return whether a node is elementwise, moves elements or is a constant; none of them fails."""
    traits = node.op.traits
    if PURE not in traits or RANDOM in traits or is_checked(node):
        return False
    return ELEMENTWISE in traits or ALIAS in traits or isinstance(node.op, Concat | ConstantOp)


@record
class HoistInvariants(Pass):
    """Compute before a loop what is the same in all of its iterations, and give it to them.

    Views stay inside, and so does what is larger than all that it is made of element by element:
    making it again in registers takes less than reading it. What might fail leaves only where there
    is an iteration in any case.
    """

    name = "hoist-invariants"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        if not _has_regions(graph):
            return graph
        before = hits["hoisted"]

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            op = node.op
            if not isinstance(op, Region):
                return None
            # Inner loops first: what leaves them may leave the outer one too.
            inner = [self.run(body.graph, hits) for body in op.bodies]
            if any(new is not body.graph for new, body in zip(inner, op.bodies, strict=True)):
                pairs = zip(op.bodies, inner, strict=True)
                op = op.with_bodies([Body(body.parameters, g.outputs) for body, g in pairs])
            made = _lightened(op, inputs, hits) if isinstance(op, (Scan, Loop)) else None
            return made if made or op is node.op else emit_all(op, *inputs, name=node.name)

        made = rebuild(graph, rewrite)
        if hits["hoisted"] == before:
            return graph
        return CSE().run(made, Counter())  # a loop and its gradient have much in common


def _lightened(
    op: Scan | Loop, inputs: tuple[Tensor, ...], hits: Counter[str]
) -> tuple[Tensor, ...] | None:
    """Emit a loop without what is the same in all iterations; None if there is nothing such."""
    if isinstance(op, Scan):
        captures = len(inputs) - op.carries - op.sequences
        is_run = always_le(1, op.length)
    else:
        captures = len(inputs) - sum(op.carries)
        is_run = False
    captured = inputs[len(inputs) - captures :]
    found = [_invariants(body, captures, is_run) for body in op.bodies]
    if not any(found):
        return None
    outside: list[Tensor] = []
    bodies: list[Body] = []
    for body, own in zip(op.bodies, found, strict=True):
        taken = body.parameters[len(body.parameters) - captures :]
        outside += copied(own, dict(zip(taken, captured, strict=True)))
        graph = BodyGraph(op.name)
        with graph:
            parameters = [graph.parameter(t.type, t.node.loc) for t in body.parameters]
            # All bodies take the same captures.
            more = [[graph.parameter(t.type) for t in one] for one in found]
            inside = dict(zip(body.parameters, parameters, strict=True))
            inside |= dict(zip(own, more[len(bodies)], strict=True))
            outputs = copied(body.outputs, inside)
        bodies.append(Body([*parameters, *chain.from_iterable(more)], outputs))
    hits["hoisted"] += len(outside)
    return emit_all(op.with_bodies(bodies), *inputs, *outside)


def _invariants(body: Body, captures: int, is_run: bool) -> list[Tensor]:
    """Return a body's tensors that depend on captures only, and are worth making in advance."""
    same = {t.node for t in body.parameters[len(body.parameters) - captures :]}
    worth: set[Node] = set()
    for node in body.nodes:
        traits = node.op.traits
        if PURE not in traits or RANDOM in traits or isinstance(node.op, Region):
            continue
        if is_checked(node) and not is_run:
            continue
        if all(t.node in same for t in node.inputs):
            same.add(node)
            if node.inputs and ALIAS not in traits and _is_worth(node, is_run):
                worth.add(node)
    readers = users(body.nodes)
    yielded = {t.node for t in body.outputs}
    edge = [
        node
        for node in body.nodes
        if node in worth and (node in yielded or any(r not in worth for r in readers[node]))
    ]
    return [t for node in edge for t in node.outputs]


def _is_worth(node: Node, is_run: bool) -> bool:
    if ELEMENTWISE in node.op.traits:
        taken: DimLike = 0
        for t in node.inputs:
            taken = taken + t.type.nbytes
        return always_le(node.types[0].nbytes, taken)
    return is_run or bool(node.op.combine) or isinstance(node.op, MatMul)


@record
class OptimiseBodies(Pass):
    """Run passes over the bodies, and the bodies inside of these.

    Attributes:
        passes: What is run.
    """

    passes: tuple[Pass, ...]
    name = "optimise-bodies"

    def run(self, graph: Graph, hits: Counter[str]) -> Graph:
        if not _has_regions(graph):
            return graph

        def rewrite(node: Node, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            op = node.op
            if not isinstance(op, Region):
                return None
            bodies = [self._optimised(body, hits) for body in op.bodies]
            if all(new is old for new, old in zip(bodies, op.bodies, strict=True)):
                return None
            return emit_all(op.with_bodies(bodies), *inputs, name=node.name)

        return rebuild(graph, rewrite)

    def _optimised(self, body: Body, hits: Counter[str]) -> Body:
        graph = body.graph
        for one in (*self.passes, self):
            graph = one.run(graph, hits)
        return body if graph is body.graph else Body(body.parameters, graph.outputs)
