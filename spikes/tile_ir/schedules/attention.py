"""Attention of causal queries: two contractions with a softmax between them, a strip at a time."""

from __future__ import annotations

import math

from spikes.tile_ir.indices import Index, Var, axis, ceil, index, least
from spikes.tile_ir.ir import Fold, Load, Tile, apply
from spikes.tile_ir.kernel import Kernel
from spikes.tile_ir.schedules.rows import LOWEST
from spikes.tile_ir.target import Target


def visible(score: Load, distance: Index, length: int, masked: bool) -> Load:
    """Return a score, or the lowest number where a key comes after the query."""
    return score.where((distance, length), outside=LOWEST) if masked else score


def attention(target: Target, heads: int, length: int, depth: int, rows: int) -> Kernel:
    """Return causal attention: for a block of queries its scores, their softmax, the mean values.

    Args:
        target: The registers.
        heads: How many heads there are.
        length: The number of queries and of keys, a multiple of a panel.
        depth: The length of a query, a key and a value.
        rows: The queries of a work item.
    """
    kernel, width = Kernel("attention"), 2 * target.lanes
    q, v = (kernel.argument(n, "float32", (length * depth, depth, 1)) for n in "qv")
    strides = (length * depth, width * depth, width, 1)
    panels = kernel.argument("panels", "float32", strides)
    y = kernel.argument("y", "float32", (length * depth, depth, 1), readonly=False)
    scores = kernel.temporary("scores", "float32", (rows, length))
    with (
        kernel.loop("head", heads, kind="parallel") as head,
        kernel.loop("q0", length, rows, kind="parallel") as q0,
    ):
        # The keys that some query sees, in whole panels, and those that all of them see.
        seen = ceil(least(q0 + rows, length), width) * width
        clear = (q0 + 1) // width * width
        for size, q1 in kernel.pieces("q1", least(rows, length - q0), target.heights(rows, None)):
            i, d = axis("i", size), axis("d", width, target.lanes)
            j = axis("j", width, target.lanes)
            row = q1 + i
            with kernel.loop("p", seen // width) as p:
                acc, c = Tile("acc", (i, j)), Var("c", 0)
                kernel.set(acc, 0)
                left, right = q[head, q0 + row, c], panels[head, p, c, j]
                kernel.contract(acc, left, right, (c, depth))
                scaled = acc * (1 / math.sqrt(depth))
                kernel.store(scores[row, p * width + j], scaled, (i, j))
            lane = axis("lane", target.lanes, target.lanes)
            most, total = Tile("most", (i, lane)), Tile("total", (i, lane))
            top, scale, value = Tile("top", (i,)), Tile("scale", (i,)), Tile("value", (i, lane))

            parts = ((False, index(0), clear), (True, clear, seen))
            kernel.set(most, LOWEST)
            for masked, begin, end in parts:
                with kernel.loop("n", end, target.lanes, begin) as n:
                    score = visible(scores[row, n + lane], q0 + row - n - lane, length, masked)
                    kernel.set(most, apply("greater", score, most))
            kernel.set(top, Fold("greater", most))
            kernel.set(total, 0)
            for masked, begin, end in parts:
                with kernel.loop("n", end, target.lanes, begin) as n:
                    score = visible(scores[row, n + lane], q0 + row - n - lane, length, masked)
                    kernel.set(value, apply("exp", score - top))
                    kernel.set(total, total + value)
                    kernel.store(scores[row, n + lane], value, (i, lane))
            kernel.set(scale, 1 / Fold("add", total))
            with kernel.loop("d0", depth, width) as d0:
                mean, key = Tile("mean", (i, d)), Var("key", 0)
                kernel.set(mean, 0)
                kernel.contract(mean, scores[row, key], v[head, key, d0 + d], (key, seen))
                kernel.store(y[head, q0 + row, d0 + d], mean * scale, (i, d))
    return kernel
