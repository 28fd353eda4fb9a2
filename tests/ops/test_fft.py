"""The extension `fft`: values against NumPy, gradients, symbolic sizes, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ArgumentError, AxisError, DTypeError, ExecutionError, ShapeError
from tests.support.gradcheck import check_gradients

COMPLEX = ["fft", "ifft", "irfft", "hfft"]
REAL = ["rfft", "ihfft"]
SEVERAL = ["fftn", "ifftn", "irfftn", "rfftn"]
NORMS = ["backward", "ortho", "forward"]


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    x = rng.normal(size=shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x, dtype)


def close(actual: gf.Tensor, expected: Any, tolerance: float = 1e-10) -> None:
    """Compare values, shape and dtype."""
    array = actual.numpy()
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(array, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COMPLEX + REAL)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [None, 1, 3, 4, 6, 7])
def test_one_axis(name: str, norm: str, n: int | None, rng: np.random.Generator) -> None:
    ours, numpys = getattr(gf.fft, name), getattr(np.fft, name)
    for dtype in ("float64", "complex128") if name in COMPLEX else ("float64",):
        for axis in (0, -1):
            x = draw(rng, (5, 4), dtype)
            y = ours(gf.asarray(x), n=n, axis=axis, norm=norm)
            close(y, numpys(x, n=n, axis=axis, norm=norm))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("s", "axes"),
    [(None, None), (None, (2, 0)), ((3, 7), (0, 2)), ((-1, 4), (1, 0)), ((2,), (-1,))],
)
def test_several_axes(name: str, norm: str, s: Any, axes: Any, rng: np.random.Generator) -> None:
    x = draw(rng, (4, 3, 5), "float64" if name == "rfftn" else "complex128")
    expected = getattr(np.fft, name)(x, s=s, axes=axes, norm=norm)
    close(getattr(gf.fft, name)(gf.asarray(x), s=s, axes=axes, norm=norm), expected)


@pytest.mark.parametrize("name", COMPLEX + REAL + SEVERAL)
def test_dtypes(name: str, rng: np.random.Generator) -> None:
    """The precision stays; less than float32 is computed in it."""
    gives_real = name in ("irfft", "hfft", "irfftn")
    for dtype, real in [("float32", "float32"), ("float64", "float64"), ("float16", "float32")]:
        y = getattr(gf.fft, name)(gf.asarray(draw(rng, (4,), dtype)))
        assert y.dtype.real == real
        assert y.dtype.is_complex != gives_real
        assert y.numpy().dtype == y.dtype
    assert getattr(gf.fft, name)(gf.asarray([1, 2, 3])).dtype.real == "float32"
    assert getattr(gf.fft, name)(gf.ones(3, dtype="bfloat16")).dtype.real == "float32"


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COMPLEX + REAL)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [None, 4, 7])
def test_gradients(name: str, norm: str, n: int | None, rng: np.random.Generator) -> None:
    x = gf.asarray(draw(rng, (2, 5), "float64" if name in REAL else "complex128"))
    check_gradients(getattr(gf.fft, name)(x, n=n, norm=norm), [x], rng)


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("s", [None, (3, 6)])
def test_gradients_of_several_axes(name: str, s: Any, rng: np.random.Generator) -> None:
    x = gf.asarray(draw(rng, (4, 2, 5), "float64" if name == "rfftn" else "complex128"))
    check_gradients(getattr(gf.fft, name)(x, s=s, axes=(0, 2), norm="ortho"), [x], rng)


def test_gradients_have_the_dtype_of_real_inputs(rng: np.random.Generator) -> None:
    x = gf.asarray(draw(rng, (5,), "float32"))
    y = gf.fft.fft(x)
    g = gf.grad(gf.sum(gf.square(gf.abs(y))), x)
    close(g, 2 * 5 * x.numpy(), 1e-4)  # Parseval


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("d", [1.0, 0.25])
def test_frequencies(n: int, d: float) -> None:
    close(gf.fft.fftfreq(n, d=d, dtype="float64"), np.fft.fftfreq(n, d))
    close(gf.fft.rfftfreq(n, d=d, dtype="float64"), np.fft.rfftfreq(n, d))
    assert gf.fft.fftfreq(n).dtype == gf.float32


@pytest.mark.parametrize("axes", [None, 0, (1, 2), (-1,)])
def test_shifts(axes: Any, rng: np.random.Generator) -> None:
    x = draw(rng, (4, 5, 1), "float64")
    close(gf.fft.fftshift(gf.asarray(x), axes=axes), np.fft.fftshift(x, axes))
    close(gf.fft.ifftshift(gf.asarray(x), axes=axes), np.fft.ifftshift(x, axes))


@pytest.mark.parametrize("name", COMPLEX + REAL)
def test_no_lines_to_transform(name: str) -> None:
    expected = getattr(np.fft, name)(np.zeros((0, 4), np.float32)).shape
    assert getattr(gf.fft, name)(gf.zeros((0, 4))).numpy().shape == expected


def test_numpys_functions_call_them(rng: np.random.Generator) -> None:
    x = draw(rng, (2, 5), "complex128")
    close(np.fft.ifftn(gf.asarray(x), axes=(0,)), np.fft.ifftn(x, axes=(0,)))


def test_symbolic_sizes_run(rng: np.random.Generator) -> None:
    with gf.Graph() as g:
        x = gf.placeholder(("n",), gf.float64, name="x")
        n = x.shape[0]
        half = gf.fft.rfft(x)
        back = gf.fft.irfft(half, n=n)
        even = gf.fft.irfft(half)
        assert half.shape == (n // 2 + 1,)
        assert back.shape == (n,)
        fetches = {
            "back": back,
            "even": even,
            "padded": gf.fft.fft(x, n=6),
            "double": gf.fft.fft(x, n=2 * n),
            "frequencies": gf.fft.fftfreq(n, d=0.5, dtype="float64"),
            "half": gf.fft.rfftfreq(n, dtype="float64"),
            "shifted": gf.fft.ifftshift(x),
            "gradient": gf.grad(gf.sum(gf.square(back)), x),
            "padded_gradient": gf.grad(gf.sum(gf.square(gf.abs(gf.fft.fft(x, n=6)))), x),
        }
    with gf.Session(g) as session:
        for size in (5, 8):
            a = draw(rng, (size,), "float64")
            values = session.run(fetches, {x: a})
            expected = {
                "back": a,
                "even": np.fft.irfft(np.fft.rfft(a)),
                "padded": np.fft.fft(a, 6),
                "double": np.fft.fft(a, 2 * size),
                "frequencies": np.fft.fftfreq(size, 0.5),
                "half": np.fft.rfftfreq(size),
                "shifted": np.fft.ifftshift(a),
                "gradient": 2 * a,
                "padded_gradient": np.where(np.arange(size) < 6, 12 * a, 0),
            }
            for name, value in expected.items():
                np.testing.assert_allclose(values[name], value, atol=1e-12, err_msg=name)
        with pytest.raises(ExecutionError, match="rfft: nothing to transform: a dim has size 0"):
            session.run(half, {x: np.zeros(0)})


def test_errors() -> None:
    x = gf.ones((2, 3))
    with pytest.raises(ArgumentError, match="fft: norm='no'"):
        gf.fft.fft(x, norm="no")
    with pytest.raises(ArgumentError, match="fft: n=0, and must be 1 or more"):
        gf.fft.fft(x, n=0)
    with pytest.raises(AxisError, match="ifft: axis 2 is out of range for 2 dims"):
        gf.fft.ifft(x, axis=2)
    with pytest.raises(AxisError, match="names a dim twice"):
        gf.fft.fftn(x, axes=(0, -2))
    with pytest.raises(ArgumentError, match=r"fftn: s=\(2,\) without axes(.*\n)+.*range\(-1, 0\)"):
        gf.fft.fftn(x, s=(2,))
    with pytest.raises(ArgumentError, match="rfftn: 1 size for 2 axes"):
        gf.fft.rfftn(x, s=(2,), axes=(0, 1))
    with pytest.raises(AxisError, match="irfftn: wants one axis or more"):
        gf.fft.irfftn(x, axes=())
    with pytest.raises(DTypeError, match="rfft: wants floating-point tensors, not complex64"):
        gf.fft.rfft(gf.ones(3, dtype="complex64"))
    with pytest.raises(ShapeError, match=r"fft: nothing to transform: x\[1\] = 0"):
        gf.fft.fft(gf.ones((2, 0)))
    with pytest.raises(ArgumentError, match="irfft: n=0, and must be 1 or more"):
        gf.fft.irfft(x, n=0)
    with pytest.raises(ShapeError, match=r"irfft: nothing to transform to: x\[0\] = 1"):
        gf.fft.irfft(gf.ones(1))
    with pytest.raises(ArgumentError, match="fftfreq: n=0"):
        gf.fft.fftfreq(0)
    with pytest.raises(ArgumentError, match="fftfreq: d=0"):
        gf.fft.fftfreq(3, d=0)
    with pytest.raises(DTypeError, match="rfftfreq: dtype=int64 is no real"):
        gf.fft.rfftfreq(3, dtype="int64")
