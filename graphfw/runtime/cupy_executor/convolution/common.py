"""The base of the steps of convolutions and of their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphfw.ir.dim import DimLike
from graphfw.ir.shape import permuted
from graphfw.ir.tensor import Node
from graphfw.ops.nn.channels_last import PixelCorrelation, channels_second
from graphfw.ops.nn.convolution_ops import Correlation
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.convolution.codes import (
    RANK,
    MultiplyInstructions,
    add_code,
    engine,
)
from graphfw.runtime.kernels.steps import Step, Storage, View
from graphfw.runtime.limits import Precision

_MULTIPLE = 4
"""The most outputs for each channel that are computed channel by channel."""

_ENOUGH = 256
"""With so many blocks, sums are not cut into pieces."""

_MOST_PIECES = 64
_PIECE = 256
"""The least length of the sums of a piece."""

_PADDING = (1, 0, 1, 1, 1, 1, 0)
"""A dim of one element, for kernels that take more dims than there are."""


class GpuSpatialDim(NamedTuple):
    """A spatial dim, as kernels take it: see `gf_dim` in windows.cuh."""

    size: DimLike
    gap: DimLike
    output_sizes: DimLike
    taps: DimLike
    stride: int
    dilation: int
    before: DimLike


def engine_of(node: Node, precision: Precision) -> MultiplyInstructions | None:
    """Return the instructions that multiply for a node; None if there are no kernels for it."""
    if not 1 <= len(correlation(node).output_sizes) <= RANK:
        return None
    return engine(node.types[0].dtype, rounds=precision == "high")


def is_by_pixel(node: Node) -> bool:
    """Return whether images are channels-last for a node, and weights likewise."""
    return isinstance(node.op, PixelCorrelation)


def correlation(node: Node) -> Correlation:
    """Return the op of a node for operands whose second dim is the channels."""
    op = node.op
    assert isinstance(op, Correlation)
    return op.by_channel if isinstance(op, PixelCorrelation) else op


def by_channel(node: Node, views: Sequence[View]) -> list[View]:
    """Return views of a node's operands whose second dim is the channels."""
    if not is_by_pixel(node):
        return [*views]
    axes = channels_second(len(node.types[0].shape))
    return [
        view._replace(shape=permuted(view.shape, axes), strides=permuted(view.strides, axes))
        for view in views
    ]


def result_in(node: Node, storage: Storage) -> View:
    """Return such a view of a node's result, in a storage of its own."""
    shape = node.types[0].shape
    return by_channel(node, [View(storage, 0, shape, contiguous(shape))])[0]


def in_group(channels: DimLike, groups: DimLike) -> DimLike:
    """Return the number of channels of a group."""
    return 1 if channels == groups else channels // groups


def is_depthwise(op: Correlation, outputs: DimLike, channels: DimLike) -> bool:
    """Return whether outputs see one channel each, and there are few for each channel."""
    multiple = in_group(outputs, op.groups)
    return channels == 1 and isinstance(multiple, int) and multiple <= _MULTIPLE


def spatial_dims(
    op: Correlation,
    sizes: Sequence[DimLike],
    gaps: Sequence[DimLike],
    output_sizes: Sequence[DimLike],
    window: Sequence[DimLike],
) -> list[GpuSpatialDim]:
    """Return the spatial dims of an op."""
    facts = zip(sizes, gaps, output_sizes, window, op.strides, op.dilations, op.before, strict=True)
    return [GpuSpatialDim(*fact) for fact in facts]


def dim_arguments(dims: Sequence[GpuSpatialDim]) -> list[DimLike]:
    """Return the kernels' arguments for dims."""
    numbers: list[DimLike] = [number for dim in dims for number in dim]
    return [*numbers, *_PADDING * (RANK - len(dims))]


def pieces_for(
    found: MultiplyInstructions, rows: DimLike, columns: DimLike, groups: DimLike, depth: DimLike
) -> int:
    """Return the number of pieces to cut sums into, so that there are enough blocks.

    Args:
        found: The instructions that compute tiles.
        rows: The rows of the products.
        columns: The columns of the products.
        groups: The number of products.
        depth: The length of the sums; if it is unknown, it is assumed to be long.
    """
    if not (isinstance(rows, int) and isinstance(columns, int) and isinstance(groups, int)):
        return 1
    tile = found.tile(rows, columns, groups)
    blocks = -(-rows // tile.rows) * -(-columns // tile.columns) * groups
    return pieces_of(blocks, depth)


def pieces_of(blocks: DimLike, depth: DimLike) -> int:
    """Return the number of pieces, given the number of blocks without any."""
    if not isinstance(blocks, int) or blocks == 0:
        return 1
    most = _MOST_PIECES if not isinstance(depth, int) else min(_MOST_PIECES, depth // _PIECE)
    return max(1, min(-(-_ENOUGH // blocks), most))


def added(
    node: Node,
    found: MultiplyInstructions,
    partials: Storage,
    to: Storage,
    pieces: int,
    sizes: tuple[DimLike, ...],
    gaps: tuple[DimLike, ...],
    begin: DimLike = 0,
) -> Step:
    """Return the step that adds partial sums: [pieces, groups, rows, taps, channels]."""
    code = add_code(found.sums, found.dtype)
    params = (pieces, *sizes, begin, *gaps)
    return Step((node,), code, (partials, to), (False, True), params, work_items=1)
