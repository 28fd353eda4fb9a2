"""`GemvToReduction`: a row times a matrix in few bits is a sum, fused with what widens it."""

from collections import Counter

import ml_dtypes
import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.concrete import evaluate
from graphfw.ir.rebuild import derive
from graphfw.passes.low_bit_gemv import GemvToReduction
from tests.passes.helpers import ops_of


def wide(w, scale=None):
    found = gf.astype(w, gf.float32)
    return found if scale is None else found * scale


SCALE = np.linspace(0.5, 2, 37, dtype=np.float32)
BLOCKS = np.linspace(0.5, 2, 65 * 3, dtype=np.float32).reshape(5, 13, 3)[:, :1]

FORMS = {
    "row": ((65, 37), lambda w, x: x[None] @ wide(w, SCALE)),
    "vector": ((65, 37), lambda w, x: x @ wide(w)),
    "transposed": ((37, 65), lambda w, x: x[None] @ wide(w, SCALE[:, None]).T),
    "column": ((37, 65), lambda w, x: wide(w, SCALE[:, None]) @ x[:, None]),
    "transposed column": ((65, 37), lambda w, x: wide(w, SCALE).T @ x[:, None]),
    "matrix and vector": ((37, 65), lambda w, x: wide(w) @ x),
    "shifted": ((65, 37), lambda w, x: x @ ((wide(w) - 1.5) * SCALE)),
    "a batch of one": ((65, 37), lambda w, x: x[None, None] @ wide(w)),
    "a batch": ((3, 37, 65), lambda w, x: wide(w) @ gf.stack([x, x + 1, -x])[:, :, None]),
    "blocks": ((5, 13, 3), lambda w, x: x @ gf.reshape(wide(w, BLOCKS), (65, 3))),
    "in a loop": ((65, 65), lambda w, x: gf.fori_loop(0, 3, lambda i, y: y @ wide(w) / 99, x)),
    "read twice": ((65, 37), lambda w, x: (lambda v: gf.sum(v) + x @ v)(wide(w))),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_values(rng, form, dtype):
    shape, make = FORMS[form]
    with gf.Graph() as g:
        w, x = gf.placeholder(shape, dtype, name="w"), gf.placeholder((65,), name="x")
        y = make(w, x)
    feeds = {
        w: (rng.standard_normal(shape) * 5).astype(w.dtype.dtype),
        x: rng.standard_normal(65, np.float32),
    }
    wanted = evaluate([y], given=feeds)[0]
    with gf.Session(g) as session:
        found = session.run(y, feeds)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    hits = Counter()
    after = GemvToReduction().run(derive(g, [y]), hits)
    if form in ("a batch", "blocks", "read twice"):
        assert hits["summed"] == 1
        assert "matmul" not in ops_of(after)
    elif form != "in a loop":
        assert not hits  # the product computes the matrix where it multiplies it


@pytest.mark.parametrize("dtype", ["uint8", "int4", "float8_e4m3fn", "float16"])
def test_dtypes(rng, dtype):
    with gf.Graph() as g:
        w, x = gf.placeholder((70, 37), dtype, name="w"), gf.placeholder((1, 70), name="x")
        y = x @ wide(w)
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = rng.integers(0, 8, (70, 37)).astype(numpy_dtype)
    row = rng.standard_normal((1, 70), np.float32)
    with gf.Session(g) as session:
        found = session.run(y, {w: array, x: row})
    np.testing.assert_allclose(found, row @ array.astype(np.float32), rtol=1e-4, atol=1e-4)


def test_one_step_reads_the_bits_and_writes_the_product(monkeypatch):
    monkeypatch.setenv("GRAPHFW_JIT", "1")
    with gf.Graph() as g:
        w, x = gf.placeholder((70, 37), "int8", name="w"), gf.placeholder((1, 70), name="x")
        y = x @ wide(w)
    with gf.Session(g) as session:
        assert "astype matmul" in str(session.compile(y, feeds=[w, x]).source())


OTHERS = {
    "two rows": ((65, 37), "int8", lambda w, x: gf.stack([x, x]) @ wide(w)),
    "wide already": ((65, 37), "float32", lambda w, x: x @ (w * 2)),
    "in 16 bits": (
        (65, 37),
        "int8",
        lambda w, x: gf.astype(x, "float16") @ gf.astype(w, "float16"),
    ),
    "with a wide one": (
        (65, 37),
        "float16",
        lambda w, x: x @ (wide(w) + gf.random.normal((65, 37))),
    ),
    "where products compute it": ((65, 37), "int8", lambda w, x: x @ (wide(w) * SCALE)),
    "for many": ((65, 37), "int8", lambda w, x: gf.ones((4, 1, 65)) @ wide(w)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_others_stay(other):
    shape, dtype, make = OTHERS[other]
    with gf.Graph() as g:
        w, x = gf.placeholder(shape, dtype, name="w"), gf.placeholder((65,), name="x")
        y = make(w, x)
    graph = derive(g, [y])
    assert GemvToReduction().run(graph, Counter()) is graph
