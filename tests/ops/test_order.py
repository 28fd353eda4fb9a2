"""Orders of NumPy's arrays, as sorts that compare and are stable have them."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ops.sorting import keys, selection, values
from graphfw.ops.sorting.distinct import distinct
from graphfw.utils.side_by_side import allowed
from tests.support.orders import DTYPES, KINDS, drawn, indices_of, same, wide

SHAPES = [((2500,), 0), ((5, 700), 1), ((700, 5), 0), ((3, 300, 4), 1), ((5, 8), 1), ((0, 9), 1)]


@pytest.fixture(params=["usual sizes", "small sizes"], autouse=True)
def sizes(request, monkeypatch):
    if request.param == "small sizes":
        monkeypatch.setattr(keys, "_FEW", 1)
        monkeypatch.setattr(keys, "_BLOCK", 100)
        monkeypatch.setattr(keys, "_RANGE", 50)
        monkeypatch.setattr(keys, "_ROUNDS", 1)
        monkeypatch.setattr(selection, "MANY", 100)


@pytest.mark.exhaustive
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_orders_are_those_of_stable_sorts(rng, dtype, descending):
    for shape, axis in SHAPES:
        for kind in KINDS:
            x = drawn(rng, shape, dtype, kind)
            before = x.tobytes()
            indices = indices_of(x, axis, descending)
            found = keys.argsort(x, axis, descending=descending)
            np.testing.assert_array_equal(found, indices, strict=True)
            ordered = np.take_along_axis(x, indices, axis)
            same(values.sort(x, axis, descending=descending), ordered)
            unstable = values.sort(x, axis, descending=descending, stable=False)
            np.testing.assert_array_equal(wide(unstable), wide(ordered))
            for strided in (x[::-1], x[..., ::2]):
                same(
                    values.sort(strided, axis, descending=descending),
                    np.take_along_axis(strided, indices_of(strided, axis, descending), axis),
                )
            assert x.tobytes() == before


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_first_are_those_of_a_stable_sort(rng, dtype, largest):
    for shape, axis in [*SHAPES, ((2, 5001), 1)]:
        for kind in KINDS:
            x = drawn(rng, shape, dtype, kind)
            for k in [k for k in (0, 1, 3, 5, 40, 150) if k <= x.shape[axis]]:
                wanted = np.take(indices_of(x, axis, largest), np.arange(k), axis)
                found = selection.first(x, k, axis, largest=largest)
                np.testing.assert_array_equal(found, wanted, strict=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_partly_sorted_rows_have_the_elements_of_sorted_ones(rng, dtype):
    for size in (1, 2, 99, 400, 5000):
        for kind in KINDS:
            x = drawn(rng, (3, size), dtype, kind)
            ordered = np.take_along_axis(x, indices_of(x, 1, False), 1)
            for indices in ([0], [size - 1], [size // 2], [0, size // 3, size // 2, size - 1]):
                found = selection.partly_sorted(x, np.array(indices))
                np.testing.assert_array_equal(wide(found)[:, indices], wide(ordered)[:, indices])


@pytest.mark.parametrize("order", ["periodic", "ascending", "descending", "equal"])
def test_a_sample_that_misleads_is_found_out(order):
    n = 50_000
    x = {
        "periodic": np.where(np.arange(n) % 12 == 0, 1.0, np.arange(n)),
        "ascending": np.arange(n) * 1.0,
        "descending": np.arange(n)[::-1] * 1.0,
        "equal": np.ones(n),
    }[order]
    for index in (0, 1, n // 10, n // 2, n - 2):
        found = selection.partly_sorted(x, np.array([index]))
        assert found[index] == np.sort(x)[index]


@pytest.mark.parametrize("dtype", [*DTYPES, "bool", "complex64"])
def test_the_distinct_are_those_of_numpy(rng, dtype):
    for shape in ((), (0,), (1,), (40, 50)):
        for kind in KINDS:
            if dtype in ("bool", "complex64"):
                x = rng.integers(0, 2, shape).astype(dtype)
            else:
                x = drawn(rng, shape, dtype, kind) if shape else drawn(rng, (1,), dtype, kind)[0]
            x = np.asarray(x)
            returns = {f"return_{what}": True for what in ("index", "inverse", "counts")}
            wanted = np.unique(wide(x) if dtype in DTYPES else x, **returns, equal_nan=False)
            found = distinct(x, (0, 1, 2, 3))
            same(found[0], np.ravel(x)[wanted[1]])
            for a, b in zip(found[1:], wanted[1:], strict=True):
                np.testing.assert_array_equal(a, b.reshape(-1))
            alone = distinct(x, (0,))
            same(alone[0], found[0])


def test_any_number_of_threads_finds_the_same(rng):
    for dtype in ("float32", "float64", "int64"):
        x = drawn(rng, (3000,), dtype, "extremes")
        found = []
        for threads in (1, 2, 3, 8):
            with allowed(threads):
                found.append((values.sort(x, 0).tobytes(), keys.argsort(x, 0).tobytes()))
        assert len(set(found)) == 1


def test_a_whole_array_is_sorted_on_all_threads_of_a_session(rng, monkeypatch):
    seen = set()
    both = keys.both
    monkeypatch.setattr(keys, "both", lambda *tasks: seen.add(1) or both(*tasks))
    monkeypatch.setattr(keys, "_RANGE", 50)
    x = rng.normal(size=5000)
    with gf.Graph() as g:
        tensor = gf.placeholder(x.shape, "float64")
        outputs = [gf.sort(tensor), gf.argsort(tensor), gf.unique_values(tensor)]
    for threads in (1, 2):
        with gf.Session(g, threads=threads) as session:
            ordered, indices, known = session.run(outputs, {tensor: x})
        np.testing.assert_array_equal(ordered, np.sort(x))
        np.testing.assert_array_equal(indices, np.argsort(x))
        np.testing.assert_array_equal(known, np.unique(x))
        assert bool(seen) is (threads == 2)
