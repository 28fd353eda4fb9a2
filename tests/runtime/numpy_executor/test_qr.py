"""QR decompositions in native code: small matrices, panels of large ones, gradients."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ops.linalg.cholesky_qr import QR
from tests.runtime.numpy_executor.matrix_runs import compiled

LEADS = [(), (1,), (3,), (37,), (2, 9)]
SMALL = [(1, 1), (2, 2), (5, 3), (3, 5), (1, 4), (4, 1), (17, 17), (32, 31), (16, 32)]
LARGE = [(65, 65), (300, 7), (7, 90), (200, 33), (70, 130), (129, 97)]


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def drawn(rng, shape, dtype):
    """Return matrices whose leading columns are far from dependent."""
    rows, columns = shape[-2:]
    noise = rng.standard_normal(shape) / np.sqrt(max(rows, columns))
    return (noise + 2 * np.eye(rows, columns)[rng.permutation(rows)]).astype(dtype)


def qr(mode="reduced"):
    return lambda x: gf.linalg.qr(x, mode=mode)


def check(a, factors, mode="reduced"):
    """See that factors are a matrix's, orthonormal and triangular, and those of `eval`."""
    q, r = [np.asarray(x) for x in factors]
    tolerance = {"rtol": 0, "atol": 500 * np.finfo(a.dtype).eps * max(1, np.abs(a).max())}
    np.testing.assert_allclose(q @ r, a, **tolerance)
    inner = q.shape[-1]
    squares = np.swapaxes(q, -1, -2) @ q
    np.testing.assert_allclose(squares, np.broadcast_to(np.eye(inner), squares.shape), atol=1e-4)
    np.testing.assert_array_equal(np.tril(r, -1), 0)
    wanted = QR(mode == "complete").eval(np, a)
    for one, other in zip((q, r), wanted, strict=True):
        np.testing.assert_allclose(one, other, strict=True, **tolerance)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["reduced", "complete"])
@pytest.mark.parametrize("lead", LEADS, ids=str)
def test_small_matrices(lead, mode, dtype, rng):
    for shape in SMALL:
        a = drawn(rng, (*lead, *shape), dtype)
        check(a, compiled(qr(mode), a)(a), mode)


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_large_matrices(mode, dtype, rng):
    for shape in (*LARGE, (3, 40, 50), (2, 2, 100, 9)):
        a = drawn(rng, shape, dtype)
        check(a, compiled(qr(mode), a)(a), mode)


def test_narrower_panels_of_many_rows(rng):
    a = drawn(rng, (9000, 20), "float64")
    check(a, compiled(qr(), a)(a))


@pytest.mark.parametrize("shape", [(6, 4), (9, 8, 8), (90, 70), (70, 90)], ids=str)
def test_dependent_columns(shape, rng):
    """R is what is left of them: signs stay where there is nothing to reflect."""
    for a in (
        np.zeros(shape),
        np.broadcast_to(np.eye(*shape[-2:]), shape) * -3,
        np.broadcast_to(np.triu(np.ones(shape[-2:])), shape),
    ):
        check(np.ascontiguousarray(a), compiled(qr(), a)(a))
    few = rng.standard_normal((*shape[:-1], 2)) @ rng.standard_normal((*shape[:-2], 2, shape[-1]))
    q, r = [np.asarray(x) for x in compiled(qr(), few)(few)]
    np.testing.assert_allclose(q @ r, few, atol=1e-12)
    squares = np.swapaxes(q, -1, -2) @ q
    np.testing.assert_allclose(
        squares, np.broadcast_to(np.eye(q.shape[-1]), squares.shape), atol=1e-12
    )


@pytest.mark.parametrize("shape", [(6, 4), (20, 5, 3), (90, 70)], ids=str)
@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_squares_that_float32_has_not(scale, shape, rng):
    a = drawn(rng, shape, "float32")
    q, r = [np.asarray(x) for x in compiled(qr(), a)(a * np.float32(scale))]
    check(a, (q, r / np.float32(scale)))
    uneven = a.copy()
    uneven[..., 1:, 0] *= np.float32(1e-30)
    check(uneven, compiled(qr(), a)(uneven))


@pytest.mark.parametrize("shape", [(6, 4), (20, 5, 3), (90, 70)], ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_no_error(value, shape, rng):
    a = drawn(rng, shape, "float32")
    plan = compiled(qr(), a)
    for index in ((0, 0), (2, 0), (-1, -1)):
        bad = a.copy()
        bad[(*[1] * (len(shape) - 2), *index)] = value
        assert not np.isfinite(np.asarray(plan(bad).R)).all()


def test_views_of_any_strides(rng):
    a = drawn(rng, (3, 90, 70), "float64")
    small = drawn(rng, (5, 4, 9), "float32")
    check(a.mT.copy(), compiled(lambda x: gf.linalg.qr(x.mT), a)(a))
    check(a[:, ::-1, ::2].copy(), compiled(lambda x: gf.linalg.qr(x[:, ::-1, ::2]), a)(a))
    check(small.mT.copy(), compiled(lambda x: gf.linalg.qr(x.mT), small)(small))


def test_nothing_to_decompose():
    for shape in ((0, 3), (3, 0), (0, 3, 3), (2, 0, 90), (0, 90, 2)):
        a = np.zeros(shape, np.float32)
        with gf.Graph() as g:
            x = gf.placeholder(shape)
            found = gf.Session(g).compile(gf.linalg.qr(x), feeds=[x])(a)
        for one, other in zip(found, np.linalg.qr(a), strict=True):
            np.testing.assert_array_equal(np.asarray(one), other, strict=True)


def test_what_stays_with_numpy(rng):
    a = drawn(rng, (9, 9), "complex64")
    compiled(qr(), a, native=False)
    a = drawn(rng, (9, 9), "float32")
    check(a, compiled(qr(), a, native=False, shapes=[("n", "n")])(a))


@pytest.mark.parametrize("shape", [(9, 5), (5, 9), (8, 6, 6), (90, 40), (40, 90)], ids=str)
def test_gradients_are_those_of_eval(shape, rng):
    a = drawn(rng, shape, "float64")
    with gf.Graph() as g:
        x = gf.placeholder(shape, "float64")
        q, r = gf.linalg.qr(x)
        slope = gf.grad(gf.sum(gf.sin(q)) + gf.sum(gf.cos(r)), x)
    with gf.Session(g) as session, gf.Session(g, debug=True) as plain:
        plan = session.compile(slope, feeds=[x])
        assert "outside of native code" not in plan.explain()
        np.testing.assert_allclose(plan(a), plain.run(slope, {x: a}), rtol=1e-8, atol=1e-10)


def test_gradients_are_differences(rng):
    a, along = drawn(rng, (80, 35), "float64"), rng.standard_normal((80, 35))
    with gf.Graph() as g:
        x = gf.placeholder(a.shape, "float64")
        q, r = gf.linalg.qr(x)
        y = gf.sum(gf.sin(q)) + gf.sum(gf.cos(r))
        slope = gf.grad(y, x)
    with gf.Session(g) as session:
        value, slopes = session.compile(y, feeds=[x]), session.compile(slope, feeds=[x])
        step = 1e-6
        found = (value(a + step * along) - value(a - step * along)) / (2 * step)
        np.testing.assert_allclose(np.sum(slopes(a) * along), found, rtol=1e-6)


def test_mapped_over_matrices(rng):
    a = drawn(rng, (4, 70, 40), "float32")
    mapped = compiled(lambda x: gf.vmap(lambda m: tuple(gf.linalg.qr(m)))(x), a)
    check(a, mapped(a))


def test_bits_do_not_depend_on_threads(rng):
    for shape in ((2000, 5, 4), (500, 120)):
        a = drawn(rng, shape, "float32")
        results = []
        for threads in (1, 2):
            with gf.Graph() as g:
                x = gf.placeholder(shape)
                fetches = list(gf.linalg.qr(x))
            with gf.Session(g, threads=threads) as session:
                results.append([np.asarray(found) for found in session.run(fetches, {x: a})])
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one, other)


def test_passes_keep_values():
    with gf.Graph() as g:
        x = gf.placeholder((70, 50))
        y = gf.placeholder((50, 70))
        found = [*gf.linalg.qr(x), *gf.linalg.qr(y, mode="complete")]
    gf.Session(g, verify="values").compile(found, feeds=[x, y])
