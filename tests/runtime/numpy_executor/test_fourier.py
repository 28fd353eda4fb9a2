"""Fourier transforms that are compiled, beside NumPy's in more precise numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import float32
from graphfw.runtime.numpy_executor.codegen import KernelCode
from graphfw.runtime.numpy_executor.codegen.target import host
from graphfw.runtime.numpy_executor.fourier.butterflies import RADICES
from graphfw.runtime.numpy_executor.fourier.plan import radices_of
from graphfw.runtime.numpy_executor.fourier.roots import roots
from graphfw.runtime.numpy_executor.fourier.stages import (
    StageKind,
    StageSizes,
    Strides,
    multiple_of,
    stage,
)

BOUND = {np.complex64: 6e-7, np.complex128: 1.2e-15}
"""The largest error of results, relative to their norm."""

COMPLEX = [np.complex64, pytest.param(np.complex128, marks=pytest.mark.exhaustive)]


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def error(found: Any, wanted: Any) -> float:
    assert found.shape == wanted.shape
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted)) if wanted.size else 0.0


def transformed(x: Any, function: Any, threads: int = 1, dims: Any = None) -> Any:
    """Compile a function of an array; check that all of it is native, and run it."""
    with gf.Graph() as graph:
        given = gf.placeholder(dims or x.shape, dtype=x.dtype.name, name="x")
        result = function(given)
    plan = gf.Session(graph, threads=threads).compile(result, feeds=[given])
    assert "outside of native code" not in plan.explain(x)
    return np.asarray(plan(x))


def wide(x: Any) -> Any:
    return x.astype(np.clongdouble if x.dtype == np.complex128 else np.complex128)


@pytest.mark.exhaustive(every=6)
@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((5, 2048), (1,)),
        ((3, 256), (-1,)),
        ((70, 64), (1,)),
        ((33, 210), (1,)),
        ((210, 19), (0,)),
        ((2, 3, 16, 5), (2,)),
        ((2, 128, 48), (1, 2)),
        ((4, 39, 17), (1,)),
        ((9, 1), (1,)),
        ((1, 143), (1,)),
        ((4, 6, 8), (2, 0, 1)),
        ((0, 8), (1,)),
        ((20, 211), (1,)),
        ((3, 3376), (1,)),
        ((17, 50), (0,)),
        ((3, 19, 5), (1,)),
    ],
)
def test_lengths_and_axes(dtype, inverse, shape, axes):
    x = numbers(np.random.default_rng(), shape, dtype)
    for norm in ("backward", "ortho", "forward"):
        name = "ifftn" if inverse else "fftn"
        found = transformed(x, lambda x, n=norm, f=name: getattr(gf.fft, f)(x, axes=axes, norm=n))
        assert found.dtype == dtype
        wanted = getattr(np.fft, name)(wide(x), axes=axes, norm=norm) if x.size else x
        assert error(found, wanted) < BOUND[dtype]


@pytest.mark.parametrize("dtype", COMPLEX)
def test_lengths_as_they_come(dtype):
    rng = np.random.default_rng()
    for _ in range(4):
        factors = rng.choice(RADICES, size=rng.integers(1, 4))
        x = numbers(rng, (int(rng.integers(1, 40)), int(np.prod(factors))), dtype)
        assert error(transformed(x, gf.fft.fft), np.fft.fft(wide(x))) < BOUND[dtype]


@pytest.mark.exhaustive(every=6)
@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((5, 2048), 1),
        ((3, 512), -1),
        ((70, 30), 1),
        ((210, 19), 0),
        ((2, 64, 48), 1),
        ((3, 5, 6), 2),
        ((7, 2), 1),
        ((0, 8), 1),
        ((3, 2 * 1013), 1),
        ((62, 9), 0),
        ((40, 15), 1),
        ((21, 5), 0),
        ((4, 211), 1),
        ((6, 1), 1),
        ((2, 23, 3), 1),
    ],
)
def test_real_numbers(dtype, shape, axis):
    rng = np.random.default_rng()
    z = numbers(rng, shape, dtype)
    x, n = z.real.copy(), shape[axis]
    half = np.take(z, np.arange(n // 2 + 1), axis)
    for norm in ("backward", "ortho", "forward"):
        found = transformed(x, lambda x, m=norm: gf.fft.rfft(x, axis=axis, norm=m))
        back = transformed(half, lambda z, m=norm: gf.fft.irfft(z, n=n, axis=axis, norm=m))
        assert (found.dtype, back.dtype) == (z.dtype, x.dtype)
        if x.size:
            assert error(found, np.fft.rfft(wide(z).real, axis=axis, norm=norm)) < BOUND[dtype]
            wanted = np.fft.irfft(wide(half), n=n, axis=axis, norm=norm)
            assert error(back, wanted) < BOUND[dtype]


def test_gradients_are_native_too():
    x = np.random.default_rng().standard_normal((3, 96)).astype(np.float32)

    def function(x: Any) -> Any:
        spectrum = gf.fft.rfft(x)
        return gf.grad(gf.sum(gf.abs(spectrum) ** 2 + gf.real(spectrum)), x)

    found = transformed(x, function)
    with gf.Graph():
        wanted = function(gf.constant(x)).numpy()
    assert error(found, wanted) < 1e-5


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("shape", [(2, 32768), (3, 60000), (1, 1 << 17)])
def test_long_rows(dtype, shape):
    x = numbers(np.random.default_rng(), shape, dtype)
    for name in ("fft", "ifft"):
        one, two = [
            transformed(x, lambda x, f=name: getattr(gf.fft, f)(x), threads) for threads in (1, 2)
        ]
        assert one.tobytes() == two.tobytes()
        assert error(one, getattr(np.fft, name)(wide(x))) < BOUND[dtype]


def test_padded_and_cut_numbers():
    x = np.random.default_rng().standard_normal((5, 100)).astype(np.float32)
    for n in (64, 200):
        found = transformed(x, lambda x, n=n: gf.fft.rfft(x, n=n))
        assert error(found, np.fft.rfft(x.astype(np.float64), n=n)) < BOUND[np.complex64]
        back = transformed(found, lambda z, n=n: gf.fft.irfft(z, n=n + 10))
        assert error(back, np.fft.irfft(wide(found), n=n + 10)) < BOUND[np.complex64]


def test_batches_without_size():
    rng = np.random.default_rng()
    with gf.Graph() as graph:
        x = gf.placeholder(("b", 3, "c", 256), dtype="complex64", name="x")
        result = gf.fft.fft(gf.fft.ifft(x) * 2) + gf.fft.fft(x, axis=1)
    plan = gf.Session(graph).compile(result, feeds=[x])
    for b, c in ((1, 1), (3, 40), (0, 5), (2, 0), (5, 7)):
        array = numbers(rng, (b, 3, c, 256), "complex64")
        wanted = 2 * array + (np.fft.fft(wide(array), axis=1) if array.size else array)
        assert error(np.asarray(plan(array)), wanted) < 1e-6
    assert "outside of native code" not in plan.explain((5, 3, 7, 256))


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x[:, ::2],
        lambda x: x[::-1, 3:515],
        lambda x: gf.permute_dims(x, (1, 0)),
        lambda x: gf.broadcast_to(x[:1], (5, 1024)),
        lambda x: gf.reshape(gf.permute_dims(x, (1, 0)), (4, 256, 6)),
    ],
)
def test_views_are_read_where_they_lie(cut):
    x = numbers(np.random.default_rng(), (6, 1024), np.complex64)
    for axis in (0, 1):
        found = transformed(x, lambda x, a=axis: gf.fft.fft(cut(x), axis=a))
        with gf.Graph():
            view = cut(gf.constant(x)).numpy()
        assert error(found, np.fft.fft(wide(view), axis=axis)) < BOUND[np.complex64]


def test_feeds_of_any_layout():
    x = numbers(np.random.default_rng(), (300, 20, 2), np.complex64)[::-1, :, 1].T
    found = transformed(x, gf.fft.fft)
    assert error(found, np.fft.fft(wide(x))) < BOUND[np.complex64]


def test_threads_leave_the_bits_as_they_are():
    x = numbers(np.random.default_rng(), (37, 48, 160), np.complex64)
    for axis in (0, 1, 2):
        one, two = [
            transformed(
                x[:36] if axis == 0 else x, lambda x, a=axis: gf.fft.fft(x, axis=a), threads
            )
            for threads in (1, 2)
        ]
        assert one.tobytes() == two.tobytes()


def test_scans_have_transforms_in_their_bodies():
    x = numbers(np.random.default_rng(), (5, 64), np.complex64)

    def function(x: Any) -> Any:
        start = gf.zeros((64,), dtype="complex64")
        return gf.scan(lambda carry, row: (gf.fft.fft(carry * 0.1 + row), carry), start, x)[0]

    carry = np.zeros(64, np.complex128)
    for row in x:
        carry = np.fft.fft(carry * 0.1 + row)
    with gf.Graph() as graph:
        given = gf.placeholder(x.shape, dtype="complex64", name="x")
        result = function(given)
    found = np.asarray(gf.Session(graph).compile(result, feeds=[given])(x))
    assert error(found, carry) < 1e-6


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.slow
def test_as_accurate_as_pocketfft(dtype):
    fft = pytest.importorskip("scipy.fft").fft
    rng = np.random.default_rng()
    for n in (256, 540, 770, 1024):
        x = numbers(rng, (8, n), dtype)
        pi = np.longdouble("3.14159265358979323846264338327950288")
        angles = 2 * pi * (np.multiply.outer(np.arange(n), np.arange(n)) % n) / n
        wanted = x.astype(np.clongdouble) @ (np.cos(angles) - 1j * np.sin(angles))
        assert error(transformed(x, gf.fft.fft), wanted) < 2 * error(fft(x), wanted)


def test_roots_are_accurate():
    for n in (1, 2, 3, 8, 12, 1000, 1 << 20, 999_983):
        j = np.random.default_rng().integers(-n, 2 * n, 50)
        pi = np.longdouble("3.14159265358979323846264338327950288")
        angle = 2 * pi * (j % n).astype(np.longdouble) / n
        found = roots(j, n)
        assert abs(found.real - np.cos(angle)).max() < 1.2e-16
        assert abs(found.imag + np.sin(angle)).max() < 1.2e-16
    assert roots([0, 1, 2, 3], 4).tolist() == [1, -1j, -1, 1j]


def test_lengths_are_taken_apart():
    assert radices_of(2048, 32) == (4, 8, 8, 8)
    assert radices_of(1024, 32) == (8, 8, 16)
    assert radices_of(1024, 16) == (4, 4, 8, 8)
    assert radices_of(210, 32) == (7, 5, 3, 2)
    assert radices_of(1, 32) == (1,)
    assert radices_of(2 * 17, 32) is None


def test_unknown_lengths_are_numpys():
    with gf.Graph() as graph:
        x = gf.placeholder(("b", "n"), dtype="complex64", name="x")
        result = gf.fft.fft(x)
    plan = gf.Session(graph).compile(result, feeds=[x])
    assert "the length is no number" in plan.explain((2, 8))


def test_loops_of_whole_vectors_have_no_masks():
    kind = StageKind(float32, 4, "planes", "planes", "rows")
    codes = {}
    for positions in (64, 48, 7):
        strides = Strides(0, 4 * positions, 1, positions)
        sizes = StageSizes(1, 2, positions, 2, 0, strides, strides)
        codes[positions] = KernelCode(stage(kind, sizes).kernel, host()._replace(large=0))
    assert codes[64].key == codes[48].key != codes[7].key
    whole, other = [codes[n].llvm("f") for n in (64, 7)]
    assert len(whole) < len(other)
    assert "masked" not in whole


def test_multiples_of_positions_and_offsets():
    assert multiple_of(1024, 0) == 16
    assert multiple_of(24, 0) == 8
    assert multiple_of(1024, 4) == 4
    assert multiple_of(7, 16) == 1
    with gf.Graph():
        assert multiple_of(gf.placeholder(("n",)).shape[0], 16) == 1
