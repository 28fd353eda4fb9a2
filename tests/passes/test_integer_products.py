"""`IntegerProductToReduction`: products of integers are compiled as sums."""

from collections import Counter

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.rebuild import derive
from graphfw.passes.integer_products import IntegerProductToReduction
from tests.passes.helpers import ops_of

SHAPES = [
    ((7, 5), (5, 33)),
    ((7, 5), (5, 3)),
    ((1, 65), (65, 130)),
    ((130, 65), (65, 1)),
    ((3, 1, 4, 5), (2, 5, 6)),
    ((4, 0), (0, 6)),
    ((0, 4), (4, 6)),
    ((65,), (65,)),
    ((65,), (65, 40)),
    ((40, 65), (65,)),
]


def drawn(rng, shape, dtype):
    """Integers of the whole range, whose products wrap around."""
    ends = np.iinfo(dtype)
    return rng.integers(ends.min, ends.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint64", "int64"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_every_bit_is_numpys(rng, shapes, dtype):
    a, b = (drawn(rng, shape, dtype) for shape in shapes)
    with gf.Graph() as g:
        x, y = (gf.placeholder(shape, dtype) for shape in shapes)
        product = x @ y
    with gf.Session(g) as session:
        found = session.run(product, {x: a, y: b})
    np.testing.assert_array_equal(found, np.matmul(a, b), strict=True)


@pytest.mark.parametrize("turn_a", [False, True])
@pytest.mark.parametrize("turn_b", [False, True])
def test_transposed_operands_of_any_sizes(rng, turn_a, turn_b):
    with gf.Graph() as g:
        x = gf.placeholder(("k", "m") if turn_a else ("m", "k"), gf.int32)
        y = gf.placeholder(("n", "k") if turn_b else ("k", "n"), gf.int32)
        product = (x.mT if turn_a else x) @ (y.mT if turn_b else y)
    with gf.Session(g) as session:
        plan = session.compile(product, feeds=[x, y])
        for m, k, n in [(7, 33, 129), (1, 1, 1), (64, 0, 3)]:
            a = drawn(rng, (k, m) if turn_a else (m, k), "int32")
            b = drawn(rng, (n, k) if turn_b else (k, n), "int32")
            wanted = (a.T if turn_a else a) @ (b.T if turn_b else b)
            np.testing.assert_array_equal(plan(a, b), wanted)


def test_native_code_computes_them(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Graph() as g:
        x, y = gf.placeholder((13, 29), gf.uint8), gf.placeholder((29, 71), gf.int8)
        product = gf.astype(x, gf.int32) @ gf.astype(y, gf.int32)
    with gf.Session(g) as session:
        assert "outside of native code" not in session.compile(product, feeds=[x, y]).explain()


@pytest.mark.parametrize(
    "after",
    [
        lambda p: p * 2 + 1,
        lambda p: gf.sum(p),
        lambda p: gf.max(p, axis=1),
        lambda p: gf.cumulative_sum(p, axis=1),
        lambda p: p @ p.mT,
    ],
    ids=["elementwise", "sum", "rows", "running sums", "product"],
)
def test_the_tensor_of_all_products_is_never_made(monkeypatch, after):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Graph() as g:
        x, y = gf.placeholder(("m", "k"), gf.int32), gf.placeholder(("k", "n"), gf.int32)
        result = after(x @ y)
    a, b = np.ones((60, 80), np.int32), np.ones((80, 100), np.int32)
    with gf.Session(g) as session:
        memory = session.compile(result, feeds=[x, y]).memory(a, b)
    assert memory.peak < 60 * 80 * 100 * 4 / 8


def test_bodies_of_loops(rng):
    with gf.Graph() as g:
        x = gf.placeholder((5, 5), gf.int64)
        power = gf.fori_loop(0, 6, lambda i, y: y @ x, x)
    a = drawn(rng, (5, 5), "int64")
    with gf.Session(g) as session:
        found = session.run(power, {x: a})
    np.testing.assert_array_equal(found, np.linalg.matrix_power(a, 7))


def test_floats_stay_products():
    with gf.Graph() as g:
        x = gf.placeholder((4, 4))
        graph = derive(g, [x @ x])
    assert IntegerProductToReduction().run(graph, Counter()) is graph


def test_each_product_counts():
    with gf.Graph() as g:
        x = gf.placeholder((4, 4), gf.int32)
        graph = derive(g, [(x @ x) @ x])
    hits = Counter()
    assert "matmul" not in ops_of(IntegerProductToReduction().run(graph, hits))
    assert hits == {"summed": 2}
