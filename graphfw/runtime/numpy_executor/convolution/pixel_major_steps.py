"""`pixel_major_strategies`: convolutions whose rows are positions, see `pixel_major`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from graphfw.ir.dim import DimLike, dim_max, dim_min, static
from graphfw.ir.shape import size_of
from graphfw.runtime.kernels.steps import Epilogue, Step, Storage, Temp, View
from graphfw.runtime.numpy_executor.choice import CLOCK, Strategy
from graphfw.runtime.numpy_executor.codegen import with_stores
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim, joined
from graphfw.runtime.numpy_executor.convolution.lowering import (
    Convolution,
    copied,
    weights_as_tiles,
)
from graphfw.runtime.numpy_executor.convolution.pixel_major import PixelMajorCode
from graphfw.runtime.numpy_executor.convolution.pixel_major_pools import PixelMajorPoolCode
from graphfw.runtime.numpy_executor.matmul.code import MatmulCode, operands_of
from graphfw.runtime.numpy_executor.matmul.plan import Costs, cut, heights_for, vectors
from graphfw.runtime.numpy_executor.matmul.tile import TileShape

_TOGETHER = 256
"""About the number of positions that are computed before they are transposed: L1 holds them."""

_LONGEST = 4 * _TOGETHER
"""Rows of more positions are not computed at a time: the caches don't hold them."""

_TILE, _LEAST = 0.3, 3.5
"""The time of a tile besides its rows, in rows, and the least time of a tile."""

_NARROW = 0.65
"""The time of a panel of which one vector is used, as a fraction of that of a whole one."""

_RESULT, _COPY, _WEIGHT = 0.8, 0.2, 2.5
"""The cycles for an element of the result, of what is copied, and of weights that each run lays
out."""

_NEAR = 5 << 18
"""The bytes that an L2 cache holds beside others."""

_FAR_COPY, _AGAIN = 1.0, 48
"""The cycles for an element of a copy beyond the L2 cache, where rows are read one by one; and the
bytes of weights that arrive in a cycle, if each chunk of positions reads them again."""

_STEP = 8000
"""The cycles for a step more."""

_MAXIMUM = 0.15
"""The cycles for each element that is compared."""

_STRIP = 8
"""The rows of window positions of a work item. Rows at its border are computed once more."""

_WORK_ITEMS = 16
"""There may be fewer in each, so that there are as many work items."""


def pixel_major_strategies(
    it: Convolution, product: Storage | None, epilogue: Epilogue | None, fixed: bool
) -> list[Strategy]:
    """Return the strategy, if it serves."""
    if not can_be_pixel_major(it):
        return []
    seconds = _seconds(it, fixed=fixed)
    return [
        Strategy("pixel-major", seconds, partial(pixel_major_steps, it, product, epilogue, fixed))
    ]


def can_be_pixel_major(it: Convolution) -> bool:
    """Return whether the strategy serves: the dtype is computed in, spatial sizes are known."""
    sizes = [(dim.size, dim.output_size, dim.before, dim.dilation) for dim in it.dims]
    known = all([isinstance(number, int) for numbers in sizes for number in numbers])
    return not it.shape.converts and known and _width(it.dims) <= _LONGEST


def pooled_seconds(it: Convolution, windows: Sequence[SpatialDim], *, fixed: bool) -> float:
    """Return the time of the steps of `pooled_steps` on one core."""
    m, n, _ = it.assumed
    seen = math.prod([dim.taps for dim in windows])
    positions, again = _pooled_positions(windows), (windows[0].taps - windows[0].stride) / _STRIP
    cycles = n * m * (_RESULT * positions + _MAXIMUM * seen * positions)
    times = 1 + max(again, 0) / windows[0].stride
    return times * (_seconds(it, fixed=fixed) - _RESULT * m * n / CLOCK) + cycles / CLOCK


def _pooled_positions(windows: Sequence[SpatialDim]) -> float:
    """Return the number of pooled positions for each position of the convolution."""
    positions = static(size_of([dim.output_size for dim in windows]))
    return positions / max(static(size_of([dim.size for dim in windows])), 1)


def _seconds(it: Convolution, *, fixed: bool) -> float:
    """Return the time of the steps on one core."""
    (m, n, k), shape = it.assumed, it.shape
    whole, rest = divmod(m, shape.columns)
    panels = whole + (0 if not rest else _NARROW if rest <= shape.lanes else 1)
    cycles = n * _slack(shape, _seen(it)) * panels * k + _RESULT * m * n
    if _is_copied(it):
        copied = n * k / it.taps * math.prod([dim.stride for dim in it.dims])
        is_near = copied * it.groups * shape.size <= _NEAR
        cycles += (_COPY if is_near else _FAR_COPY) * copied + _STEP
    if m * k * shape.size > _NEAR:
        cycles += (_chunks(it, n) - 1) * m * k * shape.size / _AGAIN
    if not fixed:
        cycles += _WEIGHT * m * k
    return cycles * it.groups / CLOCK


def _chunks(it: Convolution, indices: int) -> int:
    """Return the number of chunks of some positions of all images."""
    dims = _seen(it)
    rows, width = static(size_of([dim.output_size for dim in dims[:-1]])), _width(dims)
    images = indices // max(rows * width, 1)
    return images * -(-rows // max(_TOGETHER // max(width, 1), 1))


def _seen(it: Convolution, *, is_apart: bool = False) -> list[SpatialDim]:
    """Return the dims of the left operand: of x, or of a copy of the elements that windows see.

    They are joined if that makes better tiles and they need not be separate. Else work items may
    have some of the rows.
    """
    dims = it.dims
    if _is_copied(it):
        dims = []
        gap: DimLike = 1
        for dim in reversed(it.dims):
            size = _extent(dim) if dim.taps != 1 else dim.output_size
            stride = dim.stride if dim.taps != 1 else 1
            dims.insert(0, dim._replace(size=size, in_memory=gap, stride=stride, before=0))
            gap = gap * size
    if is_apart:
        return dims
    whole = joined(dims)
    is_better = _slack(it.shape, whole) < 0.97 * _slack(it.shape, dims)
    return whole if is_better and _width(whole) <= _TOGETHER else dims


def _slack(shape: TileShape, dims: list[SpatialDim]) -> float:
    """Return the time per position of rows cut into tiles, relative to that in a large tile."""
    width = _width(dims)
    height = heights_for(shape, width)[0]
    tiles, rest = divmod(width, height)
    rows = tiles * (max(height, _LEAST) + _TILE) + (max(rest, _LEAST) + _TILE if rest else 0)
    return rows / max(width, 1)


def _width(dims: Sequence[SpatialDim]) -> int:
    return static(dims[-1].output_size)


def _is_copied(it: Convolution) -> bool:
    """Return whether x is copied: windows see zeros beyond it, or a copy has longer rows."""
    is_apart = it.taps == 1 and any([dim.stride != 1 for dim in it.dims])
    is_short = _width(it.dims) < it.shape.rows
    return (is_apart and is_short) or not all(map(_is_inside, it.dims))


def _is_inside(dim: SpatialDim) -> bool:
    return dim.before == 0 and _extent(dim) <= dim.size


def _extent(dim: SpatialDim) -> DimLike:
    """Return the number of elements that all windows together see."""
    return dim_max((dim.output_size - 1) * dim.stride + (dim.taps - 1) * dim.dilation + 1, 0)


def _copied(it: Convolution) -> tuple[View, Step]:
    """Return a copy of the elements that windows see, padded with 0, and the step that makes it."""
    ways = [
        dim._replace(output_size=_extent(dim), taps=1, stride=1, dilation=1)
        if dim.taps != 1
        else dim
        for dim in it.dims
    ]
    images, channels = it.x.shape[:2]
    plane = size_of([dim.output_size for dim in ways])
    memory = Temp(it.shape.stored, images * channels * plane, "what windows see")
    step = copied(it._replace(dims=ways), memory)
    return View(memory, 0, (images, channels, plane), (channels * plane, plane, 1)), step


def _cut(it: Convolution, positions: DimLike, k: int) -> tuple[DimLike, DimLike]:
    """Return the numbers of blocks of outputs and of rows of positions."""
    shape, m = it.shape, it.outputs
    if it.is_whole:
        assert isinstance(positions, int)
        # Work items have all positions of one image, planned as one tile of as much work.
        sizes = shape.rows, m, k * -(-positions // shape.rows)
        how = cut(shape, Costs(1, 1, 1), sizes, it.members, may_split=False)
        return how.column_blocks, it.images
    how = cut(shape, Costs(1, 1, 1), (it.images * positions, m, k), it.groups, may_split=False)
    return how.column_blocks, how.row_blocks


def pixel_major_steps(
    it: Convolution,
    product: Storage | None,
    epilogue: Epilogue | None,
    fixed: bool,
    windows: Sequence[SpatialDim] = (),
    added: Storage | None = None,
) -> list[Step]:
    """Return the steps.

    Args:
        it: The convolution.
        product: The storage of the result; None where only the epilogue needs it.
        epilogue: The function of its elements.
        fixed: Whether the weights stay the same.
        windows: The two dims of a max pooling of the convolution, if there is one. Its windows are
            not dilated, and each sees an element.
        added: The numbers that are added to each output, if the pooling is a sum of ReLUs instead.
    """
    steps: list[Step] = []
    x, dims, shape = it.x, _seen(it, is_apart=bool(windows)), it.shape
    if _is_copied(it):
        x, step = _copied(it)
        steps.append(step)
    channels = static(it.weight.shape[1])
    m, k = it.outputs, channels * it.taps
    width, rows = _width(dims), size_of([dim.output_size for dim in dims[:-1]])
    panels = -(-m // shape.columns)
    outputs, row_blocks = _cut(it, rows * width, k)
    row_blocks = dim_min(row_blocks, it.images * rows)
    tiles, made = weights_as_tiles(it, shape.columns, panels, fixed, by_channel=True)
    seen = windows or dims
    together = max(_TOGETHER // max(_width(seen), 1), 1)
    if it.is_whole:
        assert isinstance(rows, int)
        together = max(rows, 1)
    work_item, line = PixelMajorCode(shape, len(dims)), shape.columns * shape.size
    scratch = -(-k // 8) * 64
    if windows:
        down, along = windows
        together = max(together // down.stride, 1)
        outputs = panels
        strips = dim_max(
            it.images * down.output_size // _STRIP, -(-_WORK_ITEMS // (panels * it.groups))
        )
        row_blocks = dim_min(dim_min(row_blocks, strips), it.images * down.output_size)
        is_sum = added is not None
        work_item = PixelMajorPoolCode(shape, len(dims), (down.taps, along.taps), is_sum)
        scratch += ((together - 1) * down.stride + down.taps) * width * line
    params: tuple[DimLike, ...] = (
        *(m, k, it.groups, channels, it.images, rows, width),
        *(x.offset, x.strides[0], channels * x.strides[1], x.strides[1]),
        *(row_blocks, outputs, together),
    )
    for dim in dims:
        params += (
            dim.output_size,
            dim.taps,
            dim.stride * dim.in_memory,
            dim.dilation * dim.in_memory,
        )
    for dim in windows:
        params += (dim.output_size, dim.stride, dim.before)
    inputs = [x.storage, tiles, *([] if added is None else [added])]
    operands = operands_of(inputs, product, epilogue)
    positions, all_positions = together * _width(seen), size_of([dim.output_size for dim in seen])
    scratch += -(-positions // shape.lanes) * shape.lanes * line
    if epilogue is not None:
        params += epilogue.params_with(all_positions if product is not None else positions)
        scratch += positions * line
    code = MatmulCode(
        work_item,
        with_stores(it.target, it.members * m * all_positions),
        heights_for(shape, width),
        False,
        vectors(shape, m),
        product is not None,
        operands.region,
    )
    work_items = it.groups * row_blocks * outputs
    if 0 in (m, all_positions):
        work_items = 0
    return [*steps, *made, operands.step(it.nodes, code, params, work_items, scratch)]
