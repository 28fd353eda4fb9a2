"""The codes of convolutions: the functions of the `.cuh` files, their tiles and launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from graphfw.ir.dtype import DType, float32
from graphfw.runtime.cupy_executor.codegen import NOTHING, HandwrittenCode, Launch, Variant
from graphfw.runtime.cupy_executor.codegen.launch import launch
from graphfw.runtime.cupy_executor.convolution.epilogue import CudaEpilogue
from graphfw.runtime.kernels.handwritten_cuda import memory
from graphfw.runtime.kernels.ir import Buffer

RANK = 3
"""The most spatial dims; kernels take as many."""

_FOLDER = Path(__file__).parent
_NARROW = 1 << 30
_BUSY = 128
"""With fewer blocks than that, smaller tiles are taken."""

_BLOCKS = 1 << 16
_THREADS = 256
_TAPS = 9
"""The taps that a thread adds up at once: see `depthwise_weight_code`."""


def text_of(*names: str) -> str:
    """Return the text of some files; one module may have several, each once."""
    return "\n".join([(_FOLDER / name).read_text("utf-8") for name in names])


_FORWARD = text_of("windows.cuh", "../tensor_cores.cuh", "tiles.cuh", "forward.cuh")
_GRADIENT = "\n".join([_FORWARD, text_of("gradient.cuh")])
_DEPTHWISE = text_of("windows.cuh", "depthwise.cuh")


class BlockTile(NamedTuple):
    """A kind of tile: see tiles.cuh.

    Attributes:
        name: The name of the variant.
        kind: Its type in CUDA C++.
        rows: The number of its rows.
        columns: The number of its columns.
        threads: The number of threads of a block.
        shared: The bytes of both operands, twice.
    """

    name: str
    kind: str
    rows: int
    columns: int
    threads: int
    shared: int


class MultiplyInstructions(NamedTuple):
    """The instructions that add up products of a dtype.

    Attributes:
        dtype: The dtype of the operands.
        sums: The dtype of the sums.
        by_depth: Whether elements along the depth are contiguous.
        tiles: Its tiles, the largest first.
    """

    dtype: DType
    sums: DType
    by_depth: bool
    tiles: tuple[BlockTile, ...]

    @property
    def vector(self) -> int:
        """The number of elements that are read at once."""
        return 16 // self.dtype.itemsize

    def tile(self, outputs: int, columns: int, others: int) -> BlockTile:
        """Return the tile for some rows and columns in some products."""
        if len(self.tiles) == 1:
            return self.tiles[0]
        large, small, flat = self.tiles
        if outputs <= flat.rows:
            return flat
        is_busy = others * _tiles(large, outputs, columns) >= _BUSY
        return large if outputs > small.rows and is_busy else small


_SIZES = (("large", 128, 128, 64, 32), ("small", 64, 64, 32, 32), ("flat", 32, 128, 32, 32))


@cache
def engine(dtype: DType, *, rounds: bool = False) -> MultiplyInstructions | None:
    """Return the instructions that multiply a dtype, or None; with `rounds` TF32 for float32."""
    kind = memory(dtype) if dtype.is_floating else ""
    if dtype.is_low_precision:
        tiles = [
            _tile(name, f"gf_mma_tile<{kind}, {m}, {n}, 32, {wm}, {wn}>", m, n, 32, (wm, wn), 2)
            for name, m, n, wm, wn in _SIZES
        ]
        return MultiplyInstructions(dtype, float32, True, tuple(tiles))
    if dtype is float32 and rounds:
        tiles = [
            _tile(name, f"gf_tf32_tile<{m}, {n}, 16, {wm}, {wn}>", m, n, 16, (wm, wn), 4)
            for name, m, n, wm, wn in _SIZES
        ]
        return MultiplyInstructions(dtype, float32, False, tuple(tiles))
    sizes = {
        "float": (("large", 128, 128, 8, 8), ("small", 64, 64, 8, 4), ("flat", 32, 128, 4, 8)),
        "double": (("small", 64, 64, 4, 4),),
    }.get(kind)
    if sizes is None:
        return None
    item = dtype.itemsize
    tiles = [
        BlockTile(
            name,
            f"gf_fma_tile<{kind}, {m}, {n}, 16, {tm}, {tn}>",
            *(m, n, m // tm * (n // tn), 2 * 16 * (m + n + 16) * item),
        )
        for name, m, n, tm, tn in sizes
    ]
    return MultiplyInstructions(dtype, dtype, False, tuple(tiles))


def _tile(
    name: str, kind: str, m: int, n: int, depth: int, warp: tuple[int, int], item: int
) -> BlockTile:
    """Return a tile whose warps have some rows and columns."""
    threads = 32 * m // warp[0] * n // warp[1]
    # Elements along the depth, or along the sides, in a row, with 8 more for the banks.
    elements = (m + n) * (depth + 8) if item == 2 else depth * (m + n + 16)
    return BlockTile(name, kind, m, n, threads, 2 * elements * item)


def _tiles(tile: BlockTile, outputs: int, columns: int) -> int:
    return -(-outputs // tile.rows) * -(-columns // tile.columns)


class Dims(NamedTuple):
    """The spatial dims at known sizes.

    Attributes:
        sizes: The sizes of the image.
        gaps: The distances of its elements.
        output_sizes: The sizes of the result.
        taps: The sizes of the window.
    """

    sizes: list[int]
    gaps: list[int]
    output_sizes: list[int]
    taps: list[int]

    def reach(self) -> int:
        """Return the largest distance of an image's element from its first."""
        pairs = zip(self.gaps, self.sizes, self.taps, strict=True)
        return sum([abs(gap) * (size + taps) for gap, size, taps in pairs])


def dims_from(numbers: Sequence[int]) -> Dims:
    """Read the kernels' arguments for each dim."""
    rows = [numbers[7 * d : 7 * (d + 1)] for d in range(RANK)]
    return Dims(*[[row[i] for row in rows] for i in range(4)])


def over(count: int, name: str, *reach: int) -> Launch:
    """Return the launch of one thread for each of some elements."""
    if count == 0:
        return NOTHING
    grid = min(-(-count // _THREADS), _BLOCKS)
    return Launch(name, grid, 1, (_THREADS, 1), 0, 0, 0, max(count, *reach) >= _NARROW)


@cache
def pack_code(engine: MultiplyInstructions, rank: int) -> HandwrittenCode:
    """Return the code that lays out weights: see `gf_conv_pack`."""
    kind = memory(engine.dtype)
    call = f"gf_conv_pack<{kind}, {rank}, {'true' if engine.by_depth else 'false'}>"

    def launching(params: Sequence[int]) -> Launch:
        groups, outputs, channels, begin, output_gap, channel_gap, lines, lead = params[:8]
        classes = math.prod([params[8 + 7 * RANK + 3 * d + 1] for d in range(RANK)])
        reach = begin + abs(output_gap) * outputs * groups + abs(channel_gap) * channels
        return over(classes * groups * lines * lead, "packing", reach)

    return HandwrittenCode(
        "conv_pack",
        _FORWARD,
        (Buffer(engine.dtype, False), Buffer(engine.dtype, True)),
        8 + 10 * RANK,
        (Variant("packing", call, _THREADS),),
        launching,
    )


def conv_code(
    engine: MultiplyInstructions, rank: int, epilogue: CudaEpilogue | None
) -> HandwrittenCode:
    """Return the code of convolutions: see `gf_conv_with`; without `epilogue` that of pieces."""
    if epilogue is None:
        text, call = _FORWARD, "gf_conv_pieces<{}, " + f"{rank}>"
        buffers, more = [Buffer(engine.sums, True)], 0
    else:
        name = f"gf_conv{rank}{epilogue.name}"
        head = f"template <class Tile>\nGF void {name}(const typename Tile::T* x, "
        head += f"const typename Tile::T* packed, {epilogue.parameters}, GF_CONV_PARAMS"
        lines = [
            f"{head}{epilogue.numbers}, int* failed, char*) {{",
            "const gf_index total = (gf_index)groups * (gf_index)outputs;",
            f"const gf_index size = gf_some<{rank}>(GF_DIM(0), GF_DIM(1), GF_DIM(2)).places();",
            f"gf_conv_with<Tile, {rank}>(x, packed, GF_CONV_ARGUMENTS, [&](gf_index, "
            "gf_index image, gf_index output, gf_index place, typename Tile::S sum) {",
            *[*epilogue.lines(), "});\n}\n"],
        ]
        text, call = "\n".join([_FORWARD, *lines]), name + "<{}>"
        buffers, more = epilogue.buffers, epilogue.params

    def launching(params: Sequence[int]) -> Launch:
        images, groups, outputs, channels, begin, image_gap, channel_gap = params[:7]
        weights_begin, _, slot, pieces = params[7:11]
        dims, spreads = dims_from(params[11:]), params[11 + 7 * RANK :]
        classes = [spreads[3 * d + 1] for d in range(RANK)]
        most = math.prod([-(-p // n) for p, n in zip(dims.output_sizes, classes, strict=True)])
        others = groups * pieces * math.prod(classes)
        written = images * groups * outputs * math.prod(dims.output_sizes) * pieces
        if written == 0:
            return NOTHING
        tile = engine.tile(outputs, images * most, others)
        reach = begin + images * abs(image_gap) + groups * channels * abs(channel_gap)
        of_weights = weights_begin + slot * groups * math.prod(classes)
        largest = max(reach + dims.reach(), of_weights, written, _reach(epilogue, params))
        return _launched(tile, others * _tiles(tile, outputs, images * most), largest)

    return HandwrittenCode(
        "conv",
        text,
        (Buffer(engine.dtype, False), Buffer(engine.dtype, False), *buffers),
        11 + 10 * RANK + more,
        _variants(engine, call),
        launching,
    )


def _reach(epilogue: CudaEpilogue | None, params: Sequence[int]) -> int:
    """Return an index that is too large for 32 bits if the epilogue's indices are."""
    if epilogue is None or epilogue.kernel is None:
        return 0
    own = params[len(params) - epilogue.params :]
    return _NARROW if launch(epilogue.kernel, own).is_wide else 0


@cache
def weight_code(engine: MultiplyInstructions, rank: int) -> HandwrittenCode:
    """Return the code of the gradient of weights: see `gf_conv_weight`."""
    call = "gf_conv_weight<{}, " + f"{rank}>"

    def launching(params: Sequence[int]) -> Launch:
        images, groups, outputs, channels, begin, x_image, x_channel = params[:7]
        y_begin, y_image, y_output, pieces = params[7:11]
        dims = dims_from(params[11:])
        columns = channels * math.prod(dims.taps)
        if groups * outputs * columns == 0:
            return NOTHING
        tile = engine.tile(outputs, columns, groups * pieces)
        reach = begin + images * abs(x_image) + groups * channels * abs(x_channel)
        of_y = y_begin + images * abs(y_image) + groups * outputs * abs(y_output)
        depth = images * math.prod(dims.output_sizes)
        largest = max(reach + dims.reach(), of_y + depth, pieces * groups * outputs * columns)
        return _launched(tile, groups * pieces * _tiles(tile, outputs, columns), largest)

    return HandwrittenCode(
        "conv_weight",
        _GRADIENT,
        (Buffer(engine.dtype, False), Buffer(engine.dtype, False), Buffer(engine.sums, True)),
        11 + 7 * RANK,
        _variants(engine, call),
        launching,
    )


def _variants(engine: MultiplyInstructions, call: str) -> tuple[Variant, ...]:
    # With 128 registers for a thread there is room for several blocks, so that some multiply while
    # others wait for memory.
    return tuple(
        [Variant(t.name, call.format(t.kind), t.threads, 512 // t.threads) for t in engine.tiles]
    )


def _launched(tile: BlockTile, blocks: int, largest: int) -> Launch:
    is_wide = largest >= _NARROW
    return Launch(tile.name, blocks, 1, (tile.threads, 1), tile.shared, 0, 0, is_wide)


@cache
def add_code(sums: DType, result: DType) -> HandwrittenCode:
    """Return the code that adds the partial sums of pieces: see `gf_add_pieces`."""

    def launching(params: Sequence[int]) -> Launch:
        count = math.prod(params[1:5])
        return over(count, "adding", params[0] * count)

    call = f"gf_add_pieces<{memory(sums)}, {memory(result)}>"
    return HandwrittenCode(
        "conv_add",
        _FORWARD,
        (Buffer(sums, False), Buffer(result, True)),
        10,
        (Variant("adding", call, _THREADS),),
        launching,
    )


def depthwise_code(
    engine: MultiplyInstructions, rank: int, epilogue: CudaEpilogue, *, is_spread: bool
) -> HandwrittenCode:
    """Return the code of convolutions channel by channel: see `gf_depthwise_with`."""
    name, kind = f"gf_depthwise{rank}{epilogue.name}", memory(engine.dtype)
    arguments = f"{kind}, {memory(engine.sums)}, {rank}, IS_SPREAD, EACH"
    lines = [
        f"template <bool IS_SPREAD, int EACH>\nGF void {name}(const {kind}* x, "
        f"const {kind}* weight, {epilogue.parameters}, GF_DEPTHWISE_PARAMS{epilogue.numbers}, "
        "int* failed, char*) {",
        "const gf_index total = (gf_index)outputs;",
        f"const gf_index size = gf_some<{rank}>(GF_DIM(0), GF_DIM(1), GF_DIM(2)).places();",
        f"gf_depthwise_with<{arguments}>(x, weight, GF_DEPTHWISE_ARGUMENTS, [&](gf_index image, "
        f"gf_index output, gf_index place, {memory(engine.sums)} sum) {{",
        *[*epilogue.lines(), "});\n}\n"],
    ]
    call = f"{name}<{'true' if is_spread else 'false'}"

    def launching(params: Sequence[int]) -> Launch:
        images, outputs, _, begin, image_gap, channel_gap = params[:6]
        dims = dims_from(params[8:])
        size = math.prod(dims.output_sizes)
        if images * outputs * size == 0:
            return NOTHING
        each = 4 if size >= 128 else 1
        warps = images * outputs * -(-size // (32 * each))
        reach = begin + images * abs(image_gap) + outputs * abs(channel_gap) + dims.reach()
        of_weights = params[6] + outputs * abs(params[7])
        largest = max(reach, of_weights, 32 * each * warps, _reach(epilogue, params))
        grid = min(-(-warps // (_THREADS // 32)), _BLOCKS)
        name, is_wide = "four" if each == 4 else "one", largest >= _NARROW
        return Launch(name, grid, 1, (_THREADS, 1), 0, 0, 0, is_wide)

    return HandwrittenCode(
        "depthwise",
        "\n".join([_DEPTHWISE, *lines]),
        (Buffer(engine.dtype, False), Buffer(engine.dtype, False), *epilogue.buffers),
        8 + 9 * RANK + epilogue.params,
        (Variant("one", f"{call}, 1>", _THREADS), Variant("four", f"{call}, 4>", _THREADS)),
        launching,
    )


@cache
def depthwise_weight_code(engine: MultiplyInstructions, rank: int) -> HandwrittenCode:
    """Return the code of the gradient of such weights: see `gf_depthwise_weight`."""
    kinds = f"{memory(engine.dtype)}, {memory(engine.sums)}, {rank}"

    def launching(params: Sequence[int]) -> Launch:
        images, outputs, _, begin, x_image, x_channel = params[:6]
        y_begin, y_image, y_output, pieces = params[6:10]
        dims = dims_from(params[10:])
        taps = math.prod(dims.taps)
        if outputs * taps == 0:
            return NOTHING
        reach = begin + images * abs(x_image) + outputs * abs(x_channel) + dims.reach()
        of_y = y_begin + images * abs(y_image) + outputs * abs(y_output)
        depth = images * math.prod(dims.output_sizes)
        is_wide = max(reach, of_y + depth, pieces * outputs * taps) >= _NARROW
        blocks = -(-taps // _TAPS) * outputs * pieces
        return Launch("block", blocks, 1, (_THREADS, 1), 0, 0, 0, is_wide)

    return HandwrittenCode(
        "depthwise_weight",
        _DEPTHWISE,
        (Buffer(engine.dtype, False), Buffer(engine.dtype, False), Buffer(engine.sums, True)),
        10 + 7 * RANK,
        (Variant("block", f"gf_depthwise_weight<{kinds}, {_TAPS}>", _THREADS),),
        launching,
    )
