"""The cut of a convolution by Winograd's algorithms, and an estimate of its time.

It depends on sizes only, never on the number of threads.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import Algorithm
from graphfw.runtime.numpy_executor.matmul.plan import heights_for
from graphfw.runtime.numpy_executor.matmul.tile import TileShape

_TILES = 14, 112
"""The least and the most tiles of a block: smaller blocks read weights too often."""

_SCRATCH = 16 << 20
"""The most bytes of the transformed tiles of a block."""

_CHUNK = 2
"""The number of panels that are done at a time: their products stay in the L2 cache."""

_AHEAD = 8 << 20
"""The most bytes of tiles that are transformed before they are needed: caches hold them."""

_STRIP, _IMAGES, _RESULTS = 9, 1.5, 2.2
"""The cycles that laying out a vector of an image takes, and transforming a tile's vector of the
image or of the result, for each of its products."""

_SEGMENT = 10
"""The cycles for a contiguous range: a channel's, or a row's where blocks have incomplete rows."""

_WEIGHTS = 50
"""The cycles for transforming one channel of a panel of outputs, for each product."""

_ASSUMED_POSITIONS = 2
"""A micro-kernel takes as long as for so many more positions: for its beginning and its end."""

_FROM_MEMORY, _FROM_CACHE = 13, 64
"""The bytes of weights that arrive in a cycle: the first time, where they come from memory; and
again."""

_LARGE, _TO_MEMORY = 8 << 20, 4
"""Results of so many bytes leave the caches again, in pieces of a few positions: so many bytes in a
cycle."""

_WORK_ITEM, _STEP = 1000, 5000
"""The cycles for claiming a work item, and for waiting for the end of a step."""


class WinogradSizes(NamedTuple):
    """The sizes of the work: groups of channels and of outputs, tiles of each image.

    With `is_whole` no image is cut.
    """

    images: int
    channels: int
    outputs: int
    down: int
    across: int
    is_whole: bool = False


class WinogradPlan(NamedTuple):
    """The cut of a convolution.

    Attributes:
        images: The number of images of a block; several images are whole ones.
        down: The number of rows of tiles of a block.
        across: The number of columns of tiles of a block.
        output_blocks: The number of blocks of outputs.
        chunk: The number of panels of outputs that are done at a time.
        is_ahead: Whether tiles of images are transformed by a step of their own.
        heights: The rows of the micro-kernels, the largest first; they make up those of a block.
        cycles: About the time on one core, if caches hold the weights.
    """

    images: int
    down: int
    across: int
    output_blocks: int
    chunk: int
    is_ahead: bool
    heights: tuple[int, ...]
    cycles: float

    @property
    def tiles(self) -> int:
        """The tiles of a block."""
        return self.images * self.down * self.across


@functools.lru_cache(maxsize=256)
def plan(shape: TileShape, algorithm: Algorithm, sizes: WinogradSizes) -> WinogradPlan:
    """Return the cut with which 2, 4 or 8 threads should finish soonest."""
    best, least = None, math.inf
    panels = -(-sizes.outputs // shape.columns)
    counts = [n for n in (1, 2, 4, 8, 16) if n <= max(panels, 1)]
    most = _SCRATCH // (algorithm.products * sizes.channels * shape.size)
    for block in _blocks(sizes, most):
        tiles = math.prod(block)
        heights = heights_for(shape, tiles)
        for output_blocks, is_ahead in itertools.product(counts, (False, True)):
            chunk = min(_CHUNK, -(-panels // output_blocks))
            how = WinogradPlan(*block, output_blocks, chunk, is_ahead, heights, 0)
            time, cycles = _time(shape, algorithm, sizes, how)
            if time < least:
                best, least = how._replace(cycles=cycles), time
    assert best is not None
    return best


def _blocks(sizes: WinogradSizes, most: int) -> Iterator[tuple[int, int, int]]:
    """Yield images, rows and columns of tiles of possible blocks, of about `most` tiles at most."""
    low, high = _TILES
    high = max(min(high, most), low)
    of_image = sizes.down * sizes.across
    if of_image == 0 or sizes.images == 0:
        yield 1, 1, 1
        return
    if sizes.images > 1 and 2 * of_image <= high:
        for images in _pieces(sizes.images):
            if min(low, sizes.images * of_image) <= images * of_image <= high:
                yield images, sizes.down, sizes.across
    if sizes.is_whole:
        yield 1, sizes.down, sizes.across
        return
    for across, down in itertools.product(_pieces(sizes.across), _pieces(sizes.down)):
        if min(low, of_image) <= across * down <= high:
            yield 1, down, across


def _pieces(units: int) -> Iterator[int]:
    """Return lengths of pieces to cut units into, each about 2/3 or 3/4 of the one before."""
    last, count = 0, 1
    while last != 1 and units > 0:
        length = -(-units // count)
        if length != last:
            yield length
        last = length
        # 1, 2, 3, 4, 6, 8, 12, 16, ...
        count += max(count // 2, 1) if count & (count - 1) == 0 else count // 3


def _time(
    shape: TileShape, algorithm: Algorithm, sizes: WinogradSizes, how: WinogradPlan
) -> tuple[float, float]:
    """Return the sum of the times of 2, 4 and 8 threads, and the time of one core."""
    n, m, lanes = algorithm.products, algorithm.positions, shape.lanes
    blocks = 1
    for total, each in zip((sizes.images, sizes.down, sizes.across), how[:3], strict=True):
        blocks *= -(-total // each)
    panels = -(-sizes.outputs // shape.columns)
    chunks = -(-panels // how.chunk)
    mine = min(-(-chunks // how.output_blocks) * how.chunk, panels)
    groups = -(-sizes.channels // lanes)
    segments = how.images * lanes
    if how.across < sizes.across:
        segments *= how.down * m
    strip = how.images * (how.down * m + 2) * (how.across * m + 2)
    images = (strip * _STRIP + n * _IMAGES * how.tiles + segments * _SEGMENT) * groups
    # Half a panel is enough for few outputs.
    used = -(-sizes.outputs // lanes) / 2 / panels
    products = n * how.tiles * mine * used * (sizes.channels + _ASSUMED_POSITIONS)
    weights = n * mine * sizes.channels * shape.columns * shape.size
    results = (n * _RESULTS * how.tiles + segments * _SEGMENT) * 2 * mine
    work_item = products + weights / _FROM_CACHE + results + _WORK_ITEM
    work_items, ahead, ahead_work_items, waiting = blocks * how.output_blocks, 0.0, 0, 0
    if how.is_ahead:
        seen = n * how.tiles * sizes.channels * shape.size
        if seen * blocks > _AHEAD:
            return math.inf, math.inf
        work_item += 2 * seen / _FROM_CACHE / how.output_blocks
        ahead, ahead_work_items, waiting = images / groups + _WORK_ITEM, blocks * groups, _STEP
    else:
        work_item += images
    time = 0.0
    for threads in (2, 4, 8):
        rounds = -(-work_items // threads) * work_item + -(-ahead_work_items // threads) * ahead
        time += threads * (rounds + waiting)
    written = sizes.images * sizes.outputs * sizes.down * sizes.across * m * m * shape.size
    leaving = written / _TO_MEMORY if written > _LARGE else 0
    # A single work item leaves all cores but one idle: it counts as two.
    whole = 2 * (-(-work_items // 2) * work_item + -(-ahead_work_items // 2) * ahead)
    return time, whole + waiting + leaving


def memory_cycles(shape: TileShape, algorithm: Algorithm, sizes: WinogradSizes) -> float:
    """Return the further time on one core if no cache holds the weights."""
    panels = -(-sizes.outputs // shape.columns)
    nbytes = algorithm.products * panels * sizes.channels * shape.columns * shape.size
    return nbytes * (1 / _FROM_MEMORY - 1 / _FROM_CACHE)


def weight_cycles(shape: TileShape, algorithm: Algorithm, sizes: WinogradSizes) -> float:
    """Return the time of transforming the weights on one core."""
    panels = -(-sizes.outputs // shape.columns)
    return panels * sizes.channels * algorithm.products * _WEIGHTS
