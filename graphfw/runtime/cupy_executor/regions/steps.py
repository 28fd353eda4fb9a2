"""The steps of a loop or a branch: its inputs in a row, then the region itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphfw.ir.dim import DimLike, divisible
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.control.branch_op import Branch
from graphfw.ops.control.scan_op import Scan
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.addresses import WELL
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.cupy_executor.regions.branches import BranchCode
from graphfw.runtime.cupy_executor.regions.common import Maker, RegionCode
from graphfw.runtime.cupy_executor.regions.loops import WhileRegionCode
from graphfw.runtime.cupy_executor.regions.scans import ScanRegionCode
from graphfw.runtime.kernels.steps import ReferenceStep, Step, Storage, View
from graphfw.runtime.planning.copies import copied


def region_steps(item: ReferenceStep, view: Callable[[Tensor], View], make: Maker) -> list[Step]:
    """Return the steps of a node with bodies.

    Args:
        item: The node, as lowering leaves it.
        view: Says how a tensor lies.
        make: Compiles a body.
    """
    node = item.node
    code = _code(node, make)
    steps: list[Step] = []
    operands: list[Storage] = []
    offsets: list[DimLike] = []
    strides: list[DimLike] = []
    for number, tensor in enumerate(node.inputs):
        operand = view(tensor)
        if number in code.sequences:
            if not _is_in_a_row(operand.shape[1:], operand.strides[1:]):
                operand = _copied(operand, tensor.node, steps)
            strides.append(operand.strides[0])
        elif not _lies_well(operand):
            operand = _copied(operand, tensor.node, steps)
        operands.append(operand.storage)
        offsets.append(operand.offset)
    step = Step(
        nodes=(node,),
        code=code,
        operands=(*operands, *node.outputs),
        written=(*[False for _ in operands], *[True for _ in node.outputs]),
        params=(*offsets, *strides),
        work_items=1,
        can_fail=True,  # so it comes before all that writes over variables
        after=item.after,
    )
    return [*steps, step]


def _code(node: Node, make: Maker) -> RegionCode:
    op = node.op
    if isinstance(op, Scan):
        return ScanRegionCode(node, make)
    if isinstance(op, Branch):
        return BranchCode(node, make)
    return WhileRegionCode(node, make)


def _copied(operand: View, node: Node, steps: list[Step]) -> View:
    """Return a copy that is contiguous, and add what makes it."""
    step, temp = copied(operand, (node,), "what a loop or a branch takes", CudaCode)
    steps.append(step)
    return View(temp, 0, operand.shape, contiguous(operand.shape))


def _is_in_a_row(shape: Sequence[DimLike], strides: Sequence[DimLike]) -> bool:
    wanted = contiguous(shape)
    return all([d == 1 or a == b for d, a, b in zip(shape, strides, wanted, strict=True)])


def _lies_well(operand: View) -> bool:
    """Return whether a view is contiguous, and its address aligned as those of arrays are."""
    begin = operand.offset * operand.storage.dtype.itemsize
    return _is_in_a_row(operand.shape, operand.strides) and bool(divisible(begin, WELL))
