"""Spectra: transforms of many lengths, convolutions by them, chains of complex numbers."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from benchmarks.frameworks import Arrays, Formula
from benchmarks.longtail.draw import Draw
from benchmarks.longtail.formulas import contest, each, name_of, normal
from benchmarks.machine import cores
from benchmarks.workload import Contest


def _fft(xp: Any, name: str, x: Any, axes: int | tuple[int, ...] = -1, n: int | None = None) -> Any:
    """Return a transform, over several axes where the name ends in n; NumPy's users take SciPy's.

    SciPy's transforms work on all cores.
    """
    library = name_of(xp)
    over: dict[str, Any] = {"axes": axes} if name.endswith("n") else {"axis": axes}
    if library == "torch":
        over = {"dim": axes}
    if n is not None:
        over["n"] = n
    if library == "numpy":
        import scipy.fft

        return getattr(scipy.fft, name)(x, workers=len(cores()), **over)
    return getattr(xp.fft, name)(x, **over)


def _length(draw: Draw, low: int, high: int) -> int:
    """Return a length: a power of two, one with small factors, or one as it comes."""
    kind, n = draw.choice("power", "power", "factors", "any"), draw.size(low, high, least=4)
    if kind == "power":
        return int(2 ** round(np.log2(n)))
    return -(-n // 30) * 30 if kind == "factors" else n


def _contest(title: str, inputs: Any, function: Any, **fixed: Any) -> Contest:
    formula = Formula(inputs, **each(function, **fixed))
    return contest(title, formula, rtol=1e-3, atol=1e-5)


def _rows(xp: Any, x: Any) -> Any:
    return _fft(xp, "fft", x)


def fft_rows(draw: Draw) -> Contest:
    count, n = draw.size(16, 512), _length(draw, 128, 16_384)
    inputs = functools.partial(normal, (count, n), dtype="complex64")
    return _contest(f"the spectra of {count} rows of {n:,} complex numbers", inputs, _rows)


def fft_long(draw: Draw) -> Contest:
    n = _length(draw, 16_384, 2_000_000)
    inputs = functools.partial(normal, (n,), dtype="complex64")
    return _contest(f"the spectrum of {n:,} complex numbers", inputs, _rows)


def _plane(xp: Any, x: Any) -> Any:
    return _fft(xp, "fftn", x, (-2, -1))


def fft_planes(draw: Draw) -> Contest:
    batch, rows, columns = draw.size(1, 16), _length(draw, 64, 1024), _length(draw, 64, 1024)
    inputs = functools.partial(normal, (batch, rows, columns), dtype="complex64")
    return _contest(f"the spectra of {batch} planes of {rows}×{columns}", inputs, _plane)


def _columns(xp: Any, x: Any) -> Any:
    return _fft(xp, "rfft", x, 0)


def rfft_columns(draw: Draw) -> Contest:
    n, count = _length(draw, 128, 4096), draw.size(64, 1024)
    inputs = functools.partial(normal, (n, count))
    return _contest(f"the spectra of {count} columns of {n:,} real numbers", inputs, _columns)


# Rows convolved with a long filter by their spectra.  x: [rows, n], filter: [rows, n]


def _convolved(xp: Any, x: Any, kernel: Any) -> Any:
    n = x.shape[-1]
    product = _fft(xp, "rfft", x, n=2 * n) * _fft(xp, "rfft", kernel, n=2 * n)
    return _fft(xp, "irfft", product, n=2 * n)[..., :n]


def convolve_rows(draw: Draw) -> Contest:
    count, n = draw.size(16, 256), _length(draw, 256, 16_384)
    inputs = functools.partial(normal, (count, n), (count, n))
    return _contest(f"{count} rows of {n:,} convolved by their spectra", inputs, _convolved)


# A layer of a Fourier neural operator: some frequencies times weights.  x: [b, c, h, w]


def _operator_inputs(batch: int, channels: int, size: int, modes: int) -> Arrays:
    (x,) = normal((batch, channels, size, size))
    (w,) = normal((channels, channels, modes, modes), dtype="complex64", seed=1)
    return [x, w]


def _operator(xp: Any, x: Any, w: Any) -> Any:
    modes = w.shape[-1]
    z = _fft(xp, "rfftn", x, (-2, -1))[..., :modes, :modes]
    kept = xp.einsum("bixy,ioxy->boxy", z, w)
    return xp.real(kept) * 2.0 + xp.imag(kept)


def fourier_layer(draw: Draw) -> Contest:
    batch, channels, size = draw.size(1, 16), draw.size(8, 32), _length(draw, 32, 128)
    modes = min(size // 2, draw.choice(8, 12, 16))
    inputs = functools.partial(_operator_inputs, batch, channels, size, modes)
    title = f"{modes} frequencies of {batch}×{channels}×{size}×{size} times weights"
    return _contest(title, inputs, _operator)


# Chains and sums of complex numbers.  z, w: [n]


def _complex_chain(xp: Any, z: Any, w: Any) -> Any:
    y = z * xp.conj(w) + 0.5 * w
    return y / (1.0 + xp.abs(y))


def complex_chain(draw: Draw) -> Contest:
    n = draw.size(100_000, 4_000_000)
    inputs = functools.partial(normal, (n,), (n,), dtype="complex64")
    return _contest(f"a chain of {n:,} complex numbers", inputs, _complex_chain)


def _rotated(xp: Any, x: Any, phase: Any) -> Any:
    z = xp.exp(1j * phase) * x
    return xp.sum(xp.real(z * xp.conj(z)) * 0.5 + xp.real(z), axis=-1)


def complex_sums(draw: Draw) -> Contest:
    shape = (draw.size(64, 1024), draw.size(256, 4096))
    inputs = functools.partial(normal, shape, shape)
    return _contest(f"sums of {shape[0]}×{shape[1]} numbers turned by phases", inputs, _rotated)


def _complex_product(xp: Any, x: Any, y: Any) -> Any:
    return x @ y


def complex_product(draw: Draw) -> Contest:
    m, k, n = (draw.size(48, 640) for _ in range(3))
    inputs = functools.partial(normal, (m, k), (k, n), dtype="complex64")
    return _contest(f"a product of {m}×{k} and {k}×{n} complex numbers", inputs, _complex_product)


FAMILIES = {
    fft_rows: 1,
    fft_long: 1,
    fft_planes: 1,
    rfft_columns: 1,
    convolve_rows: 1,
    fourier_layer: 1,
    complex_chain: 1,
    complex_sums: 1,
    complex_product: 1,
}
"""Each with how many workloads a run draws from it."""
