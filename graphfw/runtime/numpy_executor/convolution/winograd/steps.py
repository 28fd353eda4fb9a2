"""`winograd_strategies`: strategies that use Winograd's algorithms."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from graphfw.ir.dim import DimLike, static
from graphfw.ir.dtype import float32
from graphfw.runtime.kernels.steps import Epilogue, Step, Storage, Temp
from graphfw.runtime.numpy_executor.choice import Strategy
from graphfw.runtime.numpy_executor.codegen import with_stores
from graphfw.runtime.numpy_executor.convolution.lowering import Convolution
from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import F2, F4, TAPS, Algorithm
from graphfw.runtime.numpy_executor.convolution.winograd.layout import planes_bytes
from graphfw.runtime.numpy_executor.convolution.winograd.plan import (
    WinogradPlan,
    WinogradSizes,
    memory_cycles,
    plan,
    weight_cycles,
)
from graphfw.runtime.numpy_executor.convolution.winograd.prepack import PrepackCode
from graphfw.runtime.numpy_executor.convolution.winograd.weights import WinogradWeightsCode
from graphfw.runtime.numpy_executor.convolution.winograd.work_item import (
    WinogradCode,
    WinogradItemCode,
)
from graphfw.runtime.numpy_executor.matmul.code import operands_of
from graphfw.runtime.numpy_executor.matmul.plan import vectors

_CLOCK = 4e9
"""Cycles a second of the core that estimates are for."""

_TILES = 14
"""The number of tiles along a dim that is assumed, where it is not known until the graph runs."""

ALGORITHMS = {"winograd-4x4": F4, "winograd-2x2": F2}
"""The algorithms by the names of their strategies."""


def winograd_strategies(
    it: Convolution, product: Storage | None, epilogue: Epilogue | None, fixed: bool
) -> list[Strategy]:
    """Return the strategies for a convolution; none if the algorithms don't serve for it."""
    if not _suits(it):
        return []
    found = []
    for name, algorithm in ALGORITHMS.items():
        sizes = _sizes(it, algorithm)
        how = plan(it.shape, algorithm, sizes)
        cycles = how.cycles + (0 if fixed else weight_cycles(it.shape, algorithm, sizes))
        cycles += 0 if it.is_near else memory_cycles(it.shape, algorithm, sizes)
        make = partial(winograd_steps, it, algorithm, how, product, epilogue, fixed)
        found.append(Strategy(name, cycles / _CLOCK, make))
    return found


def _suits(it: Convolution) -> bool:
    return (
        it.x.storage.dtype is float32
        and it.groups == 1
        and 0 not in it.weight.shape
        and len(it.dims) == 2
        and all([(dim.taps, dim.stride, dim.dilation) == (TAPS, 1, 1) for dim in it.dims])
        and it.dims[-1].step == 1
    )


def _sizes(it: Convolution, algorithm: Algorithm) -> WinogradSizes:
    """Return the sizes that are cut; likely ones where they are unknown."""
    down, across = [
        -(-dim.output_size // algorithm.positions) if isinstance(dim.output_size, int) else _TILES
        for dim in it.dims
    ]
    channels = static(it.weight.shape[1])
    images = it.images if isinstance(it.images, int) else it.likely
    return WinogradSizes(images, channels, it.outputs, down, across, it.is_whole)


def winograd_steps(
    it: Convolution,
    algorithm: Algorithm,
    how: WinogradPlan,
    product: Storage | None,
    epilogue: Epilogue | None,
    fixed: bool,
) -> list[Step]:
    """Return the steps of a convolution by an algorithm, cut as `plan` says."""
    shape, x, m = it.shape, it.x, algorithm.positions
    channels, outputs = static(it.weight.shape[1]), it.outputs
    down, across = it.dims
    work_item = WinogradItemCode(shape, algorithm)
    groups = -(-channels // shape.lanes)
    seen_bytes = planes_bytes(shape, groups * shape.lanes, how.tiles, algorithm.products)
    # Scratch memory: strips, transformed tiles, their products, then rows of the result.
    block = how.down, how.across
    seen = -(-max(work_item.images.scratch(*block), work_item.results.scratch(*block)) // 64) * 64
    products = seen + (0 if how.is_ahead else seen_bytes)
    width = how.chunk * shape.columns
    rows = products + planes_bytes(shape, width, how.tiles, algorithm.products)
    line = how.down * m * how.across * m
    scratch = rows + (0 if product is not None else line * shape.lanes * shape.size)
    blocks: DimLike = 1
    for total, each in (
        (it.images, how.images),
        ((down.output_size + m - 1) // m, how.down),
        ((across.output_size + m - 1) // m, how.across),
    ):
        blocks = blocks * ((total + each - 1) // each)
    params: tuple[DimLike, ...] = (
        *(channels, outputs, it.images),
        *(x.offset, *x.strides[:2], down.in_memory),
        *(down.size, across.size, down.before, across.before, down.output_size, across.output_size),
        *(how.images, how.down, how.across, how.tiles, how.output_blocks, how.chunk),
        *(seen, products, rows, line, int(how.is_ahead)),
    )
    weights, steps = _weights(it, algorithm, how, fixed)
    source = x.storage
    if how.is_ahead:
        source = Temp(shape.dtype, blocks * (seen_bytes // shape.size), "transformed tiles")
        ahead = PrepackCode(shape, algorithm)
        operands = (x.storage, source)
        steps.append(Step(it.nodes, ahead, operands, (False, True), params, blocks * groups, seen))
    own = operands_of([source, weights], product, epilogue)
    if epilogue is not None:
        params += epilogue.params_with(it.output_size if product is not None else line)
    code = WinogradCode(
        work_item=work_item,
        target=with_stores(it.target, it.images * outputs * it.output_size),
        heights=how.heights,
        ragged=True,
        vectors=vectors(shape, outputs),
        kept=product is not None,
        region=own.region,
    )
    return [*steps, own.step(it.nodes, code, params, blocks * how.output_blocks, scratch)]


def _weights(
    it: Convolution, algorithm: Algorithm, how: WinogradPlan, fixed: bool
) -> tuple[Storage, list[Step]]:
    """Return the transformed weights, and the step if they change from run to run."""
    weight, shape = it.weight, it.shape
    channels = weight.shape[1]
    panels = -(-it.outputs // shape.columns)
    size = algorithm.products * panels * channels * shape.columns
    memory = Temp(shape.dtype, size, "transformed weights")
    step = Step(
        it.nodes,
        WinogradWeightsCode(shape, algorithm, it.target),
        (weight.storage, memory),
        (False, True),
        (it.outputs, channels, how.chunk, weight.offset, *weight.strides),
        panels,
    )
    if fixed:
        return memory, [replace(step, prepacks=True)]
    # Not before x: made earlier, they would fill memory until they are needed.
    return memory, [replace(step, after=(it.x.storage,))]
