"""Eigenvalues and eigenvectors of many small symmetric matrices in native code."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.ops.linalg.eigen_svd import EigH, EigvalsH
from tests.runtime.numpy_executor.matrix_runs import compiled

LEADS = [(16,), (37,), (4, 9)]
SIZES = [1, 2, 3, 5, 8, 14, 17, 32]


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def adjoint(x):
    return np.swapaxes(x, -1, -2)


def check(a, found):
    """See that a matrix's values and vectors are right, and as `eval` has them."""
    values, vectors = [np.asarray(x) for x in found]
    tolerance = {"rtol": 0, "atol": 300 * np.finfo(a.dtype).eps * max(1, np.abs(a).max())}
    mean = (a + adjoint(a)) / 2
    back = (vectors * values[..., None, :]) @ adjoint(vectors)
    np.testing.assert_allclose(back, mean, **tolerance)
    squares = adjoint(vectors) @ vectors
    wanted = np.broadcast_to(np.eye(a.shape[-1]), squares.shape)
    np.testing.assert_allclose(squares, wanted, rtol=0, atol=300 * np.finfo(a.dtype).eps)
    np.testing.assert_allclose(values, EigvalsH().eval(np, a), strict=True, **tolerance)
    assert np.all(np.diff(values, axis=-1) >= 0)


def drawn(rng, lead, n, dtype):
    """Return matrices whose eigenvalues are apart, of which both triangles count."""
    q = np.linalg.qr(rng.standard_normal((*lead, n, n)))[0]
    values = np.arange(n) - n / 3 + 0.3 * rng.random((*lead, n))
    apart = np.triu(rng.standard_normal((n, n)), 1)
    return ((q * values[..., None, :]) @ adjoint(q) + apart - apart.T).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_values_and_vectors(lead, dtype, rng):
    for n in SIZES:
        a = drawn(rng, lead, n, dtype)
        found = compiled(gf.linalg.eigh, a)(a)
        check(a, found)
        wanted = EigH().eval(np, a)[1]
        atol = 5000 * np.finfo(dtype).eps
        np.testing.assert_allclose(np.asarray(found[1]), wanted, rtol=0, atol=atol, strict=True)
        alone = np.asarray(compiled(gf.linalg.eigvalsh, a, native=n <= 24 or dtype == "float32")(a))
        np.testing.assert_allclose(alone, found[0], rtol=0, atol=atol)


def test_values_that_are_equal(rng):
    """Vectors that are any of a space, and elements that are 0 from the beginning."""
    few = rng.standard_normal((20, 9, 2))
    signs = rng.choice([-1.0, 1.0], (20, 9))
    q = np.linalg.qr(rng.standard_normal((20, 9, 9)))[0]
    for a in (
        np.zeros((20, 9, 9)),
        np.broadcast_to(np.eye(9) * -2, (20, 9, 9)).copy(),
        np.ones((20, 9, 9)),
        few @ adjoint(few),
        (q * signs[:, None, :]) @ adjoint(q),
        np.broadcast_to(np.eye(9)[::-1], (20, 9, 9)).copy(),
        np.eye(9) * rng.standard_normal((20, 1, 9)),
    ):
        check(a, compiled(gf.linalg.eigh, a)(a))
        short = a.astype(np.float32)
        check(short, compiled(gf.linalg.eigh, short)(short))


@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1e20, 1e36])
def test_elements_of_any_size(scale, rng):
    a = drawn(rng, (20,), 6, "float32")
    values, vectors = [np.asarray(x) for x in compiled(gf.linalg.eigh, a)(a * np.float32(scale))]
    wanted = np.linalg.eigvalsh((a + adjoint(a)) / 2)
    np.testing.assert_allclose(values / np.float32(scale), wanted, rtol=0, atol=1e-4)
    squares = adjoint(vectors) @ vectors
    np.testing.assert_allclose(squares, np.broadcast_to(np.eye(6), a.shape), atol=1e-4)


def test_views_symbols_and_broadcasts(rng):
    a = drawn(rng, (4, 9), 6, "float64")
    of_transposed = compiled(lambda x: gf.linalg.eigh(gf.permute_dims(x, (1, 0, 3, 2))), a)
    check(a.transpose(1, 0, 3, 2), of_transposed(a))
    plan = compiled(gf.linalg.eigh, a[0], shapes=[("n", 6, 6)])
    for count in (9, 1, 8, 0):
        check_values = np.asarray(plan(a[0, :count])[0])
        np.testing.assert_allclose(check_values, EigvalsH().eval(np, a[0, :count]), atol=1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_as_by_eval(value, rng):
    a = drawn(rng, (20,), 5, "float32")
    plan = compiled(gf.linalg.eigh, a)
    a[7, 1, 3] = value
    try:
        wanted = EigH().eval(np, a)
    except ExecutionError:
        with pytest.raises(ExecutionError, match="eigh: the search for eigenvalues does not"):
            plan(a)
    else:
        for one, other in zip(plan(a), wanted, strict=True):
            np.testing.assert_array_equal(np.asarray(one), other)


def test_what_stays_with_numpy(rng):
    a = drawn(rng, (20,), 5, "complex64")
    compiled(gf.linalg.eigh, a, native=False)
    compiled(gf.linalg.eigh, a[:3].real.copy(), native=False)
    compiled(gf.linalg.eigh, drawn(rng, (20,), 33, "float32"), native=False)


def test_gradients_are_those_of_eval(rng):
    a = drawn(rng, (12,), 5, "float64")
    with gf.Graph() as g:
        x = gf.placeholder(a.shape, "float64")
        values, vectors = gf.linalg.eigh(x)
        y = gf.sum(gf.sin(values)) + gf.sum(gf.cos(vectors)) + gf.sum(gf.exp(gf.linalg.eigvalsh(x)))
        slope = gf.grad(y, x)
    with gf.Session(g) as session, gf.Session(g, debug=True) as plain:
        found, wanted = session.run(slope, {x: a}), plain.run(slope, {x: a})
    np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-8)


def test_mapped_over_matrices(rng):
    a = drawn(rng, (12,), 5, "float32")
    check(a, compiled(lambda x: gf.vmap(lambda m: tuple(gf.linalg.eigh(m)))(x), a)(a))


def test_bits_do_not_depend_on_threads(rng):
    a = drawn(rng, (3000,), 5, "float32")
    results = []
    for threads in (1, 2):
        with gf.Graph() as g:
            x = gf.placeholder(a.shape)
            fetches = list(gf.linalg.eigh(x))
        with gf.Session(g, threads=threads) as session:
            results.append([np.asarray(found) for found in session.run(fetches, {x: a})])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
