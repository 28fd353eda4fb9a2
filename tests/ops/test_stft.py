"""The short-time Fourier transform against NumPy's transforms of pieces, and its inverse."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import constant
from tests.support.gradcheck import check_gradients


def by_pieces(x, window, hop, n, centred):
    size = len(window)
    if centred:
        x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(size // 2,) * 2], mode="reflect")
    starts = range(0, x.shape[-1] - size + 1, hop)
    pieces = np.stack([x[..., s : s + size] * window for s in starts], axis=-2)
    return (np.fft.fft if x.dtype.kind == "c" else np.fft.rfft)(pieces, n=n)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(("size", "hop", "n"), [(8, 2, 8), (7, 3, 9), (1, 1, 1), (8, 11, 16)])
def test_stft_is_that_of_pieces_and_istft_its_inverse(rng, dtype, centred, size, hop, n):
    x = rng.normal(size=(2, 3, 40))
    x = (x + 1j * rng.normal(size=x.shape) if dtype[0] == "c" else x).astype(dtype)
    window = rng.uniform(0.5, 1, size)
    y = gf.fft.stft(x, window, hop, n=n, centred=centred)
    eps = float(np.finfo(dtype).eps)
    expected = by_pieces(x, window.astype(x.real.dtype), hop, n, centred)
    np.testing.assert_allclose(y.numpy(), expected, rtol=0, atol=200 * eps)
    if hop <= size:
        onesided = dtype[0] != "c"
        back = gf.fft.istft(y, window, hop, n=n, centred=centred, onesided=onesided, length=40)
        covered = (y.shape[-2] - 1) * hop + (size - size // 2 if centred else size)
        assert back.shape == x.shape
        assert back.dtype.dtype == dtype
        end = min(covered, 40)
        np.testing.assert_allclose(back.numpy()[..., :end], x[..., :end], rtol=0, atol=200 * eps)
        assert not back.numpy()[..., end:].any()


def test_windows_are_periodic():
    k = np.arange(10)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * k / 10)
    found = gf.fft.hann_window(10, dtype=gf.float64).numpy()
    np.testing.assert_allclose(found, hann, rtol=0, atol=1e-15)
    hamming = 0.54 - 0.46 * np.cos(2 * np.pi * k / 10)
    found = gf.fft.hamming_window(10)
    assert found.dtype is gf.float32
    np.testing.assert_allclose(found.numpy(), hamming, rtol=1e-6)


def test_what_no_piece_weighs_is_0(rng):
    x = rng.normal(size=24)
    window = gf.fft.hann_window(8, dtype=gf.float64)
    y = gf.fft.stft(x, window, 4, centred=False)
    back = gf.fft.istft(y, window, 4, centred=False).numpy()
    assert back[0] == 0
    np.testing.assert_allclose(back[1:], x[1:], atol=1e-12)


def test_gradients(rng):
    x, window = constant(rng.normal(size=(2, 12))), constant(rng.uniform(0.5, 1, 4))
    y = gf.fft.stft(x, window, 2)
    check_gradients(y, [x, window], rng, order=1)
    check_gradients(gf.fft.istft(y, window, 2), [x, window], rng, order=1)


def test_sizes_may_be_symbolic(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("b", "t"), name="x")
        window = gf.fft.hann_window(16)
        y = gf.fft.stft(x, window, 4)
        back = gf.fft.istft(y, window, 4)
    value = rng.normal(size=(2, 100)).astype("float32")
    with gf.Session(g) as session:
        found, again = session.run([y, back], {x: value})
    np.testing.assert_allclose(found, by_pieces(value, window.numpy(), 4, 16, True), atol=1e-5)
    np.testing.assert_allclose(again, value, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda w: gf.fft.stft(1.0, w, 2), gf.ShapeError, "x is a number"),
        (lambda w: gf.fft.stft(np.ones(9), np.ones((2, 2)), 2), gf.ShapeError, "not \\[W\\]"),
        (lambda w: gf.fft.stft(np.ones(9), w, 0), gf.ArgumentError, "hop=0"),
        (lambda w: gf.fft.stft(np.ones(9), w, 2, n=3), gf.ArgumentError, "n=3 is less than"),
        (lambda w: gf.fft.stft(np.ones(3), w, 2, centred=False), gf.ShapeError, "larger"),
        (lambda w: gf.fft.istft(np.ones((3, 4)), w, 2), gf.ShapeError, "not \\[\\*B, P, 3\\]"),
        (lambda w: gf.fft.istft(np.ones(3), w, 2), gf.ShapeError, "not \\[\\*B, P, 3\\]"),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call(np.ones(4))
