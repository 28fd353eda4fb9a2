"""Matrices with any leading dims as views of three dims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.steps import Step, Storage, View
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.codegen.llvm_module import LlvmFunction
from graphfw.runtime.planning.collapse import joint_stride
from graphfw.runtime.planning.copies import copied

VIEW = ("offset", "apart", "row", "column")
"""The params of a view: where its first element is, and the distances of matrices, rows and columns
in elements."""


class MatrixOperands(NamedTuple):
    """The operands of a step, and what it takes to have their matrices one after the other.

    Attributes:
        storages: Where they are.
        params: `VIEW` for each.
        copies: Steps that copy some of them before.
    """

    storages: tuple[Storage, ...]
    params: list[DimLike]
    copies: list[Step]


def read_views(f: LlvmFunction, first: int, count: int) -> list[list[str]]:
    """Load `VIEW` of so many operands, from a param on."""
    return [
        [f.read("%params", first + len(VIEW) * number + i) for i in range(len(VIEW))]
        for number in range(count)
    ]


def operands_in_order(
    node: Node, outputs: Sequence[View], inputs: Sequence[View], lead: Sequence[DimLike]
) -> MatrixOperands | None:
    """Return outputs and inputs as operands of a step; None where an output would be copied."""
    storages, copies = [], []
    params: list[DimLike] = []
    for number, view in enumerate((*outputs, *inputs)):
        lying, more = in_order(node, view, lead)
        if number < len(outputs) and more:
            return None
        copies += more
        storages.append(lying.storage)
        params += [lying.offset, *lying.strides]
    return MatrixOperands(tuple(storages), params, copies)


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
