"""Arrays of any shape as arrays of three dims: what is before an axis, it, and what is after."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.ir import Kernel
from graphfw.runtime.kernels.steps import Code, Step, View
from graphfw.runtime.planning.copies import copied


def in_thirds(
    node: Node, x: View, first: int, last: int, code: Callable[[Kernel], Code]
) -> tuple[View, list[Step]]:
    """Return a view with three dims: those before `first`, from there to `last`, and after.

    And the step that copies it, where dims that become one don't lie in a row, whose code is made
    by `code`.
    """
    cuts = (slice(0, first), slice(first, last), slice(last, None))
    shape = tuple([size_of(x.shape[cut]) for cut in cuts])
    strides = [_stride(x.shape[cut], x.strides[cut]) for cut in cuts]
    known = tuple([stride for stride in strides if stride is not None])
    if len(known) == len(cuts):
        return View(x.storage, x.offset, shape, known), []
    step, temp = copied(x, (node,), "what does not lie in a row", code)
    return View(temp, 0, shape, contiguous(shape)), [step]


def _stride(dims: Sequence[DimLike], strides: Sequence[DimLike]) -> DimLike | None:
    """Return the stride of dims taken as one; None where they don't lie in a row."""
    found: DimLike | None = None
    span: DimLike = 0
    for dim, stride in zip(reversed(dims), reversed(strides), strict=True):
        if dim == 1:
            continue
        if found is None:
            found = stride
        elif stride != span:
            return None
        span = stride * dim
    return 0 if found is None else found
