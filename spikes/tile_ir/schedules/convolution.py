"""Convolutions: places of the image as rows of a product, and one channel at a time."""

from __future__ import annotations

from typing import NamedTuple

from spikes.tile_ir.indices import Var, axis
from spikes.tile_ir.ir import Expr, Tile, apply
from spikes.tile_ir.kernel import Kernel
from spikes.tile_ir.target import Target

FIRST = 20480
"""The most bytes of packed weights that tiles use before they go on to the next channels."""


class Window(NamedTuple):
    """A convolution of one image: channels, outputs, its height and width, and its window."""

    channels: int
    outputs: int
    height: int
    width: int
    taps: int
    stride: int
    padding: int

    @property
    def result(self) -> tuple[int, int]:
        """The height and the width of the result."""
        border = 2 * self.padding - self.taps
        return (self.height + border) // self.stride + 1, (self.width + border) // self.stride + 1

    @property
    def padded(self) -> tuple[int, int]:
        """The height and the width of the image with what is around it."""
        return self.height + 2 * self.padding, self.width + 2 * self.padding


def pad(target: Target, window: Window) -> Kernel:
    """Return the image with zeros around it: a gather whose outside is 0."""
    kernel, (rows, columns) = Kernel("pad"), window.padded
    height, width, before = window.height, window.width, window.padding
    x = kernel.argument("x", "float32", (height * width, width, 1))
    to = kernel.argument("padded", "float32", (rows * columns, columns, 1), readonly=False)
    with kernel.loop("c", window.channels, kind="parallel") as c:
        y, x0, j = Var("y", 0, rows - 1), Var("x", 0), axis("j", target.lanes, target.lanes)
        column = x0 + j
        source = x[c, y - before, column - before]
        source = source.where((y - before, height), (column - before, width))
        there = to[c, y, column].where((column, columns))
        loops = ((y, rows, 1), (x0, columns, target.lanes))
        kernel.pack(there, source, loops, (j,), j)
    return kernel


def convolution(target: Target, window: Window, rows: int, epilogue: bool = False) -> Kernel:
    """Return a convolution: tiles of places by outputs, transposed at the end.

    A work item has some rows of places and a panel of outputs.

    Args:
        target: The registers.
        window: The convolution.
        rows: The rows of places of a work item.
        epilogue: Whether a bias is added, and what is below 0 becomes 0.
    """
    kernel, (height, width) = Kernel("convolution"), window.result
    (above, beside), taps, stride = window.padded, window.taps, window.stride
    x = kernel.argument("padded", "float32", (above * beside, beside, 1))
    length, panel = window.channels * taps**2, 2 * target.lanes
    w = kernel.argument(
        "panels", "float32", (length * panel, taps**2 * panel, taps * panel, panel, 1)
    )
    bias = kernel.argument("bias", "float32", (1,)) if epilogue else None
    y = kernel.argument("y", "float32", (height * width, 1), readonly=False)
    block = kernel.temporary("block", "float32", (rows * width, panel))
    chunk = divisor(window.channels, FIRST // 4 // panel // taps**2)
    with (
        kernel.loop("y0", height, rows, kind="parallel") as y0,
        kernel.loop("o0", window.outputs // panel, kind="parallel") as o0,
    ):
        with kernel.loop("c0", window.channels, chunk) as c0, kernel.loop("y1", rows) as y1:
            for size, x1 in kernel.pieces("x1", width, target.heights(width, None)):
                i, o = axis("i", size), axis("o", panel, target.lanes)
                acc, c, dy, dx = Tile("acc", (i, o)), Var("c", 0), Var("dy", 0), Var("dx", 0)
                seen = x[c0 + c, (y0 + y1) * stride + dy, (x1 + i) * stride + dx]
                place = block[y1 * width + x1 + i, o]
                kernel.set(acc, 0)
                weights = w[o0, c0 + c, dy, dx, o]
                kernel.contract(acc, seen, weights, (c, chunk), (dy, taps), (dx, taps))
                if chunk < window.channels:
                    with kernel.when(0, c0):
                        kernel.set(acc, acc + place)
                kernel.store(place, acc, (i, o))
        with (
            kernel.loop("p", rows * width, target.square) as p,
            kernel.loop("o1", panel, target.square) as o1,
        ):
            i, o = axis("i", target.square), axis("o", target.square, target.square)
            held, output = Tile("held", (i, o)), o0 * panel + o1 + o
            kernel.set(held, block[p + i, o1 + o])
            value: Expr = held
            if bias is not None:
                value = apply("max", held + bias[output], 0.0)
            to = y[output, y0 * width + p + i].where((p + i, rows * width))
            kernel.store(to, value, (o.along(1), i.along(target.square)))
    return kernel


def divisor(number: int, most: int) -> int:
    """Return the largest divisor of a number that is not above another."""
    return next(n for n in range(max(min(number, most), 1), 0, -1) if number % n == 0)


def depthwise(target: Target, window: Window, rows: int, vectors: int) -> Kernel:
    """Return a convolution of each channel with a window of its own.

    A work item is a channel. What is around it is added as its image is copied; then tiles of rows
    by places add up what all taps see.
    """
    kernel, (height, width) = Kernel("depthwise"), window.result
    size, before, taps = window.height * window.width, window.padding, window.taps
    x = kernel.argument("x", "float32", (size, window.width, 1))
    w = kernel.argument("w", "float32", (taps**2, taps, 1))
    y = kernel.argument("y", "float32", (height * width, width, 1), readonly=False)
    across = vectors * target.lanes
    pitch = -(-width // across) * across + target.lanes
    image = kernel.temporary("image", "float32", (height + taps - 1, pitch))
    with kernel.loop("c", window.channels, kind="parallel") as c:
        row, x0, j = Var("row", 0), Var("x0", 0), axis("j", target.lanes, target.lanes)
        source = x[c, row - before, x0 + j - before]
        source = source.where((row - before, window.height), (x0 + j - before, window.width))
        loops = ((row, height + taps - 1, 1), (x0, pitch, target.lanes))
        kernel.pack(image[row, x0 + j], source, loops, (j,), j)
        with kernel.loop("x1", width, across) as x1:
            for many, y0 in kernel.pieces("y0", height, (rows, 1)):
                i, j = axis("i", many), axis("j", across, target.lanes)
                acc, dy, dx = Tile("acc", (i, j)), Var("dy", 0), Var("dx", 0)
                kernel.set(acc, 0)
                seen = image[y0 + i + dy, x1 + j + dx]
                over = ((dy, taps), (dx, taps))
                kernel.contract(acc, w[c, dy, dx], seen, *over, unroll=taps, flat=True)
                to = y[c, y0 + i, x1 + j].where((x1 + j, width))
                kernel.store(to, acc, (i, j))
    return kernel
