"""Convolutions of 3 x 3 by Winograd's F(4 x 4, 3 x 3): 36 products between two transforms.

Lanes are channels in the image's transform and outputs in the result's, so that both read and write
whole registers, and rows of the products are tiles of the image: none is wasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from graphfw.runtime.numpy_executor.convolution.winograd.algorithm import F4
from spikes.tile_ir.ir import (
    Axis,
    Expr,
    Kernel,
    Pack,
    Set,
    Store,
    Tile,
    Var,
    apply,
    axis,
    expr,
    index,
)
from spikes.tile_ir.schedules.convolution import Window
from spikes.tile_ir.schedules.target import Target


def pixels_first(target: Target, window: Window) -> Kernel:
    """Return the image as [row][column][channel], with zeros around it."""
    kernel, (rows, columns), before = Kernel("pixels_first"), window.padded, window.padding
    strides = (window.height * window.width, window.width, 1)
    x = kernel.argument("x", "float32", strides)
    out = (columns * window.channels, window.channels, 1)
    to = kernel.argument("pixels", "float32", out, readonly=False)
    with kernel.loop("y", rows, kind="parallel") as y:
        c0, x0 = Var("c0", 0), Var("x0", 0)
        c, i = axis("c", target.lanes), axis("i", target.lanes, target.lanes)
        column = x0 + i.var
        source = x[c0 + c.var, y - before, column - before]
        source = source.where((y - before, window.height), (column - before, window.width))
        there = to[y, column, c0 + c.var].where((column, columns))
        lanes = target.lanes
        loops = ((x0, index(columns), lanes), (c0, index(window.channels), lanes))
        kernel.add(Pack(there, source, loops, (c, i), c.var))
    return kernel


def transformed_weights(target: Target, window: Window) -> Kernel:
    """Return packed weights, transformed: [36][outputs / panel][channel][panel]."""
    kernel, panel = Kernel("transformed_weights"), 2 * target.lanes
    channels, panels = window.channels, window.outputs // panel
    w = kernel.argument("panels", "float32", (channels * 9 * panel, 9 * panel, panel, 1))
    strides = (panels * channels * panel, channels * panel, panel, 1)
    to = kernel.argument("weights", "float32", strides, readonly=False)
    with kernel.loop("p", panels, kind="parallel") as p, kernel.loop("c", channels) as c:
        o = axis("o", panel, target.lanes)
        taps = [[_held(kernel, o, w[p, c, 3 * i + j, o.var]) for j in range(3)] for i in range(3)]
        half = [
            [_held(kernel, o, _sum(row, column)) for row in F4.of_kernel]
            for column in zip(*taps, strict=True)
        ]
        for i, column in enumerate(zip(*half, strict=True)):
            for j, row in enumerate(F4.of_kernel):
                kernel.add(Store(to[6 * i + j, p, c, o.var], _sum(row, column), (o,)))
    return kernel


def transformed_image(target: Target, window: Window) -> Kernel:
    """Return tiles of 6 x 6 pixels, transformed: [36][tile][channel]."""
    kernel, (down, across) = Kernel("transformed_image"), _tiles(window)
    channels, columns = window.channels, window.padded[1]
    x = kernel.argument("pixels", "float32", (columns * channels, channels, 1))
    strides = (down * across * channels, across * channels, channels, 1)
    to = kernel.argument("image", "float32", strides, readonly=False)
    with (
        kernel.loop("ty", down, kind="parallel") as ty,
        kernel.loop("tx", across) as tx,
        kernel.loop("c0", channels, target.lanes) as c0,
    ):
        c, half = axis("c", target.lanes, target.lanes), []
        for j in range(6):
            seen = [x[ty * 4 + i, tx * 4 + j, c0 + c.var] for i in range(6)]
            half.append(_image(kernel, c, [_held(kernel, c, one) for one in seen]))
        for i, row in enumerate(zip(*half, strict=True)):
            for j, value in enumerate(_image(kernel, c, list(row))):
                kernel.add(Store(to[6 * i + j, ty, tx, c0 + c.var], value, (c,)))
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
    with (
        kernel.loop("each", 36, kind="parallel") as each,
        kernel.loop("p", panels) as p,
    ):
        for size, row in kernel.pieces("row", tiles, target.heights(tiles, 4 * channels)):
            i, o, c = axis("i", size), axis("o", panel, target.lanes), Var("c", 0)
            acc = Tile("acc", (i, o))
            kernel.add(Set(acc, expr(0)))
            left, right = x[each, row + i.var, c], w[each, p, c, o.var]
            kernel.contract(acc, left, right, (c, channels))
            kernel.add(Store(to[each, row + i.var, p * panel + o.var], acc, (i, o)))
    return kernel


def result(target: Target, window: Window) -> Kernel:
    """Return the result of sums: transformed to 4 x 4 pixels, which are then transposed."""
    kernel, (down, across), lanes = Kernel("result"), _tiles(window), target.lanes
    height, width = window.result
    strides = (down * across * window.outputs, across * window.outputs, window.outputs, 1)
    x = kernel.argument("sums", "float32", strides)
    y = kernel.argument("y", "float32", (height * width, 1), readonly=False)
    block = kernel.temporary("block", "float32", (4, width, lanes))
    flat = block.strides[1]
    with (
        kernel.loop("ty", down, kind="parallel") as ty,
        kernel.loop("o0", window.outputs, lanes) as o0,
    ):
        with kernel.loop("tx", across) as tx:
            o, half = axis("o", lanes, lanes), []
            for j in range(6):
                seen = [x[6 * i + j, ty, tx, o0 + o.var] for i in range(6)]
                half.append(_result(kernel, o, [_held(kernel, o, one) for one in seen]))
            for i, row in enumerate(zip(*half, strict=True)):
                for j, value in enumerate(_result(kernel, o, list(row))):
                    kernel.add(Store(block[i, tx * 4 + j, o.var], value, (o,)))
        p0, p, q = Var("p0", 0), axis("p", lanes), axis("q", lanes, lanes)
        source = block[0, p0 + p.var, q.var]
        to = y[o0 + q.var, ty * 4 * width + p0 + p.var].where((p0 + p.var, 4 * width))
        assert flat == lanes
        kernel.add(Pack(to, source, ((p0, index(4 * width), lanes),), (p, q), p.var))
    return kernel


def _tiles(window: Window) -> tuple[int, int]:
    """Return how many tiles of 4 x 4 pixels the result has, down and across."""
    height, width = window.result
    assert height % 4 == width % 4 == 0, "other sizes need a border"
    return height // 4, width // 4


def _held(kernel: Kernel, lanes: Axis, value: Expr) -> Tile:
    """Return a register that holds a value."""
    tile = Tile("held", (lanes,))
    kernel.add(Set(tile, value))
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
