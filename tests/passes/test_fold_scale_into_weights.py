"""`FoldScaleIntoWeights`: constant factors and shifts of channels go into constant weights."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.ir.concrete import evaluate
from graphfw.ir.rebuild import derive
from graphfw.passes.manager import run_pipeline
from graphfw.passes.pipelines import DEFAULT
from tests.passes.helpers import ops_of


def checked(build, shape, rng, dtype="float32"):
    """Return the ops that remain, after comparing values with those of the graph as it was."""
    with gf.Graph() as graph:
        x = gf.placeholder(shape, dtype, name="x")
        y = build(x)
    outputs = list(y) if isinstance(y, tuple) else [y]
    after = run_pipeline(derive(graph, outputs), DEFAULT).graph
    array = rng.standard_normal([7 if d == "n" else d for d in shape]).astype(dtype)
    wanted = evaluate(outputs, given={x: array})
    with gf.Session(graph) as session:
        for made, expected in zip(session.run(outputs, {x: array}), wanted, strict=True):
            np.testing.assert_allclose(made, expected, rtol=2e-4, atol=2e-5)
    return ops_of(after)


def batch_norm(y, rng, channels):
    factor, mean, shift = (rng.standard_normal((channels, 1, 1), np.float32) for _ in range(3))
    return (y - mean) * factor / 2 + shift


def test_batch_norm_goes_into_a_convolution(rng):
    w, b = rng.standard_normal((5, 3, 3, 3), np.float32), rng.standard_normal(5, np.float32)
    ops = checked(lambda x: batch_norm(gf.conv(x, w, b, padding=1), rng, 5), ("n", 3, 6, 5), rng)
    assert sorted(ops) == ["add", "constant", "constant", "conv", "placeholder"]


def test_without_a_shift_nothing_is_added(rng):
    w = rng.standard_normal((4, 6), np.float32)
    ops = checked(lambda x: (x @ w) * np.float32(3), ("n", 4), rng)
    assert sorted(ops) == ["constant", "matmul", "placeholder"]


def test_products_of_matrices_and_both_sides(rng):
    w, f, s = (rng.standard_normal(size, np.float32) for size in ((4, 6), (6,), (1, 6)))
    ops = checked(lambda x: s + f * (x @ w) - s / 2, ("n", 4), rng)
    assert sorted(ops) == ["add", "constant", "constant", "matmul", "placeholder"]


def test_what_others_read_stays(rng):
    w, f = rng.standard_normal((4, 6), np.float32), rng.standard_normal(6, np.float32)

    def both(x):
        y = x @ w
        return y, y * f

    assert "multiply" in checked(both, ("n", 4), rng)
    assert "multiply" in checked(lambda x: gf.sin(x @ w) + (x @ w) * f, ("n", 4), rng)


@pytest.mark.parametrize(
    "factor", [np.arange(1, 8, dtype=np.float32)[:, None], np.float32(np.inf) * np.ones(6, "f4")]
)
def test_other_factors_stay(rng, factor):
    w = rng.standard_normal((4, 6), np.float32)
    with np.errstate(invalid="ignore"):
        assert "multiply" in checked(lambda x: (x @ w) * factor, (7, 4), rng)


def test_weights_that_are_no_constants_stay(rng):
    def build(x):
        return (x @ gf.placeholder((4, 6), name="w")) * np.arange(6, dtype=np.float32)

    with gf.Graph() as graph:
        y = build(gf.placeholder(("n", 4)))
    assert "multiply" in ops_of(run_pipeline(derive(graph, [y]), DEFAULT).graph)


def test_a_shift_alone_stays_as_it_is(rng):
    w, s = rng.standard_normal((4, 6), np.float32), rng.standard_normal(6, np.float32)
    assert sorted(checked(lambda x: x @ w + s, ("n", 4), rng)) == [
        *("add", "constant", "constant", "matmul", "placeholder")
    ]
