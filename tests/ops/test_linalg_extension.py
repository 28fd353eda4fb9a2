"""The extension `linalg`: values against NumPy, gradients against PyTorch, hard cases, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import (
    ArgumentError,
    AxisError,
    DTypeError,
    ExecutionError,
    GradientError,
    ShapeError,
)
from tests.support.gradcheck import check_gradients

torch: Any = pytest.importorskip("torch")

Array = np.ndarray[Any, Any]
DTYPES = ["float32", "float64", "complex64", "complex128"]


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "float64") -> Array:
    x = rng.normal(size=shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x, dtype)


def adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -2, -1))


def positive(x: Array) -> Array:
    return x @ adjoint(x) + 2 * np.eye(x.shape[-1], dtype=x.dtype)


def close(actual: gf.Tensor, expected: Any, tolerance: float = 0.0) -> None:
    """Compare values, shape and dtype."""
    array, expected = actual.numpy(), np.asarray(expected)
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    allowed = tolerance or 100 * np.finfo(array.dtype).eps
    np.testing.assert_allclose(array, expected, rtol=allowed, atol=allowed)


# Values.


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("batch", [(), (2,), (0,)])
def test_square(dtype: str, size: int, batch: tuple[int, ...], rng: np.random.Generator) -> None:
    x = positive(draw(rng, (*batch, size, size), dtype))
    t = gf.asarray(x)
    close(gf.linalg.inv(t), np.linalg.inv(x))
    close(gf.linalg.det(t), np.linalg.det(x), 1e-4)
    sign, logarithm = gf.linalg.slogdet(t)
    close(sign, np.linalg.slogdet(x).sign, 1e-4)
    close(logarithm, np.linalg.slogdet(x).logabsdet, 1e-4)
    close(gf.linalg.cholesky(t), np.linalg.cholesky(x))
    close(gf.linalg.cholesky(t, upper=True), adjoint(np.linalg.cholesky(x)))
    close(gf.linalg.eigvalsh(t), np.linalg.eigvalsh(x), 1e-4)
    b = draw(rng, (*batch, size, 2), dtype)
    close(gf.linalg.solve(t, gf.asarray(b)), np.linalg.solve(x, b))
    v = draw(rng, (size,), dtype)
    close(gf.linalg.solve(t, gf.asarray(v)), np.linalg.solve(x, v))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 3), (3, 5), (0, 2, 3), (0, 3), (4, 0), (1, 1)])
def test_rectangular(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> None:
    x = draw(rng, shape, dtype)
    t = gf.asarray(x)
    tolerance = 1e-4 if np.finfo(dtype).eps > 1e-10 else 1e-11
    for mode in ("reduced", "complete"):
        q, r = gf.linalg.qr(t, mode=mode)
        expected = np.linalg.qr(x, mode=mode)
        close(q, expected.Q, tolerance)
        close(r, expected.R, tolerance)
    for full in (False, True):
        u, s, vh = gf.linalg.svd(t, full_matrices=full)
        expected = np.linalg.svd(x, full_matrices=full)
        assert (u.shape, vh.shape) == (expected.U.shape, expected.Vh.shape)
        close(s, expected.S, tolerance)
        size = s.shape[-1]
        close((u[..., :size] * s[..., None, :]) @ vh[..., :size, :], x, tolerance)
        for basis in (u.numpy(), adjoint(vh.numpy())):
            ones = np.broadcast_to(np.eye(basis.shape[-1]), (*shape[:-2], *basis.shape[-1:] * 2))
            np.testing.assert_allclose(adjoint(basis) @ basis, ones, atol=tolerance)
    close(gf.linalg.svdvals(t), np.linalg.svdvals(x), tolerance)
    if 0 not in shape[-2:]:  # NumPy wants a largest singular value
        close(gf.linalg.pinv(t), np.linalg.pinv(x), tolerance)
        np.testing.assert_array_equal(gf.linalg.matrix_rank(t).numpy(), np.linalg.matrix_rank(x))
    else:
        assert gf.linalg.pinv(t).numpy().shape == (*shape[:-2], shape[-1], shape[-2])
        assert not gf.linalg.matrix_rank(t).numpy().any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigenvectors(dtype: str, rng: np.random.Generator) -> None:
    x = draw(rng, (2, 4, 4), dtype)
    x = x + adjoint(x)
    values, vectors = gf.linalg.eigh(gf.asarray(x))
    assert values.dtype == gf.asarray(x).dtype.real
    v, w = vectors.numpy(), values.numpy()
    tolerance = 1000 * np.finfo(dtype).eps
    np.testing.assert_allclose((v * w[..., None, :]) @ adjoint(v), x, atol=tolerance)
    np.testing.assert_allclose(adjoint(v) @ v, np.eye(4) + 0 * x, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("turns", [False, True])
def test_eigenvectors_of_any_matrix(dtype: str, turns: bool, rng: np.random.Generator) -> None:
    """With real eigenvalues and without: the dtype is the same."""
    x = np.array([[0, -1], [1, 0]], dtype) if turns else np.diag([1, 2]).astype(dtype)
    x = np.stack([x, x])
    values, vectors = gf.linalg.eig(gf.asarray(x))
    assert values.dtype == vectors.dtype == np.result_type(dtype, "complex64")
    v, w = vectors.numpy(), values.numpy()
    np.testing.assert_allclose(x @ v, v * w[..., None, :], atol=1e-6)
    close(gf.linalg.eigvals(gf.asarray(x)), w)
    assert gf.linalg.eig(gf.zeros((2, 0, 0))).eigenvectors.numpy().shape == (2, 0, 0)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_signs_do_not_depend_on_the_library(dtype: str, rng: np.random.Generator) -> None:
    """The leading elements are positive, also where two are equal but for rounding errors."""
    pair = np.array([[0.3, 1.0], [1.0, 0.3 + 1e-16]], dtype)
    vectors = gf.linalg.eigh(gf.asarray(pair)).eigenvectors.numpy()
    np.testing.assert_allclose(vectors, np.sqrt(0.5) * np.array([[1, 1], [-1, 1]]), atol=1e-12)
    x = draw(rng, (5, 3), dtype)
    u = gf.linalg.svd(gf.asarray(x)).U.numpy()
    for column in u.T:
        leading = column[np.argmax(np.abs(column) >= 0.62 * np.abs(column).max())]
        assert leading.real > 0
        assert leading.imag == pytest.approx(0)


def test_results_have_the_standards_names() -> None:
    x = gf.eye(2)
    assert gf.linalg.eigh(x)._fields == ("eigenvalues", "eigenvectors")
    assert gf.linalg.qr(x)._fields == ("Q", "R")
    assert gf.linalg.slogdet(x)._fields == ("sign", "logabsdet")
    assert gf.linalg.svd(x)._fields == ("U", "S", "Vh")


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 12, -1, -4])
def test_matrix_power(n: int, rng: np.random.Generator) -> None:
    x = draw(rng, (2, 3, 3))
    close(gf.linalg.matrix_power(gf.asarray(x), n), np.linalg.matrix_power(x, n), 1e-8)


def test_matrix_power_of_integers() -> None:
    x = np.array([[1, 1], [1, 0]])
    close(gf.linalg.matrix_power(x, 0).astype("float64"), np.eye(2))
    assert gf.linalg.matrix_power(x, 10).numpy().tolist() == [[89, 55], [55, 34]]
    assert gf.linalg.matrix_power(x, -1).dtype == gf.float32


@pytest.mark.parametrize("axis", [-1, -2])
def test_cross(axis: int, rng: np.random.Generator) -> None:
    x, y = draw(rng, (2, 3, 3)), draw(rng, (3, 3))
    close(gf.linalg.cross(gf.asarray(x), gf.asarray(y), axis=axis), np.cross(x, y, axis=axis))


def test_rank_and_pseudo_inverse_with_a_tolerance(rng: np.random.Generator) -> None:
    u = np.linalg.qr(draw(rng, (4, 3))).Q
    x = gf.asarray(u * [1.0, 0.1, 4e-16] @ np.eye(3))
    assert gf.linalg.matrix_rank(x).item() == 2
    assert gf.linalg.matrix_rank(x, rtol=0.5).item() == 1
    both = gf.stack([x, x])
    assert gf.linalg.matrix_rank(both, rtol=gf.asarray([0.5, 0.0])).numpy().tolist() == [1, 3]
    expected = np.linalg.pinv(x.numpy(), rcond=0.5)
    close(gf.linalg.pinv(both, rtol=gf.asarray([0.5, 0.0]))[0], expected, 1e-12)


def test_least_squares(rng: np.random.Generator) -> None:
    for m, n in ((5, 3), (3, 5)):
        a, b = draw(rng, (m, n)), draw(rng, (m, 2))
        close(gf.linalg.lstsq(a, b), np.linalg.lstsq(a, b, rcond=None)[0], 1e-10)
        close(gf.linalg.lstsq(a, b[:, 0]), np.linalg.lstsq(a, b[:, 0], rcond=None)[0], 1e-10)


def test_integers_become_floats() -> None:
    close(gf.linalg.solve([[2, 0], [0, 4]], [1, 1]), np.array([0.5, 0.25], np.float32))
    assert gf.linalg.inv([[1, 0], [0, 1]]).dtype == gf.float32


def test_numpys_functions_call_them(rng: np.random.Generator) -> None:
    x = draw(rng, (3, 3))
    close(np.linalg.inv(gf.asarray(x)), np.linalg.inv(x))
    assert isinstance(np.linalg.qr(gf.asarray(x)), gf.linalg.QRResult)
    with pytest.raises(TypeError, match=r"(?s)does not take compute_uv=\n.*use gf\.linalg\.svd$"):
        np.linalg.svd(gf.asarray(x), compute_uv=False)


# Gradients.


def compare(ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: Array) -> None:
    """Compare values with PyTorch's, and gradients of the first and second order.

    Of Re(w·y)³ for random weights w, so that no symmetry hides a mistake.
    """
    rng = np.random.default_rng(arrays[0].size)
    mine = [gf.asarray(x) for x in arrays]
    leaves = [torch.tensor(x, requires_grad=True) for x in arrays]
    y, z = ours(*mine), theirs(*leaves)
    total: Any = 0
    wanted: Any = 0
    pairs = list(zip(y, z, strict=True)) if isinstance(y, tuple) else [(y, z)]
    for a, b in pairs:
        np.testing.assert_allclose(a.numpy(), b.detach().resolve_conj().numpy(), atol=1e-9)
        w = draw(rng, a.shape, a.dtype.name)
        total = total + gf.sum(gf.real(a * w) ** 3)
        wanted = wanted + ((b * torch.tensor(w)).real ** 3).sum()
    firsts = gf.grad(total, mine)
    theirs_first = torch.autograd.grad(wanted, leaves, create_graph=True)
    total, wanted = 0, 0
    for g, h in zip(firsts, theirs_first, strict=True):
        np.testing.assert_allclose(g.numpy(), h.detach().resolve_conj().numpy(), 1e-7, 1e-7)
        w = draw(rng, g.shape, g.dtype.name)
        total, wanted = total + gf.sum(gf.real(g * w)), wanted + (h * torch.tensor(w)).real.sum()
    for g, h in zip(gf.grad(total, mine), torch.autograd.grad(wanted, leaves), strict=True):
        np.testing.assert_allclose(g.numpy(), h.resolve_conj().numpy(), 1e-6, 1e-5)


def symmetric(x: Any) -> Any:
    return (x + x.mH) / 2


both = pytest.mark.parametrize("dtype", ["float64", "complex128"])
L = torch.linalg


@both
def test_gradients_of_square(dtype: str, rng: np.random.Generator) -> None:
    x, b = draw(rng, (2, 3, 3), dtype), draw(rng, (3, 2), dtype)
    compare(gf.linalg.solve, L.solve, x, b)
    compare(gf.linalg.inv, L.inv, x)
    compare(gf.linalg.det, L.det, x)
    compare(lambda t: tuple(gf.linalg.slogdet(t)), lambda t: tuple(L.slogdet(t)), x)
    compare(lambda t: gf.linalg.matrix_power(t, -3), lambda t: L.matrix_power(t, -3), x)
    compare(gf.linalg.cholesky, lambda t: L.cholesky(symmetric(t)), positive(x))


@both
def test_gradients_of_eigh(dtype: str, rng: np.random.Generator) -> None:
    x = draw(rng, (2, 3, 3), dtype)
    x = x + adjoint(x)
    compare(gf.linalg.eigvalsh, lambda t: L.eigvalsh(symmetric(t)), x)

    def ours(t: gf.Tensor) -> tuple[gf.Tensor, ...]:
        values, vectors = gf.linalg.eigh(t)
        return values, gf.abs(vectors)

    def theirs(t: Any) -> tuple[Any, ...]:
        values, vectors = L.eigh(symmetric(t))
        return values, vectors.abs()

    compare(ours, theirs, x)


@both
def test_gradients_of_eig(dtype: str, rng: np.random.Generator) -> None:
    x = draw(rng, (2, 3, 3), dtype)
    compare(gf.linalg.eigvals, L.eigvals, x)

    def ours(t: gf.Tensor) -> tuple[gf.Tensor, ...]:
        values, vectors = gf.linalg.eig(t)
        return values, gf.abs(vectors)

    def theirs(t: Any) -> tuple[Any, ...]:
        values, vectors = L.eig(t)
        return values, vectors.abs()

    compare(ours, theirs, x)


@pytest.mark.exhaustive
@both
@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 3), (2, 3, 4)])
def test_gradients_of_rectangular(
    dtype: str, shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    x = draw(rng, shape, dtype)
    compare(lambda t: tuple(gf.linalg.qr(t)), lambda t: tuple(L.qr(t)), x)
    compare(gf.linalg.pinv, L.pinv, x)
    compare(gf.linalg.svdvals, L.svdvals, x)

    def invariants(u: Any, s: Any, vh: Any) -> tuple[Any, ...]:
        return abs(u), s, abs(vh), (u * s[..., None, :] ** 2) @ vh

    def ours(t: gf.Tensor) -> tuple[Any, ...]:
        return invariants(*gf.linalg.svd(t, full_matrices=False))

    compare(ours, lambda t: invariants(*L.svd(t, full_matrices=False)), x)


@both
@pytest.mark.parametrize("ord", ["nuc", 2, -2])
def test_gradients_of_matrix_norm(dtype: str, ord: Any, rng: np.random.Generator) -> None:
    x = draw(rng, (2, 3, 4), dtype)
    compare(lambda t: gf.linalg.matrix_norm(t, ord=ord), lambda t: L.matrix_norm(t, ord), x)


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_gradient_of_det_where_it_is_0(rank: int, rng: np.random.Generator) -> None:
    x = draw(rng, (3, rank)) @ draw(rng, (rank, 3))
    t = gf.asarray(x)
    check_gradients(gf.linalg.det(t), [t], rng, order=1)


def test_equal_eigenvalues_have_finite_gradients(rng: np.random.Generator) -> None:
    x = gf.asarray(np.diag([2.0, 1.0, 1.0, 1.0]))
    values, vectors = gf.linalg.eigh(x)
    # The projection on the space of eigenvalue 1 does not depend on the vectors chosen in it.
    basis = vectors[:, :3]
    check_gradients(basis @ basis.mT, [x], rng, order=1)
    check_gradients(gf.sum(values[:3]), [x], rng, order=1)
    anything = gf.grad(gf.sum(vectors * draw(rng, (4, 4))), x)
    assert np.isfinite(anything.numpy()).all()


def test_equal_singular_values_have_finite_gradients(rng: np.random.Generator) -> None:
    for x in (np.eye(3), np.zeros((3, 2)), np.diag([1.0, 1.0, 0.0])):
        t = gf.asarray(x)
        u, s, vh = gf.linalg.svd(t, full_matrices=False)
        loss = gf.sum(u * draw(rng, u.shape)) + gf.sum(vh * draw(rng, vh.shape)) + gf.sum(s)
        assert np.isfinite(gf.grad(loss, t).numpy()).all()
    t = gf.asarray(np.eye(3))
    check_gradients(gf.linalg.pinv(t), [t], rng)  # equal values are no difficulty for it


def test_symmetry_is_not_asked_of_the_input(rng: np.random.Generator) -> None:
    """Both triangles count, and get the same gradient."""
    x = positive(draw(rng, (3, 3)))
    skew = draw(rng, (3, 3))
    skew = skew - skew.T
    close(gf.linalg.cholesky(x + skew), np.linalg.cholesky(x))
    t = gf.asarray(x + skew)
    for y in (gf.linalg.cholesky(t), gf.linalg.eigvalsh(t), *gf.linalg.eigh(t)):
        check_gradients(y, [t], rng, order=1)
        (g,) = gf.grad(y, [t], draw(rng, y.shape))
        np.testing.assert_allclose(g.numpy(), g.numpy().T, atol=1e-12)


def test_gradients_that_do_not_exist() -> None:
    x = gf.zeros((4, 3))
    with pytest.raises(GradientError, match=r'qr: with mode="complete" and 4 x 3 matrices'):
        gf.grad(gf.sum(gf.linalg.qr(x, mode="complete").Q), x)
    with pytest.raises(GradientError, match=r"svd: with full_matrices=True(.*\n)+.*=False"):
        gf.grad(gf.sum(gf.linalg.svd(x).S), x)
    with gf.Graph():
        x = gf.placeholder(("m", "n"), name="x")
        with pytest.raises(GradientError, match="more rows or columns is not known: m and n"):
            gf.grad(gf.sum(gf.linalg.qr(x).R), x)


# Sessions.


def test_symbolic_sizes_run(rng: np.random.Generator) -> None:
    with gf.Graph() as g:
        a = gf.placeholder(("n", "n"), gf.float64, name="a")
        b = gf.placeholder(("n",), gf.float64, name="b")
        y = gf.linalg.solve(a, b)
        u, s, vh = gf.linalg.svd(a)
        loss = gf.sum(y * y) + gf.sum(gf.linalg.qr(a).R) + gf.sum((u * s) @ vh)
        fetches = [y, gf.linalg.matrix_rank(a), gf.linalg.pinv(a), *gf.grad(loss, [a, b])]
    with gf.Session(g) as session:
        for n in (3, 1, 0):
            x, v = draw(rng, (n, n)) + 2 * np.eye(n), draw(rng, (n,))
            values = session.run(fetches, {a: x, b: v})
            np.testing.assert_allclose(values[0], np.linalg.solve(x, v))
            assert values[1] == n
            np.testing.assert_allclose(values[2], np.linalg.inv(x))
            assert (values[3].shape, values[4].shape) == ((n, n), (n,))


def test_what_fails_when_it_runs() -> None:
    with gf.Graph() as g:
        a = gf.placeholder(("n", "n"), name="a")
        b = gf.placeholder(("n",), name="b")
        y = gf.linalg.solve(a, b)
        ct = gf.grad(gf.linalg.slogdet(a).logabsdet, a)
        factor = gf.linalg.cholesky(a)
        s = gf.linalg.svdvals(a)
    zeros = np.zeros((2, 2), np.float32)
    with gf.Session(g) as session:
        with pytest.raises(ExecutionError, match=r"^solve: a matrix is singular\n") as caught:
            session.run(y, {a: zeros, b: np.ones(2, np.float32)})
        assert '"a"  float32[2, 2] in [0, 0]' in str(caught.value)
        assert "gf.linalg.pinv" in caught.value.fix
        with pytest.raises(ExecutionError, match=r"^inv: a matrix is singular\n(.*\n)+.*gradient"):
            session.run(ct, {a: zeros})
        with pytest.raises(ExecutionError, match="cholesky: a matrix is not positive definite"):
            session.run(factor, {a: zeros})
        with pytest.raises(ExecutionError, match=r"does not converge(.*\n)+.*look for NaN"):
            session.run(s, {a: np.full((2, 2), np.nan, np.float32)})


# Errors.


def test_errors() -> None:
    square, wide = gf.ones((2, 2)), gf.ones((2, 3))
    for function in (gf.linalg.inv, gf.linalg.det, gf.linalg.cholesky, gf.linalg.eigh):
        with pytest.raises(ShapeError, match=r"wants square matrices: x\[-2\] = 2, x\[-1\] = 3"):
            function(wide)
    with pytest.raises(ShapeError, match="matrix_power: wants square matrices"):
        gf.linalg.matrix_power(wide, 2)
    with pytest.raises(ArgumentError, match=r"matrix_power: n=1\.5 is no int"):
        gf.linalg.matrix_power(square, 1.5)
    with pytest.raises(DTypeError, match="matrix_power: wants numeric tensors, not bool"):
        gf.linalg.matrix_power(square > 0, 2)
    with pytest.raises(ShapeError, match=r"don't broadcast: x1\[-3\] = 4, x2\[-3\] = 5"):
        gf.linalg.solve(gf.ones((4, 2, 2)), gf.ones((5, 2, 1)))
    with pytest.raises(ShapeError, match=r"solve: rows differ: x1\[-1\] = 2, x2\[-2\] = 3"):
        gf.linalg.solve(square, gf.ones(3))
    with pytest.raises(DTypeError, match=r"inv: wants float32, float64 or complex.*not float16"):
        gf.linalg.inv(gf.ones((2, 2), dtype="float16"))
    with pytest.raises(ArgumentError, match="qr: mode='r'"):
        gf.linalg.qr(square, mode="r")
    with pytest.raises(ShapeError, match="pinv: wants matrices, of 2 dims or more, not 1"):
        gf.linalg.pinv(gf.ones(3))
    with pytest.raises(ShapeError, match="pinv: rtol does not broadcast to the leading dims"):
        gf.linalg.pinv(square, rtol=gf.ones(2))
    with pytest.raises(ShapeError, match="cross: wants vectors of 3 elements, not 2 and 2"):
        gf.linalg.cross(square, square)
    with pytest.raises(AxisError, match="cross: axis 0 is out of range"):
        gf.linalg.cross(gf.ones((3, 2)), gf.ones((3, 2)), axis=0)
