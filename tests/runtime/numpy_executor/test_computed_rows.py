"""Products of few rows whose right operand is computed in registers: what they give otherwise."""

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.passes.low_bit_gemv import GemvToReduction
from graphfw.runtime.numpy_executor.matmul import prologues


@pytest.fixture(autouse=True)
def native(monkeypatch):
    """Compile products, also of one row with a matrix that others read: else these are sums."""
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    monkeypatch.setenv("GRAPHFW_CACHE", "off")  # a recipe does not know of that
    monkeypatch.setattr(GemvToReduction, "run", lambda self, graph, hits: graph)


def both(g, y, right, feeds, threads=2):
    """Return a product with and without its operand computed in registers."""
    with gf.Session(g, threads=threads) as session:
        plan = session.compile(y, list(feeds))
        assert "inline:\n" in str(plan.source())
        other = session.compile([y, right], list(feeds))  # it is fetched, so it is in memory
        assert "inline:\n" not in str(other.source())
        return plan(*feeds.values()), other(*feeds.values())[0]


def drawn(rng, shape, dtype):
    values = rng.standard_normal(shape) * 3
    if dtype in ("bool", "uint8", "uint16"):
        values = np.abs(values)
    return values.astype(np.dtype(getattr(ml_dtypes, dtype, dtype)))


DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "float16", "bfloat16"),
    *("float8_e4m3fn", "int4", "float64", "int64"),
]
SCALES = {
    "plain": lambda w, n: w,
    "of columns": lambda w, n: w * n,
    "of rows": lambda w, n: w * gf.arange(w.shape[0], dtype=gf.float32)[:, None],
    "of all": lambda w, n: (w - 1.5) * gf.sum(n),
    "chosen": lambda w, n: gf.where(w > 0, gf.abs(w) * n, -gf.square(w)) / 3,
}


@pytest.mark.exhaustive(every=3)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(rng, dtype):
    k, n, transposed = 69, 45, DTYPES.index(dtype) % 2
    with gf.Graph() as g:
        x = gf.placeholder((3, k), name="x")
        w = gf.placeholder((n, k) if transposed else (k, n), dtype, name="w")
        right = gf.astype(w, gf.float32)
        y = x @ (right.T if transposed else right)
    feeds = {x: drawn(rng, (3, k), "float32"), w: drawn(rng, w.shape, dtype)}
    found, wanted = both(g, y, right, feeds)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("computed", "transposed"), [("float64", False), ("float16", True), ("bfloat16", False)]
)
def test_products_of_other_dtypes(rng, computed, transposed):
    k, n = 70, 41
    with gf.Graph() as g:
        x = gf.placeholder((2, k), computed, name="x")
        w = gf.placeholder((n, k) if transposed else (k, n), "int8", name="w")
        right = gf.astype(w, computed) * 0.25
        y = gf.relu(x @ (right.T if transposed else right))
    feeds = {x: drawn(rng, (2, k), computed), w: drawn(rng, w.shape, "int8")}
    found, wanted = both(g, y, right, feeds)
    assert found.dtype == wanted.dtype == x.dtype.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("transposed", [False, True])
def test_what_is_done_to_weights(rng, scale, transposed):
    m, k, n = [*SCALES].index(scale) % 4 + 1, 77, 131
    with gf.Graph() as g:
        x, w = gf.placeholder((m, k), name="x"), gf.placeholder((k, n), "int8", name="w")
        if transposed:
            w = gf.placeholder((n, k), "int8", name="w2")
        f = gf.placeholder((w.shape[1],), name="f")
        right = SCALES[scale](gf.astype(w, gf.float32), f)
        y = gf.tanh(x @ (right.T if transposed else right)) + 1
    feeds = {
        x: drawn(rng, (m, k), "float32"),
        w: drawn(rng, w.shape, "int8"),
        f: drawn(rng, f.shape, "float32"),
    }
    found, wanted = both(g, y, right, feeds)
    np.testing.assert_array_equal(found, wanted)


SIZES = [(1, 2, 7), (2, 3, 2), (4, 64, 64), (3, 5, 300), (1, 6000, 40), (2, 40, 3000), (4, 9, 0)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_sizes(rng, size):
    """Also sums so long that they are added up from partial results."""
    m, k, n = size
    with gf.Graph() as g:
        x, w = gf.placeholder((m, k), name="x"), gf.placeholder((k, n), "int8", name="w")
        right = gf.astype(w, gf.float32) * np.linspace(0.5, 2, n, dtype=np.float32)
        y = x @ right
    feeds = {x: drawn(rng, (m, k), "float32"), w: drawn(rng, (k, n), "int8")}
    for threads in (1, 2):
        found, wanted = both(g, y, right, feeds, threads)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("transposed", [False, True])
def test_batches_columns_and_sections(rng, transposed):
    with gf.Graph() as g:
        x = gf.placeholder((3, 2, 2, 40), name="x")
        w = gf.placeholder((3, 2, 50, 40) if transposed else (3, 2, 40, 50), "int8", name="w")
        right = gf.astype(w, gf.float32) * 0.5
        y = x @ (gf.swapaxes(right, -1, -2) if transposed else right)
    feeds = {x: drawn(rng, x.shape, "float32"), w: drawn(rng, w.shape, "int8")}
    np.testing.assert_array_equal(*both(g, y, right, feeds))
    with gf.Graph() as g:  # a column, of which the transposed product is made
        x, w = gf.placeholder((50,), name="x"), gf.placeholder((90, 50), "bfloat16", name="w")
        right = gf.astype(w, gf.float32)
        y = right @ x
    feeds = {x: drawn(rng, (50,), "float32"), w: drawn(rng, (90, 50), "bfloat16")}
    np.testing.assert_array_equal(*both(g, y, right, feeds))
    with gf.Graph() as g:
        x, w = gf.placeholder((2, 24), name="x"), gf.placeholder((24, 512), "int8", name="w")
        right = gf.astype(w, gf.float32)
        gates = x @ right
        y = gf.sigmoid(gates[:, :128]) * gf.tanh(gates[:, 128:256]) + gates[:, 256:384]
    feeds = {x: drawn(rng, (2, 24), "float32"), w: drawn(rng, (24, 512), "int8")}
    found, wanted = both(g, y, right, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("dtype", "transposed"), [("float32", False), ("bfloat16", True)])
def test_rows_of_unknown_number_may_be_few(monkeypatch, rng, dtype, transposed):
    """With an epilogue, and with one that takes sections, whose chunks lie in scratch memory."""
    monkeypatch.setattr(prologues, "MANY_WORK_ITEMS", 1)  # so that a small product will do
    k, n = 40, 8700
    with gf.Graph() as g:
        x = gf.placeholder(("m", k), dtype, name="x")
        w = gf.placeholder((n, k) if transposed else (k, n), "int8", name="w")
        right = gf.astype(w, dtype)
        product = x @ (right.T if transposed else right)
        left, half = product[:, : n // 2], product[:, n // 2 :]
        y = (product, gf.relu(product) + 1, gf.tanh(left) * half)
    bits = drawn(rng, w.shape, "int8")
    exact = bits.astype(np.float64)
    for fetched, rtol in ((0, 1e-5), (1, 1e-5), (2, 1e-4)):
        with gf.Session(g) as session:
            plan = session.compile(y[fetched], [x, w])
            assert "inline:\n" in str(plan.source())
            for m in (0, 1, 3, 4, 5, 11, 16, 17, 70):
                array = drawn(rng, (m, k), dtype)
                wanted = array.astype(np.float64) @ (exact.T if transposed else exact)
                one, two = wanted[:, : n // 2], wanted[:, n // 2 :]
                wanted = (wanted, np.maximum(wanted, 0) + 1, np.tanh(one) * two)[fetched]
                found = plan(array, bits).astype(np.float64)
                rounding = 2e-2 if dtype == "bfloat16" else rtol
                size = np.abs(wanted).max(initial=1)
                np.testing.assert_allclose(found, wanted, rtol=rounding, atol=rounding * size)


def test_columns_of_unknown_number(rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((1, 40), name="x"), gf.placeholder((40, "n"), "int8", name="w")
        right = gf.astype(w, gf.float32) + 1
        y = x @ right
    for n in (1, 33, 700):
        array, bits = drawn(rng, (1, 40), "float32"), drawn(rng, (40, n), "int8")
        with gf.Session(g) as session:
            found = session.run(y, {x: array, w: bits})
        np.testing.assert_allclose(found, array @ (bits + np.float32(1)), rtol=1e-4, atol=1e-4)


def test_functions_of_the_library_are_computed_before(rng):
    with gf.Graph() as g:
        x, w = gf.placeholder((2, 64), name="x"), gf.placeholder((64, 90), name="w")
        y = x @ gf.tanh(w)
    with gf.Session(g) as session:
        assert "inline:\n" not in str(session.compile(y, [x, w]).source())


@pytest.mark.parametrize("m", [1, 8, "m"])
@pytest.mark.parametrize("scaled", [False, True])
def test_weights_that_are_transposed_before_they_are_widened(rng, m, scaled):
    """They are read as they lie, as those are that are widened first."""
    k, n = 640, 2060
    bits = drawn(rng, (n, k), "int8")
    factors = rng.random(n, np.float32) if scaled else np.ones(n, np.float32)
    with gf.Graph() as g:
        x, w = gf.placeholder((m, k), name="x"), gf.Variable(bits, name="w")
        wide = gf.astype(w.T, gf.float32)
        y = x @ (wide * factors if scaled else wide)
    array = drawn(rng, (8 if m == "m" else m, k), "float32")
    with gf.Session(g) as session:
        plan = session.compile(y, [x])
        assert "inline:\n" in str(plan.source())
        wanted = array @ (bits.T * factors)
        np.testing.assert_allclose(plan(array), wanted, rtol=1e-4, atol=1e-3 * abs(wanted).max())
