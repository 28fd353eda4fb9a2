"""The steps of the gradients of weights."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.nn.convolution_ops import ConvWeight
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.cupy_executor.convolution.codes import depthwise_weight_code, weight_code
from graphfw.runtime.cupy_executor.convolution.common import (
    GpuSpatialDim,
    added,
    by_channel,
    correlation,
    dim_arguments,
    engine_of,
    in_group,
    is_by_pixel,
    is_depthwise,
    pieces_for,
    pieces_of,
    spatial_dims,
)
from graphfw.runtime.kernels.steps import Step, Temp, View
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.copies import copied


def conv_weight_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> list[Step]:
    """Return the steps of the gradient of weights; nothing where there are no kernels for it.

    They are those for convolutions, but for strides of both sides at once.
    """
    op, (x, y), (out,) = correlation(node), by_channel(node, inputs), by_channel(node, outputs)
    assert isinstance(op, ConvWeight)
    found = engine_of(node, precision)
    if found is None:
        return []
    is_transposed = any(spread != 1 for spread in op.input_dilations)
    if is_transposed and any(stride != 1 for stride in op.strides):
        return []
    outputs_of, channels, taps = (
        in_group(y.shape[1], op.groups),
        out.shape[1],
        size_of(op.output_sizes),
    )
    # How far channels and taps are apart in the result.
    along, apart = (1, channels) if is_by_pixel(node) else (taps, 1)
    if not is_transposed:
        dims = spatial_dims(op, x.shape[2:], x.strides[2:], y.shape[2:], op.output_sizes)
        rows, sees = outputs_of, channels
        gaps: tuple[DimLike, ...] = (0, rows * sees * taps, sees * taps, apart, along)
        wide, kept = x, y
    else:
        # The same relation read from the other side: positions are those of x, windows see y, and
        # the window is reversed.
        facts = zip(
            *(y.shape[2:], y.strides[2:], x.shape[2:], op.output_sizes),
            *(op.input_dilations, op.dilations, op.before_reversed(op.output_sizes)),
            strict=True,
        )
        dims = [GpuSpatialDim(*fact) for fact in facts]
        rows, sees = channels, outputs_of
        gaps = ((taps - 1) * apart, rows * sees * taps, along, -apart, rows * taps)
        wide, kept = y, x
    steps: list[Step] = []
    kept = _with_rows(kept, node, steps)
    columns, depth = sees * taps, kept.shape[0] * size_of(kept.shape[2:])
    if is_depthwise(op, y.shape[1], channels) and not (is_transposed and outputs_of != 1):
        pieces = pieces_of(op.groups * outputs_of, depth)
        code = depthwise_weight_code(found, len(dims))
        numbers: tuple[DimLike, ...] = (op.groups * rows * sees, rows)
    else:
        pieces = pieces_for(found, rows, columns, op.groups, depth)
        code = weight_code(found, len(dims))
        numbers = (op.groups, rows, sees)
    partials = Temp(found.sums, pieces * size_of(out.shape), "partial sums")
    step = Step(
        nodes=(node,),
        code=code,
        operands=(wide.storage, kept.storage, partials),
        written=(False, False, True),
        params=(
            *(kept.shape[0], *numbers),
            *(wide.offset, *wide.strides[:2]),
            *(kept.offset, *kept.strides[:2]),
            pieces,
            *dim_arguments(dims),
        ),
        work_items=1,
    )
    sizes = (op.groups, rows, taps, sees)
    total = added(node, found, partials, out.storage, pieces, sizes, gaps[1:], gaps[0])
    return [*steps, step, total]


def _with_rows(view: View, node: Node, steps: list[Step]) -> View:
    """Return a view whose positions are contiguous, copied first if they don't."""
    if view.strides[2:] == contiguous(view.shape[2:]) or size_of(view.shape[2:]) == 1:
        return view
    step, temp = copied(view, (node,), "an operand of a convolution", CudaCode)
    steps.append(step)
    return View(temp, 0, view.shape, contiguous(view.shape))
