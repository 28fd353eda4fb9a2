"""Fourier transforms: the extension `fft` of the Python Array API standard.

With x_j, j = 0 … n - 1, the transform is y_k = sum_j x_j exp(-2 pi i j k / n), and the inverse one
has exp(+2 pi i j k / n) / n. Computed in complex64 or complex128: float16 and bfloat16 in
complex64, integers in that of the default dtype.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from graphfw.errors import AxisError, DTypeError, counted
from graphfw.ir import ambient
from graphfw.ir.build import emit
from graphfw.ir.dim import Dim, DimLike
from graphfw.ir.dtype import DTypeLike
from graphfw.ir.functions import F, public
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import (
    Axes,
    TensorLike,
    as_tensor,
    axes_in_order,
    converted,
    dtype_or,
    inexact,
    is_whole,
    whole,
)
from graphfw.ops.composed import demand, demand_one_of, floats, wide
from graphfw.ops.creation.constructors import check_device
from graphfw.ops.creation.ranges import positions
from graphfw.ops.dtypes import complex_of
from graphfw.ops.shape.flip_roll import roll
from graphfw.ops.signal.fft_ops import FFT, IRFFT, OPPOSITE, RFFT, resized

__all__ = [
    "fft",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfftn",
    "rfft",
    "rfftfreq",
    "rfftn",
]


def _complex(name: str, x: TensorLike, norm: str) -> Tensor:
    """Return an argument as a complex tensor, having checked `norm`."""
    _check_norm(name, norm)
    tensor = wide(inexact(x))
    return converted(tensor, complex_of(tensor.dtype))


def _real(name: str, x: TensorLike, norm: str) -> Tensor:
    """Return an argument as a tensor of real floats, having checked `norm`."""
    _check_norm(name, norm)
    return wide(floats(name, x))


def _check_norm(name: str, norm: str) -> None:
    demand_one_of(name, "norm", norm, OPPOSITE)


def _size(name: str, n: DimLike | None, size: DimLike) -> DimLike:
    """Return how many elements to transform: `n`, or as many as there are."""
    if n is None:
        return size
    count = whole(name, "n", n)
    message = f"{name}: n={n}, and must be 1 or more"
    demand(isinstance(count, Dim) or count >= 1, message, fix="leave n out to take all elements")
    return count


def _axis(name: str, x: Tensor, axis: int) -> int:
    message = f"{name}: axis {axis!r} is no int"
    demand(is_whole(axis), message, {"x": x}, fix="pass an int", error=AxisError)
    return axes_in_order(name, x, axis)[0]


def _plan(
    name: str, x: Tensor, s: Sequence[DimLike] | None, axes: Sequence[int] | None
) -> tuple[tuple[int, ...], list[DimLike | None]]:
    """Return the axes to transform, and the sizes asked for: None for those that stay."""
    if s is None:
        axis_indices = axes_in_order(name, x, range(x.ndim) if axes is None else axes)
        return axis_indices, [None] * len(axis_indices)
    message = f"{name}: s={s!r} without axes"
    fix = f"say which axes have these sizes: axes=range({-len(s)}, 0)"
    demand(axes is not None, message, {"x": x}, fix=fix)
    axis_indices = axes_in_order(name, x, axes or ())
    message = f"{name}: {counted(len(s), 'size')} for {counted(len(axis_indices), 'axis', 'axes')}"
    demand(len(s) == len(axis_indices), message, {"x": x}, fix="give each axis a size; -1 keeps it")
    return axis_indices, [None if n == -1 else _size(name, n, 0) for n in s]


def _transformed(
    name: str,
    x: Tensor,
    positions: Sequence[int],
    sizes: Sequence[DimLike | None],
    norm: str,
    *,
    inverse: bool,
) -> Tensor:
    """Apply the complex transform over some axes, of the sizes asked for."""
    full = [_size(name, n, x.shape[axis]) for n, axis in zip(sizes, positions, strict=True)]
    sized = resized(x, full, positions)
    return emit(FFT(tuple(positions), inverse, norm), sized) if positions else sized


@public
def fft(
    x: TensorLike, /, *, n: DimLike | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    """The Fourier transform along an axis.  x: [*A] -> [*A with n at axis] complex

    Args:
        x: The numbers, real or complex.
        n: How many to transform: x is cut off at the end, or filled up with zeros. By default all.
        axis: Along which dim.
        norm: Which direction is divided by n: "backward", "forward", or both by its root: "ortho".

    Raises:
        AxisError: There is no such axis.
        ShapeError: There are no elements along it.
        ArgumentError: `n` is less than 1, or there is no such `norm`.

    >>> import graphfw as gf
    >>> gf.fft.fft([1.0, 0.0, 0.0, 0.0]).numpy().real.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    tensor = _complex("fft", x, norm)
    return _transformed("fft", tensor, (_axis("fft", tensor, axis),), (n,), norm, inverse=False)


@public
def ifft(
    x: TensorLike, /, *, n: DimLike | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    """The inverse of `fft`.  x: [*A] -> [*A with n at axis] complex

    Arguments and errors are those of `fft`.
    """
    tensor = _complex("ifft", x, norm)
    return _transformed("ifft", tensor, (_axis("ifft", tensor, axis),), (n,), norm, inverse=True)


@public
def fftn(
    x: TensorLike,
    /,
    *,
    s: Sequence[DimLike] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """The Fourier transform along several axes.  x: [*A] -> [*A with s at axes] complex

    Args:
        x: The numbers, real or complex.
        s: For each of the axes, how many to transform: x is cut off or filled up with zeros; -1
            means all. Wants `axes`.
        axes: The axes, all by default.
        norm: As for `fft`.

    Raises:
        AxisError: There is no such axis, or one stands twice.
        ShapeError: There are no elements along one.
        ArgumentError: A size is less than 1, `s` does not fit `axes`, or there is no such `norm`.
    """
    tensor = _complex("fftn", x, norm)
    return _transformed("fftn", tensor, *_plan("fftn", tensor, s, axes), norm, inverse=False)


@public
def ifftn(
    x: TensorLike,
    /,
    *,
    s: Sequence[DimLike] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """The inverse of `fftn`.  x: [*A] -> [*A with s at axes] complex

    Arguments and errors are those of `fftn`.
    """
    tensor = _complex("ifftn", x, norm)
    return _transformed("ifftn", tensor, *_plan("ifftn", tensor, s, axes), norm, inverse=True)


def _halved(name: str, x: Tensor, n: DimLike | None, axis: int, norm: str) -> Tensor:
    """Transform n real numbers to n//2 + 1 complex ones."""
    sized = resized(x, (_size(name, n, x.shape[axis]),), (axis,))
    return emit(RFFT(axis, norm), sized)


def _doubled(name: str, x: Tensor, n: DimLike | None, axis: int, norm: str) -> Tensor:
    """Transform n//2 + 1 complex numbers to n real ones, by default an even number of them."""
    size = _size(name, n, 2 * (x.shape[axis] - 1))
    return emit(IRFFT(size, axis, norm), resized(x, (size // 2 + 1,), (axis,)))


@public
def rfft(
    x: TensorLike, /, *, n: DimLike | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    """The first half of the Fourier transform of real numbers; the other half is its mirror image.

    x: [*A] real -> [*A with n//2 + 1 at axis] complex.  Arguments and errors are those of `fft`.

    Raises:
        DTypeError: The numbers are complex.
    """
    tensor = _real("rfft", x, norm)
    return _halved("rfft", tensor, n, _axis("rfft", tensor, axis), norm)


@public
def irfft(
    x: TensorLike, /, *, n: DimLike | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    """The inverse of `rfft`.  x: [*A] -> [*A with n at axis] real

    Args:
        x: The first half of a transform; the imaginary part of element 0, and of n/2, is left out.
        n: How many real numbers there are to be: x is cut off, or filled up with zeros, to n//2 + 1
            elements. By default 2 (m - 1), where m is the size of x.
        axis: Along which dim.
        norm: As for `fft`.

    Raises:
        AxisError, ShapeError, ArgumentError: As `fft`.
    """
    tensor = _complex("irfft", x, norm)
    return _doubled("irfft", tensor, n, _axis("irfft", tensor, axis), norm)


@public
def rfftn(
    x: TensorLike,
    /,
    *,
    s: Sequence[DimLike] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """The Fourier transform of real numbers: half along the last of the axes, whole along others.

    x: [*A] real -> [*A with s at axes, s//2 + 1 at the last] complex.  Arguments and errors are
    those of `fftn`.

    Raises:
        DTypeError: The numbers are complex.
    """
    tensor = _real("rfftn", x, norm)
    axis_indices, sizes = _some_axes("rfftn", tensor, s, axes)
    half = _halved("rfftn", tensor, sizes[-1], axis_indices[-1], norm)
    return _transformed("rfftn", half, axis_indices[:-1], sizes[:-1], norm, inverse=False)


@public
def irfftn(
    x: TensorLike,
    /,
    *,
    s: Sequence[DimLike] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Tensor:
    """The inverse of `rfftn`.  x: [*A] -> [*A with s at axes] real

    Arguments and errors are those of `fftn`; the last of `s` is 2 (m - 1) by default, as for
    `irfft`.
    """
    tensor = _complex("irfftn", x, norm)
    axis_indices, sizes = _some_axes("irfftn", tensor, s, axes)
    lines = _transformed("irfftn", tensor, axis_indices[:-1], sizes[:-1], norm, inverse=True)
    return _doubled("irfftn", lines, sizes[-1], axis_indices[-1], norm)


def _some_axes(
    name: str, x: Tensor, s: Sequence[DimLike] | None, axes: Sequence[int] | None
) -> tuple[tuple[int, ...], list[DimLike | None]]:
    axis_indices, sizes = _plan(name, x, s, axes)
    message = f"{name}: wants one axis or more"
    demand(bool(axis_indices), message, {"x": x}, fix="pass axes=(-1,)", error=AxisError)
    return axis_indices, sizes


@public
def hfft(
    x: TensorLike, /, *, n: DimLike | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    """The Fourier transform of numbers whose other half is their mirror image: it is real.

    x: [*A] -> [*A with n at axis] real.  Arguments and errors are those of `irfft`.
    """
    tensor = _complex("hfft", x, norm)
    return _doubled("hfft", F.conj(tensor), n, _axis("hfft", tensor, axis), OPPOSITE[norm])


@public
def ihfft(
    x: TensorLike, /, *, n: DimLike | None = None, axis: int = -1, norm: str = "backward"
) -> Tensor:
    """The inverse of `hfft`.  x: [*A] real -> [*A with n//2 + 1 at axis] complex

    Arguments and errors are those of `rfft`.
    """
    tensor = _real("ihfft", x, norm)
    half = _halved("ihfft", tensor, n, _axis("ihfft", tensor, axis), OPPOSITE[norm])
    return F.conj(half)


def _frequencies(
    name: str,
    n: DimLike,
    d: float,
    dtype: DTypeLike | None,
    device: str | None,
    numbers: Callable[[Any], Tensor],
) -> Tensor:
    """Divide whole numbers, made from n, by n times d."""
    check_device(name, device)
    size = _size(name, n, 0)
    to = dtype_or(dtype, ambient.get_default_dtype())
    message = f"{name}: dtype={to.name} is no real floating-point one"
    demand(to.is_floating, message, fix="use gf.float32", error=DTypeError)
    demand(d != 0, f"{name}: d={d}", fix="pass the distance of two samples, such as d=1.0")
    length = size * d if isinstance(size, int) else as_tensor(size, to) * d
    return converted(numbers(size), to) / length


@public
def fftfreq(
    n: DimLike,
    /,
    *,
    d: float = 1.0,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """The frequencies of the elements of `fft`: 0, 1, …, -2, -1, divided by n d.  -> [n]

    Args:
        n: How many elements are transformed.
        d: The distance of two of them.
        dtype: A real floating-point dtype, by default the default one.
        device: None or "graph".

    Raises:
        ArgumentError: n is less than 1, or d is 0.
        DTypeError: `dtype` is another.

    >>> import graphfw as gf
    >>> gf.fft.fftfreq(4)
    Tensor([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """

    def numbers(size: Any) -> Tensor:
        position = positions(size)
        return F.where(2 * position >= size, position - size, position)

    return _frequencies("fftfreq", n, d, dtype, device, numbers)


@public
def rfftfreq(
    n: DimLike,
    /,
    *,
    d: float = 1.0,
    dtype: DTypeLike | None = None,
    device: str | None = None,
) -> Tensor:
    """The frequencies of the elements of `rfft`: 0, 1, …, n//2, divided by n d.  -> [n//2 + 1]

    Arguments and errors are those of `fftfreq`.
    """
    return _frequencies("rfftfreq", n, d, dtype, device, lambda size: positions(size // 2 + 1))


@public
def fftshift(x: TensorLike, /, *, axes: Axes = None) -> Tensor:
    """Move frequency 0 to the middle: element 0 to n//2, along axes, all by default.

    x: [*A] -> [*A], any dtype.

    Raises:
        AxisError: There is no such axis, or one stands twice.
    """
    return _shifted("fftshift", x, axes, lambda size: operator.floordiv(size, 2))


@public
def ifftshift(x: TensorLike, /, *, axes: Axes = None) -> Tensor:
    """The inverse of `fftshift`, with its arguments and errors.  x: [*A] -> [*A]"""
    return _shifted("ifftshift", x, axes, lambda size: -operator.floordiv(size, 2))


def _shifted(name: str, x: TensorLike, axes: Axes, by: Callable[[Any], DimLike]) -> Tensor:
    tensor = as_tensor(x)
    axis_indices = axes_in_order(name, tensor, range(tensor.ndim) if axes is None else axes)
    return roll(tensor, [by(tensor.shape[axis]) for axis in axis_indices], axis=axis_indices)
