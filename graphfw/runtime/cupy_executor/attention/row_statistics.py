"""Kernels that compute one number a query for the gradients of attention."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.affine import LoopVariable
from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.composed import wide_dtype
from graphfw.ops.nn.attention_backward import summed_axes
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.kernels.elements import (
    Element,
    ElementAddress,
)
from graphfw.runtime.kernels.ir import Const, Ref
from graphfw.runtime.kernels.lower_loops import Draft, Stored
from graphfw.runtime.kernels.lower_steps import finished
from graphfw.runtime.kernels.lower_values import (
    K,
    RowReduction,
)
from graphfw.runtime.kernels.steps import Step, Temp, View


def delta_step(node: Node, out: View, d_out: View) -> tuple[Step, View]:
    """Return the step that sums out * d_out over the last dim, and the storage of the sums.

    Args:
        node: The node that needs it.
        out: The result of attention.
        d_out: Its gradient.
    """
    *shape, width = out.shape
    rows, column = _axes(shape), LoopVariable("j", width)
    dtype = wide_dtype(out.storage.dtype)
    factors = [
        K.cast(Element(view.storage.dtype, _address(view, [*rows, column])), dtype)
        for view in (out, d_out)
    ]
    temp = Temp(dtype, size_of(shape), "the sums of a result times its gradient")
    delta = View(temp, 0, tuple(shape), contiguous(shape))
    summed = RowReduction("delta", "sum", K.mul(*factors))
    stored = Stored(_address(delta, rows), Ref(dtype, "delta"))
    return _step(node, Draft("rows", rows, [column], loops=[[summed]], after=[stored])), delta


def sum_step(node: Node, x: View, out: View) -> Step:
    """Return the step that adds gradients along the dims in which an operand is broadcast.

    Args:
        node: The node that needs it.
        x: The gradients, with all dims.
        out: The sums.
    """
    axes, short = _axes(x.shape), summed_axes(x.shape, out.shape)
    rows = [axis for number, axis in enumerate(axes) if number not in short]
    along = zip(axes[-len(out.shape) :], out.strides, strict=True)
    position = ElementAddress(
        out.storage, out.offset, tuple([pair for pair in along if pair[0] in rows])
    )
    dtype = wide_dtype(x.storage.dtype)
    value = K.cast(Element(x.storage.dtype, _address(x, axes)), dtype)
    stored = Stored(position, K.cast(Ref(dtype, "total"), out.storage.dtype))
    inner = [axes[number] for number in short]
    total = RowReduction("total", "sum", value)
    return _step(node, Draft("rows", rows, inner, loops=[[total]], after=[stored]))


def zeros_step(node: Node, numbers: View) -> Step:
    """Return the step that fills numbers with zeros."""
    axes = _axes(numbers.shape)
    stored = Stored(_address(numbers, axes), Const(numbers.storage.dtype, 0.0))
    return _step(node, Draft("rows", axes, None, loops=[[stored]]))


def _axes(shape: Sequence[DimLike]) -> list[LoopVariable]:
    return [LoopVariable(f"i{number}", dim) for number, dim in enumerate(shape)]


def _address(view: View, axes: Sequence[LoopVariable]) -> ElementAddress:
    return ElementAddress(view.storage, view.offset, tuple(zip(axes, view.strides, strict=True)))


def _step(node: Node, draft: Draft) -> Step:
    done = finished(draft)
    return Step(
        nodes=(node,),
        code=CudaCode(done.kernel),
        operands=done.operands,
        written=tuple([buffer.written for buffer in done.kernel.buffers]),
        params=done.params,
        work_items=done.work_items,
    )
