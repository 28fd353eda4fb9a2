"""Matrices with any leading dims as views of three dims."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.planning.collapse import joint_stride
from graphfw.runtime.planning.copies import copied


def in_order(node: Node, x: View, lead: Sequence[DimLike]) -> tuple[View, list[Step]]:
    """Return matrices as a view of three dims, and the step that copies them, if it takes one."""
    missing = len(lead) - (len(x.shape) - 2)
    own = [
        0 if dim == 1 else stride for dim, stride in zip(x.shape[:-2], x.strides[:-2], strict=True)
    ]
    strides = [0] * missing + own
    apart = joint_stride(lead, strides)
    shape = (size_of(lead), *x.shape[-2:])
    if apart is not None:
        return View(x.storage, x.offset, shape, (apart, *x.strides[-2:])), []
    spread = View(x.storage, x.offset, (*lead, *x.shape[-2:]), (*strides, *x.strides[-2:]))
    step, temp = copied(spread, (node,), "matrices that are not one after the other", KernelCode)
    return View(temp, 0, shape, contiguous(shape)), [step]
