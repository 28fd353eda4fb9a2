"""`ComplexProductToReal`: products of complex matrices are compiled as those of real ones."""

from collections import Counter

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.rebuild import derive
from graphfw.ops.linalg.products import MatMul
from graphfw.passes.complex_products import ComplexProductToReal
from tests.passes.helpers import ops_of

SHAPES = [
    ((7, 5), (5, 33)),
    ((1, 65), (65, 130)),
    ((130, 65), (65, 1)),
    ((96, 80), (80, 96)),
    ((3, 1, 4, 5), (2, 5, 6)),
    ((4, 5), (3, 5, 6)),
    ((4, 0), (0, 6)),
    ((0, 4), (4, 6)),
    ((2, 0, 4), (2, 4, 6)),
    ((65,), (65,)),
    ((65,), (65, 40)),
    ((40, 65), (65,)),
]


def drawn(rng, shape, dtype):
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def close(found, wanted):
    tolerance = 2e-5 if wanted.dtype == np.complex64 else 1e-13
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=20 * tolerance)


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtypes", [("complex64",) * 2, ("complex128",) * 2, ("f4", "c8")], ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_values_are_numpys(rng, shapes, dtypes):
    a, b = (drawn(rng, *pair) for pair in zip(shapes, dtypes, strict=True))
    with gf.Graph() as g:
        x, y = (gf.placeholder(array.shape, array.dtype) for array in (a, b))
        product = x @ y
    with gf.Session(g) as session:
        close(session.run(product, {x: a, y: b}), a @ b)


@pytest.mark.parametrize("lead", [(), ("b",)], ids=str)
def test_any_sizes_and_layouts(rng, lead):
    with gf.Graph() as g:
        x = gf.placeholder((*lead, "k", "m"), gf.complex64)
        y = gf.placeholder((*lead, "n", "k"), gf.complex64)
        product = gf.conj(x.mT) @ y.mT
    with gf.Session(g) as session:
        plan = session.compile(product, feeds=[x, y])
        for k, m, n in [(7, 33, 129), (1, 1, 1), (0, 4, 3), (64, 0, 3)]:
            outer = (3,) * len(lead)
            a, b = drawn(rng, (*outer, k, m), "c8"), drawn(rng, (*outer, n, k), "c8")
            close(plan(a, b), a.mT.conj() @ b.mT)


def test_in_a_loop(rng):
    a, b = drawn(rng, (6, 6), "c16") / 6, drawn(rng, (6, 4), "c16")
    with gf.Graph() as g:
        x, y = gf.placeholder(a.shape, a.dtype), gf.placeholder(b.shape, b.dtype)
        z = gf.fori_loop(0, 3, lambda _, c: x @ c, y)
    with gf.Session(g) as session:
        close(session.run(z, {x: a, y: b}), a @ (a @ (a @ b)))


def test_no_complex_product_is_left():
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), gf.complex64)
        g.outputs = (x @ x.mT, gf.real(x) @ gf.real(x).mT)
    hits = Counter()
    made = ComplexProductToReal().run(derive(g, g.outputs), hits)
    assert hits == {"split": 1}
    products = [node for node in made.nodes if isinstance(node.op, MatMul)]
    assert len(products) == 2
    assert not any(node.types[0].dtype.is_complex for node in products)
    assert "complex" in ops_of(made)
