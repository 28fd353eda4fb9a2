"""Attention of causal queries: two contractions with a softmax between them, a strip at a time."""

from __future__ import annotations

import math

from spikes.tile_ir.ir import (
    Fold,
    Index,
    Kernel,
    Load,
    Pack,
    Set,
    Store,
    Tile,
    Var,
    apply,
    axis,
    ceil,
    expr,
    index,
    least,
)
from spikes.tile_ir.schedules.rows import LOWEST
from spikes.tile_ir.schedules.target import Target


def pack_keys(target: Target, heads: int, length: int, depth: int) -> Kernel:
    """Return keys as panels, [head][keys / panel][depth][panel]: a transpose."""
    kernel, width = Kernel("pack_keys"), 2 * target.lanes
    k = kernel.argument("k", "float32", (length * depth, depth, 1))
    strides = (length * depth, width * depth, width, 1)
    panels = kernel.argument("panels", "float32", strides, readonly=False)
    with (
        kernel.loop("head", heads, kind="parallel") as head,
        kernel.loop("panel", length // width, kind="parallel") as panel,
    ):
        i0, d0 = Var("i0", 0), Var("d0", 0)
        i, d = axis("i", target.lanes), axis("d", target.lanes, target.lanes)
        source = k[head, panel * width + i0 + i.var, d0 + d.var]
        to = panels[head, panel, d0 + d.var, i0 + i.var]
        loops = ((i0, index(width), target.lanes), (d0, index(depth), target.lanes))
        kernel.add(Pack(to, source, loops, (i, d), i.var))
    return kernel


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
            row = q1 + i.var
            with kernel.loop("p", seen // width) as p:
                acc, c = Tile("acc", (i, j)), Var("c", 0)
                kernel.add(Set(acc, expr(0)))
                left, right = q[head, q0 + row, c], panels[head, p, c, j.var]
                kernel.contract(acc, left, right, (c, depth))
                scaled = acc * (1 / math.sqrt(depth))
                kernel.add(Store(scores[row, p * width + j.var], scaled, (i, j)))
            lane = axis("lane", target.lanes, target.lanes)
            most, total = Tile("most", (i, lane)), Tile("total", (i, lane))
            top, scale, value = Tile("top", (i,)), Tile("scale", (i,)), Tile("value", (i, lane))

            kernel.add(Set(most, expr(LOWEST)))
            for masked, begin, end in ((False, index(0), clear), (True, clear, seen)):
                with kernel.loop("n", end, target.lanes, begin) as n:
                    kernel.add(
                        Set(
                            most,
                            apply(
                                "greater",
                                visible(
                                    scores[row, n + lane.var],
                                    q0 + row - n - lane.var,
                                    length,
                                    masked,
                                ),
                                most,
                            ),
                        )
                    )
            kernel.add(Set(top, Fold("greater", most)), Set(total, expr(0)))
            for masked, begin, end in ((False, index(0), clear), (True, clear, seen)):
                with kernel.loop("n", end, target.lanes, begin) as n:
                    kernel.add(
                        Set(
                            value,
                            apply(
                                "exp",
                                visible(
                                    scores[row, n + lane.var],
                                    q0 + row - n - lane.var,
                                    length,
                                    masked,
                                )
                                - top,
                            ),
                        ),
                        Set(total, total + value),
                        Store(scores[row, n + lane.var], value, (i, lane)),
                    )
            kernel.add(Set(scale, expr(1) / Fold("add", total)))
            with kernel.loop("d0", depth, width) as d0:
                mean, key = Tile("mean", (i, d)), Var("key", 0)
                kernel.add(Set(mean, expr(0)))
                kernel.contract(mean, scores[row, key], v[head, key, d0 + d.var], (key, seen))
                kernel.add(Store(y[head, q0 + row, d0 + d.var], mean * scale, (i, d)))
    return kernel
