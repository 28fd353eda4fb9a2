"""`cumulative_sum`, `cumulative_prod` and `recurrence`.

A thread scans each line, like the reference path. If lines are long and few, or contiguous, a block
sums each in another order, always the same. Products are not reordered: those of 0 and of numbers
that overflow would become NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from graphfw.ir.dtype import DType
from graphfw.ir.op import Op
from graphfw.ir.tensor import Node
from graphfw.ops.reduce.cumulative import CumulativeProd, CumulativeSum, Recurrence
from graphfw.runtime.cupy_executor.codegen import (
    NOTHING,
    CudaCode,
    HandwrittenCode,
    Launch,
    Variant,
)
from graphfw.runtime.cupy_executor.codegen.launch import BLOCKS
from graphfw.runtime.cupy_executor.codegen.types import register
from graphfw.runtime.cupy_executor.special.launches import (
    THREADS,
    blocks_for,
    is_wide,
    reach,
)
from graphfw.runtime.kernels.ir import Buffer
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.collapse import scan_layout_of

_TEXT = (Path(__file__).parent / "scans.cuh").read_text("utf-8")

_LONG = 64
"""The length from which on a block sums a contiguous line."""

_KINDS: Mapping[type[Op], str] = {CumulativeSum: "GF_SUM", CumulativeProd: "GF_PROD"}


def scan_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> list[Step]:
    """Return the steps of a node that scans an axis; none for complex numbers."""
    (output,) = outputs
    dtype = output.storage.dtype
    if dtype.is_complex:
        return []
    walk = scan_layout_of(node, inputs, output, CudaCode)
    step = Step(
        nodes=(node,),
        code=_code(dtype, type(node.op), reverse=walk.reverse, exclusive=walk.exclusive),
        operands=walk.operands,
        written=(True, *[False for _ in inputs]),
        params=(*walk.sizes, *walk.params),
        work_items=1,
        in_place=walk.in_place,
    )
    return [*walk.copies, step]


def _code(dtype: DType, op: type[Op], *, reverse: bool, exclusive: bool) -> HandwrittenCode:
    traits = f"{str(reverse).lower()}, {str(exclusive).lower()}"
    kind = register(dtype)
    if op is Recurrence:
        call = f"gf_recurrence_lines<{str(reverse).lower()}, {kind}>"
    else:
        call = f"gf_cumulative_lines<{_KINDS[op]}, {traits}, {kind}>"
    functions = [Variant("lines", call, THREADS)]
    if op is CumulativeSum:
        functions.append(Variant("rows", f"gf_cumulative_rows<{traits}, {kind}>", THREADS))
    inputs = 2 if op is Recurrence else 1
    return HandwrittenCode(
        name=op.name,
        text=_TEXT,
        buffers=(Buffer(dtype, True), *[Buffer(dtype, False)] * inputs),
        params=3 + 4 * inputs,
        functions=tuple(functions),
        launching=partial(_launched, may_share=op is CumulativeSum),
    )


def _launched(params: Sequence[int], *, may_share: bool) -> Launch:
    before, size, after = params[:3]
    if before * size * after == 0:
        return NOTHING
    lasts = [before * size * after + THREADS]
    lasts += [reach(params[:3], params[n : n + 4]) for n in range(3, len(params), 4)]
    if may_share and after == 1 and size >= _LONG:
        return Launch("rows", min(before, BLOCKS), 1, (THREADS, 1), 0, 0, 0, is_wide(*lasts))
    grid = blocks_for(before * after)
    return Launch("lines", grid, 1, (THREADS, 1), 0, 0, 0, is_wide(*lasts))
