"""Stacks, diagonals and quarter turns, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from tests.support.gradcheck import check_gradients

SHAPES = [[()], [(), ()], [(3,), (3,)], [(2, 3), (2, 3)], [(2, 3, 4), (2, 3, 4)], [(3,), (1, 3)]]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["vstack", "hstack", "dstack", "column_stack"])
def test_stacks_are_numpys(name, shapes, rng):
    arrays = [rng.normal(size=shape) for shape in shapes]
    try:
        expected = getattr(np, name)(arrays)
    except ValueError:
        with pytest.raises(gf.ShapeError):
            getattr(gf, name)(arrays)
        return
    result = getattr(gf, name)(arrays)
    np.testing.assert_array_equal(result.numpy(), expected, strict=True)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (2, 1, 1, 2), (0,)])
@pytest.mark.parametrize("name", ["atleast_1d", "atleast_2d", "atleast_3d"])
def test_dims_are_added_where_numpy_adds_them(name, shape):
    x = np.zeros(shape, np.int8)
    result = getattr(gf, name)(x)
    np.testing.assert_array_equal(result.numpy(), getattr(np, name)(x), strict=True)


def test_stacks_promote_and_have_symbolic_sizes():
    assert gf.hstack([gf.asarray([1]), gf.asarray([2.5])]).dtype is gf.float32
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        made = [gf.vstack([x, x]), gf.hstack([x, x]), gf.column_stack([x, x]), gf.diag(x, k=-1)]
        n = x.shape[0]
        assert [y.shape for y in made] == [(2, n), (2 * n,), (n, 2), (n + 1, n + 1)]
    with gf.Session(g) as session:
        array = np.arange(3, dtype=np.float32)
        found = session.run(made, {x: array})
    wanted = [np.vstack([array] * 2), np.hstack([array] * 2), np.column_stack([array] * 2)]
    for value, expected in zip(found, [*wanted, np.diag(array, -1)], strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("name", ["vstack", "hstack", "dstack", "column_stack"])
def test_errors_of_stacks(name):
    with pytest.raises(gf.ArgumentError, match=f"{name}: wants a list of tensors"):
        getattr(gf, name)(gf.ones((2, 2)))
    with pytest.raises(gf.ShapeError, match=f"{name}: wants one tensor or more"):
        getattr(gf, name)([])


@pytest.mark.parametrize("k", [0, 1, -2, 7])
def test_diagonals_are_numpys(k, rng):
    for shape in ((3,), (0,), (3, 4), (4, 2)):
        x = rng.normal(size=shape)
        np.testing.assert_array_equal(gf.diag(x, k=k).numpy(), np.diag(x, k), strict=True)
    vector = gf.asarray(rng.normal(size=3))
    check_gradients(gf.diag(vector, k=k), [vector], rng)
    with pytest.raises(gf.ShapeError, match="diag: wants 1 or 2 dims, not 3"):
        gf.diag(gf.ones((1, 1, 1)))
    batch = gf.vmap(gf.diag)(gf.asarray(rng.normal(size=(2, 3))))
    assert batch.shape == (2, 3, 3)


@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (0, 2), (-1, 1)])
@pytest.mark.parametrize("k", range(-4, 6))
def test_quarter_turns_are_numpys(k, axes, rng):
    x = rng.normal(size=(2, 3, 4))
    result = gf.rot90(x, k=k, axes=axes)
    np.testing.assert_array_equal(result.numpy(), np.rot90(x, k, axes), strict=True)


def test_errors_of_turns():
    with pytest.raises(gf.AxisError):
        gf.rot90(gf.ones((2, 2)), axes=(0, 0))
    with pytest.raises(gf.AxisError, match="rot90: axis 1 is out of range"):
        gf.rot90(gf.ones(2))
    with pytest.raises(gf.ArgumentError, match=r"rot90: axes=\(0,\) are not two"):
        gf.rot90(gf.ones((2, 2)), axes=(0,))
    with pytest.raises(gf.ArgumentError, match=r"rot90: k=0\.5 is no int"):
        gf.rot90(gf.ones((2, 2)), k=0.5)
