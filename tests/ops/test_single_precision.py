"""Decompositions of float32 and complex64 matrices by LAPACK's loops in single precision."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.ops.linalg import single_precision
from graphfw.ops.linalg.eigen_svd import SVD, EigH, EigvalsH, SVDVals

OPS = [EigH(), EigvalsH(), SVD(False), SVD(True), SVDVals()]


def of(op, x):
    found = op.eval(np, x)
    return found if isinstance(found, tuple) else (found,)


def drawn(rng, lead, dtype):
    x = rng.standard_normal((*lead, 7, 7)).astype(dtype)
    return x + 1j * rng.standard_normal(x.shape).astype(dtype) if dtype == "complex64" else x


@pytest.mark.parametrize("op", OPS, ids=lambda op: f"{op.name}-{getattr(op, 'full_matrices', '')}")
@pytest.mark.parametrize("dtype", [gf.float32, gf.complex64], ids=str)
@pytest.mark.parametrize("lead", [(), (5,), (0,)], ids=str)
def test_results_are_those_of_double_precision_rounded(op, dtype, lead, rng):
    x = drawn(rng, lead, dtype.name).astype(dtype.dtype)
    kernel = op.kernel(np, dtype)
    found = kernel(x)
    found = found if isinstance(found, tuple) else (found,)
    for one, other in zip(found, of(op, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-4, strict=True)


@pytest.mark.parametrize("op", OPS[2:], ids=lambda op: op.name)
def test_what_does_not_converge_is_told(op):
    x = np.full((4, 4), np.nan, np.float32)
    with pytest.raises(ExecutionError, match="does not converge"):
        op.kernel(np, gf.float32)(x)


def test_double_precision_is_what_other_versions_have(monkeypatch):
    """And what float64 and other array modules get."""
    find = single_precision.single_precision
    assert find(np, gf.float32, "eigh") is not None
    assert find(np, gf.float64, "eigh") is None
    assert find(object(), gf.float32, "eigh") is None
    loops = single_precision._LOOPS
    monkeypatch.setitem(loops, "eigh", loops["eigh"]._replace(ufunc="no_such_ufunc"))
    monkeypatch.setitem(loops, "svd", loops["svd"]._replace(real="g->ggg"))
    assert find(np, gf.float32, "eigh") is find(np, gf.float32, "svd") is None
    x = np.eye(3, dtype=np.float32)
    np.testing.assert_array_equal(EigH().kernel(np, gf.float32)(x)[0], np.ones(3))
    monkeypatch.setattr(single_precision, "_MODULE", "numpy.linalg.no_such_module")
    assert find(np, gf.float32, "svdvals") is None
