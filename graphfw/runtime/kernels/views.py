"""The addresses of tensors, as steps see them."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.shape.concat import Concat
from graphfw.passes.fuse_nodes import FusionFacts
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.steps import View


def view(tensor: Tensor, facts: FusionFacts) -> View:
    """Return the view of a tensor in the storage of what computes it: a source, or a group.

    A tensor that views nothing is its own storage.
    """
    layout = facts.layout_of(tensor)
    return View(layout.root, layout.offset, tensor.shape, layout.strides)


def is_whole(view: View) -> bool:
    """Return whether a view has all elements of its storage, in the same order."""
    assert isinstance(view.storage, Tensor)
    if view.offset != 0 or size_of(view.shape) != view.storage.size:
        return False
    dense = zip(view.shape, view.strides, contiguous(view.shape), strict=True)
    return all(dim == 1 or stride == wanted for dim, stride, wanted in dense)


def misplaced(node: Node, inputs: Sequence[View], output: View) -> list[tuple[View, View]]:
    """Return the inputs of a `concat` node that lie elsewhere, and where they belong."""
    assert isinstance(node.op, Concat)
    axis = node.op.axis
    begin: DimLike = 0
    found: list[tuple[View, View]] = []
    for x in inputs:
        offset = output.offset + begin * output.strides[axis]
        view = output._replace(offset=offset, shape=x.shape)
        if x.shape[axis] != 0 and not _is_at(x, view):
            found.append((x, view))
        begin = begin + x.shape[axis]
    return found


def is_joined(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> bool:
    """Return whether a node is a `concat` whose inputs have been written where they belong."""
    if not isinstance(node.op, Concat) or all(
        [x.storage is not outputs[0].storage for x in inputs]
    ):
        return False
    return not misplaced(node, inputs, outputs[0])


def _is_at(x: View, view: View) -> bool:
    if x.storage is not view.storage or x.offset != view.offset:
        return False
    strides = zip(x.shape, x.strides, view.strides, strict=True)
    return all([dim == 1 or here == there for dim, here, there in strides])
