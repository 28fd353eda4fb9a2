"""Convolutions of 3 x 3 by Winograd's F(4 x 4, 3 x 3): 36 products between two transforms.

Lanes are channels in the image's transform and outputs in the result's, so that both read and write
whole registers, and rows of the products are tiles of the image: none is wasted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import F4
from spikes.tile_ir.indices import Axis, IndexLike, Var, axis
from spikes.tile_ir.ir import Expr, Load, Tile, apply
from spikes.tile_ir.kernel import Kernel
from spikes.tile_ir.schedules.convolution import Window
from spikes.tile_ir.target import Target


def pixels_first(target: Target, window: Window) -> Kernel:
    """Return the image as [row][column][channel], with zeros around it."""
    kernel, (rows, columns), before = Kernel("pixels_first"), window.padded, window.padding
    x = kernel.argument("x", "float32", (window.height * window.width, window.width, 1))
    out = (columns * window.channels, window.channels, 1)
    to = kernel.argument("pixels", "float32", out, readonly=False)
    with kernel.loop("y", rows, kind="parallel") as y:
        c0, x0 = Var("c0", 0), Var("x0", 0)
        lanes = target.square
        c, i = axis("c", lanes), axis("i", lanes, lanes)
        column = x0 + i
        source = x[c0 + c, y - before, column - before]
        source = source.where((y - before, window.height), (column - before, window.width))
        there = to[y, column, c0 + c].where((column, columns))
        loops = ((x0, columns, lanes), (c0, window.channels, lanes))
        kernel.pack(there, source, loops, (c, i), c)
    return kernel


def transformed_weights(target: Target, window: Window) -> Kernel:
    """Return packed weights, transformed: [36][outputs / panel][channel][panel]."""
    kernel, panel = Kernel("transformed_weights"), 2 * target.lanes
    channels, panels = window.channels, window.outputs // panel
    w = kernel.argument("panels", "float32", (channels * 9 * panel, 9 * panel, panel, 1))
    strides = (panels * channels * panel, channels * panel, panel, 1)
    to = kernel.argument("weights", "float32", strides, readonly=False)
    o = axis("o", panel, target.lanes)
    with kernel.loop("p", panels, kind="parallel") as p, kernel.loop("c", channels) as c:
        _both(
            kernel,
            o,
            lambda i, j: w[p, c, i * 3 + j, o],
            lambda x: [_sum(row, x) for row in F4.of_kernel],
            lambda i, j: to[i * 6 + j, p, c, o],
            (3, 6),
        )
    return kernel


def transformed_image(target: Target, window: Window) -> Kernel:
    """Return tiles of 6 x 6 pixels, transformed: [36][tile][channel]."""
    kernel, (down, across) = Kernel("transformed_image"), _tiles(window)
    channels, columns = window.channels, window.padded[1]
    x = kernel.argument("pixels", "float32", (columns * channels, channels, 1))
    strides = (down * across * channels, across * channels, channels, 1)
    to = kernel.argument("image", "float32", strides, readonly=False)
    c = axis("c", target.lanes, target.lanes)
    with (
        kernel.loop("ty", down, kind="parallel") as ty,
        kernel.loop("tx", across) as tx,
        kernel.loop("c0", channels, target.lanes) as c0,
    ):
        _both(
            kernel,
            c,
            lambda i, j: x[ty * 4 + i, tx * 4 + j, c0 + c],
            lambda x: _image(kernel, c, x),
            lambda i, j: to[i * 6 + j, ty, tx, c0 + c],
            (6, 6),
        )
    return kernel


def products(target: Target, window: Window) -> Kernel:
    """Return the 36 products: [36][tile][outputs]."""
    kernel, (down, across) = Kernel("products"), _tiles(window)
    tiles, panel, channels = down * across, 2 * target.lanes, window.channels
    panels = window.outputs // panel
    x = kernel.argument("image", "float32", (tiles * channels, channels, 1))
    strides = (panels * channels * panel, channels * panel, panel, 1)
    w = kernel.argument("weights", "float32", strides)
    to = kernel.argument("sums", "float32", (tiles * window.outputs, window.outputs, 1), False)
    with kernel.loop("each", 36, kind="parallel") as each, kernel.loop("p", panels) as p:
        for size, row in kernel.pieces("row", tiles, target.heights(tiles, 4 * channels)):
            i, o, c = axis("i", size), axis("o", panel, target.lanes), Var("c", 0)
            acc = Tile("acc", (i, o))
            kernel.set(acc, 0)
            left, right = x[each, row + i, c], w[each, p, c, o]
            kernel.contract(acc, left, right, (c, channels))
            kernel.store(to[each, row + i, p * panel + o], acc, (i, o))
    return kernel


def result(target: Target, window: Window) -> Kernel:
    """Return the result of sums: transformed to 4 x 4 pixels, which are then transposed."""
    kernel, (down, across), lanes = Kernel("result"), _tiles(window), target.lanes
    height, width = window.result
    strides = (down * across * window.outputs, across * window.outputs, window.outputs, 1)
    x = kernel.argument("sums", "float32", strides)
    y = kernel.argument("y", "float32", (height * width, 1), readonly=False)
    block = kernel.temporary("block", "float32", (4, width, lanes))
    with (
        kernel.loop("ty", down, kind="parallel") as ty,
        kernel.loop("o0", window.outputs, lanes) as o0,
    ):
        o = axis("o", lanes, lanes)
        with kernel.loop("tx", across) as tx:
            _both(
                kernel,
                o,
                lambda i, j: x[i * 6 + j, ty, tx, o0 + o],
                lambda x: _result(kernel, o, x),
                lambda i, j: block[i, tx * 4 + j, o],
                (6, 4),
            )
        p0, side = Var("p0", 0), target.square
        p, q = axis("p", side), axis("q", lanes, side)
        source = block[0, p0 + p, q]
        to = y[o0 + q, ty * 4 * width + p0 + p].where((p0 + p, 4 * width))
        kernel.pack(to, source, ((p0, 4 * width, side),), (p, q), p)
    return kernel


def _tiles(window: Window) -> tuple[int, int]:
    """Return how many tiles of 4 x 4 pixels the result has, down and across."""
    height, width = window.result
    assert height % 4 == width % 4 == 0, "other sizes need a border"
    return height // 4, width // 4


def _both(
    kernel: Kernel,
    lanes: Axis,
    read: Callable[[IndexLike, IndexLike], Load],
    transform: Callable[[list[Tile]], Sequence[Expr]],
    write: Callable[[IndexLike, IndexLike], Load],
    sizes: tuple[int, int],
) -> None:
    """Transform a tile along its columns, then along its rows; sizes are before and after."""
    before, after = sizes
    half = kernel.temporary("half", "float32", (after, before, lanes.size))
    with kernel.loop("column", before) as j:
        seen = [_held(kernel, lanes, read(i, j)) for i in range(before)]
        for i, value in enumerate(transform(seen)):
            kernel.store(half[i, j, lanes], value, (lanes,))
    with kernel.loop("row", after) as row:
        seen = [_held(kernel, lanes, half[row, k, lanes]) for k in range(before)]
        for k, value in enumerate(transform(seen)):
            kernel.store(write(row, k), value, (lanes,))


def _held(kernel: Kernel, lanes: Axis, value: Expr) -> Tile:
    """Return a register that holds a value."""
    tile = Tile("held", (lanes,))
    kernel.set(tile, value)
    return tile


def _sum(factors: Sequence[Fraction], values: Sequence[Expr]) -> Expr:
    """Return the sum of values times numbers."""
    terms = [(f, v) for f, v in zip(factors, values, strict=True) if f]
    (first, value), *others = sorted(terms, key=lambda term: term[0] != 1)
    total = value if first == 1 else value * float(first)
    for factor, value in others:
        total = total + value if factor == 1 else apply("fma", value, float(factor), total)
    return total


def _image(kernel: Kernel, lanes: Axis, x: Sequence[Tile]) -> list[Tile]:
    """Return six elements transformed; rows of a point and of its negative differ in signs only."""
    first, *rows, last = F4.of_image
    values = [_sum(first, x)]
    for one, other in zip(rows[::2], rows[1::2], strict=True):
        parts = [
            _held(
                kernel,
                lanes,
                _sum([a * (a == sign * b) for a, b in zip(one, other, strict=True)], x),
            )
            for sign in (1, -1)
        ]
        values += [parts[0] + parts[1], parts[0] - parts[1]]
    return [_held(kernel, lanes, value) for value in (*values, _sum(last, x))]


def _result(kernel: Kernel, lanes: Axis, x: Sequence[Tile]) -> list[Tile]:
    """Return the four elements of six sums: even powers of a point are those of its negative."""
    pairs = list(zip(x[1:5:2], x[2:5:2], strict=True))
    parts = (
        [_held(kernel, lanes, a + b) for a, b in pairs],
        [_held(kernel, lanes, a - b) for a, b in pairs],
    )
    values = [_sum([p**n for p in F4.points[1::2]], parts[n % 2]) for n in range(4)]
    values[0], values[3] = values[0] + x[0], values[3] + x[5]
    return [_held(kernel, lanes, value) for value in values]
