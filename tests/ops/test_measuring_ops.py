"""Results whose shapes depend on elements: what is described, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.parser import parse
from graphfw.ir.verify import verify


def test_how_many_there_are_is_a_symbol():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), name="x")
        rows, columns = gf.nonzero(x > 0)
        assert rows.dtype is columns.dtype is gf.int64
        assert str(rows.shape) == str(columns.shape) == "(_nonzero,)"
        found = gf.unique_all(x)
        assert str([t.shape for t in found]) == "[(_unique,), (_unique,), (n, 3), (_unique,)]"
        assert [t.dtype.name for t in found] == ["float32", "int64", "int64", "int64"]
    verify(g)
    assert str(parse(str(g))) == str(g)


def test_masks_index_as_in_numpy():
    with gf.Graph():
        x = gf.placeholder(("n", 4, 5), name="x")
        rows = gf.placeholder(("n",), bool, name="rows")
        columns = gf.placeholder((4,), bool, name="columns")
        k = x[rows].shape[0]
        assert x[rows].shape == (k, 4, 5)
        assert x[rows, 1:3].shape == (k, 2, 5)
        assert x[rows, ..., 2].shape == (k, 4)
        assert x[:, columns].shape[::2] == (x.shape[0], 5)
        assert x[x > 0].ndim == 1
        assert x[gf.any(rows)].shape[1:] == x.shape
        with pytest.raises(gf.AxisError, match="a boolean index of size 4 for dim 0 of size n"):
            x[columns]
        with pytest.raises(gf.AxisError, match="too many indices"):
            x[x > 0, 1]


def test_what_the_same_mask_picks_has_one_size():
    with gf.Graph():
        x = gf.placeholder(("n", 3), name="x")
        y = gf.placeholder(("n",), name="y")
        mask = y > 0
        assert (x[mask] * y[mask][:, None]).shape == x[mask].shape
        assert (y[y > 0] + y[y > 0]).ndim == 1
        with pytest.raises(gf.ShapeError, match="a symbolic dim broadcasts") as caught:
            y[y > 0] + y[y > 1]
        assert "is what a run finds out by nonzero, test_measuring_ops.py" in caught.value.why


def test_constants_have_their_values_at_once(rng):
    array = rng.integers(0, 3, (4, 5))
    with gf.Graph():
        mask = gf.asarray(array > 0)
        x = gf.placeholder((4, 5), name="x")
        assert x[mask].shape == (np.count_nonzero(array),)
        np.testing.assert_array_equal(gf.unique_values(array).numpy(), np.unique(array))


@pytest.mark.parametrize("what", ["vmap", "scan", "checkpoint"])
def test_bodies_have_no_room_for_it(what):
    with gf.Graph():
        x = gf.placeholder((4, 3), name="x")

        def picked(row):
            return gf.sum(row[row > 0])

        with pytest.raises(gf.ConcreteValueError, match=f"in the body of a {what}") as caught:
            if what == "vmap":
                gf.vmap(picked)(x)
            elif what == "scan":
                gf.scan(lambda total, row: (total + picked(row), None), gf.asarray(0.0), x)
            else:
                gf.checkpoint(picked)(x)
        assert "gf.where(mask, x, other)" in caught.value.fix
        # What is picked outside may be used inside.
        kept = x[x[:, 0] > 0]
        assert gf.vmap(gf.sum)(kept).shape == kept.shape[:1]


def test_nothing_is_fed_that_has_a_measured_size():
    with gf.Graph():
        x = gf.placeholder(("n",), name="x")
        (indices,) = gf.nonzero(x)
        with pytest.raises(gf.ShapeError, match="a run finds out `_nonzero`, and what it is fed"):
            gf.placeholder((indices.shape[0], 3))


def test_capabilities():
    info = gf.__array_namespace_info__()
    assert info.capabilities()["data-dependent shapes"]
    assert not info.capabilities()["boolean indexing"]  # there is no x[mask] = v


def test_sizes_of_several_nodes_are_told_apart():
    with gf.Graph():
        x = gf.placeholder(("n",), name="x")
        selections = [x[x > 0], x[x > 1], x[x > 2]]
        assert [str(selection.shape) for selection in selections] == [
            "(_nonzero,)",
            "(_nonzero2,)",
            "(_nonzero3,)",
        ]
        with pytest.raises(gf.ShapeError) as caught:
            selections[1] + selections[2]
    text = str(caught.value)
    assert "x1[-1] = _nonzero2, x2[-1] = _nonzero3" in text
    assert "`_nonzero2` is what a run finds out by nonzero" in text
    assert ".shape[" not in text
