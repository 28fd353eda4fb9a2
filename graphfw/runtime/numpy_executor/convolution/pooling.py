"""`pool_steps`: the steps of sums and maxima over windows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.op import Op
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.nn.pooling_ops import WindowMax, WindowReduction, WindowSum
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.codegen import host
from graphfw.runtime.numpy_executor.convolution import pools
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim, numbers
from graphfw.runtime.numpy_executor.convolution.direct_window import written_width
from graphfw.runtime.numpy_executor.convolution.window_bounds import DenseStride as SpatialStep
from graphfw.runtime.numpy_executor.convolution.window_bounds import is_long
from graphfw.runtime.numpy_executor.matmul.lowering import supported
from graphfw.runtime.numpy_executor.matmul.tile import shape_for

_KINDS: dict[type[Op], pools.Kind] = {WindowMax: "maxima", WindowSum: "sums"}


def pool_steps(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> list[Step]:
    """Return the step of a `window_max` or a `window_sum`; none where that is not native.

    There is native code for floats whose leading dims have one or two strides, if the result's
    planes are dense.
    """
    op, (x,), (result,) = node.op, inputs, outputs
    assert isinstance(op, WindowReduction)
    rank = len(op.window)
    lead = leading(x, result, len(x.shape) - rank)
    positions = op.output_sizes(x.shape[len(x.shape) - rank :])
    is_dense = result.strides[len(x.shape) - rank :] == contiguous(positions)
    if not supported(x.storage.dtype) or len(lead) > 2 or not is_dense:
        return []
    spatial = x.shape[len(x.shape) - rank :]
    facts = zip(
        *(spatial, x.strides[len(x.shape) - rank :], positions, op.window),
        *(op.strides, op.dilations, op.before),
        strict=True,
    )
    dims = [SpatialDim(*fact) for fact in facts]
    (images, *image_gaps), (planes, *gaps) = [(1, 0, 0)] * (2 - len(lead)) + lead
    rows, last = size_of([dim.output_size for dim in dims[:-1]]), dims[-1]
    segments, together = pools.segments_of_row(last), pools.segments_together(dims)
    shape = shape_for(x.storage.dtype, host())
    room, depth = pools.vectors_of_segment(last, shape), pools.deep(rows * segments)
    stride: SpatialStep = 1 if last.stride == 1 else 2 if last.stride == 2 else 0
    params = (
        *(images * planes, rows, segments, together, planes),
        *(x.offset, image_gaps[0], gaps[0], result.offset, image_gaps[1], gaps[1]),
        *(depth, room, *numbers(dims)),
    )
    dense, rows_seen = last.in_memory == 1, op.window[:-1]
    is_written = dense and math.prod(rows_seen) <= pools.MOST_ROWS
    code = pools.PoolCode(
        *(shape, rank, stride, dense, rows_seen if is_written else None),
        *(0 if segments == 1 else pools.SEGMENT, _KINDS[type(op)], written_width(last.taps)),
        is_long(op.window),
        host(),
    )
    work_items = (images * planes * rows * segments + together - 1) // together
    operands, scratch = (x.storage, result.storage), pools.scratch_bytes(depth, room, shape)
    return [Step((node,), code, operands, (False, True), params, work_items, scratch)]


def leading(x: View, y: View, count: int) -> list[tuple[DimLike, DimLike, DimLike]]:
    """Return the leading dims' extents, and strides in x and y, joined as far as possible."""
    found: list[tuple[DimLike, DimLike, DimLike]] = []
    for extent, from_, to in zip(
        x.shape[:count], x.strides[:count], y.strides[:count], strict=True
    ):
        if extent == 1:
            continue
        if found and found[-1][1:] == (from_ * extent, to * extent):
            found[-1] = (found[-1][0] * extent, from_, to)
        else:
            found.append((extent, from_, to))
    return found
