"""Draws of `sample_logits` against the probabilities that NumPy computes."""

import numpy as np
import pytest
from scipy import stats

import graphfw as gf
from graphfw import nn

DRAWS = 20_000


def kept(logits, temperature, top_k, top_p):
    """Return the probabilities: scale, keep the k largest, then the fewest that have top_p."""
    scaled = np.float64(logits) / temperature
    order = np.argsort(-scaled)
    order = order[: top_k or len(order)]
    chances = np.exp(scaled[order] - scaled.max())
    chances /= chances.sum()
    count = len(order) if top_p is None else 1 + np.sum(np.cumsum(chances)[:-1] < top_p)
    result = np.zeros(len(scaled))
    result[order[:count]] = chances[:count] / chances[:count].sum()
    return result


@pytest.mark.exhaustive
@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(None, None), (4, None), (None, 0.7), (5, 0.8)])
def test_probabilities(rng, temperature, top_k, top_p):
    logits = rng.standard_normal(9).astype(np.float32) * 2
    expected = kept(logits, temperature, top_k, top_p)
    with gf.Graph() as graph:
        many = np.broadcast_to(logits, (DRAWS, 9))
        drawn = nn.sample_logits(many, temperature, top_k, top_p)
    with gf.Session(graph, seed=7) as session:
        counts = np.bincount(session.run(drawn), minlength=9)
    possible = expected > 0
    assert not counts[~possible].any()
    if possible.sum() > 1:
        found = stats.chisquare(counts[possible], expected[possible] * DRAWS)
        assert found.pvalue > 1e-4, (counts, expected * DRAWS)


def test_each_row_has_its_own_options(rng):
    """The second row's top_p leaves one class, and the first row's temperature all."""
    logits = np.array([[0.0, 3.0, 1.0, 2.0]] * 2, np.float32)
    with gf.Graph() as graph:
        heat = gf.placeholder((2, 1), name="heat")
        mass = gf.placeholder((2, 1), name="mass")
        drawn = nn.sample_logits(logits, heat, top_p=mass)
    # Values are not compared: sample inputs are below 0, too.
    with gf.Session(graph, verify="each") as session:
        plan = session.compile(drawn, feeds=[heat, mass])
        columns = [np.float32([[x], [y]]) for x, y in ((100, 1), (1, 0.1))]
        found = np.array([plan(*columns) for _ in range(60)])
        assert set(found[:, 0]) == {0, 1, 2, 3}
        assert set(found[:, 1]) == {1}
        for wrong, name in [((0, 1), "temperature"), ((1, 0), "top_p"), ((1, 1.5), "top_p")]:
            columns = [np.full((2, 1), x, np.float32) for x in wrong]
            with pytest.raises(gf.ExecutionError, match=f"{name} must be above 0"):
                plan(*columns)


def test_top_k_above_the_number_of_classes():
    assert nn.sample_logits([-np.inf, 0.0], top_k=50, top_p=0.9) == 1


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_dtypes(dtype):
    logits = gf.astype(gf.asarray([[1.0, 9.0], [30.0, 2.0]]), dtype)
    drawn = nn.sample_logits(logits, temperature=0.05, top_p=0.9)
    assert drawn.dtype is gf.int64
    assert drawn.numpy().tolist() == [1, 0]


def test_mistakes():
    cases = [
        (lambda: nn.sample_logits([0.0, 1.0], 0.0), gf.ArgumentError, "temperature=0.9"),
        (lambda: nn.sample_logits([0.0, 1.0], True), gf.ArgumentError, "temperature=0.9"),
        (lambda: nn.sample_logits([0.0, 1.0], top_k=-1), gf.ArgumentError, "top_k=1"),
        (lambda: nn.sample_logits([0.0, 1.0], top_p=1.01), gf.ArgumentError, "top_p=0.9"),
        (lambda: nn.sample_logits(1.0), gf.ShapeError, "one a class"),
        (lambda: nn.sample_logits([1j, 2.0]), gf.DTypeError, "gf.abs"),
        (
            lambda: nn.sample_logits([1.0, 2.0], gf.asarray([0.0, 1.0])),
            gf.ArgumentError,
            "temperature=0.9",
        ),
    ]
    for call, error, fix in cases:
        with pytest.raises(error) as caught:
            call()
        assert fix in caught.value.fix, caught.value
