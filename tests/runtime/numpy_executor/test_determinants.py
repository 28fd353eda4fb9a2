"""Determinants in native code: by LU decompositions."""

import numpy as np
import pytest

import graphfw as gf
from tests.runtime.numpy_executor.matrix_runs import compiled, regular


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 2), (5, 5), (33, 33), (80, 80), (7, 5, 5), (40, 13, 13), (2, 3, 4, 4)]
)
def test_determinants(shape, dtype, rng):
    a = regular(rng, shape[:-2], shape[-1], dtype)
    sign, logarithm = compiled(gf.linalg.slogdet, a)(a)
    wanted = np.linalg.slogdet(a.astype(np.float64))
    assert (sign.dtype, logarithm.dtype) == (dtype, dtype)
    np.testing.assert_array_equal(sign, wanted[0])
    tolerance = 1e4 * np.finfo(dtype).eps
    np.testing.assert_allclose(logarithm, wanted[1], rtol=0, atol=tolerance)
    found = compiled(gf.linalg.det, a)(a)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted[0] * np.exp(wanted[1]), rtol=tolerance)


def test_borders(rng):
    a = np.zeros((3, 3, 3), np.float32)
    a[1] = np.eye(3)[[1, 0, 2]]
    a[2, 0, 0] = np.nan
    sign, logarithm = compiled(gf.linalg.slogdet, a)(a)
    np.testing.assert_array_equal(sign, [0, -1, 1])
    np.testing.assert_array_equal(logarithm, [-np.inf, 0, np.nan])
    np.testing.assert_array_equal(compiled(gf.linalg.det, a)(a), [0, -1, np.nan])
    large = np.diag([1e30, 1e30, 1e-30, 1e-30]).astype(np.float32)
    np.testing.assert_allclose(compiled(gf.linalg.det, large)(large), 1, rtol=1e-3)


def test_a_likelihood_in_a_scan_is_native(rng):
    xs = rng.standard_normal((6, 3, 3))

    def step(total, x):
        square = x @ x.mT + gf.eye(3, dtype=x.dtype)
        return total + gf.linalg.slogdet(square).logabsdet, gf.linalg.det(x)

    plan = compiled(lambda x: gf.scan(step, gf.zeros((), dtype="float64"), x), xs)
    assert "its iterations are one" in plan.explain()
    total, each = plan(xs)
    squares = xs @ np.swapaxes(xs, -1, -2) + np.eye(3)
    np.testing.assert_allclose(total, np.linalg.slogdet(squares)[1].sum())
    np.testing.assert_allclose(each, np.linalg.det(xs))


def test_gradients_share_the_decomposition(rng):
    a = rng.standard_normal((80, 80)) + 9 * np.eye(80)
    with gf.Graph() as g:
        x = gf.placeholder(a.shape, "float64")
        logarithm = gf.linalg.slogdet(x).logabsdet
        slope = gf.grad(logarithm, x)
    with gf.Session(g) as session:
        plan = session.compile([logarithm, slope], feeds=[x])
        assert "outside of native code" not in plan.explain()
        alone = session.compile(logarithm, feeds=[x]).explain()
        assert plan.explain().count("  lu\n") == alone.count("  lu\n") > 0
        np.testing.assert_allclose(plan(a)[1], np.linalg.inv(a).T, atol=1e-12)
