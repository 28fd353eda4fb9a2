"""The prologue of a matrix product: it computes an operand where it is multiplied."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.linalg.products import MatMul
from graphfw.passes.fuse import Group
from graphfw.passes.fuse_nodes import FusionFacts, Role
from graphfw.runtime.kernels.elements import (
    Element,
)
from graphfw.runtime.kernels.ir import InnerLoop, Kernel, Param, Store
from graphfw.runtime.kernels.kernel_target import KernelTarget
from graphfw.runtime.kernels.lower_loops import Draft, Stored, draft_exprs, drafted, roots_of
from graphfw.runtime.kernels.lower_steps import finished
from graphfw.runtime.kernels.lower_values import (
    ExpressionBuilder,
)
from graphfw.runtime.kernels.steps import Prologue


def multiplied(
    group: Group, readers: Collection[Group], facts: FusionFacts, demanded: Collection[Tensor]
) -> Node | None:
    """Return the matrix product that alone reads what a group computes, as one of its operands.

    Args:
        group: A group of loop nests.
        readers: The groups that read its output.
        facts: Of the graph.
        demanded: What the graph's outputs lie in.
    """
    tensor, *others = group.outputs
    is_plain = all([facts.role[node] is Role.POINTWISE for node in group.nodes])
    if others or not is_plain or group.rows is not None or tensor in demanded:
        return None
    if tensor in facts.inside or len(readers) != 1 or any(map(facts.waits, group.nodes)):
        return None
    (reader,) = readers
    users = [
        node for node in reader.nodes if any([root is tensor for root in facts.needed_by(node)])
    ]
    if len(users) != 1 or facts.role[users[0]] is not Role.MATMUL:
        return None
    (node,) = users
    if not isinstance(node.op, MatMul) or facts.waits(node):
        return None
    left, right = [facts.root_of(operand) for operand in node.inputs]
    return node if left is not right else None


def prologue(
    group: Group, facts: FusionFacts, target: KernelTarget, *, is_right: bool
) -> Prologue | None:
    """Settle an elementwise group row by row; None where it can't be computed piece by piece.

    Args:
        group: The group.
        facts: Of the graph.
        target: What compiles it.
        is_right: Whether it computes the right operand.
    """
    (tensor,) = group.outputs
    values = ExpressionBuilder(group, facts)
    if len(values.axes) < 2:
        return None
    draft = drafted(values, group.outputs, ())
    draft.outer, draft.inner = values.axes[:-1], values.axes[-1:]
    if _reads_across(draft):
        return None
    done = finished(draft, target)
    kernel = done.kernel
    if len(kernel.outer) != 1 or len(kernel.inner) != 1 or len(done.operands) < 2:
        return None
    if done.can_fail or values.nonzero or {type(s) for s in draft.statements()} != {Stored}:
        return None
    return Prologue(
        nodes=group.nodes,
        kernel=_with_distance(kernel),
        operands=tuple([None if storage is tensor else storage for storage in done.operands]),
        params=(*done.params, values.axes[-1].extent),
        rows=size_of([axis.extent for axis in values.axes[:-1]]),
        columns=values.axes[-1].extent,
        is_right=is_right,
    )


def _with_distance(kernel: Kernel) -> Kernel:
    """Return a kernel with a parameter more, the distance between the rows that it writes."""
    (loop,) = kernel.body
    assert isinstance(loop, InnerLoop)
    (store,) = loop.body
    assert isinstance(store, Store)
    strides = ((kernel.outer[0].name, Param(kernel.params)), (kernel.inner[0].name, 1))
    store = replace(store, access=store.access._replace(strides=strides))
    return replace(kernel, params=kernel.params + 1, body=(replace(loop, body=(store,)),))


def _reads_across(draft: Draft) -> bool:
    """Return whether something is not dense along rows: a kernel of its own lays it out first."""
    assert draft.inner is not None
    (axis,) = draft.inner
    roots = [root for statement in draft.statements() for root in roots_of(statement)]
    addresses = [leaf.address for leaf in draft_exprs(roots) if isinstance(leaf, Element)]
    return any([dict(address.strides).get(axis, 0) not in (0, 1) for address in addresses])
