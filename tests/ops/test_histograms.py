"""Counts of integers and of bins, beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from tests.support.gradcheck import check_gradients


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint16"])
def test_bincount_is_numpys(dtype, rng):
    x = rng.integers(0, 6, 20).astype(dtype)
    weights = rng.normal(size=20)
    for least in (0, 3, 9):
        counts = gf.bincount(x, minlength=least)
        np.testing.assert_array_equal(counts.numpy(), np.bincount(x, minlength=least), strict=True)
        sums = gf.bincount(x, weights, minlength=least)
        np.testing.assert_allclose(sums.numpy(), np.bincount(x, weights, least), atol=1e-15)
    none = gf.bincount(np.zeros(0, dtype), minlength=2)
    assert none.numpy().tolist() == [0, 0]


def test_bincount_of_what_a_run_tells():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), "int32", name="x")
        known, found = gf.bincount(x, length=5), gf.bincount(x, minlength=2)
        assert known.shape == (5,)
    with gf.Session(g) as session:
        values = session.run([known, found], {x: [3, 1, 3]})
        assert [v.tolist() for v in values] == [[0, 1, 0, 2, 0], [0, 1, 0, 2]]
        values = session.run([known, found], {x: np.zeros(0, np.int32)})
        assert [v.tolist() for v in values] == [[0] * 5, [0, 0]]
        for wrong in (5, -1):
            expected = f"an element is {wrong}, and there are 5"
            with pytest.raises(gf.ExecutionError, match=expected) as caught:
                session.run(known, {x: [0, wrong]})
            assert caught.value.fix == "elements count from 0: give a length above the largest one"


def test_bincount_in_a_batch():
    x = gf.asarray([[0, 1, 1], [2, 2, 2]])
    counts = gf.vmap(lambda row: gf.bincount(row, length=3))(x)
    assert counts.numpy().tolist() == [[1, 2, 0], [0, 0, 3]]


def test_bincount_errors():
    with pytest.raises(gf.DTypeError, match="bincount: wants integers, not float32") as caught:
        gf.bincount(gf.ones(3))
    assert "gf.digitize" in caught.value.fix
    with pytest.raises(gf.ShapeError, match="bincount: wants 1 dim, not 2"):
        gf.bincount(gf.zeros((2, 2), dtype="int64"))
    with pytest.raises(gf.ShapeError, match=r"bincount: weights \[2\] for elements \[3\]"):
        gf.bincount([1, 2, 3], [1.0, 2.0])
    with pytest.raises(gf.ExecutionError, match="an element is -1"):
        gf.bincount([1, -1], length=3).numpy()


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("bins", [1, 7, [-1.0, 0.0, 0.5, 0.5, 2.0]])
def test_histogram_is_numpys(bins, density, rng):
    x = rng.normal(size=(5, 8))
    x[0, :2] = [-1.0, 2.0]  # on edges
    weights = rng.uniform(size=(5, 8))
    if density and bins == [-1.0, 0.0, 0.5, 0.5, 2.0]:
        bins = [-1.0, 0.0, 0.5, 2.0]
    for options in ({}, {"range": (-1.0, 2.0)}, {"range": (1.0, 1.0)}, {"weights": weights}):
        ours = gf.histogram(x, bins, density=density, **options)
        counts, edges = np.histogram(x, bins, density=density, **options)
        np.testing.assert_allclose(ours.counts.numpy(), counts, rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(ours.edges.numpy(), edges, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_edges_decide_about_what_lies_on_them(dtype, rng):
    x = (rng.integers(-20, 21, 500) / 10).astype(dtype)
    for bins in (3, 10, 40):
        counts, edges = gf.histogram(x, bins)
        expected, _ = np.histogram(x.astype("float64"), edges.numpy().astype("float64"))
        np.testing.assert_array_equal(counts.numpy(), expected)


def test_histogram_of_what_a_run_tells(rng):
    array = rng.normal(size=30).astype(np.float32)
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        edges = gf.placeholder(("k",), name="edges")
        made = [*gf.histogram(x, 4), gf.histogram(x, edges).counts, gf.histogram(x, 2).counts]
    with gf.Session(g) as session:
        counts, bounds, among, _ = session.run(made, {x: array, edges: [-1, 0, 1]})
    expected = np.histogram(array, 4)
    np.testing.assert_array_equal(counts, expected[0])
    np.testing.assert_allclose(bounds, expected[1], rtol=1e-6)
    np.testing.assert_array_equal(among, np.histogram(array, [-1, 0, 1])[0])


def test_histogram_of_nothing_equal_elements_integers_and_nan():
    for array in (np.zeros(0), np.full(3, 2.0)):
        counts, edges = np.histogram(array, 3)
        ours = gf.histogram(array, 3)
        assert ours.counts.numpy().tolist() == counts.tolist()
        np.testing.assert_allclose(ours.edges.numpy(), edges)
    assert gf.histogram([1, 2, 2, 9], 2).counts.numpy().tolist() == [3, 1]
    assert gf.histogram([np.nan, 0.5], 2, range=(0, 1)).counts.numpy().tolist() == [0, 1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_histogram_wants_a_finite_range(bad):
    message = "histogram: an element is NaN or infinite"
    with pytest.raises(gf.ArgumentError, match=message) as caught:
        gf.histogram([0.5, bad])
    assert "range=(first, last)" in caught.value.fix
    for ends in ((0.0, bad), (bad, 1.0)):
        with pytest.raises(gf.ArgumentError, match=r"histogram: range=\(.*\) is not finite"):
            gf.histogram([0.5], range=ends)
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        high = gf.placeholder((), name="high")
        automatic, given = gf.histogram(x, 4), gf.histogram(x, 4, range=(0.0, high))
    with gf.Session(g) as session:
        for result in automatic:
            with pytest.raises(gf.ExecutionError, match=message) as caught:
                session.run(result, {x: [0.5, bad]})
            assert [line.label for line in caught.value.operands] == ["given"]
        with pytest.raises(gf.ExecutionError, match="histogram: the range is not finite"):
            session.run(given, {x: [0.5], high: bad})
        with pytest.raises(gf.ExecutionError, match="histogram: the range is not in order"):
            session.run(given, {x: [0.5], high: -1.0})
        assert session.run(given.counts, {x: [0.5, bad], high: 1.0}).tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("name", ["histogram", "digitize"])
@pytest.mark.parametrize("edges", [[0.0, 2.0, 1.0], [0.0, np.nan, 1.0], [2.0, 0.0, 1.0]])
def test_a_run_refuses_edges_in_no_order(name, edges):
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        bins = gf.placeholder(("k",), name="bins")
        made = getattr(gf, name)(x, bins)
    message = f"{name}: the edges of the bins are not in order"
    with gf.Session(g) as session, pytest.raises(gf.ExecutionError, match=message):
        session.run(made, {x: [0.5], bins: edges})
    with pytest.raises(gf.ArgumentError, match=message):
        getattr(gf, name)([0.5], edges)


def test_digitize_with_edges_that_a_run_tells(rng):
    array = rng.uniform(-1, 5, 9).astype(np.float32)
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        bins = gf.placeholder(("k",), name="bins")
        made = gf.digitize(x, bins)
    with gf.Session(g) as session:
        for edges in ([0.0, 1, 2, 2, 4], [4.0, 2, 2, 1, 0], [1.0], []):
            found = session.run(made, {x: array, bins: np.asarray(edges, np.float32)})
            np.testing.assert_array_equal(found, np.digitize(array, edges))


def test_histogram_passes_gradients_to_its_weights(rng):
    x, weights = rng.normal(size=9), gf.asarray(rng.uniform(size=9))
    check_gradients(gf.histogram(x, 3, weights=weights).counts, [weights], rng)


def test_histogram_errors():
    x = gf.ones(3)
    with pytest.raises(gf.ArgumentError, match="histogram: the edges of the bins are not in order"):
        gf.histogram(x, [1.0, 0.0])
    with pytest.raises(gf.ShapeError, match="histogram: there are 0 bins"):
        gf.histogram(x, 0)
    with pytest.raises(gf.ShapeError, match=r"histogram: edges \[1\] make no bin"):
        gf.histogram(x, [1.0])
    with pytest.raises(gf.ArgumentError, match=r"range=\(2\.0, 1\.0\) is not in order"):
        gf.histogram(x, range=(2, 1))
    with pytest.raises(gf.DTypeError, match="histogram: wants floating-point tensors"):
        gf.histogram([1j])


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("edges", [[0.0, 1, 2, 2, 4], [4.0, 2, 2, 1, 0], [1.0], [1.0, 1.0], []])
def test_digitize_is_numpys(edges, right, rng):
    x = np.concatenate([rng.uniform(-1, 5, (2, 6)), [[0, 1, 2, 4, 3, np.nan]]])
    ours = gf.digitize(x, np.asarray(edges), right=right)
    np.testing.assert_array_equal(ours.numpy(), np.digitize(x, edges, right), strict=True)


def test_digitize_of_integers_and_errors():
    assert gf.digitize([1, 2, 3], [2]).numpy().tolist() == [0, 1, 1]
    with pytest.raises(gf.ShapeError, match="digitize: wants edges in 1 dim, not 2"):
        gf.digitize([1.0], [[1.0]])
    with pytest.raises(gf.ArgumentError, match="digitize: the edges of the bins are not in order"):
        gf.digitize([1.0], [1.0, 3.0, 2.0])


def test_of_no_elements_it_is_numpys_in_a_run_too():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), gf.float64, name="x")
        made = gf.histogram(x, 3)
    with gf.Session(g) as session:
        for values in (np.zeros(0), np.array([2.0]), np.array([1.0, 3.0, 2.5])):
            counts, edges = session.run(list(made), {x: values})
            wanted = np.histogram(values, 3)
            np.testing.assert_array_equal(counts, wanted[0])
            np.testing.assert_allclose(edges, wanted[1])
        with pytest.raises(gf.ExecutionError, match="histogram: an element is NaN or infinite"):
            session.run(list(made), {x: [np.inf]})
