"""`ShortProductToSum`: products of few columns and terms are written out as sums."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import as_dtype
from graphfw.ir.rebuild import derive
from graphfw.passes.short_products import ShortProductToSum
from tests.passes.helpers import ops_of

SHAPES = [
    ((2, 2), (2, 2)),
    ((3, 3), (3, 1)),
    ((1, 1), (1, 1)),
    ((500, 3), (3, 3)),
    ((70, 4, 4), (70, 4, 4)),
    ((70, 8, 8), (70, 8, 7)),
    ((70, 5, 3), (3, 3)),
    ((3, 3), (70, 3, 6)),
    ((4, 1, 3, 2), (5, 2, 3)),
    ((70, 2, 3), (70, 3, 40)),
    ((70, 0, 3), (70, 3, 2)),
    ((0, 3, 3), (0, 3, 3)),
]


def product(x: Any, y: Any, transposed: bool) -> Any:
    """x @ y, where y is the transpose of what is fed, or not."""
    return x @ (y.mT if transposed else y)


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * rng.standard_normal(shape)
    return np.asarray(values, as_dtype(dtype).dtype)


def is_written_out(g: gf.Graph) -> bool:
    graph = derive(g, g.outputs)
    return ops_of(ShortProductToSum().run(graph, Counter())) != ops_of(graph)


@pytest.mark.exhaustive
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "complex64", "complex128"]
)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_it_computes_products(rng, shapes, dtype, transposed):
    first, second = shapes
    fed = (*second[:-2], second[-1], second[-2]) if transposed else second
    a, b = drawn(rng, first, dtype), drawn(rng, fed, dtype)
    with gf.Graph() as g:
        x, y = gf.placeholder(a.shape, dtype), gf.placeholder(b.shape, dtype)
        z = product(x, y, transposed)
    with gf.Session(g) as session:
        found = session.run(z, {x: a, y: b})
    wide = {"float16": np.float32, "bfloat16": np.float32}.get(dtype, a.dtype)
    wanted = a.astype(wide) @ (b.astype(wide).swapaxes(-1, -2) if transposed else b.astype(wide))
    rtol = {"float16": 1e-3, "bfloat16": 1e-2, "float64": 1e-12, "complex128": 1e-12}.get(
        dtype, 1e-5
    )
    np.testing.assert_allclose(found.astype(wide), wanted, rtol=rtol, atol=10 * rtol)
    assert found.dtype == a.dtype


@pytest.mark.parametrize(
    ("first", "second", "transposed", "is_written"),
    [
        ((9, 3), (3, 3), False, True),
        ((9, 8), (8, 8), False, True),
        ((9, 9), (9, 8), False, False),  # many terms
        ((9, 3), (3, 16), False, False),  # columns for a vector
        ((70, 4, 3), (70, 3, 100), False, True),  # each by itself has few rows
        ((70, 5, 3), (70, 3, 100), False, False),
        ((9, 8), (8, 1), False, False),  # dot products of rows
        ((9, 5), (5, 1), False, True),
        ((70, 8, 8), (70, 8, 1), False, True),
        ((9, 5), (8, 5), True, True),
        ((9, 6), (8, 6), True, False),
        (("n", 3), (3, 3), False, True),
        ((9, "n"), ("n", 3), False, False),
        ((9, 3), (3, "n"), False, False),
        ((9, 0), (0, 3), False, False),
    ],
)
def test_which_products(first, second, transposed, is_written):
    with gf.Graph() as g:
        x, y = gf.placeholder(first), gf.placeholder(second)
        g.outputs = (product(x, y, transposed),)
    assert is_written_out(g) is is_written


def test_it_is_fused_with_what_stands_around_it(rng):
    with gf.Graph() as g:
        x, y = gf.placeholder((50, 3, 3)), gf.placeholder((50, 3, 3))
        z = gf.tanh(gf.exp(x) @ y) + 1
    a, b = (drawn(rng, (50, 3, 3), "float32") for _ in range(2))
    with gf.Session(g) as session:
        plan = session.compile(z, feeds=[x, y])
        assert "matmul" not in str(plan.explain()).partition("native step")[2]
        np.testing.assert_allclose(plan(a, b), np.tanh(np.exp(a) @ b) + 1, rtol=1e-4, atol=1e-5)


def test_chains_in_loops_and_gradients(rng):
    with gf.Graph() as g:
        x = gf.placeholder((20, 4, 4))
        steps = gf.placeholder((6, 4, 4))
        last, _ = gf.scan(lambda c, s: (c @ s, c), x, steps)
        loss = gf.sum(gf.square(last))
        slopes = gf.grad(loss, [x, steps])
    values = {x: 0.5 * drawn(rng, (20, 4, 4), "float32"), steps: drawn(rng, (6, 4, 4), "float32")}
    with gf.Session(g) as session, gf.Session(g, debug=True) as nodewise:
        for found, wanted in zip(
            session.run([loss, *slopes], values), nodewise.run([loss, *slopes], values), strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_strided_feeds(rng):
    with gf.Graph() as g:
        x, y = gf.placeholder((64, 3, 3)), gf.placeholder((64, 3, 3))
        z = x @ y
    with gf.Session(g) as session:
        plan = session.compile(z, feeds=[x, y])
        for _ in range(3):  # the later ones by a variant for the strides
            a = drawn(rng, (3, 3, 128), "float32").transpose(2, 0, 1)[::2]
            b = drawn(rng, (64, 6, 3), "float32")[:, ::-2]
            np.testing.assert_allclose(plan(a, b), a @ b, rtol=1e-4, atol=1e-5)
