"""The distributions of numbers, with SciPy's, and parameters to try them with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

import graphfw as gf

D = gf.distributions
REAL, ABOVE_0, CHANCE = (-2.0, 2.0), (0.5, 3.0), (0.1, 0.9)


@dataclass(frozen=True)
class Case:
    """One distribution.

    Attributes:
        ours: Makes it of its parameters.
        scipys: Makes SciPy's.
        ranges: The ranges of the parameters.
        lacks: The results that it has no closed form of.
    """

    ours: Callable[..., Any]
    scipys: Callable[..., Any]
    ranges: Sequence[tuple[float, float]]
    lacks: frozenset[str] = frozenset()

    def parameters(self, dtype: Any = np.float64) -> list[np.ndarray]:
        """Return random parameters of shapes [3, 1] and [4], which broadcast to [3, 4]."""
        rng = np.random.default_rng(7)
        shapes = [(3, 4)] if len(self.ranges) == 1 else [(3, 1), (4,), (3, 4)]
        pairs = zip(self.ranges, shapes, strict=False)
        return [rng.uniform(low, high, shape).astype(dtype) for (low, high), shape in pairs]

    def exact(self) -> Any:
        """Return SciPy's distribution of the same parameters."""
        return self.scipys(*self.parameters())


def lacks(*names: str) -> frozenset[str]:
    return frozenset(names)


def of_logits(kind: Any) -> Callable[..., Any]:
    return lambda p, **kw: kind(logits=gf.log(p) - gf.log1p(-p))


CONTINUOUS = {
    "Normal": Case(D.Normal, stats.norm, (REAL, ABOVE_0)),
    "LogNormal": Case(
        D.LogNormal, lambda loc, scale: stats.lognorm(scale, scale=np.exp(loc)), (REAL, (0.3, 1.0))
    ),
    "HalfNormal": Case(D.HalfNormal, lambda scale: stats.halfnorm(scale=scale), (ABOVE_0,)),
    "Laplace": Case(D.Laplace, stats.laplace, (REAL, ABOVE_0)),
    "Cauchy": Case(D.Cauchy, stats.cauchy, (REAL, ABOVE_0)),
    "Gumbel": Case(D.Gumbel, stats.gumbel_r, (REAL, ABOVE_0)),
    "Logistic": Case(D.Logistic, stats.logistic, (REAL, ABOVE_0)),
    "StudentT": Case(D.StudentT, stats.t, ((2.5, 9.0), REAL, ABOVE_0), lacks("cdf", "icdf")),
    "Uniform": Case(
        D.Uniform, lambda low, high: stats.uniform(low, high - low), ((-2.0, 0.0), (0.5, 2.0)),
        lacks("mode"),
    ),
    "Beta": Case(D.Beta, stats.beta, (ABOVE_0, ABOVE_0), lacks("icdf")),
    "Exponential": Case(
        lambda rate: D.Exponential(rate=rate), lambda rate: stats.expon(scale=1 / rate), (ABOVE_0,)
    ),
    "Gamma": Case(
        lambda a, scale: D.Gamma(a, scale=scale),
        lambda a, scale: stats.gamma(a, scale=scale),
        (ABOVE_0, ABOVE_0),
        lacks("icdf"),
    ),
    "Chi2": Case(D.Chi2, stats.chi2, ((1.0, 9.0),), lacks("icdf")),
    "Weibull": Case(
        lambda k, scale: D.Weibull(concentration=k, scale=scale),
        lambda k, scale: stats.weibull_min(k, scale=scale),
        (ABOVE_0, ABOVE_0),
    ),
    "Pareto": Case(
        lambda k, scale: D.Pareto(concentration=k, scale=scale),
        lambda k, scale: stats.pareto(k, scale=scale),
        ((2.5, 5.0), ABOVE_0),
    ),
}  # fmt: skip

COUNTS = {
    "Bernoulli": Case(lambda p: D.Bernoulli(probs=p), stats.bernoulli, (CHANCE,), lacks("icdf")),
    "Bernoulli of logits": Case(of_logits(D.Bernoulli), stats.bernoulli, (CHANCE,), lacks("icdf")),
    "Geometric": Case(
        lambda p: D.Geometric(probs=p), lambda p: stats.geom(p, loc=-1), (CHANCE,), lacks("icdf")
    ),
    "Geometric of logits": Case(
        of_logits(D.Geometric), lambda p: stats.geom(p, loc=-1), (CHANCE,), lacks("icdf")
    ),
    "Binomial": Case(
        lambda p: D.Binomial(12, probs=p), lambda p: stats.binom(12, p), (CHANCE,), lacks("icdf")
    ),
    "Binomial of logits": Case(
        lambda p: D.Binomial(12, logits=gf.log(p) - gf.log1p(-p)),
        lambda p: stats.binom(12, p), (CHANCE,), lacks("icdf"),
    ),
    "Poisson": Case(D.Poisson, stats.poisson, ((0.2, 20.0),), lacks("icdf", "entropy")),
}  # fmt: skip

NUMBERS = {**CONTINUOUS, **COUNTS}


def computed(build: Callable[..., Any], *arrays: np.ndarray, seed: int = 0) -> Any:
    """Return a session's results for arrays that are fed; dims but 1 are symbolic."""
    with gf.Graph() as g:
        feeds = {}
        for i, array in enumerate(arrays):
            shape = tuple(f"n{size}" if size > 1 else size for size in array.shape)
            feeds[gf.placeholder(shape, array.dtype.name, name=f"x{i}")] = array
        made = build(*feeds)
    with gf.Session(g, seed=seed) as session:
        return session.run(made, feeds)
