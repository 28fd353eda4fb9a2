"""Draws: their distribution, shapes, streams, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphfw as gf
from tests.distributions.cases import CONTINUOUS, COUNTS, NUMBERS, D, computed

COUNT = 4000
LEAST = 1.95  # of sqrt(n) times the greatest difference of both functions: a chance of 0.001


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("name", NUMBERS)
def test_draws_follow_the_distribution(name: str) -> None:
    case = NUMBERS[name]
    x = computed(lambda *p: case.ours(*p).sample((COUNT,)), *case.parameters(), seed=1)
    assert x.shape == (COUNT, 3, 4)
    exact = case.exact()
    x = np.sort(x, axis=0)
    if name in COUNTS:  # at all values
        grid = np.arange(-1, x.max() + 1).reshape(-1, 1, 1)
        share = (x[None] <= grid[:, None]).mean(axis=1)
        off = np.abs(share - exact.cdf(grid))
    else:  # before and after each step
        steps = np.arange(COUNT + 1).reshape(-1, 1, 1) / COUNT
        off = np.maximum(np.abs(exact.cdf(x) - steps[1:]), np.abs(exact.cdf(x) - steps[:-1]))
    # Of twelve distributions one may be far off by chance.
    assert np.sort(off.max(axis=0), axis=None)[-2] * COUNT**0.5 < LEAST


def test_draws_of_one_batch_are_independent() -> None:
    x = computed(lambda loc: D.Normal(loc, 1.0).sample((COUNT,)), np.zeros(2, np.float32))
    assert abs(np.corrcoef(x.T)[0, 1]) < 0.06


@pytest.mark.exhaustive(every=4)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_gradients_of_rsample(name: str) -> None:
    """The mean of the slopes of tanh(x) is the slope of the mean."""
    case = CONTINUOUS[name]
    parameters = [p[:1, :1] if p.ndim == 2 else p[:1] for p in case.parameters()]

    def build(*args: Any) -> Any:
        each = [gf.broadcast_to(p, (2 * COUNT, 1)) for p in args]
        d = case.ours(*each)
        assert d.has_rsample
        return gf.grad(gf.sum(gf.tanh(d.rsample())), each)

    slopes = computed(build, *parameters, seed=3)
    p = (np.arange(200_000) + 0.5) / 200_000
    for i, slope in enumerate(slopes):

        def mean(step: float, i: int = i) -> float:
            moved = [q.ravel() + step * (j == i) for j, q in enumerate(parameters)]
            return float(np.tanh(case.scipys(*moved).ppf(p)).mean())

        exact = (mean(1e-4) - mean(-1e-4)) / 2e-4
        error = slope.std() / slope.size**0.5
        assert slope.mean() == pytest.approx(exact, abs=4 * error + 1e-5)


def test_sample_has_no_gradient() -> None:
    loc = gf.asarray(1.0)
    d = D.Normal(loc, 1.0)
    assert float(gf.grad(gf.sum(loc + d.sample((5,))), loc)) == 5
    assert float(gf.grad(gf.sum(loc + d.rsample((5,))), loc)) == 10


@pytest.mark.parametrize("name", COUNTS)
def test_rsample_is_refused(name: str) -> None:
    d = COUNTS[name].ours(*COUNTS[name].parameters())
    assert not d.has_rsample
    with pytest.raises(gf.GradientError, match="no gradient flows through draws") as caught:
        d.rsample()
    assert "rsample is a method of Beta, Cauchy, Chi2, Dirichlet, " in caught.value.fix


def test_shapes() -> None:
    d = D.Normal(np.zeros((3, 1)), np.ones(4))
    assert d.sample().shape == (3, 4)
    assert d.sample(2).shape == (2, 3, 4)
    assert d.sample((2, 0)).numpy().shape == (2, 0, 3, 4)
    with gf.Graph():
        x = gf.placeholder(("batch", 3), name="x")
        d = D.Normal(x, 1.0)
        assert d.batch_shape == x.shape
        assert d.sample(x.shape[0]).shape == (x.shape[0], *x.shape)
        assert d.log_prob(0.0).shape == x.shape
        assert d.entropy().shape == x.shape
    with pytest.raises(gf.ShapeError, match=r"Normal\.sample: a dim can't be -1"):
        D.Normal(0.0, 1.0).sample(-1)


def test_a_name_pins_a_draw_and_is_that_of_the_result() -> None:
    def drawn(others: int, make: Any) -> Any:
        with gf.Graph() as g:
            for _ in range(others):
                gf.random.normal(())
            x = make().sample((3,), name="noise")
        assert x.shape == (3,)
        with gf.Session(g, seed=5) as session:
            return session.run("noise")

    for make in (
        lambda: D.Normal(0.0, 1.0),
        lambda: D.Logistic(0.0, 1.0),
        lambda: D.MixtureSameFamily(D.Categorical(logits=[0.0, 1.0]), D.Normal([0.0, 5.0], 1.0)),
    ):
        np.testing.assert_array_equal(drawn(0, make), drawn(2, make))
    with pytest.raises(gf.ArgumentError, match="'a/b' is no name for a draw"):
        D.Normal(0.0, 1.0).sample(name="a/b")


def test_draws_outside_a_graph_differ() -> None:
    d = D.Uniform()
    assert float(d.sample()) != float(d.sample())


def test_a_distribution_from_outside_works_in_graphs() -> None:
    d = D.Normal(gf.asarray([1.0, 2.0]), 0.5)
    with gf.Graph() as g:
        x = d.sample((4,))
        log = d.log_prob(x)
    with gf.Session(g) as session:
        drawn, got = session.run([x, log])
    np.testing.assert_allclose(got, d.log_prob(drawn).numpy(), rtol=1e-5)
