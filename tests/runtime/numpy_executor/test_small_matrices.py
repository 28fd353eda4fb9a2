"""Small matrices in native code: beside NumPy's results, in both forms, and what they refuse."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.ops.linalg.cholesky_qr import Cholesky
from tests.runtime.numpy_executor.matrix_runs import (
    check_lu,
    compiled,
    positive,
    regular,
    run,
    tolerance,
)

LEADS = [(), (1,), (3,), (16,), (37,), (2, 9)]
SIZES = [1, 2, 3, 5, 7, 8, 13, 16, 17, 32]


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # no random sample is positive definite


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_inverses_and_solutions(lead, dtype, rng):
    for n in SIZES:
        a = regular(rng, lead, n, dtype)
        found = run(gf.linalg.inv, a)
        assert found.dtype == dtype
        np.testing.assert_allclose(
            found @ a, np.broadcast_to(np.eye(n), a.shape), **tolerance(dtype)
        )
        for columns in (1, 5, 70):
            b = rng.standard_normal((*lead, n, columns)).astype(dtype)
            y = run(gf.linalg.solve, a, b)
            assert y.dtype == dtype
            np.testing.assert_allclose(a @ y, b, **tolerance(dtype))


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_triangles(lead, dtype, rng):
    for n in SIZES:
        a = (rng.standard_normal((*lead, n, n)) / n + 2 * np.eye(n)).astype(dtype)
        b = rng.standard_normal((*lead, n, 3)).astype(dtype)
        for upper in (False, True):
            for unit in (False, True):
                strict = np.triu(a, 1) if upper else np.tril(a, -1)
                triangle = strict + (np.eye(n, dtype=dtype) if unit else a * np.eye(n, dtype=dtype))
                options = {"upper": upper, "unit_diagonal": unit}
                y = run(lambda a, b, o=options: gf.linalg.solve_triangular(a, b, **o), a, b)
                np.testing.assert_allclose(triangle @ y, b, **tolerance(dtype))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_cholesky(lead, dtype, rng):
    for n in SIZES:
        a = positive(rng, lead, n, dtype)
        found = run(gf.linalg.cholesky, a)
        assert found.dtype == dtype
        np.testing.assert_array_equal(np.triu(found, 1), 0)
        assert np.all(np.diagonal(found, axis1=-2, axis2=-1) > 0)
        mean = (a + np.swapaxes(a, -1, -2)) / 2
        np.testing.assert_allclose(found @ np.swapaxes(found, -1, -2), mean, **tolerance(dtype))


@pytest.mark.parametrize("lead", [(), (21,)], ids=str)
def test_ill_conditioned_matrices_are_solved_as_well_as_by_lapack(lead, rng):
    n = 12
    u, v = [np.linalg.qr(rng.standard_normal((*lead, n, n)))[0] for _ in range(2)]
    a = (u * 10.0 ** -np.arange(n)) @ v
    b = rng.standard_normal((*lead, n, 2))

    def residual(y):  # backward errors do not grow with the condition
        return np.abs(a @ y - b).max() / (np.abs(a).max() * np.abs(y).max())

    found, wanted = run(gf.linalg.solve, a, b), np.linalg.solve(a, b)
    assert residual(found) <= 10 * max(residual(wanted), np.finfo(np.float64).eps)
    square = a @ np.swapaxes(a, -1, -2) + 1e-12 * np.eye(n)
    factor = run(gf.linalg.cholesky, square)
    back = factor @ np.swapaxes(factor, -1, -2)
    np.testing.assert_allclose(back, (square + np.swapaxes(square, -1, -2)) / 2, atol=1e-15)


def test_views_and_broadcasts(rng):
    a = regular(rng, (5, 1), 4, "float32")
    b = rng.standard_normal((3, 6, 4)).astype(np.float32)
    y = run(lambda a, b: gf.linalg.solve(a.mT, b[..., ::2, :].mT), a, b)
    wanted = np.linalg.solve(np.swapaxes(a, -1, -2), np.swapaxes(b[..., ::2, :], -1, -2))
    np.testing.assert_allclose(y, wanted, **tolerance("float32"))
    one = rng.standard_normal(4).astype(np.float32)
    y = run(gf.linalg.solve, a[2, 0], one)
    np.testing.assert_allclose(y, np.linalg.solve(a[2, 0], one), **tolerance("float32"))
    both = rng.standard_normal((5, 3, 4, 4)).astype(np.float32) + 6 * np.eye(4, dtype=np.float32)
    y = run(lambda x: gf.linalg.inv(gf.permute_dims(x, (1, 0, 3, 2))), both)
    wanted = np.linalg.inv(both.transpose(1, 0, 3, 2))
    np.testing.assert_allclose(y, wanted, **tolerance("float32"))


def test_the_number_of_matrices_may_be_a_symbol(rng):
    a = regular(rng, (40,), 6, "float64")
    b = rng.standard_normal((40, 6, 2))
    shapes = [("n", 6, 6), ("n", 6, "k")]
    plan = compiled(gf.linalg.solve, a, b, shapes=shapes)
    for count in (40, 1, 8, 9, 0):
        found = np.asarray(plan(a[:count], b[:count]))
        np.testing.assert_allclose(a[:count] @ found, b[:count], **tolerance("float64"))
    assert np.asarray(plan(a, b[..., :0])).shape == (40, 6, 0)


def test_bits_do_not_depend_on_threads(rng):
    a = regular(rng, (5000,), 5, "float32")
    results = []
    for threads in (1, 2):
        with gf.Graph() as g:
            x = gf.placeholder(a.shape)
            y = gf.linalg.inv(x)
        with gf.Session(g, threads=threads) as session:
            results.append(np.asarray(session.run(y, {x: a})))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("many", [False, True])
def test_what_is_refused(many, rng):
    lead = (20,) if many else ()
    a = positive(rng, lead, 4, "float32")
    plans = {
        "solve: a matrix is singular": compiled(lambda x: gf.linalg.solve(x, x), a),
        "inv: a matrix is singular": compiled(gf.linalg.inv, a),
        "cholesky: a matrix is not positive definite": compiled(gf.linalg.cholesky, a),
        "a matrix is singular: it has a 0": compiled(lambda x: gf.linalg.solve_triangular(x, x), a),
    }
    bad = a.copy()
    bad[17 if many else ...] = np.diag([1.0, 0.0, 1.0, 1.0])
    for message, plan in plans.items():
        assert np.all(np.isfinite(plan(a)))
        with pytest.raises(ExecutionError, match=message):
            plan(bad)
    unit = compiled(lambda x: gf.linalg.solve_triangular(x, x, unit_diagonal=True), a)
    assert np.all(np.isfinite(unit(bad)))


def test_nan_is_no_error(rng):
    a = positive(rng, (20,), 4, "float32")
    bad = a.copy()
    bad[7, 0, 0] = np.nan
    for compute in (gf.linalg.inv, gf.linalg.cholesky, lambda x: gf.linalg.solve(x, x)):
        found = run(compute, bad)
        assert np.isnan(found[7]).any()
        np.testing.assert_array_equal(np.delete(found, 7, 0), np.delete(run(compute, a), 7, 0))


def test_what_only_native_code_refuses_is_computed_by_eval(monkeypatch, rng):
    """Rounding errors may make a last pivot 0 for one of them, and not for the other."""
    negative = -np.eye(3, dtype=np.float32)
    plan = compiled(gf.linalg.cholesky, negative)
    scan = compiled(
        lambda x: gf.scan(lambda c, _: (c, gf.linalg.cholesky(x)), 0.0, length=2)[1], negative
    )
    monkeypatch.setattr(Cholesky, "eval", lambda self, xp, x: xp.full_like(x, 7.0))
    np.testing.assert_array_equal(plan(negative), np.full((3, 3), 7.0))
    np.testing.assert_array_equal(scan(negative), np.full((2, 3, 3), 7.0))


def test_scans_that_solve_are_native(rng):
    a = regular(rng, (9,), 3, "float64")

    def step(state, x):
        state = gf.linalg.inv(x) @ gf.linalg.solve(x, state)
        return state, state

    def solved(xs):
        return gf.scan(step, gf.eye(3, dtype=gf.float64), xs)[1]

    plan = compiled(solved, a)
    assert "its iterations are one" in plan.explain()
    state, wanted = np.eye(3), []
    for x in a:
        state = np.linalg.inv(x) @ np.linalg.solve(x, state)
        wanted.append(state)
    np.testing.assert_allclose(plan(a), wanted, rtol=1e-9)
    a[4] = 0
    with pytest.raises(ExecutionError, match="a matrix is singular"):
        plan(a)


def test_what_stays_with_numpy(rng):
    large = regular(rng, (), 65, "float32")
    run(gf.linalg.inv, large.astype(np.complex64), native=False)
    plan = compiled(gf.linalg.inv, large, native=False, shapes=[("n", "n")])
    np.testing.assert_allclose(plan(large) @ large, np.eye(65), **tolerance("float32"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_lu(lead, dtype, rng):
    for rows, columns in ((1, 1), (2, 2), (5, 5), (9, 4), (4, 9), (17, 31), (32, 32)):
        a = rng.standard_normal((*lead, rows, columns)).astype(dtype)
        check_lu(a, compiled(gf.linalg.lu, a)(a))


def test_lu_of_a_singular_matrix(rng):
    a = np.zeros((20, 4, 4), np.float32)
    a[:, 0, 1] = 1
    a[7, :, 0] = [0, 2, -2, 1]
    for one, other in zip(compiled(gf.linalg.lu, a)(a), gf.linalg.lu(a), strict=True):
        np.testing.assert_array_equal(one, other)
