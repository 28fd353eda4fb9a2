"""Singular values of tall and wide matrices, from the triangle of a QR decomposition."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.ops.linalg.eigen_svd import SVD, SVDVals


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def compiled(compute, shape, dtype, *, by_qr=True):
    with gf.Graph() as g:
        x = gf.placeholder(shape, dtype)
        y = compute(x)
    plan = gf.Session(g).compile(y, feeds=[x])
    hits = [node.op.name for node in plan.program.graph.nodes]
    assert any(name in ("qr", "reflections") for name in hits) == by_qr
    return plan


def svd(x):
    return gf.linalg.svd(x, full_matrices=False)


SHAPES = [(9, 4), (4, 9), (300, 40), (40, 300), (20, 6, 3), (20, 3, 6), (3, 90, 40), (50, 1)]


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_factors_are_those_of_eval(shape, dtype, rng):
    a = rng.standard_normal(shape).astype(dtype)
    atol = 3e4 * np.finfo(dtype).eps
    for one, other in zip(compiled(svd, shape, dtype)(a), SVD(False).eval(np, a), strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=0, atol=atol, strict=True)
    alone = compiled(gf.linalg.svdvals, shape, dtype)(a)
    np.testing.assert_allclose(alone, SVDVals().eval(np, a), rtol=0, atol=atol)


def test_dependent_columns(rng):
    a = rng.standard_normal((80, 3)) @ rng.standard_normal((3, 20))
    for x in (a, a.T.copy(), np.zeros((80, 20)), np.eye(80, 20)):
        u, s, vh = [np.asarray(y) for y in compiled(svd, x.shape, "float64")(x)]
        np.testing.assert_allclose((u * s) @ vh, x, atol=1e-12)
        np.testing.assert_allclose(u.T @ u, np.eye(20), atol=1e-12)
        np.testing.assert_allclose(vh @ vh.T, np.eye(20), atol=1e-12)
        assert np.all(np.diff(s) <= 0)
        assert np.all(s >= 0)


def test_gradients_are_those_of_eval(rng):
    for shape in ((50, 6), (6, 50)):
        a = rng.standard_normal(shape)
        with gf.Graph() as g:
            x = gf.placeholder(shape, "float64")
            u, s, vh = svd(x)
            y = gf.sum(gf.sin(u)) + gf.sum(gf.exp(s)) + gf.sum(gf.cos(vh))
            slope = gf.grad(y + gf.sum(gf.linalg.svdvals(x) ** 3), x)
        with gf.Session(g) as session, gf.Session(g, debug=True) as plain:
            found, wanted = session.run(slope, {x: a}), plain.run(slope, {x: a})
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-6)


def test_what_has_no_singular_values():
    plan = compiled(svd, (40, 10), "float32")
    with pytest.raises(ExecutionError, match="svd: the search for singular values does not"):
        plan(np.full((40, 10), np.nan, np.float32))


def test_what_stays_as_it_is():
    compiled(svd, (10, 9), "float32", by_qr=False)
    compiled(svd, (40, 9), "complex64", by_qr=False)
    compiled(lambda x: gf.linalg.svd(x), (40, 9), "float32", by_qr=False)
    compiled(svd, ("n", 9), "float32", by_qr=False)
    compiled(svd, (0, 9), "float32", by_qr=False)


def test_values_are_kept():
    with gf.Graph() as g:
        x, y = gf.placeholder((70, 20)), gf.placeholder((20, 70))
        found = [*svd(x), *svd(y), gf.linalg.svdvals(x)]
    gf.Session(g, verify="values").compile(found, feeds=[x, y])
