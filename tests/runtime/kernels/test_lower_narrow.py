"""Kernels whose rows are many and narrow: vectors run across the rows."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.functions import F
from graphfw.runtime.kernels.steps import Step
from tests.support.lowering import assert_lowered

GROUPS = {
    "sums of rows": lambda x: [F.sum(x, axis=1)],
    "sums of columns": lambda x: [F.sum(x, axis=0)],
    "both": lambda x: [F.sum(x, axis=0), F.max(x, axis=1)],
    "ends of columns": lambda x: [F.max(x, axis=0), F.min(x, axis=0)],
    "variances": lambda x: [F.var(x, axis=1)],
    "softmax": lambda x: [F.softmax(x, axis=1)],
    "positions": lambda x: [F.argmax(x, axis=1)],
    "unit rows": lambda x: [x / F.sqrt(F.sum(x * x, axis=1, keepdims=True) + 1.0)],
    "standard columns": lambda x: [(x - F.mean(x, axis=0)) / (1.0 + F.var(x, axis=0))],
    "masked": lambda x: [F.sum(F.where(x > 0, x, 0.0), axis=1), F.any(x > 0, axis=1)],
    "parts": lambda x: [F.sum(x[:, ::2] * x[:, :1], axis=1)],
    "reversed": lambda x: [F.sum(x[::-1, ::-1] * x, axis=1)],
}


def forms(items):
    return {item.code.kernel.form for item in items if isinstance(item, Step)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("width", [2, 3, 5, 8, 9])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("how", ["interpreted", "native"])
def test_values(group, width, dtype, how):
    with gf.Graph() as g:
        x = gf.placeholder(("n", width), dtype, name="x")
        outputs = GROUPS[group](x)
    for rows in (1, 37, 300):
        assert_lowered(g, outputs, {"n": rows}, how=how)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_integers(dtype):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 3), dtype, name="x")
        outputs = [F.sum(x, axis=0), F.sum(x, axis=1), F.max(x, axis=1), F.argmin(x, axis=1)]
    assert_lowered(g, outputs, {"n": 333}, how="native")


@pytest.mark.parametrize(
    ("shape", "form"),
    [(("n", 3), "columns"), ((300, 3), "columns"), ((9, 3), "rows"), (("n", 90), "rows")],
)
def test_which_rows_are_narrow(shape, form):
    with gf.Graph() as g:
        y = F.sum(gf.placeholder(shape, name="x"), axis=1)
    assert forms(assert_lowered(g, [y], {"n": 300})) == {form}


@pytest.mark.parametrize(("width", "form"), [(20, "columns"), (90, "rows")])
def test_positions_are_looked_for_in_longer_rows_too(width, form):
    with gf.Graph() as g:
        y = F.argmax(gf.placeholder(("n", width), name="x"), axis=1)
    assert forms(assert_lowered(g, [y], {"n": 40})) == {form}


@pytest.mark.parametrize("how", ["interpreted", "native"])
def test_rows_of_no_elements(how):
    with gf.Graph() as g:
        x = gf.placeholder(("n", 0), name="x")
        outputs = [F.sum(x, axis=1), F.sum(x, axis=0), F.any(x > 0, axis=1)]
    assert_lowered(g, outputs, {"n": 300}, how=how)


def test_rows_along_several_axes_are_joined():
    with gf.Graph() as g:
        y = F.sum(gf.placeholder(("n", 4, 3), name="x"), axis=2)
    assert forms(assert_lowered(g, [y], {"n": 80}, how="native")) == {"columns"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "bool"])
@pytest.mark.parametrize("step", [-9, -8, -3, -2, -1, 2, 3, 5, 8, 9])
def test_vectors_of_elements_that_lie_apart(rng, step, dtype):
    with gf.Graph() as g:
        x = gf.placeholder((1003,), dtype, name="x")
        y = F.astype(x[::step], "int32") * 3
    a = rng.integers(0, 100, 1003).astype(dtype)
    with gf.Session(g) as session:
        found = session.run(y, {x: a})
    np.testing.assert_array_equal(found, a[::step].astype(np.int32) * 3)
