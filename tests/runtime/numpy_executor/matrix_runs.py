"""Matrices, and plans of functions of them."""

import numpy as np

import graphfw as gf


def compiled(compute, *arrays, native=True, shapes=None):
    """Return a plan of a function of arrays, and see that NumPy has no part in it."""
    with gf.Graph() as g:
        shapes = shapes or [x.shape for x in arrays]
        feeds = [gf.placeholder(s, str(x.dtype)) for s, x in zip(shapes, arrays, strict=True)]
        y = compute(*feeds)
    plan = gf.Session(g).compile(y, feeds=feeds)
    assert ("outside of native code" not in plan.explain()) == native
    return plan


def run(compute, *arrays, **options):
    return np.asarray(compiled(compute, *arrays, **options)(*arrays))


def regular(rng, lead, n, dtype):
    """Return matrices whose largest elements are not on their diagonals."""
    noise = rng.standard_normal((*lead, n, n)) / np.sqrt(n)
    return (noise + 2 * np.eye(n)[rng.permutation(n)]).astype(dtype)


def positive(rng, lead, n, dtype):
    """Return matrices of which both triangles count."""
    x = rng.standard_normal((*lead, n, n))
    matrices = x @ np.swapaxes(x, -1, -2) / n + np.eye(n)
    apart = np.triu(rng.standard_normal((n, n)), 1)
    return (matrices + apart - apart.T).astype(dtype)


def check_lu(a, factors):
    """See that factors are a matrix's, and, where no pivots are all but equal, those of `eval`."""
    p, lower, upper = [np.asarray(x) for x in factors]
    np.testing.assert_allclose(p @ lower @ upper, a, rtol=0, atol=300 * np.finfo(a.dtype).eps)
    np.testing.assert_array_equal(np.sort(p, axis=-1)[..., :-1], 0)
    np.testing.assert_array_equal(np.triu(lower, 1), 0)
    np.testing.assert_array_equal(np.tril(upper, -1), 0)
    assert np.abs(lower).max() <= 1
    for one, other in zip((p, lower, upper), gf.linalg.lu(a), strict=True):
        assert one.dtype == other.dtype
        if a.dtype == np.float64:
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-8)


def tolerance(dtype):
    return {"rtol": 0, "atol": 300 * np.finfo(dtype).eps}
