"""Solving with triangles, LU decompositions and exponentials of matrices, against NumPy."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.build import constant
from tests.support.gradcheck import check_gradients

DTYPES = ["float32", "float64", "complex64", "complex128"]


def matrices(rng, shape, dtype="float64", diagonal=0.0):
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return (x + diagonal * np.eye(*shape[-2:])).astype(dtype)


def tolerance(dtype):
    return {"rtol": 200 * float(np.finfo(dtype).eps), "atol": 200 * float(np.finfo(dtype).eps)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit_diagonal", [False, True])
@pytest.mark.parametrize("size", [0, 1, 3, 130])
def test_solve_triangular(rng, dtype, upper, unit_diagonal, size):
    x = matrices(rng, (2, 1, size, size), dtype, 3 * size) / max(size, 1)
    b = matrices(rng, (3, size, 2), dtype)
    y = gf.linalg.solve_triangular(x, b, upper=upper, unit_diagonal=unit_diagonal).numpy()
    triangle = np.triu(x) if upper else np.tril(x)
    if unit_diagonal:
        diagonal = np.arange(size)
        triangle[..., diagonal, diagonal] = 1
    assert y.dtype == dtype
    assert y.shape == (2, 3, size, 2)
    scale = max(1, np.abs(y).max(initial=0))
    wanted = np.broadcast_to(b, y.shape)
    np.testing.assert_allclose(triangle @ y / scale, wanted / scale, **tolerance(dtype))


def test_the_other_triangle_is_not_read(rng):
    x = matrices(rng, (4, 4), diagonal=4)
    b = matrices(rng, (4,) * 2)[0]
    spoilt = np.where(np.tri(4) == 1, x, np.nan)
    np.testing.assert_array_equal(
        gf.linalg.solve_triangular(spoilt, b).numpy(), gf.linalg.solve_triangular(x, b).numpy()
    )


def test_a_zero_on_the_diagonal_is_an_error():
    with pytest.raises(gf.ExecutionError, match="it has a 0 on its diagonal"):
        gf.linalg.solve_triangular([[1.0, 0.0], [1.0, 0.0]], [1.0, 2.0]).numpy()


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 3), (3, 5), (0, 4, 4), (4, 0), (0, 2), (150, 97)])
def test_lu(rng, dtype, shape):
    x = matrices(rng, shape, dtype)
    p, lower, upper = [t.numpy() for t in gf.linalg.lu(x)]
    assert p.dtype == lower.dtype == upper.dtype == dtype
    np.testing.assert_allclose(p @ lower @ upper, x, **tolerance(dtype))
    np.testing.assert_array_equal(lower, np.tril(lower))
    np.testing.assert_array_equal(upper, np.triu(upper))
    diagonal = np.diagonal(lower, axis1=-2, axis2=-1)
    np.testing.assert_array_equal(diagonal, np.ones_like(diagonal))
    if x.size:
        assert np.abs(lower).max() <= 1 + 1e-6
    assert (p @ p.swapaxes(-2, -1) == np.eye(p.shape[-1])).all()


def test_lu_of_a_singular_matrix():
    x = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 2.0], [0.0, 1.0, 3.0]])
    p, lower, upper = [t.numpy() for t in gf.linalg.lu(x)]
    np.testing.assert_allclose(p @ lower @ upper, x)


@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 3), (3, 5)])
def test_gradients_of_lu_where_rows_change_places(rng, shape):
    x = constant(matrices(rng, shape))
    lower, upper = gf.linalg.lu(x)[1:]
    check_gradients(lower, [x], rng, order=1)
    check_gradients(upper, [x], rng, order=1)


def test_lu_wants_to_know_what_is_longer_for_its_gradient():
    with gf.Graph():
        x = gf.placeholder(("m", "n"), name="x")
        with pytest.raises(gf.GradientError, match="more rows or columns is not known"):
            gf.grad(gf.sum(gf.linalg.lu(x).U), x)


def exact_exponential(x):
    with mpmath.workdps(40):
        return np.array(mpmath.expm(mpmath.matrix(x.tolist())).tolist(), dtype=x.dtype)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1e-6, 0.3, 5.0, 60.0])
def test_matrix_exp(rng, dtype, scale):
    x = scale * matrices(rng, (2, 3, 3), dtype) / 3
    found = gf.linalg.matrix_exp(x).numpy()
    assert found.dtype == dtype
    eps = float(np.finfo(dtype).eps)
    for got, one in zip(found, x, strict=True):
        exact = exact_exponential(one)
        assert np.abs(got - exact).max() <= 50 * eps * max(1, scale) * np.abs(exact).max()


def test_matrix_exp_of_special_matrices():
    with np.errstate(all="ignore"):
        found = gf.linalg.matrix_exp(np.array([[[-1e5]], [[0.0]], [[1e5]], [[np.nan]]])).numpy()
    np.testing.assert_array_equal(found.reshape(-1), [0, 1, np.inf, np.nan])
    assert gf.linalg.matrix_exp(np.zeros((2, 0, 0))).shape == (2, 0, 0)
    turn = gf.linalg.matrix_exp(np.array([[0, -np.pi], [np.pi, 0]]) * 1001).numpy()
    np.testing.assert_allclose(turn, -np.eye(2), atol=1e-10)


@pytest.mark.parametrize("scale", [0.5, 20.0])
def test_gradients_of_matrix_exp(rng, scale):
    x = constant(scale * matrices(rng, (2, 3, 3)) / 3 - 2 * scale * np.eye(3))
    check_gradients(gf.linalg.matrix_exp(x), [x], rng, order=2 if scale < 1 else 1)


def test_they_run_in_sessions_with_symbolic_sizes_and_under_vmap(rng):
    with gf.Graph() as g:
        x = gf.placeholder(("k", "n", "n"), gf.float64, name="x")
        p, lower, upper = gf.vmap(gf.linalg.lu)(x)
        product = p @ lower @ upper
        grown = gf.vmap(gf.linalg.matrix_exp)(x)
        solved = gf.vmap(lambda a: gf.linalg.solve_triangular(a, a))(x)
    value = matrices(rng, (2, 3, 3), diagonal=3)
    with gf.Session(g) as session:
        found = session.run([product, grown, solved], {x: value})
    np.testing.assert_allclose(found[0], value, rtol=1e-12)
    np.testing.assert_allclose(found[1], gf.linalg.matrix_exp(value).numpy(), rtol=1e-12)
    np.testing.assert_allclose(np.tril(value) @ found[2], value, rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: gf.linalg.matrix_exp(np.ones((2, 3))), gf.ShapeError, "wants square matrices"),
        (lambda: gf.linalg.matrix_exp(np.ones((2, 2), "float16")), gf.DTypeError, "not float16"),
        (lambda: gf.linalg.lu(np.ones(3)), gf.ShapeError, "wants matrices"),
        (lambda: gf.linalg.solve_triangular(np.eye(2), np.ones(3)), gf.ShapeError, "rows differ"),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call()
