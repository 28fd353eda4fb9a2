"""The largest few by reductions: the places that a stable sort has."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.dtype import as_dtype
from graphfw.ir.rebuild import derive
from graphfw.passes.topk_reductions import TopKToReductions
from tests.ops.test_order import DTYPES, KINDS, drawn, indices_of

_EVERYDAY = ("float32", "bfloat16", "int32")


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    "dtype",
    [pytest.param(d, marks=() if d in _EVERYDAY else pytest.mark.exhaustive) for d in DTYPES],
)
def test_places_and_values(rng, dtype, largest):
    for shape, axis in (((9, 33), 1), ((33, 9), 0), ((4,), 0)):
        for k in (1, 3, 4):
            with gf.Graph() as g:
                tensor = gf.placeholder(shape, as_dtype(dtype), name="x")
                y = gf.topk(tensor, k, axis=axis, largest=largest)
            plan = gf.Session(g).compile(list(y), [tensor])
            for kind in KINDS:
                x = drawn(rng, shape, dtype, kind)
                indices = np.take(indices_of(x, axis, largest), np.arange(k), axis)
                values, found = plan(x)
                np.testing.assert_array_equal(found, indices, strict=True)
                wanted = np.take_along_axis(x, indices, axis)
                np.testing.assert_array_equal(values.astype(float), wanted.astype(float))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_rows_without_numbers_have_an_order(dtype):
    lowest = -np.inf if dtype != "int32" else np.iinfo(dtype).min
    x = np.full((3, 40), lowest, dtype)
    if dtype != "int32":
        x[1], x[2, 3], x[2, 7] = np.nan, np.nan, 5
    with gf.Graph() as g:
        tensor = gf.placeholder(x.shape, dtype)
        y = gf.topk(tensor, 4, axis=1)
    found = gf.Session(g).run(y.indices, {tensor: x})
    np.testing.assert_array_equal(found, indices_of(x, 1, True)[:, :4])


@pytest.mark.parametrize(
    ("shape", "dtype", "k", "largest", "is_reduced"),
    [
        ((3, 50), "float32", 4, True, True),
        ((3, 50), "float32", 5, True, False),
        ((3, 50), "float32", 0, True, False),
        ((3, 50), "float32", 1, False, False),  # NaN is the largest
        ((3, 50), "int32", 1, False, True),
        ((3, "n"), "float32", 1, True, False),  # there may be fewer
    ],
)
def test_few_of_enough_are_reduced(shape, dtype, k, largest, is_reduced):
    with gf.Graph() as g:
        y = gf.topk(gf.placeholder(shape, dtype), k, axis=1, largest=largest)
    graph = TopKToReductions()(derive(g, [y.indices]))
    assert ("topk" not in [node.op.name for node in graph.nodes]) is is_reduced
