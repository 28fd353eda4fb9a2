"""Convolutions whose results are pooled: in one step, or with the pooling first.

`pooled_steps` computes and pools a convolution in one step, so that the image that is pooled never
goes to memory. This serves where storing and pooling it takes as long as computing it: after the
first layers of networks, which see few channels. A reduction over all positions, after the last
layers, is the epilogue of any strategy whose work items have all positions of an output.
"""

from __future__ import annotations

from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node, Tensor
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.ops.nn.pooling_ops import WindowMax, WindowReluSum, WindowSum
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.kernels.steps import Epilogue, Step, Storage, View
from graphfw.runtime.numpy_executor.choice import CLOCK, Strategy, by_estimate
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
"""The most taps of a window: each of them is code."""

_ASSUMED_POSITIONS = 256
"""The most positions of a result that is reduced while computed: they stay in the L1 cache."""

_POOLS = (WindowMax, WindowSum, WindowReluSum)

_POOLING = 0.7
"""The cycles that writing and pooling an element take, in a step of its own."""


def pools_while_computed(
    conv: Node, pool: Node, *, winograd: bool = True, tiles: Tiles | None = None
) -> bool:
    """Return whether a convolution and its pooling are one step: it is possible, and faster.

    Args:
        conv: The convolution.
        pool: The pooling: a `window_max`, a `window_relu_sum`, or a `window_sum` that becomes one.
        winograd: Whether it may be computed by Winograd's algorithms otherwise.
        tiles: The matrix tiles that may compute it.
    """
    if not may_be_pooled(conv, pool):
        return False
    assert isinstance(conv.op, Conv)
    it = convolution((), conv.op, *map(_as_made, conv.inputs))
    m, n, _ = it.assumed
    apart = _least_seconds(it, winograd, tiles) + _POOLING * m * n * it.groups / CLOCK
    return pooled_seconds(it, _windows(conv, pool), fixed=True) < apart


def may_be_pooled(conv: Node, pool: Node) -> bool:
    """Return whether a convolution and its pooling can be one step."""
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
    """Return whether a reduction over all positions is computed with its convolution, if possible.

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
    """Return whether a `window_sum` should come before a convolution with windows of one tap.

    Values that are rounded to 16 bits are not summed first: sums may leave their range.
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
    """Return the time of a convolution's steps on one core, with fixed weights."""
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
    fixed_weight: bool,
) -> list[Step]:
    """Return the steps of a convolution and its pooling: see `strategies.conv_steps`.

    Args:
        nodes: The nodes that are computed, for reports.
        conv: The convolution.
        pool: The pooling; see `pools_while_computed`.
        x: The images.
        weight: The weights.
        product: The storage of the results, contiguous; None where only the epilogue needs them.
        epilogue: The function of the results.
        fixed_weight: Whether the weight stays the same from run to run.
    """
    assert isinstance(conv.op, Conv)
    it = convolution(nodes, conv.op, x, weight, fixed_weight=fixed_weight)
    windows = _windows(conv, pool)
    seconds = pooled_seconds(it, windows, fixed=fixed_weight)

    added = pool.inputs[1] if isinstance(pool.op, WindowReluSum) else None

    def make() -> list[Step]:
        return pixel_major_steps(it, product, epilogue, fixed_weight, windows, added)

    return by_estimate([Strategy("pixel-major and pooled", seconds, make)])


def _windows(conv: Node, pool: Node) -> list[SpatialDim]:
    """Return the dims of a pooling."""
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
    """Return whether each window sees an element."""
    first, last = -dim.before, (dim.output_size - 1) * dim.stride - dim.before
    return first + dim.taps > 0 and last < dim.size


def _as_made(tensor: Tensor) -> View:
    return View(tensor, 0, tensor.shape, contiguous(tensor.shape))
