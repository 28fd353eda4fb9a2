"""The steps of convolutions that run as products, or channel by channel: see `strategies`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from graphfw.ir.dim import DimLike, dim_min, static
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.runtime.kernels.steps import Epilogue, Step, Storage, Temp, View
from graphfw.runtime.numpy_executor.choice import CLOCK
from graphfw.runtime.numpy_executor.codegen import Processor, with_stores
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim, joined, numbers
from graphfw.runtime.numpy_executor.convolution.direct_window import (
    DirectWindowCode,
    rows_together,
    written_width,
)
from graphfw.runtime.numpy_executor.convolution.weights import WeightsCode
from graphfw.runtime.numpy_executor.convolution.window_bounds import DenseStride as SpatialStep
from graphfw.runtime.numpy_executor.convolution.work_item import (
    AT_ONCE,
    ConvItemCode,
    PanelsCode,
    depth,
)
from graphfw.runtime.numpy_executor.matmul.code import MatmulCode, operands_of
from graphfw.runtime.numpy_executor.matmul.lowering import supported
from graphfw.runtime.numpy_executor.matmul.plan import Costs, ProductCut, cut, vectors
from graphfw.runtime.numpy_executor.matmul.tile import TileShape, shape_for

_PANEL = 4
_RUN = 4
"""Laying out a panel, and each run of it, takes as long as multiplying it with so many rows."""

_LAID_OUT: Mapping[SpatialStep, int] = {1: 8, 2: 15, 0: 40}
"""The time of laying out a panel on average, in rows, by the step along the last dim."""

_TAP = 40
"""The further cycles of each tap in each run of a panel."""

_BEFORE = 26
"""The time of a panel that is written in advance, in rows more."""

_RESULT, _WEIGHT = 0.5, 2.5
"""The cycles for an element of the result, and of the weights where each run lays these out."""

_COPIED = 16
"""Copying an element takes as long as multiplying so many."""

_ASSUMED_POSITIONS = 32
"""The number of positions in a row that is assumed, where it is not known until the graph runs."""

_AHEAD = 16 << 20
"""The most bytes of panels that are laid out before they are needed: caches hold them."""

_CHUNK = 1 << 16
"""About the number of elements that are done at a time: they stay in the L2 cache."""

_FEW = 256
"""Images of up to so many positions are joined, as most of their last panel would be empty."""

_MULTIPLE = 4
"""The most outputs for each channel that are computed channel by channel."""


def why_not(node: Node) -> str:
    """Return why a convolution is no native product of x itself; "" if it is."""
    op = node.op
    assert isinstance(op, Conv)
    is_spread = any([spread != 1 for spread in op.input_dilations])
    return "x is dilated" if is_spread else why_never(node)


def why_never(node: Node) -> str:
    """Return why there is no native code for a convolution, with or without input dilation."""
    op, (x, weight) = node.op, node.inputs
    assert isinstance(op, Conv)
    if not supported(x.dtype):
        return f"there are no native products of {x.dtype}"
    if not all(isinstance(size, int) for size in (*weight.shape, op.groups)):
        return "the sizes of the weights are not known"
    return ""


class Convolution(NamedTuple):
    """A convolution; see `strategies.conv_steps`.

    Attributes:
        nodes: For reports.
        dims: The spatial dims.
        x: The images.
        weight: The weights.
        groups: The number of groups.
        images: The number of images.
        target: The processor.
        likely: The number of images that estimates assume if it is not known.
        is_near: Whether caches hold the weights from run to run: for estimates.
        is_whole: Whether a work item must have all positions of its outputs, for the epilogue.
    """

    nodes: tuple[Node, ...]
    dims: list[SpatialDim]
    x: View
    weight: View
    groups: int
    images: DimLike
    target: Processor
    likely: int = 1
    is_near: bool = False
    is_whole: bool = False

    @property
    def outputs(self) -> int:
        """The number of outputs of a group."""
        return static(self.weight.shape[0]) // max(self.groups, 1)

    @property
    def taps(self) -> int:
        """The number of taps of a window, all dims together."""
        return static(size_of(self.weight.shape[2:]))

    @property
    def shape(self) -> TileShape:
        """The tiles, and the vectors."""
        return shape_for(self.x.storage.dtype, self.target)

    @property
    def output_size(self) -> DimLike:
        """The number of output positions."""
        return size_of([dim.output_size for dim in self.dims])

    @property
    def members(self) -> DimLike:
        """The number of products: one for each group of each image, or of all."""
        return self.images * self.groups

    @property
    def assumed(self) -> tuple[int, int, int]:
        """Outputs of a group, positions of all images, and elements of a window: for estimates.

        Positions that are not known are taken for some in each dim.
        """
        positions = [
            one.output_size if isinstance(one.output_size, int) else _ASSUMED_POSITIONS
            for one in self.dims
        ]
        images = self.images if isinstance(self.images, int) else self.likely
        channels = static(self.weight.shape[1])
        return self.outputs, images * math.prod(positions), channels * self.taps

    @property
    def is_depthwise(self) -> bool:
        """Whether outputs see one channel each, and are few: see `slide`."""
        return self.weight.shape[1] == 1 < self.groups and 0 < self.outputs <= _MULTIPLE

    def with_images_joined(self) -> Convolution:
        """Return the same with the images as one more spatial dim, the slowest."""
        images = SpatialDim(self.images, self.x.strides[0], self.images, 1, 1, 1, 0)
        return self._replace(dims=[images, *self.dims], images=1)


def multiply(
    it: Convolution, product: Storage | None, epilogue: Epilogue | None, fixed: bool
) -> list[Step]:
    """Return the steps of matrix products whose right operand is the windows' elements."""
    shape, x, positions = it.shape, it.x, it.output_size
    channels = static(it.weight.shape[1])
    it, is_joined, how, is_ahead = _planned(it)
    m, n, k = it.outputs, it.output_size, channels * it.taps
    work_item = ConvItemCode(shape, len(it.dims), it.dims[-1].step, is_ahead, is_joined)
    tiles, steps = weights_as_tiles(it, how.heights[0], static(how.row_blocks), fixed)
    params: tuple[DimLike, ...] = (
        *(m, n, k, it.groups, channels),
        *(x.offset, x.strides[0], channels * x.strides[1], x.strides[1]),
        *(how.row_blocks, how.column_blocks, how.group, it.members, how.chunk_columns, positions),
        *numbers(it.dims),
    )
    source = x.storage
    if is_ahead:
        panels = it.members * _panels(shape, n)
        source = Temp(shape.dtype, panels * shape.columns * k, "what windows see")
        layout = PanelsCode(shape, len(it.dims), work_item.step)
        work_items = panels * -(-k // AT_ONCE)
        steps.append(Step(it.nodes, layout, (x.storage, source), (False, True), params, work_items))
    operands = operands_of([source, tiles], product, epilogue)
    scratch = work_item.panel_bytes
    if epilogue is not None or work_item.rounds or is_joined:
        scratch += how.chunk_rows * how.chunk_columns * shape.size
    if epilogue is not None:
        gap = how.chunk_columns * (shape.size // shape.stored.itemsize)
        params += epilogue.params_with(positions if product is not None else gap)
    code = MatmulCode(
        work_item,
        with_stores(it.target, it.members * m * n),
        how.heights,
        False,
        vectors(shape, n),
        product is not None,
        operands.region,
    )
    groups = (it.members + how.group - 1) // how.group
    work_items = groups * how.row_blocks * how.column_blocks
    return [*steps, operands.step(it.nodes, code, params, work_items, scratch)]


def multiply_seconds(it: Convolution, *, fixed: bool) -> float:
    """Return the time of `multiply`'s steps on one core."""
    m, n, k = it.assumed
    it, _, how, is_ahead = _planned(it)
    shape, step = it.shape, it.dims[-1].step
    images = max(it.images, 1) if isinstance(it.images, int) else it.likely
    columns = -(-n // (images * shape.columns)) * images * shape.columns
    rows = m + (_BEFORE if is_ahead else 0)
    times = 1 if is_ahead else static(how.row_blocks)
    rows += times * _LAID_OUT[step]
    cycles: float = rows * columns * k / (2 * shape.lanes)
    cycles += _TAP * times * it.taps * columns // shape.columns * _runs(it)
    cycles += _RESULT * m * n
    if not fixed:
        cycles += _WEIGHT * m * k
    return cycles * it.groups / CLOCK


def _planned(it: Convolution) -> tuple[Convolution, bool, ProductCut, bool]:
    """Return the convolution for `multiply`, with images joined or not, and its `_cut`."""
    it = it._replace(dims=joined(it.dims))
    few = isinstance(it.output_size, int) and it.output_size <= _FEW
    is_joined = it.groups == 1 != it.x.shape[0] and few and not it.is_whole
    if is_joined:
        it = it.with_images_joined()
    sizes = it.outputs, it.output_size, static(it.weight.shape[1]) * it.taps
    return it, is_joined, *_cut(it, sizes)


def _cut(it: Convolution, sizes: tuple[int, DimLike, int]) -> tuple[ProductCut, bool]:
    """Return how a convolution is cut, and whether panels are laid out before.

    That pays if several work items need the same panels, as with small images.
    """
    (m, n, k), shape = sizes, it.shape
    costs = Costs(speed=1, a=0, b=_PANEL + _RUN * _runs(it))
    nbytes = it.members * _panels(shape, n) * shape.columns * k * shape.size
    if it.is_whole:
        # The plan is for as much work in one panel, so that the columns are not cut.
        panels = static(_panels(shape, n))
        sizes = m, shape.columns, k * panels
    how = cut(shape, costs, sizes, it.members, may_split=False)
    is_ahead = how.row_blocks != 1 and isinstance(nbytes, int) and nbytes <= _AHEAD
    if is_ahead:
        how = cut(shape, costs._replace(b=1), sizes, it.members, may_split=False)
    # All rows of a work item are done at a time, so that panels are laid out once.
    height = how.heights[0]
    rows = max(-(-m // (height * static(how.row_blocks))), 1) * height
    columns = max(_CHUNK // rows // shape.columns, 1) * shape.columns
    if it.is_whole:
        columns = panels * shape.columns
    return how._replace(chunk_rows=rows, chunk_columns=columns), is_ahead


def _runs(it: Convolution) -> int:
    """Return the number of rows of positions that a panel overlaps."""
    positions = it.dims[-1].output_size
    positions = positions if isinstance(positions, int) else _ASSUMED_POSITIONS
    return 1 + (it.shape.columns - 1) // max(positions, 1)


def _panels(shape: TileShape, n: DimLike) -> DimLike:
    return (n + shape.columns - 1) // shape.columns


def weights_as_tiles(
    it: Convolution, height: int, blocks: int, fixed: bool, *, by_channel: bool = False
) -> tuple[Storage, list[Step]]:
    """Return the weights as tiles of some outputs, and the steps: see `WeightsCode`.

    k is [*K, C], or [C, *K] with `by_channel`.
    """
    weight, shape = it.weight, it.shape
    channels = static(weight.shape[1])
    tiles = -(-it.outputs // height)
    size = it.groups * tiles * height * channels * it.taps
    memory = Temp(shape.dtype, size, "weights as tiles")
    channel, *dims = zip(weight.shape[1:], weight.strides[1:], strict=True)
    *slow, fast = (channel, *dims) if by_channel else (*dims, channel)
    step = Step(
        it.nodes,
        WeightsCode(shape, len(weight.shape) - 2, it.target),
        (weight.storage, memory),
        (False, True),
        (
            *(height, it.outputs, tiles, blocks, depth(shape)),
            *(fast[0], size_of([size for size, _ in slow])),
            *(weight.offset, weight.strides[0], fast[1]),
            *[number for pair in slow for number in pair],
        ),
        it.groups * tiles,
    )
    if fixed:
        return memory, [replace(step, prepacks=True)]
    # Not before x: made earlier, they would fill memory until they are needed.
    return memory, [replace(step, after=(it.x.storage,))]


def copied(it: Convolution, to: Storage) -> Step:
    """Return the step that copies the elements of windows of one tap, 0 outside of the image."""
    rows, width = size_of([dim.output_size for dim in it.dims[:-1]]), it.dims[-1].output_size
    images, channels = it.x.shape[:2]
    together = rows_together(width, _COPIED)
    params: tuple[DimLike, ...] = (
        *(images * channels, rows, together, channels, 1),
        *(it.x.offset, *it.x.strides[:2], 0, 0),
        *numbers(it.dims),
        *[0] * len(it.dims),
    )
    work_item = DirectWindowCode(it.shape, len(it.dims), it.dims[-1].step, "elements", 1)
    code = MatmulCode(work_item, it.target, (1,), False, (1,), True, None)
    work_items = (images * channels * rows + together - 1) // together
    return Step(it.nodes, code, (it.x.storage, to), (False, True), params, work_items)


def slide(it: Convolution, product: Storage | None, epilogue: Epilogue | None) -> Step:
    """Return the step that computes each output of the one channel that it sees."""
    x, weight, multiple = it.x, it.weight, it.outputs
    outputs = it.groups * multiple
    rows = size_of([dim.output_size for dim in it.dims[:-1]])
    width, item = it.dims[-1].output_size, it.shape.stored.itemsize
    together = rows_together(width, it.taps)
    params: tuple[DimLike, ...] = (
        *(x.shape[0] * outputs, rows, together, outputs, multiple),
        *(x.offset, *x.strides[:2], weight.offset, weight.strides[0]),
        *numbers(it.dims),
        *weight.strides[2:],
    )
    operands = operands_of([x.storage, weight.storage], product, epilogue)
    scratch: DimLike = 0
    if epilogue is not None:
        params += epilogue.params_with(it.output_size if product is not None else 0)
        scratch = dim_min(together, rows) * width * item
    work_item = DirectWindowCode(
        it.shape, len(it.dims), it.dims[-1].step, "products", written_width(it.dims[-1].taps)
    )
    target = with_stores(it.target, x.shape[0] * outputs * it.output_size)
    code = MatmulCode(work_item, target, (1,), False, (1,), product is not None, operands.region)
    work_items = (x.shape[0] * outputs * rows + together - 1) // together
    return operands.step(it.nodes, code, params, work_items, scratch)
