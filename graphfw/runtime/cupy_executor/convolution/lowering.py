"""The steps of convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from graphfw.ir.dim import DimLike, always_ge
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Node
from graphfw.ops.nn.convolution_ops import Conv
from graphfw.passes.fuse_pools import columns_of
from graphfw.passes.fuse_views import contiguous
from graphfw.runtime.cupy_executor.codegen import CudaCode
from graphfw.runtime.cupy_executor.convolution.codes import (
    RANK,
    MultiplyInstructions,
    conv_code,
    depthwise_code,
    pack_code,
)
from graphfw.runtime.cupy_executor.convolution.common import (
    GpuSpatialDim,
    added,
    by_channel,
    correlation,
    dim_arguments,
    engine_of,
    in_group,
    is_by_pixel,
    is_depthwise,
    pieces_for,
    spatial_dims,
)
from graphfw.runtime.cupy_executor.convolution.epilogue import CudaEpilogue
from graphfw.runtime.cupy_executor.products import ProductCode, ProductSizes
from graphfw.runtime.kernels.steps import Epilogue, Step, Storage, Temp, View
from graphfw.runtime.limits import Precision


def is_native(node: Node) -> bool:
    """Return whether there are kernels for a convolution: for floats, over up to 3 spatial dims."""
    return engine_of(node, "highest") is not None


def conv_steps(
    node: Node, inputs: Sequence[View], outputs: Sequence[View], precision: Precision
) -> list[Step]:
    """Return the steps of a convolution without epilogue; none if there are no kernels for it."""
    if not is_native(node):
        return []
    x, weight = inputs
    return fused_conv_steps(node, (node,), x, weight, outputs[0].storage, None, precision)


def fused_conv_steps(
    node: Node,
    nodes: tuple[Node, ...],
    x: View,
    weight: View,
    product: Storage | None,
    epilogue: Epilogue | None,
    precision: Precision,
) -> list[Step]:
    """Return the steps of a convolution and its epilogue.

    Args:
        node: The convolution, one that `is_native`.
        nodes: The nodes that the steps compute.
        x: [N, C, *S], with any strides; or [N, *S, C], see `is_by_pixel`.
        weight: [O, C/G, *K], with any strides; or [O, *K, C/G].
        product: The storage of the result; None where only the epilogue has outputs.
        epilogue: The function of its elements.
        precision: See `Options`.
    """
    op, found, row = correlation(node), engine_of(node, precision), size_of(columns_of(node))
    assert isinstance(op, Conv)
    assert found is not None
    size, images = size_of(node.types[0].shape), (x, weight)
    x, weight = by_channel(node, images)
    is_single = is_depthwise(op, weight.shape[0], weight.shape[1])
    if product is not None and epilogue is None and not (is_single or is_by_pixel(node)):
        multiplied = _as_products(op, nodes, found, x, weight, product, precision)
        if multiplied is not None:
            return [multiplied]
    pieces = 1 if is_single else _conv_pieces(op, found, x, weight)
    if epilogue is not None and pieces != 1:
        if product is None:
            product = Temp(found.dtype, size, "sums of partials")
        steps = fused_conv_steps(node, (node,), *images, product, None, precision)
        return [*steps, epilogue_step(nodes, product, epilogue, row)]
    if is_single:
        return [_depthwise(op, nodes, found, x, weight, _epilogue(node, found, product, epilogue))]
    groups, channels, outputs_of = op.groups, weight.shape[1], in_group(weight.shape[0], op.groups)
    spreads = [
        _spread(*fact) for fact in zip(op.strides, op.dilations, op.input_dilations, strict=True)
    ]
    dims = spatial_dims(op, x.shape[2:], x.strides[2:], op.output_sizes, weight.shape[2:])
    matrix, steps = _matrix(node, op, found, weight, dims, spreads)
    partials = Temp(found.sums, pieces * size, "partial sums")
    conv_epilogue = _ConvEpilogue((partials,), (True,), None, ())
    if pieces == 1:
        conv_epilogue = _epilogue(node, found, product, epilogue)
    step = Step(
        nodes=nodes,
        code=conv_code(found, len(dims), conv_epilogue.epilogue),
        operands=(x.storage, matrix.storage, *conv_epilogue.operands),
        written=(False, False, *conv_epilogue.written),
        params=(
            *(x.shape[0], groups, outputs_of, channels),
            *(x.offset, *x.strides[:2]),
            *(matrix.offset, matrix.lead, matrix.slot, pieces),
            *dim_arguments(dims),
            *_spread_arguments(spreads),
            *conv_epilogue.params,
        ),
        work_items=1,
        in_place=conv_epilogue.in_place,
    )
    steps.append(step)
    if pieces != 1:
        assert product is not None
        sizes: tuple[DimLike, ...] = (1, 1, size, 1)
        gaps: tuple[DimLike, ...] = (0, 0, 1, 0)
        if is_by_pixel(node):  # images, outputs and their positions
            output_sizes = size_of(op.output_sizes)
            sizes, gaps = (x.shape[0], row, output_sizes, 1), (output_sizes * row, 1, row, 0)
        steps.append(added(node, found, partials, product, pieces, sizes, gaps))
    return steps


def _as_products(
    op: Conv,
    nodes: tuple[Node, ...],
    found: MultiplyInstructions,
    x: View,
    weight: View,
    out: Storage,
    precision: Precision,
) -> Step | None:
    """Return the step of a convolution with windows of one tap by cuBLASLt, a product an image.

    None for other windows, or if operands' strides don't allow reading 16 bytes at once.
    """
    outputs, channels, *taps = weight.shape
    steps = (*op.strides, *op.input_dilations, *taps, op.groups)
    is_still = op.output_sizes == x.shape[2:] and all(start == 0 for start in op.before)
    if not is_still or any(step != 1 for step in steps):
        return None
    down, along = weight.strides[:2]
    is_across = along != 1
    lead = along if is_across else down
    numbers = (*x.strides[:2], x.offset, weight.offset, lead, size_of(op.output_sizes))
    is_even = all(isinstance(n, int) and n >= 0 and n % found.vector == 0 for n in numbers)
    is_matrix = x.strides[2:] == contiguous(op.output_sizes) and (not is_across or down == 1)
    lines = (lead, outputs if is_across else channels), (x.strides[1], size_of(op.output_sizes))
    is_apart = all(always_ge(step, length) for step, length in lines)
    if not (is_even and is_matrix and is_apart):
        return None
    return Step(
        nodes=nodes,
        code=ProductCode(found.dtype, found.dtype, is_across, False, precision),
        operands=(weight.storage, x.storage, out),
        written=(False, False, True),
        params=ProductSizes(
            *(outputs, size_of(op.output_sizes), channels, x.shape[0]),
            *(weight.offset, lead, 0),
            *(x.offset, x.strides[1], x.strides[0]),
        ),
        work_items=1,
    )


def _conv_pieces(op: Conv, found: MultiplyInstructions, x: View, weight: View) -> int:
    """Return the number of pieces of a convolution's sums."""
    classes = math.prod(
        [s // math.gcd(s, t) for s, t in zip(op.input_dilations, op.strides, strict=True)]
    )
    columns, depth = x.shape[0] * size_of(op.output_sizes) // classes, size_of(weight.shape[1:])
    if not isinstance(depth, int):
        return 1
    outputs = in_group(weight.shape[0], op.groups)
    return pieces_for(found, outputs, columns, op.groups * classes, depth // classes)


class _ConvEpilogue(NamedTuple):
    """The outputs and the epilogue of a convolution.

    Attributes:
        operands: The operands besides the convolution's own.
        written: For each whether it is written.
        epilogue: The function of sums; None if they are partial sums.
        params: The epilogue's run-time integers.
        in_place: See `Step`.
    """

    operands: tuple[Storage, ...]
    written: tuple[bool, ...]
    epilogue: CudaEpilogue | None
    params: tuple[DimLike, ...]
    in_place: tuple[tuple[int, int], ...] = ()


def _epilogue(
    node: Node, found: MultiplyInstructions, product: Storage | None, epilogue: Epilogue | None
) -> _ConvEpilogue:
    own, by_pixel = () if product is None else (product,), is_by_pixel(node)
    if epilogue is None:
        return _ConvEpilogue(own, (True,), CudaEpilogue(found.dtype, by_pixel=by_pixel), ())
    kernel = epilogue.kernel
    others = [n for n, s in enumerate(epilogue.operands) if s is not None]
    index_of = {buffer: 2 + len(own) + number for number, buffer in enumerate(others)}
    return _ConvEpilogue(
        operands=(*own, *[s for s in epilogue.operands if s is not None]),
        written=(*[True for _ in own], *[kernel.buffers[n].written for n in others]),
        epilogue=CudaEpilogue(found.dtype, product is not None, by_pixel, kernel, epilogue.product),
        params=epilogue.params_with(size_of(columns_of(node))),
        in_place=tuple([(index_of[out], index_of[read]) for out, read in epilogue.in_place]),
    )


def epilogue_step(
    nodes: tuple[Node, ...], product: Storage, epilogue: Epilogue, row: DimLike
) -> Step:
    """Return the step of an epilogue for a product in memory, given the length of its rows."""
    return Step(
        nodes=nodes,
        code=CudaCode(epilogue.kernel),
        operands=tuple([product if s is None else s for s in epilogue.operands]),
        written=tuple([buffer.written for buffer in epilogue.kernel.buffers]),
        params=epilogue.params_with(row),
        work_items=1,
        in_place=epilogue.in_place,
    )


def _spread(stride: int, dilation: int, spread: int) -> tuple[int, int, int]:
    """Return the classes of a dim with input dilation: see `gf_spread` in forward.cuh."""
    return spread, spread // math.gcd(stride, spread), spread // math.gcd(dilation, spread)


def _spread_arguments(spreads: Sequence[tuple[int, int, int]]) -> list[int]:
    numbers = [number for spread in spreads for number in spread]
    return [*numbers, *[1] * (3 * (RANK - len(spreads)))]


class _Matrix(NamedTuple):
    """Weights as a matrix for each class and group: see `gf_weights` in forward.cuh.

    Attributes:
        storage: The storage of the matrices.
        offset: The offset of the first, in elements.
        lead: The distance of lines.
        slot: The distance of matrices.
    """

    storage: Storage
    offset: DimLike
    lead: DimLike
    slot: DimLike


def _matrix(
    node: Node,
    op: Conv,
    found: MultiplyInstructions,
    weight: View,
    dims: Sequence[GpuSpatialDim],
    spreads: Sequence[tuple[int, int, int]],
) -> tuple[_Matrix, list[Step]]:
    """Return weights as matrices, and the steps that pack them."""
    groups, channels = op.groups, weight.shape[1]
    outputs = in_group(weight.shape[0], groups)
    as_is = _as_it_lies(op, found, weight)
    if as_is is not None:
        return as_is, []
    # The most that positions of a class see.
    taps = size_of([(k + s[2] - 1) // s[2] for k, s in zip(weight.shape[2:], spreads, strict=True)])
    depth = taps * channels
    lines, along = (outputs, depth) if found.by_depth else (depth, outputs)
    lead = (along + found.vector - 1) // found.vector * found.vector
    slot = lines * lead
    count = math.prod([spread[1] for spread in spreads])
    memory = Temp(found.dtype, count * groups * slot, "weights as matrices")
    # The image is no argument, since how weights are laid out does not depend on it.
    weights = [
        dim._replace(size=k, gap=gap, output_sizes=1, before=0 if spread[0] == 1 else dim.before)
        for dim, k, gap, spread in zip(
            dims, weight.shape[2:], weight.strides[2:], spreads, strict=True
        )
    ]
    step = Step(
        nodes=(node,),
        code=pack_code(found, len(dims)),
        operands=(weight.storage, memory),
        written=(False, True),
        params=(
            *(groups, outputs, channels, weight.offset, *weight.strides[:2], lines, lead),
            *dim_arguments(weights),
            *_spread_arguments(spreads),
        ),
        work_items=1,
    )
    return _Matrix(memory, 0, lead, slot), [step]


def _as_it_lies(op: Conv, found: MultiplyInstructions, weight: View) -> _Matrix | None:
    """Return the weights of windows of one tap if they are matrices without packing."""
    outputs, channels, *taps = weight.shape
    down, along, *_ = weight.strides
    if any(k != 1 for k in taps) or any(s != 1 for s in op.input_dilations):
        return None
    if not found.by_depth:
        if op.groups != 1:
            return None
        outputs, channels, down, along = channels, outputs, along, down
    numbers = (channels, weight.offset)
    is_even = all(isinstance(n, int) and n % found.vector == 0 for n in numbers)
    if not is_even or down != channels or along != 1:
        return None
    return _Matrix(weight.storage, weight.offset, channels, channels * in_group(outputs, op.groups))


def _depthwise(
    op: Conv,
    nodes: tuple[Node, ...],
    found: MultiplyInstructions,
    x: View,
    weight: View,
    conv_epilogue: _ConvEpilogue,
) -> Step:
    """Return the step of a convolution whose outputs see one channel each."""
    dims = spatial_dims(op, x.shape[2:], x.strides[2:], op.output_sizes, weight.shape[2:])
    is_spread = any(spread != 1 for spread in op.input_dilations)
    missing = RANK - len(dims)
    assert conv_epilogue.epilogue is not None
    return Step(
        nodes=nodes,
        code=depthwise_code(found, len(dims), conv_epilogue.epilogue, is_spread=is_spread),
        operands=(x.storage, weight.storage, *conv_epilogue.operands),
        written=(False, False, *conv_epilogue.written),
        params=(
            *(x.shape[0], weight.shape[0], in_group(weight.shape[0], op.groups)),
            *(x.offset, *x.strides[:2], weight.offset, weight.strides[0]),
            *dim_arguments(dims),
            *(*weight.strides[2:], *[0] * missing),
            *(*op.input_dilations, *[1] * missing),
            *conv_epilogue.params,
        ),
        work_items=1,
        in_place=conv_epilogue.in_place,
    )
