"""Large matrices in native code: triangles, and factorisations that are cut into blocks."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from tests.runtime.numpy_executor.matrix_runs import (
    check_lu,
    compiled,
    positive,
    regular,
    run,
    tolerance,
)


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setenv("GRAPHFW_VERIFY", "each")  # no random sample is positive definite


def triangle(rng, lead, n, dtype, *, upper, unit):
    """Return well conditioned matrices, and the triangles that are solved with."""
    a = (rng.standard_normal((*lead, n, n)) / n + 2 * np.eye(n)).astype(dtype)
    strict = np.triu(a, 1) if upper else np.tril(a, -1)
    return a, strict + (np.eye(n, dtype=dtype) if unit else a * np.eye(n, dtype=dtype))


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lead", [(), (3,), (40,)], ids=str)
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangles(lead, upper, unit, dtype, rng):
    for n in (33, 66, 131):
        a, matrix = triangle(rng, lead, n, dtype, upper=upper, unit=unit)
        for columns in (1, 17, 70):
            b = rng.standard_normal((*lead, n, columns)).astype(dtype)
            options = {"upper": upper, "unit_diagonal": unit}
            y = run(lambda a, b, o=options: gf.linalg.solve_triangular(a, b, **o), a, b)
            assert y.dtype == dtype
            np.testing.assert_allclose(matrix @ y, b, **tolerance(dtype))


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lead", [(), (3,)], ids=str)
@pytest.mark.parametrize("upper", [False, True])
def test_triangles_for_few_columns(lead, upper, dtype, rng):
    """Rows or columns of the matrix are contiguous, or none are; the other triangle is not read."""
    views = {
        "rows": (lambda x: x, lambda x: x),
        "columns": (lambda x: x.swapaxes(-1, -2).copy(), lambda x: x.mT),
        "none": (lambda x: np.repeat(x, 2, axis=-1), lambda x: x[..., ::2]),
    }
    for n in (1, 5, 8, 33, 70, 203):
        a, matrix = triangle(rng, lead, n, dtype, upper=upper, unit=False)
        a[..., ~np.tri(n, dtype=bool).T if upper else ~np.tri(n, dtype=bool)] = np.nan
        for columns in (1, 2, 3, 4):
            b = rng.standard_normal((*lead, n, columns)).astype(dtype)
            for stored, view in views.values():
                y = run(
                    lambda a, b, v=view: gf.linalg.solve_triangular(v(a), b, upper=upper),
                    stored(a),
                    b,
                )
                np.testing.assert_allclose(matrix @ y, b, **tolerance(dtype))


def test_triangles_of_views_and_symbols(rng):
    a, _ = triangle(rng, (2, 1), 70, "float64", upper=False, unit=False)
    b = rng.standard_normal((3, 20, 70))
    y = run(lambda a, b: gf.linalg.solve_triangular(a.mT, b.mT, upper=True), a, b)
    wanted = np.linalg.solve(np.swapaxes(np.tril(a), -1, -2), np.swapaxes(b, -1, -2))
    np.testing.assert_allclose(y, wanted, **tolerance("float64"))
    shapes = [("n", "n"), ("n", "k")]
    square, sides = a[0, 0], b[0].T
    plan = compiled(
        lambda a, b: gf.linalg.solve_triangular(a, b, upper=True), square, sides, shapes=shapes
    )
    for n, columns in ((70, 20), (1, 1), (2, 3), (35, 0), (0, 3)):
        found = plan(square[:n, :n], sides[:n, :columns])
        wanted = np.linalg.solve(np.triu(square[:n, :n]), sides[:n, :columns])
        np.testing.assert_allclose(found, wanted, strict=True, **tolerance("float64"))


def test_a_block_of_a_result_is_solved_where_it_belongs(rng):
    a, matrix = triangle(rng, (), 80, "float32", upper=False, unit=False)
    b = rng.standard_normal((80, 5)).astype(np.float32)

    def both(a, b):
        y = gf.linalg.solve_triangular(a, b)
        return gf.concat([b, y, gf.linalg.solve_triangular(a, y)], axis=1)

    found = run(both, a, b)
    np.testing.assert_array_equal(found[:, :5], b)
    for i in (0, 5):
        sides = found[:, i : i + 5]
        np.testing.assert_allclose(matrix @ found[:, i + 5 : i + 10], sides, **tolerance("float32"))


def test_a_triangle_with_a_zero_is_refused(rng):
    a, _ = triangle(rng, (), 90, "float32", upper=True, unit=False)
    plan = compiled(lambda x: gf.linalg.solve_triangular(x, x, upper=True), a)
    assert np.all(np.isfinite(plan(a)))
    for index in (0, 50, 89):
        bad = a.copy()
        bad[index, index] = 0
        with pytest.raises(ExecutionError, match="a matrix is singular: it has a 0"):
            plan(bad)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lead", [(), (1,), (3,)], ids=str)
def test_cholesky(lead, dtype, rng):
    for n in (33, 64, 65, 129, 200, 301):
        a = positive(rng, lead, n, dtype)
        found = run(gf.linalg.cholesky, a)
        assert found.dtype == dtype
        np.testing.assert_array_equal(np.triu(found, 1), 0)
        assert np.all(np.diagonal(found, axis1=-2, axis2=-1) > 0)
        mean = (a + np.swapaxes(a, -1, -2)) / 2
        np.testing.assert_allclose(found @ np.swapaxes(found, -1, -2), mean, **tolerance(dtype))


def test_cholesky_of_an_ill_conditioned_matrix(rng):
    n = 150
    q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    a = (q * np.logspace(0, -12, n)) @ q.T
    a = (a + a.T) / 2
    found = run(gf.linalg.cholesky, a)
    wanted = np.linalg.cholesky(a)
    bound = 10 * np.abs(wanted @ wanted.T - a).max()
    np.testing.assert_allclose(found @ found.T, a, rtol=0, atol=bound)


def test_what_cholesky_refuses(rng):
    a = positive(rng, (), 150, "float32")
    plan = compiled(gf.linalg.cholesky, a)
    for index in (0, 70, 149):
        bad = a.copy()
        bad[index, index] = -1
        with pytest.raises(ExecutionError, match="cholesky: a matrix is not positive definite"):
            plan(bad)
    a[100, 100] = np.nan
    assert np.isnan(plan(a)).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lu(dtype, rng):
    for rows, columns in ((65, 65), (200, 200), (130, 70), (70, 130), (40, 200), (301, 30)):
        a = rng.standard_normal((rows, columns)).astype(dtype)
        check_lu(a, compiled(gf.linalg.lu, a)(a))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_solutions_and_inverses(dtype, rng):
    for n in (65, 150, 233):
        a = regular(rng, (), n, dtype)
        found = run(gf.linalg.inv, a)
        assert found.dtype == dtype
        np.testing.assert_allclose(found @ a, np.eye(n), **tolerance(dtype))
        for columns in (1, 20):
            b = rng.standard_normal((n, columns)).astype(dtype)
            y = run(gf.linalg.solve, a, b)
            np.testing.assert_allclose(a @ y, b, rtol=0, atol=1000 * np.finfo(dtype).eps)


def test_ill_conditioned_equations_are_solved_as_well_as_by_lapack(rng):
    n = 120
    u, v = [np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2)]
    a = (u * np.logspace(0, -12, n)) @ v
    b = rng.standard_normal((n, 2))

    def residual(y):  # backward errors do not grow with the condition
        return np.abs(a @ y - b).max() / (np.abs(a).max() * np.abs(y).max())

    found, wanted = run(gf.linalg.solve, a, b), np.linalg.solve(a, b)
    assert residual(found) <= 10 * max(residual(wanted), np.finfo(np.float64).eps)


def test_passes_are_not_blamed_for_where_nan_goes():
    with gf.Graph() as g:
        x, y = gf.placeholder((70, 70)), gf.placeholder((70, 3))
        found = [*gf.linalg.lu(x), gf.linalg.inv(x), gf.linalg.solve(x, y)]
    gf.Session(g, verify="values").compile(found, feeds=[x, y])


def test_singular_matrices_are_refused(rng):
    a = regular(rng, (), 100, "float32")
    b = rng.standard_normal((100, 2)).astype(np.float32)
    bad = a.copy()
    bad[:, 70] = 0
    plans = {
        "solve: a matrix is singular": compiled(lambda x: gf.linalg.solve(x, b), a),
        "inv: a matrix is singular": compiled(gf.linalg.inv, a),
    }
    for message, plan in plans.items():
        assert np.all(np.isfinite(plan(a)))
        with pytest.raises(ExecutionError, match=rf"^{message}\n"):
            plan(bad)


def test_a_matrix_and_its_transpose_share_a_decomposition(rng):
    a = regular(rng, (), 90, "float64")
    b = rng.standard_normal((90, 3))
    with gf.Graph() as g:
        x, sides = gf.placeholder(a.shape, "float64"), gf.placeholder(b.shape, "float64")
        y = gf.linalg.solve(x, sides)
        slopes = gf.grad(gf.sum(gf.sin(y)), [x, sides])
    with gf.Session(g) as session, gf.Session(g, debug=True) as plain:
        plan = session.compile([y, *slopes], feeds=[x, sides])
        assert "outside of native code" not in plan.explain()
        one_alone = session.compile(y, feeds=[x, sides]).explain()
        assert plan.explain().count("  lu\n") == one_alone.count("  lu\n")
        found = plan(a, b)
        wanted = plain.run([y, *slopes], {x: a, sides: b})
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)


def test_bits_do_not_depend_on_threads(rng):
    a = positive(rng, (), 300, "float32")
    results = []
    for threads in (1, 2):
        with gf.Graph() as g:
            x = gf.placeholder(a.shape)
            y = gf.linalg.cholesky(x)
            fetches = [y, gf.linalg.solve_triangular(y, x), gf.linalg.inv(x)]
        with gf.Session(g, threads=threads) as session:
            results.append([np.asarray(found) for found in session.run(fetches, {x: a})])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_gradients_are_those_of_eval(rng):
    a = positive(rng, (), 90, "float64")
    b = rng.standard_normal((90, 4))
    with gf.Graph() as g:
        x, y = gf.placeholder(a.shape, "float64"), gf.placeholder(b.shape, "float64")
        factor = gf.linalg.cholesky(x)
        loss = gf.sum(gf.linalg.solve_triangular(factor, y) ** 2) + gf.sum(gf.sin(factor))
        slopes = gf.grad(loss, [x, y])
    with gf.Session(g) as session, gf.Session(g, debug=True) as plain:
        found = session.run(slopes, {x: a, y: b})
        wanted = plain.run(slopes, {x: a, y: b})
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
