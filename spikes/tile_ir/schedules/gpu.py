"""Schedules for blocks of threads: a product, and a convolution of each channel."""

from __future__ import annotations

from spikes.tile_ir.indices import Var, axis, ceil, index
from spikes.tile_ir.ir import Fence, Tile, apply
from spikes.tile_ir.kernel import Kernel
from spikes.tile_ir.schedules.convolution import Window


def matmul(side: int = 16, each: int = 4, depth: int = 16) -> Kernel:
    """Return c = max(a @ b + bias, 0) of run-time sizes: tiles in shared memory and in registers.

    Args:
        side: Of a block's square of threads.
        each: Of the square of elements that a thread computes.
        depth: How long pieces of k are; as long as the side.
    """
    kernel, block = Kernel("matmul"), side * each
    m, n, k = (kernel.size(name) for name in "mnk")
    a = kernel.argument("a", "float32", (k, 1))
    b = kernel.argument("b", "float32", (n, 1))
    bias = kernel.argument("bias", "float32", (1,))
    c = kernel.argument("c", "float32", (n, 1), readonly=False)
    left = kernel.temporary("left", "float32", (depth, block), "shared")
    right = kernel.temporary("right", "float32", (depth, block), "shared")
    with (
        kernel.loop("m0", m, block, kind="parallel") as m0,
        kernel.loop("n0", n, block, kind="parallel") as n0,
        kernel.loop("ty", side, kind="thread") as ty,
        kernel.loop("tx", side, kind="thread") as tx,
    ):
        i, j = axis("i", each), axis("j", each)
        acc = Tile("acc", (i, j))
        row, column = m0 + ty * each + i, n0 + tx * each + j
        kernel.set(acc, 0)
        with kernel.loop("k0", k, depth) as k0:
            p, q, place = axis("p", each), axis("q", each), Var("k", 0)
            line, spot = m0 + ty + p * side, n0 + tx + q * side
            one = a[line, k0 + tx].where((line, m), (k0 + tx, k))
            other = b[k0 + ty, spot].where((k0 + ty, k), (spot, n))
            kernel.pack(left[tx, ty + p * side], one, (), (p,), p)
            kernel.pack(right[ty, tx + q * side], other, (), (q,), q)
            kernel.add(Fence())
            factors = left[place, ty * each + i], right[place, tx * each + j]
            kernel.contract(acc, *factors, (place, depth))
            kernel.add(Fence())
        value = apply("max", acc + bias[column].where((column, n)), 0.0)
        kernel.store(c[row, column].where((row, m), (column, n)), value, (i, j))
    return kernel


def depthwise(window: Window, across: int = 64, down: int = 4, rows: int = 2) -> Kernel:
    """Return a convolution of each channel: the image in shared memory, rows in registers."""
    kernel, (height, width) = Kernel("depthwise"), window.result
    size, before, taps = window.height * window.width, window.padding, window.taps
    x = kernel.argument("x", "float32", (size, window.width, 1))
    w = kernel.argument("w", "float32", (taps**2, taps, 1))
    y = kernel.argument("y", "float32", (height * width, width, 1), readonly=False)
    block, pitch = down * rows, across + taps - 1
    image = kernel.temporary("image", "float32", (block + taps - 1, pitch), "shared")
    with (
        kernel.loop("c", window.channels, kind="parallel") as c,
        kernel.loop("y0", height, block, kind="parallel") as y0,
        kernel.loop("x0", width, across, kind="parallel") as x0,
        kernel.loop("ty", down, kind="thread") as ty,
        kernel.loop("tx", across, kind="thread") as tx,
    ):
        line, spot = Var("line", 0), Var("spot", 0)
        row, column = line + ty, spot + tx
        source = x[c, y0 + row - before, x0 + column - before]
        inside = (y0 + row - before, window.height), (x0 + column - before, window.width)
        to = image[row, column].where((row, block + taps - 1), (column, pitch))
        loops = (
            (line, ceil(block + taps - 1, down) * down, down),
            (spot, ceil(pitch, across) * across, across),
        )
        one = axis("one", 1)
        kernel.pack(to, source.where(*inside), loops, (one,), one)
        kernel.add(Fence())
        i, dy, dx = axis("i", rows), Var("dy", 0), Var("dx", 0)
        acc = Tile("acc", (i,))
        kernel.set(acc, 0)
        seen = image[ty * rows + i + dy, tx + dx]
        kernel.contract(acc, w[c, dy, dx], seen, (dy, taps), (dx, taps), unroll=taps, flat=True)
        here, there = index(y0 + ty * rows + i), index(x0 + tx)
        kernel.store(y[c, here, there].where((here, height), (there, width)), acc, (i,))
    return kernel
