"""Kernels with many numbers read them from memory: the same values, and few kernels."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.functions import F
from graphfw.runtime.kernels.steps import Step, Table
from graphfw.transforms.grad import grad
from tests.runtime.kernels import test_lower as builders
from tests.support.lowering import assert_lowered

_BUILT = [
    builders.elementwise,
    builders.log_softmax,
    builders.batch_norm,
    builders.needed_twice,
    builders.products,
    builders.group_norm,
    builders.sums_with_something_done_to_them,
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("build", _BUILT)
@pytest.mark.parametrize("how", ["interpreted", "native"])
def test_numbers_from_memory_give_the_same(build, how):
    with gf.Graph() as g:
        outputs = build()
        total = sum(F.sum(F.tanh(t)) for t in outputs if t.dtype.is_inexact)
        gradients = grad(total, [t for t in g.placeholders if t.dtype.is_inexact])
    items = assert_lowered(g, [total, *gradients], {"n": 4}, how=how, most_numbers=0)
    assert any(isinstance(s, Table) for item in items for s in getattr(item, "operands", ()))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_each_number_keeps_its_bits(dtype):
    numbers = [0.0, -0.0, 0.1, 1e-7, 3.0]
    with gf.Graph() as g:
        x = gf.placeholder(("n",), dtype, name="x")
        outputs = [F.where(x > 0, x + a, a) for a in numbers]
    items = assert_lowered(g, outputs, {"n": 5}, how="native", most_numbers=2)
    tables = {s for i in items if isinstance(i, Step) for s in i.operands if isinstance(s, Table)}
    (table,) = tables
    assert np.signbit(table.literal.array).sum() == 1


def test_few_numbers_stay_in_the_code():
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y = x * 2.0 + 3.0
    (item,) = assert_lowered(g, [y], {"n": 5}, most_numbers=2)
    assert not any(isinstance(s, Table) for s in item.operands)


@pytest.mark.parametrize("shape", ["a chain", "side by side"])
def test_kernels_that_differ_in_numbers_are_one(shape):
    """However many there are, few functions are compiled."""
    n = 500
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        y, outputs = x, []
        for i in range(n):
            y = (y if shape == "a chain" else x) * (1 + i / 2**20)
            outputs.append(y)
    wanted = outputs[-1:] if shape == "a chain" else outputs
    plan = gf.Session(g, verify="off").compile(wanted, feeds=[x])
    assert len(plan._run.loaded.recipe.functions) <= 4
    array = np.array([1.0, -2.0, 0.5], np.float32)
    expected = array
    found = plan(array)
    for i in range(n):
        expected = (expected if shape == "a chain" else array) * np.float32(1 + i / 2**20)
        if shape == "side by side":
            np.testing.assert_array_equal(found[i], expected)
    np.testing.assert_array_equal(found[-1], expected)


@pytest.mark.slow
def test_small_kernels_that_differ_in_numbers_become_one():
    """Functions that are long in code are in small groups, which hold few numbers each."""
    n = 300
    with gf.Graph() as g:
        x = gf.placeholder(("n",), name="x")
        outputs = [gf.sin(x * (1 + i / 256)) for i in range(n)]
    plan = gf.Session(g, verify="off").compile(outputs, feeds=[x])
    assert len(plan._run.loaded.recipe.functions) <= 24
    array = np.array([1.0, -2.0, 0.5], np.float32)
    for i, found in enumerate(plan(array)):
        np.testing.assert_allclose(found, np.sin(array * np.float32(1 + i / 256)), rtol=1e-5)


def test_few_kernels_keep_their_numbers_in_the_code():
    with gf.Graph() as g:
        x = gf.placeholder((4, 5), name="x")
        outputs = [F.sum(x * number, axis=1) for number in (0.5, 0.25)]
    for item in assert_lowered(g, outputs, {}, how="native"):
        assert not any(isinstance(s, Table) for s in getattr(item, "operands", ()))
