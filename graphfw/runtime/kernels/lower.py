"""Lowering: the groups of a partition become steps."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple, Protocol

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType
from graphfw.ir.graph import Graph
from graphfw.ir.op import Op
from graphfw.ir.sources import ConstantOp
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.control.loop_op import Loop
from graphfw.ops.control.scan_op import Scan
from graphfw.ops.linalg.products import MatMul
from graphfw.ops.sorting.sort_search import SearchSorted
from graphfw.passes.fuse import Group, Partition
from graphfw.passes.fuse_nodes import Role
from graphfw.passes.fuse_pools import columns_of
from graphfw.runtime.kernels.elements import (
    RandomValue,
)
from graphfw.runtime.kernels.ir import Call
from graphfw.runtime.kernels.kernel_target import KernelTarget
from graphfw.runtime.kernels.lower_combine import PartialResults, can_follow, combined, following
from graphfw.runtime.kernels.lower_concats import InPlaceConcats
from graphfw.runtime.kernels.lower_iterations import iteration_steps
from graphfw.runtime.kernels.lower_loops import (
    cost_of,
    draft_exprs,
    drafted,
    is_cheap_call,
)
from graphfw.runtime.kernels.lower_narrow import turn_if_narrow
from graphfw.runtime.kernels.lower_numbers import with_tables
from graphfw.runtime.kernels.lower_packed import packed
from graphfw.runtime.kernels.lower_prologues import multiplied, prologue
from graphfw.runtime.kernels.lower_searches import search_step
from graphfw.runtime.kernels.lower_shared import Lowered, Structures, joined_structure
from graphfw.runtime.kernels.lower_steps import epilogue, finished, step
from graphfw.runtime.kernels.lower_values import (
    ExpressionBuilder,
    scalar_form,
)
from graphfw.runtime.kernels.lower_written_out import is_written_out, written_out
from graphfw.runtime.kernels.steps import (
    Epilogue,
    Item,
    Product,
    Prologue,
    ReferenceStep,
    Step,
    Storage,
    View,
)
from graphfw.runtime.kernels.views import is_joined, view


class Target(KernelTarget, Protocol):
    """A generator of native code.

    Attributes:
        most_numbers: So many different floats a kernel may have in its code; see `with_tables`.
    """

    most_numbers: int

    def multiplies(self, node: Node) -> bool:
        """Return whether it has code for a product, or what pools one, and for what follows it."""
        ...

    def keeps_rows(self, node: Node) -> bool:
        """Return whether an epilogue of a product may reduce its rows: see `Epilogue.is_whole`."""
        ...

    def lower_node(
        self, node: Node, inputs: Sequence[View], outputs: Sequence[View]
    ) -> Sequence[Step]:
        """Return the steps of a node whose op has native code of its own, or nothing."""
        ...

    def fills(self, node: Node) -> bool:
        """Return whether the steps that `lower_node` returns for a node write any view.

        A concat leaves there what is where it belongs.
        """
        ...

    def computes_operand(self, product: Product) -> bool:
        """Return whether the code of a product has its prologue compute the operand."""
        ...

    def product(self, product: Product) -> Sequence[Step]:
        """Return the steps of a product, for whose node `multiplies` holds."""
        ...


class _Form(NamedTuple):
    """The facts of an op's scalar form: whether there is one, and what it costs."""

    is_there: bool
    is_cheap: bool
    cost: float


class CanCompile:
    """The ops that a target can compile: the partition of a graph asks."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._forms: dict[tuple[Op, tuple[DType, ...]], _Form] = {}

    def scalar(self, node: Node) -> bool:
        """Return whether the op has a scalar form for these dtypes."""
        return self._form(node)[0]

    def is_cheap(self, node: Node) -> bool:
        """Return whether computing an element takes no longer than reading one."""
        return self._form(node)[1]

    def cost(self, node: Node) -> float:
        """Return in how many nanoseconds, about, a thread computes an element."""
        return self._form(node)[2]

    def multiplies(self, node: Node) -> bool:
        """Return whether there is native code for a product and what follows it."""
        return self._target.multiplies(node)

    def keeps_rows(self, node: Node) -> bool:
        """Return whether what follows a product may reduce its rows."""
        return self._target.keeps_rows(node)

    def _form(self, node: Node) -> _Form:
        key = (node.op, tuple([t.dtype for t in node.inputs]))
        known = self._forms.get(key)
        if known is None:
            form = scalar_form(node)
            exprs = [] if form is None else draft_exprs([form])
            calls = [expr for expr in exprs if isinstance(expr, Call | RandomValue)]
            is_cheap = form is not None and all(map(is_cheap_call, calls))
            known = _Form(form is not None, is_cheap, sum(map(cost_of, calls)))
            self._forms[key] = known
        return known


def lower(
    graph: Graph, partition: Partition, target: Target, *, fixed: Collection[Tensor] = ()
) -> list[Item]:
    """Make steps of groups, each after those whose results it reads.

    Args:
        graph: The graph.
        partition: Its groups.
        target: What makes the code.
        fixed: Variables that have the same contents in all runs, as constants do.
    """
    return _Lowering(graph, partition, target, frozenset(fixed)).steps()


class _Lowering:
    def __init__(
        self, graph: Graph, partition: Partition, target: Target, fixed: frozenset[Tensor]
    ) -> None:
        self.graph = graph
        self.facts = partition.facts
        self.groups = partition.groups
        self.target = target
        self.fixed = fixed
        self.concats = InPlaceConcats(graph, partition, target.fills)
        self.demanded = {self.facts.root_of(t) for t in graph.outputs}
        # What waits for the group that alone reads it: it is joined there.
        self.waiting: dict[Group, list[PartialResults]] = {}
        # What products compute as they multiply it.
        self.prologues: dict[Storage, Prologue] = {}
        self.structures = Structures(self.facts, fixed)
        # By the ops of groups, the numbers that their kernels have.
        self.numbers: dict[Hashable, set[tuple[bytes, ...]]] = {}

    def steps(self) -> list[Item]:
        """Return the steps of all groups."""
        result: list[Item] = []
        for group in self.groups:
            after = self._after(group)
            items = self._lowered(group)
            if after:
                items = [replace(item, after=(*item.after, *after)) for item in items]
            result.extend(items)
        return result

    def _after(self, group: Group) -> tuple[Storage, ...]:
        """Return the storages that must be written before a group runs, because of barriers."""
        inside = set(group.nodes)
        found = dict.fromkeys([t for node in group.nodes for t in self.facts.waits(node)])
        waits = [self.facts.layout_of(t).root for t in found if t.node not in inside]
        return tuple(dict.fromkeys(waits))

    @cached_property
    def readers(self) -> dict[Tensor, list[Group]]:
        """The groups that read what others compute."""
        readers: dict[Tensor, dict[Group, None]] = {}
        for group in self.groups:
            inside = set(group.nodes)
            for node in group.nodes:
                for root in self.facts.needed_by(node):
                    if root.node not in inside:
                        readers.setdefault(root, {})[group] = None
        return {tensor: list(found) for tensor, found in readers.items()}

    def _lowered(self, group: Group) -> list[Item]:
        if group in self.waiting:
            return [self._combining(self.waiting[group], group)]
        if group.kind == "reference":
            return [item for node in group.nodes for item in self._single_node(node)]
        if group.kind == "kernel" and self._is_prologue(group):
            return []
        steps = self._matmul(group) if group.kind == "matmul" else self._kernels(group)
        return list(steps)

    def _single_node(self, node: Node) -> list[Item]:
        """Return the steps of a node that is in no group with others."""
        if isinstance(node.op, Scan | Loop):
            iterations = iteration_steps(node, self.facts, self.target)
            if iterations:
                return [*iterations]
        if isinstance(node.op, SearchSorted):
            return [search_step(node, self.facts, self.target)]
        inputs = [view(tensor, self.facts) for tensor in node.inputs]
        outputs = [view(tensor, self.facts) for tensor in node.outputs]
        if is_joined(node, inputs, outputs):
            return []
        steps = self.target.lower_node(node, inputs, outputs)
        if steps or self.facts.inside.keys().isdisjoint(node.outputs):
            return [*steps] or [ReferenceStep(node)]
        for tensor in node.outputs:
            self.concats.drop(tensor)
        return self._single_node(node)

    # Loop nests.

    def _kernels(self, group: Group) -> list[Step]:
        structure = self.structures.of(group)
        nest = self.structures.lowered("nest", structure, lambda: self._nest(group))
        assert nest is not None
        left: dict[tuple[bool, DimLike], list[PartialResults]] = {}
        for one in nest.partials:
            reader = self._reader(one.output, group)
            if reader is None:
                left.setdefault((one.inner, one.output.size), []).append(one)
            else:
                self.waiting.setdefault(reader, []).append(one)
        return [*nest.steps, *[self._combining(alike) for alike in left.values()]]

    def _nest(self, group: Group) -> Lowered:
        """Return the steps of a group's loops, and the partial results that they leave."""
        values = ExpressionBuilder(group, self.facts)
        nonzero = values.nonzero
        across = {one.node: one for one in values.across}
        stores = [t for t in group.outputs if t.node not in across]
        partial = [across[t.node] for t in group.outputs if t.node in across]
        draft = drafted(values, stores, partial)
        if is_written_out(group, draft, self.facts):
            draft, nonzero = written_out(group, self.facts)
        ops = (group.form, *[node.op for node in group.nodes])
        alike = self.numbers.setdefault(ops, set())
        draft = with_tables(draft, self.target.most_numbers, alike)
        turn_if_narrow(draft, self.target.narrow)
        steps = [step(finished(copy, self.target), (), self.target) for copy in packed(draft)]
        done = finished(draft, self.target)
        steps.append(step(done, group.nodes, self.target, nonzero))
        partials = [
            PartialResults(one.node, one.kind, one.inner, done.partials[one], done.work_items)
            for one in partial
        ]
        return Lowered(steps, partials)

    def _reader(self, tensor: Tensor, group: Group) -> Group | None:
        """Return the only group that reads combined partial results, if it may combine them."""
        readers = self.readers.get(tensor, ())
        if len(readers) != 1 or not can_follow(readers[0], self.facts):
            return None
        (reader,) = readers
        others = self.waiting.get(reader)
        if others and others[0].node not in group.nodes:
            return None
        return reader if self._follows(reader, tensor) else None

    def _follows(self, group: Group, tensor: Tensor) -> bool:
        """Return whether a group can be computed where partial results of a tensor are combined."""

        def made() -> Lowered | None:
            return None if following(group, self.facts, [tensor]) is None else Lowered(())

        structure = self.structures.of(group)
        if structure is not None and tensor not in structure.numbers:
            structure = None  # it only waits for the tensor, after a barrier
        number = None if structure is None else structure.numbers[tensor]
        return self.structures.lowered(f"after {number}", structure, made) is not None

    def _combining(self, partials: Sequence[PartialResults], group: Group | None = None) -> Step:
        """Return the step that combines partial results, and does what a group does with these."""
        results = [one.output for one in partials]
        stored = results if group is None else [t for t in results if t in self.demanded]
        nodes = [one.node for one in partials]
        nodes.extend(() if group is None else group.nodes)

        def made() -> Lowered:
            after = None if group is None else following(group, self.facts, results)
            done = finished(combined(partials, after, stored), self.target)
            return Lowered([step(done, nodes, self.target)])

        structure = None if group is None else self.structures.of(group)
        whole = None
        if group is None or structure is not None:
            whole = joined_structure(partials, structure, stored)
        joined = self.structures.lowered("join", whole, made)
        assert joined is not None
        return joined.steps[0]

    # Matrix products.

    def _is_prologue(self, group: Group) -> bool:
        """Return whether the product that alone reads what a group computes does that itself."""
        readers = self.readers.get(group.outputs[0], ())
        node = multiplied(group, readers, self.facts, self.demanded)
        if node is None:
            return False
        product = self._multiplication(node, (node,), None, None)
        operands = (product.left.storage, product.right.storage)
        if not self.prologues.keys().isdisjoint(operands):
            return False
        (tensor,) = group.outputs
        found = prologue(group, self.facts, self.target, is_right=tensor is operands[1])
        if found is None:
            return False
        if not self.target.computes_operand(product._replace(prologue=found)):
            return False
        self.prologues[tensor] = found
        return True

    def _matmul(self, group: Group) -> list[Step]:
        product = next(n for n in group.nodes if self.facts.role[n] is Role.MATMUL)
        (output,) = product.outputs
        operands = [self.facts.root_of(tensor) for tensor in self.facts.read_by(product)]
        is_plain = self.prologues.keys().isdisjoint(operands)
        structure = self.structures.of(group) if is_plain else None
        # Products are written as a whole, in a row: by the epilogue, where they are elsewhere.
        is_inside = output in self.facts.inside
        rest = tuple([node for node in group.nodes if node is not product])
        outputs = tuple([t for t in group.outputs if t is not output or is_inside])
        after = replace(group, kind="kernel", nodes=rest, outputs=outputs)

        def plain() -> Lowered:
            return Lowered(self._product(product, (product,), output, None))

        def whole() -> Lowered | None:
            joined = self._epilogue(after, product)
            kept = output if len(outputs) < len(group.outputs) else None
            if joined is None:
                return None
            return Lowered(self._product(product, group.nodes, kept, joined))

        if outputs:
            joined = self.structures.lowered("product and epilogue", structure, whole)
            if joined is not None:
                return [*joined.steps]
            if is_inside:
                self.concats.drop(output)
                return self._matmul(group)
        found = self.structures.lowered("product", structure, plain)
        assert found is not None
        return [*found.steps, *(self._kernels(after) if outputs else ())]

    def _product(
        self,
        node: Node,
        nodes: tuple[Node, ...],
        product: Storage | None,
        epilogue: Epilogue | None,
    ) -> list[Step]:
        """Return the steps of a product, which may be one that is pooled, and what follows it."""
        found = self._multiplication(node, nodes, product, epilogue)
        for operand in (found.left, found.right):
            before = self.prologues.get(operand.storage)
            if before is None:
                continue
            found = found._replace(nodes=(*before.nodes, *nodes), prologue=before)
        return [*self.target.product(found)]

    def _multiplication(
        self,
        node: Node,
        nodes: tuple[Node, ...],
        product: Storage | None,
        epilogue: Epilogue | None,
    ) -> Product:
        """Return a product, its operands with all batch dims."""
        operands = self.facts.read_by(node)
        left, right = [view(tensor, self.facts) for tensor in operands]
        root = self.facts.root_of(operands[1])
        fixed = root in self.fixed or isinstance(root.node.op, ConstantOp)
        if isinstance(node.op, MatMul):
            batch = node.types[0].shape[:-2]
            left, right = with_batch(left, batch), with_batch(right, batch)
        return Product(node, nodes, left, right, product, epilogue, fixed)

    def _epilogue(self, group: Group, node: Node) -> Epilogue | None:
        """Return a group as the epilogue of a product, if that can be computed piece by piece."""
        values = ExpressionBuilder(group, self.facts, node.outputs[0])
        draft = drafted(values, group.outputs, ())
        rows = len(values.axes) - len([dim for dim in columns_of(node) if dim != 1])
        draft.outer, draft.inner = values.axes[:rows], values.axes[rows:]
        factors = [self.facts.layout_of(tensor).root for tensor in self.facts.read_by(node)]
        return epilogue(draft, self.target, node.outputs[0], factors)


def with_batch(operand: View, batch: Sequence[DimLike]) -> View:
    """Return an operand of a product as one of all its batch dims."""
    *dims, rows, columns = operand.shape
    *strides, down, along = operand.strides
    missing = len(batch) - len(dims)
    steps = [0 if d == 1 else stride for d, stride in zip(dims, strides, strict=True)]
    return operand._replace(
        shape=(*batch, rows, columns), strides=(*[0] * missing, *steps, down, along)
    )
