"""`conv_steps`: from views of an image and of kernels to the steps that convolve them."""

from __future__ import annotations

from typing import NamedTuple

from graphfw.ir.dim import DimLike, dim_min
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.correlation import Conv
from graphfw.runtime.kernels.steps import Epilogue, Prepared, Step, Storage, Temp, View
from graphfw.runtime.numpy_executor.codegen import Target, host
from graphfw.runtime.numpy_executor.convolution.cell import AT_ONCE, ConvCell, PanelsCode, depth
from graphfw.runtime.numpy_executor.convolution.dims import SpatialDim, joined, numbers
from graphfw.runtime.numpy_executor.convolution.sliding import (
    SlideCell,
    rows_together,
    written_width,
)
from graphfw.runtime.numpy_executor.convolution.weights import WeightsCode
from graphfw.runtime.numpy_executor.matmul.code import MatmulCode, operands_of, with_stores
from graphfw.runtime.numpy_executor.matmul.lowering import supported
from graphfw.runtime.numpy_executor.matmul.plan import Costs, Cut, cut, vectors
from graphfw.runtime.numpy_executor.matmul.tile import Shape, shape_for

_PANEL = 4
_RUN = 4
"""Laying out a panel, and each run of it, takes as long as multiplying it with so many rows."""

_PLACES = 32
"""What is taken for the places in a row, where they are not known until the graph runs."""

_AHEAD = 16 << 20
"""The most bytes of panels that are laid out before they are needed: caches hold them."""

_CHUNK = 1 << 16
"""About how many elements of a cell are done at a time: they stay in the L2 cache."""

_FEW = 256
"""Up to so many places of an image, its last panel would leave much empty: images are joined."""

_MULTIPLE = 4
"""Up to so many outputs for each channel are computed channel by channel."""


def why_not(node: Node) -> str:
    """Return why a convolution is no native product of x as it lies; "" if it is."""
    op = node.op
    assert isinstance(op, Conv)
    is_spread = any([spread != 1 for spread in op.spreads])
    return "the elements of x are spread" if is_spread else why_never(node)


def why_never(node: Node) -> str:
    """Return why there is no native code for a convolution, its elements spread or not."""
    op, (x, weight) = node.op, node.inputs
    assert isinstance(op, Conv)
    if not supported(x.dtype):
        return f"there are no native products of {x.dtype}"
    if not all(isinstance(size, int) for size in (*weight.shape, op.groups)):
        return "the sizes of the kernels are not known"
    return ""


def conv_steps(
    nodes: tuple[Node, ...],
    op: Conv,
    x: View,
    weight: View,
    product: Storage | None,
    epilogue: Epilogue | None,
    *,
    fixed_weight: bool = False,
    target: Target | None = None,
) -> list[Step]:
    """Return the steps of a convolution, [N, C, *S] and [O, C/G, *K] to [N, O, *places].

    The views may have any strides; N, S and the places may be symbolic.

    Args:
        nodes: What is computed, for reports.
        op: How it convolves; see `why_not`.
        x: The images: float32, float64, or a float of 16 bits, as matrix products.
        weight: The kernels, of the same dtype; all sizes are known.
        product: Where the result goes, contiguous; None where only the epilogue needs it.
        epilogue: What is done to its elements: rows are images and outputs, joined or not, columns
            places.
        fixed_weight: Whether the weight stays the same from run to run: then it is laid out once.
        target: The processor; this machine's by default.
    """
    facts = zip(
        *(x.shape[2:], x.strides[2:], op.places, weight.shape[2:]),
        *(op.strides, op.dilations, op.before),
        strict=True,
    )
    dims = [SpatialDim(*fact) for fact in facts]
    it = _Convolution(nodes, dims, x, weight, _known(op.groups), x.shape[0], target or host())
    if weight.shape[1] == 1 < it.groups and 0 < it.outputs <= _MULTIPLE:
        return [_slide(it, product, epilogue)]
    return _multiply(it._replace(dims=joined(dims)), product, epilogue, fixed_weight)


class _Convolution(NamedTuple):
    """What is computed; see `conv_steps`."""

    nodes: tuple[Node, ...]
    dims: list[SpatialDim]
    x: View
    weight: View
    groups: int
    images: DimLike
    target: Target

    @property
    def outputs(self) -> int:
        """How many there are in each group."""
        return _known(self.weight.shape[0]) // max(self.groups, 1)

    @property
    def kernel(self) -> int:
        """How many elements a window sees of each channel."""
        return _known(size_of(self.weight.shape[2:]))

    @property
    def shape(self) -> Shape:
        """The tiles, and the vectors."""
        return shape_for(self.x.storage.dtype, self.target)

    @property
    def places(self) -> DimLike:
        """How many there are."""
        return size_of([dim.places for dim in self.dims])

    @property
    def members(self) -> DimLike:
        """How many products there are: one for each group of each image, or of all."""
        return self.images * self.groups

    def with_images_joined(self) -> _Convolution:
        """Return the same with the images as one more spatial dim, the slowest."""
        images = SpatialDim(self.images, self.x.strides[0], self.images, 1, 1, 1, 0)
        return self._replace(dims=[images, *self.dims], images=1)


def _known(size: DimLike) -> int:
    assert isinstance(size, int)
    return size


def _multiply(
    it: _Convolution, product: Storage | None, epilogue: Epilogue | None, fixed: bool
) -> list[Step]:
    """Return the steps of matrix products, whose right operand is what windows see."""
    shape, x, places = it.shape, it.x, it.places
    channels = _known(it.weight.shape[1])
    is_joined = it.groups == 1 != x.shape[0] and isinstance(places, int) and places <= _FEW
    if is_joined:
        it = it.with_images_joined()
    m, n, k = it.outputs, it.places, channels * it.kernel
    how, is_ahead = _cut(it, (m, n, k))
    cell = ConvCell(shape, len(it.dims), it.dims[-1].step, is_ahead, is_joined)
    tiles, steps = _weights(it, how, fixed)
    params: tuple[DimLike, ...] = (
        *(m, n, k, it.groups, channels),
        *(x.offset, x.strides[0], channels * x.strides[1], x.strides[1]),
        *(how.row_blocks, how.column_blocks, how.group, it.members, how.chunk_columns, places),
        *numbers(it.dims),
    )
    source = x.storage
    if is_ahead:
        panels = it.members * _panels(shape, n)
        source = Temp(shape.dtype, panels * shape.columns * k, "what windows see")
        layout = PanelsCode(shape, len(it.dims), cell.step)
        cells = panels * -(-k // AT_ONCE)
        steps.append(Step(it.nodes, layout, (x.storage, source), (False, True), params, cells))
    operands = operands_of([source, tiles], product, epilogue)
    scratch = cell.panel_bytes
    if epilogue is not None or cell.rounds or is_joined:
        scratch += how.chunk_rows * how.chunk_columns * shape.size
    if epilogue is not None:
        gap = how.chunk_columns * (shape.size // shape.stored.itemsize)
        params += epilogue.params_with(places if product is not None else gap)
    code = MatmulCode(
        cell,
        with_stores(it.target, it.members * m * n),
        how.heights,
        False,
        vectors(shape, n),
        product is not None,
        operands.region,
    )
    groups = (it.members + how.group - 1) // how.group
    cells = groups * how.row_blocks * how.column_blocks
    return [*steps, operands.step(it.nodes, code, params, cells, scratch)]


def _cut(it: _Convolution, sizes: tuple[int, DimLike, int]) -> tuple[Cut, bool]:
    """Return how a convolution is cut, and whether panels are laid out before.

    That pays where several cells need the same ones, as with small images.
    """
    (m, n, k), last, shape = sizes, it.dims[-1], it.shape
    places = last.places if isinstance(last.places, int) else _PLACES
    runs = 1 + (shape.columns - 1) // max(places, 1)
    costs = Costs(speed=1, a=0, b=_PANEL + _RUN * runs)
    how = cut(shape, costs, sizes, it.members, may_split=False)
    nbytes = it.members * _panels(shape, n) * shape.columns * k * shape.size
    is_ahead = how.row_blocks != 1 and isinstance(nbytes, int) and nbytes <= _AHEAD
    if is_ahead:
        how = cut(shape, costs._replace(b=1), sizes, it.members, may_split=False)
    # All rows of a cell are done at a time, so that panels are laid out once.
    height = how.heights[0]
    rows = max(-(-m // (height * _known(how.row_blocks))), 1) * height
    columns = max(_CHUNK // rows // shape.columns, 1) * shape.columns
    return how._replace(chunk_rows=rows, chunk_columns=columns), is_ahead


def _panels(shape: Shape, n: DimLike) -> DimLike:
    return (n + shape.columns - 1) // shape.columns


def _weights(it: _Convolution, how: Cut, fixed: bool) -> tuple[Storage, list[Step]]:
    """Return the kernels as tiles, in the order in which cells read them, and what makes these."""
    weight, shape, height = it.weight, it.shape, how.heights[0]
    channels = _known(weight.shape[1])
    tiles = -(-it.outputs // height)
    size = it.groups * tiles * height * channels * it.kernel
    memory = Temp(shape.dtype, size, "kernels as tiles")
    pairs = zip(weight.shape[2:], weight.strides[2:], strict=True)
    step = Step(
        it.nodes,
        WeightsCode(shape, len(weight.shape) - 2, it.target),
        (weight.storage, memory),
        (False, True),
        (
            *(height, it.outputs, tiles, _known(how.row_blocks), depth(shape)),
            *(channels, it.kernel),
            *(weight.offset, *weight.strides[:2]),
            *[number for pair in pairs for number in pair],
        ),
        it.groups * tiles,
    )
    if fixed:
        return Prepared(memory.dtype, memory.size, memory.why, step), []
    return memory, [step]


def _slide(it: _Convolution, product: Storage | None, epilogue: Epilogue | None) -> Step:
    """Return the step that computes each output of the one channel that it sees."""
    x, weight, multiple = it.x, it.weight, it.outputs
    outputs = it.groups * multiple
    rows = size_of([dim.places for dim in it.dims[:-1]])
    width, item = it.dims[-1].places, it.shape.stored.itemsize
    together = rows_together(width, it.kernel)
    params: tuple[DimLike, ...] = (
        *(x.shape[0] * outputs, rows, together, outputs, multiple),
        *(x.offset, *x.strides[:2], weight.offset, weight.strides[0]),
        *numbers(it.dims),
        *weight.strides[2:],
    )
    operands = operands_of([x.storage, weight.storage], product, epilogue)
    scratch: DimLike = 0
    if epilogue is not None:
        params += epilogue.params_with(it.places if product is not None else 0)
        scratch = dim_min(together, rows) * width * item
    cell = SlideCell(
        it.shape, len(it.dims), it.dims[-1].step, "products", written_width(it.dims[-1].kernel)
    )
    target = with_stores(it.target, x.shape[0] * outputs * it.places)
    code = MatmulCode(cell, target, (1,), False, (1,), product is not None, operands.region)
    cells = (x.shape[0] * outputs * rows + together - 1) // together
    return operands.step(it.nodes, code, params, cells, scratch)
