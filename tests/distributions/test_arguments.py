"""Parameters and values that make no sense, and calls as others write them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphfw as gf
from tests.distributions.cases import D

BAD: list[tuple[Callable[[], Any], type[Exception], str, str]] = [
    (lambda: D.Normal(0.0, -1.0), gf.ArgumentError, "Normal: scale=-1.0 must be above 0",
     "gf.softplus"),
    (lambda: D.Normal(0.0, [1.0, 0.0]), gf.ArgumentError,
     "Normal: scale has 0, and must be above 0", "gf.softplus"),
    (lambda: D.Normal(0.0, gf.nan), gf.ArgumentError, "Normal: scale=nan must be above 0", ""),
    (lambda: D.Normal(np.zeros(3), np.ones(2)), gf.ShapeError,
     "Normal: shapes don't broadcast: dim -1 of [3] and dim -1 of [2]", "make the dims equal"),
    (lambda: D.Normal(1j, 1.0), gf.DTypeError, "Normal: wants floating-point tensors", "gf.real"),
    (lambda: D.Normal(0.0), gf.CallError, "Normal: missing a required argument: 'scale'",
     "loc, scale"),
    (lambda: D.Normal(mean=0.0, std=1.0), gf.CallError, "Normal: ",
     "D.Normal(loc=0.0, scale=1.0)"),
    (lambda: D.StudentT(df=3.0), gf.CallError, "StudentT: ", "D.StudentT(freedom=3.0)"),
    (lambda: D.StudentT(0.0), gf.ArgumentError, "StudentT: freedom=0.0 must be above 0", ""),
    (lambda: D.Exponential(2.0), gf.CallError, "Exponential: too many positional arguments",
     "D.Exponential(rate=2.0)"),
    (lambda: D.Exponential(), gf.ArgumentError, "Exponential: none of rate and scale are given",
     "pass rate=… or scale=…"),
    (lambda: D.Exponential(rate=0.0), gf.ArgumentError,
     "Exponential: rate=0.0 must be above 0", ""),
    (lambda: D.Gamma(1.0, 2.0), gf.CallError, "Gamma: too many", "D.Gamma(1.0, rate=2.0)"),
    (lambda: D.Gamma(1.0, rate=2.0, scale=0.5), gf.ArgumentError,
     "Gamma: both of rate and scale are given", "pass rate=…"),
    (lambda: D.Beta(concentration1=1.0, concentration0=2.0), gf.CallError, "Beta: ",
     "D.Beta(a=1.0, b=2.0)"),
    (lambda: D.Uniform(1.0, 0.0), gf.ArgumentError, "Uniform: low must be below high",
     "exchange them"),
    (lambda: D.Bernoulli(0.5), gf.CallError, "Bernoulli: too many", "D.Bernoulli(probs=0.5)"),
    (lambda: D.Bernoulli(probs=1.5), gf.ArgumentError,
     "Bernoulli: probs=1.5 must be from 0 to 1", "logits=…"),
    (lambda: D.Bernoulli(probs=0.5, logits=0.0), gf.ArgumentError,
     "both of probs and logits are given", ""),
    (lambda: D.Geometric(probs=0.0), gf.ArgumentError,
     "Geometric: probs=0.0 must be above 0 and at most 1", ""),
    (lambda: D.Binomial(2.5, probs=0.5), gf.ArgumentError, "Binomial: count 2.5 is no int", ""),
    (lambda: D.Binomial(-1, probs=0.5), gf.ArgumentError,
     "Binomial: count=-1 must not be negative", ""),
    (lambda: D.Binomial(total_count=3, probs=0.5), gf.CallError, "Binomial: ",
     "D.Binomial(count=3, probs=0.5)"),
    (lambda: D.Poisson(-1.0), gf.ArgumentError, "Poisson: rate=-1.0 must be 0 or more", ""),
    (lambda: D.Categorical([0.5, 0.5]), gf.CallError, "Categorical: too many",
     "D.Categorical(probs=[0.5, 0.5])"),
    (lambda: D.Categorical(probs=0.5), gf.ShapeError, "Categorical: probs has no classes",
     "along the last axis"),
    (lambda: D.Categorical(probs=[0.0, 0.0]), gf.ArgumentError,
     "Categorical: probs has 0, and must be 0 or more, and not all 0", "logits=…"),
    (lambda: D.Categorical(probs=[-1.0, 2.0]), gf.ArgumentError, "probs has -1, and", ""),
    (lambda: D.Dirichlet(1.0), gf.ShapeError, "the concentration is a number", "pass [K]"),
    (lambda: D.Dirichlet([1.0, 0.0]), gf.ArgumentError, "concentration has 0, and must", ""),
    (lambda: D.MultivariateNormal([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]]), gf.CallError,
     "MultivariateNormal: too many", "covariance=[[1.0, 0.0], [0.0, 1.0]])"),
    (lambda: D.MultivariateNormal([0.0], scale_tril=[1.0]), gf.ShapeError,
     "loc and scale_tril are [1] and [1], not [*B, D] and [*B, D, D]", "Independent"),
    (lambda: D.MultivariateNormal([0.0, 0.0], scale_tril=[[0.0, 0.0], [1.0, 1.0]]),
     gf.ArgumentError, "scale_tril has 0, and must be above 0 on the diagonal", "covariance"),
    (lambda: D.MultivariateNormal([0.0, 0.0], covariance=[[1.0, 2.0], [2.0, 1.0]]),
     gf.ArgumentError, "covariance has 1, and must be the elements of a symmetric", "scale_tril"),
    (lambda: D.Normal(np.zeros(3), 1.0).log_prob(np.zeros(2)), gf.ShapeError,
     "Normal.log_prob: the value's dims and the batch shape, [2] and [3], don't broadcast", ""),
    (lambda: D.Normal(0.0, 1.0).log_prob(np.array(1j)), gf.DTypeError, "Normal.log_prob: wants",
     "gf.real"),
    (lambda: D.Dirichlet([1.0, 1.0]).log_prob(0.5), gf.ShapeError,
     "the value's shape [] does not end in the event shape [2]", "d.sample()"),
    (lambda: D.Normal(0.0, 1.0).sample(sample_shape=(3,)), gf.CallError, "sample: ",
     "sample(shape=(3,))"),
    (lambda: D.MixtureSameFamily([0.5, 0.5], D.Normal([0.0, 1.0], 1.0)), gf.ArgumentError,
     "MixtureSameFamily: mixture", ""),
    (lambda: D.MixtureSameFamily(D.Categorical(probs=[0.5, 0.5]), D.Normal(0.0, 1.0)),
     gf.ShapeError, "2 classes, and components of the batch []", "last batch dim"),
    (lambda: D.Normal(0.0, 1.0).stddev, AttributeError, "has no attribute 'stddev'", "d.std"),
    (lambda: D.Normal(0.0, 1.0).prob(0.5), AttributeError, "has no attribute 'prob'",
     "gf.exp(d.log_prob(x))"),
    (lambda: D.Weibull(2.0, 3.0), gf.CallError, "Weibull: too many",
     "gf.distributions.Weibull(concentration=3.0, scale=2.0)"),
    (lambda: D.Pareto(scale=2.0, alpha=3.0), gf.CallError, "Pareto: ",
     "gf.distributions.Pareto(concentration=3.0, scale=2.0)"),
    (lambda: D.Dirichlet([1.0, 1.0]).cdf([0.5, 0.5]), gf.ArgumentError,
     "Dirichlet.cdf: there is none in closed form", "distributions of numbers"),
    (lambda: D.Normal(0.0, 1.0).cumulative, AttributeError, "has no attribute 'cumulative'", ""),
    (lambda: D.VonMises, AttributeError, "gf.distributions has no name 'VonMises'", ""),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "summary", "fix"), BAD)
def test_errors(call: Callable[[], Any], error: type[Exception], summary: str, fix: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert summary in str(caught.value)
    assert fix in caught.value.fix  # type: ignore[attr-defined]  # of all of graphfw's errors
    assert "test_arguments.py" in str(caught.value)


def test_values_that_are_not_known_are_not_checked() -> None:
    with gf.Graph():
        x = gf.placeholder(("n",), name="x")
        assert D.Normal(0.0, x).batch_shape == x.shape
        assert D.Bernoulli(probs=x).batch_shape == x.shape


def test_dtypes() -> None:
    assert D.Normal(0, 1).dtype is gf.float32
    assert D.Normal(np.zeros(2), 1).dtype is gf.float64
    assert D.Normal(np.zeros(2, np.float32), 1.5).dtype is gf.float32
    assert D.Bernoulli(probs=0.5).dtype is gf.bool
    assert D.Poisson(1.0).dtype is gf.int64
    assert D.Normal(0, 1).log_prob(np.array(1.0)).dtype is gf.float64
    assert D.Normal(0, 1).log_prob(1).dtype is gf.float32
    assert D.Normal(0, 1).log_prob(np.arange(3)).dtype is gf.float32
    with gf.default_dtype(gf.float64):
        assert D.Normal(0, 1).dtype is gf.float64


def test_text_and_pickles() -> None:
    d = D.Normal(np.zeros((2, 3)), 1.0)
    assert repr(d) == "Normal(batch_shape=(2, 3), event_shape=(), dtype=float64)"
    again = pickle.loads(pickle.dumps(d))
    np.testing.assert_array_equal(again.log_prob(0.5).numpy(), d.log_prob(0.5).numpy())


def test_modes_intercept_what_a_distribution_calls() -> None:
    class Names(gf.FunctionMode):
        def __init__(self) -> None:
            self.names: list[str] = []

        def __graphfw_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
            self.names.append(func.__name__)
            return func(*args, **kwargs)

    with Names() as mode:
        D.Normal(0.0, 1.0).sample()
    assert "normal" in mode.names


def test_it_is_imported_when_it_is_used() -> None:
    program = (
        "import sys, graphfw as gf\n"
        "name = 'graphfw.distributions'\n"
        "print(name in sys.modules, gf.distributions.Normal(0.0, 1.0), name in sys.modules)\n"
        "from graphfw.distributions import Normal"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout.startswith("False Normal("), ran.stderr
    assert ran.stdout.endswith(" True\n")
    assert not ran.stderr
