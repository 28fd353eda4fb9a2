"""Operators that only move elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import graphfw as gf
from graphfw.errors import ShapeError, counted
from graphfw.ir.constants import fill_value
from graphfw.ir.dim import Dim, DimLike, always_ge, always_le, dim_max
from graphfw.ir.dtype import bool_
from graphfw.ir.tensor import Node, Tensor
from graphfw.onnx.builder import LAST, Builder, Val, fields, positions
from graphfw.onnx.fitting import expanded, joined, reshaped
from graphfw.onnx.measuring import clipped, dims_of, resolved
from graphfw.onnx.node import ModelNode, Value
from graphfw.onnx.table import Attribute, Rule, reads, two_way, writes

# Other shapes


@reads("Reshape", moves=True)
def _reshape(node: ModelNode, x: Tensor, shape: Tensor | None = None) -> Tensor:
    copies_zeros = not node.attr("allowzero", 0)
    if shape is None:
        dims: tuple[DimLike, ...] = node.attr("shape")
    else:
        node.require(shape.ndim == 1, f"the new shape has {counted(shape.ndim, 'dim')}, not 1")
        dims = dims_of(node, shape, "the new shape", lambda s: resolved(x, s, copies_zeros))
    if copies_zeros:
        node.require(0 not in dims[x.ndim :], f"x has no axis for each 0 of the new shape {dims}")
        dims = tuple([x.shape[i] if d == 0 else d for i, d in enumerate(dims)])
    return reshaped(x, dims)


@writes("reshape")
def _write_reshape(b: Builder, node: Node, x: Val) -> Val:
    return b.reshape(x, node.types[0].shape)


@reads("Flatten", moves=True)
def _flatten(node: ModelNode, x: Tensor) -> Tensor:
    axis = node.attr("axis", 1)  # from 0 to the rank, both included; negative ones count from it
    axis = x.ndim if axis == x.ndim else node.axis(axis, x.ndim)
    rows, columns = x.shape[:axis], x.shape[axis:]
    return gf.reshape(x, (_product(rows), _product(columns)))


def _product(dims: Sequence[DimLike]) -> DimLike:
    made: DimLike = 1
    for dim in dims:
        made = made * dim
    return made


@reads("Unsqueeze", moves=True)
def _unsqueeze(node: ModelNode, x: Tensor, axes: Tensor | None = None) -> Tensor:
    axis_indices = _axes(node, axes) or ()
    rank = x.ndim + len(axis_indices)
    for axis in sorted(node.axis(a, rank) for a in axis_indices):
        x = gf.expand_dims(x, axis)
    return x


@reads("Squeeze", moves=True)
def _squeeze(node: ModelNode, x: Tensor, axes: Tensor | None = None) -> Tensor:
    axis_indices = _axes(node, axes)
    if axis_indices is None:
        open_ = [d for d in x.shape if isinstance(d, Dim) and not always_ge(d, 2)]
        if open_:
            raise ShapeError(
                f"Squeeze: without axes it takes those of size 1 away, and {open_[0]} may be 1",
                fix="say it when you load: shapes={name: (…)}",
            )
        axis_indices = tuple([i for i, dim in enumerate(x.shape) if dim == 1])
    # A slice of one row of a dim of any size has min(n, 1) rows: that there is one is checked when
    # it runs.
    gone = {node.axis(a, x.ndim) for a in axis_indices}
    sizes = [1 if i in gone and isinstance(d, Dim) else d for i, d in enumerate(x.shape)]
    return gf.squeeze(gf.assert_shape(x, sizes) if sizes != list(x.shape) else x, axis_indices)


two_way(Rule("Transpose", gf.permute_dims, {"axes": Attribute("perm")}, moves=True))


@reads("Expand", moves=True)
def _expand(node: ModelNode, x: Tensor, shape: Tensor) -> Tensor:
    return expanded(x, dims_of(node, shape, "the shape"))


@writes("broadcast_to")
def _write_broadcast(b: Builder, node: Node, x: Val) -> Val:
    return b("Expand", x, b.shape(node.types[0].shape))


@reads("Identity", "Optional")
def _identity(node: ModelNode, x: Value = None) -> Value:
    return x


@writes("identity", "stop_gradient", "assert_shape")
def _write_itself(b: Builder, node: Node, x: Val) -> Val:
    return x


@writes("barrier", "custom_gradient")
def _write_first(b: Builder, node: Node, *xs: Val) -> list[Val]:
    return list(xs[: fields(node).count])


@writes("print", "check", "breakpoint")
def _write_effect(b: Builder, node: Node, *xs: Val) -> Val:
    """Write a constant: a model has no effects."""
    return b.constant(True)


# Concatenating and splitting


@reads("Concat", moves=True)
def _concat(node: ModelNode, *xs: Tensor) -> Tensor:
    axis = node.axis(node.attr("axis"), xs[0].ndim)
    return gf.concat(joined(xs, axis), axis=axis)


@writes("concat")
def _write_concat(b: Builder, node: Node, *xs: Val) -> Val:
    return b("Concat", *xs, axis=fields(node).axis) if len(xs) > 1 else xs[0]


@reads("Split", moves=True)
def _split(node: ModelNode, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis = node.axis(node.attr("axis", 0), x.ndim)
    sections, size = node.attr("num_outputs", len(node.outputs)), x.shape[axis]
    lengths = node.attr("split", None) if sizes is None else dims_of(node, sizes, "the sizes")
    if lengths is None:
        node.require(sections == len(node.outputs), f"num_outputs is {sections}")
        length = -(-size // sections)
        lengths = [*[length] * (sections - 1), size - length * (sections - 1)]
    total = sum(lengths)
    same = total == size or isinstance(total, Dim) or isinstance(size, Dim)
    fits = same and len(lengths) == len(node.outputs)
    node.require(
        fits,
        f"the sizes {tuple(lengths)} are not those of {counted(sections, 'section')} of {size}",
    )
    ends: list[DimLike] = []
    end: DimLike = 0
    for length in lengths[:-1]:
        end = end + length
        ends.append(end)
    if ends:
        return gf.split(x, ends, axis=axis)
    return (x,)


@writes("split")
def _write_split(b: Builder, node: Node, x: Val) -> list[Val]:
    op = fields(node)
    if len(op.lengths) == 1:
        return [x]
    lengths = b.shape(op.lengths)
    return b.many("Split", [x, lengths], [x.dtype] * len(op.lengths), axis=op.axis)


@reads("Slice", moves=True)
def _slice(
    node: ModelNode,
    x: Tensor,
    starts: Tensor | None = None,
    ends: Tensor | None = None,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:

    def inside(bounds: Tensor) -> Tensor:
        if min(by or (1,)) < 0:
            node.known(bounds, "the bounds of a slice that goes backwards")
        return clipped(x, bounds, _axes(node, axes))

    by = None if steps is None else node.ints(steps, "the steps")
    if starts is None or ends is None:
        first, last = node.attr("starts"), node.attr("ends")
    else:
        first = dims_of(node, starts, "the starts", inside)
        last = dims_of(node, ends, "the ends", inside)
    along = _axes(node, axes) or tuple(range(len(first)))
    by = by or (1,) * len(first)
    counts = [len(v) for v in (first, last, along, by)]
    node.require(len(set(counts)) == 1, f"its starts, ends, axes, steps are so many: {counts}")
    node.require(0 not in by, "a step is 0")
    key: list[Any] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(along, first, last, by, strict=True):
        axis = node.axis(axis, x.ndim)
        key[axis] = _window(start, end, step, x.shape[axis])
    return x[tuple(key)]


_FAR = 2**31 - 1
"""A bound that lies beyond any size, as exporters write it: so do larger ones, and its negative."""


def _window(start: DimLike, end: DimLike, step: int, size: DimLike) -> slice:
    """Return a slice as Python has it, which knows no bounds beyond all sizes."""
    first, last = _near(start), _near(end)
    if last == _FAR * (1 if step < 0 else -1) or (step > 0 and first == _FAR):
        return slice(0, 0, step)  # it ends before the first element, or begins after the last
    if first == -_FAR * (1 if step > 0 else -1):
        first = None
    elif step < 0 and isinstance(first, int) and first < -1:
        first = dim_max(size + first, 0)  # where Python finds nothing, ONNX has the first element
    if last == _FAR * (1 if step > 0 else -1):
        last = None
    elif step < 0 and isinstance(last, int) and isinstance(size, int) and last < -size:
        last = None
    return slice(first, last, step)


def _near(position: DimLike) -> DimLike | None:
    """Return a bound; one that lies beyond any size becomes `_FAR`, or its negative."""
    return max(-_FAR, min(position, _FAR)) if isinstance(position, int) else position


@writes("slice")
def _write_slice(b: Builder, node: Node, x: Val) -> Val:
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
def _write_slice_set(b: Builder, node: Node, x: Val, values: Val) -> Val:
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
        after = [n - s - c for n, s, c in zip(sizes, op.starts, op.lengths, strict=True)]
        return b("Pad", values, b.shape((*op.starts, *after)), b.constant(fill))
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


@writes("flip")
def _write_flip(b: Builder, node: Node, x: Val) -> Val:
    axes = fields(node).axes
    ends = b.ints([LAST] * len(axes))
    return b("Slice", x, b.ints([-1] * len(axes)), ends, b.ints(axes), b.ints([-1] * len(axes)))


@writes("roll")
def _write_roll(b: Builder, node: Node, x: Val) -> Val:
    op = fields(node)
    for shift, axis in zip(op.shifts, op.axes, strict=True):
        size = node.types[0].shape[axis]
        if size == 0:
            continue
        indices = b("Sub", positions(b, size), b.dim(shift))
        x = b("Gather", x, b("Mod", indices, b.dim(size)), axis=axis)
    return x


@writes("diagonal")
def _write_diagonal(b: Builder, node: Node, x: Val) -> Val:
    offset = fields(node).offset
    *lead, rows, columns = node.inputs[0].shape
    flat = b.reshape(x, (*lead, rows * columns))
    count = node.types[0].shape[-1]
    along = positions(b, count)
    first = b.dim(max(-offset, 0) * columns + max(offset, 0))
    indices = b("Add", b("Mul", along, b.dim(columns + 1)), first)
    return b("Gather", flat, indices, axis=len(lead))


@reads("Tile", moves=True)
def _tile(node: ModelNode, x: Tensor, repeats: Tensor) -> Tensor:
    counts = dims_of(node, repeats, "the repeats")
    node.require(
        len(counts) == x.ndim,
        f"it has {counted(len(counts), 'repeat')} for {counted(x.ndim, 'dim')}",
    )
    return gf.tile(x, counts)


@reads("Pad", moves=True)
def _pad(
    node: ModelNode,
    x: Tensor,
    pads: Tensor | None = None,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    widths = node.attr("pads") if pads is None else node.dims(pads, "the pads")
    along = range(x.ndim) if axes is None else node.ints(axes, "the axes")
    pairs: list[tuple[DimLike, DimLike]] = [(0, 0)] * x.ndim
    count = len(along)
    node.require(
        len(widths) == 2 * count,
        f"it has {counted(len(widths), 'pad')} for {counted(count, 'axis', 'axes')}",
    )
    for i, axis in enumerate(along):
        pairs[node.axis(axis, x.ndim)] = (widths[i], widths[count + i])
    mode: Any = node.choice("mode", "constant", ("constant", "edge", "reflect", "wrap"))
    least: list[DimLike] = []
    for size, (low, high) in zip(x.shape, pairs, strict=True):
        cut = (_cut(low) or 0) - (_cut(high, end=True) or 0)
        fits = not always_le(size, cut - 1)
        node.require(fits, f"its pads {low} and {high} cut off {counted(cut, 'element')} of {size}")
        least.append(dim_max(size, cut))
    if least != [*x.shape]:  # a run finds out whether there is so much to cut off
        x = gf.assert_shape(x, least)
    x = x[tuple([slice(_cut(low), _cut(high, end=True)) for low, high in pairs])]
    pairs = [(_more(low), _more(high)) for low, high in pairs]
    if mode != "constant":
        return gf.pad(x, pairs, mode=mode)  # its other modes are named as ONNX's
    fill = node.attr("value", 0.0) if value is None else gf.reshape(value, ())
    return gf.pad(x, pairs, constant_values=gf.astype(fill, x.dtype))


def _cut(width: DimLike, end: bool = False) -> int | None:
    """Return where to cut for a negative width of padding."""
    if isinstance(width, int) and width < 0:
        return width if end else -width
    return None


def _more(width: DimLike) -> DimLike:
    return max(width, 0) if isinstance(width, int) else width


@reads("Trilu", moves=True)
def _trilu(node: ModelNode, x: Tensor, k: Tensor | None = None) -> Tensor:
    diagonal = 0 if k is None else node.integer(k, "k")
    return gf.triu(x, k=diagonal) if node.attr("upper", 1) else gf.tril(x, k=diagonal)


@reads("DepthToSpace", moves=True)
def _depth_to_space(node: ModelNode, x: Tensor) -> Tensor:
    (n, c, h, w), b = _image(node, x)
    if node.choice("mode", "DCR", ("CRD", "DCR")) == "DCR":
        x = gf.permute_dims(gf.reshape(x, (n, b, b, c // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    else:
        x = gf.permute_dims(gf.reshape(x, (n, c // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return gf.reshape(x, (n, c // (b * b), h * b, w * b))


@reads("SpaceToDepth", moves=True)
def _space_to_depth(node: ModelNode, x: Tensor) -> Tensor:
    (n, c, h, w), b = _image(node, x)
    order = (0, 3, 5, 1, 2, 4) if node.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    x = gf.permute_dims(gf.reshape(x, (n, c, h // b, b, w // b, b)), order)
    return gf.reshape(x, (n, c * b * b, h // b, w // b))


def _image(node: ModelNode, x: Tensor) -> tuple[Sequence[DimLike], int]:
    """Return the sizes of images and those of a block."""
    block = node.attr("blocksize")
    node.require(x.ndim == 4, f"x has {counted(x.ndim, 'dim')}, not 4")
    node.require(block > 0, f"blocksize is {block}")
    return x.shape, block


def _axes(node: ModelNode, axes: Tensor | None) -> tuple[int, ...] | None:
    """Return axes of an attribute, as opsets before 13 have them, or of an input."""
    if axes is None:
        stated: tuple[int, ...] | None = node.attr("axes", None)
        return stated
    return node.ints(axes, "the axes")
