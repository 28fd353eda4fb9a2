"""Products of 16-bit floats: computed in float32, or by dot products of pairs; rounded once."""

from __future__ import annotations

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dim import symbol
from graphfw.ir.dtype import as_dtype
from graphfw.runtime.kernels.steps import Storage, View
from graphfw.runtime.numpy_executor.machine import pairs_here
from graphfw.runtime.numpy_executor.matmul import matmul_steps
from tests.runtime.numpy_executor.matmul_runs import (
    LAYOUTS,
    assert_product,
    product,
    random,
    run,
    storage_of,
    view_of,
)
from tests.support.kernels import TARGETS

DTYPES = ["float16", "bfloat16"]

has_pairs = pytest.mark.skipif(not pairs_here(), reason="needs AVX512-BF16")
WAYS = [
    pytest.param("float16", False, id="float16"),
    pytest.param("bfloat16", False, id="bfloat16"),
    pytest.param("bfloat16", True, id="pairs", marks=has_pairs),
]
"""The dtypes, and whether there are dot products of pairs."""


def half(name: str) -> np.dtype:
    return as_dtype(name).dtype


@pytest.mark.exhaustive(every=2)
@pytest.mark.parametrize("fixed_b", [False, True])
@pytest.mark.parametrize(("transposed_a", "transposed_b"), LAYOUTS)
@pytest.mark.parametrize(("dtype", "pairs"), WAYS)
def test_sizes_around_the_tiles(dtype, pairs, transposed_a, transposed_b, fixed_b, rng):
    for m, n, k in [
        *[(1, 1, 1), (1, 65, 40), (2, 31, 3), (3, 33, 64), (5, 16, 2), (7, 1, 50)],
        *[(14, 47, 31), (17, 33, 300), (33, 63, 5), (100, 96, 260), (271, 300, 7)],
        (270, 150, 1031),
    ]:
        a = random(rng, (m, k), half(dtype), transposed=transposed_a)
        b = random(rng, (k, n), half(dtype), transposed=transposed_b)
        assert_product(product(a, b, fixed_b=fixed_b, pairs=pairs), a, b)


@pytest.mark.exhaustive
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_of_every_size(target, dtype, rng):
    for transposed_a, transposed_b in LAYOUTS:
        for m, n, k in [(13, 37, 21), (3, 9, 40), (1, 40, 70)]:
            a = random(rng, (m, k), half(dtype), transposed=transposed_a)
            b = random(rng, (k, n), half(dtype), transposed=transposed_b)
            assert_product(product(a, b, target=target), a, b)


@pytest.mark.parametrize(("dtype", "pairs"), WAYS)
def test_steps_batches_and_broadcasts(dtype, pairs, rng):
    a, b = random(rng, (3, 20, 61), half(dtype)), random(rng, (3, 61, 35), half(dtype))
    wide = np.broadcast_to(b[0], b.shape)
    for left, right in [
        (a, b),
        (a[:, ::2, ::3], b[:, ::3, ::2]),
        (a[::-1, :, ::-1], b[:, ::-1]),
        (a, wide),
        (a[:, :1], b[..., :1]),
        (a[:0], b[:0]),
    ]:
        assert_product(product(left, right, pairs=pairs), left, right)


@pytest.mark.parametrize(("dtype", "pairs"), WAYS)
def test_sizes_of_zero_and_long_sums(dtype, pairs, rng):
    for m, n, k in [(0, 5, 4), (5, 0, 4), (20, 3, 0), (9, 40, 20000), (9, 40, 9999), (9, 1, 5000)]:
        a, b = random(rng, (m, k), half(dtype)), random(rng, (k, n), half(dtype))
        assert_product(product(a, b, pairs=pairs), a, b)


@pytest.mark.parametrize(("dtype", "pairs"), WAYS)
def test_unknown_sizes(dtype, pairs, rng):
    m, n, k = symbol("m"), symbol("n"), symbol("k")
    left, right, out = (storage_of(np.empty(0, half(dtype))) for _ in range(3))
    views = View(left, 0, (m, k), (k, 1)), View(right, 0, (k, n), (n, 1))
    steps = matmul_steps((), *views, out, None, pairs=pairs)
    for sizes in [(1, 40, 30), (4, 33, 1), (5, 3, 0), (60, 70, 300), (300, 40, 17)]:
        a, b = random(rng, sizes[::2], half(dtype)), random(rng, sizes[:0:-1], half(dtype))
        got = np.full(sizes[:2], np.nan, half(dtype))
        memory: dict[Storage, np.ndarray] = {left: a, right: b, out: got}
        run(steps, memory, dict(zip("mnk", sizes, strict=True)))
        assert_product(got, a, b)


def pairs_and_words(a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """A product as it is computed by dot products of pairs, and in float32."""
    return [product(a, b, pairs=pairs).astype(np.float32) for pairs in (True, False)]


@has_pairs
@pytest.mark.parametrize("k", [31, 32])
def test_infinities_and_nan_of_pairs(k, rng):
    """They stay in their rows and columns, also beside the 0 that an odd k is filled with."""
    for value in (np.inf, -np.inf, np.nan, 3.3e38):
        a, b = random(rng, (28, k), half("bfloat16")), random(rng, (k, 50), half("bfloat16"))
        a[5, 0] = a[7, k - 1] = value
        b[k - 1, 9] = b[k - 2, 40] = value
        with np.errstate(all="ignore"):
            got, expected = pairs_and_words(a, b)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(expected))
        rest = np.delete(np.delete(got, [5, 7], 0), [9, 40], 1)
        assert np.isfinite(rest).all()


@has_pairs
def test_subnormal_numbers_of_pairs_are_zeros():
    tiny = np.full((28, 32), 1e-40, half("bfloat16"))
    large = np.full((32, 33), 1e30, half("bfloat16"))
    got, expected = pairs_and_words(tiny, large)
    assert (got == 0).all()
    assert (expected > 0).all()
    small = np.full((32, 32), 1e-20, half("bfloat16"))
    got, expected = pairs_and_words(small, small)
    assert (got == 0).all()
    assert (expected > 0).all()


@has_pairs
def test_where_pairs_are_used(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")  # the plan is compiled

    def code(dtype: str, m: int = 64, *, pairs: bool = True):
        left, right, out = (storage_of(np.empty(64 * 64, half(dtype))) for _ in range(3))
        views = View(left, 0, (m, 64), (64, 1)), View(right, 0, (64, 64), (64, 1))
        (step,) = matmul_steps((), *views, out, None, pairs=pairs)
        return step.code

    notes = [code(*of).note for of in [("float32",), ("float16",), ("bfloat16",), ("bfloat16", 4)]]
    assert notes == ["", "", "dot products of pairs of bfloat16", ""]
    assert code("bfloat16").work_item.shape.k_pack == 2
    assert code("bfloat16").key != code("bfloat16", pairs=False).key
    with gf.Graph() as g:
        x, y = (gf.placeholder((64, 64), "bfloat16", name=n) for n in "xy")
        z = x @ y
    assert "by dot products of pairs" in gf.Session(g).compile(z, feeds=[x, y]).explain()


def test_a_few_rows_read_weights_as_they_are(rng):
    """Panels of float32 would be twice as much to read."""
    for rows, is_packed in ((1, False), (4, False), (5, True)):
        a, b = random(rng, (rows, 64), np.float16), random(rng, (64, 96), np.float16)
        memory: dict[Storage, np.ndarray] = {}
        out = storage_of(np.empty((rows, 96), np.float16))
        views = view_of(a, memory), view_of(b, memory)
        steps = matmul_steps((), *views, out, None, fixed_b=True)
        assert [step.prepacks for step in steps] == [True] * is_packed + [False]


@pytest.mark.exhaustive
@pytest.mark.parametrize("shape", [(40, 70, 50), (1, 70, 50), (33, 1, 50), (9, 40, 20000)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_epilogues_round_after_each_operation(dtype, shape, rng):
    """The product is what NumPy rounds it to, up to the order of its sum; what follows, exactly."""
    m, n, k = shape
    with gf.Graph() as g:
        x, w = (
            gf.placeholder((m, k), dtype),
            gf.Variable(random(rng, (k, n), half(dtype)), name="w"),
        )
        bias = gf.placeholder((n,), dtype)
        y = x @ w
        z = gf.maximum(y * 3 + bias, 0) / 7
        wide = gf.sqrt(gf.abs(gf.astype(y, "float32")))
    a, c = random(rng, (m, k), half(dtype)), random(rng, (n,), half(dtype))
    session = gf.Session(g)
    for fetches in ([z], [y, z], [y, z, wide], [wide, z]):
        plan = session.compile(fetches, feeds=[x, bias])
        assert "reference" not in plan.explain((m, k), (n,))
        got = dict(zip(fetches, plan(a, c), strict=True))
        product_of = got.get(y, session.run(y, {x: a}))
        assert_product(product_of, a, session[w])
        dt = half(dtype).type
        scaled = (product_of * dt(3) + c).astype(dt)
        np.testing.assert_array_equal(got[z], np.maximum(scaled, dt(0)) / dt(7))
        if wide in got:
            root = np.sqrt(np.abs(product_of.astype(np.float32)))
            np.testing.assert_array_equal(got[wide], root)
