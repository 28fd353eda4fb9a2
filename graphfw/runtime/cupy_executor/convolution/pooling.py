"""The steps of pooling and its gradients: a thread for each element of the result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.ir.dtype import DType
from graphfw.ir.op import Op
from graphfw.ir.tensor import Node
from graphfw.ops.nn.pooling_ops import WindowArgmax, WindowMax, WindowPut, WindowSum, WindowTake
from graphfw.ops.nn.unfold import FoldWindows, Windowed
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.codegen import (
    NOTHING,
    CudaCode,
    HandwrittenCode,
    Launch,
    Variant,
)
from graphfw.runtime.cupy_executor.codegen.types import register
from graphfw.runtime.cupy_executor.convolution.codes import RANK, dims_from, over, text_of
from graphfw.runtime.kernels.handwritten_cuda import memory
from graphfw.runtime.kernels.ir import Buffer
from graphfw.runtime.kernels.steps import Step, View
from graphfw.runtime.kernels.views import is_whole
from graphfw.runtime.limits import Precision
from graphfw.runtime.planning.copies import copied

_TEXT = text_of("windows.cuh", "pooling.cuh")

_JOINS: Mapping[type[Op], str] = {
    WindowMax: "gf_window_join<{0}, gf_largest<{0}> >",
    WindowSum: "gf_window_join<{0}, gf_sum<{0}> >",
    WindowArgmax: "gf_window_number<{0}>",
}

_PADDING = (1, 0, 1, 1, 1, 1, 0)
"""A dim of one element, in front of those that there are."""


def pool_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> list[Step]:
    """Return the steps of a reduction over windows; none if there is no kernel."""
    op, (x,), (out,) = node.op, inputs, outputs
    assert isinstance(op, Windowed)
    if not _is_native(op, x.storage.dtype):
        return []
    steps: list[Step] = []
    where = _where(x, len(op.window), node, steps)
    sizes = where.sizes
    params = (*where.lead, *_dim_arguments(op, sizes, where.gaps, op.output_sizes(sizes)))
    code = _reduce_code(op.name, _JOINS[type(op)], x.storage.dtype, out.storage.dtype)
    step = Step(
        (node,), code, (where.view.storage, out.storage), (False, True), params, work_items=1
    )
    return [*steps, step]


def choice_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> list[Step]:
    """Return the steps of a `window_take` or a `window_put`; nothing where there is no kernel."""
    op, (x, number), (out,) = node.op, inputs, outputs
    assert isinstance(op, WindowTake | WindowPut)
    if not _is_native(op, x.storage.dtype):
        return []
    steps: list[Step] = []
    where, number = _where(x, len(op.window), node, steps), _in_a_row(number, node, steps)
    dtypes, gaps, sizes = (x.storage.dtype, number.storage.dtype), where.gaps, where.sizes
    if isinstance(op, WindowPut):
        code, dims = _put_code(*dtypes), _dim_arguments(op, op.dims, gaps, sizes)
    else:
        code, dims = _take_code(*dtypes), _dim_arguments(op, sizes, gaps, op.output_sizes(sizes))
    params = (*where.lead, *dims)
    operands = (where.view.storage, number.storage, out.storage)
    return [*steps, Step((node,), code, operands, (False, False, True), params, work_items=1)]


def fold_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> list[Step]:
    """Return the steps of a `fold`; nothing where there is no kernel for it."""
    op, (x,), (out,) = node.op, inputs, outputs
    assert isinstance(op, FoldWindows)
    if not _is_native(op, x.storage.dtype):
        return []
    rank, steps = len(op.window), list[Step]()
    where = _where(x, 2 * rank, node, steps)
    output_sizes, missing = where.sizes[rank:], RANK - rank
    spatial = _dim_arguments(op, op.dims, where.gaps[rank:], output_sizes)
    params = (*where.lead, *spatial, *[0] * missing, *where.gaps[:rank])
    operands = (where.view.storage, out.storage)
    code = _fold_code(x.storage.dtype)
    return [*steps, Step((node,), code, operands, (False, True), params, work_items=1)]


def _is_native(op: Windowed, dtype: DType) -> bool:
    return 1 <= len(op.window) <= RANK and not dtype.is_complex


class _Where(NamedTuple):
    """The layout of an image.

    Attributes:
        view: The view of the image.
        lead: The numbers of images and planes, the offset of the first, and their distances.
        sizes: The sizes of the other dims.
        gaps: The distances of their elements.
    """

    view: View
    lead: tuple[DimLike, ...]
    sizes: tuple[DimLike, ...]
    gaps: tuple[DimLike, ...]


def _where(view: View, dims: int, node: Node, steps: list[Step]) -> _Where:
    """Return the layout of a view, copied first if its leading dims can't be joined."""
    first = len(view.shape) - dims
    lead = _joined(view, first)
    if len(lead) > 2:
        view = _copied(view, node, steps)
        lead = _joined(view, first)
    (images, image_gap), (planes, plane_gap) = [(1, 0)] * (2 - len(lead)) + lead
    numbers = (images, planes, view.offset, image_gap, plane_gap)
    return _Where(view, numbers, view.shape[first:], view.strides[first:])


def _joined(view: View, count: int) -> list[tuple[DimLike, DimLike]]:
    """Return the sizes and strides of the first dims, joined as far as possible."""
    found: list[tuple[DimLike, DimLike]] = []
    for extent, stride in zip(view.shape[:count], view.strides[:count], strict=True):
        if extent == 1:
            continue
        if found and found[-1][1] == stride * extent:
            found[-1] = (found[-1][0] * extent, stride)
        else:
            found.append((extent, stride))
    return found


def _in_a_row(view: View, node: Node, steps: list[Step]) -> View:
    return view if is_whole(view) else _copied(view, node, steps)


def _copied(view: View, node: Node, steps: list[Step]) -> View:
    step, temp = copied(view, (node,), "what windows slide over", CudaCode)
    steps.append(step)
    return View(temp, 0, view.shape, contiguous(view.shape))


def _dim_arguments(
    op: Windowed, sizes: Sequence[DimLike], gaps: Sequence[DimLike], output_sizes: Sequence[DimLike]
) -> list[DimLike]:
    """Return the kernels' arguments for dims: see `gf_dim` in windows.cuh."""
    before = [pair[0] for pair in op.pairs]
    facts = zip(sizes, gaps, output_sizes, op.window, op.strides, op.dilations, before, strict=True)
    return [*_PADDING * (RANK - len(op.window)), *[number for fact in facts for number in fact]]


@cache
def _reduce_code(name: str, join: str, dtype: DType, result: DType) -> HandwrittenCode:
    held = register(dtype)
    call = f"{memory(dtype)}, {held}, {join.format(held)}, {memory(result)}"
    buffers = (Buffer(dtype, False), Buffer(result, True))
    return _code(name, f"gf_window_reduce<{call}>", buffers)


@cache
def _take_code(dtype: DType, numbers: DType) -> HandwrittenCode:
    buffers = (Buffer(dtype, False), Buffer(numbers, False), Buffer(dtype, True))
    return _code("window_take", f"gf_window_take<{memory(dtype)}, {memory(numbers)}>", buffers)


@cache
def _put_code(dtype: DType, numbers: DType) -> HandwrittenCode:
    buffers = (Buffer(dtype, False), Buffer(numbers, False), Buffer(dtype, True))
    call = f"gf_window_put<{memory(dtype)}, {register(dtype)}, {memory(numbers)}>"
    return _code("window_put", call, buffers, is_back=True)


@cache
def _fold_code(dtype: DType) -> HandwrittenCode:
    buffers = (Buffer(dtype, False), Buffer(dtype, True))
    call = f"gf_fold<{memory(dtype)}, {register(dtype)}>"
    return _code("fold", call, buffers, more=RANK, is_back=True)


def _code(
    name: str, call: str, buffers: tuple[Buffer, ...], *, more: int = 0, is_back: bool = False
) -> HandwrittenCode:
    """Return the code of a kernel with `more` further run-time integers.

    With `is_back` the result has the elements of the image, not the output positions.
    """

    def launching(params: Sequence[int]) -> Launch:
        images, planes, begin, image_gap, plane_gap = params[:5]
        dims = dims_from(params[5:])
        count = images * planes * math.prod(dims.sizes if is_back else dims.output_sizes)
        if count == 0:
            return NOTHING
        steps = zip(dims.gaps, dims.sizes, dims.output_sizes, dims.taps, strict=True)
        reach = sum([abs(gap) * (max(size, p) + width) for gap, size, p, width in steps])
        taps = params[5 + 7 * RANK : 5 + 7 * RANK + more]
        reach += sum([abs(gap) * width for gap, width in zip(taps, dims.taps, strict=False)])
        apart = begin + images * abs(image_gap) + planes * abs(plane_gap)
        placed = images * planes * math.prod(dims.output_sizes)
        return over(count, "elements", reach + apart, placed)

    variants = (Variant("elements", call, 256),)
    return HandwrittenCode(name, _TEXT, buffers, 5 + 7 * RANK + more, variants, launching)
