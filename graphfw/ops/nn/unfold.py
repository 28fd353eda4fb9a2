"""Sliding windows: laid out (im2col) and added up in place (col2im).

In these ops there is no padding: elements are added to x before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from graphfw.errors import ShapeError, counted
from graphfw.ir.affine import Index
from graphfw.ir.build import emit
from graphfw.ir.dtype import DType
from graphfw.ir.functions import F, public
from graphfw.ir.op import Case, Op, bad, ok, op
from graphfw.ir.shape import require, shape_text, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ir.types import Shape
from graphfw.ops.args import TensorLike, as_tensor, dims_of
from graphfw.ops.batching import leading
from graphfw.ops.composed import demand
from graphfw.ops.dtypes import compute_dtype, require_numeric
from graphfw.ops.nn.spatial_arguments import (
    Ints,
    Padding,
    check_room,
    each,
    read_windows,
    spatial_rank,
)
from graphfw.ops.nn.window import Pairs, Window, fields_of, output_sizes_of, windows_of
from graphfw.ops.shape.movement import Movement

__all__ = ["fold", "unfold"]


SAMPLE: dict[str, Any] = {"window": (2,), "strides": (1,), "dilations": (2,)}
"""Fields, for the ops' cases."""


class Windowed(Op):
    """The base of ops on windows over the last dims, as many as the window has.

    Attributes:
        window: How many elements it has along each dim.
        strides: How far it moves.
        dilations: How far its elements are apart.
    """

    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    batch = leading

    def windows(self, sizes: Shape) -> tuple[Window, ...]:
        """Return the window along each dim of some sizes."""
        return windows_of(sizes, self.window, self.strides, self.dilations, self.pairs)

    def output_sizes(self, sizes: Shape) -> Shape:
        """Return in how many positions the window fits, along each dim."""
        return output_sizes_of(self.windows(sizes))

    @property
    def pairs(self) -> Pairs:
        """The padding before and after each dim: none, by default."""
        return ((0, 0),) * len(self.window)

    def check(self, x: Shape) -> tuple[Shape, Shape]:
        """Return the leading dims and those that the window slides over."""
        for number in (*self.window, *self.strides, *self.dilations):
            require(number > 0, f"a window or a step can't be {number}", fix="use 1 or more")
        rank = len(self.window)
        message = f"a window of {counted(rank, 'dim')} does not slide over {len(x)}"
        require(len(x) >= rank, message, fix="give it one int for each of the last dims")
        return x[: len(x) - rank], x[len(x) - rank :]

    def output_shape(self, x: Shape) -> Shape:
        """Return the leading dims and the positions."""
        lead, sizes = self.check(x)
        return (*lead, *self.output_sizes(sizes))

    def taps(self, output_sizes: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield each element of the window with a key of what it is at all positions."""
        for tap in itertools.product(*[range(size) for size in self.window]):
            starts = [k * dilation for k, dilation in zip(tap, self.dilations, strict=True)]
            yield tap, (..., *map(_every, starts, self.strides, output_sizes))


def _every(start: int, step: int, count: int) -> slice:
    """Return a slice of so many elements."""
    return slice(start, start + (count - 1) * step + 1, step) if count else slice(0, 0)


@op("windows")
class Windows(Windowed, Movement):
    """The elements that a window sees at each position.  x: [*B, *S]  ->  [*B, *window, *P]"""

    def shape(self, x: Shape) -> Shape:
        lead, sizes = self.check(x)
        return (*lead, *self.window, *self.output_sizes(sizes))

    def eval(self, xp: Any, x: Any) -> Any:
        lead = x.ndim - len(self.window)
        output_sizes = self.output_sizes(x.shape[lead:])
        if 0 in output_sizes:
            return xp.empty((*x.shape[:lead], *self.window, *output_sizes), x.dtype)
        axes = tuple(range(lead, x.ndim))
        extents = tuple([window.extent for window in self.windows(x.shape[lead:])])
        seen = xp.lib.stride_tricks.sliding_window_view(x, extents, axes)
        some = (..., *[slice(None, None, step) for step in (*self.strides, *self.dilations)])
        return xp.moveaxis(seen[some], axes, tuple([axis + len(axes) for axis in axes]))

    def source_index(self, index: Index, x: Shape, y: Shape) -> Index:
        rank = len(self.window)
        lead = len(x) - rank
        inside, position = index[lead : lead + rank], index[lead + rank :]
        steps = zip(position, self.strides, inside, self.dilations, strict=True)
        return (*index[:lead], *[p * stride + k * dilation for p, stride, k, dilation in steps])

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        dims = x.shape[x.ndim - len(self.window) :]
        return (lambda: emit(FoldWindows(self.window, self.strides, self.dilations, dims), ct),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[2, n]", window=(2,), strides=(1,), dilations=(2,))
        yield ok("float32[5, 7]", window=(2, 3), strides=(2, 1), dilations=(1, 2))
        yield ok("int32[2, 3, 3, 2]", window=(1, 3, 2), strides=(1, 1, 3), dilations=(1, 1, 1))
        yield ok("bool[2]", window=(3,), strides=(1,), dilations=(1,))
        yield bad("float32[5]", window=(2, 2), strides=(1, 1), dilations=(1, 1), match="over 1")
        yield bad("float32[5]", window=(2,), strides=(0,), dilations=(1,), match="can't be 0")


@op("fold")
class FoldWindows(Windowed):
    """The windows' elements added up where they are.  x: [*B, *window, *P]  ->  [*B, *dims]"""

    dims: Shape
    linear = "jointly"

    def shape(self, x: Shape) -> Shape:
        self.check(self.dims)
        wanted = (*self.window, *self.output_sizes(self.dims))
        lead = len(x) - len(wanted)
        message = (
            f"{shape_text(x)} does not end in the window and the positions, {shape_text(wanted)}"
        )
        require(lead >= 0 and x[lead:] == wanted, message, fix="see gf.fold")
        return (*x[:lead], *self.dims)

    def dtype(self, x: DType) -> DType:
        return require_numeric(x)

    def eval(self, xp: Any, x: Any) -> Any:
        rank = len(self.window)
        lead, output_sizes = x.ndim - 2 * rank, x.shape[x.ndim - rank :]
        total = xp.zeros((*x.shape[:lead], *self.dims), compute_dtype(xp, x.dtype))
        for tap, key in self.taps(output_sizes):
            total[key] += x[(..., *tap, *[slice(None)] * rank)].astype(total.dtype, copy=False)
        return total.astype(x.dtype, copy=False)

    def vjp(self, ct: Tensor, y: Tensor, x: Tensor) -> tuple[Any, ...]:
        return (lambda: emit(Windows(self.window, self.strides, self.dilations), ct),)

    @staticmethod
    def cases() -> Iterator[Case]:
        yield ok("float32[n, 2, 3]", window=(2,), strides=(1,), dilations=(2,), dims=(5,))
        yield ok(
            "float32[2, 3, 2, 3]", window=(2, 3), strides=(2, 1), dilations=(1, 2), dims=(5, 7)
        )
        yield ok("float32[3, 5]", window=(3,), strides=(1,), dilations=(2,), dims=(9,))
        yield ok(
            "float32[2, 1, 2, 2, 2, 1]",
            window=(2, 1, 2),
            strides=(1, 1, 1),
            dilations=(2, 1, 2),
            dims=(4, 2, 3),
        )
        yield ok("int32[2, 1]", window=(2,), strides=(1,), dilations=(1,), dims=(2,))
        yield ok("float32[3, 0]", window=(3,), strides=(1,), dilations=(1,), dims=(2,))
        yield bad(
            "float32[2, 4]",
            window=(2,),
            strides=(1,),
            dilations=(2,),
            dims=(5,),
            match="does not end in the window and the positions, \\[2, 3\\]",
        )


def widened(x: Tensor, windows: Sequence[Window]) -> Tensor:
    """Return a tensor with the zeros around its last dims that windows see."""
    pairs = tuple([window.padding for window in windows])
    if all(pair == (0, 0) for pair in pairs):
        return x
    return F.pad(x, ((0, 0),) * (x.ndim - len(pairs)) + pairs)


@public
def unfold(
    x: TensorLike,
    /,
    kernel_size: Ints,
    *,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
) -> Tensor:
    """Lay out what a window sees at each of its positions (im2col).

    x: [N, C, *S] -> [N, C * K, P]: the K elements of the kernel, for each channel, in each of the P
    positions. Any dtype.

    Args:
        x: The images, sequences or volumes.
        kernel_size: The window's size: one int, or one for each spatial dim.
        stride: How far the window moves.
        padding: How many zeros to add at both ends, as for `gf.conv`.
        dilation: How far the window's elements are apart.

    Raises:
        ShapeError: x has no spatial dim, or the window is larger than the padded x.
        ArgumentError: An argument does not fit the spatial dims.

    >>> import graphfw as gf
    >>> gf.unfold(gf.asarray([[[1, 2, 3, 4]]]), 2)
    Tensor([[[1, 2, 3],
             [2, 3, 4]]], dtype=int64)
    """
    tensor = as_tensor(x)
    rank = spatial_rank("unfold", tensor)
    kernel = each("unfold", "kernel_size", kernel_size, rank)
    windows = read_windows("unfold", tensor.shape[2:], kernel, stride, dilation, padding)
    check_room("unfold", {"x": tensor}, windows)
    seen = emit(Windows(*fields_of(windows)[:3]), widened(tensor, windows))
    batch, channels, *rest = seen.shape
    shape = (batch, channels * size_of(rest[:rank]), size_of(rest[rank:]))
    return F.reshape(seen, shape)


@public
def fold(
    x: TensorLike,
    /,
    output_size: Any,
    kernel_size: Ints,
    *,
    stride: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
) -> Tensor:
    """Add up the elements of windows where they are (col2im): the transpose of `unfold`.

    x: [N, C * K, P] -> [N, C, *output_size]. Numeric dtypes.

    Args:
        x: For each channel and each position the K elements of a window.
        output_size: The sizes of the spatial dims, a sequence of ints or symbolic dims.
        kernel_size: The window's size: one int, or one for each spatial dim.
        stride: How far the window moves.
        padding: How many elements at both ends are left out of the result.
        dilation: How far the window's elements are apart.

    Raises:
        ShapeError: x has not three dims, or not as many as there are positions and elements.
        ArgumentError: An argument does not fit the spatial dims.

    >>> import graphfw as gf
    >>> gf.fold(gf.asarray([[[1, 2, 3], [2, 3, 4]]]), (4,), 2)
    Tensor([[[1, 4, 6, 4]]], dtype=int64)
    """
    tensor = as_tensor(x)
    sizes = dims_of("fold", output_size)
    kernel = each("fold", "kernel_size", kernel_size, len(sizes))
    windows = read_windows("fold", sizes, kernel, stride, dilation, padding)
    output_sizes = output_sizes_of(windows)
    taps, count = size_of(kernel), size_of(output_sizes)
    fits = tensor.ndim == 3 and tensor.shape[2] == count
    divides = fits and (not isinstance(tensor.shape[1], int) or tensor.shape[1] % taps == 0)
    demand(
        divides,
        f"fold: x must be [N, C * {taps}, {count}], for "
        f"{counted(taps, 'element')} in {counted(count, 'position')}; "
        f"it is {shape_text(tensor.shape)}",
        {"x": tensor},
        fix="use the arguments of the unfold that it came from, and x's sizes there",
        error=ShapeError,
    )
    channels = tensor.shape[1] // taps
    parted = F.reshape(tensor, (tensor.shape[0], channels, *kernel, *output_sizes))
    padded = tuple([w.padded for w in windows])
    _, strides, dilations, *_ = fields_of(windows)
    total = emit(FoldWindows(kernel, strides, dilations, padded), parted)
    if padded == sizes:
        return total
    inner = [slice(w.before, w.before + w.size) for w in windows]
    return total[(..., *inner)]
