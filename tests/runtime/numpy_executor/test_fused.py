"""Fused groups from end to end, where memory is planned and arrays are written over."""

import numpy as np
import pytest

import graphfw as gf
from graphfw.errors import ExecutionError
from graphfw.transforms.grad import grad


def agree(monkeypatch, g, fetches, feeds, rtol=2e-5):
    """See that native code gives what the evaluation node by node does."""
    results = []
    for native in "10":
        monkeypatch.setenv("GRAPHFW_JIT", native)
        with gf.Session(g) as session:
            results.append(session.compile(fetches, list(feeds))(*feeds.values()))
    for found, wanted in zip(*results, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=1e-5)


def arrays(rng, tensors, n):
    shapes = {t: [d if isinstance(d, int) else n for d in t.shape] for t in tensors}
    return {t: rng.standard_normal(s, dtype=np.float32) for t, s in shapes.items()}


@pytest.mark.parametrize("n", [1, 2, 33])
def test_what_is_done_to_a_single_column_of_a_product(monkeypatch, rng, n):
    with gf.Graph() as g:
        x, w = gf.placeholder(("n", 20), name="x"), gf.placeholder((20, 1), name="w")
        b, y = gf.placeholder((1,), name="b"), gf.placeholder(("n",), name="y")
        z = x @ w + b
        loss = gf.nn.bce_with_logits(z[:, 0], gf.sigmoid(y))
        fetches = [loss, gf.tanh(z), *grad(loss, [w, b, x])]
    agree(monkeypatch, g, fetches, arrays(rng, [x, w, b, y], n))


@pytest.mark.parametrize("n", [1, 40])
def test_what_is_done_to_a_sum_is_written_over_what_it_reads(monkeypatch, rng, n):
    with gf.Graph() as g:
        x, y = gf.placeholder(("n", 9), name="x"), gf.placeholder((9,), name="y")
        kept = gf.exp(y)
        total = gf.sum(kept)
        both = gf.sum(x, axis=0) + kept
        fetches = [gf.sum(gf.sin(both / total)), gf.sum(gf.cos(kept * both))]
    agree(monkeypatch, g, fetches, arrays(rng, [x, y], n))


@pytest.mark.parametrize("shape", [(7,), ("n", 7)])
def test_a_place_is_picked_of_rows_that_a_reduction_leaves_one(monkeypatch, rng, shape):
    with gf.Graph() as g:
        x = gf.placeholder(shape, name="x")
        least = gf.min(x, axis=-1, keepdims=True)
        index = gf.zeros_like(least, dtype=gf.int64)
        fetches = [gf.take(least, [0], axis=-1), gf.take_along_axis(least, index, axis=-1) + 1]
    agree(monkeypatch, g, fetches, arrays(rng, [x], 5))


@pytest.mark.parametrize("name", ["max", "argmin"])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_largest_of_nothing_for_no_results(name, axis):
    with gf.Graph() as g:
        x = gf.placeholder(("n", "n"), name="x")
        y = getattr(gf, name)(gf.exp(x), axis=axis)
    with gf.Session(g) as session:
        plan = session.compile(y, [x])
        with pytest.raises(ExecutionError, match=f"{name}: axis {axis} has size 0"):
            plan(np.zeros((0, 0), np.float32))
        assert plan(np.zeros((2, 2), np.float32)).shape == (2,)


def test_updates_of_what_a_sum_gives(monkeypatch, rng):
    def trained(native):
        monkeypatch.setenv("GRAPHFW_JIT", native)
        with gf.Graph() as g:
            x = gf.placeholder(("n", 8), name="x")
            y = gf.placeholder(("n",), gf.int64, name="y")
            norm = gf.nn.LayerNorm(8)
            model = gf.nn.Linear(8, 3)
            train = gf.optim.AdamW(1e-2).minimize(gf.nn.cross_entropy(model(norm(x)), y))
        with gf.Session(g, seed=0) as session:
            for _ in range(5):
                session.run(train, {x: inputs, y: labels})
            return session.state_dict()

    inputs, labels = rng.standard_normal((40, 8), dtype=np.float32), rng.integers(0, 3, 40)
    found, wanted = trained("1"), trained("0")
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=name)
