"""Lowering: the groups of a partition become steps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol, TypeAlias

from graphfw.ir.affine import Variable
from graphfw.ir.dim import DimLike, always_ge
from graphfw.ir.dtype import DType, int64
from graphfw.ir.graph import Graph
from graphfw.ir.op import Op
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.passes.fuse import Group, Partition
from graphfw.passes.fuse_nodes import Facts, Role, reduced_axes
from graphfw.runtime.kernels.ir import Call, Const, Expr, Ref
from graphfw.runtime.kernels.lower_loops import (
    Draft,
    Stored,
    drafted,
    is_cheap_call,
    postorder,
)
from graphfw.runtime.kernels.lower_packed import packed
from graphfw.runtime.kernels.lower_steps import KernelTarget, epilogue, finished, step
from graphfw.runtime.kernels.lower_values import (
    Across,
    Bound,
    Element,
    K,
    Place,
    Reduced,
    Values,
    scalar_form,
)
from graphfw.runtime.kernels.steps import (
    Epilogue,
    ReferenceStep,
    Step,
    Storage,
    Temp,
    View,
)
from graphfw.runtime.kernels.views import view

Item: TypeAlias = "Step | ReferenceStep"


class Target(KernelTarget, Protocol):
    """What makes native code."""

    def multiplies(self, dtype: DType) -> bool:
        """Whether it has matrix products of a dtype."""
        ...

    def alone(self, node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> Sequence[Step]:
        """Return the steps of a node whose op has native code of its own, or nothing."""
        ...

    def matmul(
        self,
        nodes: tuple[Node, ...],
        a: View,
        b: View,
        product: Storage | None,
        epilogue: Epilogue | None,
        *,
        fixed_b: bool,
    ) -> Sequence[Step]:
        """Return the steps of a matrix product.

        Args:
            nodes: What the steps compute.
            a: [*B, M, K].
            b: [*B, K, N].
            product: Where the product goes; None where only the epilogue has outputs.
            epilogue: What is done to its elements.
            fixed_b: Whether b's storage has the same contents in all runs.
        """
        ...


class CanCompile:
    """What a target can compile: what the partition of a graph asks."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._forms: dict[tuple[Op, tuple[DType, ...]], tuple[bool, bool]] = {}

    def scalar(self, node: Node) -> bool:
        """Whether the op has a scalar form for these dtypes."""
        return self._form(node)[0]

    def is_cheap(self, node: Node) -> bool:
        """Whether computing an element takes no longer than reading one."""
        return self._form(node)[1]

    def matmul(self, node: Node) -> bool:
        """Whether there is a native product of these dtypes."""
        return self._target.multiplies(node.types[0].dtype)

    def _form(self, node: Node) -> tuple[bool, bool]:
        key = (node.op, tuple([t.dtype for t in node.inputs]))
        known = self._forms.get(key)
        if known is None:
            form = scalar_form(node)
            known = self._forms[key] = (form is not None, form is not None and _is_cheap(form))
        return known


def _is_cheap(form: Expr) -> bool:
    parts = postorder([form], lambda expr: False)
    return all([is_cheap_call(part) for part in parts if isinstance(part, Call)])


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
    return _Lowering(partition.facts, target, frozenset(fixed)).steps(partition.groups)


class _Lowering:
    def __init__(self, facts: Facts, target: Target, fixed: frozenset[Tensor]) -> None:
        self.facts = facts
        self.target = target
        self.fixed = fixed

    def steps(self, groups: Sequence[Group]) -> list[Item]:
        """Return the steps of all groups."""
        result: list[Item] = []
        for group in groups:
            result.extend(self._lowered(group))
        return result

    def _lowered(self, group: Group) -> list[Item]:
        if group.kind == "reference":
            return [item for node in group.nodes for item in self._alone(node)]
        steps = self._matmul(group) if group.kind == "matmul" else self._kernels(group)
        return list(steps)

    def _alone(self, node: Node) -> Sequence[Item]:
        """Return the steps of a node that no loop nest computes."""
        inputs = [view(tensor, self.facts) for tensor in node.inputs]
        outputs = [view(tensor, self.facts) for tensor in node.outputs]
        return self.target.alone(node, inputs, outputs) or [ReferenceStep(node)]

    # Loop nests.

    def _kernels(self, group: Group) -> list[Step]:
        values = Values(group, self.facts)
        across = {one.node: one for one in values.across}
        stores = [t for t in group.outputs if t.node not in across]
        lines = [across[t.node] for t in group.outputs if t.node in across]
        draft = drafted(values, stores, lines)
        steps = [step(finished(copy), (), self.target) for copy in packed(draft)]
        done = finished(draft)
        steps.append(step(done, group.nodes, self.target))
        for one in lines:
            draft = _combining(one, done.lines[one], done.cells)
            steps.append(step(finished(draft), (one.node,), self.target))
        return steps

    # Matrix products.

    def _matmul(self, group: Group) -> list[Step]:
        product = next(n for n in group.nodes if self.facts.role[n] is Role.MATMUL)
        batch = product.types[0].shape[:-2]
        a, b = [_with_batch(view(t, self.facts), batch) for t in product.inputs]
        root = self.facts.root_of(product.inputs[1])
        fixed_b = root in self.fixed or root.node.op.name == "constant"
        (output,) = product.outputs
        rest = tuple([node for node in group.nodes if node is not product])
        outputs = tuple([t for t in group.outputs if t is not output])
        if not outputs:
            return list(self.target.matmul((product,), a, b, output, None, fixed_b=fixed_b))
        after = replace(group, kind="kernel", nodes=rest, outputs=outputs)
        joined = self._epilogue(after, output, (a.storage, b.storage))
        if joined is not None:
            kept = output if len(outputs) < len(group.outputs) else None
            return list(self.target.matmul(group.nodes, a, b, kept, joined, fixed_b=fixed_b))
        steps = list(self.target.matmul((product,), a, b, output, None, fixed_b=fixed_b))
        return [*steps, *self._kernels(after)]

    def _epilogue(
        self, group: Group, product: Tensor, factors: Sequence[Storage]
    ) -> Epilogue | None:
        """Return what a group does to a product's elements, if it can be done piece by piece."""
        values = Values(group, self.facts)
        draft = drafted(values, group.outputs, ())
        draft.outer, draft.inner = values.axes[:-1], values.axes[-1:]
        return epilogue(draft, product, factors)


def _combining(one: Across, lines: Temp, cells: DimLike) -> Draft:
    """Return the kernel that joins the lines that the cells have left."""
    (output,) = one.node.outputs
    parts = Variable("cell", cells)
    if one.inner:
        place = Variable("place", output.size)
        source = Place(lines, 0, ((parts, output.size), (place, 1)))
        target = Place(output, 0, ((place, 1),))
        draft = Draft("columns", [place], [parts])
    else:
        source, target = Place(lines, 0, ((parts, 1),)), Place(output, 0, ())
        draft = Draft("rows", [], [parts])
    if one.kind in ("max", "min"):
        x = one.node.inputs[0]
        size = size_of([x.shape[axis] for axis in reduced_axes(one.node)])
        if not always_ge(size, 1):
            draft.before.append(Bound(Const(int64, 0), size))
    draft.loops.append([Reduced("r0", one.kind, Element(lines.dtype, source))])
    draft.after.append(Stored(target, K.cast(Ref(lines.dtype, "r0"), output.dtype)))
    return draft


def _with_batch(operand: View, batch: Sequence[DimLike]) -> View:
    """Return an operand of a product as one of all its batch dims."""
    *dims, rows, columns = operand.shape
    *strides, down, along = operand.strides
    missing = len(batch) - len(dims)
    steps = [0 if d == 1 else stride for d, stride in zip(dims, strides, strict=True)]
    return operand._replace(
        shape=(*batch, rows, columns), strides=(*[0] * missing, *steps, down, along)
    )
