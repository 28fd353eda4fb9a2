"""`amx_strategies`: convolutions by products of matrix tiles, see `amx`."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

from graphfw.ir.dim import DimLike, dim_min, static
from graphfw.ir.dtype import float32, int64
from graphfw.runtime.kernels.steps import Epilogue, Step, Storage, Temp
from graphfw.runtime.numpy_executor.choice import CLOCK, Strategy
from graphfw.runtime.numpy_executor.codegen import with_stores
from graphfw.runtime.numpy_executor.convolution.amx import GAP, HEIGHT, PANEL, AmxConvCode
from graphfw.runtime.numpy_executor.convolution.amx_image import (
    SLACK,
    ImageComponentsCode,
    Words,
)
from graphfw.runtime.numpy_executor.convolution.amx_weights import HEAD, ROWS, WeightComponentsCode
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim, joined, numbers
from graphfw.runtime.numpy_executor.convolution.lowering import Convolution
from graphfw.runtime.numpy_executor.matmul.amx import SIDE, TILE, Tiles
from graphfw.runtime.numpy_executor.matmul.code import MatmulCode, operands_of
from graphfw.runtime.numpy_executor.matmul.plan import Costs, cut, vectors

_LONGEST = 1024
"""Rows of more positions are not computed at a time: the caches don't hold them."""

_MOST = 1 << 17
"""The longest sums, see `amx_image.END`."""

_WORDS, _LEAST = 1 << 15, 256
"""About so many words of a component are read for the rows of a step, so that the caches
hold them; and so many columns are computed at least."""

_LARGEST = 1 << 28
"""The most bytes that the components of all images may take."""

_DOT = 22
"""The cycles of a product of two tiles with its loads; the instruction takes 16."""

_SPLIT, _RESULT, _WEIGHT = 0.6, 0.6, 4
"""The cycles for a word of a component, for an element of the result, and of the weights where a
run splits these."""

_STEP = 8000
"""The cycles for a step more."""

_FROM_MEMORY = 13
"""The bytes of weights that arrive in a cycle, where they come from memory."""


def amx_strategies(
    it: Convolution,
    tiles: Tiles,
    product: Storage | None,
    epilogue: Epilogue | None,
    fixed: bool,
) -> list[Strategy]:
    """Return the strategy, if it serves: panels are as wide as tiles, spatial sizes are known."""
    if not _suits(it):
        return []
    nbytes = 4 * Words.of(it.dims, _channels(it)).size(tiles) * it.members
    if isinstance(nbytes, int) and nbytes > _LARGEST:
        return []
    make = partial(_steps, it, tiles, product, epilogue, fixed)
    return [Strategy("amx", _seconds(it, tiles, fixed=fixed), make)]


def _suits(it: Convolution) -> bool:
    sizes = [(dim.size, dim.output_size, dim.before, dim.dilation) for dim in it.dims]
    if not all([isinstance(number, int) for some in sizes for number in some]):
        return False
    width, k = static(it.dims[-1].output_size), static(it.weight.shape[1] * it.taps)
    readable = it.dims[-1].step or not it.shape.converts
    is_wide = it.shape.dtype is float32 and it.shape.columns == SIDE
    return is_wide and readable and width <= _LONGEST and k <= _MOST


def _channels(it: Convolution) -> int:
    return static(it.weight.shape[1])


def _rows(it: Convolution) -> int:
    """Return the number of an image's rows of positions."""
    return static(
        math.prod([dim.output_size for dim in it.dims[:-1] if isinstance(dim.output_size, int)])
    )


def _columns(it: Convolution, words: Words, rows: int) -> int:
    """Return the most words from the first to the last of some rows."""
    extents = [extent.size for extent in words.extents]
    positions = [dim.output_size for dim in it.dims if isinstance(dim.output_size, int)]
    total = (rows - 1) * extents[-1] + positions[-1]
    inner, pitch = 1, extents[-1]
    for extent, size in zip(extents[-2:0:-1], positions[-2:0:-1], strict=True):
        # The words between the last row of a group and the first of the next.
        inner *= size
        total += -(-(rows - 1) // max(inner, 1)) * (extent - size) * pitch
        pitch *= extent
    return total


def _together(it: Convolution, words: Words) -> int:
    """Return the number of rows that are computed at a time."""
    columns = max(_WORDS // max(words.pairs, 1), _LEAST)
    return max(min(columns // max(words.extents[-1].size, 1), _rows(it)), 1)


def _seconds(it: Convolution, tiles: Tiles, *, fixed: bool) -> float:
    """Return the time of the steps on one core."""
    m, n, k = it.assumed
    words, images = Words.of(it.dims, _channels(it)), n / max(math.prod(_output_positions(it)), 1)
    # The estimate assumes that all chunks have as many rows.
    times = -(-_rows(it) // _together(it, words))
    columns = _columns(it, words, -(-_rows(it) // max(times, 1)))
    squares = images * times * -(-columns // SIDE) * -(-m // SIDE)
    cycles = 4 * len(tiles.pairs) * _DOT * squares * it.taps * -(-_channels(it) // SIDE)
    cycles += _SPLIT * images * words.size(tiles) + _STEP
    cycles += _RESULT * m * n
    if not fixed:
        cycles += _WEIGHT * m * k
    elif not it.is_near:
        cycles += _weight_bytes(it, tiles) / it.groups / _FROM_MEMORY
    return cycles * it.groups / CLOCK


def _output_positions(it: Convolution) -> list[int]:
    return [dim.output_size for dim in it.dims if isinstance(dim.output_size, int)]


def _steps(
    it: Convolution,
    tiles: Tiles,
    product: Storage | None,
    epilogue: Epilogue | None,
    fixed: bool,
) -> list[Step]:
    shape, x, weight, rank = it.shape, it.x, it.weight, len(it.dims)
    m, n, channels = it.outputs, it.output_size, _channels(it)
    words = Words.of(it.dims, channels)
    rows, together = _rows(it), _together(it, words)
    columns = -(-_columns(it, words, together) // SIDE) * SIDE
    how = cut(
        shape, Costs(speed=2, a=0, b=1), (m, n, channels * it.taps), it.members, may_split=False
    )
    output_cuts = dim_min(how.row_blocks, max(-(-m // SIDE), 1))
    row_cuts = dim_min(how.column_blocks, max(rows, 1))
    channel, *dims = zip(weight.shape[1:], weight.strides[1:], strict=True)
    lie = (
        *(weight.offset, weight.strides[0], channel[1], channels),
        *[number for pair in dims for number in pair],
    )
    cuts = output_cuts, row_cuts, how.group, it.members, columns, n
    params: tuple[DimLike, ...] = (
        *_numbers(it, it.dims, cuts),
        *words.numbers(columns, together),
        *lie,
    )
    seen, flags, split = _image(it, tiles, words)
    blocks, steps = _blocks(it, tiles, lie, fixed)
    operands = operands_of([x.storage, blocks, weight.storage, seen, flags], product, epilogue)
    length = it.taps * -(-channels // SIDE)
    scratch = PANEL + ROWS + -(-length // 8) * 64 + SIDE * (4 * columns + GAP)
    if epilogue is not None:
        params += epilogue.params_with(
            n if product is not None else together * _output_positions(it)[-1]
        )
        scratch += SIDE * together * _output_positions(it)[-1] * shape.size
    code = MatmulCode(
        AmxConvCode(shape, rank, it.dims[-1].step, tiles),
        with_stores(it.target, it.members * m * n),
        (HEIGHT,),
        True,
        vectors(shape, n),
        product is not None,
        operands.region,
    )
    work_items = (it.members + how.group - 1) // how.group * output_cuts * row_cuts
    if 0 in (m, n):
        work_items = 0
    return [split, *steps, operands.step(it.nodes, code, params, work_items, scratch)]


def _numbers(
    it: Convolution, dims: list[SpatialDim], cuts: tuple[DimLike, ...] = (0,) * 6
) -> tuple[DimLike, ...]:
    """Return the integers of `windows.ConvParams`, with the cut into work items, and of dims."""
    x, channels = it.x, _channels(it)
    return (
        *(it.outputs, it.output_size, channels * it.taps, it.groups, channels),
        *(x.offset, x.strides[0], channels * x.strides[1], x.strides[1]),
        *cuts,
        *numbers(dims),
    )


def _image(it: Convolution, tiles: Tiles, words: Words) -> tuple[Storage, Storage, Step]:
    """Return the components of the images, flags of whether they could be split, and the steps."""
    seen = Temp(float32, it.members * words.size(tiles) + SLACK, "components of images")
    work_items = it.members * (words.pairs // words.together)
    flags = Temp(int64, work_items, "whether images could be split")
    # Dims are joined as far as possible, since rows are read in whole vectors.
    dims = joined(it.dims)
    code = ImageComponentsCode(it.shape, len(dims), tiles, dims[-1].step)
    params = (*_numbers(it, dims), *Words.of(dims, _channels(it)).numbers(0, 0))
    operands, written = (it.x.storage, seen, flags), (False, True, True)
    return seen, flags, Step(it.nodes, code, operands, written, params, work_items)


def _weight_bytes(it: Convolution, tiles: Tiles) -> int:
    """Return the bytes of the components of the weights."""
    length = it.taps * -(-_channels(it) // SIDE)
    return it.groups * -(-it.outputs // SIDE) * (HEAD + length * 2 * TILE * tiles.components)


def _blocks(
    it: Convolution, tiles: Tiles, lie: tuple[DimLike, ...], fixed: bool
) -> tuple[Storage, list[Step]]:
    """Return the components of the weights, and the steps if they change from run to run."""
    memory = Temp(float32, _weight_bytes(it, tiles) // 4, "components of weights")
    step = Step(
        it.nodes,
        WeightComponentsCode(it.shape, len(it.dims), tiles),
        (it.weight.storage, memory),
        (False, True),
        (it.outputs, it.taps, *lie),
        it.groups * -(-it.outputs // SIDE),
        ROWS,
    )
    if fixed:
        return memory, [replace(step, prepacks=True)]
    # Not before x: made earlier, they would fill memory until they are needed.
    return memory, [replace(step, after=(it.x.storage,))]
