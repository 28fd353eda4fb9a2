"""`pool_steps`: the steps of the sums and maxima of what windows see."""

from __future__ import annotations

from collections.abc import Sequence

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.windows import Windowed
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.numpy_executor.codegen import host
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim, numbers
from graphfw.runtime.numpy_executor.convolution.sliding import (
    Kind,
    SlideCell,
    rows_together,
    written_width,
)
from graphfw.runtime.numpy_executor.matmul.code import MatmulCode
from graphfw.runtime.numpy_executor.matmul.lowering import supported
from graphfw.runtime.numpy_executor.matmul.tile import shape_for

_KINDS: dict[str, Kind] = {"window_max": "maxima", "window_sum": "sums"}


def pool_steps(node: Node, inputs: Sequence[View], outputs: Sequence[View]) -> list[Step]:
    """Return the step of a `window_max` or a `window_sum`; none where that is not native.

    Floats are, whose leading dims lie in memory as one or two.
    """
    op, (x,), (result,) = node.op, inputs, outputs
    assert isinstance(op, Windowed)
    rank = len(op.window)
    lead = _lead(x, len(x.shape) - rank)
    if not supported(x.storage.dtype) or len(lead) > 2:
        return []
    (images, image_gap), (planes, plane_gap) = [(1, 0)] * (2 - len(lead)) + lead
    spatial = x.shape[len(x.shape) - rank :]
    facts = zip(
        *(spatial, x.strides[len(x.shape) - rank :], op.places(spatial), op.window),
        *(op.strides, op.dilations, [0] * rank),
        strict=True,
    )
    dims = [SpatialDim(*fact) for fact in facts]
    rows = size_of([dim.places for dim in dims[:-1]])
    taps = size_of(op.window)
    assert isinstance(taps, int)
    together = rows_together(dims[-1].places, taps)
    params = (
        *(images * planes, rows, together, planes, 1),
        *(x.offset, image_gap, plane_gap, 0, 0),
        *numbers(dims),
        *[0] * rank,
    )
    shape = shape_for(x.storage.dtype, host())
    cell = SlideCell(shape, rank, dims[-1].step, _KINDS[op.name], written_width(dims[-1].kernel))
    code = MatmulCode(cell, host(), (1,), False, (1,), True, None)
    cells = (images * planes * rows + together - 1) // together
    return [Step((node,), code, (x.storage, result.storage), (False, True), params, cells)]


def _lead(x: View, count: int) -> list[tuple[DimLike, DimLike]]:
    """Return the extents and strides of the leading dims, those that lie as one joined."""
    found: list[tuple[DimLike, DimLike]] = []
    for extent, stride in zip(x.shape[:count], x.strides[:count], strict=True):
        if extent == 1:
            continue
        if found and found[-1][1] == stride * extent:
            found[-1] = (found[-1][0] * extent, stride)
        else:
            found.append((extent, stride))
    return found
