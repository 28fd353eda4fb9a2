"""Kernels that combine the partial results of the work items of another: sums over rows.

What is done to such a sum only, as an optimiser's update of a bias is, is done where it is joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphfw.ir.affine import LoopVariable
from graphfw.ir.dim import DimLike
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.shape.gather_scatter import Gather
from graphfw.passes.fuse import Group
from graphfw.passes.fuse_nodes import FusionFacts, Role
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.elements import (
    Element,
    ElementAddress,
)
from graphfw.runtime.kernels.ir import Expr, ReduceKind, Ref
from graphfw.runtime.kernels.lower_loops import (
    Draft,
    Stored,
    Swap,
    draft_exprs,
    drafted,
    roots_of,
    with_value,
)
from graphfw.runtime.kernels.lower_values import (
    ExpressionBuilder,
    K,
    RowReduction,
)
from graphfw.runtime.kernels.steps import Temp


class PartialResults(NamedTuple):
    """The partial results that the work items of a kernel leave of a reduction over rows.

    Attributes:
        node: The reduction.
        kind: How it reduces.
        inner: Whether there is one result for each inner position.
        temp: Where its partial results are.
        work_items: How many there are.
    """

    node: Node
    kind: ReduceKind
    inner: bool
    temp: Temp
    work_items: DimLike

    @property
    def output(self) -> Tensor:
        """The storage that they are joined to."""
        return self.node.outputs[0]


def combined(
    partials: Sequence[PartialResults], after: Draft | None, stored: Sequence[Tensor]
) -> Draft:
    """Return the kernel that combines partial results, and does something with the results.

    Args:
        partials: Of one kernel; with an `after` all of the size of what that computes.
        after: What is done with the results, or None.
        stored: Which of the results are stored.
    """
    first = partials[0]
    work_item = LoopVariable("work_item", first.work_items)
    axes = [LoopVariable("position", first.output.size)] if first.inner else []
    if after is not None:
        axes = list(after.outer)
    steps = tuple(zip(axes, contiguous([axis.extent for axis in axes]), strict=True))
    draft = Draft("columns" if axes else "rows", axes, [work_item], loops=[[]])
    results: dict[Tensor, Expr] = {}
    for number, one in enumerate(partials):
        source = ElementAddress(one.temp, 0, ((work_item, one.output.size), *steps))
        name, dtype = f"r{number}", one.temp.dtype
        draft.loops[0].append(RowReduction(name, one.kind, Element(dtype, source)))
        results[one.output] = K.cast(Ref(dtype, name), one.output.dtype)
    for tensor in stored:
        draft.after.append(Stored(ElementAddress(tensor, 0, steps), results[tensor]))
    if after is not None:
        swap = Swap(lambda expr: _result(expr, results))
        (loop,) = after.loops
        draft.after.extend([with_value(one, swap(one.value)) for one in loop])
    return draft


def _result(expr: Expr, results: dict[Tensor, Expr]) -> Expr | None:
    if isinstance(expr, Element) and isinstance(expr.address.storage, Tensor):
        return results.get(expr.address.storage)
    return None


def can_follow(group: Group, facts: FusionFacts) -> bool:
    """Return whether a group is elementwise and can follow the combination of partial results.

    Not so a gather: its index says where it reads, and there no result is put in.
    """
    return (
        group.kind == "kernel"
        and group.rows is None
        and all([facts.role[node] is Role.POINTWISE for node in group.nodes])
        and all([not isinstance(node.op, Gather) for node in group.nodes])
    )


def following(group: Group, facts: FusionFacts, tensors: Sequence[Tensor]) -> Draft | None:
    """Return the draft of a group that takes each element of these tensors where it computes it."""
    if any(tuple([d for d in t.shape if d != 1]) != group.sizes for t in tensors):
        return None
    draft = drafted(ExpressionBuilder(group, facts), group.outputs, ())
    if len(draft.loops) != 1 or any(not isinstance(s, Stored) for s in draft.statements()):
        return None
    own = contiguous(group.sizes)
    steps = {axis: step for axis, step in zip(draft.outer, own, strict=True)}
    roots = [root for statement in draft.statements() for root in roots_of(statement)]
    for leaf in draft_exprs(roots):
        if isinstance(leaf, Element) and any(leaf.address.storage is t for t in tensors):
            if leaf.address.offset != 0 or dict(leaf.address.strides) != steps:
                return None
    return draft
