"""Pooling: maxima, means and norms of what windows see, and of the bins of adaptive pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

from graphfw.errors import ShapeError
from graphfw.ir.build import emit
from graphfw.ir.dim import DimLike, always_le, dim_max, divisible, exact_div
from graphfw.ir.functions import F, public
from graphfw.ir.shape import size_of
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, as_tensor, converted, ruled
from graphfw.ops.composed import demand, floats, power_of_positive, safe_root, wide
from graphfw.ops.dtypes import least, require_ordered
from graphfw.ops.nn.pooling_ops import WindowArgmax, WindowMax, WindowSum
from graphfw.ops.nn.spatial_arguments import (
    Ints,
    Padding,
    check_room,
    each,
    read_windows,
    spatial_rank,
)
from graphfw.ops.nn.unfold import widened
from graphfw.ops.nn.window import Window, fields_of
from graphfw.ops.shape.gather_scatter import Slice

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "avg_pool",
    "local_response_norm",
    "lp_pool",
    "max_pool",
]


def _read(
    name: str,
    x: Tensor,
    kernel_size: Ints,
    stride: Ints | None,
    padding: Padding,
    dilation: Ints,
    ceil_mode: bool,
) -> tuple[Sequence[Window], Sequence[Window]]:
    """Return the windows of the spatial dims: as the arguments say, and padded for ceil_mode."""
    rank = spatial_rank(name, x)
    kernel = each(name, "kernel_size", kernel_size, rank)
    strides = kernel if stride is None else stride
    windows = read_windows(name, x.shape[2:], kernel, strides, dilation, padding)
    for window in windows:
        for number in window.padding:
            message = f"{name}: the padding {number} is as wide as the kernel, {window.extent}"
            fits = not always_le(window.extent, number)
            demand(fits, message, {"x": x}, fix=f"use less than {window.extent}")
    if not ceil_mode:
        check_room(name, {"x": x}, windows)
        return windows, windows
    output_sizes = [w.begun for w in windows]
    check_room(name, {"x": x}, windows, output_sizes)
    ways = zip(windows, output_sizes, strict=True)
    return windows, [w.padded_by(w.before, dim_max(w.padding_after(p), 0)) for w, p in ways]


@public
def max_pool(
    x: TensorLike,
    /,
    kernel_size: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Take the largest of what a window sees at each of its positions.

    x: [N, C, *S] -> [N, C, *P], and with `return_indices` their positions as well, int64. Real
    dtypes. One NaN makes the result NaN. The gradient goes to the first of those that tie.

    Args:
        x: The images, sequences or volumes.
        kernel_size: The window's size: one int, or one for each spatial dim.
        stride: How far the window moves; by default as far as it is wide.
        padding: How much to add at both ends, as for `gf.conv`; it is never the largest.
        dilation: How far the window's elements are apart.
        ceil_mode: Whether the last window may reach beyond the end.
        return_indices: Whether to return, too, where in x's spatial dims, taken as one, the first
            of the largest is.

    Raises:
        ShapeError: x has no spatial dim, or the window is larger than the padded x.
        ArgumentError: An argument does not fit the spatial dims, or padding is as wide as the
            window.
        DTypeError: x is bool or complex.

    >>> import graphfw as gf
    >>> gf.max_pool(gf.asarray([[[1, 5, 2, 3]]]), 2)
    Tensor([[[5, 3]]], dtype=int64)
    """
    tensor = as_tensor(x)
    ruled("max_pool", tensor, require_ordered, tensor.dtype)
    _, windows = _read("max_pool", tensor, kernel_size, stride, padding, dilation, ceil_mode)
    largest = emit(WindowMax(*fields_of(windows)), tensor)
    if not return_indices:
        return largest
    return largest, _indices(emit(WindowArgmax(*fields_of(windows)), tensor), windows)


def _indices(numbers: Tensor, windows: Sequence[Window]) -> Tensor:
    """Return where elements of windows, given by their numbers, are in x's spatial dims as one."""
    flat = F.zeros_like(numbers)
    rest, strides = numbers, math.prod([w.kernel for w in windows])
    for axis, window in enumerate(windows, 2):
        strides //= window.kernel
        steps = F.positions(numbers.shape[axis]) * window.stride - window.before
        start = F.reshape(steps, (*steps.shape, *[1] * (numbers.ndim - axis - 1)))
        position = start + rest // strides * window.dilation
        # Where all are the least there is, the first may be one that was added.
        flat = flat * window.size + F.minimum(F.maximum(position, 0), window.size - 1)
        rest = rest % strides
    return flat


@public
def avg_pool(
    x: TensorLike,
    /,
    kernel_size: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: float | None = None,
) -> Tensor:
    """Take the mean of what a window sees at each of its positions.  x: [N, C, *S] -> [N, C, *P]

    Floats; integers become the default dtype. float16 and bfloat16 are computed in float32.

    Args:
        x: The images, sequences or volumes.
        kernel_size: The window's size: one int, or one for each spatial dim.
        stride: How far the window moves; by default as far as it is wide.
        padding: How many zeros to add at both ends, as for `gf.conv`.
        dilation: How far the window's elements are apart.
        ceil_mode: Whether the last window may reach beyond the end; what lies there never counts.
        count_include_pad: Whether the padding counts as elements.
        divisor_override: What to divide the sums by instead.

    Raises:
        ShapeError: x has no spatial dim, or the window is larger than the padded x.
        ArgumentError: An argument does not fit the spatial dims, padding is as wide as the window,
            or the divisor is 0.
        DTypeError: x is complex.

    >>> import graphfw as gf
    >>> gf.avg_pool(gf.asarray([[[1.0, 5.0, 2.0, 4.0]]]), 2)
    Tensor([[[3., 3.]]], dtype=float32)
    """
    tensor = floats("avg_pool", x)
    given, windows = _read("avg_pool", tensor, kernel_size, stride, padding, dilation, ceil_mode)
    demand(divisor_override != 0, "avg_pool: divisor_override is 0", fix="use None for the count")
    total = _added_up(wide(tensor), windows)
    if divisor_override is not None:
        return converted(total / divisor_override, tensor.dtype)
    count: Any = 1
    ways = zip(windows, given, total.shape[2:], strict=True)
    for axis, facts in enumerate(ways, 2):
        along = _count(*facts, count_include_pad)
        if isinstance(along, Tensor):
            along = F.reshape(along, (*along.shape, *[1] * (tensor.ndim - axis - 1)))
            along = converted(along, total.dtype)
        count = count * along
    return converted(total / count, tensor.dtype)


def _added_up(x: Tensor, windows: Sequence[Window]) -> Tensor:
    if all(window.kernel == window.size and window.padding == (0, 0) for window in windows):
        return F.sum(x, axis=tuple(range(2, x.ndim)), keepdims=True)
    return emit(WindowSum(*fields_of(windows)), x)


def _count(
    window: Window, given: Window, output_sizes: DimLike, with_padding: bool
) -> Tensor | DimLike:
    """Return along one dim how many elements count at each position, or in all alike."""
    if window.padding == (given.padding if with_padding else (0, 0)):
        return window.kernel
    counted, before, after = window.size, *window.padding
    if with_padding:
        counted, before, after = given.padded, 0, after - given.after
    seen = window.padded_by(before, dim_max(after, 0))
    count = emit(WindowSum(*fields_of([seen])), F.ones(counted))
    # Where windows may not begin beyond the end, not all of the padding is seen.
    return (
        count if count.shape == (output_sizes,) else emit(Slice((0,), (output_sizes,), (1,)), count)
    )


@public
def lp_pool(
    x: TensorLike,
    /,
    ord: float,
    kernel_size: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Take the norm of what a window sees at each of its positions.  x: [N, C, *S] -> [N, C, *P]

    (sum of abs(x) ** ord) ** (1 / ord). Floats; integers become the default dtype. float16 and
    bfloat16 are computed in float32. Where the norm is 0 the gradient is 0.

    Args:
        x: The images, sequences or volumes.
        ord: Which norm: 1 or more; infinity is the largest absolute value.
        kernel_size: The window's size: one int, or one for each spatial dim.
        stride: How far the window moves; by default as far as it is wide.
        padding: How many zeros to add at both ends, as for `gf.conv`.
        dilation: How far the window's elements are apart.
        ceil_mode: Whether the last window may reach beyond the end.

    Raises:
        ShapeError: x has no spatial dim, or the window is larger than the padded x.
        ArgumentError: An argument does not fit the spatial dims, padding is as wide as the window,
            or ord is below 1.
        DTypeError: x is complex.

    >>> import graphfw as gf
    >>> gf.lp_pool(gf.asarray([[[3.0, -4.0]]]), 2, 2)
    Tensor([[[5.]]], dtype=float32)
    """
    tensor = floats("lp_pool", x)
    fits = isinstance(ord, Real) and ord >= 1
    demand(fits, f"lp_pool: ord={ord!r} gives no norm", fix="use 1 or more")
    _, windows = _read("lp_pool", tensor, kernel_size, stride, padding, dilation, ceil_mode)
    values = wide(tensor)
    if ord == math.inf:
        # A window of which nothing lies inside sees zeros.
        bare = [w.padded_by(0, 0) for w in windows]
        largest = emit(WindowMax(*fields_of(bare)), widened(F.abs(values), windows))
        return converted(largest, tensor.dtype)
    if ord == 2:
        return converted(safe_root(_added_up(values * values, windows)), tensor.dtype)
    total = _added_up(F.abs(values) ** ord, windows)
    if ord != 1:
        is_zero = total == 0
        total = F.where(is_zero, 0, F.where(is_zero, 1, total) ** (1 / ord))
    return converted(total, tensor.dtype)


@public
def adaptive_avg_pool(x: TensorLike, /, output_size: Any) -> Tensor:
    """Take the mean of each bin: output_size says how many bins each spatial dim has.

    x: [N, C, *S] -> [N, C, *output_size]. Bin i of `size` goes from i S // size up to
    (i + 1) S / size, rounded up: so bins may overlap. With output_size 1 it is global pooling.
    Floats; integers become the default dtype. float16 and bfloat16 are computed in float32.

    Args:
        x: The images, sequences or volumes.
        output_size: One int, or for each spatial dim one, or None where its size stays.

    Raises:
        ShapeError: x has no spatial dim, or one of size 0.
        ArgumentError: output_size does not fit the spatial dims.
        DTypeError: x is complex.

    >>> import graphfw as gf
    >>> gf.adaptive_avg_pool(gf.asarray([[[1.0, 2.0, 3.0, 6.0]]]), 2)
    Tensor([[[1.5, 4.5]]], dtype=float32)
    """
    tensor = floats("adaptive_avg_pool", x)
    changes = _outputs("adaptive_avg_pool", tensor, output_size)
    whole = tuple([axis for axis, size in changes if size == 1])
    result = F.mean(wide(tensor), axis=whole, keepdims=True)
    for axis, size in changes:
        if axis in whole:
            continue
        bins, inside = _blocks(result, axis, size)
        if inside is None:
            result = F.mean(bins, axis=axis + 1)
        else:
            count = F.sum(converted(inside, result.dtype), axis=1)
            total = F.sum(F.where(inside, bins, 0), axis=axis + 1)
            result = total / count
    return converted(result, tensor.dtype)


@public
def adaptive_max_pool(x: TensorLike, /, output_size: Any, *, return_indices: bool = False) -> Any:
    """Take the largest of each bin: output_size says how many bins each spatial dim has.

    x: [N, C, *S] -> [N, C, *output_size], and with `return_indices` their positions as well, int64.
    Real dtypes. The bins are those of `adaptive_avg_pool`. The gradient goes to the first of those
    that tie.

    Args:
        x: The images, sequences or volumes.
        output_size: One int, or for each spatial dim one, or None where its size stays.
        return_indices: As for `max_pool`.

    Raises:
        ShapeError: x has no spatial dim, or one of size 0.
        ArgumentError: output_size does not fit the spatial dims.
        DTypeError: x is bool or complex.
    """
    name = "adaptive_max_pool"
    tensor = as_tensor(x)
    ruled(name, tensor, require_ordered, tensor.dtype)
    wanted = _outputs(name, tensor, output_size)
    lengths = {axis: exact_div(tensor.shape[axis], size) for axis, size in wanted}
    if all(isinstance(length, int) for length in lengths.values()):
        kernel: Any = [lengths.get(axis, 1) for axis in range(2, tensor.ndim)]
        return max_pool(tensor, kernel, return_indices=return_indices)
    numbers = F.reshape(F.positions(size_of(tensor.shape[2:])), tensor.shape[2:])
    values, indices = tensor, F.broadcast_to(numbers, tensor.shape)
    for axis, size in wanted:
        bins, inside = _blocks(values, axis, size)
        if inside is not None:
            bins = F.where(inside, bins, least(tensor.dtype))
        choice = F.argmax(bins, axis=axis + 1, keepdims=True)
        values = F.squeeze(F.take_along_axis(bins, choice, axis=axis + 1), axis + 1)
        if return_indices:
            chosen = F.take_along_axis(_blocks(indices, axis, size)[0], choice, axis=axis + 1)
            indices = F.squeeze(chosen, axis + 1)
    return (values, indices) if return_indices else values


def _outputs(name: str, x: Tensor, output_size: Any) -> list[tuple[int, int]]:
    """Return the axes that change, the last first, each with its new size."""
    rank = spatial_rank(name, x)
    is_many = isinstance(output_size, Sequence) and not isinstance(output_size, str)
    given = list(output_size) if is_many else [output_size] * rank
    asked = [1 if size is None else size for size in given]
    sizes = each(name, "output_size", asked, rank)
    changes = []
    for axis, (size, new) in enumerate(zip(given, sizes, strict=True), 2):
        if size is None or x.shape[axis] == new:
            continue
        message = f"{name}: dim {axis} of x is empty, and has no bins"
        demand(x.shape[axis] != 0, message, {"x": x}, fix="give x elements", error=ShapeError)
        changes.append((axis, new))
    return changes[::-1]


def _blocks(x: Tensor, axis: int, size: int) -> tuple[Tensor, Tensor | None]:
    """Divide an axis into bins: [*A, S, *B] -> [*A, size, L, *B], and what of it belongs to them.

    Where S is a multiple of size, all does.
    """
    whole = x.shape[axis]
    length = exact_div(whole, size) if divisible(whole, size) else None
    if length is not None:
        dims = (*x.shape[:axis], size, length, *x.shape[axis + 1 :])
        return F.reshape(x, dims), None
    numbers = F.positions(size)
    starts = numbers * whole // size
    stops = -(-(numbers + 1) * whole // size)
    longest = (whole - 2) // size + 2  # bins begin and end in the midst of elements
    reached = F.expand_dims(starts, axis=1) + F.positions(longest)
    inside = reached < F.expand_dims(stops, axis=1)
    bins = F.take(x, F.minimum(reached, whole - 1), axis=axis)
    return bins, F.reshape(inside, (*inside.shape, *[1] * (x.ndim - axis - 1)))


@public
def local_response_norm(
    x: TensorLike, /, size: int, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide by what the neighbouring channels have.  x: [N, C, *S] -> [N, C, *S]

    x / (k + alpha * mean of x² over size channels) ** beta, with zeros beyond the first and the
    last channel. Floats; integers become the default dtype. float16 and bfloat16 are computed in
    float32. A. Krizhevsky et al., "ImageNet classification with deep convolutional neural
    networks", 2012.

    Args:
        x: The images, sequences or volumes.
        size: How many channels count, the channel itself among them.
        alpha: The factor of the mean.
        beta: The exponent.
        k: What is added.

    Raises:
        ShapeError: x has no spatial dim.
        ArgumentError: size is below 1.
        DTypeError: x is complex.
    """
    name = "local_response_norm"
    tensor = floats(name, x)
    rank = spatial_rank(name, tensor)
    (width,) = each(name, "size", size, 1)
    values = wide(tensor)
    ones, zeros = (1,) * rank, (0,) * rank
    before, after = width // 2, (width - 1) // 2
    over_channels = (width, *ones), (1, *ones), (1, *ones), (before, *zeros), (after, *zeros)
    mean = emit(WindowSum(*over_channels), values * values) / width
    divisor = k + alpha * mean
    positive = k > 0 and alpha >= 0
    power = power_of_positive(divisor, beta) if positive else divisor**beta
    return converted(values / power, tensor.dtype)
