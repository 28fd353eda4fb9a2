"""Sorts of which few elements are read: which they are, and that values stay."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.rebuild import derive
from graphfw.ops.sorting import selection
from graphfw.passes.partial_sorts import SortToPartialSort


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(selection, "MANY", 100)


def names(outputs):
    graph = derive(outputs[0].graph, outputs)
    return [node.op.name for node in SortToPartialSort()(graph).nodes]


def placed(shape=(5, 600), dtype="float32"):
    return gf.placeholder(shape, dtype, name="x")


@pytest.mark.parametrize(
    ("compute", "is_partial"),
    [
        (lambda x: gf.median(x), True),
        (lambda x: gf.median(x, axis=1), True),
        (lambda x: gf.quantile(x, [0.1, 0.5], axis=1), True),
        (lambda x: gf.quantile(x, [0.1, 0.5], axis=0), False),  # of 5 elements
        (lambda x: gf.nanmedian(x, axis=1), False),  # it counts what is no NaN
        (lambda x: gf.take(gf.sort(x, axis=1, stable=False), gf.asarray([3]), axis=1), True),
        (lambda x: gf.take(gf.sort(x, axis=1, stable=False), gf.asarray([3]), axis=0), False),
        (lambda x: gf.take(gf.sort(x, axis=1), gf.asarray([3]), axis=1), False),
        (lambda x: gf.take(gf.sort(x, axis=1, stable=False), gf.arange(90), axis=1), False),
        (lambda x: gf.sort(x, axis=1, stable=False)[:, 3] * 2, False),
    ],
)
def test_few_elements_that_gathers_read(compute, is_partial):
    with gf.Graph():
        found = names([compute(placed())])
    assert ("partial_sort" in found) is is_partial
    assert ("sort" in found) is not is_partial


def test_short_rows_are_sorted(monkeypatch):
    monkeypatch.setattr(selection, "MANY", 601)
    with gf.Graph():
        x = placed()
        assert "partial_sort" not in names([gf.median(x, axis=1)])
        assert "partial_sort" in names([gf.median(x)])


def test_zeros_of_integers_have_one_sign():
    with gf.Graph():
        x = placed(dtype="int32")
        y = gf.take(gf.sort(x, axis=1), gf.asarray([3]), axis=1)
        assert "partial_sort" in names([y])


def test_what_is_an_output_is_sorted():
    with gf.Graph():
        ordered = gf.sort(placed(), axis=1, stable=False)
        y = gf.take(ordered, gf.asarray([3]), axis=1)
        assert "partial_sort" not in names([ordered, y])


def test_places_that_depend_on_a_sort():
    with gf.Graph():
        x = placed((600,))
        first = gf.sort(x, stable=False)
        indices = gf.astype(gf.take(first, gf.asarray([3]), axis=0), "int64")
        second = gf.sort(x * 2, stable=False)
        y = gf.take(second, indices, axis=0)
        found = names([y])
        assert "partial_sort" in found
        assert "sort" in found


@pytest.mark.exhaustive
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64"])
def test_quantiles_of_plans(rng, dtype, axis, symbolic):
    shape = (301, 400)
    x = rng.normal(0, 100, shape).astype(dtype)
    with gf.Graph() as g:
        tensor = placed(("m", "n") if symbolic else shape, dtype)
        fractions = gf.placeholder((3,), "float64", name="fractions")
        outputs = [gf.median(tensor, axis=axis), gf.quantile(tensor, fractions, axis=axis)]
    q = np.array([0, 0.37, 1])
    found = gf.Session(g).compile(outputs, [tensor, fractions])(x, q)
    wide = x.astype(np.float64)
    tolerance = {"float16": 2e-3, "float64": 1e-12}.get(dtype, 1e-6)
    np.testing.assert_allclose(found[0], np.median(wide, axis=axis), tolerance, tolerance)
    np.testing.assert_allclose(found[1], np.quantile(wide, q, axis=axis), tolerance, tolerance)


def test_one_nan_makes_a_median_nan(rng):
    x = rng.normal(size=(4, 70_001)).astype(np.float32)
    x[2, 5] = np.nan
    with gf.Graph() as g:
        tensor = placed(x.shape)
        outputs = [gf.median(tensor, axis=1), gf.median(tensor)]
    rows, whole = gf.Session(g).run(outputs, {tensor: x})
    np.testing.assert_array_equal(np.isnan(rows), [False, False, True, False])
    np.testing.assert_array_equal(rows[:2], np.median(x[:2], axis=1))
    assert np.isnan(whole)
