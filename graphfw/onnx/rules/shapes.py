"""Operators that make tensors, and those that only move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import graphfw as gf
from graphfw.errors import ShapeError, counted
from graphfw.ir.dim import Dim, DimLike, always_ge, always_le, dim_max
from graphfw.ir.tensor import Tensor
from graphfw.onnx.errors import OnnxError
from graphfw.onnx.fitting import expanded, joined, reshaped
from graphfw.onnx.measuring import clipped, dims_of, is_measured, measured, resolved
from graphfw.onnx.node import Call, Strings, Value, as_value
from graphfw.onnx.table import reads
from graphfw.onnx.types import dtype_of

# Tensors out of nothing


@reads("Constant")
def _constant(node: Call) -> Value:
    for name in ("value", "sparse_value"):
        if name in node.attributes:
            return as_value(node.attr(name))
    for name, dtype in (("int", np.int64), ("float", np.float32)):
        for suffix in ("", "s"):
            if f"value_{name}{suffix}" in node.attributes:
                return gf.constant(np.asarray(node.attr(f"value_{name}{suffix}"), dtype))
    for name in ("value_string", "value_strings"):
        if name in node.attributes:
            return Strings(node.attr(name))
    raise OnnxError("Constant: it has no value")


@reads("ConstantOfShape")
def _constant_of_shape(node: Call, shape: Tensor) -> Tensor:
    value = node.attr("value", np.zeros(1, np.float32))
    return gf.full(dims_of(node, shape, "the shape"), gf.constant(value.reshape(())))


@reads("EyeLike")
def _eye_like(node: Call, x: Tensor) -> Tensor:
    dtype = dtype_of(node.attr("dtype")) if "dtype" in node.attributes else x.dtype
    node.require(x.ndim == 2, f"x has {counted(x.ndim, 'dim')}, not 2")
    return gf.eye(*x.shape, k=node.attr("k", 0), dtype=dtype)


@reads("Range")
def _range(node: Call, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    bounds = (start, limit, delta)
    is_open = any(node.facts.value(x) is None for x in bounds)
    if is_open and node.facts.measures and is_measured(node, *bounds):
        return _measured_range(node, *bounds)
    if start.dtype.is_floating:
        first, last, step = (node.real(x, "a bound") for x in (start, limit, delta))
        node.require(step and math.isfinite((last - first) / step), "its step is 0, or a bound is")
        count = max(math.ceil((last - first) / step), 0)
        return start + gf.astype(gf.arange(count), start.dtype) * delta
    begin, end = node.dim(start, "the start"), node.dim(limit, "the limit")
    by = node.integer(delta, "the step")
    node.require(by, "its step is 0")
    return gf.arange(begin, end, by, dtype=start.dtype)


def _measured_range(node: Call, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    start, limit, delta = (gf.reshape(x, ()) for x in (start, limit, delta))
    # Integers are divided exactly; -(-a // b) rounds up.
    is_real = start.dtype.is_floating
    count = gf.ceil((limit - start) / delta) if is_real else -((start - limit) // delta)
    (size,) = measured(node, gf.reshape(gf.maximum(gf.astype(count, gf.int64), 0), (1,)), "its end")
    return start + gf.astype(gf.arange(size), start.dtype) * delta


@reads("Shape")
def _shape(node: Call, x: Tensor | Strings) -> Tensor:
    return _sizes(x.shape[slice(node.attr("start", 0), node.attr("end", None))])


@reads("Size")
def _size(node: Call, x: Tensor | Strings) -> Tensor:
    size: DimLike = 1
    for dim in x.shape:
        size = size * dim
    return gf.asarray(size, dtype=gf.int64)


def _sizes(shape: Sequence[DimLike]) -> Tensor:
    if all(isinstance(dim, int) for dim in shape):
        return gf.constant(np.asarray(shape, np.int64))
    return gf.stack([gf.asarray(dim, dtype=gf.int64) for dim in shape])


# Other shapes


@reads("Reshape", moves=True)
def _reshape(node: Call, x: Tensor, shape: Tensor | None = None) -> Tensor:
    copies_zeros = not node.attr("allowzero", 0)
    if shape is None:
        dims: tuple[DimLike, ...] = node.attr("shape")
    else:
        dims = dims_of(node, shape, "the new shape", lambda s: resolved(x, s, copies_zeros))
    if copies_zeros:
        node.require(0 not in dims[x.ndim :], f"x has no axis for each 0 of the new shape {dims}")
        dims = tuple([x.shape[i] if d == 0 else d for i, d in enumerate(dims)])
    return reshaped(x, dims)


@reads("Flatten", moves=True)
def _flatten(node: Call, x: Tensor) -> Tensor:
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
def _unsqueeze(node: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    places = _axes(node, axes) or ()
    rank = x.ndim + len(places)
    for axis in sorted(node.axis(a, rank) for a in places):
        x = gf.expand_dims(x, axis)
    return x


@reads("Squeeze", moves=True)
def _squeeze(node: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    places = _axes(node, axes)
    if places is None:
        open_ = [d for d in x.shape if isinstance(d, Dim) and not always_ge(d, 2)]
        if open_:
            raise ShapeError(
                f"Squeeze: without axes it takes those of size 1 away, and {open_[0]} may be 1",
                fix="say it when you load: shapes={name: (…)}",
            )
        places = tuple([i for i, dim in enumerate(x.shape) if dim == 1])
    # A slice of one row of a dim of any size has min(n, 1) rows: that there is one is checked when
    # it runs.
    gone = {node.axis(a, x.ndim) for a in places}
    sizes = [1 if i in gone and isinstance(d, Dim) else d for i, d in enumerate(x.shape)]
    return gf.squeeze(gf.assert_shape(x, sizes) if sizes != list(x.shape) else x, places)


@reads("Transpose", moves=True)
def _transpose(node: Call, x: Tensor) -> Tensor:
    return gf.permute_dims(x, node.attr("perm", None))


@reads("Expand", moves=True)
def _expand(node: Call, x: Tensor, shape: Tensor) -> Tensor:
    return expanded(x, dims_of(node, shape, "the shape"))


@reads("Identity", "Optional")
def _identity(node: Call, x: Value = None) -> Value:
    return x


# Parts and wholes


@reads("Concat", moves=True)
def _concat(node: Call, *xs: Tensor) -> Tensor:
    axis = node.axis(node.attr("axis"), xs[0].ndim)
    return gf.concat(joined(xs, axis), axis=axis)


@reads("Split", moves=True)
def _split(node: Call, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis = node.axis(node.attr("axis", 0), x.ndim)
    parts, size = node.attr("num_outputs", len(node.outputs)), x.shape[axis]
    lengths = node.attr("split", None) if sizes is None else dims_of(node, sizes, "the sizes")
    if lengths is None:
        node.require(parts == len(node.outputs), f"num_outputs is {parts}")
        length = -(-size // parts)
        lengths = [*[length] * (parts - 1), size - length * (parts - 1)]
    total = sum(lengths)
    same = total == size or isinstance(total, Dim) or isinstance(size, Dim)
    fits = same and len(lengths) == len(node.outputs)
    node.require(
        fits, f"the sizes {tuple(lengths)} are not those of {counted(parts, 'part')} of {size}"
    )
    places: list[DimLike] = []
    end: DimLike = 0
    for length in lengths[:-1]:
        end = end + length
        places.append(end)
    if places:
        return gf.split(x, places, axis=axis)
    return (x,)


@reads("Slice", moves=True)
def _slice(
    node: Call,
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
        return slice(0, 0, step)  # it ends before the first element, or begins behind the last
    if first == -_FAR * (1 if step > 0 else -1):
        first = None
    elif step < 0 and isinstance(first, int) and first < -1:
        first = dim_max(size + first, 0)  # where Python finds nothing, ONNX has the first element
    if last == _FAR * (1 if step > 0 else -1):
        last = None
    elif step < 0 and isinstance(last, int) and isinstance(size, int) and last < -size:
        last = None
    return slice(first, last, step)


def _near(place: DimLike) -> DimLike | None:
    """Return a bound; one that lies beyond any size becomes `_FAR`, or its negative."""
    return max(-_FAR, min(place, _FAR)) if isinstance(place, int) else place


@reads("Tile", moves=True)
def _tile(node: Call, x: Tensor, repeats: Tensor) -> Tensor:
    counts = dims_of(node, repeats, "the repeats")
    node.require(
        len(counts) == x.ndim,
        f"it has {counted(len(counts), 'repeat')} for {counted(x.ndim, 'dim')}",
    )
    return gf.tile(x, counts)


@reads("Pad", moves=True)
def _pad(
    node: Call,
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
    for size, (low, high) in zip(x.shape, pairs, strict=True):
        cut = (_cut(low) or 0) - (_cut(high, end=True) or 0)
        fits = not always_le(size, cut - 1)
        node.require(fits, f"its pads {low} and {high} cut off {counted(cut, 'element')} of {size}")
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
def _trilu(node: Call, x: Tensor, k: Tensor | None = None) -> Tensor:
    place = 0 if k is None else node.integer(k, "k")
    return gf.triu(x, k=place) if node.attr("upper", 1) else gf.tril(x, k=place)


@reads("DepthToSpace", moves=True)
def _depth_to_space(node: Call, x: Tensor) -> Tensor:
    (n, c, h, w), b = _image(node, x)
    if node.choice("mode", "DCR", ("CRD", "DCR")) == "DCR":
        x = gf.permute_dims(gf.reshape(x, (n, b, b, c // (b * b), h, w)), (0, 3, 4, 1, 5, 2))
    else:
        x = gf.permute_dims(gf.reshape(x, (n, c // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return gf.reshape(x, (n, c // (b * b), h * b, w * b))


@reads("SpaceToDepth", moves=True)
def _space_to_depth(node: Call, x: Tensor) -> Tensor:
    (n, c, h, w), b = _image(node, x)
    order = (0, 3, 5, 1, 2, 4) if node.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    x = gf.permute_dims(gf.reshape(x, (n, c, h // b, b, w // b, b)), order)
    return gf.reshape(x, (n, c * b * b, h // b, w // b))


def _image(node: Call, x: Tensor) -> tuple[Sequence[DimLike], int]:
    """Return the sizes of images and those of a block."""
    block = node.attr("blocksize")
    node.require(x.ndim == 4, f"x has {counted(x.ndim, 'dim')}, not 4")
    node.require(block > 0, f"blocksize is {block}")
    return x.shape, block


def _axes(node: Call, axes: Tensor | None) -> tuple[int, ...] | None:
    """Return axes of an attribute, as opsets before 13 have them, or of an input."""
    if axes is None:
        stated: tuple[int, ...] | None = node.attr("axes", None)
        return stated
    return node.ints(axes, "the axes")
