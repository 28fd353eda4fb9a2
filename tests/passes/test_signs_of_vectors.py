"""Signs of eigenvectors and singular vectors, chosen by native code."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ops.linalg.eigen_svd import SVD, EigH


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def compiled(compute, shape, dtype):
    with gf.Graph() as g:
        x = gf.placeholder(shape, dtype)
        y = compute(x)
    return gf.Session(g).compile(y, feeds=[x])


def is_raw(plan):
    ops = [node.op for node in plan.program.graph.nodes if isinstance(node.op, EigH | SVD)]
    return [op.is_raw for op in ops]


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (40, 40), (3, 35, 35), (3, 2, 2)], ids=str)
def test_results_are_those_of_eval(shape, dtype, rng):
    a = rng.standard_normal(shape).astype(dtype)
    tolerance = {"rtol": 0, "atol": 1e5 * np.finfo(dtype).eps}
    for compute, op in (
        (gf.linalg.eigh, EigH()),
        (gf.linalg.svd, SVD()),
        (lambda x: gf.linalg.svd(x, full_matrices=False), SVD(False)),
    ):
        plan = compiled(compute, shape, dtype)
        assert is_raw(plan) == [True]
        for one, other in zip(plan(a), op.eval(np, a), strict=True):
            np.testing.assert_allclose(np.asarray(one), other, strict=True, **tolerance)


def test_elements_that_tie(rng):
    """Of those that are as large but for rounding errors the first decides."""
    for a in (np.ones((4, 4)), np.eye(4), np.array([[1.0, -1.0], [-1.0, 1.0]]), np.zeros((3, 3))):
        found = compiled(gf.linalg.eigh, a.shape, "float64")(a)
        for one, other in zip(found, EigH().eval(np, a), strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=0, atol=1e-14)


def test_what_stays_as_it_is(rng):
    for compute, shape, dtype in (
        (gf.linalg.eigh, (40, 40), "complex64"),
        (gf.linalg.eigh, ("n", "n"), "float32"),
        (gf.linalg.eigh, (50, 5, 5), "float32"),
        (gf.linalg.eigh, (2, 0, 0), "float32"),
        (gf.linalg.svd, (5, 4), "float32"),
    ):
        assert is_raw(compiled(compute, shape, dtype)) == [False]


def test_values_are_kept():
    with gf.Graph() as g:
        x = gf.placeholder((40, 40))
        found = [*gf.linalg.eigh(x), *gf.linalg.svd(x)]
    gf.Session(g, verify="values").compile(found, feeds=[x])
