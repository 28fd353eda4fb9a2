"""Convolutions whose results are pooled: what is computed first, and what in one step.

`pooled_steps`: windows see the largest results, and the image that is pooled never goes to memory.
That serves where laying out and pooling it takes as long as computing it does: after the first
layers of networks, which see few channels. What is reduced over all positions, after the last
ones, is the epilogue of any strategy whose work items have all positions of an output.
"""

from __future__ import annotations

from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.ops.nn.pooling_ops import WindowMax, WindowReluSum, WindowSum
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.steps import Epilogue, Step, Storage, View
from graphfw.runtime.numpy_executor.choice import CLOCK, Strategy, by_estimate
from graphfw.runtime.numpy_executor.codegen import Processor
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim
from graphfw.runtime.numpy_executor.convolution.lowering import Convolution, why_not
from graphfw.runtime.numpy_executor.convolution.pixel_major_steps import (
    can_be_pixel_major,
    pixel_major_steps,
    pooled_seconds,
)
from graphfw.runtime.numpy_executor.convolution.strategies import convolution, strategies_of
from graphfw.runtime.numpy_executor.matmul.amx import Tiles

_SEEN = 16
"""The most elements that a window sees: each of them is code."""

_ASSUMED_POSITIONS = 256
"""The most positions of what is reduced while it is computed: all of them stay in the L1 cache."""

_POOLS = (WindowMax, WindowSum, WindowReluSum)

_POOLING = 0.7
"""The cycles that writing and pooling an element take, in a step of its own."""


def pools_while_computed(
    conv: Node, pool: Node, *, winograd: bool = True, tiles: Tiles | None = None
) -> bool:
    """Whether a convolution is computed with what pools it: it can be, and is faster.

    Args:
        conv: The convolution.
        pool: What pools it: a `window_max`, or a `window_relu_sum`, or a `window_sum` that becomes
            one.
        winograd: Whether it may be computed by Winograd's algorithms otherwise.
        tiles: The matrix tiles that it may be computed by.
    """
    if not may_be_pooled(conv, pool):
        return False
    assert isinstance(conv.op, Conv)
    it = convolution((), conv.op, *map(_as_made, conv.inputs))
    m, n, _ = it.assumed
    apart = _least_seconds(it, winograd, tiles) + _POOLING * m * n * it.groups / CLOCK
    return pooled_seconds(it, _windows(conv, pool), fixed=True) < apart


def may_be_pooled(conv: Node, pool: Node) -> bool:
    """Whether a convolution can be computed with what pools it."""
    op, rule, (x, weight) = conv.op, pool.op, conv.inputs
    if not isinstance(op, Conv) or not isinstance(rule, _POOLS) or why_not(conv):
        return False
    if rule.reaches and not isinstance(rule, WindowMax):
        return False
    sizes = (*x.shape[1:], *conv.types[0].shape[1:], *rule.before)
    is_plane = len(rule.window) == len(op.strides) == 2
    if not is_plane or not all([isinstance(size, int) for size in sizes]):
        return False
    if rule.dilations != (1, 1) or rule.window[0] * rule.window[1] > _SEEN:
        return False
    windows = _windows(conv, pool)
    if not all(map(_sees_something, windows)):
        return False
    it = convolution((), op, _as_made(x), _as_made(weight))
    return not it.is_depthwise and can_be_pixel_major(it)


def reduced_while_computed(
    conv: Node, *, winograd: bool = True, tiles: Tiles | None = None
) -> bool:
    """Whether what reduces a convolution over all positions is computed with it, if it can be.

    Arguments are those of `pools_while_computed`.
    """
    op = conv.op
    if not isinstance(op, Conv) or why_not(conv):
        return False
    x, weight = conv.inputs
    positions = size_of(op.output_sizes)
    is_known = all([isinstance(size, int) for size in (*x.shape[1:], positions)])
    if not is_known or not isinstance(positions, int) or not 0 < positions <= _ASSUMED_POSITIONS:
        return False
    it = convolution((), op, _as_made(x), _as_made(weight))
    m, n, _ = it.assumed
    pooling = _POOLING * m * n * it.groups / CLOCK
    together = _least_seconds(it._replace(is_whole=True), winograd, tiles)
    return not it.is_depthwise and together < _least_seconds(it, winograd, tiles) + pooling


def sums_first(conv: Node, pool: Node) -> bool:
    """Whether a `window_sum` takes less time before a convolution whose weights have one element.

    What is rounded to 16 bits stays where it is: sums may leave the range that these have.
    """
    op, rule, (x, weight) = conv.op, pool.op, conv.inputs
    if not isinstance(op, Conv) or not isinstance(rule, WindowSum) or why_not(conv):
        return False
    sizes = (*x.shape[1:], *pool.types[0].shape[1:])
    if x.dtype.is_low_precision or not all([isinstance(size, int) for size in sizes]):
        return False
    after = convolution((), op, _as_made(x), _as_made(weight))
    summed = pool.types[0].shape[2:]
    fewer = (*x.shape[:2], *summed)
    before = convolution(
        (), Conv(summed, *op.values[1:]), View(x, 0, fewer, contiguous(fewer)), _as_made(weight)
    )
    m, n, k = after.assumed  # windows see one element of each channel
    pooling = _POOLING * n * (k - m) * after.groups / CLOCK
    return _least_seconds(before) + pooling < _least_seconds(after)


def _least_seconds(it: Convolution, winograd: bool = True, tiles: Tiles | None = None) -> float:
    """Return how long the steps of a convolution take on one core, with fixed weights."""
    found = strategies_of(it, None, None, fixed_weight=True, winograd=winograd, tiles=tiles)
    return min([one.seconds for one in found])


def pooled_steps(
    nodes: tuple[Node, ...],
    conv: Node,
    pool: Node,
    x: View,
    weight: View,
    product: Storage | None,
    epilogue: Epilogue | None,
    *,
    fixed_weight: bool = False,
    target: Processor | None = None,
) -> list[Step]:
    """Return the steps of a convolution with what pools it: see `strategies.conv_steps`.

    Args:
        nodes: What is computed, for reports.
        conv: The convolution.
        pool: What pools it; see `pools_while_computed`.
        x: The images.
        weight: The weights.
        product: Where the results go, contiguous; None where only the epilogue needs them.
        epilogue: What is done to them.
        fixed_weight: Whether the weight stays the same from run to run.
        target: The processor; this machine's by default.
    """
    assert isinstance(conv.op, Conv)
    it = convolution(nodes, conv.op, x, weight, fixed_weight=fixed_weight, target=target)
    windows = _windows(conv, pool)
    seconds = pooled_seconds(it, windows, fixed=fixed_weight)

    added = pool.inputs[1] if isinstance(pool.op, WindowReluSum) else None

    def make() -> list[Step]:
        return pixel_major_steps(it, product, epilogue, fixed_weight, windows, added)

    return by_estimate([Strategy("pixel-major and pooled", seconds, make)])


def _windows(conv: Node, pool: Node) -> list[SpatialDim]:
    """Return the dims of what pools a convolution."""
    rule = pool.op
    assert isinstance(rule, _POOLS)
    sizes = conv.types[0].shape[2:]
    strides, positions = contiguous(sizes), rule.output_sizes(sizes)
    facts = zip(
        *(sizes, strides, positions, rule.window, rule.strides, rule.dilations, rule.before),
        strict=True,
    )
    return [SpatialDim(*fact) for fact in facts]


def _sees_something(dim: SpatialDim) -> bool:
    """Whether each window sees an element."""
    first, last = -dim.before, (dim.output_size - 1) * dim.stride - dim.before
    return first + dim.taps > 0 and last < dim.size


def _as_made(tensor: Tensor) -> View:
    return View(tensor, 0, tensor.shape, contiguous(tensor.shape))
