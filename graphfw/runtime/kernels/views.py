"""Where tensors lie in memory, as steps see them."""

from __future__ import annotations

from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Tensor
from graphfw.passes.fuse_nodes import Facts
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.steps import View


def view(tensor: Tensor, facts: Facts) -> View:
    """Return how a tensor lies in the storage of what computes it: a source, or a group's output.

    A tensor that views nothing is its own storage.
    """
    layout = facts.layout_of(tensor)
    return View(layout.root, layout.offset, tensor.shape, layout.strides)


def is_whole(place: View) -> bool:
    """Whether a view has all elements of its storage, in the same order."""
    assert isinstance(place.storage, Tensor)
    if place.offset != 0 or size_of(place.shape) != place.storage.size:
        return False
    dense = zip(place.shape, place.strides, contiguous(place.shape), strict=True)
    return all(dim == 1 or stride == wanted for dim, stride, wanted in dense)
