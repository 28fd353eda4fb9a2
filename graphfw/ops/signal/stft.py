"""The short-time Fourier transform and its inverse: public in `graphfw.fft`."""

from __future__ import annotations

import math

from graphfw.errors import ShapeError, counted
from graphfw.ir import ambient
from graphfw.ir.dim import Dim, DimLike, always_le
from graphfw.ir.dtype import DTypeLike, as_dtype
from graphfw.ir.functions import F, public
from graphfw.ir.shape import shape_text, size_of
from graphfw.ir.tensor import Tensor
from graphfw.ops.args import TensorLike, converted, dtype_or, inexact, whole
from graphfw.ops.composed import demand, floats, wide
from graphfw.ops.signal.fft import fft, ifft, irfft, rfft

__all__ = ["hamming_window", "hann_window", "istft", "stft"]


@public
def stft(
    x: TensorLike, window: TensorLike, /, hop: int, *, n: int | None = None, centred: bool = True
) -> Tensor:
    """The Fourier transforms of pieces of a signal, each multiplied by a window.

    x: [*B, T] real or complex, window: [W] real -> [*B, P, n//2 + 1] complex; of a complex signal
    [*B, P, n]. Piece p begins at p · hop, so that P = 1 + (T - W) // hop, where T is longer by
    2 (W // 2) if the pieces are centred.

    Args:
        x: The signals.
        window: What pieces are multiplied by, as `gf.fft.hann_window(512)`.
        hop: How far the pieces are apart.
        n: How many elements to transform, W or more: zeros are added after. By default W.
        centred: Whether piece p is around p · hop instead: W // 2 elements are added at both ends,
            mirrored.

    Raises:
        ShapeError: x has no dim, the window is not [W] of known size, or x is shorter than a piece.
        ArgumentError: hop is not positive, or n is less than W.

    >>> import graphfw as gf
    >>> x = gf.sin(gf.arange(64, dtype=gf.float32))
    >>> gf.fft.stft(x, gf.fft.hann_window(16), hop=4).shape
    (17, 9)
    """
    tensor = wide(inexact(x))
    weights, size, length = _read("stft", tensor, window, hop, n)
    demand(
        tensor.ndim > 0,
        "stft: x is a number, not a signal",
        {"x": tensor},
        fix="give it [*B, T]",
        error=ShapeError,
    )
    *batch, samples = tensor.shape
    signal = F.reshape(tensor, (size_of(tuple(batch)), 1, samples))
    if centred:
        half = size // 2
        signal = F.pad(signal, ((0, 0), (0, 0), (half, half)), mode="reflect")
    pieces = F.unfold(signal, size, stride=hop).mT  # [B, P, W]
    pieces = F.reshape(pieces, (*batch, pieces.shape[1], size)) * weights
    return fft(pieces, n=length) if tensor.dtype.is_complex else rfft(pieces, n=length)


@public
def istft(
    x: TensorLike,
    window: TensorLike,
    /,
    hop: int,
    *,
    n: int | None = None,
    centred: bool = True,
    onesided: bool = True,
    length: DimLike | None = None,
) -> Tensor:
    """The signal whose short-time Fourier transform is nearest to x: the inverse of `stft`.

    x: [*B, P, n//2 + 1] -> [*B, T] real; with onesided=False [*B, P, n] -> [*B, T] complex. The
    pieces are multiplied by the window once more, added up, and divided by the sum of its squares
    (D. W. Griffin and J. S. Lim, 1984). Where no piece has any weight the result is 0.

    Args:
        x: The transforms.
        window: As for `stft`, and so are hop, n and centred.
        hop: How far the pieces are apart.
        n: How many elements each piece had when it was transformed; by default W.
        centred: Whether the pieces are around their positions.
        onesided: Whether they are halves of the transforms of real numbers.
        length: How long the signal was: the result is cut off, or filled up with zeros. By default
            it ends with the last piece, or, with `centred`, in its middle.

    Raises:
        ShapeError: x has fewer than 2 dims or other than n//2 + 1 (n) bins, or the window is not
            [W] of known size.
        ArgumentError: hop is not positive, or n is less than W.

    >>> import graphfw as gf
    >>> x, window = gf.sin(gf.arange(64, dtype=gf.float32)), gf.fft.hann_window(16)
    >>> back = gf.fft.istft(gf.fft.stft(x, window, hop=4), window, hop=4)
    >>> bool(gf.all(gf.abs(back - x) < 1e-5))
    True
    """
    tensor = inexact(x)
    weights, size, transformed = _read("istft", tensor, window, hop, n)
    bins = transformed // 2 + 1 if onesided else transformed
    demand(
        tensor.ndim >= 2 and tensor.shape[-1] == bins,
        f"istft: x is {shape_text(tensor.shape)}, not [*B, P, {bins}]",
        {"x": tensor},
        fix=f"n={transformed} elements have {bins} bins: give the n and onesided of the transform",
        error=ShapeError,
    )
    *batch, count, _ = tensor.shape
    pieces = (irfft if onesided else ifft)(tensor, n=transformed)[..., :size] * weights
    whole_size = (count - 1) * hop + size
    total = _added(F.reshape(pieces, (size_of(tuple(batch)), count, size)), whole_size, hop)
    squares = F.broadcast_to(F.square(weights), (1, count, size))
    weight = _added(squares, whole_size, hop)
    has_weight = weight > F.finfo(weights.dtype).eps
    signal = F.where(has_weight, total / F.where(has_weight, weight, 1), 0)
    signal = F.reshape(signal, (*batch, whole_size))
    first = size // 2 if centred else 0
    signal = signal[..., first:]
    wanted = whole_size - 2 * first if length is None else whole("istft", "length", length)
    left = whole_size - first
    if not always_le(wanted, left):
        missing = wanted - left
        is_known = isinstance(missing, int)
        demand(
            is_known,
            f"istft: whether length={wanted} is more than {left} is not known",
            {"x": tensor},
            fix="leave length out, and cut or pad the result",
        )
        return F.pad(signal, (*[(0, 0)] * len(batch), (0, missing)))
    return signal[..., :wanted]


def _read(
    name: str, x: Tensor, window: TensorLike, hop: int, n: int | None
) -> tuple[Tensor, int, int]:
    """Return the window in x's precision, its size, and how many elements are transformed."""
    weights = converted(floats(name, window), wide(x).dtype.real)
    shape = weights.shape
    is_known = len(shape) == 1 and isinstance(shape[0], int) and shape[0] > 0
    demand(
        is_known,
        f"{name}: the window is {shape_text(shape)}, not [W] of known size",
        {"window": weights},
        fix="write gf.fft.hann_window(512)",
        error=ShapeError,
    )
    step = whole(name, "hop", hop)
    demand(not isinstance(step, Dim) and step > 0, f"{name}: hop={hop}", fix="pass a positive int")
    size = int(shape[0])
    length = size if n is None else whole(name, "n", n)
    message = f"{name}: n={n} is less than the window's {counted(size, 'element')}"
    fits = not isinstance(length, Dim) and length >= size
    demand(fits, message, fix=f"use n={size} or more, or a shorter window")
    return weights, size, int(length)


def _added(pieces: Tensor, size: DimLike, hop: int) -> Tensor:
    """Add up pieces where they are.  pieces: [B, P, W] -> [B, size]"""
    return F.fold(pieces.mT, (size,), pieces.shape[-1], stride=hop)[:, 0]


@public
def hann_window(size: DimLike, /, *, dtype: DTypeLike | None = None) -> Tensor:
    """The window sin²(π k / size), periodic, as transforms want it.  -> [size]

    >>> import graphfw as gf
    >>> gf.fft.hann_window(4)
    Tensor([0. , 0.5, 1. , 0.5], dtype=float32)
    """
    return _cosine_window("hann_window", size, dtype, 0.5)


@public
def hamming_window(size: DimLike, /, *, dtype: DTypeLike | None = None) -> Tensor:
    """The window 0.54 - 0.46 cos(2 π k / size), periodic, as transforms want it.  -> [size]"""
    return _cosine_window("hamming_window", size, dtype, 0.54)


def _cosine_window(name: str, size: DimLike, dtype: DTypeLike | None, centre: float) -> Tensor:
    count = whole(name, "size", size)
    to = dtype_or(dtype, ambient.get_default_dtype())
    turn = F.astype(F.arange(count), as_dtype("float64")) * (2 * math.pi) / count
    return F.astype(centre - (1 - centre) * F.cos(turn), to)
