"""Searches in sorted elements, natively: what eval gives."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import as_dtype
from graphfw.ops.sorting.sort_search import SearchSorted
from tests.runtime.numpy_executor.special_runs import LAYOUTS, NUMBERS, computed, same

SIDES = ("left", "right")


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")


def sorted_ones(rng, size, dtype):
    """Return sorted elements, of floats some zeros of both signs, infinities and NaN."""
    numpy = as_dtype(dtype).dtype
    if numpy.kind in "iu":
        limits = np.iinfo(numpy)
        values = rng.integers(0 if numpy.kind == "u" else -20, 20, size).astype(numpy)
        values[: size // 5] = limits.min
        values[size - size // 7 :] = limits.max
        return np.sort(values)
    values = np.round(rng.normal(0, 4, size))
    values[: size // 3] = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan], size // 3)
    return np.sort(values).astype(numpy)


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_any_dtype(rng, dtype, side):
    for size, wanted in ((1, 3), (2, 5), (3, 7), (37, 301), (64, 64), (1000, 2049)):
        known = sorted_ones(rng, size, dtype)
        x = rng.permutation(sorted_ones(rng, wanted, dtype))
        op = SearchSorted(side)
        same(computed(op, [known, x]), op.eval(np, known, x))


@pytest.mark.parametrize("size", range(18))
def test_any_number_of_elements(size):
    known, x = np.arange(size), np.arange(-1, size + 2)
    for side in SIDES:
        op = SearchSorted(side)
        for symbolic in (False, True):
            same(computed(op, [known, x], symbolic=symbolic), op.eval(np, known, x))


@pytest.mark.exhaustive
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (0,), (5, 33), (3, 1, 17), (4, 0, 2), (129, 2)])
def test_any_layout(rng, shape, layout):
    known, x = sorted_ones(rng, 77, "float32"), rng.normal(0, 4, shape).astype(np.float32)
    op = SearchSorted()
    expected = op.eval(np, known, x)
    same(computed(op, [known, x], ("sliced", layout), symbolic=True), expected)
    same(computed(op, [known, x], ("flipped", layout)), expected)


def test_in_a_loop(rng):
    known, x = np.sort(rng.normal(size=40)), rng.normal(size=(6, 9))

    def found(total, row):
        indices = gf.searchsorted(known, row)
        return total + indices, indices

    with gf.Graph() as g:
        rows = gf.placeholder(x.shape, "float64")
        outputs = gf.scan(found, gf.zeros(9, dtype="int64"), rows)
    plan = gf.Session(g).compile(list(outputs), [rows])
    assert "outside of native code" not in str(plan.explain())
    total, indices = plan(x)
    expected = np.searchsorted(known, x)
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(total, expected.sum(0))


def test_one_kernel_serves_all_sizes():
    def kernels(size, wanted):
        with gf.Graph() as g:
            xs = [gf.placeholder((n,), "float32") for n in (size, wanted)]
            y = gf.searchsorted(*xs)
        return str(gf.Session(g).compile(y, xs).source())

    assert kernels(100, 7) == kernels(5000, 300)
