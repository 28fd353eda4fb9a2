"""Sources, random bits, and ops that only move elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphfw.ir.constants import fill_value
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import bool_, float32, int64
from graphfw.ir.tensor import Node
from graphfw.onnx.builder import Builder, Val
from graphfw.onnx.errors import Unsupported
from graphfw.onnx.table import writes

LAST = np.iinfo(np.int64).min
"""As the end of a slice that goes backwards: behind the first element."""


def fields(node: Node) -> Any:
    """Return a node's op, whose fields are read."""
    return node.op


@writes("constant")
def _constant(b: Builder, node: Node) -> Val:
    return b.constant(fields(node).value.array)


@writes("dim_value")
def _dim_value(b: Builder, node: Node) -> Val:
    return b.cast(b.size(fields(node).dim), node.types[0].dtype)


@writes("arange")
def _arange(b: Builder, node: Node) -> Val:
    op = fields(node)
    return b.cast(positions(b, op.size, op.start, op.step), node.types[0].dtype)


def positions(b: Builder, count: DimLike, start: DimLike = 0, step: int = 1) -> Val:
    """Return start, start + step, …"""
    if not isinstance(count, Dim) and not isinstance(start, Dim) and count <= 64:
        return b.ints([start + step * i for i in range(count)])
    return b("Range", b.size(start), b.size(start + count * step), b.size(step), dtype=int64)


@writes("random_bits")
def _random_bits(b: Builder, node: Node) -> Val:
    """Put bits together from numbers below 2^16, which floats hold."""
    op = fields(node)
    if not b.draws:
        raise Unsupported("")

    def draw() -> Val:
        like = b("Expand", b.scalar(0, float32), b.shape(op.dims))
        total: Val | None = None
        for _ in range(2 * op.words):
            number = b("RandomUniformLike", like, low=0.0, high=65536.0)
            part = b.cast(b("Min", b("Floor", number), b.scalar(65535, float32)), int64)
            total = (
                part if total is None else b("Add", b("Mul", total, b.scalar(65536, int64)), part)
            )
        assert total is not None
        return b.cast(total, node.types[0].dtype)

    return b.drawn(op, draw)


@writes("identity", "stop_gradient", "assert_shape")
def _itself(b: Builder, node: Node, x: Val) -> Val:
    return x


@writes("barrier", "custom_gradient")
def _first(b: Builder, node: Node, *xs: Val) -> list[Val]:
    return list(xs[: fields(node).count])


@writes("print", "check", "breakpoint")
def _effect(b: Builder, node: Node, *xs: Val) -> Val:
    """A model has no effects; what is computed with their tokens goes on."""
    return b.constant(True)


@writes("reshape")
def _reshape(b: Builder, node: Node, x: Val) -> Val:
    return b.reshape(x, node.types[0].shape)


@writes("permute_dims")
def _permute(b: Builder, node: Node, x: Val) -> Val:
    return b("Transpose", x, perm=fields(node).axes)


@writes("broadcast_to")
def _broadcast(b: Builder, node: Node, x: Val) -> Val:
    return b("Expand", x, b.shape(node.types[0].shape))


@writes("flip")
def _flip(b: Builder, node: Node, x: Val) -> Val:
    axes = fields(node).axes
    ends = b.ints([LAST] * len(axes))
    return b("Slice", x, b.ints([-1] * len(axes)), ends, b.ints(axes), b.ints([-1] * len(axes)))


@writes("roll")
def _roll(b: Builder, node: Node, x: Val) -> Val:
    op = fields(node)
    for shift, axis in zip(op.shifts, op.axes, strict=True):
        size = node.types[0].shape[axis]
        if size == 0:
            continue
        places = b("Sub", positions(b, size), b.dim(shift))
        x = b("Gather", x, b("Mod", places, b.dim(size)), axis=axis)
    return x


@writes("concat")
def _concat(b: Builder, node: Node, *xs: Val) -> Val:
    return b("Concat", *xs, axis=fields(node).axis) if len(xs) > 1 else xs[0]


@writes("split")
def _split(b: Builder, node: Node, x: Val) -> list[Val]:
    op = fields(node)
    if len(op.lengths) == 1:
        return [x]
    lengths = b.shape(op.lengths)
    return b.many("Split", [x, lengths], [x.dtype] * len(op.lengths), axis=op.axis)


@writes("slice")
def _slice(b: Builder, node: Node, x: Val) -> Val:
    op = fields(node)
    cut = [
        (start, start + length * step, axis, step)
        for axis, (start, length, step) in enumerate(op.axes())
        if (start, length, step) != (0, node.inputs[0].shape[axis], 1)
    ]
    if not cut:
        return x
    starts, ends, axes, steps = zip(*cut, strict=True)
    return b("Slice", x, b.shape(starts), b.shape(ends), b.ints(axes), b.ints(steps))


@writes("slice_set")
def _slice_set(b: Builder, node: Node, x: Val, values: Val) -> Val:
    op, sizes = fields(node), node.inputs[0].shape
    cut = [
        axis
        for axis, (start, length, step) in enumerate(op.axes())
        if (start, length, step) != (0, sizes[axis], 1)
    ]
    if 0 in op.lengths:
        return x
    if not cut:
        return values
    fill = fill_value(node.inputs[0])
    if fill is not None and set(op.steps) == {1}:
        behind = [n - s - c for n, s, c in zip(sizes, op.starts, op.lengths, strict=True)]
        return b("Pad", values, b.shape((*op.starts, *behind)), b.constant(fill))
    return _chosen(b, node, x, values, cut)


def _chosen(b: Builder, node: Node, x: Val, values: Val, cut: list[int]) -> Val:
    """Spread the values along the axes that are cut, and take them where the window is."""
    op, sizes = fields(node), node.inputs[0].shape
    inside = None
    for axis in cut:
        start, length, step = op.starts[axis], op.lengths[axis], op.steps[axis]
        offset = b("Sub", positions(b, sizes[axis]), b.dim(start))
        last = b.dim((length - 1) * step)
        within = b("Min", b("Max", offset, b.ints([0])), last)
        values = b("Gather", values, b("Div", within, b.ints([step])), axis=axis)
        hit = b("Equal", offset, b("Sub", within, b("Mod", within, b.ints([step]))), dtype=bool_)
        hit = b("Reshape", hit, b.ints([-1, *[1] * (len(sizes) - 1 - axis)]))
        inside = hit if inside is None else b("And", inside, hit)
    assert inside is not None
    return b("Where", inside, values, x)


@writes("diagonal")
def _diagonal(b: Builder, node: Node, x: Val) -> Val:
    offset = fields(node).offset
    *lead, rows, columns = node.inputs[0].shape
    flat = b.reshape(x, (*lead, rows * columns))
    count = node.types[0].shape[-1]
    along = positions(b, count)
    first = b.dim(max(-offset, 0) * columns + max(offset, 0))
    places = b("Add", b("Mul", along, b.dim(columns + 1)), first)
    return b("Gather", flat, places, axis=len(lead))
