"""Concatenations in place: each input is computed in its section of one storage.

The result of a `concat` is the storage; the operands are views of it. So is all that views an
operand, and what reads it reads it there. An operand may be a concat itself. What can't be written
there is copied: feeds, what others need as a whole of its own, such as outputs, and what is
computed by something that writes no sections.
"""

from __future__ import annotations

from collections.abc import Callable

from graphfw.ir.dim import DimLike
from graphfw.ir.graph import Graph
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.control.checkpoint_ops import Barrier
from graphfw.ops.shape.concat import Concat
from graphfw.passes.fuse import Group, Partition
from graphfw.passes.fuse_nodes import Role
from graphfw.passes.fuse_pools import columns_of
from graphfw.passes.fuse_views import TensorLayout, source_of, view_of

_RUN = 16
"""The least contiguous elements that are written in place: fewer are copied in less time."""


class InPlaceConcats:
    """Says where operands of concats are: in `FusionFacts.inside`.

    Args:
        graph: The graph.
        partition: Its groups.
        fills: Whether the steps of a node that is computed by itself write any view, and what a
            concat finds at its address it leaves there.
    """

    def __init__(self, graph: Graph, partition: Partition, fills: Callable[[Node], bool]) -> None:
        self._facts = facts = partition.facts
        self._fills = fills
        self._demanded = {facts.root_of(t) for t in graph.outputs}
        self._makers = {t: group for group in partition.groups for t in group.outputs}
        self._views: dict[Tensor, list[Tensor]] = {}
        concats = [group.nodes[0] for group in partition.groups if _is_concat(group)]
        concats = [node for node in concats if fills(node)]
        if not concats:
            return
        for node in graph.nodes:
            if facts.role[node] is Role.VIEW:
                for tensor in node.outputs:
                    self._views.setdefault(facts.root_of(tensor), []).append(tensor)
        for node in reversed(concats):  # a concat has its address before its inputs do
            self._join(node)

    def drop(self, tensor: Tensor) -> None:
        """Give a tensor a storage of its own: it can't be written elsewhere."""
        for one in (tensor, *self._views.get(tensor, ())):
            self._facts.inside.pop(one, None)

    def _join(self, node: Node) -> None:
        whole = self._facts.layout_of(node.outputs[0])
        assert isinstance(node.op, Concat)
        axis = node.op.axis
        begin: DimLike = 0
        for x in node.inputs:
            offset = whole.offset + begin * whole.strides[axis]
            self._put(x, TensorLayout(whole.root, offset, whole.strides, 0))
            begin = begin + x.shape[axis]

    def _put(self, tensor: Tensor, at: TensorLayout) -> None:
        """Let a tensor lie at an address, if what computes it can write it there."""
        facts = self._facts
        while tensor in facts.layout:
            source = source_of(tensor, at)
            if source is None:
                return
            tensor, at = tensor.node.inputs[0], source
        is_free = tensor not in self._demanded and tensor not in facts.inside
        if not is_free or not self._is_written_anywhere(tensor) or not _is_worth(tensor, at):
            return
        found = {tensor: at}
        for view in self._views.get(tensor, ()):
            if isinstance(view.node.op, Barrier):
                found[view] = found[view.node.inputs[view.index]]
                continue
            layout = view_of(view, found[view.node.inputs[0]])
            if layout is None:
                return
            found[view] = layout
        facts.inside.update(found)

    def _is_written_anywhere(self, tensor: Tensor) -> bool:
        group = self._makers.get(tensor)
        if group is None:
            return False
        if group.kind == "reference":
            return self._fills(tensor.node)
        role = self._facts.role[tensor.node]
        if role is Role.MATMUL:  # by an epilogue, which runs along columns
            return any([dim != 1 for dim in columns_of(tensor.node)])
        return role in (Role.POINTWISE, Role.CONCAT)


def _is_concat(group: Group) -> bool:
    return group.kind == "reference" and isinstance(group.nodes[0].op, Concat)


def _is_worth(tensor: Tensor, layout: TensorLayout) -> bool:
    """Return whether enough elements are contiguous."""
    run: DimLike = 1
    for dim, stride in zip(reversed(tensor.shape), reversed(layout.strides), strict=True):
        if dim == 1:
            continue
        if stride != run:
            return not isinstance(run, int) or run >= _RUN
        run = run * dim
    return True
